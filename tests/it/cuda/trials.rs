//! Many small trials on one GPU: what a further one takes from the driver, and that nothing of an earlier one shows in it.

use std::{collections::BTreeMap, fs, path::Path};

use super::{
    super::{
        ends::{quiet, wait_until},
        resume::{
            SPEC,
            sweeps::{are_equal, statuses, trials},
        },
    },
    LINREG, Sim,
};
use crate::process::{Ended, Folder, Sandbox};

/// An axis of `count` learning rates.
fn rates(count: usize) -> String {
    let rates = (1..=count).map(|i| format!("{}", i as f64 / 1000.0)).collect::<Vec<_>>();
    format!("optimizer.sgd.lr={}", rates.join(","))
}

/// What a sweep of `count` trials took from the driver, by call.
fn taken(sim: &Sim, place: &Sandbox, count: usize, more: &[&str]) -> (BTreeMap<String, usize>, Folder) {
    sim.counts();
    let sweep = sim.run(place, &[&[rates(count).as_str()], more].concat(), &[]).ended_by(0);
    (sim.counts(), sweep)
}

/// Everything that was taken was returned, but for the last context, which ends with the process.
#[track_caller]
fn is_returned(counts: &BTreeMap<String, usize>) {
    let of = |call: &str| counts.get(call).copied().unwrap_or(0);
    assert_eq!(of("context"), of("release") + 1, "{counts:?}");
    for (take, give) in [
        ("alloc", "free"),
        ("pinned", "free_pinned"),
        ("stream", "destroy_stream"),
        ("event", "destroy_event"),
        ("module", "unload"),
    ] {
        assert_eq!(of(take), of(give), "{take}: {counts:?}");
    }
}

#[test]
fn a_further_trial_takes_nothing_from_the_driver() {
    let Some(sim) = Sim::get() else { return };
    let place = Sandbox::new(LINREG);
    let (few, _) = taken(&sim, &place, 2, &[]);
    let before = sim.calls().len();
    let (many, sweep) = taken(&sim, &place, 12, &[]);
    is_returned(&many);
    // Samples of power are taken every 0.1 s at most, however many trials there are.
    let without_power = |mut counts: BTreeMap<String, usize>| counts.remove("power").map(|_| counts);
    assert_eq!(without_power(many), without_power(few));
    let calls = &sim.calls()[before..];
    let uploads = |bytes: &str| calls.iter().filter(|call| **call == format!("h2d {bytes} pinned")).count();
    // 500 rows of two features and a target, and 300 to validate on, once; an order of the rows for each epoch.
    assert_eq!(["4000", "2400", "1200"].map(uploads), [1, 1, 1]);
    assert_eq!(uploads("2000"), 1 + 12 * 3);
    for (number, trial) in trials(&sweep.0).iter().enumerate() {
        let dataset = trial.table("transfers.csv").only("purpose", "dataset");
        let cells = ["count", "noop_count", "bytes"].map(|column| dataset.cell(0, column));
        assert_eq!(cells, if number == 0 { ["4", "0", "9600"] } else { ["0", "4", "0"] });
    }
}

/// A further trial on rows of its own takes memory for them, which stay, and nothing else.
#[test]
fn a_further_trial_on_other_rows_takes_memory_for_them() {
    let Some(sim) = Sim::get() else { return };
    let place = Sandbox::new(LINREG);
    let taken = |seeds: &str| {
        sim.counts();
        sim.run(&place, &[seeds], &[]).ended_by(0);
        let counts = sim.counts();
        is_returned(&counts);
        ["alloc", "pinned", "event"].map(|call| counts[call])
    };
    let [few, many] = ["seed=0..2", "seed=0..12"].map(taken);
    let further = [0, 1, 2].map(|call| many[call] - few[call]);
    // Features and targets, to train and to validate on.
    assert_eq!(further, [4 * 10, 0, 4 * 10], "{few:?}, {many:?}");
}

