//! What a command or an option that there is not may mean: what other programs call it, or what it resembles.

use std::path::Path;

use clap::{
    CommandFactory,
    error::{ContextKind, ContextValue, ErrorKind},
};

use super::{Cli, spec_of};
use crate::{
    record::command_line,
    run::Exit,
    spec::{key_of_option, nearest},
};

/// Commands of other programs, with a hint.
const COMMANDS: [(&str, &str); 17] = [
    ("retrain finalize", "did you mean `runner refit`?"),
    ("train fit start", "did you mean `runner run`?"),
    ("validate lint plan", "did you mean `runner check`?"),
    ("infer inference apply", "did you mean `runner predict`?"),
    ("eval score test", "did you mean `runner evaluate`?"),
    ("init create template", "did you mean `runner new`?"),
    ("ls ps runs", "did you mean `runner list`?"),
    ("info describe summary", "did you mean `runner show`?"),
    ("dashboard ui web", "did you mean `runner serve`?"),
    ("resume continue", "`runner run --resume RUN` resumes a run or a sweep"),
    ("extend", "`runner run --resume RUN trainer.max_epochs=N` gives a run more epochs"),
    (
        "sweep tune search hpo",
        "`runner SPEC.toml` runs every trial of the sweep in the spec; `KEY=1,2,4` after it sweeps a key",
    ),
    ("rm remove delete prune", "`runner clean` removes runs and sweeps"),
    (
        "stop kill abort",
        "Ctrl-C ends a run, and `--resume` goes on with it; `runner cancel` ends a sweep's jobs on a cluster",
    ),
    ("best top rank leaderboard", "`runner compare PATH` ranks runs, the best first"),
    ("logs log tail", "`run.log` in a run's folder is its log; `runner watch` shows a run while it trains"),
    ("tensorboard", "`logging.tensorboard=true` has a run write what `tensorboard --logdir runs` shows"),
];

/// Options of other programs, after the commands with which they are typed, with a hint.
const OPTIONS: [(&str, &str, &str); 26] = [
    (
        "run check parity refit",
        "set override param",
        "`KEY=VALUE` after the spec sets a key, such as `trainer.max_epochs=5`",
    ),
    ("run check parity", "c f config spec file", "the spec needs no option: `runner SPEC.toml`"),
    (
        "run check parity refit",
        "m multirun",
        "several values make a sweep: `seed=0..3`, `optimizer.sgd.lr=0.1,0.01`",
    ),
    (
        "run check parity refit",
        "cpu",
        "a run uses the CPU unless its spec asks for GPUs: `devices.num_gpus=0`",
    ),
    (
        "run refit",
        "partition account gpus gres mem nodes",
        "`devices.num_gpus=N` trains on GPUs; with `--launcher slurm`, `sbatch` takes its options as in `--sbatch=--partition=NAME`",
    ),
    (
        "run refit",
        "time",
        "`launcher.slurm.time=1h` limits the tasks on a cluster, `trainer.max_time=1h` a training",
    ),
    ("run check parity refit", "gpu gpus cuda", "`devices.num_gpus=1` trains on a GPU"),
    ("run check parity refit", "o", "did you mean `--runs-dir`?"),
    ("run", "j", "did you mean `--jobs`?"),
    ("run parity", "on", "`runner check SPEC.toml --on FILE` plans for another machine"),
    ("list compare report", "tag tags", "did you mean `--where 'tag = WORD'`?"),
    ("list compare report", "status state", "did you mean `--where 'status = failed'`?"),
    ("list compare report", "filter query", "did you mean `--where EXPR`?"),
    ("list", "limit n top head last", "the newest come last: `runner list | tail -n 5`"),
    ("list", "csv", "`runner compare PATH --export csv` prints one row per run"),
    ("compare", "limit n", "did you mean `--top`?"),
    ("compare", "best", "the best stands above the table; `--top 1` shows it alone"),
    ("compare", "csv json o out output", "`--export csv` prints one row per run, `--export json` an object"),
    ("clean", "all", "`--keep-best 0` chooses all runs that have no tag, and `--yes` removes them"),
    ("clean", "keep best", "did you mean `--keep-best`?"),
    ("clean", "f force y", "did you mean `--yes`?"),
    ("clean", "n dry_run", "leave it out: without `--yes` nothing is removed"),
    (
        "export",
        "f format to o out output",
        "the format's option takes the file: `--onnx FILE`, `--parquet FILE` or `--mlflow DIR`",
    ),
    (
        "plot",
        "o out output save",
        "`runner report RUN --png DIR` writes each chart as a PNG file, `--svg DIR` as an SVG file",
    ),
    ("predict evaluate", "d i data input", "the rows follow the run, without an option: `RUN DATA`"),
    ("new", "d data input csv", "did you mean `--from`?"),
];

