//! Runs that cannot be resumed, and why. Nothing in their folders is touched.

use std::{
    fs::{self, Permissions},
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
};

use super::{
    super::process::{Ended, Folder, Sandbox},
    SPEC, checkpoints, killed_after, result,
};

fn resume(place: &Sandbox, run: &Folder, arguments: &[&str]) -> Ended {
    place.runner(&[&["run", "-q", "--resume", run.0.to_str().unwrap()], arguments].concat())
}

#[track_caller]
fn refused(place: &Sandbox, run: &Folder, arguments: &[&str], message: &str) {
    let before = run.files();
    let ended = resume(place, run, arguments).ended_by(2);
    assert_eq!(ended.stderr.replace(run.0.to_str().unwrap(), "RUN"), message);
    assert_eq!(run.files(), before);
}

#[test]
fn a_run_goes_on_by_its_own_spec() {
    let place = Sandbox::new(SPEC);
    let run = place.run(&["checkpoint={}", "schedule.cosine={}"]).ended_by(0);
    let longer = "trainer.max_epochs=9";
    refused(
        &place,
        &run,
        &[],
        "error: `RUN` has finished\n  = hint: for more of it, name a larger `trainer.max_epochs`, `max_steps` or `max_time` after it; after early stopping, a larger `trainer.early_stopping.patience`, or another `stopping_threshold`\n",
    );
    refused(
        &place,
        &run,
        &[longer, "optimizer.adam.lr=0.1", "seed=1"],
        "error: a run cannot go on with other values: `optimizer.adam.lr` was 0.05, and would be 0.1; `seed` was 0, and \
         would be 1\n  = hint: only the run's length, devices, checkpoints, the data's paths and some keys of `[logging]` may change; \
         run the spec anew for the rest\n",
    );
    refused(
        &place,
        &run,
        &["trainer.max_epochs=7,8"],
        "error: a run cannot go on as a sweep\n  = hint: give each key one value\n",
    );
    // The schedule keeps the length that it had.
    resume(&place, &run, &[longer]).ended_by(0);
    refused(
        &place,
        &run,
        &["trainer.max_epochs=7"],
        "error: `RUN` has taken 63 steps, and would end after 49 steps\n  = hint: name a length, such as `trainer.max_epochs`, that \
         reaches beyond what it has taken\n",
    );
    let plain = place.run(&[]).ended_by(0);
    refused(&place, &plain, &[longer], NONE_KEPT);
    refused(&place, &plain, &[], NONE_KEPT);
    // A cycle that has begun keeps its length.
    let cycle = place.run(&["checkpoint={}", "schedule.one_cycle.max_lr=0.1"]).ended_by(0);
    let ended = resume(&place, &cycle, &[longer]);
    let hint = "  = hint: leave it and `schedule.curve_epochs` out: it is then the length of the run, which keeps it when it goes on: for a \
                longer cycle, train anew\n";
    assert!(ended.code == Some(2) && ended.stderr.ends_with(hint), "{ended:?}");
}

/// There is nothing to go on from, whatever else is named.
const NONE_KEPT: &str = "error: `RUN` has finished, and kept no checkpoint to go on from\n  = hint: for more of it, train anew; with a \
                         table `[checkpoint]` a run can go on\n";

/// A spec with checkpoints on a CSV file of 40 rows: where the file is, and its rows.
fn on_a_table() -> (Sandbox, PathBuf, String) {
    let rows: String = (0..40).map(|row| format!("{},{}\n", row, 2 * row)).collect();
    let spec = "[data.csv]\npath = \"rows.csv\"\ntarget = \"b\"\n[model]\nlayers = [{ linear = { out_features = 1 } }]\n\
                [optimizer.sgd]\nlr = 0.0001\n[checkpoint]\n";
    let place = Sandbox::new(spec);
    let table = place.path().join("rows.csv");
    fs::write(&table, format!("a,b\n{rows}")).unwrap();
    (place, table, rows)
}

