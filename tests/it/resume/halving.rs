//! Successive halving: trials stop at rungs, and those that go on are what they would be alone.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::Stdio,
};

use runner::record::{Claim, Claims};

use super::{
    super::{
        ends::{quiet, send, wait_until},
        process::{Ended, Folder, Sandbox},
    },
    SPEC,
    draws::cut,
    result,
    sweeps::{statuses, trials},
};

const GRID: [&str; 3] = [
    "optimizer.adam.lr=logspace(1e-4, 1, 9)",
    "trainer.max_epochs=9",
    "data.synthetic_regression.train_rows=3000",
];

pub const STOP: &str = "sweep.stop={ asha = { min_epochs = 1, factor = 3 } }";

/// The rows of `rungs.csv`, sorted: trials are judged in one order at each rung, but one rung may be ahead of another.
pub fn rungs(sweep: &Path) -> Vec<String> {
    let text = fs::read_to_string(sweep.join("rungs.csv")).unwrap_or_default();
    let mut rows: Vec<String> = text.lines().map(str::to_owned).collect();
    rows.sort();
    rows
}

/// The validation loss of a trial after each epoch.
fn losses(trial: &Folder) -> Vec<f64> {
    let metrics = trial.table("metrics.csv");
    let rows = metrics.column("split").into_iter().zip(metrics.column("loss"));
    rows.filter(|(split, _)| *split == "validation").map(|(_, loss)| loss.parse().unwrap()).collect()
}

/// The trials that came to the first rung, in the order in which they were judged.
fn order(sweep: &Path) -> Vec<usize> {
    let text = fs::read_to_string(sweep.join("rungs.csv")).unwrap();
    let rows: Vec<Vec<&str>> = text.lines().skip(1).map(|row| row.split(',').collect()).collect();
    rows.iter().filter(|row| row[0] == rows[0][0]).map(|row| row[1].parse().unwrap()).collect()
}

/// How long each trial trains, and why not longer, from the losses of trials that train to their end.
fn expected(whole: &[Folder], order: &[usize]) -> Vec<(u64, String)> {
    let losses: Vec<Vec<f64>> = whole.iter().map(losses).collect();
    let mut judged: [Vec<f64>; 2] = Default::default();
    let mut one = |losses: &Vec<f64>| {
        for (rung, (epochs, words)) in [(1, "1 epoch"), (3, "3 epochs")].into_iter().enumerate() {
            let loss = losses[epochs - 1];
            let as_good = judged[rung].iter().filter(|other| **other <= loss).count();
            judged[rung].push(loss);
            let count = judged[rung].len();
            let best = (count / 3).max(1);
            if as_good >= best {
                return (epochs as u64, format!("not among the best {best} of {count} after {words}"));
            }
        }
        (9, String::new())
    };
    let mut expected = vec![Default::default(); whole.len()];
    order.iter().for_each(|&trial| expected[trial] = one(&losses[trial]));
    expected
}

#[test]
fn trials_that_go_on_are_what_they_are_alone() {
    let place = Sandbox::new(SPEC);
    let whole = place.run(&GRID).ended_by(0).0;
    let ran = place.run(&[&GRID[..], &[STOP]].concat());
    let halved = ran.ended_by(0).0;
    let order = order(&halved);
    assert!(order.len() == 9 && !order.is_sorted(), "{order:?}");
    let expected = expected(&trials(&whole), &order);
    let own = trials(&halved);
    let epochs = own.iter().map(|trial| trial.summary("epochs").parse().unwrap());
    let reasons = Folder(halved.clone()).table("sweep.csv");
    let reasons = reasons.column("reason").into_iter().map(str::to_owned);
    assert_eq!(epochs.zip(reasons).collect::<Vec<(u64, String)>>(), expected);
    let finished = expected.iter().filter(|(epochs, _)| *epochs == 9).count();
    assert!((1..6).contains(&finished), "{expected:?}");
    let head = ran.ended.stdout.lines().next().unwrap();
    for words in [format!("{} stopped", 9 - finished), format!("{finished} finished")] {
        assert!(head.starts_with("spec: 9 trials, ") && head.contains(&words), "{head}");
    }
    let taken: u64 = expected.iter().map(|(epochs, _)| epochs).sum();
    assert_eq!(ran.ended.stderr, format!("successive halving ran {taken} of 81 epochs\n"));
    for ((own, whole), (epochs, _)) in own.iter().zip(&trials(&whole)).zip(&expected) {
        if *epochs == 9 {
            assert!(result(own) == result(whole), "{}", own.0.display());
        } else {
            assert!(whole.numbers().starts_with(own.numbers().trim_end()), "{}", own.0.display());
            assert_eq!(own.summary("status"), "stopped");
        }
    }
    // A trial that is stopped at the first epoch is judged once; the time for that is none of training.
    let (first, _) = own.iter().zip(&expected).find(|(_, (epochs, _))| *epochs == 1).unwrap();
    let timing = |phase: &str| first.table("timing.csv").only("phase", phase);
    let seconds = |phase: &str| timing(phase).f64s("total_s").iter().sum::<f64>();
    assert_eq!(timing("rung").column("count"), ["1"]);
    let train_s: f64 = first.summary("train_s").parse().unwrap();
    assert!(train_s <= seconds("total") - seconds("rung") - seconds("validation") + 1e-6);
    // Side by side it is the same choice, and one that was stopped goes on by itself.
    let beside = place.run(&[&GRID[..], &[STOP, "-q", "--jobs=3"]].concat()).ended_by(0).0;
    assert_eq!(rungs(&beside), rungs(&halved));
    // The claims to all trials have ended: to those that were stopped, too.
    assert_eq!([&halved, &beside].map(|sweep| fs::read(sweep.join(".claims")).unwrap()), [[2; 9]; 2]);
    let stopped = expected.iter().position(|(epochs, _)| *epochs < 9).unwrap();
    let folder = &trials(&beside)[stopped];
    place.runner(&["run", "-q", "--resume", folder.0.to_str().unwrap()]).ended_by(0);
    assert!(result(folder) == result(&trials(&whole)[stopped]));
}

