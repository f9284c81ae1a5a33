//! Kills: files under final names are complete, and growing files have whole lines, except perhaps the last.

use std::{
    fs,
    os::unix::process::ExitStatusExt,
    thread,
    time::{Duration, Instant},
};

use super::{
    super::{
        process::{Folder, Sandbox, Table, tensors},
        run::LINREG,
    },
    LIMIT, numbers, quiet, wait_for_lines,
};

/// After a kill, files under final names are complete, and growing files have whole lines, except perhaps the
/// last.
#[test]
fn a_kill_leaves_nothing_half_written() {
    let place = Sandbox::new(LINREG);
    let mut killed = 0;
    for round in 0..40u64 {
        // Kill times are spread from the first file to the end: a run takes only a few milliseconds. Some do not end by
        // themselves, however late the kill comes.
        let epochs = if round % 8 == 0 { "trainer.max_epochs=100000000" } else { "trainer.max_epochs=60" };
        let (command, runs) = place.prepared(&[epochs, "logging.policy=immediate"]);
        let mut child = quiet(command);
        let begun = Instant::now();
        while !runs.exists() && begun.elapsed() < LIMIT {
            thread::yield_now();
        }
        let seen = Instant::now();
        while seen.elapsed() < Duration::from_micros(round * 400) {
            thread::yield_now();
        }
        child.kill().unwrap();
        killed += u32::from(child.wait().unwrap().signal().is_some());
        let Some(folder) = Folder::within(&runs) else { continue };
        for name in folder.files() {
            check_whole(&folder, &name);
        }
    }
    assert!(killed > 0);
}

/// Rows are flushed within an epoch, too: a kill loses the last seconds of an epoch, not all of it.
#[test]
fn a_kill_leaves_the_rows_of_an_epoch_that_is_under_way() {
    let place = Sandbox::new(LINREG);
    let long = ["data.synthetic_regression.train_rows=3000000", "data.batch_size=1", "trainer.max_epochs=1"];
    let (command, runs) = place.prepared(&[long[0], long[1], long[2], "logging.flush_every_s=0.05"]);
    let mut child = quiet(command);
    let folder = wait_for_lines(&runs, 1000);
    child.kill().unwrap();
    assert!(child.wait().unwrap().signal().is_some(), "the epoch was over before the kill");
    check_whole(&folder, "metrics.csv");
    assert!(fs::read_to_string(folder.0.join("metrics.csv")).unwrap().lines().count() >= 1000);
}

pub fn check_whole(folder: &Folder, name: &str) {
    let path = folder.0.join(name);
    match name {
        "spec.toml" | "environment.toml" => {
            let text = fs::read_to_string(path).unwrap();
            assert!(text.ends_with('\n') && toml::from_str::<toml::Table>(&text).is_ok(), "{name}: {text}");
        }
        "best.safetensors" | "model.safetensors" => assert_eq!(tensors(&fs::read(path).unwrap()).len(), 2),
        _ if name.ends_with(".csv") => {
            let text = fs::read_to_string(path).unwrap();
            let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
            if whole.is_empty() {
                return;
            }
            let table = Table::read(whole);
            if name == "metrics.csv" {
                let train = numbers(&table.only("split", "train"), "step");
                assert!(train.iter().copied().eq(1..=train.len()));
            } else if name == "norms.csv" {
                let index = numbers(&table, "index");
                // Devices are written one after the other.
                assert!(index.first().is_none_or(|first| *first == 1));
                assert!(index.windows(2).all(|two| two[1] == two[0] + 1 || two[1] == 1));
            }
        }
        "run.log" => {}
        "run.lock" => {
            let text = fs::read_to_string(path).unwrap();
            let is_whole =
                |table: toml::Table| ["heartbeat", "pid", "host"].iter().all(|key| table.contains_key(*key));
            assert!(text.is_empty() || text.parse().is_ok_and(is_whole), "{text}");
        }
        // A file that was being written still has its temporary name.
        _ => assert!(name.starts_with('.') && name.ends_with(".tmp"), "{name}"),
    }
}
