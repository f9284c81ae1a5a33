//! What may be typed. Commands and options of later versions are known by name, so that they can be refused by name.

use std::{
    ffi::OsString,
    io::IsTerminal,
    path::{Path, PathBuf},
};

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum, error::ErrorKind};
use clap_complete::Shell;

use super::exit::{Exit, print, say};
use crate::{
    report::Format,
    spec::templates::{TEMPLATES, Template},
};

/// A parsed command line.
pub struct Parsed {
    pub command: Command,
    pub color: anstream::ColorChoice,
}

const AFTER: &str = "\
Overrides: `trainer.max_epochs=3` sets a key, `devices.num_gpus=0,1` sweeps it, `~schedule` deletes it.
Results go to a folder of their own below --runs-dir; nothing is ever overwritten.";

/// A declarative experiment runner that makes the cost of moving data visible.
#[derive(Parser)]
#[command(name = "runner", version, args_conflicts_with_subcommands = true, after_help = AFTER)]
#[command(override_usage = "runner SPEC.toml [KEY=VALUE ...] [OPTIONS]\n       runner <COMMAND>")]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    run: RunOptions,
    /// When to colour what is printed
    #[arg(long, global = true, value_enum, default_value_t = Color::Auto, value_name = "WHEN")]
    color: Color,
}

#[derive(Subcommand)]
pub enum Command {
    /// Run a spec: one run, or every trial of its sweep
    Run(RunOptions),
    /// Read, validate and plan a spec; print what would happen. Trains nothing
    Check(RunOptions),
    /// Take a few steps on the CPU and on every count of GPUs, and compare. Writes nothing
    Parity(ParityOptions),
    /// Show the machine: processors, memory, GPUs
    Devices(DevicesOptions),
    /// Put runs, sweeps or globs side by side
    Compare(CompareOptions),
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

#[derive(Args, Clone)]
pub struct RunOptions {
    /// The spec, then overrides such as `trainer.max_epochs=3`
    #[arg(value_names = ["SPEC.toml", "KEY=VALUE"], num_args = 1.., value_hint = clap::ValueHint::FilePath)]
    words: Vec<String>,
    /// Where run folders are made
    #[arg(long, value_name = "DIR", default_value = "runs", value_hint = clap::ValueHint::DirPath)]
    pub runs_dir: PathBuf,
    /// CPU threads that compute [default: all cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub threads: Option<u32>,
    /// Pose as a machine with exactly N GPUs of separate memories [default: RUNNER_VIRTUAL_GPUS, or the real ones]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=MOST_VIRTUAL_GPUS))]
    pub virtual_gpus: Option<u32>,
    /// Say only warnings, and the folder at the end
    #[arg(short, long, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Say more
    #[arg(short, long)]
    pub verbose: bool,
}

impl RunOptions {
    /// The spec's path.
    pub fn spec(&self) -> PathBuf {
        PathBuf::from(&self.words[self.spec_index()])
    }

    /// All other words.
    pub fn overrides(&self) -> Vec<String> {
        let spec = self.spec_index();
        self.words.iter().enumerate().filter(|(i, _)| *i != spec).map(|(_, w)| w.clone()).collect()
    }

    /// Options and overrides may stand in any order, so the spec need not come first. Its path may hold a `=`, as that
    /// of a trial's own `spec.toml` does: a word that names a file is no override.
    fn spec_index(&self) -> usize {
        let is_file = |w: &String| Path::new(w).is_file();
        let is_no_override = |w: &String| !w.starts_with('~') && !w.contains('=');
        let ends_as_spec = |w: &String| w.ends_with(".toml");
        let place = |is_spec: &dyn Fn(&String) -> bool| self.words.iter().position(is_spec);
        place(&is_file).or_else(|| place(&is_no_override)).or_else(|| place(&ends_as_spec)).unwrap_or(0)
    }

