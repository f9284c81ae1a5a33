//! Successive halving: trials stop at rungs, and those that go on are what they would be alone.

use std::{fs, process::Stdio};

use super::{
    super::{
        ends::{quiet, send, wait_until},
        process::{Ended, Folder, Sandbox},
    },
    SPEC, result,
    sweeps::{statuses, trials},
};

const GRID: [&str; 3] = [
    "optimizer.adam.lr=logspace(1e-4, 1, 9)",
    "trainer.max_epochs=9",
    "data.synthetic_regression.train_rows=3000",
];

const STOP: &str = "sweep.stop={ asha = { min_epochs = 1, factor = 3 } }";

#[test]
fn trials_that_go_on_are_what_they_are_alone() {
    let place = Sandbox::new(SPEC);
    let whole = place.run(&GRID).ended_by(0).0;
    let ran = place.run(&[&GRID[..], &[STOP]].concat());
    let halved = ran.ended_by(0).0;
    assert!(ran.ended.stdout.starts_with("spec: 9 trials, 8 stopped, 1 finished\n"), "{}", ran.ended.stdout);
    assert_eq!(ran.ended.stderr, "successive halving ran 21 of 81 epochs\n");
    // Six stop after one epoch, two after three, one goes to the end.
    let own = trials(&halved);
    let epochs: Vec<String> = own.iter().map(|trial| trial.summary("epochs")).collect();
    assert_eq!(["1", "3", "9"].map(|n| epochs.iter().filter(|own| *own == n).count()), [6, 2, 1]);
    let rungs = fs::read_to_string(halved.join("rungs.csv")).unwrap();
    assert_eq!(rungs.lines().count(), 1 + 9 + 3);
    for ((own, whole), epochs) in own.iter().zip(&trials(&whole)).zip(&epochs) {
        if epochs == "9" {
            assert!(result(own) == result(whole), "{}", own.0.display());
        } else {
            assert!(whole.numbers().starts_with(own.numbers().trim_end()), "{}", own.0.display());
            assert_eq!(own.summary("status"), "stopped");
        }
    }
    let reasons = Folder(halved.clone()).table("sweep.csv");
    let count = |reason: &str| reasons.column("reason").iter().filter(|own| **own == reason).count();
    assert_eq!(count("not among the best 3 of 9 after 1 epoch"), 6);
    assert_eq!(count("not among the best 1 of 3 after 3 epochs"), 2);
    // Side by side it is the same choice, and one that was stopped goes on by itself.
    let beside = place.run(&[&GRID[..], &[STOP, "-q", "--jobs=3"]].concat()).ended_by(0).0;
    assert_eq!(fs::read_to_string(beside.join("rungs.csv")).unwrap(), rungs);
    let stopped = epochs.iter().position(|own| own == "3").unwrap();
    let folder = &trials(&beside)[stopped];
    let ended = place.runner(&["run", "-q", "--resume", folder.0.to_str().unwrap()]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(result(folder) == result(&trials(&whole)[stopped]));
}

/// Whether it was killed before a rung, after it, or interrupted by a signal.
#[test]
fn a_cut_sweep_makes_the_same_choice() {
    let place = Sandbox::new(SPEC);
    let arguments = [&GRID[..], &[STOP, "-q"]].concat();
    let whole = place.run(&arguments).ended_by(0).0;
    let rungs = |sweep: &std::path::Path| fs::read_to_string(sweep.join("rungs.csv")).unwrap_or_default();
    for (signal, file) in [("-KILL", "004"), ("-INT", "008"), ("-KILL", "rungs.csv"), ("-INT", "rungs.csv")] {
        let (command, runs) = place.prepared(&arguments);
        let mut child = quiet(command);
        let mut sweep = None;
        wait_until(&mut child, || {
            sweep = Folder::within(&runs);
            let files = sweep.iter().flat_map(|sweep| fs::read_dir(&sweep.0).into_iter().flatten().flatten());
            files.into_iter().any(|entry| entry.file_name().to_string_lossy().starts_with(file))
        });
        send(signal, &child);
        child.wait().unwrap();
        let sweep = sweep.unwrap().0;
        let ended = place.runner(&["run", "-q", "--resume", sweep.to_str().unwrap()]);
        assert_eq!(ended.code, Some(0), "{signal} {file}: {ended:?}");
        assert_eq!(rungs(&sweep), rungs(&whole), "{signal} {file}");
        assert_eq!(statuses(&sweep), statuses(&whole), "{signal} {file}");
        for (own, whole) in trials(&sweep).iter().zip(&trials(&whole)) {
            assert!(result(own) == result(whole), "{signal} {file}: {}", own.0.display());
        }
    }
}

/// A kill right after a rung was decided: the trials that it stopped have no reason in their folders yet.
#[test]
fn what_a_rung_left_behind_stays() {
    let place = Sandbox::new(SPEC);
    let grid = ["devices.num_gpus=0,2", "optimizer.adam.lr=logspace(1e-4, 1, 4)", "devices.on_missing=error"];
    let ran = place.run(&[&grid[..], &[STOP, "-q", "--virtual-gpus=1"]].concat());
    assert_eq!(ran.ended.code, Some(3), "{:?}", ran.ended);
    let sweep = Folder::within(&ran.runs).unwrap().0;
    let path = sweep.join("sweep.csv");
    let whole = fs::read_to_string(&path).unwrap();
    let left = "not among the best 1 of 4 after 1 epoch";
    assert_eq!(whole.matches(left).count(), 3, "{whole}");
    assert_eq!(statuses(&sweep)[4..], ["skipped"; 4]);
    fs::write(&path, whole.replace(left, "")).unwrap();
    let resumed = |code| {
        // Devices that have become available do not revive a stopped trial.
        let arguments = ["run", "-q", "--virtual-gpus=2", "--resume", sweep.to_str().unwrap()];
        let ended = place.runner(&arguments);
        assert_eq!(ended.code, Some(code), "{ended:?}");
        fs::read_to_string(&path).unwrap()
    };
    assert_eq!(resumed(3), whole);
    // One failed before the rung.
    let stopped = statuses(&sweep).iter().position(|status| status == "stopped").unwrap();
    let summary = trials(&sweep)[stopped].0.join("summary.csv");
    let text = fs::read_to_string(&summary).unwrap();
    fs::write(&summary, text.replace("stopped", "failed")).unwrap();
    let rows = whole.lines().enumerate().map(|(line, row)| match line == stopped + 1 {
        true => row.replace("stopped", "failed").replace(left, "out of luck") + "\n",
        false => row.to_owned() + "\n",
    });
    let failed: String = rows.collect();
    fs::write(&path, &failed).unwrap();
    assert_eq!(resumed(1), failed);
}

/// If somebody removes a trial's folder after its rung, the trial runs to its rung again.
#[test]
fn a_trial_whose_folder_is_gone_begins_again() {
    let place = Sandbox::new(SPEC);
    let sweep = place.run(&[&GRID[..], &[STOP, "-q"]].concat()).ended_by(0).0;
    let texts = || ["sweep.csv", "rungs.csv"].map(|file| fs::read_to_string(sweep.join(file)).unwrap());
    let (before, rows) = (statuses(&sweep), texts()[0].lines().count());
    let all = trials(&sweep);
    let at = |epochs: &str| all.iter().position(|trial| trial.summary("epochs") == epochs).unwrap();
    let lost = ["1", "3"].map(at);
    let results = lost.map(|trial| result(&all[trial]));
    lost.iter().for_each(|&trial| fs::remove_dir_all(&all[trial].0).unwrap());
    let rungs = texts()[1].clone();
    let ended = place.runner(&["run", "--resume", sweep.to_str().unwrap()]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let said = lost.map(|trial| format!("trial {trial}: begins again, since its folder is gone\n"));
    assert!(said.iter().all(|line| ended.stderr.contains(line)), "{}", ended.stderr);
    assert_eq!((statuses(&sweep), texts()[0].lines().count()), (before, rows));
    assert_eq!(texts()[1], rungs);
    assert!(lost.map(|trial| result(&trials(&sweep)[trial])) == results);
    // Nothing is left to say.
    assert_eq!(
        place.runner(&["run", "--resume", sweep.to_str().unwrap()]).stderr.matches("again").count(),
        0
    );
}

/// While the sweep runs, both a trial that waits at its rung and one that trains are listed once.
#[test]
fn a_folder_that_goes_while_the_sweep_runs_begins_again() {
    let place = Sandbox::new(SPEC);
    let arguments = [&GRID[..], &[STOP]].concat();
    let whole = place.run(&arguments).ended_by(0).0;
    let best = trials(&whole).iter().position(|trial| trial.summary("epochs") == "9").unwrap();
    for is_at_rung in [true, false] {
        let (mut command, runs) = place.prepared(&arguments);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let name = trials(&whole)[best].0.file_name().unwrap().to_owned();
        let folder = || Some(Folder::within(&runs)?.0.join(&name));
        let file = if is_at_rung { "summary.csv" } else { "metrics.csv" };
        wait_until(&mut child, || {
            let text = folder().and_then(|folder| fs::read_to_string(folder.join(file)).ok());
            text.is_some_and(|text| text.contains(if is_at_rung { "waiting" } else { "\n1," }))
        });
        send("-STOP", &child);
        fs::remove_dir_all(folder().unwrap()).unwrap();
        send("-CONT", &child);
        let ended = Ended::from_output(child.wait_with_output().unwrap());
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert!(
            ended.stderr.contains(&format!("trial {best}: begins again, since its folder is gone\n")),
            "{ended:?}"
        );
        let sweep = Folder::within(&runs).unwrap().0;
        assert_eq!(statuses(&sweep), statuses(&whole));
        assert!(result(&trials(&sweep)[best]) == result(&trials(&whole)[best]));
    }
}

/// Resumed alone, a trial would run past its rung, and the sweep would decide differently.
#[test]
fn a_trial_that_waits_goes_on_with_its_sweep() {
    let place = Sandbox::new(SPEC);
    let arguments = [&GRID[..], &[STOP, "-q"]].concat();
    let whole = place.run(&arguments).ended_by(0).0;
    let (command, runs) = place.prepared(&arguments);
    let mut child = quiet(command);
    let mut sweep = None;
    wait_until(&mut child, || {
        sweep = Folder::within(&runs);
        sweep.as_ref().is_some_and(|sweep| sweep.files().iter().any(|name| name.starts_with("004")))
    });
    send("-INT", &child);
    child.wait().unwrap();
    let sweep = sweep.unwrap().0;
    let first = trials(&sweep).swap_remove(0);
    // Nobody has decided yet whether it continues.
    let own = statuses(&sweep);
    assert!(own[0] == "waiting" && !own.contains(&"stopped".to_owned()), "{own:?}");
    assert_eq!(first.summary("status"), "waiting");
    let compared = place.runner(&["compare", sweep.to_str().unwrap()]).stdout;
    assert!(compared.contains(" waiting (#0"), "{compared}");
    let shown = place.runner(&["show", sweep.to_str().unwrap()]).stdout;
    assert!(
        shown.contains(&format!("\n  resume with: runner run --resume {}\n", sweep.display())),
        "{shown}"
    );
    let ended = place.runner(&["run", "-q", "--resume", first.0.to_str().unwrap()]);
    let expected = "error: a trial that waits at a rung of successive halving goes on with its sweep\n  = hint: name the \
                    folder of the sweep\n";
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(2), expected));
    // The same under another name of the folder.
    let renamed = sweep.with_file_name("learning-rates");
    fs::rename(&sweep, &renamed).unwrap();
    let resume = || place.runner(&["run", "-q", "--resume", renamed.to_str().unwrap()]);
    assert_eq!(resume().code, Some(0));
    let rungs = |sweep: &std::path::Path| fs::read_to_string(sweep.join("rungs.csv")).unwrap();
    assert_eq!(rungs(&renamed), rungs(&whole));
    let own: Vec<String> = trials(&renamed).iter().map(|trial| trial.summary("status")).collect();
    assert_eq!((&own, statuses(&renamed)), (&statuses(&renamed), statuses(&whole)));
    let file = renamed.join("sweep.toml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("max_epochs = 9", "max_epochs = 8")).unwrap();
    let ended = resume();
    assert_eq!(ended.code, Some(2));
    let expected = "sweep.toml` no longer gives the trials that it gave\n  = hint: bring it back as it was, or run it anew: \
                    `runner run` with that file\n";
    assert!(ended.stderr.ends_with(expected), "{}", ended.stderr);
}

#[test]
fn a_rung_that_nobody_reaches_is_noticed() {
    let place = Sandbox::new(SPEC);
    let ended = place.runner(&["check", "spec.toml", GRID[0], GRID[1], "sweep.stop.asha.min_epochs=9"]);
    let expected = "warning: all trials: no trial stops early: `sweep.stop` judges first after 9 epochs, and there are 9 epochs\n";
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), expected));
}

