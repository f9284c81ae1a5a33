//! Slurm's commands.

use std::{
    io::{self, Write},
    path::PathBuf,
    process::{Command, Stdio},
};

use crate::host;

/// What keeps Slurm from doing what it is asked to.
#[derive(Debug, thiserror::Error)]
pub enum SlurmError {
    #[error("`{0}` is not found: this machine has no Slurm")]
    Missing(&'static str),
    #[error("`{command}` refuses: {words}")]
    Refused { command: &'static str, words: String },
    #[error("`{command}` cannot be run: {}", host::reason(.source))]
    Run { command: &'static str, source: io::Error },
    #[error("`{command}` gave an answer that is not understood: {}", .answer.trim())]
    Answer { command: &'static str, answer: String },
    #[error("cannot write `{}`: {}", .path.display(), host::reason(.source))]
    Write { path: PathBuf, source: io::Error },
    #[error("`{}`: {message}", .path.display())]
    Malformed { path: PathBuf, message: String },
}

/// Variables that `sbatch` prefers to the script, and the option that they change. Where the script leaves it to the site,
/// they count; an array that `sbatch` waits for would keep this process waiting, too.
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
    /// Whether Slurm may have done what it was asked to, all the same.
    pub fn is_uncertain(&self) -> bool {
        match self {
            Self::Missing(_) | Self::Run { .. } => false,
            Self::Refused { words, .. } => words.contains("timed out"),
            Self::Answer { .. } | Self::Write { .. } | Self::Malformed { .. } => true,
        }
    }

    pub(super) fn run(command: &'static str, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::NotFound => Self::Missing(command),
            _ => Self::Run { command, source },
        }
    }
}

/// The output of a command, and what it says on standard error.
pub(super) fn ask(
    command: &'static str,
    arguments: &[&str],
    input: Option<&str>,
) -> Result<(String, String), SlurmError> {
    let failed = |source| SlurmError::run(command, source);
    let mut asked = Command::new(command);
    for (variable, option) in OVERRIDING {
        if input.is_some_and(|script| script.contains(&format!("#SBATCH {option}"))) {
            asked.env_remove(variable);
        }
    }
    let mut child = asked
        .args(arguments)
        .stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    if let (Some(mut pipe), Some(input)) = (child.stdin.take(), input) {
        let _ = pipe.write_all(input.as_bytes()); // one that does not read it says why
    }
    let output = child.wait_with_output().map_err(failed)?;
    let [answer, words] =
        [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    if output.status.success() {
        return Ok((answer, words));
    }
    let prefix = format!("{command}: ");
    let own = |line: &str| {
        line.strip_prefix(&prefix).unwrap_or(line).trim().trim_start_matches("error: ").to_owned()
    };
    let lines = words.lines().map(own).filter(|line| !line.is_empty()).collect::<Vec<_>>();
    let words = if lines.is_empty() { output.status.to_string() } else { lines.join("; ") };
    Err(SlurmError::Refused { command, words })
}