/// Whether it was killed before a rung, after it, or interrupted by a signal.
#[test]
fn a_cut_sweep_makes_the_same_choice() {
    let place = Sandbox::new(SPEC);
    let arguments = [&GRID[..], &[STOP, "-q"]].concat();
    let whole = place.run(&arguments).ended_by(0).0;
    for (signal, file) in [("-KILL", "004"), ("-INT", "008"), ("-KILL", "rungs.csv"), ("-INT", "rungs.csv")] {
        let sweep = cut(&place, &arguments, signal, file);
        if statuses(&sweep) == statuses(&whole) {
            continue; // the signal came after the end
        }
        // A kill of the machine may cut a line short, where one is to come.
        if rungs(&sweep) != rungs(&whole) {
            let file = fs::OpenOptions::new().append(true).open(sweep.join("rungs.csv"));
            file.and_then(|mut file| file.write_all(b"1,8,0.")).unwrap();
        }
        let ended = place.runner(&["run", "-q", "--resume", sweep.to_str().unwrap()]);
        assert_eq!(ended.code, Some(0), "{signal}: {ended:?}");
        assert_eq!(rungs(&sweep), rungs(&whole), "{signal}");
        assert_eq!(statuses(&sweep), statuses(&whole), "{signal}");
        for (own, whole) in trials(&sweep).iter().zip(&trials(&whole)) {
            assert!(result(own) == result(whole), "{signal}: {}", own.0.display());
        }
    }
}

/// After a kill right after a trial was judged, the table has no reason yet. Trials that were skipped or failed are judged
/// when they run.
#[test]
fn trials_that_come_late_are_judged_late() {
    let place = Sandbox::new(SPEC);
    let grid = ["devices.num_gpus=0,2", "optimizer.adam.lr=logspace(1e-4, 1, 4)", "devices.on_missing=error"];
    let arguments = [&grid[..], &[STOP, "-q"]].concat();
    let whole = place.run(&[&arguments[..], &["--virtual-gpus=2"]].concat()).ended_by(0).0;
    let ran = place.run(&[&arguments[..], &["--virtual-gpus=1"]].concat());
    assert_eq!(ran.ended.code, Some(3), "{:?}", ran.ended);
    let sweep = Folder::within(&ran.runs).unwrap().0;
    assert_eq!(statuses(&sweep)[4..], ["skipped"; 4]);
    let path = sweep.join("sweep.csv");
    let table = fs::read_to_string(&path).unwrap();
    let reasons = Folder(sweep.clone()).table("sweep.csv");
    let reasons: Vec<&str> =
        reasons.column("reason").into_iter().filter(|why| why.contains("best")).collect();
    assert!(!reasons.is_empty());
    fs::write(&path, reasons.iter().fold(table.clone(), |text, why| text.replace(why, ""))).unwrap();
    let resumed = |gpus: &str, code| {
        let ended = place.runner(&["run", "-q", gpus, "--resume", sweep.to_str().unwrap()]);
        assert_eq!(ended.code, Some(code), "{ended:?}");
    };
    resumed("--virtual-gpus=1", 3);
    assert_eq!(fs::read_to_string(&path).unwrap(), table);
    resumed("--virtual-gpus=2", 0);
    assert_eq!((rungs(&sweep), statuses(&sweep)), (rungs(&whole), statuses(&whole)));
    let stopped = statuses(&sweep).iter().position(|status| status == "stopped").unwrap();
    let summary = trials(&sweep)[stopped].0.join("summary.csv");
    let text = fs::read_to_string(&summary).unwrap();
    fs::write(&summary, text.replace("stopped", "failed")).unwrap();
    let file = sweep.join("rungs.csv");
    let rows = fs::read_to_string(&file).unwrap();
    let row = rows.lines().find(|row| row.starts_with(&format!("1,{stopped},"))).unwrap();
    fs::write(&file, rows.replace(row, &format!("1,{stopped},,false"))).unwrap();
    resumed("--virtual-gpus=2", 0);
    assert_eq!(statuses(&sweep), statuses(&whole));
    assert_eq!(fs::read_to_string(&file).unwrap().lines().last(), Some(row));
}