#[test]
fn other_data_are_refused() {
    let (place, table, rows) = on_a_table();
    let run = place.run(&[]).ended_by(0);
    fs::write(&table, format!("a,b\n{}", rows.replace("8\n", "9\n"))).unwrap();
    refused(
        &place,
        &run,
        &["trainer.max_epochs=20"],
        "error: the data are not those that `RUN` was trained on\n  = hint: bring the data back that it was trained on, or \
         begin anew\n",
    );
    fs::write(&table, format!("a,b\n{rows}")).unwrap();
    assert_eq!(resume(&place, &run, &["trainer.max_epochs=20"]).code, Some(0));
}

#[test]
fn data_may_have_moved() {
    let (place, table, rows) = on_a_table();
    let named = format!("data.csv.path={}", table.display());
    let run = place.run(&[&named]).ended_by(0);
    let moved = place.path().join("moved.csv");
    fs::rename(&table, &moved).unwrap();
    let longer = "trainer.max_epochs=20";
    let lacks = resume(&place, &run, &[longer]).ended_by(2);
    assert!(lacks.stderr.contains("; `data.csv.path=PATH` names another file\n"), "{lacks:?}");
    let named = format!("data.csv.path={}", moved.display());
    let ended = resume(&place, &run, &[longer, &named]);
    assert_eq!((ended.code, run.summary("epochs").as_str()), (Some(0), "20"), "{ended:?}");
    // A relative path starts at the current folder, which is not the run's.
    fs::copy(&moved, place.path().join("here.csv")).unwrap();
    let ended = resume(&place, &run, &["trainer.max_epochs=25", "data.csv.path=here.csv"]);
    assert_eq!((ended.code, run.summary("epochs").as_str()), (Some(0), "25"), "{ended:?}");
    // The data must be the same as before.
    fs::write(&table, format!("a,b\n{}", rows.replace("8\n", "9\n"))).unwrap();
    let named = format!("data.csv.path={}", table.display());
    let other = resume(&place, &run, &["trainer.max_epochs=30", &named]);
    assert!(other.stderr.starts_with("error: the data are not those that"), "{other:?}");
}

/// Each file of a source may be at another place: also those of validation rows and of groups.
#[test]
fn every_file_of_the_data_may_have_moved() {
    let (place, ..) = on_a_table();
    fs::write(place.path().join("more.csv"), "a,b\n1,2\n").unwrap();
    let run = place.run(&["data.csv.validation_path=more.csv"]).ended_by(0);
    fs::rename(place.path().join("more.csv"), place.path().join("there.csv")).unwrap();
    let ended = resume(&place, &run, &["trainer.max_epochs=20", "data.csv.validation_path=there.csv"]);
    assert_eq!((ended.code, run.summary("epochs").as_str()), (Some(0), "20"), "{ended:?}");
}

#[test]
fn a_run_that_ended_before_its_first_checkpoint_says_so() {
    let place = Sandbox::new(SPEC);
    let run = place.run(&["checkpoint.every_epochs=100", "checkpoint.keep_last=1"]).ended_by(0);
    fs::remove_dir_all(run.0.join("checkpoints")).unwrap();
    refused(
        &place,
        &run,
        &["trainer.max_epochs=9"],
        "error: `RUN` has no checkpoint to go on from: it ended before its first\n  = hint: run its spec again; `checkpoint` \
         says how often\n",
    );
}

