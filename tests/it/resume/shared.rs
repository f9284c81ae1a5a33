//! Several processes run one sweep: each trial runs once, one that dies is replaced, and the table is complete at the end.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::{Child, Stdio},
};

use runner::record::{Claim, Claims};

use super::{
    super::{
        ends::{quiet, send, wait_until, wait_until_open},
        process::{Ended, Folder, Sandbox, Table},
    },
    SPEC, copy,
    halving::rungs,
    sweeps::{are_equal, statuses, trials},
};

const GRID: [&str; 3] = ["optimizer.adam.lr=0.01,0.1,0.02,0.03", "seed=0..3", "trainer.max_epochs=120"];

/// Starts a sweep, and processes that join it.
pub fn start(place: &Sandbox, arguments: &[&str], others: usize) -> (Vec<Child>, Folder) {
    let (command, runs) = place.prepared(arguments);
    let mut children = vec![quiet(command)];
    wait_until(&mut children[0], || {
        Folder::within(&runs).is_some_and(|sweep| sweep.0.join("sweep.csv").exists())
    });
    let sweep = Folder::within(&runs).unwrap();
    let join = ["run", "-q", "--resume", sweep.0.to_str().unwrap()];
    children.extend((0..others).map(|_| quiet(place.command(&join))));
    (children, sweep)
}

/// How many trials each process ran. None ran in two, and except for `begun_twice` none was started twice.
fn shares(sweep: &Path, begun_twice: usize) -> BTreeMap<String, usize> {
    let mut shares = BTreeMap::new();
    let mut again = 0;
    for trial in trials(sweep) {
        let command = trial.text("environment.toml");
        let command = command.lines().find(|line| line.starts_with("command")).unwrap();
        *shares
            .entry(if command.contains("--resume") { "joined" } else { "first" }.to_owned())
            .or_default() += 1;
        again += usize::from(trial.0.join("earlier").exists());
    }
    assert!(again <= begun_twice, "{again} trials ran twice");
    shares
}

#[test]
fn processes_divide_the_trials() {
    let place = Sandbox::new(SPEC);
    let whole = place.run(&GRID).ended_by(0).0;
    let (children, sweep) = start(&place, &GRID, 2);
    for mut child in children {
        assert_eq!(child.wait().unwrap().code(), Some(0));
    }
    assert_eq!(statuses(&sweep.0), ["finished"; 12]);
    are_equal(&sweep.0, &whole);
    let shares = shares(&sweep.0, 0);
    assert!(shares["first"] > 0 && shares["joined"] > 0, "{shares:?}");
    let tables =
        [&sweep.0, &whole].map(|sweep| Table::read(&fs::read_to_string(sweep.join("sweep.csv")).unwrap()));
    for column in ["trial", "folder", "reason", "best_value", "final_validation_loss"] {
        assert_eq!(tables[0].column(column), tables[1].column(column));
    }
    let folders = fs::read_dir(&sweep.0).unwrap().flatten().filter(|entry| entry.path().is_dir()).count();
    assert_eq!(folders, 12);
}

#[test]
fn two_that_begin_at_once_share_one_folder() {
    let place = Sandbox::new(SPEC);
    let both = [&["spec.toml", "--resume=auto", "--runs-dir=both"], &GRID[..]].concat();
    let runs = place.path().join("both");
    fs::create_dir(&runs).unwrap();
    // Both processes must wait for the lock of the runs folder before either creates a sweep.
    let lock = fs::File::open(&runs).unwrap();
    lock.lock().unwrap();
    let mut children = [0, 1].map(|_| quiet(place.command(&both)));
    children.iter_mut().for_each(|child| wait_until_open(child, &runs));
    drop(lock);
    for mut child in children {
        assert_eq!(child.wait().unwrap().code(), Some(0));
    }
    let sweep = Folder::within(&place.path().join("both")).expect("one folder");
    assert_eq!(statuses(&sweep.0), ["finished"; 12]);
}

/// Its claims are released at once, and another process takes over the trial that it had started.
#[test]
fn a_process_that_is_killed_is_replaced() {
    let place = Sandbox::new(SPEC);
    let long = ["optimizer.adam.lr=0.01,0.1,0.02,0.03", "seed=0..3", "trainer.max_epochs=400"];
    let whole = place.run(&long).ended_by(0).0;
    let (mut children, sweep) = start(&place, &long, 2);
    wait_until(&mut children[2], || {
        statuses(&sweep.0).iter().any(|status| status == "finished") || trials_begun(&sweep.0) > 3
    });
    children[0].kill().unwrap();
    for (place, child) in children.iter_mut().enumerate() {
        assert_eq!(child.wait().unwrap().code(), if place == 0 { None } else { Some(0) });
    }
    assert_eq!(statuses(&sweep.0), ["finished"; 12]);
    are_equal(&sweep.0, &whole);
    shares(&sweep.0, 1);
}

