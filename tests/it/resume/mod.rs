//! Checkpoints, and runs that go on from them: the result is that of a run that was never interrupted, to the bit.

mod altered;
mod auto;
mod beside;
mod damaged;
mod draws;
mod extended;
mod halving;
mod judged;
mod kills;
mod leases;
mod refusals;
mod shared;
pub mod sweeps;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use super::{
    cuda::Sim,
    process::{Ended, Folder, Sandbox},
};

/// Adam with dropout; the rows do not divide into whole batches: 7 steps per epoch.
pub const SPEC: &str = r#"
[data]
batch_size = 16
[data.synthetic_regression]
weights = [2.0, -3.4, 0.5]
noise = 1.0
train_rows = 103
validation_rows = 40
[model]
layers = [{ linear = { out_features = 8 } }, "tanh", { dropout = { p = 0.2 } }, { linear = { out_features = 1 } }]
[optimizer.adam]
lr = 0.05
[trainer]
max_epochs = 6
"#;

/// Copies a folder with all that is in it.
pub fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let (path, to) = (entry.as_ref().unwrap().path(), to.join(entry.unwrap().file_name()));
        if path.is_dir() { copy(&path, &to) } else { fs::copy(path, to).map(drop).unwrap() }
    }
}

/// Names of a run's checkpoints, the oldest first.
pub fn checkpoints(run: &Folder) -> Vec<String> {
    let Ok(entries) = fs::read_dir(run.0.join("checkpoints")) else { return Vec::new() };
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.filter_map(|name| Some(name.strip_suffix(".toml")?.to_owned())).collect();
    names.sort();
    names
}

/// A copy of a run as a kill would have left it when its checkpoint `last` was the newest.
pub fn killed_after(run: &Folder, last: &str, to: PathBuf) -> Folder {
    copy(&run.0, &to);
    let copied = Folder(to);
    for name in checkpoints(&copied).iter().filter(|name| name.as_str() > last) {
        for end in ["toml", "safetensors"] {
            fs::remove_file(copied.0.join(format!("checkpoints/{name}.{end}"))).unwrap();
        }
    }
    for name in ["model.safetensors", "best.safetensors"] {
        let _ = fs::remove_file(copied.0.join(name)); // there may be no best one
    }
    let summary = copied.0.join("summary.csv");
    let header = fs::read_to_string(&summary).unwrap().lines().next().unwrap().to_owned();
    fs::write(summary, header + "\n").unwrap();
    copied
}

/// Metrics without times, the model, the best model, and the training results in the summary.
type Result = (String, Vec<u8>, Option<Vec<u8>>, [String; 6]);

pub fn result(run: &Folder) -> Result {
    let columns = ["status", "epochs", "steps", "final_train_loss", "final_validation_loss", "best_value"];
    let best = fs::read(run.0.join("best.safetensors")).ok();
    (run.numbers(), run.model(), best, columns.map(|column| run.summary(column)))
}

/// Runs a spec with many checkpoints, then resumes from each. Returns the number of checkpoints.
fn goes_on_from_each(place: &Sandbox, arguments: &[&str], on: &dyn Fn(&mut Command)) -> usize {
    let (mut command, runs) = place.prepared(&[arguments, &["checkpoint.keep_last=1000"]].concat());
    on(&mut command);
    let ended = Ended::from_output(command.output().unwrap());
    assert_eq!(ended.code, Some(0), "{arguments:?}: {ended:?}");
    let whole = Folder::within(&runs).unwrap();
    let names = checkpoints(&whole);
    let (last, before) = names.split_last().unwrap();
    assert_eq!(*last, format!("step-{:0>8}", whole.summary("steps")), "the end is a checkpoint");
    for (i, name) in before.iter().enumerate() {
        let copied = killed_after(&whole, name, runs.join(format!("copy-{i}")));
        let mut command = place.command(&["run", "-q", "--resume", copied.0.to_str().unwrap()]);
        on(&mut command);
        let ended = Ended::from_output(command.output().unwrap());
        assert_eq!(ended.code, Some(0), "{arguments:?} from {name}: {ended:?}");
        assert!(result(&copied) == result(&whole), "{arguments:?}: another result from {name}");
    }
    names.len()
}

