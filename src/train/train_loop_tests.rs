//! Runs on two devices, the second of which goes wrong: what the run reports, and which rows it keeps.

use std::time::Duration;

use super::*;
use crate::{
    collective::{Collective, CollectiveError, Shared, shared},
    data::{self, Task},
    device::{
        Device,
        cpu::{CpuExecutor, CpuSetup, Memory, ThreadMode},
    },
    event::Event,
    plan::{Gpu, Machine, Trial, plan},
    spec,
    train::initial_values,
};

/// 12 rows by 4: three steps an epoch.
const SPEC: &str = "[devices]\nnum_gpus = 2\n[data]\nbatch_size = 4\n[data.synthetic_regression]\nweights = [2.0, -3.4]\n\
                    train_rows = 12\nvalidation_rows = 4\n[model]\nlayers = [{ linear = { out_features = 1 } }]\n\
                    [optimizer.sgd]\nlr = 0.03\n";

/// A device that goes wrong at a step's sum.
#[derive(Clone, Copy)]
enum Fault {
    /// It takes another gradient than the others.
    Differ(u64),
    Error(u64),
    Panic(u64),
}

struct Faulty(Shared, Option<Fault>);

impl Collective for Faulty {
    fn all_reduce(&mut self, elements: &mut [f32], step: u64) -> Result<(), CollectiveError> {
        match self.1 {
            Some(Fault::Error(at)) if at == step => {
                let (device, waited) = ("virtual:0".into(), Duration::from_secs(1));
                return Err(CollectiveError::Stalled { device, waited });
            }
            Some(Fault::Panic(at)) if at == step => panic!("by the test"),
            _ => self.0.all_reduce(elements, step)?,
        }
        if matches!(self.1, Some(Fault::Differ(at)) if at == step) {
            elements[0] += 1.0;
        }
        Ok(())
    }
}

fn trial(policy: &str) -> Trial {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.toml");
    std::fs::write(&path, SPEC).unwrap();
    let experiment =
        spec::load(&path, &[format!("logging.policy={policy}")]).unwrap_or_else(|_| panic!("a spec"));
    let spec = &experiment.trials[0].spec;
    let facts = data::open(&spec.data, Task::Regression, 0, u64::MAX).expect("data").facts();
    let machine = Machine::typical(vec![Gpu::virtual_of(1 << 30); 2], 1 << 30);
    plan(spec, facts, &machine, 1).expect("a plan")
}

/// A run with that fault of its second device, and its train rows.
fn run(fault: Option<Fault>, policy: &str) -> (Trained, usize) {
    let trial = trial(policy);
    let dataset = data::open(&trial.spec.data, Task::Regression, 0, u64::MAX).expect("data");
    // Longer than any test: nobody may need it.
    let limit = Duration::from_secs(600);
    let names = trial.devices.used_names();
    let (handles, abort) = shared(names.clone(), limit);
    let device = |((programs, shared), name): ((&_, _), &String)| {
        let fault = fault.filter(|_| name == "virtual:1");
        let setup = CpuSetup {
            device: name.clone(),
            memory: Memory::Separate,
            collective: Some(Box::new(Faulty(shared, fault))),
            ..CpuSetup::cpu(Clone::clone(programs), 1, 0, ThreadMode::Team)
        };
        Device::new(name.clone(), Box::new(CpuExecutor::new(setup).expect("an executor")))
    };
    let devices = trial.ranks().zip(handles).zip(&names).map(device).collect();
    let group = DeviceGroup::new(devices, abort, limit).expect("threads");
    let initial = initial_values(&trial.spec.model.init, &trial.programs.layout, 0, None);
    let mut rows = 0;
    let mut emit = |events: Vec<Event>| {
        let of = |event: &Event| if let Event::Train(rows) = event { rows.len() } else { 0 };
        rows += events.iter().map(of).sum::<usize>();
        Ok(())
    };
    let stop = StopFlag::default();
    let (trial, dataset, initial, stop) = (&trial, &dataset, &initial[..], &stop);
    let trained = train(TrainSetup { trial, dataset, group, initial, stop, emit: &mut emit });
    (trained.expect("somebody listens"), rows)
}

#[test]
fn a_replica_that_differs_is_caught_at_the_end_of_its_epoch() {
    let (trained, rows) = run(Some(Fault::Differ(4)), "buffered");
    let Outcome { status, reason, steps, .. } = trained.outcome;
    assert_eq!((status, steps, rows), (Status::Failed, 6, 6));
    let words = "after step 6, `virtual:1` no longer holds the parameters of `virtual:0`";
    assert_eq!(reason.as_deref(), Some(words));
    assert_eq!(trained.values, None);
    let (trained, rows) = run(None, "buffered");
    assert_eq!((trained.outcome.status, rows), (Status::Finished, 30));
    assert!(trained.values.is_some());
}

/// Blocks end where the log is flushed, so the rows of whole blocks are kept of the epoch with the fault.
#[test]
fn a_fault_keeps_the_rows_of_the_steps_before_it() {
    for (fault, words) in [
        (
            Fault::Error(5),
            "`virtual:1`, step 5: `virtual:0` did not come to the sum over devices within 1.00 s",
        ),
        (Fault::Panic(5), "`virtual:1` panicked at step 5: by the test"),
    ] {
        for (policy, kept) in [("immediate", 4), ("per_epoch", 1), ("off", 0)] {
            let (trained, rows) = run(Some(fault), policy);
            assert_eq!((trained.outcome.status, rows), (Status::Failed, kept), "{policy}");
            if policy == "immediate" {
                assert_eq!(trained.outcome.reason.as_deref(), Some(words));
                assert_eq!(trained.outcome.steps, 4);
            }
            assert_eq!(trained.values, None, "we cannot tell which step they belong to");
        }
    }
}
