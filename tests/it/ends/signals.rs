//! Signals: a run and a sweep end in order, and a second signal does not wait.

use std::{
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use super::{
    super::{
        data::idx::gzip,
        process::{Ended, Folder, Sandbox, tensors},
        run::LINREG,
    },
    LIMIT, disk, ended, make_images_endless, numbers,
    odd::SlowGit,
    quiet, send, wait_for_lines, wait_for_lines_of, wait_until, with_images,
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
            continue; // the process runs below `nohup`, whose children must survive the terminal
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

/// Every step that the summary counts has its row. An epoch is five steps of 20 rows and one of 3.
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
    // The signal may come when the last epoch is complete but not yet validated.
    let whole = validation.len() * 6;
    assert!(validation.iter().copied().eq((6..=whole).step_by(6)));
    assert!(whole <= steps && steps - whole <= 6, "{policy}: {steps} steps, {whole} validated");
}

/// While rows are being read, which may take minutes, there is nothing to save. The `git` process that was
/// started before ends too.
#[test]
fn a_signal_ends_the_reading_of_rows() {
    let place = with_images("");
    make_images_endless(&place);
    let (mut command, runs) = place.prepared(&[]);
    let git = SlowGit::new(&place, &mut command);
    let mut child = quiet(command);
    // Its own handler of SIGINT, which is signal 2, is there as well.
    let status = format!("/proc/{}/status", child.id());
    let handles = || {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let mask = text.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or_default();
        u64::from_str_radix(mask.trim(), 16).is_ok_and(|mask| mask & 1 << (2 - 1) != 0)
    };
    wait_until(&mut child, || git.pid().is_some() && handles());
    send("-INT", &child);
    let ended = Ended::from_output(child.wait_with_output().unwrap());
    let words = "runner: ended by a signal before training began\n";
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(130), words));
    assert!(!runs.exists());
    git.ends();
}

/// A sweep keeps two large data sets in memory, and reads the others again when their trials start.
#[test]
fn a_signal_ends_the_reading_of_rows_within_a_sweep() {
    let place = with_images(
        "trainer = { max_epochs = 1000000000, max_time = \"3s\" }\n\
         sweep.grid.seed = [1, 2, 3]\n",
    );
    // More than 64 MiB of features.
    let header = [&[0, 0, 8, 2][..], &1000_u32.to_be_bytes(), &20_000_u32.to_be_bytes()].concat();
    std::fs::write(place.path().join("images"), gzip(&[header, vec![1; 20_000_000]].concat())).unwrap();
    // Created in advance, so that moving them into place takes well under three seconds.
    let endless = with_images("");
    make_images_endless(&endless);
    let (command, runs) = place.prepared(&["--threads", "1", "data.split.test=0.01"]);
    let mut child = quiet(command);
    let sweep = wait_for_lines_of("sweep.csv", &runs, 4);
    wait_until(&mut child, || sweep.0.join("000-seed=1/metrics.csv").exists());
    std::fs::rename(endless.path().join("images"), place.path().join("images")).unwrap();
    let status = |trial: usize| sweep.table("sweep.csv").column("status")[trial].to_owned();
    wait_until(&mut child, || status(0) == "finished");
    send("-TERM", &child);
    let ended = Ended::from_output(child.wait_with_output().unwrap()).ended_by(143);
    assert_eq!([0, 1, 2].map(status), ["finished", "planned", "planned"]);
    // No trial was under way, and the sweep says how it goes on.
    let resume = format!("  resume with: runner run --resume {}\n", sweep.0.display());
    assert!(ended.stdout.contains(&resume), "{ended:?}");
    assert!(!ended.stderr.contains("error"), "{ended:?}");
}

