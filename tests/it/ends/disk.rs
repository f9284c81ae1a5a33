//! A disk on which any single call fails, or that loses power: what a run leaves behind is never wrong.
//!
//! A preloaded library in C (`tests/disk/disk.c`) stands between the program and the disk. Without a C
//! compiler these tests are skipped.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
};

use safetensors::SafeTensors;

use super::{super::resume::copy, power::files_below};
use crate::process::{Ended, Folder, Sandbox, Table};

const SPEC: &str = r#"
name = "short"
data.csv = { path = "rows.csv", target = "y" }
data.split = { validation = 0.25, test = 0.0834 }
model.layers = [{ linear = { out_features = 2 } }]
model.loss = "cross_entropy"
optimizer.adam.lr = 0.1
trainer.max_epochs = 2
checkpoint = { every_epochs = 1, keep_last = 2 }
logging = { policy = "immediate", metrics = ["f1"] }
"#;

/// 64 rows to train on, 24 to validate on, 8 for a test.
pub fn sandbox() -> Sandbox {
    let rows: String =
        (0..96).map(|i| format!("{}.5,{},{}\n", i % 13, i % 7, u8::from(i % 13 > 6))).collect();
    let sandbox = Sandbox::new(SPEC);
    fs::write(sandbox.path().join("rows.csv"), format!("a,b,y\n{rows}")).unwrap();
    sandbox
}

const CALLS: [&str; 10] =
    ["write", "short", "fsync", "close", "rename", "mkdir", "open", "unlink", "ftruncate", "copy"];

/// ENOSPC for writes, EIO for the others.
fn error_of(call: &str) -> &'static str {
    if call == "write" { "28" } else { "5" }
}

/// The library, or `None` where there is no C compiler.
pub fn library(sandbox: &Sandbox) -> Option<PathBuf> {
    let library = sandbox.path().join("disk.so");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/disk/disk.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source).arg("-ldl");
    match compiler.output() {
        Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr)),
        Err(_) => {
            eprintln!("left out: there is no C compiler `cc`");
            return None;
        }
    }
    Some(library)
}

/// The command of a run on the library's disk, and its runs folder.
pub fn on_disk(sandbox: &Sandbox, library: &Path, overrides: &[&str]) -> (Command, PathBuf) {
    let (mut command, runs) = sandbox.prepared(overrides);
    command.env("LD_PRELOAD", library).env("DISK_PATH", &runs);
    (command, runs)
}

/// The rows of `metrics.csv` without their times.
fn rows(folder: &Path) -> Vec<String> {
    let text = fs::read_to_string(folder.join("metrics.csv")).unwrap_or_default();
    text.lines().map(|line| line.rsplit_once(',').map_or(line, |(row, _)| row).to_owned()).collect()
}

/// Models, by their paths below a run's folder.
fn models(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let names = ["model", "best", "checkpoints/step-00000002", "checkpoints/step-00000004"];
    let names = names.map(|name| format!("{name}.safetensors"));
    let read = |name: String| fs::read(folder.join(&name)).ok().map(|bytes| (name, bytes));
    names.into_iter().filter_map(read).collect()
}

/// The status in a run's summary; empty if there is none. A torn line is ignored, as `compare` does.
fn status(folder: &Path) -> String {
    let text = fs::read_to_string(folder.join("summary.csv")).unwrap_or_default();
    let table = Table::read(text.rsplit_once('\n').unwrap_or_default().0);
    if table.rows.is_empty() { String::new() } else { table.cell(0, "status").to_owned() }
}

/// Folders of runs below, a sweep's trials among them.
pub fn runs_below(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let folders: Vec<_> = entries.filter(|path| path.is_dir()).collect();
    let is_run = |path: &Path| path.join("run.log").exists() || path.join("spec.toml").exists();
    let (mut runs, others): (Vec<_>, Vec<_>) = folders.into_iter().partition(|path| is_run(path));
    runs.extend(others.iter().flat_map(|folder| runs_below(folder)));
    runs.sort();
    runs
}

