//! Processes that share a sweep learn how each other's trials ended, however their paths are spelled.

use std::{
    fs,
    process::Child,
    thread,
    time::{Duration, Instant},
};

use super::{
    super::{
        ends::{LIMIT, quiet, send, stop, wait_until},
        process::{Ended, Folder, Sandbox, Table},
    },
    SPEC, copy,
    halving::{ended_at_a_rung, rungs},
    shared::{HALVING, start, trials_begun},
    sweeps::{statuses, trials},
};

const CSV: &str = "[data]\nbatch_size = 8\n[data.csv]\npath = \"a.csv\"\ntarget = \"y\"\n\
    [data.split]\nvalidation = 0.25\n[model]\nlayers = [{ linear = { out_features = 4 } }, \"tanh\", \
    { linear = { out_features = 1 } }]\n[optimizer.adam]\nlr = 0.01\n";

/// A spec whose data are in two files.
fn with_files() -> Sandbox {
    let place = Sandbox::new(CSV);
    for (name, slope) in [("a.csv", 2), ("b.csv", 3)] {
        let rows: String = (0..80).map(|x| format!("{x},{}\n", slope * x % 7)).collect();
        fs::write(place.path().join(name), format!("x,y\n{rows}")).unwrap();
    }
    place
}

/// The exit codes of processes, all of which end.
fn codes(children: Vec<Child>) -> Vec<Option<i32>> {
    let begun = Instant::now();
    let mut all = children;
    while all.iter_mut().any(|child| child.try_wait().unwrap().is_none()) {
        if begun.elapsed() > LIMIT {
            all.iter_mut().for_each(|child| drop(child.kill()));
            panic!("waited in vain");
        }
        thread::sleep(Duration::from_millis(1));
    }
    let ended = all.into_iter().map(|child| Ended::from_output(child.wait_with_output().unwrap()));
    ended.inspect(|ended| println!("{}", ended.stderr)).map(|ended| ended.code).collect()
}

/// A process that joins reads `sweep.toml`, where paths are absolute; it must still derive the same folder
/// names.
#[test]
fn a_trial_is_known_by_its_number() {
    let place = with_files();
    let halving = [
        "data.csv.path=a.csv,b.csv",
        "optimizer.adam.lr=logspace(1e-4, 1, 4)",
        "trainer.max_epochs=400",
        "sweep.stop={ asha = { min_epochs = 100, factor = 2 } }",
    ];
    let whole = place.run(&halving).ended_by(0).0;
    let (children, sweep) = start(&place, &halving, 2);
    assert_eq!(codes(children), [Some(0); 3]);
    assert_eq!(rungs(&sweep.0), rungs(&whole));
    assert_eq!(statuses(&sweep.0), statuses(&whole));
    assert_eq!(trials_begun(&sweep.0), 8);
}

/// A stopped process that continues last knows the values of trials that others drew meanwhile.
#[test]
fn points_are_known_by_their_places() {
    let place = with_files();
    let space = [
        "sweep.sampler=tpe",
        "sweep.trials=40",
        "data.csv.path=choice(a.csv, b.csv)",
        "optimizer.adam.lr=loguniform(1e-4, 1)",
        "trainer.max_epochs=400",
    ];
    let (command, runs) = place.prepared(&space);
    let mut first = quiet(command);
    wait_until(&mut first, || Folder::within(&runs).is_some_and(|sweep| trials_begun(&sweep.0) > 11));
    let sweep = Folder::within(&runs).unwrap().0;
    // Stopped within a trial, so it must hold only the lock of that trial's folder, not that of the table or
    // of a draw.
    let has_lock = |byte: u64| {
        let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
        locks.lines().any(|line| line.ends_with(&format!(" {byte} {byte}")))
    };
    loop {
        stop(&first.id().to_string());
        if ![1, 2].into_iter().any(|lock| has_lock((1 << 40) + lock)) {
            break;
        }
        send("-CONT", &first);
    }
    let join = ["run", "-q", "--resume", sweep.to_str().unwrap()];
    assert_eq!(codes(vec![quiet(place.command(&join))]), [Some(0)]);
    send("-INT", &first);
    send("-CONT", &first);
    codes(vec![first]);
    let text = |name: &str| fs::read_to_string(sweep.join(name)).unwrap();
    let (table, points) = (text("sweep.csv"), text("points.csv"));
    let [table, points] = [&table, &points].map(|text| Table::read(text));
    assert_eq!(table.column("optimizer.adam.lr")[10..], points.column("optimizer.adam.lr"), "{table:?}");
    assert!(!table.column("data.csv.path").contains(&""), "{table:?}");
    assert_eq!(codes(vec![quiet(place.command(&join))]), [Some(0)]);
    assert_eq!(statuses(&sweep), ["finished"; 40]);
}

