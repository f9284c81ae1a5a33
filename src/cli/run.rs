//! `runner SPEC.toml`: one run, or every trial of its sweep.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    time::Instant,
};

use chrono::Utc;

use super::{
    args::{RunOptions, meant_command, on_terminal},
    machine::{machine, wants_gpu},
};
use crate::{
    host::{load::Watch, stop_on_signals},
    plan::{Trial, lab::LabTrial},
    record::{GitQuery, Verbosity, command_line},
    report,
    run::{Datasets, Ended, Exit, Process, Session, print, print_error, print_stderr, refuse},
    spec::{self, Loaded},
    train::StopFlag,
};

/// Runs the command.
pub fn run(options: &RunOptions, arguments: &[OsString], begun: Instant) -> Exit {
    let started = Utc::now();
    let path = options.spec();
    let git = GitQuery::start(&folder_of(&path));
    let loaded = match spec::read(&path, &options.overrides()) {
        Ok(loaded) => loaded,
        Err(failure) => return refuse_spec(&path, &failure),
    };
    let stop = StopFlag::default();
    stop_on_signals(&stop.0);
    let process = Process {
        begun,
        started,
        command: command_line(arguments.iter().map(|a| a.to_string_lossy())),
        runs_dir: options.runs_dir.clone(),
        verbosity: match (options.quiet, options.verbose) {
            (true, _) => Verbosity::Quiet,
            (_, true) => Verbosity::Verbose,
            _ => Verbosity::Normal,
        },
        terminal: on_terminal(),
        threads: options.threads,
        available_threads: options.thread_count(),
        virtual_gpus: options.virtual_gpus,
        git,
        stop,
        load: Watch::default(),
    };
    let ended = match &loaded {
        Loaded::Train(experiment) => {
            let machine = machine(options.virtual_gpus, wants_gpu(experiment));
            Session::<Trial>::new(process, experiment, Datasets::new(&machine)).run(&machine)
        }
        Loaded::Lab(experiment) => {
            let machine = machine(options.virtual_gpus, true);
            Session::<LabTrial>::new(process, experiment, ()).run(&machine)
        }
    };
    close(ended, options.quiet)
}

/// Prints what became of a sweep.
fn close(Ended { exit, sweep }: Ended, quiet: bool) -> Exit {
    let Some(folder) = sweep else { return exit };
    if quiet {
        return exit.more_severe(print(&format!("{}\n", folder.display())));
    }
    exit.more_severe(match report::sweep_end(&folder, terminal_width()) {
        Ok(text) => print(&text),
        Err(e) => {
            print_error(&e, e.hint());
            Exit::Failed
        }
    })
}

/// The folder that a spec is in.
fn folder_of(path: &Path) -> PathBuf {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned())
}

/// As [`refuse`]; a word that is no file may have been meant as a command.
fn refuse_spec(path: &Path, failure: &spec::Failure) -> Exit {
    refuse(failure);
    let word = path.to_string_lossy();
    if let Some(command) = meant_command(&word).filter(|_| !path.exists()) {
        print_stderr(&format!("  = hint: `{word}` was read as a spec; did you mean `runner {command}`?\n"));
    }
    Exit::Refused
}

/// Columns of the terminal, or of a page where there is none.
pub fn terminal_width() -> u16 {
    terminal_size::terminal_size_of(std::io::stdout()).map_or(120, |(width, _)| width.0)
}