#[test]
fn a_second_signal_at_once_changes_nothing() {
    let place = Sandbox::new(LINREG);
    let (command, runs) = place.prepared(&["trainer.max_epochs=1000000000"]);
    let child = quiet(command);
    let folder = wait_for_lines(&runs, 2);
    send("-USR1", &child); // has no effect on this process
    send("-INT", &child);
    // The first signal may have ended it already.
    let _ = Command::new("kill").args(["-INT", &child.id().to_string()]).stderr(Stdio::null()).status();
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(130));
    assert_eq!(folder.summary("status"), "interrupted");
    every_row_is_there(&folder, "logging.policy=buffered");
}

/// A second signal this long after the first counts as one, also where handlers run late.
const LATER: Duration = Duration::from_secs(3);

/// Nobody reads the run's output, so it cannot end by itself after the first signal.
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
    let code = ended(child).code;
    drop(reader);
    assert_eq!(code, Some(143));
}

/// The first checkpoint never comes to its end, and the training waits for it when the second one is due: rows of all steps
/// until then are written, and the summary says how the run ended.
#[test]
fn a_second_signal_leaves_rows_and_a_summary() {
    let place = Sandbox::new(LINREG);
    let Some(library) = disk::library(&place) else { return };
    let endless = ["trainer.max_epochs=1000000000", "checkpoint.every_steps=600"];
    let (mut command, runs) = disk::on_disk(&place, &library, &endless);
    command.env("DISK_HANG", "/checkpoints/");
    let child = quiet(command);
    let folder = wait_for_lines(&runs, 1 + 1200 + 200);
    send("-INT", &child);
    thread::sleep(LATER);
    send("-TERM", &child);
    let ended = ended(child).ended_by(143);
    let words = "runner: ended at once by a second signal; rows are written, except those that were still on a device\n";
    assert!(ended.stderr.ends_with(words), "{ended:?}");
    assert_eq!(["status", "steps"].map(|column| folder.summary(column)), ["interrupted", "1200"]);
    every_row_is_there(&folder, "logging.policy=buffered");
}

/// The recorder waits for a disk: what it has not written is lost, and the last words say so.
#[test]
fn a_second_signal_tells_that_rows_are_lost() {
    let place = Sandbox::new(LINREG);
    let Some(library) = disk::library(&place) else { return };
    let (mut command, runs) = disk::on_disk(&place, &library, &["trainer.max_epochs=1000000000"]);
    command.env("DISK_STALL", "/metrics.csv");
    let mut child = quiet(command);
    let folder = wait_for_lines(&runs, 2);
    wait_until(&mut child, || folder.text("metrics.csv").len() >= 4096);
    send("-INT", &child);
    thread::sleep(LATER);
    send("-TERM", &child);
    let ended = ended(child).ended_by(143);
    let words = "runner: ended at once by a second signal; rows that were not written yet are lost\n";
    assert!(ended.stderr.ends_with(words), "{ended:?}");
    assert_eq!(folder.summary("status"), "interrupted");
}

/// The recorder waits for a terminal that is halted, and the training for the recorder: a second signal lets both go on.
#[test]
fn a_second_signal_does_not_wait_for_a_terminal() {
    let place = Sandbox::new(LINREG);
    let arguments = ["-v", "trainer.max_epochs=1000000000", "logging.policy=immediate"];
    let (mut command, runs) = place.prepared(&arguments);
    let (reader, writer) = std::io::pipe().unwrap();
    let mut filler = writer.try_clone().unwrap();
    thread::spawn(move || std::io::Write::write_all(&mut filler, &[b' '; 1 << 22]));
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(writer).spawn().unwrap();
    let folder = wait_for_lines_of("summary.csv", &runs, 1);
    send("-INT", &child);
    thread::sleep(LATER);
    send("-TERM", &child);
    // The run may end in order before the second signal ends the process.
    let code = ended(child).code;
    assert!([Some(130), Some(143)].contains(&code), "{code:?}");
    drop(reader);
    assert_eq!(folder.summary("status"), "interrupted");
    assert!(folder.summary("steps").parse::<u64>().unwrap() > 0);
    every_row_is_there(&folder, "logging.policy=immediate");
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
    assert_eq!(table.column("status"), ["interrupted", "planned", "planned"]);
    assert_eq!(table.column("reason")[1], "");
}
