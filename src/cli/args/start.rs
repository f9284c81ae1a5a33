//! Options of the commands that read a spec.

use std::{
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
};

use clap::Args;

use super::{
    AUTO, VIRTUAL_GPUS,
    complete::{run_path, spec_word},
    launch::LaunchOptions,
    scale::{HostCounts, LinkOption},
};
use crate::{
    record::runs_dir,
    spec::{Experiment, Spec, TrialSpec},
};

/// Each virtual GPU has its own memory; a number above this is a typing error.
pub(super) const MOST_VIRTUAL_GPUS: i64 = 64;

#[derive(Args, Clone)]
pub struct RunOptions {
    /// The spec, or `-` for standard input, then overrides such as `trainer.max_epochs=3`
    #[arg(value_names = ["SPEC.toml", "KEY=VALUE"], num_args = 1.., add = spec_word())]
    pub words: Vec<String>,
    /// Where run folders are made; RUNNER_RUNS_DIR is the default where it is set
    #[arg(long, value_name = "DIR", default_value_os_t = runs_dir(), value_hint = clap::ValueHint::DirPath)]
    pub runs_dir: PathBuf,
    /// CPU threads that compute [default: all cores]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub threads: Option<u32>,
    /// Pose as a machine with exactly N GPUs of separate memories [default: RUNNER_VIRTUAL_GPUS, or the real ones]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(0..=MOST_VIRTUAL_GPUS))]
    pub virtual_gpus: Option<u32>,
    /// Say only warnings, errors and what comes of it: a run's folder, parity's verdict
    #[arg(short, long, conflicts_with = "verbose", overrides_with = "quiet")]
    pub quiet: bool,
    /// Say more
    #[arg(short, long)]
    pub verbose: bool,
}

/// What `run` has besides: `check` and `parity` start nothing.
#[derive(Args, Clone)]
pub struct StartOptions {
    #[command(flatten)]
    pub run: RunOptions,
    /// Go on with a run from its newest checkpoint, in its folder; no spec is named then, overrides may be. With `auto`, and
    /// a spec: go on with the newest run of this spec, or begin one
    #[arg(long, value_name = "RUN", add = run_path())]
    pub resume: Option<String>,
    /// Trials of a sweep that run side by side, on GPUs or with a share of the threads; `auto`: as many as GPUs hold without
    /// waiting for each other, at most one per core
    #[arg(long, value_name = "N|auto")]
    pub jobs: Option<Jobs>,
    /// Print what happens as JSON, one event a line, in place of words
    #[arg(long)]
    pub json: bool,
    /// Draw the curves in the terminal while it runs, as `watch` does
    #[arg(long, conflicts_with = "json")]
    pub plot: bool,
    /// End a sweep with its first trial that fails
    #[arg(long)]
    pub fail_fast: bool,
    #[command(flatten)]
    pub launch: LaunchOptions,
}

/// A run's spec in place of a file, then what `run` has.
#[derive(Args, Clone)]
#[command(mut_arg("words", |words| {
    words.value_names(["KEY=VALUE"]).help("Overrides of its spec, such as `seed=1` or `name=final`")
}))]
#[command(mut_arg("resume", |resume| {
    resume.value_name(AUTO).help("With `auto`: go on with the newest run of this final model, or begin one")
}))]
pub struct RefitOptions {
    /// The run's folder, or a folder or glob that holds one run; of a sweep it is the best setting that counts
    #[arg(value_name = "RUN", add = run_path())]
    pub run: String,
    /// Train on the test rows, too
    #[arg(long)]
    pub all: bool,
    /// Print what would happen, as `check` does; train nothing
    #[arg(long, conflicts_with_all = ["plot", "json"])]
    pub check: bool,
    #[command(flatten)]
    pub start: StartOptions,
}

impl StartOptions {
    /// A sentence on options for sweeps that are given for one run.
    pub fn idle_sweep_options(&self, is_sweep: bool) -> Option<String> {
        let options = [("--jobs", self.jobs.is_some()), ("--fail-fast", self.fail_fast)];
        idle_option(&options, is_sweep)
    }
}

/// A sentence on the first of these options, all for sweeps, that is given for one run.
pub fn idle_option(options: &[(&str, bool)], is_sweep: bool) -> Option<String> {
    let (idle, _) = options.iter().find(|(_, is_given)| *is_given && !is_sweep)?;
    Some(format!("`{idle}` changes nothing: this is one run, and not a sweep"))
}

/// The number of trials that run side by side.
#[derive(Clone, Copy, Debug)]
pub enum Jobs {
    Auto,
    Count(u8),
}

impl Jobs {
    /// The number, if only the cores limit it.
    pub fn count(self, cores: usize) -> usize {
        match self {
            Self::Auto => cores,
            Self::Count(count) => count.into(),
        }
    }
}

