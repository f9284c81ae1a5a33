//! What lies in a run's folder and is not the program's, or cannot be read, keeps the folder.

use std::{fs, os::unix::fs::symlink, path::Path, process::Stdio};

use super::{Runs, age};
use crate::{
    ends::{quiet, wait_until},
    process::{Ended, Folder},
};

const CLEAN: [&str; 4] = ["clean", "--keep-best", "0", "--yes"];

/// The last two parts of a path: `lin/20261128T215530Z-01234567`.
fn name(run: &Path) -> String {
    let parts: Vec<_> = run.iter().rev().take(2).map(|part| part.to_str().unwrap()).collect();
    format!("{}/{}", parts[1], parts[0])
}

#[test]
fn tags_that_cannot_be_read_stay_as_they_are() {
    let runs = Runs::new();
    type Make = (&'static str, fn(&Path));
    let makes: [Make; 5] = [
        ("stream did not contain valid UTF-8", |path| fs::write(path, b"caf\xe9\n").unwrap()),
        ("it is a folder: expected a regular file", |path| fs::create_dir(path).unwrap()),
        ("no such file or directory", |path| symlink("gone", path).unwrap()),
        ("too many levels of symbolic links", |path| symlink("tags", path).unwrap()),
        ("it is longer than 16 MiB", |path| fs::File::create(path).unwrap().set_len((16 << 20) + 1).unwrap()),
    ];
    for sweeps in [&[][..], &["seed=0,1"]] {
        let run = runs.run(sweeps);
        for (why, make) in makes {
            let tags = run.join("tags");
            make(&tags);
            let before = fs::symlink_metadata(&tags).unwrap();
            let (path, said) = (run.display().to_string(), format!("/{}/tags`: {why}", name(&run)));
            let shown = runs.ran(&CLEAN);
            let kept = "nothing to remove\nkept: 1 with tags that cannot be read\nstays: cannot read `";
            assert!(shown.starts_with(kept) && shown.ends_with(&format!("{said}\n")), "{shown}");
            let message = runs.refused(&["tag", &path, "more"]);
            assert!(message.contains(&said) && message.contains("\n  = hint: its tags are as"), "{message}");
            for show in ["list", "show"].iter().filter(|show| sweeps.is_empty() || **show == "list") {
                let shown = runs.ran(&[*show, &path]);
                assert!(shown.contains(&said), "{shown}");
            }
            let after = fs::symlink_metadata(&tags).unwrap();
            assert_eq!((after.file_type(), after.len()), (before.file_type(), before.len()));
            if after.is_dir() { fs::remove_dir(&tags) } else { fs::remove_file(&tags) }.unwrap();
        }
        runs.ran(&CLEAN);
        assert!(!run.exists());
    }
}

#[test]
fn what_others_put_into_a_run_stays_with_it() {
    let runs = Runs::new();
    let [run, noted, sweep] = [&[][..], &[], &["seed=0,1"]].map(|more| runs.run(more));
    let again = run.strip_prefix(runs.0.path()).unwrap().join("again");
    let inner = runs.run(&["--runs-dir", again.to_str().unwrap()]);
    fs::write(noted.join("notes.md"), "the best so far").unwrap();
    // A trial that was moved aside, with its tag.
    let trial = fs::read_dir(&sweep).unwrap().flatten().find(|entry| entry.path().is_dir()).unwrap().path();
    let aside = sweep.join("sub").join(trial.file_name().unwrap());
    fs::create_dir(sweep.join("sub")).unwrap();
    fs::rename(&trial, &aside).unwrap();
    runs.ran(&["tag", aside.to_str().unwrap(), "paper"]);
    let shown = runs.ran(&CLEAN);
    assert!(shown.starts_with("nothing to remove\nkept: 3 with something else inside\n"), "{shown}");
    for (folder, other) in [(&run, "again"), (&noted, "notes.md"), (&sweep, "sub")] {
        let words = format!("/{}` holds `{other}`, which is no file of a run\n", name(folder));
        assert!(shown.contains(&words), "{words}: {shown}");
    }
    assert!(inner.join("summary.csv").is_file() && aside.join("tags").is_file());
    fs::remove_file(noted.join("notes.md")).unwrap();
    runs.ran(&CLEAN);
    assert!(!noted.exists());
}

/// Of all files that runs and sweeps have, none keeps them.
#[test]
fn whatever_the_program_writes_goes() {
    let runs = Runs::new();
    let run = runs.run(&[
        "checkpoint.every_epochs=1",
        "logging.trace=true",
        "logging.tensorboard=true",
        "logging.system_every_s=0.1",
    ]);
    let path = run.to_str().unwrap();
    runs.ran(&["run", "-q", "--resume", path, "trainer.max_epochs=4"]);
    fs::write(run.join(".best.safetensors.1-2-3.tmp"), "").unwrap();
    let stops = "sweep.stop={ asha = { min_epochs = 1, factor = 2 } }";
    let drawn = "optimizer.sgd.lr=loguniform(1e-3, 0.5)";
    let sweeps = [
        runs.run(&["optimizer.sgd.lr=0.1,0.2", "checkpoint.every_epochs=1", stops]),
        runs.run(&[drawn, "sweep.sampler=tpe", "sweep.trials=12"]),
    ];
    for written in [&run, &sweeps[0]] {
        assert_eq!(runs.0.runner(&["report", written.to_str().unwrap()]).code, Some(0));
        assert!(written.join("report.html").is_file());
    }
    let lab = "kind = 'matmul'\nname = 'lab'\nmatmul = { sizes = [8], count = 2, norm = 'frobenius' }\n";
    fs::write(runs.0.path().join("lab.toml"), lab).unwrap();
    let lab = runs.0.path().join(runs.ran(&["lab.toml", "-q"]).trim());
    age(&lab);
    // A tour of tensors saves a file under a name of its own.
    let tour = concat!(env!("CARGO_MANIFEST_DIR"), "/experiments/parameters.toml");
    let tour = runs.0.path().join(runs.ran(&[tour, "-q", "name=lab", "--virtual-gpus", "2"]).trim());
    assert!(tour.join("net.safetensors").is_file());
    age(&tour);
    runs.ran(&["clean", "runs/lab", "--older-than", "30d", "--yes"]);
    let shown = runs.ran(&CLEAN);
    assert!(shown.contains("\n3 folders, ") && shown.ends_with("\nremoved\n"), "{shown}");
    assert!(!sweeps.iter().chain([&run, &lab, &tour]).any(|folder| folder.exists()));
}

/// While a folder is removed it has a hidden name, which is no way out.
#[test]
fn a_hidden_folder_is_not_proposed() {
    let runs = Runs::new();
    let run = runs.run(&[]);
    let hidden = run.with_file_name(format!(".{}", run.file_name().unwrap().to_str().unwrap()));
    fs::rename(&run, hidden).unwrap();
    let message = runs.refused(&["run", "--resume", run.to_str().unwrap()]);
    assert!(message.contains("does not exist") && !message.contains("did you mean"), "{message}");
}

/// As after a full disk.
#[test]
fn a_failed_run_with_a_checkpoint_can_be_resumed() {
    let runs = Runs::new();
    let [kept, lost] = ["checkpoint.every_epochs=1", "trainer.max_epochs=3"].map(|more| runs.run(&[more]));
    for run in [&kept, &lost] {
        let summary = run.join("summary.csv");
        let text = fs::read_to_string(&summary).unwrap();
        fs::write(&summary, text.replace(",finished,", ",failed,")).unwrap();
    }
    let shown = runs.ran(&["clean", "--keep-best", "0"]);
    let row = |run: &Path| shown.lines().find(|line| line.contains(&name(run))).unwrap().trim_end();
    assert!(row(&kept).ends_with("  not of the 0 best, can be resumed"), "{shown}");
    assert!(row(&lost).ends_with("  not of the 0 best"), "{shown}");
    runs.ran(&["run", "-q", "--resume", kept.to_str().unwrap()]);
}

#[test]
fn watching_ends_once_the_run_is_gone() {
    let runs = Runs::new();
    let mut command = runs.0.command(&["spec.toml", "-q", "trainer.max_epochs=100000000"]);
    command.env("RUNNER_RUNS_DIR", "gone");
    let (all, printed) = (runs.0.path().join("gone"), runs.0.path().join("printed"));
    let mut run = quiet(command);
    wait_until(&mut run, || Folder::within(&all).is_some_and(|run| run.0.join("run.lock").exists()));
    let mut command = runs.0.command(&["watch", "gone"]);
    command.stdout(fs::File::create(&printed).unwrap()).stderr(Stdio::piped());
    let watch = command.spawn().unwrap();
    wait_until(&mut run, || fs::read_to_string(&printed).is_ok_and(|text| text.contains("epoch")));
    fs::rename(&all, runs.0.path().join("elsewhere")).unwrap();
    let ended = Ended::from_output(watch.wait_with_output().unwrap());
    run.kill().and_then(|()| run.wait()).unwrap();
    assert!(ended.stderr.starts_with("error: `gone` does not exist\n"), "{ended:?}");
    assert_eq!(ended.code, Some(2));
}
