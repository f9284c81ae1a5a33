//! Interrupted or killed sweeps continue with the trials that are not done; also with parallel trials.

use std::{fs, path::Path, thread, time::Duration};

use super::{
    super::{
        ends::{quiet, send, wait_until},
        process::{Ended, Folder, Sandbox, Table},
    },
    SPEC, result,
};

const GRID: [&str; 3] = ["optimizer.adam.lr=0.01,0.1,0.02", "sweep.repeats=2", "trainer.max_epochs=400"];

/// The folders of a sweep's trials, by number.
pub fn trials(sweep: &Path) -> Vec<Folder> {
    let table = Table::read(&fs::read_to_string(sweep.join("sweep.csv")).unwrap());
    table.column("folder").iter().map(|name| Folder(sweep.join(name))).collect()
}

pub fn statuses(sweep: &Path) -> Vec<String> {
    let table = Table::read(&fs::read_to_string(sweep.join("sweep.csv")).unwrap());
    table.column("status").iter().map(|&status| status.to_owned()).collect()
}

pub fn are_equal(sweep: &Path, whole: &Path) {
    let [own, whole] = [sweep, whole].map(trials);
    assert_eq!(own.len(), whole.len());
    for (own, whole) in own.iter().zip(&whole) {
        assert!(result(own) == result(whole), "{}", own.0.display());
    }
}

#[test]
fn an_interrupted_sweep_goes_on_side_by_side() {
    let place = Sandbox::new(SPEC);
    let whole = place.run(&GRID).ended_by(0).0;
    let (command, runs) = place.prepared(&GRID);
    let mut child = quiet(command);
    wait_until(&mut child, || {
        Folder::within(&runs).is_some_and(|sweep| sweep.0.join("001-lr=.1-repeat=0/metrics.csv").exists())
    });
    let sweep = Folder::within(&runs).unwrap().0;
    // Every trial has a row from the start.
    assert_eq!(statuses(&sweep).len(), 6);
    send("-INT", &child);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let stopped = statuses(&sweep);
    assert_eq!(stopped.iter().filter(|status| *status == "interrupted").count(), 1, "{stopped:?}");
    assert!(stopped.contains(&"planned".to_owned()));
    let path = sweep.to_str().unwrap();
    let ended = place.runner(&["run", "--resume", path, "--jobs", "2"]).ended_by(0);
    let left = stopped.iter().filter(|status| *status != "finished").count();
    assert!(ended.stderr.starts_with(&format!("{left} of 6 trials left to run\n")), "{ended:?}");
    assert_eq!(statuses(&sweep), ["finished"; 6]);
    are_equal(&sweep, &whole);
    // Nothing is left to do, and no trial has a second folder.
    let before = Folder(sweep.clone()).files();
    let ended = place.runner(&["run", "-q", "--resume", path]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), &*format!("{path}\n")), "{ended:?}");
    let ended = place.runner(&["run", "--resume", path]);
    assert_eq!(ended.stderr.lines().next(), Some("nothing is left to run: all of 6 trials have ended"));
    assert_eq!(Folder(sweep.clone()).files(), before);
    let ended = place.runner(&["run", "--resume", path, "seed=1"]);
    assert_eq!(ended.code, Some(2));
    let expected = "error: trial 0 would change: its `seed` was 0, and would be 1 (and 2 more trials)\n";
    assert!(ended.stderr.starts_with(expected), "{ended:?}");
}

/// With `--resume auto`, until it is done.
#[test]
fn a_killed_sweep_goes_on() {
    let place = Sandbox::new(SPEC);
    // Many more trials than a busy machine runs before it notices that one has begun.
    let arguments = [
        "optimizer.adam.lr=0.01,0.1,0.02",
        "sweep.repeats=6",
        "trainer.max_epochs=200",
        "checkpoint.every_epochs=50",
    ];
    let whole = place.run(&arguments).ended_by(0).0;
    let (_, runs) = place.prepared(&[]);
    let again = [
        &["run", "spec.toml", "-q", "--resume", "auto", "--runs-dir", runs.to_str().unwrap()],
        &arguments[..],
    ]
    .concat();
    for round in 0..4 {
        let mut child = quiet(place.command(&again));
        let file =
            format!("{:03}-lr={}-repeat={}/metrics.csv", round, [".01", ".1", ".02"][round % 3], round / 3);
        let mut sweep = None;
        wait_until(&mut child, || {
            sweep = Folder::within(&runs);
            sweep.as_ref().is_some_and(|sweep| sweep.0.join(&file).exists())
        });
        thread::sleep(Duration::from_millis(7 * round as u64));
        child.kill().unwrap();
        child.wait().unwrap();
        let sweep = sweep.unwrap().0;
        let planned = statuses(&sweep);
        assert_eq!(planned.len(), 18, "{planned:?}");
        let compared = place.runner(&["compare", sweep.to_str().unwrap()]).stdout;
        assert!(round < 3 || compared.contains(" planned (#"), "{compared}");
        // As a kill during the writing of the table leaves it.
        fs::write(sweep.join(".sweep.csv.77-0-0.tmp"), "trial").unwrap();
    }
    Ended::from_output(place.command(&again).output().unwrap()).ended_by(0);
    let left = fs::read_dir(Folder::within(&runs).unwrap().0).unwrap();
    assert!(
        left.flatten().all(|file| !file.file_name().to_string_lossy().ends_with(".tmp")),
        "a remnant stays"
    );
    are_equal(&Folder::within(&runs).unwrap().0, &whole);
}

