//! Tests of `forecast`.

use std::time::Duration;

use super::*;
use crate::{
    plan::{self, Machine},
    run::{Planned, rehearse},
    spec,
    train::StopFlag,
};

const SPEC: &str = "data.synthetic_regression = { weights = [1.0, 2.0], train_rows = 320, validation_rows = 100 }\n\
    data.batch_size = 32\nmodel.layers = [{ linear = { out_features = 8 } }, { linear = { out_features = 1 } }]\n\
    optimizer.sgd.lr = 0.1\ntrainer.max_epochs = 100\n";

/// Two cores, and a disk that takes 5 ms for a sync. All of the sweep's trials are known.
fn with_trials<T>(overrides: &[&str], of: impl FnOnce(&[Trial], &Conditions<'_>, &mut Datasets) -> T) -> T {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("x.toml");
    std::fs::write(&path, SPEC).expect("a spec");
    let overrides: Vec<String> = overrides.iter().map(|word| (*word).to_owned()).collect();
    let experiment = spec::load(&path, &overrides).unwrap_or_else(|_| panic!("a spec"));
    let machine = Machine::typical(vec![plan::Gpu::virtual_of(1 << 30)], 1 << 30);
    let mut datasets = Datasets::new(&machine);
    let trials = experiment.trials.iter().map(|trial| {
        let facts = datasets.open(&trial.spec).unwrap_or_else(|_| panic!("data")).facts();
        plan::plan(&trial.spec, facts, &machine, 1).expect("a plan")
    });
    let trials: Vec<Trial> = trials.collect();
    let conditions = Conditions {
        runs_dir: folder.path(),
        jobs: 1,
        share: experiment.share,
        undrawn: 0,
        measures: true,
        is_sweep: experiment.is_sweep(),
        stops_early: experiment.stop.is_some(),
        machine: &machine,
        planned: Duration::ZERO,
    };
    of(&trials, &conditions, &mut datasets)
}

const MEASURED: Rehearsal = Rehearsal {
    step_s: 1e-3,
    order_s: 0.0,
    validation_s: Some(2e-3),
    loading_s: 0.0,
    first_s: 0.0,
    row_bytes: [None; 2],
    others: 0.0,
};

/// The time of these trials in words, with the first groups measured.
fn words_of(
    overrides: &[&str],
    (jobs, undrawn): (usize, usize),
    measured: usize,
    own: Rehearsal,
) -> Option<String> {
    with_trials(overrides, |trials, conditions, _| {
        let conditions = Conditions { jobs, undrawn, ..*conditions };
        let mut groups = grouped(trials.iter());
        for group in groups.iter_mut().take(measured) {
            (group.rehearsal, group.is_measured) = (Some(own), true);
        }
        estimate(&mut groups, conditions.machine);
        let mut disk = Disk::from_folder(conditions.runs_dir).expect("a disk");
        disk.write_s = Some([5e-3, 1e-9]);
        time(&groups, Some(&disk), &conditions, (true, "on this machine"))
    })
}

/// With a step of a millisecond and a validation of two.
fn words(overrides: &[&str], jobs: usize, measured: usize) -> Option<String> {
    words_of(overrides, (jobs, 0), measured, MEASURED)
}

#[test]
fn a_run_takes_its_steps_and_validations() {
    let run = |overrides: &[&str]| words(overrides, 1, 1).expect("a time");
    assert_eq!(run(&[]), "about 1.2 s on this machine: 1,000 steps of 1.00 ms, 100 validations of 2.00 ms");
    assert_eq!(
        run(&["trainer.max_epochs=10000", "trainer.validate_every_epochs=0"]),
        "about 1 min 40 s on this machine: 100,000 steps of 1.00 ms"
    );
    assert_eq!(
        run(&["trainer.validate_every_steps=3"]),
        "about 1.7 s on this machine: 1,000 steps of 1.00 ms, 334 validations of 2.00 ms"
    );
    assert_eq!(
        run(&["trainer.max_epochs=3"]),
        "less than a second on this machine: 30 steps of 1.00 ms, 3 validations of 2.00 ms"
    );
    let early = run(&["trainer.max_epochs=10000", "trainer.early_stopping.patience=3"]);
    assert!(early.starts_with("at most 2 min 00 s on this machine: "), "{early}");
    let limited = run(&["trainer.max_epochs=10000", "trainer.max_time=15s"]);
    assert_eq!(
        limited,
        "at most 15 s on this machine: 12,500 steps of 1.00 ms, 1,250 validations of 2.00 ms"
    );
    let idle = run(&["trainer.max_time=10h"]);
    assert!(idle.starts_with("about 1.2 s on this machine: "), "{idle}");
}

/// It is a part of the time, and so of the list.
#[test]
fn reading_that_takes_long_is_named() {
    let run = |planned: u64| {
        with_trials(&[], |trials, conditions, _| {
            let planned = Duration::from_millis(planned);
            let mut groups = grouped(trials.iter());
            (groups[0].rehearsal, groups[0].is_measured) = (Some(MEASURED), true);
            time(&groups, None, &Conditions { planned, ..*conditions }, (true, "on this machine"))
                .expect("a time")
        })
    };
    let words = "on this machine: 1,000 steps of 1.00 ms, 100 validations of 2.00 ms";
    assert_eq!(run(100), format!("about 1.3 s {words}"));
    assert_eq!(run(3600), format!("about 4.8 s {words}, reading and planning 3.60 s"));
}

/// A checkpoint takes six syncs of 5 ms, and ten steps take 10 ms.
#[test]
fn training_waits_for_checkpoints_that_take_longer_than_the_steps_between() {
    let run = |key: &str| words(&[key, "trainer.validate_every_epochs=0"], 1, 1).expect("a time");
    assert_eq!(
        run("checkpoint.every_steps=10"),
        "about 3.0 s on this machine: 1,000 steps of 1.00 ms, 2.01 s of waiting for checkpoints: a larger \
         `checkpoint.every_steps` has fewer"
    );
    // Some are left out.
    assert_eq!(
        run("checkpoint.every_epochs=1"),
        "about 2.1 s on this machine: 1,000 steps of 1.00 ms, 1.08 s of waiting for checkpoints: a larger \
         `checkpoint.every_epochs` has fewer"
    );
    assert_eq!(run("checkpoint.every_epochs=50"), "about 1.0 s on this machine: 1,000 steps of 1.00 ms");
    // No other key would make fewer than the one at the end.
    let one = ["checkpoint.every_minutes=1", "trainer.validate_every_epochs=0", "trainer.max_epochs=10"];
    assert_eq!(
        words(&one, 1, 1).as_deref(),
        Some(
            "less than a second on this machine: 100 steps of 1.00 ms, 30.0 ms of waiting for the checkpoint at its end"
        )
    );
    let sweep = words(&["checkpoint.every_steps=10", "seed=0..10"], 1, 1).expect("a time");
    assert_eq!(sweep, "about 30 s on this machine: 10 trials of 3.01 s");
    // The waits are within `max_time`.
    assert_eq!(
        words(
            &[
                "trainer.max_epochs=1000000000",
                "trainer.max_time=60s",
                "checkpoint.every_epochs=1",
                "trainer.validate_every_epochs=0"
            ],
            1,
            1
        )
        .as_deref(),
        Some(
            "at most 60 s on this machine: 56,224 steps of 1.00 ms, 3.78 s of waiting for checkpoints: a larger \
             `checkpoint.every_epochs` has fewer"
        )
    );
}

#[test]
fn a_sweep_takes_all_its_trials() {
    let widths = "model.layers.0.linear.out_features=8,8000";
    let sweep = |more: &[&str], jobs, measured| words(&[&[widths], more].concat(), jobs, measured);
    assert_eq!(
        sweep(&["seed=0,1,2"], 1, 2).as_deref(),
        Some("about 7.2 s on this machine: 6 trials of 1.20 s")
    );
    assert_eq!(
        sweep(&["seed=0,1,2"], 2, 2).as_deref(),
        Some("about 3.6 s on this machine: 6 trials of 1.20 s, 2 at a time")
    );
    assert_eq!(
        sweep(&["seed=0,1,2"], 6, 2).as_deref(),
        Some("about 3.6 s on this machine: 6 trials of 1.20 s, 6 at a time on 2 cores")
    );
    let drawn = words_of(&["seed=0,1"], (1, 8), 1, MEASURED);
    assert_eq!(drawn.as_deref(), Some("about 12 s on this machine: 10 trials of 1.20 s"));
    // What the first trial alone waits for counts once.
    let slow_start = Rehearsal { first_s: 20.0, ..MEASURED };
    let once = words_of(&["seed=0,1"], (1, 0), 1, slow_start);
    assert_eq!(once.as_deref(), Some("about 22 s on this machine: 2 trials of 1.20 s"));
    // The files of a trial take half as long as those of a run.
    let short = words(&["trainer.max_epochs=1", "trainer.validate_every_epochs=0", "seed=0..200"], 1, 1);
    assert_eq!(short.as_deref(), Some("about 2.3 s on this machine: 200 trials of 11.5 ms"));
    // The wider one takes as much longer as its arithmetic.
    let scaled = sweep(&[], 1, 1).expect("a time");
    let (head, tail) = scaled.split_once("2 trials of 1.20 s to ").expect("a range");
    assert!(head.starts_with("about ") && !head.starts_with("about 2.4 s"), "{scaled}");
    assert!(tail.ends_with("; 1 of 2 kinds of trials by their arithmetic"), "{scaled}");
}

/// A rate of dropout changes a step's instructions, a seed does not. Each trial finds its group without a look at the others.
#[test]
fn trials_of_many_rates_of_dropout() {
    let layers = "model.layers=[{ linear = { out_features = 8 } }, { dropout = { p = 0.5 } }, \
                  { linear = { out_features = 1 } }]";
    let rates: Vec<String> = (1..=3000).map(|n| format!("{}", f64::from(n) / 4000.0)).collect();
    let rates = format!("model.layers.1.dropout.p={}", rates.join(","));
    with_trials(&[layers, &rates, "seed=0,1"], |trials, _, _| {
        let groups = grouped(trials.iter());
        assert_eq!(groups.len(), 3000);
        assert!(groups.iter().all(|group| group.count == 2));
    });
}

#[test]
fn orders_of_rows_are_made_once_an_epoch() {
    let slow = Rehearsal { order_s: 0.5, ..MEASURED };
    assert_eq!(
        words_of(&["trainer.validate_every_epochs=0"], (1, 0), 1, slow).as_deref(),
        Some("about 51 s on this machine: 1,000 steps of 1.00 ms, 100 shuffles of 500 ms")
    );
}

/// The order of a million rows takes as long as thousands of steps.
#[test]
fn a_rehearsal_measures_steps_and_orders_apart() {
    let many = ["data.synthetic_regression.train_rows=1000000", "trainer.max_steps=100"];
    with_trials(&many, |trials, _, datasets| {
        // A busy machine may disturb some.
        let ratios = [(); 5].map(|()| {
            let own = rehearse(&trials[0], datasets).expect("measured");
            let opened = trials[0].open(datasets).expect("data");
            let ready = trials[0].ready(opened).expect("devices");
            let outcome = ready.train(&StopFlag::default(), &mut |_| Ok(())).expect("trained").outcome;
            let row = outcome.timing.iter().find(|row| row.clock == "host" && row.phase == "step");
            [own.step_s / row.expect("steps").mean_s, own.order_s / outcome.ordering_s]
        });
        for place in [0, 1] {
            let mut own = ratios.map(|ratios| ratios[place]);
            own.sort_by(f64::total_cmp);
            assert!((0.2..5.0).contains(&own[2]), "{ratios:?}");
        }
    });
}

/// A trial whose loss is not finite takes as long for a step as others.
#[test]
fn a_trial_that_diverges_is_measured() {
    with_trials(&["optimizer.sgd.lr=1e30"], |trials, _, datasets| {
        assert!(rehearse(&trials[0], datasets).is_ok());
    });
}

/// The host's processor says nothing of GPUs, and nothing of all where one is not known.
#[test]
fn virtual_gpus_take_no_known_time() {
    let on = |gpus: &str| words(&[gpus], 1, 1);
    assert!(on("devices.num_gpus=0").is_some());
    assert_eq!(on("devices.num_gpus=0,1"), None);
}
