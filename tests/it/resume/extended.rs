//! Sweeps that are given more trials: those that they have keep their numbers, their folders and what they learned.

use std::{fs, path::Path};

use super::{
    super::{
        ends::{quiet, wait_until},
        process::{Ended, Folder, Sandbox, Table},
    },
    SPEC,
    halving::rungs,
    result,
    sweeps::{statuses, trials},
};

const TABLE: &str = r#"
data.csv = { path = "rows.csv", target = "y" }
model.layers = [{ linear = { out_features = 1 } }]
optimizer.sgd.lr = 1e-3
trainer.max_epochs = 2
"#;

fn column(sweep: &Path, name: &str) -> Vec<String> {
    let table = Table::read(&fs::read_to_string(sweep.join("sweep.csv")).unwrap());
    table.column(name).iter().map(|&cell| cell.to_owned()).collect()
}

fn resumed(place: &Sandbox, sweep: &Path, overrides: &[&str]) -> Ended {
    place.runner(&[&["run", "-q", "--resume", sweep.to_str().unwrap()], overrides].concat())
}

/// When each trial's summary was last written.
fn times(sweep: &Path) -> Vec<std::time::SystemTime> {
    let time = |trial: &Folder| fs::metadata(trial.0.join("summary.csv")).unwrap().modified().unwrap();
    trials(sweep).iter().map(time).collect()
}

/// What a refusal says, with the folder's name.
fn refused(place: &Sandbox, sweep: &Path, overrides: &[&str]) -> String {
    let before = (fs::read_to_string(sweep.join("sweep.toml")).unwrap(), times(sweep));
    let ended = resumed(place, sweep, overrides).ended_by(2);
    assert_eq!((fs::read_to_string(sweep.join("sweep.toml")).unwrap(), times(sweep)), before);
    ended.stderr.replace(sweep.to_str().unwrap(), "SWEEP")
}