#[test]
fn a_run_goes_on_from_each_of_its_checkpoints() {
    let place = Sandbox::new(SPEC);
    let cases: [(&[&str], usize); 13] = [
        (&["checkpoint.every_steps=5"], 9),
        (&["checkpoint.every_steps=1", "trainer.max_steps=17"], 17),
        (&["checkpoint={}"], 6),
        (&["checkpoint.every_epochs=2", "trainer.validate_every_epochs=4"], 3),
        (
            &[
                "checkpoint.every_steps=4",
                "logging.policy=per_epoch",
                "logging.metrics=[\"loss\", \"grad_norm\"]",
            ],
            11,
        ),
        (&["checkpoint.every_steps=4", "logging.policy=immediate", "logging.metrics=[\"loss\", \"lr\"]"], 11),
        (&["checkpoint.every_steps=6", "logging.policy=off", "schedule.cosine={}"], 7),
        (&["checkpoint.every_steps=4", "trainer.validate_every_steps=3"], 11),
        (
            &[
                "checkpoint.every_steps=1",
                "trainer.validate_every_steps=3",
                "trainer.early_stopping={ patience = 2 }",
                "optimizer.adam.lr=0.5",
                "logging.policy=per_epoch",
            ],
            0,
        ),
        (
            &["checkpoint.every_steps=3", "trainer.early_stopping={ patience = 2 }", "optimizer.adam.lr=0.5"],
            0,
        ),
        (
            &[
                "checkpoint.every_steps=5",
                "schedule.plateau={ factor = 0.5, patience = 0, threshold = 0.1, cooldown = 1 }",
                "logging.metrics=[\"loss\", \"lr\"]",
                "trainer.max_epochs=12",
            ],
            17,
        ),
        (
            &[
                "checkpoint.every_epochs=1",
                "schedule={ interval = \"epoch\", chain = [{ steps = 2, linear = {} }, \
                 { plateau = { factor = 0.9, patience = 0, threshold = 0.5, metric = \"validation.r2\" } }] }",
                "logging.metrics=[\"loss\", \"lr\"]",
            ],
            6,
        ),
        (
            &[
                "checkpoint.every_steps=4",
                "--virtual-gpus",
                "3",
                "devices.num_gpus=3",
                "logging.policy=per_epoch",
            ],
            11,
        ),
    ];
    for (arguments, count) in cases {
        let found = goes_on_from_each(&place, arguments, &|_| {});
        assert!(found == count || count == 0 && found > 2, "{arguments:?}: {found} checkpoints");
    }
}

#[test]
fn a_streamed_run_goes_on_within_an_epoch() {
    let place = Sandbox::new(SPEC);
    let streamed = ["data.placement=streamed", "checkpoint.every_steps=3", "trainer.validate_every_steps=5"];
    goes_on_from_each(&place, &streamed, &|_| {});
    let virtual_gpus = ["--virtual-gpus", "2", "devices.num_gpus=2"];
    goes_on_from_each(&place, &[&streamed[..], &virtual_gpus].concat(), &|_| {});
}

/// With each engine of the simulated GPU.
#[test]
fn a_run_on_a_gpu_goes_on() {
    let Some(sim) = Sim::get() else { return };
    let place = Sandbox::new(SPEC);
    for engine in ["persistent", "graph", "launch"] {
        let engine = format!("devices.engine={engine}");
        for (policy, validates) in [
            ("logging.policy=buffered", "trainer.validate_every_steps=3"),
            ("logging.policy=per_epoch", "trainer.validate_every_epochs=1"),
        ] {
            let saves = "checkpoint.every_steps=4";
            let arguments = ["devices.num_gpus=1", &engine, policy, validates, saves, "trainer.max_epochs=2"];
            goes_on_from_each(&place, &arguments, &|command| {
                sim.on(command, &[]);
            });
        }
    }
}