pub fn trials_begun(sweep: &Path) -> usize {
    fs::read_dir(sweep).unwrap().flatten().filter(|entry| entry.path().is_dir()).count()
}

/// Each process writes its own rows, so a reason outlives the process that found it.
#[test]
fn reasons_of_other_processes_are_kept() {
    let place = Sandbox::new(SPEC);
    let diverging = ["optimizer.adam.lr=0.01,1e30,0.02,1e29", "seed=0..2", "trainer.max_epochs=120"];
    let reasons = |sweep: &Path| {
        let table = Table::read(&fs::read_to_string(sweep.join("sweep.csv")).unwrap());
        table.column("reason").iter().map(|&reason| reason.to_owned()).collect::<Vec<_>>()
    };
    let whole = place.run(&diverging).ended_by(1).0;
    let (children, sweep) = start(&place, &diverging, 1);
    children.into_iter().for_each(|mut child| assert!(child.wait().is_ok()));
    assert_eq!(statuses(&sweep.0), statuses(&whole));
    assert_eq!(reasons(&sweep.0), reasons(&whole));
    assert_eq!(reasons(&sweep.0).iter().filter(|reason| !reason.is_empty()).count(), 4);
}

/// A trial on other data appears while a sweep is running, as if started by another process just then.
#[test]
fn processes_on_other_data_are_not_mixed() {
    let spec = "[data.csv]\npath = \"a.csv\"\ntarget = \"y\"\n[model]\nlayers = [{ linear = { out_features = 1 } }]\n\
                [optimizer.sgd]\nlr = 0.001\n[trainer]\nmax_epochs = 2\n";
    let place = Sandbox::new(spec);
    let rows = |slope: u32| (0..50).map(|x| format!("{x},{}\n", slope * x % 7)).collect::<String>();
    let write = |slope| fs::write(place.path().join("a.csv"), format!("x,y\n{}", rows(slope))).unwrap();
    let arguments = ["trainer.max_epochs=20000,2,3"];
    write(3);
    let other = place.run(&["trainer.max_epochs=3,2,4"]).ended_by(0).0;
    write(2);
    let (mut command, runs) = place.prepared(&arguments);
    command.stderr(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    wait_until(&mut child, || {
        Folder::within(&runs).is_some_and(|sweep| sweep.0.join("000-max_epochs=20000/metrics.csv").exists())
    });
    let sweep = Folder::within(&runs).unwrap().0;
    let joined = Claims::new(&sweep, true, || false).unwrap().unwrap();
    assert_eq!(joined.claim(1).unwrap(), Claim::New);
    copy(&trials(&other)[1].0, &sweep.join("001-max_epochs=2"));
    drop(joined);
    let ended = Ended::from_output(child.wait_with_output().unwrap()).ended_by(2);
    assert!(ended.stderr.contains("error: the data are not those that"), "{ended:?}");
    assert_eq!(statuses(&sweep), ["finished", "finished", "skipped"]);
}

/// A trial that another process runs right now counts neither as finished nor as skipped.
#[test]
fn one_that_leaves_early_says_what_goes_on() {
    let place = Sandbox::new(SPEC);
    let long = ["optimizer.adam.lr=0.01,0.02,0.03", "trainer.max_epochs=10000000"];
    let (mut command, runs) = place.prepared(&long);
    let mut first = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let begun = |trial: &str| {
        let sweep = Folder::within(&runs).map(|sweep| sweep.0);
        sweep.is_some_and(|sweep| sweep.join(trial).join("metrics.csv").exists())
    };
    wait_until(&mut first, || begun("000-lr=.01"));
    let sweep = Folder::within(&runs).unwrap().0;
    let join = ["run", "--resume", sweep.to_str().unwrap()];
    let mut second = place.command(&join);
    let mut second = second.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until(&mut second, || begun("001-lr=.02"));
    send("-INT", &first);
    let ended = Ended::from_output(first.wait_with_output().unwrap()).ended_by(130);
    let head: Vec<&str> = ended.stdout.lines().take(2).collect();
    let expected = [
        "spec: 3 trials, 1 interrupted, 1 running, 1 planned",
        "  other processes go on, with 1 trial running: this is of what has ended",
    ];
    assert_eq!(head, expected, "{}", ended.stdout);
    assert_eq!(statuses(&sweep), ["interrupted", "planned", "planned"]);
    send("-INT", &second);
    let ended = Ended::from_output(second.wait_with_output().unwrap()).ended_by(130);
    assert!(ended.stdout.starts_with("spec: 3 trials, 2 interrupted, 1 planned\n\n"), "{}", ended.stdout);
}

pub const HALVING: [&str; 3] = [
    "optimizer.adam.lr=logspace(1e-4, 1, 9)",
    "trainer.max_epochs=540",
    "sweep.stop={ asha = { min_epochs = 60, factor = 3 } }",
];

/// Waits for all processes; kills the first one once more than `kill_after` trials have begun.
fn all_end(children: &mut [Child], kill_after: Option<usize>, sweep: &Path) {
    if let Some(trials) = kill_after {
        wait_until(&mut children[2], || trials_begun(sweep) > trials);
        children[0].kill().unwrap();
    }
    for (place, child) in children.iter_mut().enumerate() {
        let code = child.wait().unwrap().code();
        assert_eq!(code, if kill_after.is_some() && place == 0 { None } else { Some(0) });
    }
}

/// Trials are judged in one order, whichever process runs them.
#[test]
fn a_finished_trial_whose_folder_is_gone_is_run_again() {
    let place = Sandbox::new(SPEC);
    let (mut children, sweep) = start(&place, &GRID, 0);
    // This process takes the last trial, leaves no folder, and ends.
    let claims = Claims::new(&sweep.0, true, || false).unwrap().unwrap();
    assert_eq!(claims.claim(11).unwrap(), Claim::New);
    claims.finish(11).unwrap();
    drop(claims);
    assert_eq!(children[0].wait().unwrap().code(), Some(0));
    assert_eq!(statuses(&sweep.0), ["finished"; 12]);
    assert_eq!(trials(&sweep.0).len(), 12);
}

#[test]
fn processes_divide_the_rungs() {
    let place = Sandbox::new(SPEC);
    let whole = place.run(&HALVING).ended_by(0).0;
    for kills in [false, true] {
        let (mut children, sweep) = start(&place, &HALVING, 2);
        all_end(&mut children, kills.then_some(3), &sweep.0);
        assert_eq!(rungs(&sweep.0), rungs(&whole));
        assert_eq!(statuses(&sweep.0), statuses(&whole));
        are_equal(&sweep.0, &whole);
        let tables = [&sweep.0, &whole]
            .map(|sweep| Table::read(&fs::read_to_string(sweep.join("sweep.csv")).unwrap()));
        for column in ["trial", "folder", "reason", "epochs", "best_value"] {
            assert_eq!(tables[0].column(column), tables[1].column(column), "{column}");
        }
    }
}

/// Each trial is drawn once, from what all processes have learned.
#[test]
fn processes_divide_the_draws() {
    let place = Sandbox::new(SPEC);
    let space = [
        "sweep.sampler=tpe",
        "sweep.trials=24",
        "optimizer.adam.lr=loguniform(1e-4, 1)",
        "data.batch_size=int(4, 64)",
        "trainer.max_epochs=120",
    ];
    for kills in [false, true] {
        let (mut children, sweep) = start(&place, &space, 2);
        all_end(&mut children, kills.then_some(14), &sweep.0);
        assert_eq!(statuses(&sweep.0), ["finished"; 24]);
        let table = fs::read_to_string(sweep.0.join("sweep.csv")).unwrap();
        let table = Table::read(&table);
        let drawn = fs::read_to_string(sweep.0.join("points.csv")).unwrap();
        let drawn = Table::read(&drawn);
        let column = |table: &Table, name: &str| -> Vec<String> {
            table.column(name).iter().map(|cell| (*cell).to_owned()).collect()
        };
        for key in ["optimizer.adam.lr", "data.batch_size"] {
            assert_eq!(column(&table, key)[10..], column(&drawn, key), "{key}");
        }
        // All values differ, so no process drew a trial without the others' results.
        let mut values = column(&table, "optimizer.adam.lr");
        values.sort();
        values.dedup();
        assert_eq!(values.len(), 24);
        shares(&sweep.0, usize::from(kills));
    }
}
