//! Commands and their options.

use std::{path::PathBuf, time::Duration};

use clap::{ArgGroup, Args, Subcommand, ValueEnum};
use clap_complete::Shell;

use super::{
    complete::run_path,
    model::{EvaluateOptions, ExportOptions, MarkOptions, PredictOptions, is_mark, named, with_parquet},
    start::{CheckOptions, MOST_VIRTUAL_GPUS, ParityOptions, RefitOptions, StartOptions},
};
use crate::{
    record::runs_dir,
    report::Format,
    spec::{
        duration,
        templates::{TEMPLATES, Template},
    },
};

#[derive(Subcommand)]
pub enum Command {
    /// Run a spec: one run, or every trial of its sweep
    Run(StartOptions),
    /// Read, validate and plan a spec; print what would happen. Trains nothing
    Check(CheckOptions),
    /// Take a few steps on the CPU and on every count of GPUs, and compare. Writes nothing
    Parity(ParityOptions),
    /// Show the machine: processors, memory, GPUs
    Devices(DevicesOptions),
    /// Put runs, sweeps or globs side by side
    Compare(CompareOptions),
    /// List runs and sweeps, the newest last
    List(ListOptions),
    /// Print the folder of the newest run or sweep
    Latest {
        /// Where to look
        #[arg(value_name = "PATH", default_value_t = runs_dir().to_string_lossy().into_owned(), value_hint = clap::ValueHint::DirPath)]
        path: String,
    },
    /// Show a run's figures, or what a sweep came to
    Show {
        /// The folder of a run or sweep, or a folder or glob that holds one
        #[arg(value_name = "RUN", add = run_path())]
        run: String,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Show what two runs differ in: spec, environment, loss curves, figures
    Diff(DiffOptions),
    /// Give a run or sweep words to find it by; tagged ones are never cleaned away
    Tag {
        /// The folder of a run or sweep, or a folder or glob that holds one
        #[arg(value_name = "RUN", add = run_path())]
        run: String,
        /// Words; `~WORD` takes one away
        #[arg(value_name = "WORD", required = true)]
        words: Vec<String>,
    },
    /// Remove runs and sweeps that are old or far from the best. Without `--yes` it only shows them
    Clean(CleanOptions),
    /// Draw the curves of runs
    Plot(PlotOptions),
    /// Write one HTML page that shows runs and sweeps, and needs no network
    Report(ReportOptions),
    /// Show in the terminal what a run or sweep is doing, until it ends
    Watch(WatchOptions),
    /// Show how a sweep's trials and its jobs on a cluster fare
    Status(StatusOptions),
    /// End a sweep's jobs on a cluster; trials under way save a checkpoint
    Cancel {
        /// The sweep's folder
        #[arg(value_name = "SWEEP", add = run_path())]
        sweep: String,
    },
    /// Show the page of `report` in a browser, renewed while runs go on
    Serve(ServeOptions),
    /// Train the final model of a run or sweep: its best setting on the rows that validated, too, for as many epochs as were best
    Refit(RefitOptions),
    /// Apply a run's model to new rows; print a prediction for each
    Predict(PredictOptions),
    /// Apply a run's model to labelled rows; print its metrics
    Evaluate(EvaluateOptions),
    /// Write a run's model, or a run or sweep, for other programs
    Export(ExportOptions),
    /// Print the JSON Schema of the spec, for editors
    Schema,
    /// Write a commented starter spec
    New(NewOptions),
    /// Print a completion script
    Completions {
        /// For which shell
        shell: Shell,
    },
}

#[derive(Args)]
pub struct DevicesOptions {
    /// Measure the processor's rates, in a few seconds, and keep them for the cost model. Where `mpirun` or `srun` started
    /// several processes: measure what sums over them take
    #[arg(long)]
    pub measure: bool,
    /// Print all that is known as JSON
    #[arg(long)]
    pub json: bool,
    /// Write a file that describes this machine, for `check --on` elsewhere
    #[arg(short, long, value_name = "FILE.toml", conflicts_with_all = ["json", "virtual_gpus"], value_hint = clap::ValueHint::FilePath)]
    pub output: Option<PathBuf>,
    /// Show the GPUs that the host would pose as having [default: RUNNER_VIRTUAL_GPUS, or the real ones]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(0..=MOST_VIRTUAL_GPUS))]
    pub virtual_gpus: Option<u32>,
}

#[derive(Args)]
#[command(mut_arg("export", with_parquet))]
pub struct CompareOptions {
    /// Run folders, sweep folders, or globs of them
    #[arg(value_name = "PATH", required = true, add = run_path())]
    pub paths: Vec<String>,
    /// Rank by this figure [default: what the runs monitor, else the training loss]
    #[arg(long, value_name = "METRIC")]
    pub metric: Option<String>,
    /// Order the table by a column; `-COLUMN` is descending
    #[arg(long, value_name = "COLUMN", allow_hyphen_values = true)]
    pub sort: Option<String>,
    /// Lines of the table [default: 20; of an export all]
    #[arg(long, value_name = "N", value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..))]
    pub top: Option<usize>,
    /// Only these runs: `lr < 0.1 and status = finished`
    #[arg(long = "where", value_name = "EXPR")]
    pub filter: Option<String>,
    /// Fold over everything but these keys
    #[arg(long, value_name = "KEY", value_delimiter = ',')]
    pub by: Vec<String>,
    /// A table of the metric by two keys
    #[arg(long, value_name = "A,B", value_delimiter = ',', conflicts_with_all = ["by", "sort", "top", "times"])]
    pub pivot: Vec<String>,
    /// Show times and costs instead
    #[arg(long, conflicts_with_all = ["metric", "by"])]
    pub times: bool,
    /// Show also each run, where loss curves part, and what differs in spec and environment
    #[arg(long)]
    pub detail: bool,
    /// Exit with 1 where this holds beyond doubt: `median(steps_per_s) < 0.95 * baseline`
    #[arg(long, value_name = "EXPR", conflicts_with_all = ["times", "metric", "sort", "top", "pivot", "detail"])]
    pub fail_if: Option<String>,
    /// What `--fail-if` holds the runs against [default: the first path]
    #[arg(long, value_name = "PATH", requires = "fail_if", add = run_path())]
    pub baseline: Option<String>,
    /// Exit with 1 also where `--fail-if` is undecided
    #[arg(long, requires = "fail_if")]
    pub strict: bool,
    /// Print one row per run in this format instead; with `--by`, one per group; `md` and `latex` have one row per figure of a single run
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub export: Option<ExportFormat>,
    /// Say only whether the runs can be compared
    #[arg(short, long, overrides_with = "quiet")]
    pub quiet: bool,
}

#[derive(Args)]
pub struct ListOptions {
    /// A folder or glob of runs and sweeps
    #[arg(value_name = "PATH", default_value_t = runs_dir().to_string_lossy().into_owned(), value_hint = clap::ValueHint::DirPath)]
    pub path: String,
    /// Only these runs: `lr < 0.1 and status = finished`
    #[arg(long = "where", value_name = "EXPR")]
    pub filter: Option<String>,
    /// Order by a column; `-COLUMN` is descending [default: by time]
    #[arg(long, value_name = "COLUMN", allow_hyphen_values = true)]
    pub sort: Option<String>,
    /// Print a JSON array
    #[arg(long)]
    pub json: bool,
    /// Show all columns, also where they are wider than the terminal
    #[arg(short, long, conflicts_with = "json")]
    pub verbose: bool,
}

#[derive(Args)]
#[command(group = ArgGroup::new("rule").required(true).multiple(true).args(["keep_best", "older_than"]))]
pub struct CleanOptions {
    /// A folder in the runs folder [default: all of it]
    #[arg(value_name = "PATH", value_hint = clap::ValueHint::DirPath)]
    pub path: Option<PathBuf>,
    /// Nothing outside it is removed; RUNNER_RUNS_DIR is the default where it is set
    #[arg(long, value_name = "DIR", default_value_os_t = runs_dir(), value_hint = clap::ValueHint::DirPath)]
    pub runs_dir: PathBuf,
    /// Keep the N best of each name and task by what they monitor, by rank and by value; a sweep counts as one, by its best setting
    #[arg(long, value_name = "N")]
    pub keep_best: Option<usize>,
    /// Remove only what began longer ago, such as `30d` or `12h`
    #[arg(long, value_name = "TIME", value_parser = age)]
    pub older_than: Option<Duration>,
    /// Remove them
    #[arg(long)]
    pub yes: bool,
}

fn age(text: &str) -> Result<Duration, &'static str> {
    duration::parse(text).ok_or("expected a time such as `30d`, `12h` or `1d12h`")
}

