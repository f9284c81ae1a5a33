//! Command-line parsing.

mod complete;
mod launch;
mod model;
mod options;
mod scale;
mod start;

use std::{
    ffi::OsString,
    io::{ErrorKind::BrokenPipe, IsTerminal},
    path::{Path, PathBuf},
};

use clap::{CommandFactory, Parser, ValueEnum, error::ErrorKind};
use clap_complete::{CompleteEnv, Shell, env::Shells};

use crate::{
    host,
    run::{Exit, print, print_error},
};
pub use model::{CategoryRule, EvaluateOptions, ExportOptions, ModelOptions, PredictOptions};
pub use options::{
    CleanOptions, Command, CompareOptions, DevicesOptions, DiffOptions, ExportFormat, ListOptions,
    NewOptions, PlotOptions, ReportOptions, ServeOptions, StatusOptions, WatchOptions,
};
pub use scale::{HostCounts, LinkOption};
use start::MOST_VIRTUAL_GPUS;
pub use start::{CheckOptions, Jobs, ParityOptions, RefitOptions, RunOptions, StartOptions};

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
        let of_run = || option_of_run(&e, &arguments).or_else(|| runs_dir_as_path(&e, &arguments));
        let of_run = || of_run().or_else(|| dashed_key(&e, &arguments));
        if let Some(known) = of_run().or_else(|| option_of_no_cluster(&e, &arguments)) {
            return Exit::refused(&known.0, Some(&known.1));
        }
        let printed = e.print().or_else(|e| if e.kind() == BrokenPipe { Ok(()) } else { Err(e) });
        match (e.kind(), printed) {
            (ErrorKind::DisplayHelp | ErrorKind::DisplayVersion, Ok(())) => Exit::Done,
            (ErrorKind::DisplayHelp | ErrorKind::DisplayVersion, Err(_)) => Exit::Failed,
            _ => Exit::Refused,
        }
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
            if is_named {
                print_error("the spec is missing", Some("it follows the command: `SPEC.toml`"));
            } else {
                let _ = Cli::command().print_help();
            }
            return Err(Exit::Refused);
        }
        options.words.first().map_or(Ok(()), |word| refuse_command(word))?;
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

/// Commands of other programs, and what they are called here.
const ELSEWHERE: [(&str, &str); 11] = [
    ("retrain", "refit"),
    ("finalize", "refit"),
    ("train", "run"),
    ("fit", "run"),
    ("start", "run"),
    ("infer", "predict"),
    ("inference", "predict"),
    ("apply", "predict"),
    ("eval", "evaluate"),
    ("score", "evaluate"),
    ("test", "evaluate"),
];

/// Refuses a first word that is neither a file nor an override but resembles the name of a command.
fn refuse_command(word: &str) -> Result<(), Exit> {
    if Path::new(word).exists() || word.starts_with('~') || word.contains(['=', '.', '/']) {
        return Ok(());
    }
    let spec = format!("{word}.toml");
    if Path::new(&spec).is_file() {
        return Err(Exit::refused(
            format!("no command `{word}`"),
            Some(&format!("did you mean `runner {spec}`?")),
        ));
    }
    let elsewhere = match word {
        "resume" | "continue" => Some("`runner run --resume RUN` resumes a run or a sweep"),
        "extend" => Some("`runner run --resume RUN trainer.max_epochs=N` gives a run more epochs"),
        "sweep" | "tune" => Some(
            "`runner SPEC.toml` runs every trial of the sweep in the spec; `KEY=1,2,4` after it sweeps a key",
        ),
        _ => None,
    };
    if let Some(hint) = elsewhere {
        return Err(Exit::refused(format!("no command `{word}`"), Some(hint)));
    }
    let command = Cli::command();
    let names =
        command.get_subcommands().map(|c| (strsim::damerau_levenshtein(c.get_name(), word), c.get_name()));
    let near = names.filter(|(distance, _)| *distance <= 2).min().map(|(_, name)| name);
    let is_meant = |(name, _): &(&str, _)| name.len() > 4 && strsim::damerau_levenshtein(name, word) == 1;
    let meant = ELSEWHERE.into_iter().find(is_meant).map(|(_, here)| here);
    let exact = ELSEWHERE.into_iter().find(|(name, _)| *name == word).map(|(_, here)| here);
    let Some(near) = exact.or(near).or(meant) else { return Ok(()) };
    Err(Exit::refused(format!("no command `{word}`"), Some(&format!("did you mean `runner {near}`?"))))
}

/// Error and hint for a spec key typed as an option, such as `--seed 2`.
fn dashed_key(error: &clap::Error, arguments: &[OsString]) -> Option<(String, String)> {
    use clap::error::{ContextKind, ContextValue};
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else { return None };
    let name = option.strip_prefix("--").filter(|_| error.kind() == ErrorKind::UnknownArgument)?;
    let (key, value) =
        name.split_once('=').map_or((name, None), |(key, value)| (key, Some(value.to_owned())));
    let Some(meant) = key_of_option(key) else {
        let is_near = error.get(ContextKind::SuggestedArg).is_some();
        let hint =
            "`KEY=VALUE` sets a key of the spec, such as `trainer.max_epochs=5`; `--help` lists the options";
        return (!is_near && takes_keys(arguments))
            .then(|| (format!("no option `--{key}`"), hint.to_owned()));
    };
    let mut words = arguments.iter().map(|word| word.to_string_lossy());
    let typed = words.find(|word| word.split('=').next() == Some(&format!("--{key}")[..]))?;
    let given = typed.split_once('=').map(|(_, value)| value.to_owned());
    let value = value.or(given).or_else(|| words.next().map(|word| word.into_owned())).unwrap_or_default();
    Some((format!("no option `--{key}`"), format!("keys have no dashes: `{meant}={value}`")))
}