/// What is wrong with the folders left behind by a process that ended with this code.
fn lies(runs: &Path, code: Option<i32>, whole: &[PathBuf]) -> Vec<String> {
    let mut lies = Vec::new();
    if !matches!(code, Some(0 | 1)) {
        lies.push(format!("exit code {code:?}"));
    }
    let left = runs_below(runs);
    if code == Some(0) && left.len() != whole.len() {
        lies.push(format!("exit code 0 with {} of {} folders", left.len(), whole.len()));
    }
    for folder in &left {
        // Folders of a sweep begin with the number of their trial.
        let name = folder.file_name().unwrap_or_default();
        let Some(whole) = whole.iter().find(|whole| whole.file_name() == Some(name)).or(whole.first()) else {
            continue;
        };
        let [own, all] = [folder, whole].map(|folder| fs::read(folder.join("rows.csv")).ok());
        if own.is_some() && own != all {
            lies.push(format!("{}: rows.csv is torn", folder.display()));
        }
        let matrix = fs::read_to_string(folder.join("confusion.csv")).ok();
        if matrix.as_ref().is_some_and(|text| text.matches('\n').count() != 3) {
            lies.push(format!("{}: confusion.csv is torn", folder.display()));
        }
        if code == Some(0) && (own.is_none() || matrix.is_none()) {
            lies.push(format!("{}: exit code 0 without rows.csv or confusion.csv", folder.display()));
        }
        let events =
            |run: &Path| fs::metadata(run.join("events.out.tfevents.0000")).ok().map(|file| file.len());
        if code == Some(0) && events(folder) != events(whole) {
            lies.push(format!("{}: exit code 0 without all events", folder.display()));
        }
        let trace = |run: &Path| fs::read_to_string(run.join("trace.json")).ok();
        let is_json = |text: &String| serde_json::from_str::<serde_json::Value>(text).is_ok();
        let own = trace(folder);
        if own.as_ref().is_some_and(|text| !is_json(text))
            || code == Some(0) && own.is_none() && trace(whole).is_some()
        {
            lies.push(format!("{}: trace.json is torn, or missing with exit code 0", folder.display()));
        }
        let says_finished = status(folder) == "finished";
        let at = name.to_string_lossy();
        if (says_finished || code == Some(0)) && rows(folder) != rows(whole) {
            lies.push(format!("{at}: finished, with cut rows"));
        }
        if code == Some(0) && !says_finished {
            lies.push(format!("{at}: exit code 0, and its summary does not say that it finished"));
        }
        let (own, all) = (models(folder), models(whole));
        // A run that failed has the weights of its last step.
        let is_torn = |(name, bytes): (&String, &Vec<u8>)| {
            if code == Some(0) { all[name] != *bytes } else { SafeTensors::deserialize(bytes).is_err() }
        };
        if own.iter().any(is_torn) {
            lies.push(format!("{at}: a model is torn"));
        }
        if code == Some(0) && own.len() < all.len() {
            lies.push(format!("{at}: exit code 0 without all models"));
        }
    }
    lies.extend(sweep_lies(runs, code));
    lies
}

/// Trials that the sweep's table calls finished although their own summaries do not. With exit code 0, also
/// every trial that is not finished.
fn sweep_lies(runs: &Path, code: Option<i32>) -> Vec<String> {
    let folders = fs::read_dir(runs.join("short")).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut lies = Vec::new();
    for folder in folders {
        let Ok(text) = fs::read_to_string(folder.join("sweep.csv")) else { continue };
        let table = Table::read(text.rsplit_once('\n').unwrap_or_default().0);
        for row in 0..table.rows.len() {
            let says_finished = table.cell(row, "status") == "finished";
            let has_finished = status(&folder.join(table.cell(row, "folder"))) == "finished";
            if says_finished && !has_finished || code == Some(0) && !says_finished {
                lies.push(format!("sweep.csv: trial {row} is {}", table.cell(row, "status")));
            }
        }
    }
    lies
}

/// Makes each call of each kind fail once, and checks what is left.
fn every_call(overrides: &[&str]) {
    let sandbox = sandbox();
    let Some(library) = library(&sandbox) else { return };
    let (mut command, whole) = on_disk(&sandbox, &library, overrides);
    assert_eq!(command.output().unwrap().status.code(), Some(0));
    let whole = runs_below(&whole);
    each_failing(sandbox.path(), &|fail, _| {
        let (mut command, runs) = on_disk(&sandbox, &library, overrides);
        let output = fail(&mut command).stdin(Stdio::null()).output().unwrap();
        let told = lies(&runs, output.status.code(), &whole);
        fs::remove_dir_all(&runs).unwrap_or_default();
        told
    });
}

/// Adds the failing call to a command.
type Fail<'a> = &'a dyn Fn(&mut Command) -> &mut Command;

