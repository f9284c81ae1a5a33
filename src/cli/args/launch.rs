//! Options that have a cluster run a sweep.

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
    /// An option of `sbatch`, such as `--sbatch=--partition=gpu` (several times), after those of `launcher.slurm.extra`: of two that are the same it wins; `launcher.slurm.array`, `time` and `setup` are keys of the spec
    #[arg(long, value_name = "OPTION", requires = "launcher", allow_hyphen_values = true)]
    pub sbatch: Vec<String>,
    /// Is a task of a job array: one that is asked to end by SIGUSR1 requeues itself
    #[arg(long, hide = true, requires = "resume", conflicts_with = "launcher")]
    pub slurm_task: bool,
}

#[derive(Clone, Copy, ValueEnum)]
pub enum Launcher {
    Slurm,
}
