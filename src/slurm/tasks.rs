//! The tasks of job arrays: their states from `squeue`, what they used from `sacct`, and ending them with
//! `scancel`.

use std::collections::BTreeMap;

use super::{SlurmError, Submission, command::run};

/// A task, in the notation of Slurm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// `1234_7`
    pub id: String,
    pub state: String,
    /// Why it is in that state; empty if Slurm gives no reason.
    pub reason: String,
    pub node: String,
    /// How long it has run.
    pub time: String,
    /// The job's name.
    name: String,
}

impl Task {
    pub fn is_of(&self, job: &Submission) -> bool {
        self.id.split('_').next() == Some(&job.job) && self.name == job.name
    }
}

/// Resources used by a task, or by several together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// The last state of a task.
    pub state: String,
    /// Run time in seconds, including restarts.
    pub elapsed_s: u64,
    /// CPU time in seconds.
    pub cpu_s: u64,
    /// Peak memory of any of its processes, in bytes.
    pub peak_rss: Option<u64>,
}

/// What tasks used, by task id, if the site has accounting.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accounting(pub BTreeMap<String, Used>);

/// The jobs, grouped by cluster.
fn by_cluster(jobs: &[Submission]) -> Vec<(Option<&str>, Vec<&Submission>)> {
    let mut clusters: BTreeMap<Option<&str>, Vec<&Submission>> = BTreeMap::new();
    for job in jobs {
        clusters.entry(job.cluster.as_deref()).or_default().push(job);
    }
    clusters.into_iter().collect()
}

fn ids(jobs: &[&Submission]) -> String {
    jobs.iter().map(|job| job.job.as_str()).collect::<Vec<_>>().join(",")
}

fn with_cluster<'a>(cluster: Option<&'a str>, arguments: &[&'a str]) -> Vec<&'a str> {
    cluster.into_iter().flat_map(|name| ["-M", name]).chain(arguments.iter().copied()).collect()
}

/// The tasks that Slurm still knows: waiting, running, or ended in the last few minutes. The second value
/// lists other jobs that have the same number as one of these.
pub fn tasks(jobs: &[Submission]) -> Result<(Vec<Task>, Vec<String>), SlurmError> {
    let (mut tasks, mut others) = (Vec::new(), Vec::new());
    for (cluster, own) in by_cluster(jobs) {
        let ids = ids(&own);
        let arguments = ["-h", "-r", "-t", "all", "-o", "%i|%T|%r|%N|%M|%j", "-j", &ids];
        match run("squeue", &with_cluster(cluster, &arguments), None) {
            Ok((answer, _)) => {
                let is_own = |task: &Task| own.iter().any(|job| task.is_of(job));
                let (own, foreign): (Vec<Task>, Vec<Task>) =
                    answer.lines().filter_map(task).partition(is_own);
                tasks.extend(own);
                others.extend(
                    foreign.into_iter().filter_map(|task| Some(task.id.split('_').next()?.to_owned())),
                );
            }
            // Slurm no longer knows any of the jobs.
            Err(SlurmError::Refused { message, .. }) if message.contains("Invalid job id") => {}
            Err(e) => return Err(e),
        }
    }
    others.sort();
    others.dedup();
    Ok((tasks, others))
}

/// Parses a line of `squeue`; `None` for other lines, such as a cluster's name.
fn task(line: &str) -> Option<Task> {
    let cells: Vec<&str> = line.splitn(6, '|').collect();
    let &[id, state, reason, node, time, name] = &cells[..] else { return None };
    let [id, state, node, time, name] = [id, state, node, time, name].map(str::to_owned);
    let reason = if reason == "None" { String::new() } else { reason.to_owned() };
    Some(Task { id, state, reason, node, time, name })
}

/// What tasks used; `None` if the site has no accounting.
pub fn accounting(jobs: &[Submission]) -> Option<Accounting> {
    let mut accounting = Accounting::default();
    for (cluster, own) in by_cluster(jobs) {
        let ids = ids(&own);
        let columns = "JobID,State,ElapsedRaw,CPUTimeRAW,MaxRSS,JobName";
        let arguments = ["-n", "-P", "-D", "--units=K", "-o", columns, "-j", &ids];
        // `sacct` may be missing, or print that accounting is off and still exit with 0.
        let (answer, _) = run("sacct", &with_cluster(cluster, &arguments), None).ok()?;
        answer.lines().for_each(|line| accounting.add(line, &own));
    }
    (!accounting.0.is_empty()).then_some(accounting)
}

impl Accounting {
    /// Adds a line about a task or one of its steps; only steps report memory.
    fn add(&mut self, line: &str, jobs: &[&Submission]) {
        let cells: Vec<&str> = line.splitn(6, '|').collect();
        let &[id, state, elapsed, cpu, memory, name] = &cells[..] else { return };
        let kib = memory.strip_suffix('K').and_then(|kib| kib.parse::<f64>().ok());
        let peak_rss = kib.map(|kib| (kib * 1024.0) as u64);
        let used = match id.split_once('.') {
            Some((task, _)) => self.0.get_mut(task),
            None => {
                let is_own = |job: &&Submission| Some(&*job.job) == id.split('_').next() && job.name == name;
                jobs.iter().any(is_own).then(|| self.0.entry(id.to_owned()).or_default())
            }
        };
        let Some(used) = used else { return };
        used.peak_rss = used.peak_rss.max(peak_rss);
        if !id.contains('.') {
            // `CANCELLED by 1000`
            state.split(' ').next().unwrap_or_default().clone_into(&mut used.state);
            used.elapsed_s += elapsed.parse::<u64>().unwrap_or(0);
            used.cpu_s += cpu.parse::<u64>().unwrap_or(0);
        }
    }

    /// The tasks of a job; those that have not begun share one id.
    pub fn of_job<'a>(&'a self, job: &'a Submission) -> impl Iterator<Item = (&'a String, &'a Used)> {
        self.0.iter().filter(|(id, _)| id.split('_').next() == Some(&job.job))
    }

    /// What the tasks of a job used together; the peak memory is that of a single process.
    pub fn total(&self, job: &Submission) -> Used {
        let add = |sum: Used, (_, used): (&String, &Used)| Used {
            state: String::new(),
            elapsed_s: sum.elapsed_s + used.elapsed_s,
            cpu_s: sum.cpu_s + used.cpu_s,
            peak_rss: sum.peak_rss.max(used.peak_rss),
        };
        self.of_job(job).fold(Used::default(), add)
    }
}