/// Whether the command takes keys of a spec.
fn takes_keys(arguments: &[OsString]) -> bool {
    let word = arguments.get(1).map(|word| word.to_string_lossy()).unwrap_or_default();
    ["run", "check", "parity", "refit"].contains(&&*word) || Cli::command().find_subcommand(&*word).is_none()
}

/// The key that is meant by an option's name: `trainer.max_epochs` for `max-epochs` and `epochs`.
fn key_of_option(name: &str) -> Option<String> {
    let schema = crate::spec::schema();
    let tables = schema["properties"].as_object()?;
    if tables.contains_key(name.split('.').next().unwrap_or_default()) {
        return Some(name.to_owned());
    }
    let name = name.replace('-', "_");
    const TABLES: [&str; 5] = ["trainer", "data", "devices", "logging", "checkpoint"];
    let keys = |table: &str| tables[table]["properties"].as_object().into_iter().flatten();
    let all: Vec<(&str, &String)> =
        TABLES.into_iter().flat_map(|table| keys(table).map(move |(key, _)| (table, key))).collect();
    let longer = || all.iter().find(|(_, key)| key.strip_suffix(&name[..]).is_some_and(|max| max == "max_"));
    let found = all.iter().find(|(_, key)| **key == name).or_else(longer);
    found.map(|(table, key)| format!("{table}.{key}"))
}

/// Error and hint for an option of `run` that `check` or `parity` is given.
fn option_of_run(error: &clap::Error, arguments: &[OsString]) -> Option<(String, String)> {
    use clap::error::{ContextKind, ContextValue};
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else { return None };
    let name = option.strip_prefix("--").filter(|_| error.kind() == ErrorKind::UnknownArgument)?;
    let command =
        arguments.get(1).and_then(|word| word.to_str()).filter(|c| ["check", "parity"].contains(c))?;
    let cli = Cli::command();
    let mut options = cli.find_subcommand("run")?.get_opts();
    let is_of_run = options.any(|own| own.get_long() == Some(name) && !own.is_hide_set());
    let hint = format!("leave it out: `{command}` starts no run");
    is_of_run.then(|| (format!("`--{name}` is an option of `runner run`"), hint))
}

/// Error and hint for `--runs-dir DIR` of a command that takes the folder itself.
fn runs_dir_as_path(error: &clap::Error, arguments: &[OsString]) -> Option<(String, String)> {
    let words = || arguments.iter().map(|word| word.to_string_lossy());
    let typed = words().position(|word| word.split('=').next() == Some("--runs-dir"))?;
    let command = words().nth(1).filter(|command| Cli::command().find_subcommand(&**command).is_some())?;
    let given = words().nth(typed)?.split_once('=').map(|(_, folder)| folder.to_owned());
    let folder = given.or_else(|| Some(words().nth(typed + 1)?.into_owned())).unwrap_or("DIR".to_owned());
    let hint = format!("`{command}` takes the folder itself: `runner {command} {folder}`");
    (error.kind() == ErrorKind::UnknownArgument).then(|| ("no option `--runs-dir`".to_owned(), hint))
}

/// Error and hint for `--dry-run` and `--gpus N`, which are for a cluster's tasks.
fn option_of_no_cluster(error: &clap::Error, arguments: &[OsString]) -> Option<(String, String)> {
    if error.kind() != ErrorKind::MissingRequiredArgument {
        return None;
    }
    let words = || arguments.iter().map(|word| word.to_string_lossy());
    if words().any(|word| word == "--dry-run") {
        let spec = words().find(|word| word.ends_with(".toml"));
        let spec = spec.unwrap_or_else(|| "SPEC.toml".into());
        let hint = format!("`runner check {spec}` prints what would happen, and starts nothing");
        return Some(("`--dry-run` prints the script of `--launcher`".to_owned(), hint));
    }
    let mut words = words();
    let typed = words.find(|word| word.split('=').next() == Some("--gpus"))?;
    let given = typed.split_once('=').map(|(_, value)| value.to_owned());
    let given = given.or_else(|| Some(words.next()?.into_owned()))?;
    let hint = format!("`devices.num_gpus={given}` trains on GPUs of this machine");
    Some(("`--gpus` is for the tasks of `--launcher`".to_owned(), hint))
}

/// `RUNNER_RUNS_DIR`, or `runs` in the current folder.
fn runs_dir() -> PathBuf {
    let set = std::env::var_os("RUNNER_RUNS_DIR").filter(|dir| !dir.is_empty());
    set.map_or_else(|| PathBuf::from("runs"), PathBuf::from)
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