#[derive(Args)]
pub struct DiffOptions {
    /// The run that the other is compared with
    #[arg(value_name = "A", add = run_path())]
    pub first: String,
    /// The other run
    #[arg(value_name = "B", add = run_path())]
    pub second: String,
}

#[derive(Args)]
pub struct PlotOptions {
    /// Run folders, sweep folders, or globs of them
    #[arg(value_name = "RUN", required = true, add = run_path())]
    pub paths: Vec<String>,
    /// A column of `metrics.csv`, of one split where it is named: `validation.loss` [default: what several runs monitor, else the
    /// loss]
    #[arg(long, value_name = "METRIC")]
    pub metric: Option<String>,
    /// Columns of text [default: the terminal's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(40..=400))]
    pub width: Option<u16>,
    /// Lines of the curves
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(4..=200))]
    pub height: u16,
}

#[derive(Args)]
pub struct ReportOptions {
    /// Run folders, sweep folders, or globs of them
    #[arg(value_name = "PATH", required = true, add = run_path())]
    pub paths: Vec<String>,
    /// The page [default: `report.html` in the folder of a single run or sweep, else in the current one]
    #[arg(short, long, value_name = "FILE", value_parser = named(), value_hint = clap::ValueHint::FilePath)]
    pub out: Option<PathBuf>,
    /// Rank by this figure [default: what the runs monitor, else the training loss]
    #[arg(long, value_name = "METRIC")]
    pub metric: Option<String>,
    /// Only these runs: `lr < 0.1 and status = finished`
    #[arg(long = "where", value_name = "EXPR")]
    pub filter: Option<String>,
    /// Write also each chart as an SVG file to DIR
    #[arg(long, value_name = "DIR", value_parser = named(), value_hint = clap::ValueHint::DirPath)]
    pub svg: Option<PathBuf>,
    /// Write also each chart as a PNG file to DIR, by `rsvg-convert`, `resvg` or `inkscape`
    #[arg(long, value_name = "DIR", value_parser = named(), value_hint = clap::ValueHint::DirPath)]
    pub png: Option<PathBuf>,
    /// Print the path alone
    #[arg(short, long, overrides_with = "quiet")]
    pub quiet: bool,
}