/// If somebody removes a trial's folder after its rung, the trial runs to its rung again.
#[test]
fn a_trial_whose_folder_is_gone_begins_again() {
    let place = Sandbox::new(SPEC);
    let sweep = place.run(&[&GRID[..], &[STOP, "-q"]].concat()).ended_by(0).0;
    let text = || fs::read_to_string(sweep.join("rungs.csv")).unwrap();
    let (before, rungs) = (statuses(&sweep), text());
    let lost: Vec<usize> = (0..9).filter(|&trial| before[trial] == "stopped").collect();
    let results: Vec<_> = lost.iter().map(|&trial| result(&trials(&sweep)[trial])).collect();
    lost.iter().for_each(|&trial| fs::remove_dir_all(&trials(&sweep)[trial].0).unwrap());
    let ended = place.runner(&["run", "--resume", sweep.to_str().unwrap()]).ended_by(0);
    let warned =
        lost.iter().map(|trial| format!("warning: trial {trial}: begins again, since its folder is gone\n"));
    let said = [warned.collect(), format!("{} of 9 trials left to run\n", lost.len())];
    assert!(said.iter().all(|said| ended.stderr.contains(said)), "{}", ended.stderr);
    assert_eq!((statuses(&sweep), text()), (before, rungs));
    assert!(lost.iter().map(|&trial| result(&trials(&sweep)[trial])).collect::<Vec<_>>() == results);
}

#[test]
fn a_folder_that_goes_while_the_sweep_runs_begins_again() {
    let place = Sandbox::new(SPEC);
    // Epochs that are long enough for the folder to go within one.
    let arguments = [&GRID[..2], &["data.synthetic_regression.train_rows=30000", STOP]].concat();
    let whole = place.run(&arguments).ended_by(0).0;
    let (mut command, runs) = place.prepared(&arguments);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let first = order(&whole)[0];
    let name = trials(&whole)[first].0.file_name().unwrap().to_owned();
    let folder = || Some(Folder::within(&runs)?.0.join(&name));
    wait_until(&mut child, || {
        let text = folder().and_then(|folder| fs::read_to_string(folder.join("metrics.csv")).ok());
        text.is_some_and(|text| text.contains("\n1,"))
    });
    send("-STOP", &child);
    fs::remove_dir_all(folder().unwrap()).unwrap();
    send("-CONT", &child);
    let ended = Ended::from_output(child.wait_with_output().unwrap()).ended_by(0);
    let said = format!("trial {first}: begins again, since its folder is gone\n");
    assert!(ended.stderr.contains(&said), "{ended:?}");
    let sweep = Folder::within(&runs).unwrap().0;
    assert_eq!(statuses(&sweep), statuses(&whole));
    assert!(result(&trials(&sweep)[first]) == result(&trials(&whole)[first]));
}

/// A sweep that ran, and the same again up to where all trials but one wait at their first rung, because another process has
/// claimed the one that is judged first; a signal ends it there. Returns that trial, too.
pub fn ended_at_a_rung(place: &Sandbox, arguments: &[&str], signal: &str) -> ([PathBuf; 2], usize) {
    let [whole, sweep] = [0; 2].map(|_| place.run(arguments).ended_by(0).0);
    trials(&sweep).iter().for_each(|trial| fs::remove_dir_all(&trial.0).unwrap());
    fs::remove_file(sweep.join("rungs.csv")).unwrap();
    let other = Claims::new(&sweep, true, || false).unwrap().unwrap();
    let first = order(&whole)[0];
    assert!(other.claim(first).unwrap() == Claim::New && other.go_on().unwrap());
    let mut child = quiet(place.command(&["run", "-q", "--resume", sweep.to_str().unwrap()]));
    wait_until(&mut child, || waiting(&sweep) == 8);
    send(signal, &child);
    child.wait().unwrap();
    ([whole, sweep], first)
}