/// A trial that cannot continue from its rung keeps the summary of that rung, and gets no other.
#[test]
fn a_failure_without_a_summary_is_seen() {
    let place = Sandbox::new(SPEC);
    let other = place.run(&[&HALVING[..], &["data.synthetic_regression.noise=3.0"]].concat()).ended_by(0).0;
    let ([whole, sweep], first) = ended_at_a_rung(&place, &HALVING, "-KILL");
    // Their checkpoints are replaced by those of trials on other data.
    let mut lost = Vec::new();
    for (trial, (other, own)) in trials(&other).iter().zip(&trials(&whole)).enumerate() {
        let from = other.0.join("checkpoints");
        if from.exists() && trial != first {
            let checkpoints = sweep.join(own.0.file_name().unwrap()).join("checkpoints");
            fs::remove_dir_all(&checkpoints).unwrap();
            copy(&from, &checkpoints);
            lost.push(trial);
        }
    }
    let join = ["run", "-q", "--resume", sweep.to_str().unwrap()];
    let ended = codes((0..3).map(|_| quiet(place.command(&join))).collect());
    assert!(ended.contains(&Some(1)), "{ended:?}");
    let table = Folder(sweep.clone()).table("sweep.csv");
    for trial in lost {
        assert_eq!(table.cell(trial, "status"), "failed");
        assert!(table.cell(trial, "reason").starts_with("the data are not those"), "{table:?}");
    }
    assert!(statuses(&sweep).iter().all(|status| status != "planned"));
}

/// A summary that is about to be replaced is not a result.
#[test]
fn failures_of_an_earlier_part_are_repeated() {
    let place = Sandbox::new(SPEC);
    let grid = ["optimizer.adam.lr=logspace(1e-4, 1, 60)", "trainer.max_epochs=20"];
    let sweep = place.run(&grid).ended_by(0).0;
    for trial in trials(&sweep) {
        let summary = trial.0.join("summary.csv");
        let text = fs::read_to_string(&summary).unwrap();
        fs::write(summary, text.replace("finished", "failed")).unwrap();
    }
    let table = sweep.join("sweep.csv");
    let text = fs::read_to_string(&table).unwrap();
    fs::write(&table, text.replace("finished", "failed")).unwrap();
    let join = ["run", "-q", "--resume", sweep.to_str().unwrap()];
    assert_eq!(codes((0..3).map(|_| quiet(place.command(&join))).collect()), [Some(0); 3]);
    assert_eq!(statuses(&sweep), ["finished"; 60]);
}

/// Otherwise it would decide a rung without trials that other processes can run.
#[test]
fn one_that_lacks_a_device_decides_no_rung_beside_others() {
    let place = Sandbox::new(SPEC);
    let halving = [&HALVING[..], &["devices.num_gpus=0,2", "devices.on_missing=error", "--virtual-gpus=2"]];
    let (children, sweep) = start(&place, &halving.concat(), 0);
    let join = ["run", "-q", "--virtual-gpus=1", "--resume", sweep.0.to_str().unwrap()];
    let ended = place.runner(&join).ended_by(2);
    let shown = ended.stderr.replace(sweep.0.to_str().unwrap(), "SWEEP");
    insta::assert_snapshot!(shown, @r"
    error: `SWEEP` is under way in another process; successive halving is not shared where devices of trial 1 are missing
      = hint: wait for its end, or end it
    ");
    assert_eq!(codes(children), [Some(0)]);
}
