//! `--resume auto` with a spec that has changed since.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader},
    path::PathBuf,
    process::Child,
    thread,
    time::{Duration, Instant},
};

use super::{
    super::{
        ends::{LIMIT, ended, quiet, send, wait_until_open},
        process::{Ended, Folder, Sandbox},
    },
    SPEC, copy, killed_after, result,
};

/// A run of this spec that was killed after step 14, and the runs folder that it is in.
fn killed(place: &Sandbox) -> (Folder, PathBuf) {
    let whole = place.run(&["checkpoint.keep_last=9"]).ended_by(0);
    let runs = place.path().join("runs");
    let name = whole.0.file_name().unwrap().to_owned();
    (killed_after(&whole, "step-00000014", runs.join("spec").join(name)), runs)
}

fn auto(place: &Sandbox, arguments: &[&str]) -> Ended {
    let words = ["run", "spec.toml", "-q", "--resume", "auto", "checkpoint.keep_last=9"];
    place.runner(&[&words[..], arguments].concat())
}

#[test]
fn a_run_goes_on_with_what_may_change() {
    let place = Sandbox::new(SPEC);
    let (run, runs) = killed(&place);
    let longer = ["trainer.max_epochs=8", "logging.flush_every=7"];
    let whole = place.run(&[&longer[..], &["checkpoint.keep_last=9"]].concat()).ended_by(0);
    let ended = auto(&place, &longer);
    let path = run.0.strip_prefix(place.path()).unwrap().display();
    assert_eq!((ended.code, ended.stdout), (Some(0), format!("{path}\n")), "{}", ended.stderr);
    assert!(result(&run) == result(&whole));
    // A job that starts again finds that it has finished, though the folder's name has the hash of the first spec.
    let again = auto(&place, &longer);
    assert_eq!((again.code, again.stdout), (Some(0), format!("{path}\n")));
    let words = ["run", "spec.toml", "--resume", "auto", "checkpoint.keep_last=9"];
    let told = format!("`{path}` has finished; there is nothing to go on with\n");
    assert_eq!(place.runner(&[&words[..], &longer].concat()).stdout, told);
    assert_eq!(fs::read_dir(runs.join("spec")).unwrap().count(), 1);
}

#[test]
fn a_warning_names_what_made_a_new_run_begin() {
    let place = Sandbox::new(SPEC);
    let (run, runs) = killed(&place);
    let before = run.files();
    let ended = auto(&place, &["trainer.max_epochs=8", "optimizer.adam.lr=0.1", "seed=1"]);
    let path = run.0.strip_prefix(place.path()).unwrap().display();
    let words = format!(
        "warning: a new run begins, since `{path}` cannot go on: `optimizer.adam.lr` was 0.05, and would be 0.1; `seed` was \
         0, and would be 1\n"
    );
    assert_eq!((ended.code, ended.stderr), (Some(0), words));
    assert_eq!(run.files(), before);
    assert_eq!(fs::read_dir(runs.join("spec")).unwrap().count(), 2);
    // The run of the spec as it was goes on, whatever is newer.
    let ended = auto(&place, &[]);
    assert_eq!((ended.code, ended.stdout), (Some(0), format!("{path}\n")), "{}", ended.stderr);
    assert_eq!((run.summary("epochs"), ended.stderr.as_str()), ("6".to_owned(), ""));
}