/// How many trials wait at a rung.
fn waiting(sweep: &Path) -> usize {
    let waits = |trial: fs::DirEntry| {
        fs::read_to_string(trial.path().join("summary.csv")).is_ok_and(|text| text.contains(",waiting,"))
    };
    fs::read_dir(sweep).unwrap().flatten().map(waits).filter(|waits| *waits).count()
}

/// Of three processes one dies, and all trials wait for its trial: another takes it over, although the third has more of them.
#[test]
fn the_trial_that_others_wait_for_is_taken_over() {
    let place = Sandbox::new(SPEC);
    let [whole, sweep] = [0; 2].map(|_| place.run(&[&GRID[..], &[STOP, "-q"]].concat()).ended_by(0).0);
    trials(&sweep).iter().for_each(|trial| fs::remove_dir_all(&trial.0).unwrap());
    fs::remove_file(sweep.join("rungs.csv")).unwrap();
    let first = order(&whole)[0];
    let dies = Claims::new(&sweep, true, || false).unwrap().unwrap();
    assert!(dies.claim(first).unwrap() == Claim::New && dies.go_on().unwrap());
    let lives = Claims::new(&sweep, true, || false).unwrap().unwrap();
    (0..first).for_each(|trial| assert_eq!(lives.claim(trial).unwrap(), Claim::New));
    let mut child = quiet(place.command(&["run", "-q", "--resume", sweep.to_str().unwrap()]));
    wait_until(&mut child, || waiting(&sweep) == 8 - first);
    drop(dies);
    wait_until(&mut child, || rungs(&sweep).iter().any(|row| row.starts_with(&format!("1,{first},"))));
    drop(lives);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!((rungs(&sweep), statuses(&sweep)), (rungs(&whole), statuses(&whole)));
}

/// Resumed alone, a trial would run past its rung, and would not be judged.
#[test]
fn a_trial_that_waits_goes_on_with_its_sweep() {
    let place = Sandbox::new(SPEC);
    let ([whole, sweep], first) = ended_at_a_rung(&place, &[&GRID[..], &[STOP, "-q"]].concat(), "-INT");
    // Nobody has judged yet whether it continues.
    let mut own = statuses(&sweep);
    own.remove(first);
    assert_eq!(own, ["waiting"; 8]);
    let compared = place.runner(&["compare", sweep.to_str().unwrap()]).stdout;
    assert!(compared.contains(" waiting (#"), "{compared}");
    let shown = place.runner(&["show", sweep.to_str().unwrap()]).stdout;
    let hint = format!("\n  resume with: runner run --resume {}\n", sweep.display());
    assert!(shown.contains(&hint), "{shown}");
    let second = trials(&sweep).swap_remove(usize::from(first == 0));
    let ended = place.runner(&["run", "-q", "--resume", second.0.to_str().unwrap()]);
    let expected = "error: a trial that waits at a rung of successive halving goes on with its sweep\n  = hint: name the \
                    folder of the sweep\n";
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(2), expected));
    // The same under another name of the folder.
    let renamed = sweep.with_file_name("learning-rates");
    fs::rename(&sweep, &renamed).unwrap();
    let resume = || place.runner(&["run", "-q", "--resume", renamed.to_str().unwrap()]);
    assert_eq!(resume().code, Some(0));
    assert_eq!(rungs(&renamed), rungs(&whole));
    let own: Vec<String> = trials(&renamed).iter().map(|trial| trial.summary("status")).collect();
    assert_eq!((&own, statuses(&renamed)), (&statuses(&renamed), statuses(&whole)));
    for (own, whole) in trials(&renamed).iter().zip(&trials(&whole)) {
        assert!(result(own) == result(whole), "{}", own.0.display());
    }
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
    let warned =
        |more: &[&str]| place.runner(&[&["check", "spec.toml", GRID[0], GRID[1]], more].concat()).stderr;
    let expected = "warning: all trials: no trial stops early: `sweep.stop` judges first after 9 epochs, and there are 9 epochs\n";
    assert_eq!(warned(&["sweep.stop.asha.min_epochs=9"]), expected);
    assert_eq!(warned(&[STOP]), "");
}

/// What the trials wrote at the rung where they wait had not reached the disk.
#[test]
fn trials_that_a_loss_of_power_took_begin_again() {
    let place = Sandbox::new(SPEC);
    for lost in ["safetensors", "toml", "metrics.csv"] {
        let ([whole, sweep], first) = ended_at_a_rung(&place, &[&GRID[..], &[STOP, "-q"]].concat(), "-KILL");
        let mut waited = trials(&whole);
        waited.remove(first);
        let folders = waited.into_iter().map(|trial| sweep.join(trial.0.file_name().unwrap()));
        let folders = folders.flat_map(|folder| [folder.join("checkpoints"), folder]);
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
            assert!(result(own) == result(whole), "{lost}: {}", own.0.display());
        }
    }
}
