//! The command line: arguments, commands and their output. One file per subcommand.

mod advise;
mod args;
mod at_work;
mod check;
mod clean;
mod cluster;
mod column_names;
mod column_use;
mod compare;
mod conditions;
mod describe;
mod describe_lab;
mod devices;
mod disk;
mod draft;
mod draft_parts;
mod draft_targets;
mod drawn_run;
mod export;
mod forecast;
mod forecast_groups;
mod forecast_machines;
mod forecast_table;
mod gpu_measure;
mod gpus;
mod hosts;
mod http;
mod keys;
mod launch;
mod link;
mod machine;
mod machine_export;
mod machine_file;
mod missing_cells;
mod page;
mod parity;
mod plot;
mod png;
mod predict;
mod rate_cache;
mod rates;
mod refit;
mod report;
mod resume;
mod run;
mod runs;
mod scale;
mod serve;
mod telling;
mod templates;
mod terminal;
mod watch;

pub use crate::run::{Exit, print_stderr};

use std::{ffi::OsString, io::IsTerminal, time::Instant};

use crate::host::output_was_closed;
use args::{Command, Parsed, RefitOptions, StartOptions};

/// Runs the program; `begun` is when the process started.
pub fn main(arguments: impl IntoIterator<Item = OsString>, begun: Instant) -> Exit {
    if output_was_closed() {
        let hint = "`> /dev/null` throws away what is printed";
        return Exit::failed("cannot write to standard output: it is closed", Some(hint));
    }
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    execute(&arguments, begun).unwrap_or_else(|exit| exit)
}

/// Runs a command. Its error, the code of the exit, was printed.
fn execute(arguments: &[OsString], begun: Instant) -> Result<Exit, Exit> {
    let Parsed { command, color } = args::parse(arguments)?;
    color.write_global();
    match command {
        Command::Run(options) | Command::Refit(RefitOptions { start: options, .. }) if draws(&options) => {
            drawn_run::run(arguments)
        }
        Command::Run(options) => run::run(&options, arguments, begun),
        Command::Refit(options) => refit::refit(&options, begun),
        // Of processes that `mpirun` started together, only rank 0 prints.
        Command::Check(_) | Command::Parity(_) if hosts::is_other_rank() => Ok(Exit::Done),
        Command::Check(options) => check::check(&options),
        Command::Parity(options) => parity::parity(&options),
        Command::Devices(options) => devices::devices(&options),
        Command::Compare(options) => compare::compare(&options),
        Command::List(options) => runs::list(&options),
        Command::Latest { path } => runs::latest(&path),
        Command::Show { run, json } => runs::show(&run, json),
        Command::Diff(options) => runs::diff(&options),
        Command::Tag { run, words } => clean::tag(&run, &words),
        Command::Clean(options) => clean::clean(&options),
        Command::Plot(options) => plot::plot(&options),
        Command::Report(options) => report::report(&options),
        Command::Watch(options) => watch::watch(&options),
        Command::Status(options) => cluster::status(&options),
        Command::Cancel { sweep } => cluster::cancel(&sweep),
        Command::Serve(options) => serve::serve(&options),
        Command::Predict(options) => predict::predict(&options),
        Command::Evaluate(options) => predict::evaluate(&options),
        Command::Export(options) => export::export(&options),
        Command::Schema => templates::schema(),
        Command::New(options) => templates::new(&options),
        Command::Completions { shell } => Ok(args::completions(shell)),
    }
}

/// Whether curves are drawn while it runs.
fn draws(options: &StartOptions) -> bool {
    let on_terminal = std::io::stdout().is_terminal();
    if options.plot && !on_terminal {
        print_stderr("`--plot` draws nothing: standard output is no terminal\n");
    }
    options.plot && on_terminal
}
