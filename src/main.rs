//! The edge: parse, run, print, exit code.

use std::time::Instant;

fn main() -> runner::cli::Exit {
    runner::cli::main(std::env::args_os(), Instant::now())
}