/// An example for each command that needs arguments.
const EXAMPLES: [(&str, &str); 15] = [
    ("cancel", "runs/NAME/SWEEP"),
    ("clean", "--keep-best 5"),
    ("compare", "runs/NAME"),
    ("completions", "bash"),
    ("diff", "runs/NAME/TIME-HASH runs/NAME/OTHER"),
    ("evaluate", "runs/NAME new.csv"),
    ("export", "runs/NAME --onnx model.onnx"),
    ("new", "csv mine.toml --from data.csv"),
    ("plot", "runs/NAME"),
    ("predict", "runs/NAME new.csv"),
    ("refit", "runs/NAME"),
    ("report", "runs"),
    ("show", "runs/NAME"),
    ("status", "runs/NAME/SWEEP"),
    ("tag", "runs/NAME/TIME-HASH good"),
];

/// Refuses a first word that is neither a file nor an override, but nearly a spec or, where no command precedes it, a command here or of
/// another program.
pub(super) fn refuse_command(word: &str, is_named: bool) -> Result<(), Exit> {
    if Path::new(word).exists() || word.starts_with('~') || word.contains(['=', '.', '/']) {
        return Ok(());
    }
    let spec = format!("{word}.toml");
    let hint = match Path::new(&spec).is_file() {
        true => Some(format!("did you mean `runner {spec}`?")),
        false if is_named => None,
        false => command_called(word),
    };
    let Some(hint) = hint else { return Ok(()) };
    Err(Exit::refused(format!("no command `{word}`"), Some(&hint)))
}

/// A hint on the command that a word means.
fn command_called(word: &str) -> Option<String> {
    let elsewhere = |word: &str| COMMANDS.into_iter().find(|(words, _)| has_word(words, word));
    let cli = Cli::command();
    let near = || nearest(word, cli.get_subcommands().map(clap::Command::get_name));
    // A slip of a short word may be any word.
    let long = COMMANDS.iter().flat_map(|(words, _)| words.split(' ')).filter(|word| word.len() > 4);
    let slip = || elsewhere(nearest(word, long)?);
    let hint = |(_, hint): (&str, &str)| hint.to_owned();
    let named = || near().map(|name| format!("did you mean `runner {name}`?"));
    elsewhere(word).map(hint).or_else(named).or_else(|| slip().map(hint))
}

/// Whether `word` is one of `words`.
fn has_word(words: &str, word: &str) -> bool {
    words.split(' ').any(|own| own == word)
}

/// Error and hint for an option that the command does not have.
pub(super) fn option(error: &clap::Error, arguments: &[String]) -> Option<(String, String)> {
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else { return None };
    let typed = option.split('=').next().unwrap_or_default();
    let name = typed.trim_start_matches('-').replace('-', "_");
    let is_option = typed.starts_with('-') && name.starts_with(char::is_alphabetic);
    if error.kind() != ErrorKind::UnknownArgument || !is_option {
        return None;
    }
    let mut cli = Cli::command();
    cli.build();
    let command = arguments.get(1).and_then(|word| cli.find_subcommand(word));
    let run = cli.find_subcommand("run")?;
    let command = command.unwrap_or(run);
    let has = |command: &clap::Command| longs(command).any(|own| Some(own) == typed.strip_prefix("--"));
    if ["check", "parity"].contains(&command.get_name()) && has(run) {
        let hint = format!("leave it out: `{}` starts no run", command.get_name());
        return Some((format!("`{typed}` is an option of `runner run`"), hint));
    }
    let elsewhere =
        OPTIONS.into_iter().find(|(of, words, _)| has_word(of, command.get_name()) && has_word(words, &name));
    let hint = elsewhere
        .map(|(_, _, hint)| hint.to_owned())
        .or_else(|| runs_dir_as_path(command, typed, arguments))
        .or_else(|| near_option(command, &name))
        .or_else(|| key(command, typed, arguments))
        .or_else(|| {
            let other = cli.get_subcommands().find(|other| takes_keys(command) && takes_keys(other) && has(other))?;
            Some(format!("`runner {}` has it", other.get_name()))
        })
        .unwrap_or_else(|| match takes_keys(command) {
            true => "`KEY=VALUE` sets a key of the spec, such as `trainer.max_epochs=5`; `--help` lists the options"
                .to_owned(),
            false => format!("`runner {} --help` lists the options", command.get_name()),
        });
    Some((format!("no option `{typed}`"), hint))
}

/// The long names of a command's options and flags.
fn longs(command: &clap::Command) -> impl Iterator<Item = &str> {
    let visible = command.get_arguments().filter(|own| !own.is_hide_set());
    visible.filter_map(clap::Arg::get_long)
}

/// A hint on the command's option that is called nearly so.
fn near_option(command: &clap::Command, name: &str) -> Option<String> {
    let names: Vec<String> = longs(command).map(|long| long.replace('-', "_")).collect();
    let near = nearest(name, names.iter().map(String::as_str)).filter(|_| name.len() > 1)?;
    Some(format!("did you mean `--{}`?", near.replace('_', "-")))
}

/// Whether the command takes keys of a spec.
fn takes_keys(command: &clap::Command) -> bool {
    ["run", "check", "parity", "refit"].contains(&command.get_name())
}

