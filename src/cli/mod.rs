//! The command line, and the one place where all layers meet. One file per subcommand.

mod announce;
mod args;
mod check;
mod compare;
mod describe;
mod device_group;
mod devices;
mod execute;
mod exit;
#[cfg(feature = "cuda")]
mod gpu_measure;
#[cfg(feature = "cuda")]
mod gpu_rates;
mod gpus;
mod lab;
mod machine;
mod measure;
mod parity;
mod prepare;
mod rate_cache;
mod rates;
mod run;
mod templates;
mod warnings;

pub use exit::Exit;

use std::{ffi::OsString, time::Instant};

use args::{Command, Parsed};

/// Runs the program; `begun` is when the process did.
pub fn main(arguments: impl IntoIterator<Item = OsString>, begun: Instant) -> Exit {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let Parsed { command, color } = match args::parse(&arguments) {
        Ok(parsed) => parsed,
        Err(exit) => return exit,
    };
    color.write_global();
    match command {
        Command::Run(options) => run::run(&options, &arguments, begun),
        Command::Check(options) => check::check(&options),
        Command::Parity(options) => parity::parity(&options),
        Command::Devices(options) => devices::devices(&options),
        Command::Compare(options) => compare::compare(&options),
        Command::Schema => templates::schema(),
        Command::New(options) => templates::new(&options),
        Command::Completions { shell } => args::completions(shell),
    }
}
