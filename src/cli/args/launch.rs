//! Options that have a cluster run a sweep. Each is short for a key of the spec.

use clap::{Args, ValueEnum};

#[derive(Args, Clone)]
#[command(next_help_heading = "On a cluster")]
pub struct LaunchOptions {
    /// Have a cluster run the sweep: submit a job array whose tasks share the trials, and return
    #[arg(long, value_enum, value_name = "NAME", conflicts_with = "plot")]
    pub launcher: Option<Launcher>,
    /// Print the script instead of submitting it
    #[arg(long, requires = "launcher")]
    pub dry_run: bool,
    /// Tasks, and how many run at a time: `256%32`; never more than there are trials left [default: 256]
    #[arg(long, value_name = "N[%K]", requires = "launcher")]
    array: Option<String>,
    /// The partition
    #[arg(long, value_name = "NAME", requires = "launcher")]
    partition: Option<String>,
    /// The account that is charged
    #[arg(long, value_name = "NAME", requires = "launcher")]
    account: Option<String>,
    /// GPUs of a task: a number, or with their type as in `a100:2`
    #[arg(long, value_name = "N", requires = "launcher")]
    gpus: Option<String>,
    /// A task's time limit, such as `90m` or `1:30:00`; before its end the task saves a checkpoint and is requeued
    #[arg(long, value_name = "TIME", requires = "launcher")]
    time: Option<String>,
    /// Shell that a task begins with, such as `module load cuda`
    #[arg(long, value_name = "SHELL", requires = "launcher")]
    setup: Option<String>,
    /// Another option of `sbatch`, such as `--sbatch=--mem=16G`
    #[arg(long, value_name = "OPTION", requires = "launcher", allow_hyphen_values = true)]
    sbatch: Vec<String>,
    /// Is a task of a job array: one that is asked to end by SIGUSR1 requeues itself
    #[arg(long, hide = true, requires = "resume", conflicts_with = "launcher")]
    pub slurm_task: bool,
}

#[derive(Clone, Copy, ValueEnum)]
pub enum Launcher {
    Slurm,
}

impl LaunchOptions {
    /// The options as overrides of the spec.
    pub fn overrides(&self) -> Vec<String> {
        let json = |text: &String| serde_json::Value::from(text.as_str());
        let texts = [
            ("array", &self.array),
            ("partition", &self.partition),
            ("account", &self.account),
            ("gpus", &self.gpus),
            ("time", &self.time),
            ("setup", &self.setup),
        ];
        let texts = texts.into_iter().filter_map(|(key, value)| Some((key, json(value.as_ref()?))));
        let extra: Vec<_> = self.sbatch.iter().map(json).collect();
        let extra = (!extra.is_empty()).then(|| ("extra", extra.into()));
        // A JSON string is also a TOML string.
        texts.chain(extra).map(|(key, value)| format!("launcher.slurm.{key}={value}")).collect()
    }
}
