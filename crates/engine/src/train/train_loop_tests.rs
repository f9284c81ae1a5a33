//! Runs on several devices of which some fail: what the run reports, which rows it keeps, and whom it waits
//! for.

use std::{
    collections::BTreeSet,
    sync::{Mutex, atomic::Ordering},
    time::Duration,
};

use super::*;
use crate::{
    collective::{Abort, Collective, CollectiveError, Shared, shared},
    data::{self, Task},
    device::{
        Device,
        cpu::{CpuExecutor, CpuSetup, Memory, ThreadMode},
    },
    event::Event,
    plan::{Gpu, Machine, MachineRates, plan},
    spec,
    train::initial_values,
};

/// 12 rows in batches of 4: three steps per epoch.
const SPEC: &str = "[devices]\nnum_gpus = 2\n[data]\nbatch_size = 4\n[data.synthetic_regression]\nweights = [2.0, -3.4]\n\
                    train_rows = 12\nvalidation_rows = 4\n[model]\nlayers = [{ linear = { out_features = 1 } }]\n\
                    [optimizer.sgd]\nlr = 0.03\n";

/// What a device does at its fifth all-reduce.
#[derive(Clone)]
enum Fault {
    /// It computes a different gradient than the others.
    Differ,
    Error,
    Panic,
    /// It blocks until this mutex is released.
    Stall(Arc<Mutex<()>>),
}

struct Faulty(Shared, Option<Fault>);

impl Collective for Faulty {
    fn all_reduce(&mut self, elements: &mut [f32], step: u64) -> Result<(), CollectiveError> {
        let fault = self.1.as_ref().filter(|_| step == 5);
        match fault {
            Some(Fault::Error) => {
                let (device, waited) = ("another".into(), Duration::from_secs(1));
                return Err(CollectiveError::Stalled { device, waited });
            }
            Some(Fault::Panic) => panic!("by the test"),
            Some(Fault::Stall(until)) => drop(until.lock()),
            Some(Fault::Differ) | None => {}
        }
        self.0.all_reduce(elements, step)?;
        elements[0] += if matches!(fault, Some(Fault::Differ)) { 1.0 } else { 0.0 };
        Ok(())
    }
}

/// Longer than any test takes: a test that waits for it has failed.
const FOR_EVER: Duration = Duration::from_secs(600);

/// Longer than a device is late on a busy machine.
const SHORT: Duration = Duration::from_secs(2);

/// A run on devices with these faults; returns its number of training rows too. `limits`: how long devices
/// wait for each other, and how long answers are waited for.
fn run(faults: &[Option<Fault>], policy: &str, limits: [Duration; 2]) -> (Trained, usize) {
    let overrides = [format!("logging.policy={policy}"), format!("devices.num_gpus={}", faults.len())];
    let machine = Machine::typical(vec![Gpu::virtual_of(1 << 30); faults.len()], 1 << 30);
    let (trial, dataset) = planned(&overrides, &machine);
    let names = trial.devices.used_names();
    let (handles, abort) = shared(names.clone(), limits[0]);
    let device = |(((programs, shared), name), fault): (((&_, _), &String), &Option<Fault>)| {
        let setup = CpuSetup {
            device: name.clone(),
            memory: Memory::Separate,
            collective: Some(Box::new(Faulty(shared, fault.clone()))),
            ..CpuSetup::cpu(Clone::clone(programs), 1, 0, ThreadMode::Team)
        };
        Device::new(name.clone(), Box::new(CpuExecutor::new(setup).expect("an executor")))
    };
    let devices = trial.ranks().zip(handles).zip(&names).zip(faults).map(device).collect();
    let group = DeviceGroup::new(devices, abort, limits[1]).expect("threads");
    let initial = initial_values(&trial.spec.model.init, &trial.programs.layout, 0, None);
    let mut rows = 0;
    let mut emit = |events: Vec<Event>| {
        let of = |event: &Event| if let Event::Train(rows) = event { rows.len() } else { 0 };
        rows += events.iter().map(of).sum::<usize>();
        Ok(())
    };
    let stop = StopFlag::default();
    let (trial, dataset, stop) = (&trial, &dataset, &stop);
    let trained = train(TrainSetup { trial, dataset, group, initial, resumed: None, stop, emit: &mut emit });
    (trained.expect("somebody listens"), rows)
}