    /// Threads to use.
    pub fn thread_count(&self) -> usize {
        self.threads.map_or_else(|| crate::host::logical_cores().unwrap_or(1), |n| n as usize)
    }
}

#[derive(Args, Clone)]
pub struct ParityOptions {
    #[command(flatten)]
    pub run: RunOptions,
    /// Optimizer steps at most
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub steps: u64,
}

#[derive(Args)]
pub struct DevicesOptions {
    /// Measure the processor's rates, in a few seconds, and keep them for the cost model
    #[arg(long)]
    pub measure: bool,
    /// Show the GPUs that the host would pose as having [default: RUNNER_VIRTUAL_GPUS, or the real ones]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=MOST_VIRTUAL_GPUS))]
    pub virtual_gpus: Option<u32>,
}

#[derive(Args)]
pub struct CompareOptions {
    /// Run folders, sweep folders, or globs of them
    #[arg(value_name = "PATH", required = true, value_hint = clap::ValueHint::DirPath)]
    pub paths: Vec<String>,
    /// Print one row per run in this format instead
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub export: Option<ExportFormat>,
}

#[derive(Args)]
pub struct NewOptions {
    /// Which starter
    #[arg(value_parser = template_names())]
    pub template: String,
    /// Where to write it [default: standard output]
    pub file: Option<PathBuf>,
}

fn template_names() -> clap::builder::PossibleValuesParser {
    let value = |t: &Template| clap::builder::PossibleValue::new(t.name).help(t.about);
    TEMPLATES.iter().map(value).collect::<Vec<_>>().into()
}

#[derive(Clone, Copy, ValueEnum)]
pub enum ExportFormat {
    Csv,
    Json,
    Md,
}

impl From<ExportFormat> for Format {
    fn from(format: ExportFormat) -> Self {
        match format {
            ExportFormat::Csv => Self::Csv,
            ExportFormat::Json => Self::Json,
            ExportFormat::Md => Self::Md,
        }
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum Color {
    Auto,
    Always,
    Never,
}

/// Commands and options that are specified but not built yet.
const LATER_COMMANDS: [&str; 1] = ["report"];
const LATER_OPTIONS: [&str; 6] = ["--resume", "--jobs", "--fail-fast", "--by", "--metric", "--fail-if"];

/// Stands for `--virtual-gpus` where that is not given.
const VIRTUAL_GPUS: &str = "RUNNER_VIRTUAL_GPUS";

/// Each has a memory of its own; more than this is a slip.
const MOST_VIRTUAL_GPUS: i64 = 64;

/// Parses, or says what is wrong.
pub fn parse(arguments: &[OsString]) -> Result<Parsed, Exit> {
    let arguments = command_first(arguments);
    if let Some(later) = later(&arguments) {
        return Err(refuse_later(&later));
    }
    let cli = Cli::try_parse_from(arguments).map_err(|e| {
        let _ = e.print();
        match e.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Exit::Done,
            _ => Exit::Refused,
        }
    })?;
    let color = match cli.color {
        Color::Auto => anstream::ColorChoice::Auto,
        Color::Always => anstream::ColorChoice::Always,
        Color::Never => anstream::ColorChoice::Never,
    };
    let mut command = cli.command.unwrap_or(Command::Run(cli.run));
    if let Command::Devices(DevicesOptions { virtual_gpus: count @ None, .. }) = &mut command {
        *count = virtual_gpus_of_environment()?;
    }
    if let Command::Run(options)
    | Command::Check(options)
    | Command::Parity(ParityOptions { run: options, .. }) = &mut command
    {
        if options.words.is_empty() {
            let _ = Cli::command().print_help();
            return Err(Exit::Refused);
        }
        if options.virtual_gpus.is_none() {
            options.virtual_gpus = virtual_gpus_of_environment()?;
        }
    }
    Ok(Parsed { command, color })
}

/// Options may stand before the command as well: `runner -q run SPEC.toml`. It is put first, where the parser looks for it.
fn command_first(arguments: &[OsString]) -> Vec<OsString> {
    let mut cli = Cli::command();
    // Only then is it known which options take a value.
    cli.build();
    let takes_value = |word: &str| {
        cli.get_opts().any(|option| {
            let long = option.get_long().is_some_and(|name| word.strip_prefix("--") == Some(name));
            long || option.get_short().is_some_and(|name| word == format!("-{name}"))
        })
    };
    let mut arguments = arguments.to_vec();
    let mut place = 1;
    while let Some(word) = arguments.get(place).and_then(|word| word.to_str()) {
        match word {
            "--" | "-V" | "--version" => break,
            _ if word.starts_with('-') => place += if takes_value(word) { 2 } else { 1 },
            _ => {
                if cli.find_subcommand(word).is_some() || LATER_COMMANDS.contains(&word) {
                    arguments[1..=place].rotate_right(1);
                }
                break;
            }
        }
    }
    arguments
}

/// The variable, held to the rule of the option.
fn virtual_gpus_of_environment() -> Result<Option<u32>, Exit> {
    let Some(text) = std::env::var_os(VIRTUAL_GPUS) else { return Ok(None) };
    let number = text.to_str().and_then(|t| t.trim().parse::<u32>().ok());
    match number.filter(|n| i64::from(*n) <= MOST_VIRTUAL_GPUS) {
        Some(number) => Ok(Some(number)),
        None => {
            let found = text.to_string_lossy();
            say(
                format!("`{VIRTUAL_GPUS}` is `{found}`: expected a number from 0 to {MOST_VIRTUAL_GPUS}"),
                Some("it stands for `--virtual-gpus N`; unset it to use the machine as it is"),
            );
            Err(Exit::Refused)
        }
    }
}

fn refuse_later(name: &str) -> Exit {
    say(format!("not in this version: `{name}`"), Some("`runner --help` lists what is"));
    Exit::Refused
}

fn later(arguments: &[OsString]) -> Option<String> {
    let words: Vec<_> = arguments.iter().skip(1).map(|a| a.to_string_lossy().into_owned()).collect();
    if let Some(command) = words.first().filter(|w| LATER_COMMANDS.contains(&w.as_str())) {
        return Some(format!("runner {command}"));
    }
    let options = words.iter().take_while(|w| *w != "--");
    let named = options.filter_map(|w| LATER_OPTIONS.iter().find(|o| w.split('=').next() == Some(o)));
    named.map(|o| (*o).to_owned()).next()
}

/// The command whose name a word nearly is.
pub fn meant_command(word: &str) -> Option<String> {
    let command = Cli::command();
    let names = command.get_subcommands().map(|c| c.get_name());
    names.filter(|n| strsim::damerau_levenshtein(n, word) <= 2).map(str::to_owned).next()
}

/// Whether standard error is a terminal.
pub fn on_terminal() -> bool {
    std::io::stderr().is_terminal()
}

/// Prints a completion script.
pub fn completions(shell: Shell) -> Exit {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "runner", &mut script);
    print(&String::from_utf8_lossy(&script))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_may_stand_before_the_command() {
        for (typed, wanted) in [
            ("runner -q run a.toml", "runner run -q a.toml"),
            ("runner --threads 2 -v check a.toml", "runner check --threads 2 -v a.toml"),
            ("runner --runs-dir=x --color never report y", "runner report --runs-dir=x --color never y"),
            // The value of an option, a spec and what follows it are no commands.
            ("runner --runs-dir run a.toml", "runner --runs-dir run a.toml"),
            ("runner -q a.toml check", "runner -q a.toml check"),
            ("runner -V run", "runner -V run"),
            ("runner -- run", "runner -- run"),
            ("runner -q", "runner -q"),
            ("runner", "runner"),
        ] {
            let words: Vec<OsString> = typed.split(' ').map(OsString::from).collect();
            let found: Vec<_> =
                command_first(&words).iter().map(|word| word.to_string_lossy().into_owned()).collect();
            assert_eq!(found.join(" "), wanted);
        }
    }
}