/// A hint on the key of the spec that is typed as an option, such as `--seed 2`.
fn key(command: &clap::Command, typed: &str, arguments: &[String]) -> Option<String> {
    let spec = arguments.iter().skip(1).find_map(|word| spec_of(word));
    let name = typed.strip_prefix("--").filter(|_| takes_keys(command))?;
    let key = key_of_option(name, spec.as_deref())?;
    Some(format!("keys have no dashes: `{key}={}`", value(typed, arguments)?))
}

/// The value that an option was given.
fn value(typed: &str, arguments: &[String]) -> Option<String> {
    let mut words = arguments.iter();
    let word = words.find(|word| word.split('=').next() == Some(typed))?;
    let next = words.next().filter(|next| !next.starts_with("--")).map_or("VALUE", |next| next);
    Some(word.split_once('=').map_or(next, |(_, value)| value).to_owned())
}

/// A hint on `--runs-dir DIR` of a command that takes the folder itself.
fn runs_dir_as_path(command: &clap::Command, typed: &str, arguments: &[String]) -> Option<String> {
    let name = command.get_name();
    let folder = value(typed, arguments).filter(|_| typed == "--runs-dir" && name != "new")?;
    Some(format!("`{name}` takes the folder itself: `runner {name} {folder}`"))
}

/// Error and hint for a command that lacks arguments.
pub(super) fn lacking(error: &clap::Error, arguments: &[String]) -> Option<(String, String)> {
    let command = arguments.get(1)?;
    let Some(ContextValue::Strings(lacking)) = error.get(ContextKind::InvalidArg) else { return None };
    let (_, example) = EXAMPLES.into_iter().find(|(name, _)| name == command)?;
    // What another option needs is no matter of the command's use.
    let is_of_option = lacking.iter().any(|own| own.starts_with("--"));
    if error.kind() != ErrorKind::MissingRequiredArgument || is_of_option {
        return None;
    }
    let (one_of, each): (Vec<&String>, Vec<_>) = lacking.iter().partition(|own| own.contains('|'));
    let in_words = |own: &&String| format!("`{}`", own.replace(['<', '>'], "").replace('|', "` or `"));
    let lacking: Vec<String> = each.iter().chain(&one_of).map(in_words).collect();
    let and = if one_of.is_empty() { " and " } else { ", and " };
    let message = format!("`{command}` needs {}", lacking.join(and));
    Some((message, format!("as in `runner {command} {example}`")))
}

/// Error and hint for options that exclude each other, and for one that is given twice.
pub(super) fn exclusive(error: &clap::Error) -> Option<(String, String)> {
    let name = |shown: &str| {
        let name = shown.split([' ', '=']).next().unwrap_or_default();
        format!("`{}`", name.trim_matches(['[', ']', '<', '>', '.']))
    };
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else { return None };
    let others = match error.get(ContextKind::PriorArg) {
        Some(ContextValue::String(other)) => vec![name(other)],
        Some(ContextValue::Strings(others)) => others.iter().map(|other| name(other)).collect(),
        _ => return None,
    };
    if error.kind() != ErrorKind::ArgumentConflict {
        return None;
    }
    let option = name(option);
    if others == [option.as_str()] {
        return Some((format!("{option} is given twice"), "give it once".to_owned()));
    }
    let hint = "leave one of them out; `--help` says what each is for".to_owned();
    Some((format!("{option} does not go with {}", others.join(" and ")), hint))
}

/// Error and hint for several `--where`.
pub(super) fn several_filters(error: &clap::Error, arguments: &[String]) -> Option<(String, String)> {
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else { return None };
    let is_repeated =
        matches!(error.get(ContextKind::PriorArg), Some(ContextValue::String(prior)) if prior == option);
    if error.kind() != ErrorKind::ArgumentConflict || !is_repeated || !option.starts_with("--where ") {
        return None;
    }
    let filters = arguments.iter().enumerate().filter_map(|(at, word)| match word.strip_prefix("--where") {
        Some("") => arguments.get(at + 1).map(String::as_str),
        Some(filter) => filter.strip_prefix('='),
        None => None,
    });
    let filters: Vec<&str> = filters.collect();
    let hint = match filters.iter().any(|filter| filter.to_lowercase().contains(" or ")) {
        true => "one takes all conditions, joined by `and` and `or`: `and` binds closer".to_owned(),
        false => format!("join the conditions: `--where {}`", command_line([filters.join(" and ")])),
    };
    Some(("`--where` is given twice".to_owned(), hint))
}

/// Error and hint for `--dry-run`, which is for a cluster's tasks.
pub(super) fn option_of_no_cluster(error: &clap::Error, arguments: &[String]) -> Option<(String, String)> {
    if error.kind() != ErrorKind::MissingRequiredArgument || !arguments.iter().any(|word| word == "--dry-run")
    {
        return None;
    }
    let spec = arguments.iter().find(|word| word.ends_with(".toml")).map_or("SPEC.toml", |spec| spec);
    let check = match arguments.iter().any(|word| word == "refit") {
        true => "--check".to_owned(),
        false => format!("runner check {spec}"),
    };
    let hint = format!("`{check}` prints what would happen, and starts nothing");
    Some(("`--dry-run` prints the script of `--launcher`".to_owned(), hint))
}
