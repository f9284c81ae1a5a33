//! Failures of the system (threads, folders, disks, readers), and invalid rows found during a run.

use std::{
    fs::{self, File},
    path::Path,
    process::{Child, Command},
    time::{Duration, SystemTime},
};

use super::{
    super::{
        process::{Ended, Folder, RUNNER, Sandbox, tensors},
        run::LINREG,
    },
    numbers, quiet, wait_for_lines, wait_for_lines_of,
};

/// The address space is limited so that the program and its data fit, but not the stacks of many threads.
/// Stacks are large, so that when one no longer fits there is still room for everything else a thread needs
/// at its start.
#[test]
fn threads_that_cannot_be_started_leave_no_folder() {
    let place = Sandbox::new(LINREG);
    let limited = |more: &str| {
        let line = format!(
            "ulimit -v 400000; export MALLOC_ARENA_MAX=1 RUST_MIN_STACK=40000000; \
             exec {RUNNER} spec.toml devices.engine=team --threads 200 --runs-dir r {more}"
        );
        let command = Command::new("sh").args(["-c", &line]).current_dir(place.path()).output();
        Ended::from_output(command.unwrap())
    };
    let one = limited("").ended_by(2);
    assert!(one.stderr.contains("\nerror: `cpu` cannot start a thread: "), "{one:?}");
    assert!(!place.path().join("r").exists());
    limited("seed=1,2").ended_by(1);
    let folder = Folder::within(&place.path().join("r")).unwrap();
    assert_eq!(folder.files(), ["sweep.csv", "sweep.toml"]);
    assert_eq!(folder.table("sweep.csv").column("status"), ["failed", "failed"]);
}

#[test]
fn a_runs_folder_that_cannot_be_made() {
    let place = Sandbox::new(LINREG);
    fs::write(place.path().join("file"), "").unwrap();
    let ended = place.runner(&["spec.toml", "--runs-dir", "file/runs"]);
    assert_eq!(ended.code, Some(1));
    assert_eq!(
        ended.stderr,
        "error: cannot make the folder `file/runs/spec`: not a directory\n  \
         = hint: a file stands where a folder is needed: move it, or choose another folder with `--runs-dir DIR`\n"
    );
}

/// A file size limit simulates a full disk.
#[test]
fn a_full_disk_ends_the_run_on_a_whole_line() {
    let place = Sandbox::new(LINREG);
    for policy in ["logging.policy=immediate", "logging.policy=buffered"] {
        let (command, runs) = place.prepared(&["trainer.max_epochs=1000000000", policy]);
        let words: Vec<String> =
            command.get_args().map(|word| format!("'{}'", word.to_str().unwrap())).collect();
        let script = format!("ulimit -f 40; exec {RUNNER} {}", words.join(" "));
        let mut shell = Command::new("sh");
        let ended =
            Ended::from_output(shell.args(["-c", &script]).current_dir(place.path()).output().unwrap());
        assert_eq!(ended.code, Some(1), "{ended:?}");
        let folder = Folder::within(&runs).unwrap();
        let path = folder.0.join("metrics.csv");
        let words = format!("error: cannot write `{}`: file too large\n", path.display());
        assert!(ended.stderr.contains(&words), "{}", ended.stderr);
        let train = numbers(&folder.metrics().only("split", "train"), "step");
        assert!(train.len() > 100 && train.iter().copied().eq(1..=train.len()));
        // The summary must not count a step whose row is missing.
        let last = |column: &str| folder.metrics().column(column).last().unwrap().to_string();
        let cells = ["status", "steps", "epochs", "final_train_loss", "steps_per_s", "samples_per_s"];
        let expected = ["failed", &last("step"), &last("epoch"), "", "", ""];
        assert_eq!(cells.map(|cell| folder.summary(cell)), expected);
        // It has the last validation whose row is there.
        let validations = folder.metrics().only("split", "validation");
        assert_eq!(folder.summary("final_validation_loss"), *validations.column("loss").last().unwrap());
        let errors = ended.stderr.lines().filter(|line| line.starts_with("error"));
        assert_eq!(errors.count(), 1, "{}", ended.stderr);
        assert!(
            ended.stdout.contains(&format!("  reason           {}\n", &words[7..words.len() - 1])),
            "{}",
            ended.stdout
        );
        assert!(!folder.files().iter().any(|name| name.ends_with(".tmp")), "{:?}", folder.files());
    }
}

