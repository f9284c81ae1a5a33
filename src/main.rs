//! The edge: parse, run, print, exit code.

fn main() {}