/// On another number of devices it follows the run that was not interrupted, within the limit of parity.
#[test]
fn a_run_goes_on_on_another_number_of_devices() {
    let place = Sandbox::new(SPEC);
    let gpus = |count: u32| [format!("--virtual-gpus={count}"), format!("devices.num_gpus={count}")];
    let used = ["cpu", "virtual:0", "virtual:0;virtual:1", "virtual:0;virtual:1;virtual:2"];
    for (first, then) in [(0, 2), (0, 3), (2, 3), (2, 0), (3, 0)] {
        let [one, other] = [first, then].map(gpus);
        let whole = place.run(&[&one[0], &one[1], "checkpoint.keep_last=9"]).ended_by(0);
        let run = killed_after(&whole, "step-00000021", place.path().join(format!("{first}-to-{then}")));
        let path = run.0.to_str().unwrap();
        place.runner(&["run", "-q", "--resume", path, &other[0], &other[1]]).ended_by(0);
        assert_eq!(whole.summary("devices_used"), used[first as usize]);
        assert_eq!(run.summary("devices_used"), used[then as usize]);
        let (found, expected) = (run.metrics(), whole.metrics());
        assert_eq!(found.column("step"), expected.column("step"));
        for (row, (own, other)) in found.f64s("loss").into_iter().zip(expected.f64s("loss")).enumerate() {
            assert!((own - other).abs() <= 1e-5 * other.abs(), "row {row}: {own} and {other}");
        }
        assert!(found.column("loss") != expected.column("loss"), "nothing was done anew");
    }
}

/// A run that is extended to more epochs equals one that had them from the start.
#[test]
fn a_finished_run_is_extended() {
    let place = Sandbox::new(SPEC);
    let validated = "trainer.validate_every_epochs=2";
    let longer = place.run(&["trainer.max_epochs=8", validated, "checkpoint={}"]).ended_by(0);
    // A run of three epochs ends with a validation that a run of eight does not have at that point.
    let run = place.run(&["trainer.max_epochs=3", validated, "checkpoint={}"]).ended_by(0);
    let path = run.0.to_str().unwrap();
    let ended = place.runner(&["run", "-q", "--resume", path, "trainer.max_epochs=8"]).ended_by(0);
    assert_eq!(ended.stdout, format!("{path}\n"));
    assert!(result(&run) == result(&longer));
    assert!(run.text("spec.toml").contains("max_epochs = 8"));
    // What the first part wrote at its end is kept.
    let earlier = Folder(run.0.join("earlier/1"));
    assert!(earlier.text("spec.toml").contains("max_epochs = 3"));
    assert_eq!(earlier.summary("epochs"), "3");
    assert_eq!(earlier.model().len(), run.model().len());
    // Times are summed over all parts.
    let wall = |run: &Folder, column: &str| run.summary(column).parse::<f64>().unwrap();
    assert!(wall(&run, "train_s") > wall(&earlier, "train_s"));
    let elapsed = run.metrics().f64s("elapsed_s");
    assert!(elapsed.is_sorted(), "{elapsed:?}");
}

/// The latest checkpoints are kept, and those of the best validations.
#[test]
fn old_checkpoints_are_removed() {
    let place = Sandbox::new(SPEC);
    let run = place.run(&["checkpoint.keep_last=2", "trainer.max_epochs=5"]).ended_by(0);
    assert_eq!(checkpoints(&run), ["step-00000028", "step-00000035"]);
    let rules = ["checkpoint.keep_best=2", "trainer.max_epochs=9", "optimizer.adam.lr=0.8"];
    let run = place.run(&rules).ended_by(0);
    let rows = run.metrics().only("split", "validation");
    let mut by_loss: Vec<_> = rows.f64s("loss").into_iter().zip(rows.column("step")).collect();
    by_loss.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut wanted: Vec<_> = by_loss[..2].iter().map(|(_, step)| format!("step-{step:0>8}")).collect();
    wanted.push("step-00000063".to_owned());
    wanted.sort();
    wanted.dedup();
    assert_eq!(checkpoints(&run), wanted);
}

/// `runner check` says how often the state is saved, and how large it is.
#[test]
fn check_tells_of_checkpoints() {
    let place = Sandbox::new(SPEC);
    let line = |rule: &str| {
        let ended = place.runner(&["check", "spec.toml", rule]);
        ended.stdout.lines().find(|line| line.trim_start().starts_with("checkpoint ")).unwrap().to_owned()
    };
    assert!(
        line("checkpoint.every_epochs=2").contains("every 2 epochs, 3 in all; 1"),
        "{}",
        line("checkpoint={}")
    );
    assert!(line("checkpoint.every_minutes=0.5").contains("every 0.5 min; "));
}
