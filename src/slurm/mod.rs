//! Controls a cluster's Slurm through its commands: submits, lists and cancels job arrays, and requeues
//! tasks. What became of the trials is in the sweep's own files.

mod command;
mod restarts;
mod script;
mod submissions;
mod tasks;

pub use command::SlurmError;
pub use restarts::{MOST_RESTARTS, restarts_without_progress};
pub use script::{Script, array_of, job_name};
pub use submissions::{Submission, read_submissions};
pub use tasks::{Accounting, Task, Used, accounting, cancel, tasks};

use std::{thread, time::Duration};

/// Folder within a sweep's folder for scripts and the output of tasks.
pub const FOLDER: &str = "slurm";

/// Pauses before retrying a command: a busy controller refuses commands for a while.
const PAUSES: [Duration; 3] = [Duration::from_millis(500), Duration::from_secs(3), Duration::from_secs(9)];

/// Submits a script; returns the job's number, the cluster if there are several, and the remarks of `sbatch`.
pub fn submit(script: &str) -> Result<(String, Option<String>, String), SlurmError> {
    let (stdout, remarks) = command::run("sbatch", &["--parsable"], Some(script))?;
    // A site's wrapper may print lines of its own first.
    let line = stdout.trim().lines().last().unwrap_or_default().trim();
    let line = line.strip_prefix("Submitted batch job ").unwrap_or(line);
    let (job, cluster) = match line.split_once(';') {
        Some((job, cluster)) => (job, Some(cluster.to_owned())),
        None => (line, None),
    };
    if job.is_empty() || !job.bytes().all(|digit| digit.is_ascii_digit()) {
        return Err(SlurmError::Answer { command: "sbatch", answer: stdout });
    }
    Ok((job.to_owned(), cluster, remarks))
}

/// Requeues a task, which Slurm then ends.
pub fn requeue(task: &str) -> Result<(), SlurmError> {
    let mut pauses = PAUSES.into_iter();
    loop {
        match (command::run("scontrol", &["requeue", task], None), pauses.next()) {
            (Err(SlurmError::Refused { .. }), Some(pause)) => thread::sleep(pause),
            (done, _) => return done.map(drop),
        }
    }
}
