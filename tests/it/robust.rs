//! Ends that nobody planned: signals, kills, disks and pipes that fail, files that lie. Every one has its exit code, its
//! words, and leaves nothing half-written behind.

use std::{
    fs,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use super::{
    process::{Ended, Folder, Place, RUNNER, Table, tensors},
    run::LINREG,
};

/// Longer than anything here takes, on a busy machine, too.
const LIMIT: Duration = Duration::from_secs(60);

fn quiet(mut command: Command) -> Child {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits until the only run below `runs` has `lines` lines of metrics.
fn wait_for_lines(runs: &Path, lines: usize) -> Folder {
    let begun = Instant::now();
    while begun.elapsed() < LIMIT {
        if let Some(folder) = Folder::within(runs)
            && let Ok(text) = fs::read_to_string(folder.0.join("metrics.csv"))
            && text.lines().count() >= lines
        {
            return folder;
        }
        thread::sleep(Duration::from_millis(1));
    }
    panic!("no {lines} lines of metrics in {}", runs.display());
}

fn send(signal: &str, child: &Child) {
    let status = Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
    assert!(status.success());
}

#[test]
fn a_signal_ends_a_run_in_order() {
    let place = Place::new(LINREG);
    let cases = [
        ("-INT", 130, "SIGINT", "logging.policy=immediate", 3),
        ("-TERM", 143, "SIGTERM", "logging.policy=immediate", 500),
        ("-INT", 130, "SIGINT", "logging.policy=buffered", 40),
        ("-TERM", 143, "SIGTERM", "logging.flush_every=1001", 2),
        ("-INT", 130, "SIGINT", "logging.policy=per_epoch", 100),
        ("-TERM", 143, "SIGTERM", "logging.policy=off", 60),
    ];
    for (signal, code, name, policy, lines) in cases {
        for threads in ["1", "2"] {
            let arguments = ["trainer.max_epochs=1000000000", policy, "--threads", threads];
            let (command, runs) = place.prepared(&arguments);
            let child = quiet(command);
            let folder = wait_for_lines(&runs, lines);
            send(signal, &child);
            let ended = Ended::of(child.wait_with_output().unwrap());
            assert_eq!(ended.code, Some(code), "{policy}: {ended:?}");
            assert_eq!(folder.summary("status"), "interrupted");
            assert!(ended.stdout.contains(name), "{ended:?}");
            assert_eq!(tensors(&folder.model()).len(), 2);
            every_row_is_there(&folder, policy);
        }
    }
}

/// Up to the last step that the summary counts; five steps of 20 rows and one of 3 are an epoch.
fn every_row_is_there(folder: &Folder, policy: &str) {
    let steps: usize = folder.summary("steps").parse().unwrap();
    let train: Vec<usize> = numbers(&folder.metrics().only("split", "train"), "step");
    let validation = numbers(&folder.metrics().only("split", "validation"), "step");
    match policy {
        "logging.policy=off" => assert_eq!(train.len(), 0),
        "logging.policy=per_epoch" => {
            let ends = (6..=steps).step_by(6).chain(Some(steps).filter(|s| !s.is_multiple_of(6)));
            assert!(train.iter().copied().eq(ends), "{policy}: {train:?}");
        }
        _ => assert!(train.iter().copied().eq(1..=steps), "{policy}: {train:?}"),
    }
    // The last epoch may be whole, and the signal have come before its validation.
    let whole = validation.len() * 6;
    assert!(validation.iter().copied().eq((6..=whole).step_by(6)));
    assert!(whole <= steps && steps - whole <= 6, "{policy}: {steps} steps, {whole} validated");
}

fn numbers(table: &Table, column: &str) -> Vec<usize> {
    table.column(column).iter().map(|cell| cell.parse().unwrap()).collect()
}

#[test]
fn a_second_signal_does_not_wait() {
    let place = Place::new(LINREG);
    let (command, runs) = place.prepared(&["trainer.max_epochs=1000000000"]);
    let child = quiet(command);
    wait_for_lines(&runs, 2);
    send("-INT", &child);
    // It may have ended by the first one already.
    let _ = Command::new("kill").args(["-INT", &child.id().to_string()]).stderr(Stdio::null()).status();
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(130));
}

/// The run cannot end by itself after the first signal: nobody reads what it has to say.
#[test]
fn a_second_signal_of_another_kind_does_not_wait() {
    let place = Place::new(LINREG);
    let (mut command, runs) = place.prepared(&["trainer.max_epochs=1000000000"]);
    let (reader, writer) = std::io::pipe().unwrap();
    let mut filler = writer.try_clone().unwrap();
    thread::spawn(move || std::io::Write::write_all(&mut filler, &[b' '; 1 << 22]));
    let mut child = command.stdin(Stdio::null()).stdout(writer).stderr(Stdio::null()).spawn().unwrap();
    let folder = wait_for_lines(&runs, 2);
    send("-INT", &child);
    wait_until(&mut child, || folder.text("summary.csv").contains("interrupted"));
    send("-TERM", &child);
    let begun = Instant::now();
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None if begun.elapsed() > LIMIT => child.kill().unwrap(),
            None => thread::sleep(Duration::from_millis(1)),
        }
    };
    drop(reader);
    assert_eq!(status.code(), Some(143));
}