/// A run that has finished on other data is not taken for this one, and a warning names it.
#[test]
fn a_warning_names_data_that_made_a_new_run_begin() {
    let text = "[data]\nbatch_size = 2\n[data.csv]\npath = \"a.csv\"\ntarget = \"y\"\n[model]\nlayers = [{ linear = { out_features = 1 } }]\n\
                [optimizer.sgd]\nlr = 0.1\n[trainer]\nmax_epochs = 2\n";
    let place = Sandbox::new(text);
    let rows = |last: &str| {
        fs::write(place.path().join("a.csv"), format!("x,y\n1,2\n2,4\n3,6\n4,8\n5,{last}\n")).unwrap();
    };
    let auto = || place.runner(&["run", "spec.toml", "-q", "--resume", "auto"]);
    rows("10");
    let first = auto();
    assert_eq!((first.code, first.stderr.as_str()), (Some(0), ""));
    rows("11");
    let path = first.stdout.trim();
    let words =
        format!("warning: a new run begins, since the data are not those that `{path}` was trained on\n");
    let second = auto();
    assert_eq!((second.code, second.stderr), (Some(0), words));
    assert_ne!(second.stdout, first.stdout);
    // Either run is found again on its own data.
    for (last, run) in [("11", second.stdout.trim()), ("10", path)] {
        rows(last);
        assert_eq!(auto().stdout, format!("{run}\n"));
    }
}

/// A run that was killed before it saved anything begins anew, and a warning says so.
#[test]
fn a_warning_names_a_run_without_a_checkpoint() {
    let place = Sandbox::new(SPEC);
    let whole = place.run(&["checkpoint.keep_last=9"]).ended_by(0);
    let folder = place.path().join("runs/spec").join(whole.0.file_name().unwrap());
    let run = killed_after(&whole, "step-00000014", folder);
    fs::remove_dir_all(run.0.join("checkpoints")).unwrap();
    let ended = auto(&place, &[]);
    let path = run.0.strip_prefix(place.path()).unwrap().display();
    let words = format!(
        "warning: a new run begins, since `{path}` has no checkpoint to go on from: a table `[checkpoint]` says when one is \
         written\n"
    );
    assert_eq!((ended.code, ended.stderr), (Some(0), words));
}

/// Neither a shorter length nor another description goes on with a run that may be another job's.
#[test]
fn a_run_that_may_be_another_jobs_stays_as_it_is() {
    let place = Sandbox::new(SPEC);
    let (run, _) = killed(&place);
    let path = run.0.strip_prefix(place.path()).unwrap().display();
    let before = run.files();
    let cases = [
        ("trainer.max_epochs=1", "`trainer.max_epochs` was 6, and would be 1".to_owned()),
        ("trainer.max_steps=7", format!("`{path}` has taken 14 steps, and would end after 7 steps")),
        ("description=other", "`description` was \"\", and would be \"other\"".to_owned()),
    ];
    for (word, why) in cases {
        let ended = auto(&place, &[word]);
        let words = format!("warning: a new run begins, since `{path}` cannot go on: {why}\n");
        assert_eq!((ended.code, ended.stderr), (Some(0), words));
    }
    assert_eq!(run.files(), before);
}

/// An unrelated run that is newer hides none that fits.
#[test]
fn the_newest_run_that_fits_goes_on() {
    let place = Sandbox::new(SPEC);
    let (run, runs) = killed(&place);
    let other = runs.join("spec/99991231T000000Z-00000000");
    copy(&run.0, &other);
    let spec = fs::read_to_string(other.join("spec.toml")).unwrap();
    assert!(spec.contains("lr = 0.05"), "{spec}");
    fs::write(other.join("spec.toml"), spec.replace("lr = 0.05", "lr = 0.5")).unwrap();
    let before = Folder(other.clone()).files();
    let words = ["run", "spec.toml", "--resume", "auto", "checkpoint.keep_last=9", "trainer.max_epochs=8"];
    let ended = place.runner(&words);
    let path = run.0.strip_prefix(place.path()).unwrap().display();
    let told = format!("`{path}` goes on with a changed spec: `trainer.max_epochs` was 6, and is now 8\n");
    assert!(ended.code == Some(0) && ended.stderr.starts_with(&told), "{ended:?}");
    assert_eq!((run.summary("epochs"), Folder(other).files()), ("8".to_owned(), before));
}

