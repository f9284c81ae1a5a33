//! `runner status`, `runner cancel`: a sweep's jobs on a cluster.

use std::{collections::BTreeMap, path::PathBuf};

use super::{launch::report, runs::refuse, watch::look};
use crate::{
    host::escape_line,
    record::{RunDir, command_line, text_table},
    report::{Found, find_one},
    run::{Exit, print, print_error},
    slurm::{self, Accounts, Submission, Task},
    units,
};

/// States of tasks that have ended.
const ENDED: [&str; 10] = [
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "DEADLINE",
    "FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PREEMPTED",
    "REVOKED",
    "TIMEOUT",
];

/// States of tasks that are counted, not listed.
const COUNTED: [&str; 3] = ["PENDING", "COMPLETED", "CANCELLED"];

/// Tasks that are listed.
const MOST_LINES: usize = 40;

/// Prints what trials and tasks are doing.
pub fn status(path: &str) -> Exit {
    let (sweep, jobs) = match jobs_of(path) {
        Ok(found) => found,
        Err(exit) => return exit,
    };
    let moment = match look(&sweep.display().to_string()) {
        Ok(moment) => moment,
        Err(e) => return refuse(&e),
    };
    let mut text: String = moment.lines.iter().map(|line| format!("{}\n", escape_line(line))).collect();
    if jobs.is_empty() {
        return print(&format!("{text}no job was submitted for it\n"));
    }
    let tasks = match slurm::tasks(&jobs) {
        Ok(tasks) => tasks,
        // The sweep's own files say enough.
        Err(e) => return print(&text).more_severe(report(&e)),
    };
    let accounts = slurm::accounts(&jobs);
    jobs.iter().for_each(|job| text.push_str(&summary(job, &tasks, accounts.as_ref())));
    text.push_str(&table(&tasks, &trials_of_tasks(&sweep)));
    text.push_str(&accounts.map(|accounts| took(&accounts)).unwrap_or_default());
    print(&text)
}

/// Ends the jobs of a sweep.
pub fn cancel(path: &str) -> Exit {
    let (sweep, jobs) = match jobs_of(path) {
        Ok(found) => found,
        Err(exit) => return exit,
    };
    let folder = command_line([sweep.to_string_lossy()]);
    if jobs.is_empty() {
        let hint = format!(
            "`runner run --resume {folder} --launcher slurm` submits one; Ctrl-C ends a process that runs it"
        );
        print_error(format!("no job was submitted for `{}`", sweep.display()), Some(&hint));
        return Exit::Refused;
    }
    let cancelled = slurm::tasks(&jobs).and_then(|mut tasks| {
        tasks.retain(|task| !ENDED.contains(&task.state.as_str()));
        let is_left = |job: &&Submission| tasks.iter().any(|task| is_of(task, job));
        let left: Vec<Submission> = jobs.iter().filter(is_left).cloned().collect();
        if left.is_empty() { Ok((tasks, left)) } else { slurm::cancel(&left).map(|()| (tasks, left)) }
    });
    match cancelled {
        Ok((_, left)) if left.is_empty() => print("no task waits or runs\n"),
        Ok((tasks, left)) => {
            let names: Vec<&str> = left.iter().map(|job| job.job.as_str()).collect();
            print(&format!(
                "Slurm ends job {} ({}); trials under way save a checkpoint\ngo on with: runner run --resume {folder} --launcher slurm\n",
                names.join(", "),
                counts(tasks.iter().map(|task| (task.state.as_str(), ""))),
            ))
        }
        Err(e) => report(&e),
    }
}

/// The sweep of a path, and its jobs.
fn jobs_of(path: &str) -> Result<(PathBuf, Vec<Submission>), Exit> {
    let sweep = match find_one(path) {
        Ok(Found::Sweep(folder)) => folder,
        Ok(Found::Run(folder)) => {
            print_error(
                format!("`{}` is a run; a cluster has jobs of sweeps", folder.display()),
                Some("name a sweep's folder"),
            );
            return Err(Exit::Refused);
        }
        Err(e) => return Err(refuse(&e)),
    };
    let jobs = slurm::read_submissions(&sweep).map_err(|e| report(&e))?;
    Ok((sweep, jobs))
}

fn is_of(task: &Task, job: &Submission) -> bool {
    task.id.split('_').next() == Some(&job.job)
}