/// The system keeps writing to deleted files without an error. The run notices at its next rows, and names
/// one file.
#[test]
fn a_removed_folder_ends_the_run_with_one_error() {
    let place = Sandbox::new(LINREG);
    let (command, runs) = place.prepared(&["trainer.max_epochs=1000000000"]);
    let child = quiet(command);
    let folder = wait_for_lines(&runs, 20);
    fs::remove_dir_all(&runs).unwrap();
    let ended = Ended::from_output(child.wait_with_output().unwrap()).ended_by(1);
    let errors: Vec<&str> = ended.stderr.lines().filter(|line| line.starts_with("error")).collect();
    // Any of the files may be the next one written, and so the one named.
    let of = |file: &str| {
        format!("error: cannot write `{}`: no such file or directory", folder.0.join(file).display())
    };
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(["metrics.csv", "run.log"].iter().any(|file| errors[0] == of(file)), "{errors:?}");
    assert!(!runs.exists());
}

/// Only the trial whose folder is gone fails: the sweep goes on.
#[test]
fn a_trial_whose_folder_is_removed_does_not_end_the_sweep() {
    let place = Sandbox::new(LINREG);
    let (command, runs) = place.prepared(&["trainer.max_epochs=1000000000,1"]);
    let child = quiet(command);
    let sweep = wait_for_lines_of("000-max_epochs=1000000000/metrics.csv", &runs, 20);
    fs::remove_dir_all(sweep.0.join("000-max_epochs=1000000000")).unwrap();
    Ended::from_output(child.wait_with_output().unwrap()).ended_by(1);
    assert_eq!(sweep.table("sweep.csv").column("status"), ["failed", "finished"]);
}

/// Closed output pipes do not disturb the run or its end.
#[test]
fn output_that_nobody_reads_is_no_error() {
    let place = Sandbox::new(LINREG);
    let hang_up = |arguments: &[&str]| {
        let mut child = quiet(place.command(arguments));
        drop((child.stdout.take(), child.stderr.take()));
        child.wait().unwrap().code()
    };
    assert_eq!(hang_up(&["schema"]), Some(0));
    assert_eq!(hang_up(&["--help"]), Some(0));
    assert_eq!(hang_up(&["check", "spec.toml"]), Some(0));
    assert_eq!(hang_up(&["spec.toml", "--runs-dir", "unread"]), Some(0));
    assert_eq!(Folder::within(&place.path().join("unread")).unwrap().summary("status"), "finished");
    assert_eq!(hang_up(&["spec.toml", "optimizer.sgd.lr=1e10"]), Some(1));
    assert_eq!(hang_up(&["spec.toml", "optimizer.sgd.lr=-1"]), Some(2));
    assert_eq!(hang_up(&["compare", "nothing"]), Some(2));
}

#[test]
fn what_is_wrong_beforehand_leaves_no_folder() {
    let place = Sandbox::new(LINREG);
    let missing = ["spec.toml", "devices.num_gpus=1", "devices.on_missing=error"];
    let cases: [(&[&str], i32); 7] = [
        (&["nothing.toml"], 2),
        (&["spec.toml", "--bogus"], 2),
        (&["spec.toml", "optimizer.sgd.lr=-1"], 2),
        (&["spec.toml", "sweep.zip=1"], 2),
        (&["spec.toml", "model.init={file = \"nothing\"}"], 2),
        (&missing, 3),
        (&["check", missing[0], missing[1], missing[2]], 3),
    ];
    for (arguments, code) in cases {
        let ended = place.runner(arguments);
        assert_eq!(ended.code, Some(code), "{arguments:?}: {ended:?}");
        assert!(ended.stderr.starts_with("error: "), "{ended:?}");
    }
    let names: Vec<_> = fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["spec.toml"]);
}

