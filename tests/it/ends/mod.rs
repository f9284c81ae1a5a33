//! Abnormal ends: signals, kills, failing disks and pipes, corrupt files. Every one has its exit code, its
//! message, and leaves no partial files.

mod disk;
mod failures;
mod files;
mod kills;
mod lab;
mod memory;
mod odd;
mod signals;

use std::{
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use super::process::{Folder, Table};

/// Longer than anything here takes, even on a busy machine.
pub const LIMIT: Duration = Duration::from_secs(60);

pub fn quiet(mut command: Command) -> Child {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

pub fn send(signal: &str, child: &Child) {
    let status = Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
    assert!(status.success());
}

pub fn wait_until(child: &mut Child, mut so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !so() {
        if begun.elapsed() > LIMIT {
            child.kill().unwrap();
            panic!("waited in vain");
        }
        thread::sleep(Duration::from_millis(1));
    }
}

pub fn numbers(table: &Table, column: &str) -> Vec<usize> {
    table.column(column).iter().map(|cell| cell.parse().unwrap()).collect()
}

/// Waits until the only run below `runs` has `lines` lines in a file.
pub fn wait_for_lines_of(file: &str, runs: &Path, lines: usize) -> Folder {
    let begun = Instant::now();
    while begun.elapsed() < LIMIT {
        if let Some(folder) = Folder::within(runs)
            && let Ok(text) = std::fs::read_to_string(folder.0.join(file))
            && text.lines().count() >= lines
        {
            return folder;
        }
        thread::sleep(Duration::from_millis(1));
    }
    panic!("no {lines} lines of {file} in {}", runs.display());
}

/// The same of metrics.
pub fn wait_for_lines(runs: &Path, lines: usize) -> Folder {
    wait_for_lines_of("metrics.csv", runs, lines)
}