/// Cancels jobs: their tasks get SIGTERM. Slurm ignores jobs that have ended.
pub fn cancel(jobs: &[Submission]) -> Result<(), SlurmError> {
    for (cluster, own) in by_cluster(jobs) {
        let ids: Vec<&str> = own.iter().map(|job| job.job.as_str()).collect();
        run("scancel", &with_cluster(cluster, &ids), None)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(job: &str, name: &str) -> Submission {
        let [job, name] = [job, name].map(str::to_owned);
        Submission { job, name, cluster: None, tasks: 10, submitted: String::new() }
    }

    #[test]
    fn what_sacct_says_is_added_up() {
        let mut accounting = Accounting::default();
        let jobs = [job("12", "own"), job("13", "own")];
        for line in [
            "12_0|COMPLETED|60|120||own",
            "12_0.batch|COMPLETED|60|120|2048K|batch",
            "12_1|CANCELLED by 1000|5|10||own",
            "12_1.batch|CANCELLED|5|10|1024.5K|batch",
            "12_1|COMPLETED|7|14||own",
            "12_[2-9]|PENDING|0|0||own",
            "13_0|RUNNING|1000|1000||another|sweep's",
            "13_0.batch|RUNNING|1000|1000|9999K|batch",
            "Slurm accounting storage is disabled",
        ] {
            accounting.add(line, &jobs.each_ref());
        }
        let used = |elapsed_s, cpu_s, peak_rss| Used { state: String::new(), elapsed_s, cpu_s, peak_rss };
        assert_eq!(accounting.total(&jobs[0]), used(72, 144, Some(2 << 20)));
        assert_eq!(accounting.total(&jobs[1]), Used::default());
        let states: Vec<_> = accounting.0.values().map(|used| used.state.as_str()).collect();
        assert_eq!(states, ["COMPLETED", "COMPLETED", "PENDING"]);
    }

    #[test]
    fn a_job_is_known_by_its_number_and_its_name() {
        let line = |id: &str, name: &str| task(&format!("{id}|RUNNING|None|n1|0:01|{name}")).unwrap();
        let own = job("12", "own");
        assert!(line("12_0", "own").is_of(&own) && line("12", "own").is_of(&own));
        assert!(!line("12_0", "own|not").is_of(&own) && !line("120_0", "own").is_of(&own));
        assert_eq!(task("CLUSTER: east"), None);
    }
}