fn planned(overrides: &[String], machine: &Machine) -> (Trial, Dataset) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.toml");
    std::fs::write(&path, SPEC).unwrap();
    let experiment = spec::load(&path, overrides).unwrap_or_else(|_| panic!("a spec"));
    let spec = &experiment.trials[0].spec;
    let dataset = data::open(&spec.data, Task::Regression, 0, u64::MAX).expect("data");
    let trial = plan(spec, dataset.facts(), machine, 1).expect("a plan");
    (trial, dataset)
}

/// A run on the CPU from its beginning or from a saved state; returns its validations, by step and epoch, and the states that it
/// saved.
fn run_on_cpu(
    (trial, dataset): &(Trial, Dataset),
    resumed: Option<SavedState>,
    stop: &StopFlag,
) -> (Trained, Vec<(u64, u64, f64)>, Vec<SavedState>) {
    let setup = CpuSetup::cpu(Clone::clone(&*trial.programs), 1, 0, ThreadMode::Team);
    let device = Device::new("cpu", Box::new(CpuExecutor::new(setup).expect("an executor")));
    let group = DeviceGroup::new(vec![device], Abort::nothing(), FOR_EVER).expect("a device");
    let first = || initial_values(&trial.spec.model.init, &trial.programs.layout, 0, None);
    let initial = resumed.as_ref().map_or_else(first, |saved| saved.arrays.values.clone());
    let (mut rows, mut states) = (Vec::new(), Vec::new());
    let mut emit = |events: Vec<Event>| {
        for event in events {
            match event {
                Event::Validation(row) => rows.push((row.step, row.epoch, row.loss)),
                Event::Checkpoint(own) => {
                    let arrays = (*own.arrays).clone();
                    states.push(SavedState { facts: own.facts, arrays, costs: Vec::new() });
                }
                _ => {}
            }
        }
        Ok(())
    };
    let trained = train(TrainSetup { trial, dataset, group, initial, resumed, stop, emit: &mut emit });
    (trained.expect("somebody listens"), rows, states)
}

/// A signal ends a run after its first step, before the validation that is due: the state has none, and the run that goes on takes
/// it first.
#[test]
fn a_validation_that_a_signal_prevented_comes_first() {
    let machine = Machine::typical(Vec::new(), 1 << 30);
    let overrides = ["devices.num_gpus=0", "trainer.max_epochs=2", "trainer.validate_every_steps=1"];
    let job = planned(&overrides.map(str::to_owned), &machine);
    let (whole, expected, _) = run_on_cpu(&job, None, &StopFlag::default());
    let steps: Vec<[u64; 2]> = expected.iter().map(|row| [row.0, row.1]).collect();
    assert_eq!(steps, [[1, 1], [2, 1], [3, 1], [4, 2], [5, 2], [6, 2]]);
    let stop = StopFlag::default();
    stop.number.store(15, Ordering::Relaxed);
    let (ended, rows, mut states) = run_on_cpu(&job, None, &stop);
    assert_eq!((ended.outcome.status, rows, states.len()), (Status::Interrupted, vec![], 1));
    let facts = &states[0].facts;
    assert_eq!((facts.step, facts.in_epoch, &facts.validation), (1, true, &None));
    let (resumed, rows, _) = run_on_cpu(&job, states.pop(), &StopFlag::default());
    assert_eq!(rows, expected);
    assert_eq!((resumed.values, resumed.best), (whole.values, whole.best));
}

/// On a machine with these rates the hand-over of blocks, which belongs to logging, is all the time of the steps.
#[test]
fn a_saved_state_has_the_time_of_logging_that_a_finished_run_has() {
    let overrides = [
        "devices.num_gpus=0",
        "checkpoint.every_epochs=50",
        "logging.policy=immediate",
        "optimizer.sgd.lr=1e-6",
        "trainer.max_epochs=100",
        "model.layers=[{ linear = { out_features = 2048 } }, { linear = { out_features = 1 } }]",
    ];
    let mut machine = Machine::typical(Vec::new(), 1 << 30);
    let fast =
        MachineRates { flops_per_s: 1e18, elementwise_per_s: 1e18, instruction_s: 0.0, ..machine.rates };
    machine.rates = MachineRates { cache_bytes_per_s: 1e18, memory_bytes_per_s: 1e18, block_s: 1e6, ..fast };
    let job = planned(&overrides.map(str::to_owned), &machine);
    let (trained, _, states) = run_on_cpu(&job, None, &StopFlag::default());
    let (trial, outcome) = (&job.0, trained.outcome);
    let of =
        |phase| outcome.timing.iter().filter(|row| row.phase == phase).map(|row| row.total_s).sum::<f64>();
    let least_s = trial.lower_bound.of_steps(1, trial.steps, 0).total_s();
    let last = &states.last().expect("a checkpoint").facts;
    assert_eq!(last.step, trial.steps);
    let handed_over = of("step") - least_s;
    assert!(last.logging_s > of("log").max(handed_over), "{} of {handed_over}", last.logging_s);
    let rest_s = outcome.logging_s - last.logging_s;
    assert!((0.0..=of("log")).contains(&rest_s), "{rest_s} after the last state, of {}", of("log"));
}

