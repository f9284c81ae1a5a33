//! Several processes run one sweep: each trial runs once, one that dies is replaced, and the table is complete at the end.

use std::{collections::BTreeMap, fs, path::Path, process::Child};

use super::{
    super::{
        ends::{quiet, wait_until},
        process::{Ended, Folder, Sandbox, Table},
    },
    SPEC, copy,
    sweeps::{are_equal, statuses, trials},
};

const GRID: [&str; 3] = ["optimizer.adam.lr=0.01,0.1,0.02,0.03", "seed=0..3", "trainer.max_epochs=120"];

/// Starts a sweep, and processes that join it.
fn start(place: &Sandbox, arguments: &[&str], others: usize) -> (Vec<Child>, Folder) {
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

/// How often each process ran trials; none ran in two, and none began twice.
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
    for mut child in [0, 1].map(|_| quiet(place.command(&both))) {
        assert_eq!(child.wait().unwrap().code(), Some(0));
    }
    let sweep = Folder::within(&place.path().join("both")).expect("one folder");
    assert_eq!(statuses(&sweep.0), ["finished"; 12]);
}

/// Its claims are free at once, and another process takes the trial that it had begun.
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

fn trials_begun(sweep: &Path) -> usize {
    fs::read_dir(sweep).unwrap().flatten().filter(|entry| entry.path().is_dir()).count()
}

/// Each writes its own rows, so a reason outlives the process that knew it.
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

/// A trial on other data appears while a sweep is under way, as from a process that began at that moment.
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
    copy(&trials(&other)[1].0, &sweep.join("001-max_epochs=2"));
    let ended = Ended::from_output(child.wait_with_output().unwrap());
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("error: the data are not those that"), "{ended:?}");
    assert_eq!(statuses(&sweep), ["finished", "finished", "skipped"]);
}

/// The rungs are decided by one process.
#[test]
fn successive_halving_is_not_shared() {
    let place = Sandbox::new(SPEC);
    let halving = [
        "optimizer.adam.lr=0.01,0.1,0.02,0.03",
        "trainer.max_epochs=1000000",
        "sweep.stop={ asha = { min_epochs = 500000, factor = 2 } }",
    ];
    let (mut children, sweep) = start(&place, &halving, 0);
    let ended = place.runner(&["run", "--resume", sweep.0.to_str().unwrap()]);
    children[0].kill().unwrap();
    children[0].wait().unwrap();
    assert_eq!(ended.code, Some(2));
    assert!(ended.stderr.contains("is under way in another process"), "{}", ended.stderr);
}
