//! Entry point: passes the arguments to the command line and exits with its code.

use std::time::Instant;

fn main() -> runner::cli::Exit {
    runner::cli::main(std::env::args_os(), Instant::now())
}
