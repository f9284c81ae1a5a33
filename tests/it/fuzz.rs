//! Replays the corpus of `fuzz/`: no input may crash the program, or make it write elsewhere.

#[path = "../../fuzz/src/cases.rs"]
mod cases;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use cases::{Cases, Ended, TARGETS};

use super::process::binary;

/// A command may take two minutes and 3 GiB of address space; malloc reserves some of that for each arena.
fn run(folder: &Path, arguments: &[String]) -> Ended {
    let mut command = Command::new("timeout");
    command.args(["-s", "KILL", "120", "sh", "-c", "ulimit -v 3145728; exec \"$@\"", "sh"]);
    command.arg(binary()).args(arguments).env_remove("RUNNER_RUNS_DIR").env("MALLOC_ARENA_MAX", "2");
    command.env("RUNNER_CACHE_DIR", folder.join("cache")).stdin(Stdio::null());
    let ended = command.current_dir(folder.join("outside/cases")).output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    if matches!(ended.status.code(), Some(0..=3)) && !said.contains("panicked") {
        Ended::InOrder
    } else {
        Ended::Broken(format!("{}: {said}", ended.status))
    }
}

/// The inputs of a target, in a fixed order.
pub fn corpus(target: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let mut inputs: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    inputs.sort();
    inputs
}

fn replay(target: &str) {
    let top = tempfile::tempdir().unwrap();
    let runner = |arguments: &[String]| run(top.path(), arguments);
    let cases = Cases::new(top.path(), &runner);
    for input in corpus(target) {
        println!("{}", input.display());
        cases.run(target, &fs::read(input).unwrap(), &runner);
    }
}

#[test]
#[should_panic(expected = "wrote")]
fn a_file_that_is_written_elsewhere_is_noticed() {
    let top = tempfile::tempdir().unwrap();
    let cases = Cases::new(top.path(), &|arguments| run(top.path(), arguments));
    let writes = |_: &[String]| {
        fs::write(top.path().join("outside/x"), "x").unwrap();
        Ended::InOrder
    };
    cases.run("spec", b"", &writes);
}

macro_rules! replays {
    ($($target:ident),*) => {
        $(#[test] fn $target() { replay(stringify!($target)); })*

        #[test]
        fn every_target_is_replayed() {
            assert_eq!([$(stringify!($target)),*], TARGETS);
            let size = |target: &str| corpus(target).iter().map(|input| input.metadata().unwrap().len()).sum::<u64>();
            assert!(TARGETS.into_iter().chain(["serve"]).map(size).sum::<u64>() < 500 << 10);
        }
    };
}

replays!(spec, overrides, sweep, csv, idx, npy, parquet, safetensors, runs, checkpoint, predict, names);