#[derive(Args)]
pub struct WatchOptions {
    /// A run, a sweep, or a folder of them, of which the newest is watched
    #[arg(value_name = "PATH", default_value_t = runs_dir().to_string_lossy().into_owned(), add = run_path())]
    pub path: String,
    /// A column of `metrics.csv`, of one split where it is named: `validation.loss` [default: what several runs monitor, else the
    /// loss]
    #[arg(long, value_name = "METRIC")]
    pub metric: Option<String>,
}

#[derive(Args)]
pub struct StatusOptions {
    /// The sweep's folder
    #[arg(value_name = "SWEEP", add = run_path())]
    pub sweep: String,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct ServeOptions {
    /// Run folders, sweep folders, or globs of them
    #[arg(value_name = "PATH", default_values_t = [runs_dir().to_string_lossy().into_owned()], value_hint = clap::ValueHint::DirPath)]
    pub paths: Vec<String>,
    /// The port on this machine; 0 is any that is free
    #[arg(long, value_name = "N", default_value_t = 7700)]
    pub port: u16,
}

#[derive(Args)]
#[command(mut_args(as_found))]
pub struct NewOptions {
    /// Which starter
    #[arg(value_parser = template_names())]
    pub template: String,
    /// Where to write it [default: `-`, standard output]
    pub file: Option<PathBuf>,
    /// With `csv`: draft the spec for this table, by what its columns hold
    #[arg(long, value_name = "DATA", value_parser = named(), value_hint = clap::ValueHint::FilePath)]
    pub from: Option<PathBuf>,
    /// The column to predict, or several of numbers: `--target a,b` [default: the last one]
    #[arg(long, value_name = "COLUMN", requires = "from")]
    pub target: Vec<String>,
    #[command(flatten)]
    pub marks: MarkOptions,
}

/// Says of the marks of a table that they are found if they are not named.
fn as_found(option: clap::Arg) -> clap::Arg {
    if !is_mark(&option) {
        return option;
    }
    let help =
        option.get_help().map(|help| help.to_string().replace("the training file's", "as its cells look"));
    option.help(help.unwrap_or_default()).requires("from")
}

fn template_names() -> clap::builder::PossibleValuesParser {
    let value = |t: &Template| clap::builder::PossibleValue::new(t.name).help(t.about);
    TEMPLATES.iter().map(value).collect::<Vec<_>>().into()
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    Csv,
    Json,
    Md,
    Latex,
    Parquet,
}

impl ExportFormat {
    /// Whether it shows what the screen does.
    pub fn is_table(self) -> bool {
        matches!(self, Self::Md | Self::Latex)
    }

    /// None for one that is no text.
    pub fn format(self) -> Option<Format> {
        match self {
            Self::Csv => Some(Format::Csv),
            Self::Json => Some(Format::Json),
            Self::Md => Some(Format::Md),
            Self::Latex => Some(Format::Latex),
            Self::Parquet => None,
        }
    }
}
