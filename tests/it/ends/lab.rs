//! Interrupted and killed lab experiments: earlier results are in their files, with the reason.

use std::{
    fs,
    os::unix::process::ExitStatusExt,
    thread,
    time::{Duration, Instant},
};

use super::{
    super::process::{Ended, Folder, Sandbox},
    LIMIT, kills, numbers, quiet, send, wait_for_lines_of,
};

/// More products than a test can finish.
const ENDLESS: &str = "\
kind = \"matmul\"
name = \"endless\"
[devices]
use = [\"cpu\", \"gpu:0\"]
[matmul]
sizes = [32]
count = 1000000000
[logging]
policy = \"immediate\"
";

#[test]
fn a_signal_keeps_the_products_that_were_done() {
    let place = Sandbox::new(ENDLESS);
    for (signal, code, name, order, policy, lines) in [
        ("-INT", 130, "Ctrl-C (SIGINT)", "sequential", "immediate", 50),
        ("-TERM", 143, "SIGTERM", "concurrent", "immediate", 50),
        ("-INT", 130, "Ctrl-C (SIGINT)", "sequential", "buffered", 101),
    ] {
        let (order, policy) = (format!("matmul.order={order}"), format!("logging.policy={policy}"));
        let arguments = ["--virtual-gpus", "1", &order, &policy, "logging.flush_every=100"];
        // Only a buffered log is flushed in blocks.
        let arguments = if policy.ends_with("buffered") { &arguments[..] } else { &arguments[..4] };
        let (command, runs) = place.prepared(arguments);
        let child = quiet(command);
        let folder = wait_for_lines_of("norms.csv", &runs, lines);
        send(signal, &child);
        let ended = Ended::from_output(child.wait_with_output().unwrap());
        assert_eq!(ended.code, Some(code), "{ended:?}");
        let rows = folder.table("matmul.csv");
        let concurrent = order.ends_with("concurrent");
        assert!(rows.rows.len() <= 2 && (concurrent || rows.rows.len() == 1), "{rows:?}");
        // All norms of finished products are there, and the counts match.
        let mut done = 0;
        for row in 0..rows.rows.len() {
            let norms = folder.table("norms.csv").only("device", rows.cell(row, "device"));
            let count: usize = rows.cell(row, "count").parse().unwrap();
            assert!(numbers(&norms, "index").into_iter().eq(1..=count));
            let (sum, want) = (norms.f64s("norm").iter().sum::<f64>(), rows.f64s("norm_sum")[row]);
            assert!((sum / want - 1.0).abs() < 1e-6, "{sum} {want}");
            done += count;
        }
        assert!(done >= lines - 1);
        assert_eq!(
            (folder.summary("status"), folder.summary("steps")),
            ("interrupted".into(), done.to_string())
        );
        let reason = format!("{name} after {done} of 2000000000 products");
        // Large counts have commas.
        let log = folder.text("run.log").replace(',', "");
        assert!(log.lines().last().unwrap().ends_with(&reason), "{log}");
        assert!(ended.stdout.replace(',', "").contains(&format!(": {reason}\n")), "{ended:?}");
        let missing = folder.table("transfers.csv").rows.is_empty();
        assert!(!missing, "what was moved is counted");
    }
}

#[test]
fn a_signal_keeps_the_copies_that_were_done() {
    let place = Sandbox::new(
        "kind = \"transfer\"\nname = \"copies\"\n[transfer]\nsizes = [\"4KiB\", \"64MiB\"]\ncount = 2000\n",
    );
    let (command, runs) = place.prepared(&[]);
    let child = quiet(command);
    let folder = wait_for_lines_of("transfer.csv", &runs, 2);
    send("-TERM", &child);
    Ended::from_output(child.wait_with_output().unwrap()).ended_by(143);
    let table = folder.table("transfer.csv");
    let counts = numbers(&table, "count");
    assert_eq!((counts[0], table.cell(0, "bytes")), (2000, "4096"));
    let done: usize = counts.iter().sum();
    assert!(done < 4000 && counts.len() <= 2, "{counts:?}");
    assert_eq!((folder.summary("status"), folder.summary("steps")), ("interrupted".into(), done.to_string()));
    let reason = format!("SIGTERM after {done} of 4000 copies");
    let log = folder.text("run.log").replace(',', "");
    assert!(log.trim_end().ends_with(&reason), "{log}");
}

#[test]
fn a_signal_keeps_the_steps_that_were_done() {
    let steps: String =
        (0..900).map(|i| format!("[[tensors.step]]\nname = \"n{i}\"\nnorm = \"X\"\n")).collect();
    let place = Sandbox::new(&format!(
        "kind = \"tensors\"\nname = \"tour\"\n[[tensors.step]]\nname = \"X\"\nrand = [3000, 3000]\n{steps}"
    ));
    let (command, runs) = place.prepared(&[]);
    let child = quiet(command);
    let folder = wait_for_lines_of("tensors.csv", &runs, 4);
    send("-INT", &child);
    Ended::from_output(child.wait_with_output().unwrap()).ended_by(130);
    let done = numbers(&folder.table("tensors.csv"), "step");
    assert!(done.iter().copied().eq(1..=done.len()) && (3..901).contains(&done.len()), "{}", done.len());
    assert_eq!(folder.summary("steps"), done.len().to_string());
    let reason = format!("Ctrl-C (SIGINT) after {} of 901 steps", done.len());
    assert!(folder.text("run.log").trim_end().ends_with(&reason), "{}", folder.text("run.log"));
}

#[test]
fn a_signal_ends_a_sweep_and_says_why_in_its_table() {
    let place = Sandbox::new(ENDLESS);
    let (command, runs) = place.prepared(&["--virtual-gpus", "1", "matmul.norm=frobenius,trace"]);
    let child = quiet(command);
    let begun = Instant::now();
    let sweep = loop {
        assert!(begun.elapsed() < LIMIT);
        if let Some(folder) = Folder::within(&runs)
            && fs::read_to_string(folder.0.join("000-norm=frobenius/norms.csv"))
                .is_ok_and(|text| text.lines().count() > 10)
        {
            break folder;
        }
        thread::sleep(Duration::from_millis(1));
    };
    send("-INT", &child);
    Ended::from_output(child.wait_with_output().unwrap()).ended_by(130);
    let table = sweep.table("sweep.csv");
    assert_eq!(table.column("status"), ["interrupted", "planned"]);
    assert!(table.cell(0, "reason").starts_with("Ctrl-C (SIGINT) after "), "{table:?}");
    assert_eq!(table.cell(1, "reason"), "");
    let own = Folder(sweep.0.join("000-norm=frobenius"));
    assert_eq!(own.table("matmul.csv").cell(0, "count"), own.summary("steps"));
}

/// Interrupts or kills at times from before the folder exists until the end.
#[test]
fn at_whatever_moment_it_ends_nothing_is_half_written() {
    let place = Sandbox::new(ENDLESS);
    let (mut killed, mut interrupted) = (0, 0);
    for round in 0..40u64 {
        let kill = round % 2 == 0;
        // Some do not end by themselves, however late the signal comes.
        let count = if round % 8 < 2 { "matmul.count=1000000000" } else { "matmul.count=400" };
        let (command, runs) = place.prepared(&["--virtual-gpus", "1", count]);
        let mut child = quiet(command);
        let begun = Instant::now();
        // Half of the rounds measure the delay from the start, half from the folder's creation.
        while round % 4 < 2 && !runs.exists() && begun.elapsed() < LIMIT {
            thread::yield_now();
        }
        let seen = Instant::now();
        while seen.elapsed() < Duration::from_micros(round * 300) {
            thread::yield_now();
        }
        if kill {
            child.kill().unwrap();
        } else if child.try_wait().unwrap().is_none() {
            send("-INT", &child);
        }
        let status = child.wait().unwrap();
        killed += u32::from(kill && status.signal().is_some());
        let Some(folder) = Folder::within(&runs) else { continue };
        folder.files().iter().for_each(|name| kills::check_whole(&folder, name));
        // Before its handlers are installed, a signal kills the process.
        if !kill && let Some(code) = status.code() {
            let word = if code == 0 { "finished" } else { "interrupted" };
            assert!(code == 0 || code == 130, "{code}");
            assert_eq!(folder.summary("status"), word);
            let done: usize = numbers(&folder.table("matmul.csv"), "count").iter().sum();
            assert_eq!(folder.summary("steps"), done.to_string());
            interrupted += u32::from(code == 130);
        }
    }
    assert!(killed > 0 && interrupted > 0, "{killed} killed, {interrupted} interrupted");
}
