//! `--resume auto` with a spec that has changed since.

use std::{fs, path::PathBuf};

use super::{
    super::process::{Ended, Folder, Sandbox},
    SPEC, killed_after, result,
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
    let words = format!("`{path}` has finished; there is nothing to go on with\n");
    assert_eq!((again.code, again.stdout), (Some(0), words));
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