impl fmt::Display for Jobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Count(count) => count.fmt(f),
        }
    }
}

impl FromStr for Jobs {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.parse() {
            _ if text == "auto" => Ok(Self::Auto),
            Ok(count @ 1..) => Ok(Self::Count(count)),
            _ => Err("expected a number from 1 to 255, or `auto`"),
        }
    }
}

impl RunOptions {
    /// The spec's path.
    pub fn spec(&self) -> PathBuf {
        PathBuf::from(&self.words[self.spec_index()])
    }

    /// All words other than the spec's path.
    pub fn overrides(&self) -> Vec<String> {
        let spec = self.spec_index();
        self.words.iter().enumerate().filter(|(i, _)| *i != spec).map(|(_, w)| w.clone()).collect()
    }

    /// Options and overrides may come in any order, so the spec may not be the first word. A word that names
    /// a file is not an override, even though the path of a trial's `spec.toml` contains a `=`.
    fn spec_index(&self) -> usize {
        let is_file = |w: &String| Path::new(w).is_file();
        let is_no_override = |w: &String| !w.starts_with('~') && !w.contains('=');
        let ends_as_spec = |w: &String| w.ends_with(".toml");
        let place = |is_spec: &dyn Fn(&String) -> bool| self.words.iter().position(is_spec);
        place(&is_file).or_else(|| place(&is_no_override)).or_else(|| place(&ends_as_spec)).unwrap_or(0)
    }

    /// A sentence where more threads are asked for than there are cores.
    pub fn too_many_threads(&self, cores: usize, whose: &str) -> Option<String> {
        let threads = self.threads.filter(|threads| *threads as usize > cores)?;
        let cores = crate::units::counted(cores as u64, "core");
        Some(format!("`--threads {threads}` is more than {whose} {cores}: threads beyond them only wait"))
    }

    /// A sentence where `--virtual-gpus` is given for trials that ask for no GPU.
    pub fn idle_virtual_gpus(&self, experiment: &Experiment) -> Option<String> {
        // The variable stands for all runs of a shell.
        let is_option = std::env::var_os(VIRTUAL_GPUS).is_none();
        let count = self.virtual_gpus.filter(|count| *count > 0 && is_option)?;
        let asks = |trial: &TrialSpec<Spec>| !trial.spec.devices.request.is_cpu();
        (!experiment.trials.iter().any(asks)).then(|| {
            format!("`--virtual-gpus {count}` changes nothing: the spec asks for no GPU, as `devices.num_gpus={count}` does")
        })
    }

    /// Threads to use.
    pub fn thread_count(&self) -> usize {
        self.threads_of(crate::host::logical_cores().unwrap_or(1))
    }

    /// Threads to use on a host with this number of cores.
    pub fn threads_of(&self, cores: usize) -> usize {
        self.threads.map_or(cores, |threads| threads as usize)
    }
}

#[derive(Args, Clone)]
pub struct CheckOptions {
    #[command(flatten)]
    pub run: RunOptions,
    /// Foretell a sweep whose trials run side by side, as `run --jobs` has them
    #[arg(long, value_name = "N|auto")]
    pub jobs: Option<Jobs>,
    /// Try other batch sizes, engines, threads, placements and logging policies for some seconds, and say what is faster
    #[arg(long)]
    pub advise: bool,
    /// Print the complete spec in place of the plan: every default and override filled in, and where each value comes from that the
    /// file does not give. `runner` takes it as a spec
    #[arg(long, conflicts_with_all = ["jobs", "advise", "hosts", "on", "quiet", "verbose"])]
    pub spec: bool,
    /// Plan for a machine that is not here, by the file that describes it, and foretell what settings and devices would make of a
    /// run there; `runner devices -o FILE` writes such a file. Given several times, it puts the machines side by side
    #[arg(long, value_name = "FILE", conflicts_with_all = ["advise", "hosts", "virtual_gpus"], value_hint = clap::ValueHint::FilePath)]
    pub on: Vec<PathBuf>,
    /// Predict a step over 2, 4 or more hosts like this one, and the batch from which they pay: `1,2,4,...,64`
    #[arg(long, value_name = "N,...", requires = "link", conflicts_with = "advise")]
    pub hosts: Option<HostCounts>,
    /// The network between hosts: its rate, and the latency of a message; `mpirun -n 2 runner devices --measure` measures it
    #[arg(long, value_name = "100Gb/s,2us", requires = "hosts")]
    pub link: Option<LinkOption>,
}

#[derive(Args, Clone)]
pub struct ParityOptions {
    #[command(flatten)]
    pub run: RunOptions,
    /// Optimizer steps at most
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub steps: u64,
}