/// What the trials wrote at their last rung had not reached the disk.
#[test]
fn trials_that_a_loss_of_power_took_begin_again() {
    let place = Sandbox::new(SPEC);
    let arguments = [&GRID[..], &[STOP]].concat();
    let whole = place.run(&arguments).ended_by(0).0;
    for lost in ["safetensors", "toml", "metrics.csv"] {
        let (command, runs) = place.prepared(&arguments);
        let mut child = quiet(command);
        let mut sweep = None;
        wait_until(&mut child, || {
            sweep = Folder::within(&runs);
            sweep.as_ref().is_some_and(|sweep| sweep.0.join("rungs.csv").exists())
        });
        send("-KILL", &child);
        child.wait().unwrap();
        let sweep = sweep.unwrap().0;
        let folders = trials(&sweep).into_iter().flat_map(|trial| [trial.0.join("checkpoints"), trial.0]);
        let files =
            folders.filter_map(|folder| fs::read_dir(folder).ok()).flatten().map(|file| file.unwrap().path());
        for file in files.filter(|file| file.is_file()) {
            let is_checkpoint = file.parent().unwrap().ends_with("checkpoints");
            if file.ends_with(lost) || is_checkpoint && file.extension().is_some_and(|end| end == lost) {
                fs::write(file, "").unwrap();
            }
        }
        let ended = place.runner(&["run", "--resume", sweep.to_str().unwrap()]);
        assert_eq!(ended.code, Some(0), "{lost}: {ended:?}");
        assert!(ended.stderr.contains(" begins again, since "), "{lost}: {}", ended.stderr);
        for (own, whole) in trials(&sweep).iter().zip(&trials(&whole)) {
            let is_same = match own.summary("status").as_str() {
                "finished" => result(own) == result(whole),
                // Its rows are lost, but they are no longer needed.
                _ => own.summary("epochs") == whole.summary("epochs"),
            };
            assert!(is_same, "{lost}: {}", own.0.display());
        }
    }
}

