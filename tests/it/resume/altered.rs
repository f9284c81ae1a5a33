//! A run whose own files were edited since its checkpoint does not go on from it.

use std::fs;

use super::{
    super::process::{Folder, Sandbox},
    SPEC, checkpoints, copy, killed_after, result,
};

/// A run of six epochs as a kill left it after the third, and the whole of it.
fn killed(place: &Sandbox) -> [Folder; 2] {
    let whole = place.run(&["checkpoint.every_epochs=1", "checkpoint.keep_last=9"]).ended_by(0);
    let third = checkpoints(&whole)[2].clone();
    let killed = killed_after(&whole, &third, whole.0.with_file_name("killed"));
    [killed, whole]
}

#[test]
fn a_spec_that_was_edited_is_refused() {
    let place = Sandbox::new(SPEC);
    let [run, whole] = killed(&place);
    let path = run.0.display().to_string();
    let spec = run.text("spec.toml");
    assert!(spec.contains("lr = 0.05"), "{spec}");
    fs::write(run.0.join("spec.toml"), spec.replace("lr = 0.05", "lr = 0.5")).unwrap();
    let ended = place.runner(&["run", "-q", "--resume", &path]);
    let message = format!(
        "error: `{path}` was trained with other values than its `spec.toml` has\n  \
         = hint: bring `spec.toml` back as it was, or run the spec anew\n"
    );
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(2), message.as_str()), "{ended:?}");
    // What may change when a run goes on may be edited.
    fs::write(run.0.join("spec.toml"), spec.replace("max_epochs = 6", "max_epochs = 5")).unwrap();
    let shorter = Folder(run.0.with_file_name("shorter"));
    copy(&run.0, &shorter.0);
    place.runner(&["run", "-q", "--resume", shorter.0.to_str().unwrap()]).ended_by(0);
    assert_eq!(shorter.summary("epochs"), "5");
    fs::write(run.0.join("spec.toml"), spec).unwrap();
    place.runner(&["run", "-q", "--resume", &path]).ended_by(0);
    assert!(result(&run) == result(&whole));
}

#[test]
fn rows_that_were_edited_are_refused() {
    let place = Sandbox::new(SPEC);
    let [run, whole] = killed(&place);
    let path = run.0.display().to_string();
    let rows = run.text("metrics.csv");
    let lines: Vec<&str> = rows.lines().collect();
    let without = [&lines[..4], &lines[5..]].concat().join("\n") + "\n";
    let twice = [&lines[..5], &lines[4..]].concat().join("\n") + "\n";
    for edited in [without, twice] {
        fs::write(run.0.join("metrics.csv"), &edited).unwrap();
        let ended = place.runner(&["run", "-q", "--resume", &path]);
        let why = format!(
            "cannot go on with `{path}/metrics.csv`: its rows are not those that the checkpoint counted"
        );
        assert!(ended.code == Some(2) && ended.stderr.contains(&why), "{ended:?}");
        assert_eq!(run.text("metrics.csv"), edited);
    }
    fs::write(run.0.join("metrics.csv"), rows).unwrap();
    place.runner(&["run", "-q", "--resume", &path]).ended_by(0);
    assert!(result(&run) == result(&whole));
}

/// A schedule longer than TOML has numbers for is as long as these go, and the spec is kept.
#[test]
fn the_spec_of_an_endless_schedule_is_kept() {
    let place = Sandbox::new(SPEC);
    let endless =
        ["schedule={ cosine = {}, curve_epochs = 4_000_000_000_000_000_000 }", "trainer.max_epochs=1"];
    let run = place.run(&endless).ended_by(0);
    let spec = run.text("spec.toml");
    assert!(spec.contains("t_max = 9223372036854775807"), "{spec}");
    assert!(spec.contains("lr = 0.05"), "{spec}");
}