/// A warning names each checkpoint that is not whole, and the run goes on from the one before it.
#[test]
fn damaged_checkpoints_are_passed_over() {
    let place = Sandbox::new(SPEC);
    let whole = place.run(&["checkpoint.keep_last=9"]).ended_by(0);
    let names = checkpoints(&whole);
    let run = killed_after(&whole, &names[3], place.path().join("copy"));
    let arrays = run.0.join(format!("checkpoints/{}.safetensors", names[3]));
    let mut bytes = fs::read(&arrays).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&arrays, bytes).unwrap();
    fs::write(run.0.join(format!("checkpoints/{}.toml", names[2])), "version = 1\nframe").unwrap();
    // As a kill leaves them.
    fs::write(run.0.join("checkpoints/.step-1.toml.77-0.tmp"), "version").unwrap();
    fs::write(run.0.join("checkpoints/step-00000099.safetensors"), "").unwrap();
    let ended = resume(&place, &run, &[]).ended_by(0);
    let path = run.0.display();
    let passed = format!(
        "warning: an older checkpoint serves, since a newer one cannot be used: `{path}/checkpoints/"
    );
    assert_eq!(
        ended.stderr,
        format!(
            "{passed}{}`: is damaged: its first line is not the digest of the others\n{passed}{}`: its arrays are not those \
             that were saved\n",
            names[2], names[3]
        )
    );
    assert!(result(&run) == result(&whole));
    let left = fs::read_dir(run.0.join("checkpoints")).unwrap().count();
    assert!(left.is_multiple_of(2), "a remnant stays");

    let run = killed_after(&whole, &names[0], place.path().join("other"));
    fs::remove_file(run.0.join(format!("checkpoints/{}.safetensors", names[0]))).unwrap();
    refused(
        &place,
        &run,
        &[],
        &format!(
            "error: no checkpoint of `RUN` can be used: `RUN/checkpoints/{}`: its arrays cannot be read: no such file or \
             directory\n  = hint: run its spec again: `spec.toml` in its folder\n",
            names[0]
        ),
    );
}

/// Rows of `metrics.csv` that a loss of power destroyed.
#[test]
fn lost_rows_are_noticed() {
    let place = Sandbox::new(SPEC);
    let whole = place.run(&["checkpoint.keep_last=9"]).ended_by(0);
    let run = killed_after(&whole, &checkpoints(&whole)[2], place.path().join("copy"));
    let metrics = run.0.join("metrics.csv");
    let text = fs::read_to_string(&metrics).unwrap();
    fs::write(&metrics, text.split_inclusive('\n').take(20).collect::<String>()).unwrap();
    let before = run.files();
    let ended = resume(&place, &run, &[]);
    assert_eq!(ended.code, Some(2));
    assert_eq!(run.files(), before, "a run that cannot go on is left as it is");
    let expected = format!(
        "error: cannot go on with `{}`: it has fewer rows than the checkpoint counted\n",
        metrics.display()
    );
    assert_eq!(ended.stderr, expected);
    // The rows that are there stay.
    assert_eq!(fs::read_to_string(&metrics).unwrap().lines().count(), 20);
}

/// Opening a pipe would wait for a writer for ever.
#[test]
fn a_pipe_in_the_place_of_the_rows_is_refused() {
    let place = Sandbox::new(SPEC);
    let whole = place.run(&["checkpoint.keep_last=9"]).ended_by(0);
    let run = killed_after(&whole, &checkpoints(&whole)[2], place.path().join("copy"));
    let metrics = run.0.join("metrics.csv");
    fs::remove_file(&metrics).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&metrics).status().unwrap().success());
    let ended = resume(&place, &run, &[]);
    assert_eq!(ended.code, Some(2));
    assert!(ended.stderr.contains("it is a named pipe: expected a regular file"), "{ended:?}");
}

/// `--resume auto` resumes, or reports as finished, only a run of exactly this spec and these data.
#[test]
fn auto_knows_its_own_run() {
    let (place, table, rows) = on_a_table();
    let auto = || place.runner(&["run", "spec.toml", "-q", "--resume", "auto"]);
    let first = auto().stdout;
    let again = auto();
    assert_eq!((again.code, &again.stdout), (Some(0), &first));
    // Different rows under the old name; and a run that was extended.
    fs::write(&table, format!("a,b\n{}", rows.replace("8\n", "9\n"))).unwrap();
    let second = auto().stdout;
    assert_ne!(second, first);
    place.runner(&["run", "-q", "--resume", second.trim(), "trainer.max_epochs=20"]).ended_by(0);
    let third = auto().stdout;
    assert!(third != second && third.starts_with("runs/"), "{third}");
}