/// A trial takes the same steps as when it runs alone; benchmarks of the machine never run in parallel.
#[test]
fn trials_run_side_by_side() {
    let place = Sandbox::new(SPEC);
    let arguments = ["optimizer.adam.lr=0.01,0.1,0.02,0.03", "logging.policy=buffered,off"];
    let alone = place.run(&arguments).ended_by(0).0;
    for jobs in ["3", "auto"] {
        let sweep = place.run(&[&arguments[..], &["--jobs", jobs]].concat()).ended_by(0).0;
        are_equal(&sweep, &alone);
    }
    let ended = place.run(&[&arguments[..], &["--jobs", "0"]].concat()).ended;
    assert_eq!(ended.code, Some(2));
    assert!(ended.stderr.contains("expected a number from 1 to 255, or `auto`"), "{ended:?}");
    let lab = Sandbox::new("kind = \"matmul\"\n[matmul]\nsizes = [8]\ncount = 2\n[sweep]\nrepeats = 2\n");
    let refused = "error: `--jobs` runs trainings side by side; this kind measures the machine\n  = hint: leave `--jobs` out\n";
    assert_eq!(lab.run(&["--jobs", "2"]).ended.stderr, refused);
}

#[test]
fn a_failed_trial_ends_a_sweep_where_that_is_wanted() {
    let place = Sandbox::new(SPEC);
    let arguments = ["optimizer.adam.lr=0.1,1e30,0.2", "--fail-fast"];
    let ran = place.run(&arguments);
    assert_eq!(ran.ended.code, Some(1), "{:?}", ran.ended);
    let sweep = ran.folder().0;
    assert_eq!(statuses(&sweep), ["finished", "diverged", "skipped"]);
    let table = Table::read(&fs::read_to_string(sweep.join("sweep.csv")).unwrap());
    assert_eq!(table.cell(2, "reason"), "an earlier trial failed");
    // A diverged trial would diverge again; the others are run.
    place.runner(&["run", "-q", "--resume", sweep.to_str().unwrap()]).ended_by(1);
    assert_eq!(statuses(&sweep), ["finished", "diverged", "finished"]);
}

/// The trials have the same names and hashes from any folder.
#[test]
fn a_sweep_is_repeated_by_its_own_file() {
    let rows: String = (0..40).map(|row| format!("{row},{}\n", 2 * row)).collect();
    let spec = "[data]\nbatch_size = 8\n[data.csv]\npath = \"rows.csv\"\ntarget = \"b\"\n[model]\n\
                layers = [{ linear = { out_features = 4 } }, \"relu\", { linear = { out_features = 1 } }]\n\
                [optimizer.sgd]\nlr = 0.0001\n[trainer]\nmax_epochs = 1\n";
    let place = Sandbox::new(spec);
    for name in ["rows.csv", "other.csv"] {
        fs::write(place.path().join(name), format!("a,b\n{rows}")).unwrap();
    }
    let arguments = [
        "data.csv.path=rows.csv,other.csv",
        "optimizer={ sgd = { lr = 1e-5 } },{ adam = { lr = 1e-3 } }",
        "model.layers.1=relu,tanh",
        "sweep.repeats=2",
        "description=\"a \\\"quoted\\\" word\"",
    ];
    let first = place.run(&arguments).ended_by(0).0;
    let file = first.join("sweep.toml");
    let other = Sandbox::with_spec(&file);
    let again = other.run(&[]).ended_by(0).0;
    let hash =
        |folder: &Path| folder.file_name().unwrap().to_str().unwrap().rsplit('-').next().unwrap().to_owned();
    assert_eq!(hash(&again), hash(&first));
    assert_eq!(again.parent().unwrap().file_name(), first.parent().unwrap().file_name());
    are_equal(&again, &first);
}

