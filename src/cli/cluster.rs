//! `runner status`, `runner cancel`: a sweep's jobs on a cluster.

use std::{collections::BTreeMap, path::PathBuf};

use serde_json::json;

use super::{args::StatusOptions, launch::report, runs::refuse, watch::look};
use crate::{
    host::escape_line,
    record::{RunDir, command_line, text_table},
    report::{Found, Moment, find_one},
    run::{Exit, print, print_json, warn},
    slurm::{self, Accounting, SlurmError, Submission, Task, Used},
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

/// States of which tasks are only counted, not listed.
const COUNTED: [&str; 3] = ["PENDING", "COMPLETED", "CANCELLED"];

/// Maximum number of tasks listed.
const MOST_LINES: usize = 40;

/// What Slurm reports about a sweep's jobs.
struct Known {
    jobs: Vec<Submission>,
    tasks: Vec<Task>,
    /// Trials that are running, by the task that runs them.
    trials: BTreeMap<String, Vec<usize>>,
    accounting: Accounting,
}

/// Prints what trials and tasks are doing.
pub fn status(options: &StatusOptions) -> Result<Exit, Exit> {
    let (sweep, jobs) = jobs_of(&options.sweep)?;
    let moment = look(&sweep.display().to_string()).map_err(refuse)?;
    let tasks = if jobs.is_empty() { Ok(Vec::new()) } else { own_tasks(&jobs) };
    // Without Slurm, show what the sweep's own files say.
    let (tasks, exit) = tasks.map_or_else(|e| (None, report(e)), |tasks| (Some(tasks), Exit::Done));
    let known = tasks.map(|tasks| {
        let (trials, accounting) = (trials_of_tasks(&sweep), slurm::accounting(&jobs).unwrap_or_default());
        Known { jobs, tasks, trials, accounting }
    });
    if options.json {
        return Ok(exit.more_severe(print_json(&format!("{:#}\n", json(&moment, known.as_ref())))));
    }
    let mut text: String = moment.lines.iter().map(|line| format!("{}\n", escape_line(line))).collect();
    if let Some(known) = &known {
        known.jobs.iter().for_each(|job| text.push_str(&summary(job, known)));
        text.push_str(&table(known));
        if known.jobs.is_empty() {
            text.push_str("no job was submitted for it\n");
        }
    }
    Ok(exit.more_severe(print(&text)))
}

/// The tasks of these jobs; warns about other jobs that have the same number.
fn own_tasks(jobs: &[Submission]) -> Result<Vec<Task>, SlurmError> {
    let (tasks, others) = slurm::tasks(jobs)?;
    for job in others {
        warn(format!(
            "Slurm's job {job} has another name than that of this sweep: it is another one, as of a sweep that was copied"
        ));
    }
    Ok(tasks)
}

/// The status as JSON.
fn json(moment: &Moment, known: Option<&Known>) -> serde_json::Value {
    // A site that accounts for nothing knows no times; 0 would be one.
    let used = |used: &Used| {
        let [elapsed, cpu] = [used.elapsed_s, used.cpu_s].map(|s| (s > 0).then_some(s));
        json!({ "elapsed_s": elapsed, "cpu_s": elapsed.and(cpu), "peak_rss_bytes": used.peak_rss })
    };
    let object = |mut object: serde_json::Value, more: serde_json::Value| {
        if let (Some(object), serde_json::Value::Object(more)) = (object.as_object_mut(), more) {
            object.extend(more);
        }
        object
    };
    let job = |known: &Known, job: &Submission| {
        let Submission { job: id, name, cluster, tasks, submitted } = job;
        let own =
            json!({ "job": id, "name": name, "cluster": cluster, "tasks": tasks, "submitted": submitted });
        object(own, used(&known.accounting.total(job)))
    };
    let task = |known: &Known, task: &Task| {
        let Task { id, state, reason, node, time, .. } = task;
        let trials = known.trials.get(id).cloned().unwrap_or_default();
        let own = json!({ "task": id, "state": state, "reason": reason, "node": node, "time": time, "trials": trials });
        object(own, used(&known.accounting.0.get(id).cloned().unwrap_or_default()))
    };
    let trials: serde_json::Map<_, _> =
        moment.trials.iter().map(|(status, count)| (status.clone(), json!(count))).collect();
    let jobs = known.map(|known| known.jobs.iter().map(|own| job(known, own)).collect::<Vec<_>>());
    let tasks = known.map(|known| known.tasks.iter().map(|own| task(known, own)).collect::<Vec<_>>());
    let folder = moment.folder.display().to_string();
    json!({ "folder": folder, "trials": trials, "jobs": jobs, "tasks": tasks })
}

/// Ends the jobs of a sweep.
pub fn cancel(path: &str) -> Result<Exit, Exit> {
    let (sweep, jobs) = jobs_of(path)?;
    let folder = command_line([sweep.to_string_lossy()]);
    if jobs.is_empty() {
        let hint = format!(
            "`runner run --resume {folder} --launcher slurm` submits one; Ctrl-C ends a process that runs it"
        );
        return Err(Exit::refused(format!("no job was submitted for `{}`", sweep.display()), Some(&hint)));
    }
    let mut tasks = own_tasks(&jobs).map_err(report)?;
    tasks.retain(|task| !ENDED.contains(&task.state.as_str()));
    let is_left = |job: &&Submission| tasks.iter().any(|task| task.is_of(job));
    let left: Vec<Submission> = jobs.iter().filter(is_left).cloned().collect();
    if left.is_empty() {
        return Ok(print("no task waits or runs\n"));
    }
    slurm::cancel(&left).map_err(report)?;
    let names: Vec<&str> = left.iter().map(|job| job.job.as_str()).collect();
    Ok(print(&format!(
        "Slurm ends job {} ({}); trials under way save a checkpoint\ngo on with: runner run --resume {folder} --launcher slurm\n",
        names.join(", "),
        counts(tasks.iter().map(|task| (task.state.as_str(), ""))),
    )))
}

/// The sweep that a path names, and its jobs.
fn jobs_of(path: &str) -> Result<(PathBuf, Vec<Submission>), Exit> {
    let sweep = match find_one(path) {
        Ok(Found::Sweep(folder)) => folder,
        Ok(Found::Run(folder)) => {
            return Err(Exit::refused(
                format!("`{}` is a run; a cluster has jobs of sweeps", folder.display()),
                Some("name a sweep's folder"),
            ));
        }
        Err(e) => return Err(refuse(e)),
    };
    let jobs = slurm::read_submissions(&sweep).map_err(report)?;
    Ok((sweep, jobs))
}

/// `job 12 of 40 tasks, submitted 2026-11-21T01:58:14Z: 4 running, 30 pending (Resources), 6 completed; 3.21
/// h, ...`.
fn summary(job: &Submission, known: &Known) -> String {
    let own: Vec<&Task> = known.tasks.iter().filter(|task| task.is_of(job)).collect();
    // The accounting may know tasks that `squeue` no longer lists.
    let is_forgotten = |id: &str| !id.ends_with(']') && !own.iter().any(|task| task.id == id);
    let forgotten = known.accounting.of_job(job).filter(|(id, _)| is_forgotten(id));
    let forgotten: Vec<&str> = forgotten.map(|(_, used)| used.state.as_str()).collect();
    let unknown = (job.tasks as usize).saturating_sub(own.len() + forgotten.len());
    let states = own.iter().map(|task| {
        let reason = if task.state == "PENDING" { task.reason.as_str() } else { "" };
        (task.state.as_str(), reason)
    });
    let states = states.chain(forgotten.iter().map(|state| (*state, "")));
    let all = states.chain(std::iter::repeat_n(("no longer known to Slurm", ""), unknown));
    format!(
        "job {} of {}, submitted {}: {}\n{}",
        job.job,
        units::counted(job.tasks.into(), "task"),
        job.submitted,
        counts(all),
        used(&known.accounting.total(job))
    )
}

/// `  ran 3.21 h together, with 6.42 h of processors; one had 1.20 GiB at most`; empty if the site has no
/// accounting.
fn used(Used { elapsed_s, cpu_s, peak_rss, .. }: &Used) -> String {
    if *elapsed_s == 0 {
        return String::new();
    }
    let [elapsed, cpu] = [*elapsed_s, *cpu_s].map(|s| units::seconds(s as f64));
    let memory = peak_rss.map(|bytes| format!("; one had {} at most", units::bytes(bytes)));
    format!("  ran {elapsed} together, with {cpu} of processors{}\n", memory.unwrap_or_default())
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

/// The running trials, by the task that runs them.
fn trials_of_tasks(sweep: &std::path::Path) -> BTreeMap<String, Vec<usize>> {
    let mut trials: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (number, trial) in RunDir::existing(sweep.to_owned()).trials() {
        let task = trial.is_live().then(|| trial.environment(&["host", "slurm_job"])).flatten();
        if let Some(task) = task.as_ref().and_then(toml::Value::as_str) {
            trials.entry(task.to_owned()).or_default().push(number);
        }
    }
    trials
}

/// The table of tasks that run, and of those that did not end well.
fn table(Known { tasks, trials, accounting, .. }: &Known) -> String {
    let listed: Vec<&Task> = tasks.iter().filter(|task| !COUNTED.contains(&task.state.as_str())).collect();
    if listed.is_empty() {
        return String::new();
    }
    let row = |task: &&Task| {
        let trials = trials.get(&task.id).map(|own| units::numbers(own)).unwrap_or_default();
        let [id, node, time, reason] = [&task.id, &task.node, &task.time, &task.reason].map(String::clone);
        let memory = accounting.0.get(&id).and_then(|used| used.peak_rss).map(units::bytes);
        vec![id, task.state.to_lowercase(), node, time, memory.unwrap_or_default(), trials, reason]
    };
    let rows: Vec<_> = listed.iter().take(MOST_LINES).map(row).collect();
    let head = ["task", "state", "node", "time", "memory", "trial", "reason"];
    let more = listed.len().saturating_sub(MOST_LINES);
    let more = if more > 0 { format!("  and {} more\n", units::count(more as u64)) } else { String::new() };
    format!("\n{}{more}", text_table::text(&head, &rows, |column| [3, 4].contains(&column)))
}
