//! Signals: a run and a sweep end in order, and a second signal does not wait.

use std::{
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use super::{
    super::{
        process::{Ended, Folder, Sandbox, tensors},
        run::LINREG,
    },
    LIMIT, numbers, quiet, send, wait_for_lines, wait_until,
};

#[test]
fn a_signal_ends_a_run_in_order() {
    let place = Sandbox::new(LINREG);
    let cases = [
        ("-INT", 130, "SIGINT", "logging.policy=immediate", 3),
        ("-TERM", 143, "SIGTERM", "logging.policy=immediate", 500),
        ("-INT", 130, "SIGINT", "logging.policy=buffered", 40),
        ("-TERM", 143, "SIGTERM", "logging.flush_every=1001", 2),
        ("-INT", 130, "SIGINT", "logging.policy=per_epoch", 100),
        ("-HUP", 129, "SIGHUP", "logging.policy=off", 60),
        ("-XCPU", 152, "SIGXCPU", "logging.policy=off", 60),
    ];
    for (signal, code, name, policy, lines) in cases {
        if signal == "-HUP" && hang_ups_are_ignored() {
            continue; // below `nohup`, whose children are to outlive a terminal
        }
        for threads in ["1", "2"] {
            let arguments = ["trainer.max_epochs=1000000000", policy, "--threads", threads];
            let (command, runs) = place.prepared(&arguments);
            let child = quiet(command);
            let folder = wait_for_lines(&runs, lines);
            send(signal, &child);
            let ended = Ended::from_output(child.wait_with_output().unwrap());
            assert_eq!(ended.code, Some(code), "{policy}: {ended:?}");
            assert_eq!(folder.summary("status"), "interrupted");
            assert!(ended.stdout.contains(name), "{ended:?}");
            assert_eq!(tensors(&folder.model()).len(), 2);
            every_row_is_there(&folder, policy);
        }
    }
}

/// Whether this process, and so its children, ignore SIGHUP (proc(5), `SigIgn`).
fn hang_ups_are_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap() & 1 == 1
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

/// Nothing is there to save while rows are read, which may take minutes.
#[test]
fn a_signal_ends_the_reading_of_rows() {
    let place = Sandbox::new(
        "data.csv = { path = \"rows.csv\", target = \"y\" }\nmodel.layers = [{ linear = { out_features = 1 } }]\n\
         optimizer.sgd.lr = 0.1\n",
    );
    let rows = "0.25,1.5,2,3,4,5,6,7,8,9\n".repeat(3_000_000);
    std::fs::write(place.path().join("rows.csv"), format!("a,b,c,d,e,f,g,h,i,y\n{rows}")).unwrap();
    let (command, runs) = place.prepared(&[]);
    let mut child = quiet(command);
    let status = format!("/proc/{}/status", child.id());
    // SIGINT is caught (proc(5), `SigCgt`).
    wait_until(&mut child, || {
        let status = std::fs::read_to_string(&status).unwrap_or_default();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or("0");
        u64::from_str_radix(mask.trim(), 16).unwrap() & 2 == 2
    });
    thread::sleep(Duration::from_millis(20));
    let sent = Instant::now();
    send("-INT", &child);
    let ended = Ended::from_output(child.wait_with_output().unwrap());
    let words = "runner: ended by a signal before training began\n";
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(130), words), "after {:?}", sent.elapsed());
    assert!(!runs.exists());
}

#[test]
fn a_second_signal_at_once_changes_nothing() {
    let place = Sandbox::new(LINREG);
    let (command, runs) = place.prepared(&["trainer.max_epochs=1000000000"]);
    let child = quiet(command);
    let folder = wait_for_lines(&runs, 2);
    send("-USR1", &child); // harmless
    send("-INT", &child);
    // It may have ended by the first one already.
    let _ = Command::new("kill").args(["-INT", &child.id().to_string()]).stderr(Stdio::null()).status();
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(130));
    assert_eq!(folder.summary("status"), "interrupted");
    every_row_is_there(&folder, "logging.policy=buffered");
}

/// The run cannot end by itself after the first signal, because its output is not read.
#[test]
fn a_second_signal_two_seconds_later_does_not_wait() {
    let place = Sandbox::new(LINREG);
    let (mut command, runs) = place.prepared(&["trainer.max_epochs=1000000000"]);
    let (reader, writer) = std::io::pipe().unwrap();
    let mut filler = writer.try_clone().unwrap();
    thread::spawn(move || std::io::Write::write_all(&mut filler, &[b' '; 1 << 22]));
    let mut child = command.stdin(Stdio::null()).stdout(writer).stderr(Stdio::null()).spawn().unwrap();
    let folder = wait_for_lines(&runs, 2);
    send("-INT", &child);
    wait_until(&mut child, || folder.text("summary.csv").contains("interrupted"));
    thread::sleep(Duration::from_secs(2));
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

#[test]
fn a_signal_ends_a_sweep() {
    let place = Sandbox::new(LINREG);
    let (command, runs) =
        place.prepared(&["optimizer.sgd.lr=0.01,0.02,0.03", "trainer.max_epochs=1000000000"]);
    let child = quiet(command);
    let begun = Instant::now();
    let sweep = loop {
        assert!(begun.elapsed() < LIMIT);
        if let Some(folder) = Folder::within(&runs)
            && folder.0.join("000-lr=.01/metrics.csv").exists()
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