/// If early stopping ended a run, more epochs do not resume it; more patience does.
#[test]
fn early_stopping_stays_what_it_was() {
    let place = Sandbox::new(SPEC);
    let stopping = "trainer.early_stopping={ patience = 2 }";
    let run =
        place.run(&[stopping, "optimizer.adam.lr=0.5", "trainer.max_epochs=50", "checkpoint={}"]).ended_by(0);
    let steps = run.summary("steps");
    let was = result(&run);
    // As a kill just before the summary is written leaves it.
    let killed = killed_after(&run, checkpoints(&run).last().unwrap(), place.path().join("copy"));
    assert_eq!(resume(&place, &killed, &[]).code, Some(0));
    assert!(result(&killed) == was);
    let longer = resume(&place, &run, &["trainer.max_epochs=60"]);
    assert_eq!((longer.code, run.summary("steps")), (Some(2), steps.clone()), "{longer:?}");
    assert!(
        longer.stderr.contains("` has finished by early stopping: the best validation loss, "),
        "{longer:?}"
    );
    assert!(longer.stderr.contains("name a larger `trainer.early_stopping.patience` after it"), "{longer:?}");
    resume(&place, &run, &["trainer.early_stopping.patience=9"]).ended_by(0);
    assert!(run.summary("steps").parse::<u64>().unwrap() > steps.parse().unwrap());
}

/// A finished sweep needs no folder that can be written; an unfinished one does, and starts nothing without it.
#[test]
fn a_sweep_in_a_folder_that_cannot_be_written() {
    let place = Sandbox::new(SPEC);
    let words = ["run", "spec.toml", "optimizer.adam.lr=0.01,0.1", "trainer.max_epochs=2", "-q"];
    let sweep = place.runner(&words).ended_by(0).stdout.trim_end().to_owned();
    let (folder, table) = (place.path().join(&sweep), place.path().join(&sweep).join("sweep.toml"));
    let set = |mode: u32, paths: &[&Path]| {
        let permissions = Permissions::from_mode(mode);
        paths.iter().for_each(|path| fs::set_permissions(path, permissions.clone()).unwrap());
    };
    let resume = |words: &[&str]| {
        set(0o444, &[&table]);
        set(0o555, &[&folder, place.path()]);
        let mut command = place.command(&[&["run", "--resume", &sweep], words].concat());
        // Root may write everything.
        if rustix::process::geteuid().is_root() {
            command.uid(65534);
        }
        let ended = Ended::from_output(command.output().unwrap());
        set(0o755, &[&folder, place.path(), &table]);
        ended
    };
    let ended = resume(&[]).ended_by(0);
    assert_eq!(ended.stderr, "nothing is left to run: all of 2 trials have ended\n");
    assert!(ended.stdout.starts_with("spec: 2 trials, 2 finished\n"), "{ended:?}");
    assert_eq!(resume(&["-q"]).ended_by(0).stdout, format!("{sweep}\n"));
    let ended = resume(&["--json"]).ended_by(0);
    assert!(ended.stdout.contains(r#""statuses":{"finished":2}"#), "{ended:?}");
    let trial = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).find(|path| path.is_dir());
    fs::remove_dir_all(trial.unwrap()).unwrap();
    let refused = format!(
        "error: cannot write `{sweep}/sweep.toml`: permission denied\n  = hint: make that folder writable; `--runs-dir DIR` names \
         another for a new run\n"
    );
    assert_eq!(resume(&[]).ended_by(2).stderr, refused);
}