fn wait_until(child: &mut Child, mut so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !so() {
        if begun.elapsed() > LIMIT {
            child.kill().unwrap();
            panic!("waited in vain");
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Address space for the program and its data, but not for the stacks of so many threads.
#[test]
fn threads_that_cannot_be_started_leave_no_folder() {
    let place = Place::new(LINREG);
    let limited = |more: &str| {
        let line = format!(
            "ulimit -v 200000; exec {RUNNER} spec.toml devices.engine=team --threads 200 --runs-dir r {more}"
        );
        let command = Command::new("sh").args(["-c", &line]).current_dir(place.path()).output();
        Ended::of(command.unwrap())
    };
    let one = limited("");
    assert_eq!(one.code, Some(2), "{one:?}");
    assert!(one.stderr.starts_with("error: ") && one.stderr.contains("thread"), "{one:?}");
    assert!(!place.path().join("r").exists());
    let sweep = limited("seed=1,2");
    assert_eq!(sweep.code, Some(1), "{sweep:?}");
    let folder = Folder::within(&place.path().join("r")).unwrap();
    assert_eq!(folder.files(), ["sweep.csv"]);
    assert_eq!(folder.table("sweep.csv").column("status"), ["failed", "failed"]);
}

#[test]
fn a_signal_ends_a_sweep() {
    let place = Place::new(LINREG);
    let (command, runs) =
        place.prepared(&["optimizer.sgd.lr=0.01,0.02,0.03", "trainer.max_epochs=1000000000"]);
    let child = quiet(command);
    let begun = Instant::now();
    let sweep = loop {
        assert!(begun.elapsed() < LIMIT);
        if let Some(folder) = Folder::within(&runs)
            && folder.0.join("000-optimizer.sgd.lr=0.01/metrics.csv").exists()
        {
            break folder;
        }
        thread::sleep(Duration::from_millis(1));
    };
    send("-INT", &child);
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(130));
    let table = sweep.table("sweep.csv");
    assert_eq!(table.column("status"), ["interrupted", "skipped", "skipped"]);
    assert_eq!(table.column("reason")[1], "the sweep was interrupted before it began");
}

/// What a kill leaves: whole files under final names, whole lines (but perhaps the last) in those that grow.
#[test]
fn a_kill_leaves_nothing_half_written() {
    let place = Place::new(LINREG);
    let mut killed = 0;
    for round in 0..40u64 {
        // From the first file to the last: the run takes a few milliseconds.
        let (command, runs) = place.prepared(&["trainer.max_epochs=60", "logging.policy=immediate"]);
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

fn check_whole(folder: &Folder, name: &str) {
    let path = folder.0.join(name);
    match name {
        "spec.toml" | "environment.toml" => {
            let text = fs::read_to_string(path).unwrap();
            assert!(text.ends_with('\n') && toml::from_str::<toml::Table>(&text).is_ok(), "{name}: {text}");
        }
        "model.safetensors" => assert_eq!(tensors(&fs::read(path).unwrap()).len(), 2),
        _ if name.ends_with(".csv") => {
            let text = fs::read_to_string(path).unwrap();
            let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
            if name == "metrics.csv" && !whole.is_empty() {
                let train = numbers(&Table::read(whole).only("split", "train"), "step");
                assert!(train.iter().copied().eq(1..=train.len()));
            }
        }
        "run.log" => {}
        // What was being written when the end came, under a name that says so.
        _ => assert!(name.starts_with('.') && name.ends_with(".tmp"), "{name}"),
    }
}

#[test]
fn a_runs_folder_that_cannot_be_made() {
    let place = Place::new(LINREG);
    fs::write(place.path().join("file"), "").unwrap();
    let ended = place.runner(&["spec.toml", "--runs-dir", "file/runs"]);
    assert_eq!(ended.code, Some(1));
    assert_eq!(
        ended.stderr,
        "error: cannot make the folder `file/runs/spec`: not a directory\n  \
         = hint: a file stands where a folder is needed: move it, or choose another folder with `--runs-dir DIR`\n"
    );
}

/// A limit on the size of files stands for a disk that fills up.
#[test]
fn a_full_disk_ends_the_run_on_a_whole_line() {
    let place = Place::new(LINREG);
    for policy in ["logging.policy=immediate", "logging.policy=buffered"] {
        let (command, runs) = place.prepared(&["trainer.max_epochs=1000000000", policy]);
        let words: Vec<String> =
            command.get_args().map(|word| format!("'{}'", word.to_str().unwrap())).collect();
        // With the signal ignored, a write beyond the limit fails instead.
        let script = format!("trap '' XFSZ; ulimit -f 40; exec {RUNNER} {}", words.join(" "));
        let mut shell = Command::new("sh");
        let ended = Ended::of(shell.args(["-c", &script]).current_dir(place.path()).output().unwrap());
        assert_eq!(ended.code, Some(1), "{ended:?}");
        let folder = Folder::within(&runs).unwrap();
        let path = folder.0.join("metrics.csv");
        let words = format!("error: cannot write `{}`: file too large\n", path.display());
        assert!(ended.stderr.contains(&words), "{}", ended.stderr);
        let train = numbers(&folder.metrics().only("split", "train"), "step");
        assert!(train.len() > 100 && train.iter().copied().eq(1..=train.len()));
        assert!(!folder.files().iter().any(|name| name.ends_with(".tmp")), "{:?}", folder.files());
    }
}

/// Nobody reads what is printed: the run goes on, and so does its end.
#[test]
fn output_that_nobody_reads_is_no_error() {
    let place = Place::new(LINREG);
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
    let place = Place::new(LINREG);
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

/// A row that cannot be used, met while streaming: what came before it stays.
#[test]
fn a_fault_while_streaming_keeps_the_rows_before_it() {
    const FEATURES: usize = 3000;
    let mut bad = vec![0.5f32; 1500 * FEATURES];
    bad[1400 * FEATURES + 7] = f32::NAN;
    let place = Place::new(
        "[data]\nbatch_size = 100\nshuffle = false\nplacement = \"streamed\"\n[data.npy]\n\
         features = \"x.npy\"\nlabels = \"y.npy\"\nvalidation_fraction = 0.0\n[model]\n\
         layers = [{ linear = { out_features = 1 } }]\nloss = \"mse\"\n[optimizer.sgd]\nlr = 1e-6\n",
    );
    write_npy(&place.path().join("x.npy"), "(1500, 3000)", &bad);
    write_npy(&place.path().join("y.npy"), "(1500,)", &bad[..1500]);
    for policy in ["immediate", "buffered", "per_epoch"] {
        let ran = place.run(&[&format!("logging.policy={policy}")]);
        let folder = ran.ended_by(1);
        assert_eq!(folder.summary("status"), "failed");
        let words = "cannot read the next rows: row 1400, feature 7 (both counted from 0) of";
        assert!(folder.text("run.log").contains(words), "{}", folder.text("run.log"));
        // Eight megabytes of rows are read at a time: six batches, and six more.
        let rows = folder.metrics();
        match policy {
            "per_epoch" => assert_eq!((rows.column("step"), rows.column("rows")), (vec!["12"], vec!["1200"])),
            _ => assert!(numbers(&rows, "step").into_iter().eq(1..=12), "{policy}: {rows:?}"),
        }
    }
}

fn write_npy(path: &Path, shape: &str, numbers: &[f32]) {
    let mut header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}");
    header.push_str(&" ".repeat(63 - (10 + header.len()) % 64));
    header.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(numbers.iter().flat_map(|x| x.to_le_bytes()));
    fs::write(path, bytes).unwrap();
}

fn parity(path: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "parity", path].iter().collect()
}

/// The message of a refused `init = { file = ... }`, for the model of the case `sgd`.
fn refused_init(bytes: &[u8], overrides: &[&str]) -> String {
    let place = Place::of(&parity("sgd/spec.toml"));
    let file = place.path().join("init.safetensors");
    fs::write(&file, bytes).unwrap();
    let init = format!("model.init={{file = \"{}\"}}", file.display());
    let ran = place.run(&[overrides, &[&init]].concat());
    assert_eq!(ran.ended.code, Some(2));
    assert!(!ran.runs.exists());
    let folder = format!("{}/", place.path().display());
    ran.ended.stderr.replace(&folder, "").replace(parity("sgd").to_str().unwrap(), "SGD")
}

#[test]
fn initial_weights_that_do_not_fit() {
    let init = fs::read(parity("sgd/init.safetensors")).unwrap();
    for (bytes, words) in [
        (&init[..0], "header too small"),
        (&init[..4], "header too small"),
        (&init[..300], "invalid header length"),
        (&init[..init.len() - 1], "incomplete metadata, file not fully covered"),
        (&b"{\"0.weight\": 1}                "[..], "header too large"),
    ] {
        assert_eq!(
            refused_init(bytes, &[]),
            format!(
                "error: not a safetensors file: {words}\n--> init.safetensors\n \
                 = hint: write it with `safetensors.torch.save_file`\n"
            )
        );
    }
    insta::assert_snapshot!(refused_init(&init, &["model.layers.2.linear.out_features=9"]), @r"
    error: `2.weight` has the shape [8, 16], the model's has [9, 16]
    --> init.safetensors
     = hint: the file must come from a model of the same layers

    error: `2.bias` has the shape [8], the model's has [9]
    --> init.safetensors
     = hint: the file must come from a model of the same layers

    error: `4.weight` has the shape [1, 8], the model's has [1, 9]
    --> init.safetensors
     = hint: the file must come from a model of the same layers

    error: 3 problems in SGD/spec.toml
    ");
    let other = fs::read(parity("l1/init.safetensors")).unwrap();
    insta::assert_snapshot!(refused_init(&other, &[]), @r"
    error: `0.weight` has the shape [12, 6], the model's has [16, 6]
    --> init.safetensors
     = hint: the file must come from a model of the same layers

    error: the model's tensor `0.bias` is not there
    --> init.safetensors
     = hint: the file holds `0.weight`, `2.bias`, `2.weight`

    error: `2.weight` has the shape [1, 12], the model's has [8, 16]
    --> init.safetensors
     = hint: the file must come from a model of the same layers

    error: `2.bias` has the shape [1], the model's has [8]
    --> init.safetensors
     = hint: the file must come from a model of the same layers

    error: the model's tensor `4.weight` is not there
    --> init.safetensors
     = hint: the file holds `0.weight`, `2.bias`, `2.weight`

    error: the model's tensor `4.bias` is not there
    --> init.safetensors
     = hint: the file holds `0.weight`, `2.bias`, `2.weight`

    error: 6 problems in SGD/spec.toml
    ");
    let mut nan = init.clone();
    let end = nan.len();
    nan[end - 4..].copy_from_slice(&f32::NAN.to_le_bytes());
    insta::assert_snapshot!(refused_init(&nan, &[]), @r"
    error: `4.weight` holds NaN at element 7: expected finite numbers
    --> init.safetensors
    ");
}

#[test]
fn trials_that_equal_others_or_lack_devices() {
    let place = Place::new(LINREG);
    let sweep = place
        .run(&["devices.num_gpus=0,1,2", "devices.on_missing=clamp", "trainer.max_epochs=1,2"])
        .ended_by(0);
    let table = sweep.table("sweep.csv");
    assert_eq!(table.column("trial"), ["0", "1", "2", "3", "4", "5"]);
    assert_eq!(table.column("devices.num_gpus"), ["0", "0", "1", "1", "2", "2"]);
    assert_eq!(table.column("trainer.max_epochs"), ["1", "2", "1", "2", "1", "2"]);
    assert_eq!(table.column("status"), ["finished", "finished", "same_as", "same_as", "same_as", "same_as"]);
    let folders =
        ["000-devices.num_gpus=0+trainer.max_epochs=1", "001-devices.num_gpus=0+trainer.max_epochs=2"];
    assert_eq!(table.column("folder"), [folders, folders, folders].concat());
    assert_eq!(table.column("steps"), ["6", "12", "", "", "", ""]);
    assert_eq!(sweep.files(), [folders[0], folders[1], "sweep.csv"]);

    let arguments = ["devices.num_gpus=0,1,2", "devices.on_missing=error"];
    let sweep = place.run(&arguments).ended_by(3);
    let table = sweep.table("sweep.csv");
    assert_eq!(table.column("status"), ["finished", "skipped", "skipped"]);
    assert!(table.cell(2, "reason").starts_with("gpu:0, gpu:1 are not there"), "{table:?}");
    let compared = place.runner(&["compare", sweep.0.to_str().unwrap(), "--export", "csv"]);
    assert_eq!(compared.code, Some(0), "{compared:?}");
    assert_eq!(Table::read(&compared.stdout).column("status"), ["finished", "skipped", "skipped"]);
}

#[test]
fn a_trial_that_fails_does_not_end_the_sweep() {
    let place = Place::new(LINREG);
    let sweep = place.run(&["optimizer.sgd.lr=0.03,1e10,0.01"]).ended_by(1);
    let table = sweep.table("sweep.csv");
    assert_eq!(table.column("status"), ["finished", "diverged", "finished"]);
    assert!(table.cell(1, "reason").starts_with("the loss is not a finite number at step 3"));
    // A failure is graver than a device that is not there.
    let arguments = ["devices.on_missing=error", "devices.num_gpus=0,1", "optimizer.sgd.lr=1e10"];
    let sweep = place.run(&arguments).ended_by(1);
    assert_eq!(sweep.table("sweep.csv").column("status"), ["diverged", "skipped"]);
}

#[test]
fn runs_of_one_second_have_folders_of_their_own() {
    let place = Place::new(LINREG);
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