/// Of several that start at once with a new spec one begins the run, and the others say so.
#[test]
fn one_of_several_at_once_begins_the_run() {
    let place = Sandbox::new(SPEC);
    let runs = place.path().join("runs");
    fs::create_dir(&runs).unwrap();
    // All must wait for the lock of the runs folder before one looks for a run.
    let lock = File::open(&runs).unwrap();
    lock.lock().unwrap();
    let words = ["run", "spec.toml", "-q", "--resume", "auto", "trainer.max_epochs=100000000"];
    let mut children = [0; 3].map(|_| quiet(place.command(&words)));
    children.iter_mut().for_each(|child| wait_until_open(child, &runs));
    drop(lock);
    let is_over = |child: &mut Child| child.try_wait().unwrap().is_some();
    let begun = Instant::now();
    while children.iter_mut().map(is_over).filter(|is_over| *is_over).count() < 2 {
        assert!(begun.elapsed() < LIMIT, "more than one is at work");
        thread::sleep(Duration::from_millis(1));
    }
    let run = Folder::within(&runs).expect("one run");
    let path = run.0.strip_prefix(place.path()).unwrap().display();
    let words =
        format!("error: `{path}` is under way in another process\n  = hint: wait for its end, or end it\n");
    for mut child in children {
        if is_over(&mut child) {
            let ended = ended(child);
            assert_eq!((ended.code, ended.stderr), (Some(2), words.clone()));
        } else {
            send("-TERM", &child);
            assert_eq!(ended(child).code, Some(143));
        }
    }
    assert_eq!(run.summary("status"), "interrupted");
}

/// Whoever waits for a process that hangs learns its number, and may end the wait.
#[test]
fn a_wait_names_the_process_that_it_waits_for() {
    let place = Sandbox::new(SPEC);
    let runs = place.path().join("runs");
    fs::create_dir(&runs).unwrap();
    let lock = File::open(&runs).unwrap();
    lock.lock().unwrap();
    for more in ["trainer.max_epochs=2", "optimizer.adam.lr=0.1,0.2"] {
        let mut child = quiet(place.command(&["run", "spec.toml", "--resume", "auto", more]));
        let mut told = String::new();
        BufReader::new(child.stderr.as_mut().unwrap()).read_line(&mut told).unwrap();
        // Some file systems, and another pid namespace, do not tell who has the lock.
        let words = [format!("process {}", std::process::id()), "another process".to_owned()]
            .map(|holder| format!("waiting for {holder}, which is starting a run in `runs`\n"));
        assert!(words.contains(&told), "{told}");
        send("-TERM", &child);
        let ended = ended(child);
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(143), ""), "{ended:?}");
    }
    assert_eq!(fs::read_dir(&runs).unwrap().count(), 0);
}

/// A run that has finished, shorter or longer than the spec says now, is named, and so is the command that would go on with it.
#[test]
fn a_warning_names_a_finished_run_of_another_length() {
    let place = Sandbox::new(SPEC);
    let first = auto(&place, &[]);
    assert_eq!((first.code, first.stderr.as_str()), (Some(0), ""));
    let run = first.stdout.trim();
    let longer = auto(&place, &["trainer.max_epochs=9"]);
    let words = format!(
        "warning: a new run begins, since `{run}` has finished with another spec: `trainer.max_epochs` was 6, and would be 9; \
         `runner run --resume {run} trainer.max_epochs=9` goes on with it\n"
    );
    assert_eq!((longer.code, longer.stderr), (Some(0), words));
    // The command does it, and the nightly job finds that its run became another's.
    fs::remove_dir_all(place.path().join(longer.stdout.trim())).unwrap();
    let ended = place.runner(&["run", "-q", "--resume", run, "trainer.max_epochs=9"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), first.stdout.as_str()), "{ended:?}");
    let again = auto(&place, &[]);
    let words = format!(
        "warning: a new run begins, since `{run}` has finished with another spec: `trainer.max_epochs` was 9, and would be 6\n"
    );
    assert_eq!((again.code, again.stderr), (Some(0), words));
    // Another setting is another run.
    let other = auto(&place, &["optimizer.adam.lr=0.1"]);
    assert_eq!((other.code, other.stderr.as_str()), (Some(0), ""));
}