/// An invalid row found while training: earlier results are kept, with the parameters.
#[test]
fn a_fault_while_streaming_keeps_the_rows_before_it() {
    const FEATURES: usize = 3000;
    let mut bad = vec![0.5f32; 1500 * FEATURES];
    bad[1400 * FEATURES + 7] = f32::NAN;
    let place = Sandbox::new(
        "[data]\nbatch_size = 100\nshuffle = false\nplacement = \"streamed\"\n[data.npy]\n\
         features = \"x.npy\"\nlabels = \"y.npy\"\nvalidation_fraction = 0.0\n[model]\n\
         layers = [{ linear = { out_features = 1 } }]\nloss = \"mse\"\n[optimizer.sgd]\nlr = 1e-6\n",
    );
    write_npy(&place.path().join("x.npy"), "(1500, 3000)", &bad);
    write_npy(&place.path().join("y.npy"), "(1500,)", &bad[..1500]);
    let team = ["devices.engine=team", "--threads=3"];
    // Three ways to get rows: one thread that reads them itself, a team that does, and a device that gets
    // chunks of eight megabytes (six batches). Each must train on all rows before the bad one, and on no
    // others.
    let steps = 14;
    let ways: [&[&str]; 3] = [&["--threads=1"], &team, &["devices.num_gpus=1", "--virtual-gpus=1"]];
    for policy in ["immediate", "buffered", "per_epoch"] {
        for way in ways {
            let policy = format!("logging.policy={policy}");
            let run = |more: &[&str]| place.run(&[&[policy.as_str()], way, more].concat());
            let folder = run(&[]).ended_by(1);
            assert_eq!(folder.summary("status"), "failed");
            let words = "cannot read the next rows: row 1400, feature 7 (both counted from 0) of";
            assert!(folder.text("run.log").contains(words), "{}", folder.text("run.log"));
            let rows = folder.metrics();
            if policy.ends_with("per_epoch") {
                let (steps, count) = (steps.to_string(), (100 * steps).to_string());
                assert_eq!((rows.column("step"), rows.column("rows")), (vec![&*steps], vec![&*count]));
            } else {
                assert!(numbers(&rows, "step").into_iter().eq(1..=steps), "{policy} {way:?}: {rows:?}");
            }
            let diverged = run(&["optimizer.sgd.lr=1e20"]).ended_by(1);
            assert_eq!(diverged.summary("status"), "diverged", "{policy} {way:?}");
            let whole = run(&[&format!("trainer.max_steps={steps}")]).ended_by(0);
            let [trained, wanted] = [folder, whole].map(|folder| tensors(&folder.model()));
            assert!(trained == wanted, "{policy} {way:?}");
        }
    }
}

/// Sets an old modification time, so that later writes are noticed.
pub fn write_npy(path: &Path, shape: &str, numbers: &[f32]) {
    let mut header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}");
    header.push_str(&" ".repeat(63 - (10 + header.len()) % 64));
    header.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(numbers.iter().flat_map(|x| x.to_le_bytes()));
    fs::write(path, bytes).unwrap();
    let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    File::options().write(true).open(path).unwrap().set_modified(long_ago).unwrap();
}

#[test]
fn runs_of_one_second_have_folders_of_their_own() {
    let place = Sandbox::new(LINREG);
    let runs = place.path().join("runs");
    let children: Vec<Child> = (0..6)
        .map(|_| {
            let mut command = place.command(&["spec.toml", "--threads", "1", "--runs-dir"]);
            command.arg(&runs);
            quiet(command)
        })
        .collect();
    for child in children {
        assert_eq!(child.wait_with_output().unwrap().status.code(), Some(0));
    }
    let folders: Vec<Folder> =
        fs::read_dir(runs.join("spec")).unwrap().map(|entry| Folder(entry.unwrap().path())).collect();
    assert_eq!(folders.len(), 6);
    assert!(folders.iter().all(|folder| folder.numbers() == folders[0].numbers()));
}