/// Side by side each takes what it needs once; their results are those of trials that run alone.
#[test]
fn trials_beside_each_other_give_the_bits_of_each_alone() {
    let Some(sim) = Sim::get() else { return };
    let place = Sandbox::new(SPEC);
    let axes = ["devices.num_gpus=1", "optimizer.adam.lr=0.01,0.1,0.02,0.03,0.04,0.05", "seed=0,1,2,3"];
    for engine in ["persistent", "compiled"] {
        let engine = format!("devices.engine={engine}");
        let run = |more: &[&str]| {
            sim.run(&place, &[&axes[..], &[&engine], more].concat(), &[("RUNNER_SIM_LATE", "2")]).ended_by(0)
        };
        let whole = sim.run(&place, &["devices.num_gpus=1", &engine], &[]).ended_by(0);
        let alone_takes = sim.counts();
        let alone = run(&["sweep.share=false"]);
        is_returned(&sim.counts());
        let beside = run(&["--jobs", "8"]);
        let takes = sim.counts();
        is_returned(&takes);
        are_equal(&beside.0, &alone.0);
        // A trial in a process of its own.
        let own = trials(&beside.0).into_iter().find(|trial| trial.0.ends_with("020-lr=.05-seed=0")).unwrap();
        assert_eq!(
            (own.model(), own.metrics().column("loss")),
            (whole.model(), whole.metrics().column("loss"))
        );
        // Each seed has rows of its own: four buffers, and an event each.
        for (call, rows) in [("alloc", 4), ("pinned", 0), ("stream", 0), ("event", 4)] {
            let most = 8 * (alone_takes[call] - rows) + 4 * rows;
            assert!(takes[call] <= most, "{call}: {takes:?}, {alone_takes:?} alone");
        }
        assert_eq!((takes["module"], takes["context"]), (alone_takes["module"], 1), "{takes:?}");
        let environment = own.text("environment.toml");
        assert!(environment.contains("share = true\n"), "{environment}");
    }
}

/// A trial whose launch fails leaves nothing to the next one, which begins with a new context.
#[test]
fn what_a_failed_trial_had_is_not_used_again() {
    let Some(sim) = Sim::get() else { return };
    let place = Sandbox::new(LINREG);
    let whole = sim.run(&place, &[&rates(5)], &[]).ended_by(0);
    let launches = sim.calls().iter().filter(|call| call.starts_with("launch")).count();
    assert_eq!(sim.counts()["context"], 1);
    // Any launch of the second trial.
    let fails = format!("launch:{}", launches / 5 + 2);
    let ran = sim.run(&place, &[&rates(5)], &[("RUNNER_SIM_FAIL", &fails)]);
    let sweep = ran.ended_by(1).0;
    assert_eq!(statuses(&sweep), ["finished", "failed", "finished", "finished", "finished"]);
    let counts = sim.counts();
    is_returned(&counts);
    assert_eq!(counts["context"], 2);
    for (own, whole) in
        trials(&sweep).iter().zip(trials(&whole.0)).filter(|(own, _)| own.0.ends_with("lr=.001"))
    {
        assert_eq!(own.model(), whole.model());
    }
    // Memory that is not there is no fault of the context.
    let ran = sim.run(&place, &[&rates(5)], &[("RUNNER_SIM_FAIL", "alloc:3")]);
    let sweep = ran.ended_by(1).0;
    assert_eq!(statuses(&sweep), ["failed", "finished", "finished", "finished", "finished"]);
    let counts = sim.counts();
    is_returned(&counts);
    assert_eq!(counts["context"], 1);
}

/// A fault of the GPU ends the trials that are on it, and no others: the next one waits until nobody has the context.
#[test]
fn a_gpu_that_fails_is_used_again_with_a_new_context() {
    let Some(sim) = Sim::get() else { return };
    let place = Sandbox::new(LINREG);
    let whole = sim.run(&place, &[&rates(24)], &[]).ended_by(0).0;
    sim.counts();
    let axis = rates(24);
    for jobs in ["1", "4"] {
        let arguments = [&axis, "--jobs", jobs, "devices.engine=persistent"];
        let sweep = sim.run(&place, &arguments, &[("RUNNER_SIM_FAIL", "lost:9")]).ended_by(1).0;
        let statuses = statuses(&sweep);
        let failed = statuses.iter().filter(|status| *status == "failed").count();
        let table = fs::read_to_string(sweep.join("sweep.csv")).unwrap();
        assert!((1..=jobs.parse().unwrap()).contains(&failed), "{jobs}: {table}");
        let counts = sim.counts();
        assert_eq!((counts["context"], counts["release"]), (2, 1), "{jobs}: {counts:?}");
        for ((own, whole), status) in trials(&sweep).iter().zip(trials(&whole)).zip(statuses) {
            assert!(status == "failed" || own.model() == whole.model(), "{}", own.0.display());
        }
    }
}