#[test]
fn what_cannot_be_judged_is_refused() {
    let place = Sandbox::new(SPEC);
    let refused = |more: &[&str]| -> Vec<String> {
        let ended: Ended =
            place.runner(&[&["check", "spec.toml", "optimizer.adam.lr=0.1,0.2", STOP], more].concat());
        assert_eq!(ended.code, Some(2), "{ended:?}");
        ended
            .stderr
            .lines()
            .filter(|line| line.starts_with("error") || line.contains("hint"))
            .map(str::to_owned)
            .collect()
    };
    insta::assert_debug_snapshot!(refused(&["sweep.repeats=2", "sweep.repeat_seeds=false"]), @r#"
    [
        "error: `sweep.stop`: successive halving judges single trials",
        "  = hint: leave `repeats` out, and repeat the best trial afterwards",
    ]
    "#);
    insta::assert_debug_snapshot!(refused(&["trainer.validate_every_epochs=2"]), @r#"
    [
        "error: `sweep.stop`: no validation stands at epoch 1",
        "  = hint: set `trainer.validate_every_epochs = 1`",
    ]
    "#);
    insta::assert_debug_snapshot!(refused(&["seed=0..3"]), @r#"
    [
        "error: successive halving cannot judge the axis `seed`: seeds of one point would compete",
        "  = hint: give it one value, and repeat the best trial afterwards",
    ]
    "#);
    insta::assert_debug_snapshot!(refused(&["data.synthetic_regression.validation_rows=0"]), @r#"
    [
        "error: `sweep.stop`: trials have no rows to validate on",
        "  = hint: set aside some, such as `validation_fraction = 0.2`",
    ]
    "#);
}
