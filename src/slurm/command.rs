//! Slurm's commands.

use std::{
    io::{self, Write},
    path::PathBuf,
    process::{Command, Stdio},
};

use crate::host;

/// Why Slurm did not do what it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum SlurmError {
    #[error("`{0}` is not found: this machine has no Slurm")]
    Missing(&'static str),
    #[error("`{command}` refuses: {message}")]
    Refused { command: &'static str, message: String },
    #[error("`{command}` cannot be run: {}", host::reason(.source))]
    Run { command: &'static str, source: io::Error },
    #[error("`{command}` gave an answer that is not understood: {}", .answer.trim())]
    Answer { command: &'static str, answer: String },
    #[error("cannot write `{}`: {}", .path.display(), host::reason(.source))]
    Write { path: PathBuf, source: io::Error },
    #[error("`{}`: {message}", .path.display())]
    Malformed { path: PathBuf, message: String },
}

/// Environment variables that `sbatch` prefers to the script, each with the option that it overrides. One is
/// removed if the script sets its option; otherwise the site's choice counts. `SBATCH_WAIT` is always
/// removed: with it, `sbatch` and so this process would wait for the array.
const OVERRIDING: [(&str, &str); 12] = [
    ("SBATCH_ACCOUNT", "--account="),
    ("SBATCH_ARRAY_INX", "--array="),
    ("SBATCH_GPUS", "--gpus="),
    ("SBATCH_JOB_NAME", "--job-name="),
    ("SBATCH_NO_REQUEUE", "--requeue"),
    ("SBATCH_OPEN_MODE", "--open-mode="),
    ("SBATCH_OUTPUT", "--output="),
    ("SBATCH_PARTITION", "--partition="),
    ("SBATCH_REQUEUE", "--requeue"),
    ("SBATCH_SIGNAL", "--signal="),
    ("SBATCH_TIMELIMIT", "--time="),
    ("SBATCH_WAIT", ""),
];

impl SlurmError {
    /// Whether Slurm may have done what it was asked to in spite of the error.
    pub fn is_uncertain(&self) -> bool {
        match self {
            Self::Missing(_) | Self::Run { .. } => false,
            Self::Refused { message, .. } => message.contains("timed out"),
            Self::Answer { .. } | Self::Write { .. } | Self::Malformed { .. } => true,
        }
    }

    fn spawn(command: &'static str, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::NotFound => Self::Missing(command),
            _ => Self::Run { command, source },
        }
    }
}

/// Runs one of Slurm's commands; returns its standard output and standard error.
pub(super) fn run(
    command: &'static str,
    arguments: &[&str],
    stdin: Option<&str>,
) -> Result<(String, String), SlurmError> {
    let failed = |source| SlurmError::spawn(command, source);
    let mut process = Command::new(command);
    for (variable, option) in OVERRIDING {
        if stdin.is_some_and(|script| script.contains(&format!("#SBATCH {option}"))) {
            process.env_remove(variable);
        }
    }
    let mut child = process
        .args(arguments)
        .stdin(if stdin.is_some() { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    if let (Some(mut pipe), Some(text)) = (child.stdin.take(), stdin) {
        let _ = pipe.write_all(text.as_bytes()); // a command that does not read it prints the reason
    }
    let output = child.wait_with_output().map_err(failed)?;
    let [stdout, stderr] =
        [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    if output.status.success() {
        return Ok((stdout, stderr));
    }
    let prefix = format!("{command}: ");
    let own = |line: &str| {
        line.strip_prefix(&prefix).unwrap_or(line).trim().trim_start_matches("error: ").to_owned()
    };
    let lines = stderr.lines().map(own).filter(|line| !line.is_empty()).collect::<Vec<_>>();
    let message = if lines.is_empty() { output.status.to_string() } else { lines.join("; ") };
    Err(SlurmError::Refused { command, message })
}
