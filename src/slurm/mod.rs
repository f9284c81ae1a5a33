//! What Slurm is asked, by its own commands: to take a job array, how the tasks fare, to end them. The sweep's own files say
//! what became of its trials.

mod command;
mod script;
mod submissions;
mod tasks;

pub use command::SlurmError;
pub use script::{Script, most_tasks};
pub use submissions::{Submission, read_submissions};
pub use tasks::{Accounts, Task, accounts, cancel, tasks};

use std::{os::unix::process::CommandExt, process::Command};

use command::ask;

/// Where scripts and what tasks print are kept, within a sweep's folder.
pub const FOLDER: &str = "slurm";

/// Has Slurm take a script; returns the job's number, and the cluster where there are several. The third: what `sbatch` says
/// besides.
///
/// # Errors
/// There is no `sbatch`, or it refuses.
pub fn submit(script: &str) -> Result<(String, Option<String>, String), SlurmError> {
    let (answer, remarks) = ask("sbatch", &["--parsable"], Some(script))?;
    // A site's wrapper may print lines of its own before it.
    let line = answer.trim().lines().last().unwrap_or_default().trim();
    let line = line.strip_prefix("Submitted batch job ").unwrap_or(line);
    let (job, cluster) = match line.split_once(';') {
        Some((job, cluster)) => (job, Some(cluster.to_owned())),
        None => (line, None),
    };
    if job.is_empty() || !job.bytes().all(|digit| digit.is_ascii_digit()) {
        return Err(SlurmError::Answer { command: "sbatch", answer });
    }
    Ok((job.to_owned(), cluster, remarks))
}

/// Has the job of this process queued again, and becomes the command that asks for it: Slurm ends the job meanwhile. Returns
/// only where that cannot be run.
pub fn queue_again() -> SlurmError {
    let job = crate::host::slurm_job().unwrap_or_default();
    SlurmError::run("scontrol", Command::new("scontrol").args(["requeue", &job]).exec())
}