#[test]
fn a_replica_that_differs_is_caught_at_the_end_of_its_epoch() {
    let (trained, rows) = run(&[None, Some(Fault::Differ)], "buffered", [FOR_EVER; 2]);
    let Outcome { status, reason, steps, .. } = trained.outcome;
    assert_eq!((status, steps, rows), (Status::Failed, 6, 6));
    let words = "after step 6, `virtual:1` no longer holds the parameters of `virtual:0`";
    assert_eq!(reason.as_deref(), Some(words));
    assert_eq!(trained.values, None);
    let (trained, rows) = run(&[None, None], "buffered", [FOR_EVER; 2]);
    assert_eq!((trained.outcome.status, rows), (Status::Finished, 30));
    assert!(trained.values.is_some());
}

/// Blocks end at a flush of the log, so of the epoch with the fault the rows of complete blocks are kept.
#[test]
fn a_fault_keeps_the_rows_of_the_steps_before_it() {
    for fault in [Fault::Error, Fault::Panic] {
        for (policy, kept) in [("immediate", 4), ("per_epoch", 1), ("off", 0)] {
            let (trained, rows) = run(&[None, Some(fault.clone())], policy, [FOR_EVER; 2]);
            assert_eq!((trained.outcome.status, rows), (Status::Failed, kept), "{policy}");
            assert_eq!(trained.values, None, "we cannot tell which step they belong to");
        }
    }
}

/// Whichever device fails, panics or does not answer ends the work of all, and is named.
#[test]
fn the_device_at_fault_is_named_and_nobody_waits_for_it() {
    let hold = Arc::new(Mutex::new(()));
    let held = hold.lock().unwrap();
    let (error, panic, stall) =
        (Some(Fault::Error), Some(Fault::Panic), Some(Fault::Stall(Arc::clone(&hold))));
    let unlimited = [FOR_EVER; 2];
    let missed = |by: u32, device: &str, within: &str| {
        format!("`virtual:{by}`, step 5: `{device}` did not come to the sum over devices within {within}")
    };
    for (faults, limits, words) in [
        (vec![error.clone(), None], unlimited, missed(0, "another", "1.00 s")),
        (vec![None, None, error, None], unlimited, missed(2, "another", "1.00 s")),
        (vec![panic.clone(), None], unlimited, "`virtual:0` panicked at step 5: by the test".into()),
        (vec![None, None, panic], unlimited, "`virtual:2` panicked at step 5: by the test".into()),
        (vec![stall.clone(), None], [SHORT, FOR_EVER], missed(1, "virtual:0", "2.00 s")),
        (vec![None, stall.clone()], [SHORT, FOR_EVER], missed(0, "virtual:1", "2.00 s")),
        // Both stall, so no device is left to report the other.
        (
            vec![stall.clone(), stall],
            [FOR_EVER, SHORT],
            "`virtual:0` did not answer within 2.00 s, at step 5".into(),
        ),
    ] {
        let (trained, rows) = run(&faults, "immediate", limits);
        let Outcome { reason, steps, transfers, .. } = trained.outcome;
        assert_eq!((reason, steps), (Some(words), 4));
        // A device that stalls yields nothing more: no log rows and no counts.
        let stalls = faults.iter().filter(|fault| matches!(fault, Some(Fault::Stall(_)))).count();
        let sent = transfers.into_iter().filter(|row| row.kind == "h2d");
        let ended: BTreeSet<String> = sent.map(|row| row.to).collect();
        assert_eq!((ended.len(), rows), (faults.len() - stalls, 4));
    }
    drop(held);
}
