//! Runs on two devices, one of which goes wrong: what the run says of it, and which rows it keeps.

use std::sync::Arc;

use super::*;
use crate::{
    collective::{Collective, shared},
    data::{self, Task},
    device::{
        Block, Device, Executor, Meters, Moved, Ran,
        cpu::{CpuExecutor, CpuSetup, Memory, ThreadMode},
    },
    plan::{Gpu, Machine, Trial, plan},
    program::{Accumulator, BufferId},
    spec,
    train::initial_values,
};

/// 12 rows by 4: three steps an epoch.
const SPEC: &str = "[devices]\nnum_gpus = 2\n[data]\nbatch_size = 4\n[data.synthetic_regression]\nweights = [2.0, -3.4]\n\
                    train_rows = 12\nvalidation_rows = 4\n[model]\nlayers = [{ linear = { out_features = 1 } }]\n\
                    [optimizer.sgd]\nlr = 0.03\n";

#[derive(Clone, Copy)]
enum Fault {
    /// A parameter of the replica is changed after this step.
    Flip(u64),
    Error(u64),
    Panic(u64),
}

/// A device that goes wrong in the block that holds a step.
struct Faulty {
    executor: CpuExecutor,
    values: Slice,
    fault: Option<Fault>,
}

impl Executor for Faulty {
    fn bind(&mut self, buffer: BufferId, rows: &Arc<Vec<f32>>) -> Result<Moved, DeviceError> {
        self.executor.bind(buffer, rows)
    }
    fn bind_order(&mut self, order: &Arc<Vec<u32>>) -> Result<Moved, DeviceError> {
        self.executor.bind_order(order)
    }
    fn write(&mut self, to: Slice, from: &[f32]) -> Result<Moved, DeviceError> {
        self.executor.write(to, from)
    }
    fn read(&mut self, from: Slice, to: &mut [f32]) -> Result<Moved, DeviceError> {
        self.executor.read(from, to)
    }
    fn take_sums(&mut self, sums: Accumulator, to: &mut [f64]) -> Result<Moved, DeviceError> {
        self.executor.take_sums(sums, to)
    }
    fn digest(&mut self, of: Slice) -> Result<(u64, Moved), DeviceError> {
        self.executor.digest(of)
    }
    fn run(&mut self, block: &Block<'_>, meters: &mut Meters<'_>) -> Result<Ran, DeviceError> {
        let holds = |step: u64| {
            block.work == PassKind::Train && step > block.step && step <= block.step + block.steps as u64
        };
        match self.fault {
            Some(Fault::Error(step)) if holds(step) => {
                return Err(DeviceError::Lost { device: "virtual:1".into(), step });
            }
            Some(Fault::Panic(step)) if holds(step) => panic!("by the test"),
            _ => {}
        }
        let ran = self.executor.run(block, meters)?;
        if let Some(Fault::Flip(step)) = self.fault
            && holds(step)
        {
            let first = Slice { len: 1, ..self.values };
            let mut value = [0.0];
            self.executor.read(first, &mut value)?;
            // The last bit.
            self.executor.write(first, &[f32::from_bits(value[0].to_bits() ^ 1)])?;
        }
        Ok(ran)
    }
    fn settle(&mut self, purpose: Purpose, meters: &mut Meters<'_>) -> Result<Ran, DeviceError> {
        self.executor.settle(purpose, meters)
    }
    fn bytes(&self) -> u64 {
        self.executor.bytes()
    }
}

fn trial(folder: &std::path::Path, policy: &str) -> Trial {
    let path = folder.join("x.toml");
    std::fs::write(&path, SPEC).unwrap();
    let experiment =
        spec::load(&path, &[format!("logging.policy={policy}")]).unwrap_or_else(|_| panic!("a spec"));
    let spec = &experiment.trials[0].spec;
    let facts = data::open(&spec.data, Task::Regression, 0, u64::MAX).expect("data").facts();
    let machine = Machine::typical(vec![Gpu::virtual_of(1 << 30); 2], 1 << 30);
    plan(spec, facts, &machine, 1).expect("a plan")
}

/// What a run with that fault of its second device comes to, and its train rows.
fn run(fault: Option<Fault>, policy: &str) -> (Trained, usize) {
    let folder = tempfile::tempdir().unwrap();
    let trial = trial(folder.path(), policy);
    let dataset = data::open(&trial.spec.data, Task::Regression, 0, u64::MAX).expect("data");
    // Longer than any test: nobody may need it.
    let limit = Duration::from_secs(600);
    let (handles, abort) = shared(trial.devices.used_names(), limit);
    let mut devices = Vec::new();
    for ((programs, collective), name) in trial.ranks().zip(handles).zip(trial.devices.used_names()) {
        let job = CpuSetup {
            device: name.clone(),
            memory: Memory::Separate,
            collective: Some(Box::new(collective) as Box<dyn Collective>),
            ..CpuSetup::cpu(programs.clone(), 1, 0, ThreadMode::Team)
        };
        let fault = fault.filter(|_| name == "virtual:1");
        let values = programs.layout.whole(programs.layout.values);
        let executor = CpuExecutor::new(job).expect("an executor");
        devices.push(Device::new(name, Box::new(Faulty { executor, values, fault })));
    }
    let group = DeviceGroup::new(devices, abort, limit).expect("a world");
    let initial = initial_values(&trial.spec.model.init, &trial.programs.layout, 0, None);
    let mut rows = 0;
    let mut emit = |events: Vec<Event>| {
        let of = |event: &Event| if let Event::Train(rows) = event { rows.len() } else { 0 };
        rows += events.iter().map(of).sum::<usize>();
        Ok(())
    };
    let stop = StopFlag::default();
    let job = TrainSetup {
        trial: &trial,
        dataset: &dataset,
        group,
        initial: &initial,
        stop: &stop,
        emit: &mut emit,
    };
    let trained = train(job).expect("somebody listens");
    (trained, rows)
}

#[test]
fn a_replica_that_differs_by_one_bit_is_caught_at_the_end_of_its_epoch() {
    let (trained, rows) = run(Some(Fault::Flip(4)), "buffered");
    let Outcome { status, reason, steps, .. } = trained.outcome;
    assert_eq!((status, steps, rows), (Status::Failed, 6, 6));
    let said = "after step 6, `virtual:1` no longer holds the parameters of `virtual:0`";
    assert_eq!(reason.as_deref(), Some(said));
    assert_eq!(trained.values, None);
    let (trained, rows) = run(None, "buffered");
    assert_eq!((trained.outcome.status, rows), (Status::Finished, 30));
    assert!(trained.values.is_some());
}

/// Blocks end where the log is flushed, so that of a fault's epoch the rows of whole blocks are kept.
#[test]
fn a_fault_keeps_the_rows_of_the_steps_before_it() {
    for (fault, said) in [
        (Fault::Error(5), "a thread of `virtual:1` ended unexpectedly at step 5"),
        (Fault::Panic(5), "`virtual:1` panicked at step 5: by the test"),
    ] {
        for (policy, kept) in [("immediate", 4), ("per_epoch", 1), ("off", 0)] {
            let (trained, rows) = run(Some(fault), policy);
            assert_eq!((trained.outcome.status, rows), (Status::Failed, kept), "{policy}");
            if policy == "immediate" {
                assert_eq!(trained.outcome.reason.as_deref(), Some(said));
                assert_eq!(trained.outcome.steps, 4);
            }
            assert_eq!(trained.values, None, "of which step they are is not known");
        }
    }
}