#[test]
fn longer_axes_add_trials() {
    let place = Sandbox::new(SPEC);
    let sweep = place.run(&["optimizer.adam.lr=0.1,0.01"]).ended_by(0).0;
    let (folders, before) = (column(&sweep, "folder"), times(&sweep));
    resumed(&place, &sweep, &["optimizer.adam.lr=0.05,0.01,0.02,0.1"]).ended_by(0);
    assert_eq!(column(&sweep, "optimizer.adam.lr"), ["0.1", "0.01", "0.05", "0.02"]);
    assert_eq!(
        column(&sweep, "folder"),
        [&folders[..], &["002-lr=.05".into(), "003-lr=.02".into()]].concat()
    );
    assert_eq!((statuses(&sweep), &times(&sweep)[..2]), (vec!["finished".to_owned(); 4], &before[..]));
    // What is new learns what it learns in a sweep of its own.
    let whole = place.run(&["optimizer.adam.lr=0.1,0.01,0.05,0.02"]).ended_by(0).0;
    trials(&sweep).iter().zip(&trials(&whole)).for_each(|(own, whole)| assert!(result(own) == result(whole)));
    // It is known from now on, and may grow again.
    let before = times(&sweep);
    assert_eq!((resumed(&place, &sweep, &[]).code, times(&sweep)), (Some(0), before.clone()));
    assert_eq!(resumed(&place, &sweep, &["seed=0,1", "--jobs=2"]).code, Some(0));
    assert_eq!((statuses(&sweep).len(), &times(&sweep)[..4]), (8, &before[..]));
    assert_eq!(column(&sweep, "seed").concat(), "00001111");
    assert_eq!(column(&sweep, "optimizer.adam.lr")[4..], ["0.05", "0.01", "0.02", "0.1"]);
    // A trial that is lost is run again under its number.
    let lost = trials(&sweep).swap_remove(5);
    fs::remove_dir_all(&lost.0).unwrap();
    assert_eq!(resumed(&place, &sweep, &[]).code, Some(0));
    assert!(lost.0.join("summary.csv").exists());
    insta::assert_snapshot!(refused(&place, &sweep, &["optimizer.adam.lr=0.1,0.02,0.5"]), @r"
    error: trial 1 would be gone: `optimizer.adam.lr` = `0.01`, `seed` = `0` (and 3 more trials)
      = hint: a sweep that goes on keeps its trials, and takes more values of its axes or more `sweep.trials`; run the spec anew for others
    ");
    insta::assert_snapshot!(refused(&place, &sweep, &["trainer.max_epochs=7"]), @r"
    error: trial 0 would change: its `trainer.max_epochs` was 6, and would be 7 (and 7 more trials)
      = hint: a sweep that goes on keeps its trials, and takes more values of its axes or more `sweep.trials`; run the spec anew for others
    ");
    // The spec that it began with gives fewer.
    let runs = sweep.parent().unwrap().parent().unwrap().to_str().unwrap();
    let auto = ["run", "spec.toml", "optimizer.adam.lr=0.1,0.01", "--resume=auto", "--runs-dir", runs];
    let ended = place.runner(&auto);
    insta::assert_snapshot!(ended.stderr.replace(sweep.to_str().unwrap(), "SWEEP"), @r"
    error: `SWEEP` was given more trials than it had
      = hint: `runner run --resume` with that folder goes on with all of them
    ");
}

#[test]
fn a_sweep_goes_on_with_its_data_at_another_place() {
    let place = Sandbox::new(TABLE);
    let file = |name: &str| place.path().join(name);
    let write = |name: &str, slope: usize| {
        let rows: String = (0..40).map(|i| format!("{i},{}\n", slope * i)).collect();
        fs::write(file(name), format!("x,y\n{rows}")).unwrap();
    };
    write("rows.csv", 2);
    let sweep = place.run(&["optimizer.sgd.lr=1e-3,1e-4"]).ended_by(0).0;
    let lose = |trial: usize| fs::remove_dir_all(&trials(&sweep)[trial].0).unwrap();
    let (before, of_lost) = (times(&sweep)[0], result(&trials(&sweep)[1]));
    lose(1);
    ["elsewhere", "others"].into_iter().for_each(|folder| fs::create_dir(file(folder)).unwrap());
    fs::rename(file("rows.csv"), file("elsewhere/rows.csv")).unwrap();
    write("others/rows.csv", 3);
    let at = |name: &str| format!("data.csv.path={}", file(name).display());
    let ended = resumed(&place, &sweep, &[]);
    assert!(
        ended.code == Some(2) && ended.stderr.contains("`data.csv.path=PATH` names another file"),
        "{ended:?}"
    );
    let ended = resumed(&place, &sweep, &[&at("others/rows.csv")]);
    let other = "the data are not those that `TRIAL` was trained on";
    let own = ended.stderr.replace(trials(&sweep)[0].0.to_str().unwrap(), "TRIAL");
    assert!(ended.code == Some(2) && own.contains(other), "{own}");
    let ended = resumed(&place, &sweep, &[&at("elsewhere/rows.csv")]);
    assert_eq!((ended.code, times(&sweep)[0]), (Some(0), before), "{ended:?}");
    assert!(result(&trials(&sweep)[1]) == of_lost);
    // It knows where they are from now on.
    lose(1);
    assert_eq!(resumed(&place, &sweep, &["optimizer.sgd.lr=1e-3,1e-4,1e-5"]).code, Some(0));
    assert_eq!((statuses(&sweep), times(&sweep)[0]), (vec!["finished".to_owned(); 3], before));
}

#[test]
fn a_moved_project_goes_on() {
    let place = Sandbox::new(TABLE);
    let rows: String = (0..40).map(|i| format!("{i},{}\n", 2 * i)).collect();
    fs::write(place.path().join("rows.csv"), format!("x,y\n{rows}")).unwrap();
    let sweep = place.run(&["optimizer.sgd.lr=1e-3,1e-4"]).ended_by(0).0;
    let single = place.run(&["trainer.max_epochs=1", "checkpoint.every_epochs=1"]).ended_by(0).0;
    let of_lost = result(&trials(&sweep)[1]);
    fs::remove_dir_all(&trials(&sweep)[1].0).unwrap();
    let moved = place.path().join("moved");
    fs::create_dir(&moved).unwrap();
    fs::rename(place.path().join("rows.csv"), moved.join("rows.csv")).unwrap();
    let to = |folder: &Path| {
        let to = moved.join(folder.file_name().unwrap());
        fs::rename(folder, &to).unwrap();
        to
    };
    let [sweep, single] = [&sweep, &single].map(|folder| to(folder));
    let says = format!(
        "warning: the project was moved: `data.csv.path` is `{}` now\n",
        moved.join("rows.csv").display()
    );
    let ended = resumed(&place, &sweep, &[]);
    assert!(ended.code == Some(0) && ended.stderr.starts_with(&says), "{ended:?}");
    assert!(result(&trials(&sweep)[1]) == of_lost);
    let ended = resumed(&place, &sweep, &[]);
    assert_eq!((ended.code, &*ended.stderr), (Some(0), ""), "it is known from now on");
    let ended = resumed(&place, &single, &["trainer.max_epochs=2"]);
    assert!(ended.code == Some(0) && ended.stderr.contains(&says), "{ended:?}");
    assert_eq!(Folder(single).summary("epochs"), "2");
}

#[test]
fn samplers_draw_more_trials() {
    let place = Sandbox::new(SPEC);
    for (sampler, seeds) in [("sobol", "seed=0,1"), ("tpe", "seed=0")] {
        let sampler = format!("sweep.sampler={sampler}");
        let space = [&sampler, "optimizer.adam.lr=loguniform(1e-3, 1e-1)", "sweep.trials=12", seeds, "-q"];
        let sweep = place.run(&space).ended_by(0).0;
        let (before, lr) = (times(&sweep), column(&sweep, "optimizer.adam.lr"));
        resumed(&place, &sweep, &["sweep.trials=14"]).ended_by(0);
        let grown = column(&sweep, "optimizer.adam.lr");
        assert_eq!((&times(&sweep)[..lr.len()], &grown[..lr.len()]), (&before[..], &lr[..]));
        assert_eq!(statuses(&sweep), vec!["finished"; 14 * lr.len() / 12]);
        // More are the same as at once.
        let at_once = [&space[..2], &["sweep.trials=14", seeds, "-q"]].concat();
        let mut whole = column(&place.run(&at_once).ended_by(0).0, "optimizer.adam.lr");
        let mut grown = grown;
        whole.sort();
        grown.sort();
        assert_eq!(grown, whole, "{sampler}");
        let gone = format!("error: trial {} would be gone", 13 * lr.len() / 12);
        let said = refused(&place, &sweep, &["sweep.trials=13"]);
        assert!(said.starts_with(&gone), "{said}");
    }
}

#[test]
fn a_sweep_under_way_takes_no_more_trials() {
    let place = Sandbox::new(SPEC);
    let (command, runs) = place.prepared(&["optimizer.adam.lr=0.1,0.01", "trainer.max_epochs=1000000", "-q"]);
    let mut child = quiet(command);
    wait_until(&mut child, || {
        Folder::within(&runs).is_some_and(|sweep| sweep.0.join("000-lr=.1/metrics.csv").exists())
    });
    let sweep = Folder::within(&runs).unwrap().0;
    let ended = resumed(&place, &sweep, &["optimizer.adam.lr=0.1,0.01,0.02"]);
    child.kill().unwrap();
    child.wait().unwrap();
    insta::assert_snapshot!(ended.stderr.replace(sweep.to_str().unwrap(), "SWEEP"), @r"
    error: `SWEEP` is under way in another process, and takes more trials when that has ended
      = hint: wait for its end, or end it; without overrides this process joins it
    ");
    assert_eq!(ended.code, Some(2));
    assert!(!fs::read_to_string(sweep.join("sweep.toml")).unwrap().contains("0.02"));
}

/// A line that a kill cut short says nothing.
#[test]
fn a_line_that_is_cut_short_adds_nothing() {
    let place = Sandbox::new(SPEC);
    let sweep = place.run(&["optimizer.adam.lr=0.1,0.01", "-q"]).ended_by(0).0;
    let file = sweep.join("sweep.toml");
    let begun = fs::read_to_string(&file).unwrap();
    let longer = ["optimizer.adam.lr=0.1,0.01,0.02"];
    assert_eq!(resumed(&place, &sweep, &longer).code, Some(0));
    let whole = fs::read_to_string(&file).unwrap();
    for cut in [1, 4, 20] {
        fs::write(&file, &whole[..whole.len() - 1 - cut]).unwrap();
        fs::remove_dir_all(sweep.join("002-lr=.02")).unwrap();
        assert_eq!((resumed(&place, &sweep, &[]).code, statuses(&sweep).len()), (Some(0), 2), "{cut}");
        assert_eq!((resumed(&place, &sweep, &longer).code, statuses(&sweep).len()), (Some(0), 3), "{cut}");
        assert!(fs::read_to_string(&file).unwrap().starts_with(&begun));
    }
}

/// New trials are judged against those that were there; these stay as they are.
#[test]
fn successive_halving_takes_more_trials() {
    let place = Sandbox::new(SPEC);
    let stop = "sweep.stop={ asha = { min_epochs = 1, factor = 3 } }";
    let sweep = place.run(&["optimizer.adam.lr=0.02,0.1,0.01", stop, "-q"]).ended_by(0).0;
    let (before, judged) = (statuses(&sweep), rungs(&sweep));
    let all = "optimizer.adam.lr=0.02,0.1,0.01,0.05,1e-6,1e-7";
    assert_eq!(resumed(&place, &sweep, &[all]).code, Some(0));
    assert_eq!(statuses(&sweep)[..3], before);
    let rungs = rungs(&sweep);
    assert!(judged.iter().all(|row| rungs.contains(row)), "{rungs:?}");
    assert_eq!(rungs.iter().filter(|row| row.starts_with("1,")).count(), 6);
    insta::assert_snapshot!(refused(&place, &sweep, &["sweep.stop.asha.factor=2"]), @r"
    error: a sweep keeps its `sweep.stop`
      = hint: a sweep that goes on keeps its trials, and takes more values of its axes or more `sweep.trials`; run the spec anew for others
    ");
}

/// Trials are known by what they are, not only by their numbers: one that changed is not called finished.
#[test]
fn a_changed_file_takes_no_more_trials() {
    let place = Sandbox::new(SPEC);
    let sweep = place.run(&["optimizer.adam.lr=0.1,0.01", "-q"]).ended_by(0).0;
    let file = sweep.join("sweep.toml");
    let edit = |from: &str, to: &str| {
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.contains(from), "{text}");
        fs::write(&file, text.replacen(from, to, 1)).unwrap();
    };
    edit("0.01", "0.03");
    let changed = refused(&place, &sweep, &["optimizer.adam.lr=0.1,0.03,0.05"]);
    insta::assert_snapshot!(changed, @r"
    error: `SWEEP/sweep.toml` no longer gives the trials that it gave
      = hint: bring it back as it was, or run it anew: `runner run` with that file
    ");
    edit("0.03", "0.01");
    assert_eq!(resumed(&place, &sweep, &["optimizer.adam.lr=0.1,0.01,0.02"]).code, Some(0));
    // The same where it has been given more already.
    edit("max_epochs = 6", "max_epochs = 7");
    assert_eq!(refused(&place, &sweep, &[]), changed);
    assert_eq!(refused(&place, &sweep, &["optimizer.adam.lr=0.1,0.01,0.02,0.03"]), changed);
}

/// A word replaces an earlier one that sweeps the same key, however the two are written.
#[test]
fn a_word_replaces_earlier_ones() {
    let place = Sandbox::new(SPEC);
    let sweep = place.run(&["optimizer.adam.lr=0.1,0.01", "-q"]).ended_by(0).0;
    let table = "sweep={grid={seed=[0,1,2], 'optimizer.adam.lr'=[0.1,0.01,0.02]}}";
    for (word, trials) in [("seed=0,1", 4), ("sweep.grid.seed=0,1,2", 6), (table, 9)] {
        let ended = resumed(&place, &sweep, &[word]);
        assert_eq!((ended.code, statuses(&sweep).len()), (Some(0), trials), "{ended:?}");
    }
}