/// `job 12 of 40 tasks, submitted 2026-11-21T01:58:14Z: 4 running, 30 pending (Resources), 6 completed`.
fn summary(job: &Submission, tasks: &[Task], accounts: Option<&Accounts>) -> String {
    let own: Vec<&Task> = tasks.iter().filter(|task| is_of(task, job)).collect();
    // What `squeue` has forgotten may stand in the accounts.
    let is_own = |id: &str| id.split_once('_').is_some_and(|(array, _)| array == job.job);
    let is_forgotten = |id: &str| is_own(id) && !own.iter().any(|task| task.id == id);
    let states = accounts.iter().flat_map(|accounts| &accounts.states);
    let forgotten: Vec<&str> = states
        .filter(|(id, _)| !id.ends_with(']') && is_forgotten(id))
        .map(|(_, state)| state.as_str())
        .collect();
    let unknown = (job.tasks as usize).saturating_sub(own.len() + forgotten.len());
    let known = own.iter().map(|task| {
        let reason = if task.state == "PENDING" { task.reason.as_str() } else { "" };
        (task.state.as_str(), reason)
    });
    let known = known.chain(forgotten.iter().map(|state| (*state, "")));
    let all = known.chain(std::iter::repeat_n(("no longer known to Slurm", ""), unknown));
    format!(
        "job {} of {}, submitted {}: {}\n",
        job.job,
        units::counted(job.tasks.into(), "task"),
        job.submitted,
        counts(all)
    )
}

/// `4 running, 30 pending (Resources)`.
fn counts<'a>(states: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let mut counts: Vec<((&str, &str), u64)> = Vec::new();
    for state in states {
        match counts.iter_mut().find(|(known, _)| *known == state) {
            Some((_, count)) => *count += 1,
            None => counts.push((state, 1)),
        }
    }
    let words = counts.into_iter().map(|((state, reason), count)| {
        let state =
            if state.contains(' ') { state.to_owned() } else { state.to_lowercase().replace('_', " ") };
        let reason = if reason.is_empty() { String::new() } else { format!(" ({reason})") };
        format!("{} {state}{reason}", units::count(count))
    });
    words.collect::<Vec<_>>().join(", ")
}

/// The trials that are under way, by the task that runs them.
fn trials_of_tasks(sweep: &std::path::Path) -> BTreeMap<String, Vec<usize>> {
    let mut trials: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (number, trial) in RunDir::existing(sweep.to_owned()).trials() {
        if let Some(task) = trial.is_live().then(|| trial.slurm_job()).flatten() {
            trials.entry(task).or_default().push(number);
        }
    }
    trials
}

/// The tasks that run, and those that ended otherwise than well.
fn table(tasks: &[Task], trials: &BTreeMap<String, Vec<usize>>) -> String {
    let listed: Vec<&Task> = tasks.iter().filter(|task| !COUNTED.contains(&task.state.as_str())).collect();
    if listed.is_empty() {
        return String::new();
    }
    let row = |task: &&Task| {
        let trials = trials.get(&task.id).map(|own| units::numbers(own)).unwrap_or_default();
        let [id, node, time, reason] = [&task.id, &task.node, &task.time, &task.reason].map(String::clone);
        vec![id, task.state.to_lowercase(), node, time, trials, reason]
    };
    let rows: Vec<_> = listed.iter().take(MOST_LINES).map(row).collect();
    let head = ["task", "state", "node", "time", "trial", "reason"];
    let more = listed.len().saturating_sub(MOST_LINES);
    let more = if more > 0 { format!("  and {} more\n", units::count(more as u64)) } else { String::new() };
    format!("\n{}{more}", text_table::text(&head, &rows, |column| column == 3))
}

/// `the tasks ran 3.21 h, with 6.42 h of processors; the most memory of one is 1.20 GiB`.
fn took(accounts: &Accounts) -> String {
    let [elapsed, cpu] = [accounts.elapsed_s, accounts.cpu_s].map(|s| units::seconds(s as f64));
    let memory = accounts.most_memory.map(|bytes| format!("; one took {} at most", units::bytes(bytes)));
    format!("\nthe tasks ran {elapsed} together, with {cpu} of processors{}\n", memory.unwrap_or_default())
}