/// Memory that ended trials left is freed where another trial needs it.
#[test]
fn a_larger_trial_gets_what_smaller_ones_left() {
    let Some(sim) = Sim::get() else { return };
    let place = Sandbox::new(LINREG);
    let wide =
        "model.layers=[{ linear = { out_features = 20000 } }, \"tanh\", { linear = { out_features = 1 } }]";
    let short = ["trainer.max_steps=1", "trainer.validate_every_epochs=0"];
    let memory = [("RUNNER_SIM_MEMORY", "100000000")];
    let arguments = [wide, short[0], short[1], "data.batch_size=250,80,330"];
    let sweep = sim.run(&place, &arguments, &memory).ended_by(0);
    assert_eq!(statuses(&sweep.0), ["finished"; 3]);
    is_returned(&sim.counts());
}

#[test]
fn check_says_how_trials_are_placed() {
    let Some(sim) = Sim::get() else { return };
    let place = Sandbox::new(LINREG);
    let placed = |more: &[&str], gpus: &str| {
        let gpus = [("RUNNER_SIM_DEVICES", gpus)];
        let page = sim.runner(&place, &[&["check", "spec.toml", "seed=0..9"], more].concat(), &gpus);
        let line = page.stdout.lines().find(|line| line.contains("`--jobs auto`")).map(str::trim);
        line.unwrap_or_else(|| panic!("{page:?}")).to_owned()
    };
    // A simulated GPU has four multiprocessors.
    let cores = runner::host::logical_cores().unwrap();
    let trials = |most: usize| match cores.min(most) {
        1 => "1 trial".to_owned(),
        count => format!("{count} trials"),
    };
    let expected =
        format!("`--jobs auto` runs {} at a time: up to 4 trials share a GPU, one block each", trials(4));
    assert_eq!(placed(&["devices.engine=persistent"], "1"), expected);
    let expected = "`--jobs auto` runs 2 trials at a time: each has a GPU to itself";
    assert_eq!(placed(&["devices.engine=graph"], "2"), expected);
    assert_eq!(placed(&["devices.engine=persistent", "sweep.share=false"], "2"), expected);
    let expected = format!(
        "`--jobs auto` runs {} at a time: up to 4 trials share a GPU, one block each; those with `graph` have one to \
         themselves",
        trials(4)
    );
    assert_eq!(placed(&["devices.engine=persistent,graph"], "1"), expected);
    let refused = sim.runner(&place, &["check", "spec.toml", "seed=0,1", "sweep.share=some"], &[]);
    assert!(
        refused.stderr.contains("`sweep.share`: expected true, false or `auto`, found the string `some`"),
        "{refused:?}"
    );
}

/// A sweep whose trials share a GPU is killed and goes on.
#[test]
fn a_killed_sweep_of_one_gpu_goes_on() {
    let Some(sim) = Sim::get() else { return };
    let place = Sandbox::new(SPEC);
    let axes = ["devices.num_gpus=1", "optimizer.adam.lr=0.01,0.1,0.02,0.03", "checkpoint.every_epochs=5"];
    let arguments = [&axes[..], &["trainer.max_epochs=60", "devices.engine=persistent"]].concat();
    let alone = sim.run(&place, &arguments, &[]).ended_by(0);
    let (mut command, runs) = place.prepared(&[&arguments[..], &["--jobs", "4"]].concat());
    sim.on(&mut command, &[]);
    let mut child = quiet(command);
    let has_saved = |sweep: &Path| {
        let folders = fs::read_dir(sweep).into_iter().flatten().flatten();
        folders.filter(|own| own.path().join("checkpoints").is_dir()).count() > 1
    };
    wait_until(&mut child, || Folder::within(&runs).is_some_and(|sweep| has_saved(&sweep.0)));
    child.kill().unwrap();
    child.wait().unwrap();
    let sweep = Folder::within(&runs).unwrap();
    let again = ["run", "-q", "--resume", sweep.0.to_str().unwrap(), "--jobs", "4"];
    Ended::from_output(sim.on(&mut place.command(&again), &[]).output().unwrap()).ended_by(0);
    are_equal(&sweep.0, &alone.0);
}

/// Pinned memory that ended trials left is freed where another trial finds no more.
#[test]
fn a_trial_gets_the_pinned_memory_that_earlier_ones_left() {
    let Some(sim) = Sim::get() else { return };
    let place = Sandbox::new(LINREG);
    sim.run(&place, &["data.placement=resident"], &[]).ended_by(0);
    let first_of_second = format!("pinned:{}", sim.counts()["pinned"] + 1);
    let fails = [("RUNNER_SIM_FAIL", first_of_second.as_str())];
    let sweep = sim.run(&place, &["data.placement=resident,streamed"], &fails).ended_by(0);
    assert_eq!(statuses(&sweep.0), ["finished"; 2]);
    is_returned(&sim.counts());
}