/// Makes each call of each kind fail once, until there are no more. `look` runs the command, in a sandbox of
/// its own if it needs one, and returns what is wrong.
fn each_failing(marks: &Path, look: &(dyn Fn(Fail<'_>, &str) -> Vec<String> + Sync)) {
    one_failing_in(1, marks, look);
}

/// As [`each_failing`], of one call in `step`.
fn one_failing_in(step: usize, marks: &Path, look: &(dyn Fn(Fail<'_>, &str) -> Vec<String> + Sync)) {
    let of_call = |call: &str| {
        let mark = marks.join(format!("mark-{call}"));
        let mut lies_told = Vec::new();
        for n in (1..).step_by(step) {
            let told = look(
                &|command| {
                    command.env("DISK_CALL", call).env("DISK_N", n.to_string());
                    command.env("DISK_ERROR", error_of(call)).env("DISK_MARK", &mark)
                },
                &format!("{call}-{n}"),
            );
            lies_told.extend(told.into_iter().map(|lie| format!("{call} {n}: {lie}")));
            if fs::remove_file(&mark).is_err() {
                assert!(n > 1 || !["write", "open"].contains(&call), "there was no {call}");
                break;
            }
        }
        lies_told
    };
    let all: Vec<String> = thread::scope(|scope| {
        let threads = CALLS.map(|call| scope.spawn(move || of_call(call)));
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert!(all.is_empty(), "{}", all.join("\n"));
}

#[test]
fn no_failed_call_of_a_run_is_hidden() {
    every_call(&["logging.tensorboard=true", "logging.trace=true", "logging.system_every_s=60"]);
}

#[test]
fn no_failed_call_of_a_sweep_is_hidden() {
    every_call(&["optimizer.adam.lr=0.1,0.2", "~checkpoint"]);
}

#[test]
fn no_failed_call_of_trials_side_by_side_is_hidden() {
    every_call(&["optimizer.adam.lr=0.1,0.2", "~checkpoint", "--jobs=2", "-q"]);
}

/// A run that is resumed with more epochs: whatever fails, a second try ends like a run that had them from
/// the start.
#[test]
fn no_failed_call_of_a_resume_is_hidden() {
    let sandbox = sandbox();
    let Some(library) = library(&sandbox) else { return };
    let longer = ["trainer.max_epochs=4", "checkpoint.keep_last=1"];
    let whole = sandbox.run(&longer).ended_by(0).0;
    let part = sandbox.run(&["checkpoint.keep_last=1"]).ended_by(0).0;
    each_failing(sandbox.path(), &|fail, at| {
        let runs = sandbox.path().join(format!("resumed-{at}"));
        let run = runs.join("run");
        copy(&part, &run);
        let mut command = sandbox.command(&["run", "-q", "--resume", run.to_str().unwrap(), longer[0]]);
        command.env("LD_PRELOAD", &library).env("DISK_PATH", &runs);
        let code = fail(&mut command).stdin(Stdio::null()).output().unwrap().status.code();
        let mut told = Vec::new();
        // An older checkpoint that cannot be removed costs space, no more.
        let has_models = || {
            let own = models(&run);
            models(&whole).iter().all(|(name, bytes)| own.get(name) == Some(bytes))
        };
        let is_whole = || rows(&run) == rows(&whole) && has_models() && status(&run) == "finished";
        if code == Some(0) && !is_whole() {
            told.push("exit code 0, and another result".to_owned());
        }
        if code != Some(0)
            && status(&run) == "finished"
            && rows(&run) != rows(&whole)
            && rows(&run) != rows(&part)
        {
            told.push("finished, with cut rows".to_owned());
        }
        let again = sandbox.runner(&["run", "-q", "--resume", run.to_str().unwrap(), longer[0]]);
        if code != Some(0) && !is_whole() {
            told.push(format!("another result after a second try: {}", again.stderr));
        }
        fs::remove_dir_all(&runs).unwrap();
        told
    });
}

/// What other commands write is complete or absent, and the exit code says which.
#[test]
fn no_failed_call_of_other_commands_is_hidden() {
    let sandbox = sandbox();
    let Some(library) = library(&sandbox) else { return };
    let run = sandbox.run(&[]).ended_by(0).0.display().to_string();
    let commands: [&[&str]; 3] =
        [&["predict", &run, "rows.csv", "-o"], &["export", &run, "--onnx"], &["report", &run, "-o"]];
    for (place, command) in commands.into_iter().enumerate() {
        let to = |name: &str| {
            let folder = sandbox.path().join(format!("to-{place}-{name}"));
            fs::create_dir(&folder).unwrap();
            (folder.clone(), folder.join("out"))
        };
        let (_, file) = to("whole");
        sandbox.runner(&[command, &[file.to_str().unwrap()]].concat()).ended_by(0);
        let whole = fs::read(&file).unwrap();
        each_failing(sandbox.path(), &|fail, at| {
            let (folder, file) = to(at);
            let mut runner = sandbox.command(&[command, &[file.to_str().unwrap()]].concat());
            runner.env("LD_PRELOAD", &library).env("DISK_PATH", &folder);
            let code = fail(&mut runner).stdin(Stdio::null()).output().unwrap().status.code();
            let written = fs::read(&file).ok();
            // A page has the time at which it was made.
            let is_whole =
                |found: &Vec<u8>| *found == whole || command[0] == "report" && found.len() == whole.len();
            let is_lie = match code {
                Some(0) => !written.as_ref().is_some_and(is_whole),
                Some(1) => written.is_some(),
                _ => true,
            };
            let left = fs::read_dir(&folder).unwrap().count();
            is_lie.then(|| format!("{command:?}: exit code {code:?}, {left} files")).into_iter().collect()
        });
    }
}

/// An export to MLflow that failed takes a second try, which gives what an undisturbed one does.
#[test]
fn no_failed_call_of_an_export_to_mlflow_is_hidden() {
    let sandbox = sandbox();
    let Some(library) = library(&sandbox) else { return };
    let run = sandbox.run(&[]).ended_by(0).0.display().to_string();
    let export = |to: &Path| sandbox.command(&["export", &run, "--mlflow", to.to_str().unwrap()]);
    // Files name the store's own path.
    let files = |store: &Path| -> BTreeMap<PathBuf, String> {
        let below = |(path, bytes): (PathBuf, Vec<u8>)| {
            let text = String::from_utf8_lossy(&bytes).replace(store.to_str().unwrap(), "STORE");
            (path.strip_prefix(store).unwrap().to_owned(), text)
        };
        files_below(store).into_iter().map(below).collect()
    };
    let whole = sandbox.path().join("whole");
    assert_eq!(export(&whole).output().unwrap().status.code(), Some(0));
    let whole = files(&whole);
    // It writes a small file for each key: all alike.
    one_failing_in(7, sandbox.path(), &|fail, at| {
        let store = sandbox.path().join(format!("store-{at}"));
        let mut command = export(&store);
        command.env("LD_PRELOAD", &library).env("DISK_PATH", &store);
        let code = fail(&mut command).stdin(Stdio::null()).output().unwrap().status.code();
        if code != Some(0) {
            export(&store).output().unwrap();
        }
        let is_lie = !matches!(code, Some(0 | 1)) || files(&store) != whole;
        is_lie.then(|| format!("exit code {code:?}, and another store in the end")).into_iter().collect()
    });
}

/// A starter that could not be written whole does not block the next try.
#[test]
fn a_starter_is_written_whole_or_not_at_all() {
    let sandbox = Sandbox::new("");
    let Some(library) = library(&sandbox) else { return };
    let mut command = sandbox.command(&["new", "linreg", "starter.toml"]);
    command.env("LD_PRELOAD", library).env("DISK_PATH", sandbox.path().join("starter"));
    command.env("DISK_CALL", "write").env("DISK_N", "1").env("DISK_ERROR", "28");
    Ended::from_output(command.output().unwrap()).ended_by(1);
    assert_eq!(sandbox.runner(&["new", "linreg", "starter.toml"]).code, Some(0));
}

/// A clock that was never set stands before 1970: names and times are what they are.
#[test]
fn a_clock_before_1970_ends_no_run() {
    let sandbox = sandbox();
    let Some(library) = library(&sandbox) else { return };
    for overrides in [&[][..], &["optimizer.adam.lr=0.1,0.2"]] {
        let (mut command, runs) = on_disk(&sandbox, &library, overrides);
        let ended = Ended::from_output(command.env("DISK_CLOCK", "-86400").output().unwrap());
        assert_eq!((ended.code, ended.stderr.contains("panicked")), (Some(0), false), "{ended:?}");
        let folder = Folder::within(&runs).unwrap();
        assert!(folder.0.file_name().unwrap().to_string_lossy().starts_with("19691231T000000Z-"));
        let runs = runs_below(&runs);
        assert!(runs.iter().all(|run| status(run) == "finished"), "{runs:?}");
    }
}
