//! Validations within epochs (`trainer.validate_every_steps`), and runs that end at a threshold.

use std::{collections::HashMap, fs};

use super::{
    cuda::Sim,
    process::{Folder, Sandbox, tensors},
    resume::{SPEC, checkpoints, result},
    streamed,
};

/// Runs a spec with overrides, on some device.
type Run<'a> = &'a dyn Fn(&[&str]) -> Folder;

/// Checks runs on every kind of device.
fn on_every_device(place: &Sandbox, check: &dyn Fn(Run<'_>)) {
    let devices: [&[&str]; 4] = [
        &["--threads=2", "devices.engine=team"],
        &["devices.num_gpus=1", "--virtual-gpus=1", "data.placement=streamed"],
        &["devices.num_gpus=2", "--virtual-gpus=2"],
        &["devices.num_gpus=2", "--virtual-gpus=2", "data.placement=streamed"],
    ];
    for own in devices {
        check(&|arguments| place.run(&[own, arguments].concat()).ended_by(0));
    }
    let Some(sim) = Sim::get() else { return };
    let engines = ["persistent", "cooperative", "compiled", "graph", "launch"];
    for engine in engines.map(|engine| format!("devices.engine={engine}")) {
        let gpu = ["devices.num_gpus=1", &engine];
        check(&|arguments| sim.run(place, &[&gpu, arguments].concat(), &[]).ended_by(0));
    }
    let gpu = ["devices.num_gpus=1", "data.placement=streamed"];
    check(&|arguments| sim.run(place, &[&gpu, arguments].concat(), &[]).ended_by(0));
}

/// What a run with another spec has alike: metrics without times, both models, and the best validation.
type Alike = (String, [HashMap<String, (Vec<usize>, Vec<f32>)>; 2], [String; 3]);

fn alike(run: &Folder) -> Alike {
    let models = ["model", "best"].map(|name| {
        let bytes = fs::read(run.0.join(format!("{name}.safetensors"))).unwrap();
        tensors(&bytes)
    });
    (run.numbers(), models, ["best_value", "best_epoch", "best_step"].map(|column| run.summary(column)))
}

/// An epoch has 7 steps.
#[test]
fn as_many_steps_as_an_epoch_has_are_an_epoch() {
    let place = Sandbox::new(SPEC);
    let steps = "trainer.validate_every_steps=7";
    for policy in ["immediate", "buffered", "per_epoch", "off"] {
        let policy = format!("logging.policy={policy}");
        let run = |more: &[&str]| place.run(&[&[policy.as_str()], more].concat()).ended_by(0);
        assert!(alike(&run(&[steps])) == alike(&run(&[])), "{policy}");
    }
    let flush = "logging.flush_every=5";
    on_every_device(&place, &|run| {
        assert!(alike(&run(&[steps])) == alike(&run(&[])));
        assert!(alike(&run(&[steps, flush])) == alike(&run(&[flush])), "{flush}");
    });
}

/// Each validation is that of a run which ends there; the steps are those of a run without any; the best weights are those after
/// the best step.
#[test]
fn a_validation_within_an_epoch_changes_nothing_but_what_it_measures() {
    let place = Sandbox::new(SPEC);
    on_every_device(&place, &|run| {
        let three = "trainer.max_epochs=3";
        let inside = run(&[three, "trainer.validate_every_steps=5"]);
        let of = |run: &Folder, split| {
            let rows = run.metrics().only("split", split);
            ["step", "epoch", "loss"].map(|name| rows.column(name).join(" "))
        };
        let [steps, epochs, losses] = of(&inside, "validation");
        assert_eq!([steps.as_str(), epochs.as_str()], ["5 10 15 20 21", "1 2 3 3 3"]);
        assert_eq!(of(&inside, "train"), of(&run(&[three, "trainer.validate_every_epochs=0"]), "train"));
        for (step, loss) in steps.split(' ').zip(losses.split(' ')).step_by(2) {
            let ended = run(&[three, &format!("trainer.max_steps={step}")]);
            assert_eq!(ended.summary("final_validation_loss"), loss, "step {step}");
        }
        let ended = run(&[three, &format!("trainer.max_steps={}", inside.summary("best_step"))]);
        let best = fs::read(inside.0.join("best.safetensors")).unwrap();
        assert!(tensors(&best) == tensors(&ended.model()));
        assert_eq!(inside.summary("best_value"), ended.summary("final_validation_loss"));
    });
}

/// 23 steps per epoch.
#[test]
fn rows_that_steps_fetch_from_their_file_stay_the_same() {
    let place = streamed::place(600, 2000, "");
    for own in [&["--threads=1"][..], &["devices.num_gpus=2", "--virtual-gpus=2"]] {
        let run = |more: &str| {
            let arguments = ["trainer.validate_every_steps=10", more];
            place.run(&[own, &arguments].concat()).ended_by(0)
        };
        let from_file = run("data.placement=streamed");
        assert_eq!(
            from_file.metrics().only("split", "validation").column("step"),
            ["10", "20", "30", "40", "46"]
        );
        assert_eq!(from_file.numbers(), run("data.placement=resident").numbers());
    }
}

/// Chunks of 2,000 rows: the first ends after step 100, at which a validation and a checkpoint are due.
#[test]
fn what_is_due_at_the_end_of_a_chunk_is_done() {
    let place = streamed::place(4400, 1000, "");
    let run = |placement: &str| {
        let often =
            ["trainer.validate_every_steps=50", "checkpoint.every_steps=50", "checkpoint.keep_last=9"];
        let own = ["devices.num_gpus=1", "--virtual-gpus=1", "trainer.max_epochs=1", placement];
        place.run(&[&own[..], &often].concat()).ended_by(0)
    };
    let streamed = run("data.placement=streamed");
    let saved = ["step-00000050", "step-00000100", "step-00000150", "step-00000165"];
    assert_eq!(checkpoints(&streamed), saved);
    assert_eq!(streamed.metrics().only("split", "validation").column("step"), ["50", "100", "150", "165"]);
    assert_eq!(streamed.numbers(), run("data.placement=resident").numbers());
}

#[test]
fn patience_counts_validations() {
    let place = Sandbox::new(SPEC);
    let patient = "trainer.early_stopping={ patience = 3 }";
    let run = place.run(&[patient, "trainer.validate_every_steps=2", "optimizer.adam.lr=0.5"]).ended_by(0);
    let [best, last]: [u64; 2] = ["best_step", "steps"].map(|column| run.summary(column).parse().unwrap());
    assert_eq!(last, best + 3 * 2);
}

/// `max_time` ends a run after some step; it goes on as one that did not end there.
#[test]
fn a_run_whose_time_is_over_goes_on() {
    let place = Sandbox::new(SPEC);
    let often = ["checkpoint={}", "trainer.validate_every_steps=1"];
    let of = |limit: &str| place.run(&[&often[..], &[limit]].concat()).ended_by(0);
    let (whole, run) = (of("trainer.max_time=1h"), of("trainer.max_time=1ms"));
    assert!(run.summary("steps") != whole.summary("steps"));
    let path = run.0.to_str().unwrap();
    place.runner(&["run", "-q", "--resume", path, "trainer.max_time=1h"]).ended_by(0);
    assert!(result(&run) == result(&whole));
}

/// The run ends with the first validation that is at the threshold or below it, and goes on with another threshold.
#[test]
fn a_run_ends_at_its_threshold() {
    let place = Sandbox::new(SPEC);
    let often = ["checkpoint={}", "trainer.validate_every_steps=2"];
    let run = |threshold: f64, more: &[&str]| {
        let key = format!("trainer.early_stopping={{ stopping_threshold = {threshold:?} }}");
        place.run(&[&often[..], &[&key], more].concat())
    };
    let whole = run(0.0, &[]).ended_by(0);
    let losses = whole.metrics().only("split", "validation").f64s("loss");
    assert_eq!(losses.len(), 21);
    let least = |index: usize| losses[..index].iter().copied().fold(f64::INFINITY, f64::min);
    let index = (5..21).find(|index| losses[*index] < least(*index)).expect("the loss falls");
    let ran = run(losses[index], &[]);
    let ended = ran.ended_by(0);
    assert_eq!(ended.summary("steps"), (2 * (index + 1)).to_string());
    assert_eq!(ended.summary("best_step"), ended.summary("steps"));
    let log = ended.text("run.log");
    assert!(log.contains("early stopping: the validation loss, "), "{log}");
    assert!(log.contains(&format!(", reached the threshold of {:?}", losses[index])), "{log}");
    assert!(whole.numbers().starts_with(&ended.numbers()), "its rows are those of the longer run");

    let path = ended.0.to_str().unwrap();
    let refused = place.runner(&["run", "-q", "--resume", path, "trainer.max_epochs=9"]);
    let hint = "for more of it, name another `trainer.early_stopping.stopping_threshold` after it";
    assert!(refused.code == Some(2) && refused.stderr.contains(hint), "{refused:?}");
    let resumed = ["run", "-q", "--resume", path, "trainer.early_stopping.stopping_threshold=0"];
    place.runner(&resumed).ended_by(0);
    assert!(result(&ended) == result(&whole));
}