/// The remaining trials would train on different rows than before, so none of them starts.
#[test]
fn a_sweep_does_not_go_on_over_other_data() {
    let spec = "[data.csv]\npath = \"a.csv\"\ntarget = \"y\"\n[model]\nlayers = [{ linear = { out_features = 1 } }]\n\
                [optimizer.sgd]\nlr = 0.1\n[trainer]\nmax_epochs = 2\n";
    let place = Sandbox::new(spec);
    let rows = |slope: u32| (0..50).map(|x| format!("{x},{}\n", slope * x)).collect::<String>();
    let write = |slope| fs::write(place.path().join("a.csv"), format!("x,y\n{}", rows(slope))).unwrap();
    write(2);
    let sweep = place.run(&["optimizer.sgd.lr=0.1,0.01,0.001"]).ended_by(0).0;
    let last = trials(&sweep)[2].0.clone();
    fs::remove_dir_all(&last).unwrap();
    write(3);
    let ended = place.runner(&["run", "-q", "--resume", sweep.to_str().unwrap()]);
    let first = trials(&sweep)[0].0.display().to_string();
    assert_eq!(
        (ended.code, ended.stderr),
        (
            Some(2),
            format!(
                "error: the data are not those that `{first}` was trained on\n  = hint: bring the data back, or run the \
                 spec anew\n"
            )
        )
    );
    assert!(!last.exists());
    write(2);
    let ended = place.runner(&["run", "-q", "--resume", sweep.to_str().unwrap()]);
    assert_eq!((ended.code, statuses(&sweep)), (Some(0), vec!["finished".to_owned(); 3]));
    // A job that runs every night begins anew, as a single run does, and finds either sweep again on its own data.
    write(3);
    let runs = sweep.ancestors().nth(2).unwrap().to_str().unwrap();
    let words = ["run", "spec.toml", "-q", "--resume", "auto", "--runs-dir", runs];
    let auto = [&words[..], &["optimizer.sgd.lr=0.1,0.01,0.001"]].concat();
    let ended = place.runner(&auto);
    let old = sweep.display().to_string();
    let words =
        format!("warning: a new sweep begins, since the data are not those that `{old}` was trained on\n");
    assert_eq!((ended.code, ended.stderr), (Some(0), words));
    let new = ended.stdout;
    assert_ne!(new, format!("{old}\n"));
    for (slope, folder) in [(3, new), (2, format!("{old}\n"))] {
        write(slope);
        let again = place.runner(&auto);
        assert_eq!((again.code, again.stdout, again.stderr), (Some(0), folder, String::new()));
    }
}

/// `-q` prints no table; reasons of earlier failures are printed nevertheless.
#[test]
fn a_quiet_resume_says_what_had_failed() {
    let place = Sandbox::new(SPEC);
    let ran = place.run(&["optimizer.adam.lr=0.01,1e30", "-q"]);
    let sweep = Folder::within(&ran.runs).unwrap().0;
    let said = "the loss is not a finite number";
    assert!(ran.ended.code == Some(1) && ran.ended.stderr.contains(said), "{:?}", ran.ended);
    let path = sweep.to_str().unwrap();
    let ended = place.runner(&["run", "-q", "--resume", path]).ended_by(1);
    let expected = format!("error: trial 1 had diverged: {said}");
    assert!(ended.stderr.starts_with(&expected) && ended.stderr.lines().count() == 1, "{ended:?}");
    // The table says it.
    let ended = place.runner(&["run", "--resume", path]);
    assert_eq!(ended.stderr, "nothing is left to run: all of 2 trials have ended\n");
}

/// A nightly job whose spec gives more trials begins another sweep; a warning has the command by which the first takes them.
#[test]
fn a_sweep_that_could_grow_is_named() {
    let place = Sandbox::new(SPEC);
    let auto = |values: &str| {
        let values = format!("optimizer.adam.lr={values}");
        place.runner(&["run", "spec.toml", "-q", "--resume", "auto", &values, "trainer.max_epochs=1"])
    };
    let first = auto("0.01,0.02");
    assert_eq!((first.code, first.stderr.as_str()), (Some(0), ""));
    let path = first.stdout.trim();
    let larger = auto("0.01,0.02,0.03");
    let command = format!("run --resume {path} optimizer.adam.lr=0.01,0.02,0.03 trainer.max_epochs=1");
    let words = format!(
        "warning: a new sweep begins, since `{path}` was begun with fewer trials; `runner {command}` goes on with it\n"
    );
    assert_eq!((larger.code, larger.stderr), (Some(0), words));
    let again = auto("0.01,0.02,0.03");
    assert_eq!((again.stdout, again.stderr.as_str()), (larger.stdout, ""), "it is found from then on");
    // The command is right.
    let command: Vec<&str> = command.split(' ').chain(["-q"]).collect();
    let grown = place.runner(&command);
    assert_eq!((grown.code, grown.stdout), (Some(0), first.stdout.clone()));
    assert_eq!(statuses(&place.path().join(path)), ["finished"; 3]);
}

/// A sweep that lies beside the current folder has its spec's name.
#[test]
fn a_sweep_that_was_moved_keeps_its_name() {
    let place = Sandbox::new(SPEC);
    let run = place.run(&["seed=1,2", "name=own", "-q"]).ended_by(0).0;
    fs::rename(run, place.path().join("moved")).unwrap();
    fs::create_dir(place.path().join("here")).unwrap();
    let mut command = place.command(&["run", "--resume", "../moved"]);
    let ended = Ended::from_output(command.current_dir(place.path().join("here")).output().unwrap());
    assert!(ended.stdout.starts_with("own: 2 trials, 2 finished\n"), "{ended:?}");
}
