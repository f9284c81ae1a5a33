//! Command-line parsing.

mod complete;
mod launch;
mod model;
mod options;
mod scale;
mod start;
mod unknown;

use std::{
    ffi::OsString,
    io::IsTerminal,
    path::{Path, PathBuf},
};

use clap::{CommandFactory, Parser, ValueEnum};
use clap_complete::{CompleteEnv, Shell, env::Shells};

use crate::{
    host,
    run::{Exit, print, print_coloured, print_error},
};
pub use model::{
    CategoryRule, DecisionOptions, EvaluateOptions, ExportOptions, MarkOptions, ModelOptions, ModelsOptions,
    NO_PARQUET, PredictOptions,
};
pub use options::{
    CleanOptions, Command, CompareOptions, DevicesOptions, DiffOptions, ExportFormat, ListOptions,
    NewOptions, PlotOptions, ReportOptions, ServeOptions, StatusOptions, WatchOptions,
};
pub use scale::{HostCounts, LinkOption};
use start::MOST_VIRTUAL_GPUS;
pub use start::{CheckOptions, Jobs, ParityOptions, RefitOptions, RunOptions, StartOptions, idle_option};

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
    // Must come before the options that have a heading of their own.
    /// When to colour what is printed
    #[arg(long, global = true, value_enum, default_value_t = Color::Auto, value_name = "WHEN")]
    color: Color,
    #[command(flatten)]
    run: StartOptions,
}

#[derive(Clone, Copy, ValueEnum)]
enum Color {
    Auto,
    Always,
    Never,
}

/// Means the newest run of a spec, as in `--resume auto`.
pub const AUTO: &str = "auto";

/// Set by the shells' completion scripts.
const COMPLETE: &str = "RUNNER_COMPLETE";

/// Used if `--virtual-gpus` is not given.
const VIRTUAL_GPUS: &str = "RUNNER_VIRTUAL_GPUS";

/// Parses the command line, or prints what is wrong with it.
pub fn parse(arguments: &[OsString]) -> Result<Parsed, Exit> {
    if let Some(exit) = complete(arguments) {
        return Err(exit);
    }
    let arguments = command_first(arguments);
    let cli = Cli::try_parse_from(&arguments).map_err(|e| {
        let words: Vec<String> = arguments.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        let known = unknown::option(&e, &words)
            .or_else(|| unknown::option_of_no_cluster(&e, &words))
            .or_else(|| unknown::lacking(&e, &words))
            .or_else(|| unknown::several_filters(&e, &words))
            .or_else(|| unknown::exclusive(&e));
        if let Some((message, hint)) = known {
            return Exit::refused(message, Some(&hint));
        }
        if !e.use_stderr() {
            return print_coloured(&e.render().ansi().to_string());
        }
        let _ = e.print(); // nobody would read that standard error fails
        Exit::Refused
    })?;
    let color = match cli.color {
        Color::Auto => anstream::ColorChoice::Auto,
        Color::Always => anstream::ColorChoice::Always,
        Color::Never => anstream::ColorChoice::Never,
    };
    let is_named = cli.command.is_some();
    let mut command = cli.command.unwrap_or(Command::Run(cli.run));
    if let Command::Devices(DevicesOptions { virtual_gpus: count @ None, .. }) = &mut command {
        *count = virtual_gpus_of_environment()?;
    }
    let resumes =
        matches!(&command, Command::Run(start) if start.resume.as_ref().is_some_and(|run| run != AUTO));
    if let Command::Refit(RefitOptions { start, .. }) = &mut command
        && start.run.virtual_gpus.is_none()
    {
        start.run.virtual_gpus = virtual_gpus_of_environment()?;
    }
    if let Command::Run(StartOptions { run: options, .. })
    | Command::Check(CheckOptions { run: options, .. })
    | Command::Parity(ParityOptions { run: options, .. }) = &mut command
    {
        if options.words.is_empty() && !resumes {
            let hint = match &command {
                Command::Run(start) if start.resume.is_some() => "name it: `runner SPEC.toml --resume auto`",
                _ if is_named => "it follows the command: `SPEC.toml`",
                _ => "name it: `runner SPEC.toml`",
            };
            if arguments.len() > 1 {
                print_error("the spec is missing", Some(hint));
            } else {
                print_coloured(&Cli::command().render_help().ansi().to_string());
            }
            return Err(Exit::Refused);
        }
        options.words.first().map_or(Ok(()), |word| unknown::refuse_command(word, is_named))?;
        if options.virtual_gpus.is_none() {
            options.virtual_gpus = virtual_gpus_of_environment()?;
        }
    }
    Ok(Parsed { command, color })
}

/// Options may come before the command: `runner -q run SPEC.toml`. Moves the command to the front, where the
/// parser expects it.
fn command_first(arguments: &[OsString]) -> Vec<OsString> {
    let mut cli = Cli::command();
    // Only after this do options know whether they take a value.
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
                if cli.find_subcommand(word).is_some() {
                    arguments[1..=place].rotate_right(1);
                }
                break;
            }
        }
    }
    arguments
}

/// The spec that a typed word names: a TOML file, or that of a run's folder.
fn spec_of(word: &str) -> Option<PathBuf> {
    let path = if word.ends_with(".toml") { PathBuf::from(word) } else { Path::new(word).join("spec.toml") };
    path.is_file().then_some(path)
}

/// `RUNNER_VIRTUAL_GPUS`, checked like `--virtual-gpus`.
fn virtual_gpus_of_environment() -> Result<Option<u32>, Exit> {
    let Some(text) = std::env::var_os(VIRTUAL_GPUS) else { return Ok(None) };
    let number = text.to_str().and_then(|t| t.trim().parse::<u32>().ok());
    match number.filter(|n| i64::from(*n) <= MOST_VIRTUAL_GPUS) {
        Some(number) => Ok(Some(number)),
        None => {
            let found = text.to_string_lossy();
            Err(Exit::refused(
                format!("`{VIRTUAL_GPUS}` is `{found}`: expected a number from 0 to {MOST_VIRTUAL_GPUS}"),
                Some("it sets `--virtual-gpus N`; unset it to use the real GPUs"),
            ))
        }
    }
}

/// Whether a person reads standard error. `mpirun` gives its processes a terminal, but forwards their output
/// line by line, possibly into a file.
pub fn on_terminal() -> bool {
    std::io::stderr().is_terminal() && host::Launched::here().is_none()
}

/// Prints the script with which a shell asks this program for completions.
pub fn completions(shell: Shell) -> Exit {
    let shells = Shells::builtins();
    let mut script = Vec::new();
    let written = shells.completer(&shell.to_string()).map_or(Ok(()), |shell| {
        shell.write_registration(COMPLETE, "runner", "runner", "runner", &mut script)
    });
    match written {
        Ok(()) => print(&String::from_utf8_lossy(&script)),
        Err(_) => Exit::Failed, // writing to memory cannot fail
    }
}

/// Answers a shell's completion script; `None` if this is not such a call.
fn complete(arguments: &[OsString]) -> Option<Exit> {
    let folder = std::env::current_dir().ok();
    let engine = CompleteEnv::with_factory(Cli::command).var(COMPLETE);
    match engine.try_complete(arguments, folder.as_deref()) {
        Ok(is_done) => is_done.then_some(Exit::Done),
        Err(e) => {
            let _ = e.print(); // a shell does not show it
            Some(Exit::Refused)
        }
    }
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
            // The value of an option, a spec, and what follows a spec are not commands.
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
