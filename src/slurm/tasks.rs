//! The tasks of job arrays: their states by `squeue`, what they took by `sacct`, their end by `scancel`.

use std::collections::BTreeMap;

use super::{SlurmError, Submission, ask};

/// A task, in Slurm's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// `1234_7`
    pub id: String,
    pub state: String,
    /// Why it is in that state; empty where Slurm gives none.
    pub reason: String,
    pub node: String,
    /// How long it has run.
    pub time: String,
}

/// What the tasks took, where the site accounts for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accounts {
    /// The last state of each task.
    pub states: BTreeMap<String, String>,
    /// Seconds that tasks ran, all together.
    pub elapsed_s: u64,
    /// Seconds of the processors that they had.
    pub cpu_s: u64,
    /// The most memory that one of them took, in bytes.
    pub most_memory: Option<u64>,
}

/// The jobs of each cluster.
fn by_cluster(jobs: &[Submission]) -> Vec<(Option<&str>, String)> {
    let mut clusters: BTreeMap<Option<&str>, Vec<&str>> = BTreeMap::new();
    for job in jobs {
        clusters.entry(job.cluster.as_deref()).or_default().push(&job.job);
    }
    clusters.into_iter().map(|(cluster, jobs)| (cluster, jobs.join(","))).collect()
}

fn with_cluster<'a>(cluster: Option<&'a str>, arguments: &[&'a str]) -> Vec<&'a str> {
    cluster.into_iter().flat_map(|name| ["-M", name]).chain(arguments.iter().copied()).collect()
}

/// The tasks that Slurm still knows: those that wait, those that run, and for some minutes those that ended.
///
/// # Errors
/// Slurm is not there, or does not answer.
pub fn tasks(jobs: &[Submission]) -> Result<Vec<Task>, SlurmError> {
    let mut tasks = Vec::new();
    for (cluster, ids) in by_cluster(jobs) {
        let arguments = ["-h", "-r", "-t", "all", "-o", "%i|%T|%r|%N|%M", "-j", &ids];
        match ask("squeue", &with_cluster(cluster, &arguments), None) {
            Ok((answer, _)) => tasks.extend(answer.lines().filter_map(task)),
            // It has forgotten all of them.
            Err(SlurmError::Refused { words, .. }) if words.contains("Invalid job id") => {}
            Err(e) => return Err(e),
        }
    }
    Ok(tasks)
}

/// A line of `squeue`; `None` for others, such as a cluster's name.
fn task(line: &str) -> Option<Task> {
    let cells: Vec<&str> = line.split('|').collect();
    let &[id, state, reason, node, time] = &cells[..] else { return None };
    let [id, state, node, time] = [id, state, node, time].map(str::to_owned);
    let reason = if reason == "None" { String::new() } else { reason.to_owned() };
    Some(Task { id, state, reason, node, time })
}

/// What tasks took; `None` where the site does not account for it.
pub fn accounts(jobs: &[Submission]) -> Option<Accounts> {
    let mut accounts = Accounts::default();
    for (cluster, ids) in by_cluster(jobs) {
        let columns = "JobID,State,ElapsedRaw,CPUTimeRAW,MaxRSS";
        let arguments = ["-n", "-P", "-D", "--units=K", "-o", columns, "-j", &ids];
        // It may be missing, or say in words that accounting is off, and yet end well.
        let (answer, _) = ask("sacct", &with_cluster(cluster, &arguments), None).ok()?;
        answer.lines().for_each(|line| accounts.add(line));
    }
    (!accounts.states.is_empty()).then_some(accounts)
}

impl Accounts {
    /// A task, or a step of one, which knows its memory.
    fn add(&mut self, line: &str) {
        let cells: Vec<&str> = line.split('|').collect();
        let &[id, state, elapsed, cpu, memory] = &cells[..] else { return };
        if !id.contains('.') {
            // `CANCELLED by 1000`
            let state = state.split(' ').next().unwrap_or_default();
            self.states.insert(id.to_owned(), state.to_owned());
            self.elapsed_s += elapsed.parse().unwrap_or(0);
            self.cpu_s += cpu.parse().unwrap_or(0);
        }
        let kib = memory.strip_suffix('K').and_then(|kib| kib.parse::<f64>().ok());
        self.most_memory = self.most_memory.max(kib.map(|kib| (kib * 1024.0) as u64));
    }
}

/// Ends jobs: their tasks get SIGTERM. Those that have ended are none to Slurm.
///
/// # Errors
/// Slurm is not there, or refuses.
pub fn cancel(jobs: &[Submission]) -> Result<(), SlurmError> {
    for (cluster, ids) in by_cluster(jobs) {
        let ids: Vec<&str> = ids.split(',').collect();
        ask("scancel", &with_cluster(cluster, &ids), None)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_sacct_says_is_added_up() {
        let mut accounts = Accounts::default();
        for line in [
            "12_0|COMPLETED|60|120|",
            "12_0.batch|COMPLETED|60|120|2048K",
            "12_1|CANCELLED by 1000|5|10|",
            "12_1.batch|CANCELLED|5|10|1024.5K",
            "12_[2-9]|PENDING|0|0|",
            "Slurm accounting storage is disabled",
        ] {
            accounts.add(line);
        }
        assert_eq!((accounts.elapsed_s, accounts.cpu_s, accounts.most_memory), (65, 130, Some(2 << 20)));
        let states: Vec<_> = accounts.states.values().map(String::as_str).collect();
        assert_eq!(states, ["COMPLETED", "CANCELLED", "PENDING"]);
    }
}
