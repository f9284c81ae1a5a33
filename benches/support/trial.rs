//! A trial from the text of a spec, planned for this machine, without a run folder.

use std::error::Error;

use runner::{
    data::{self, Dataset, Store, Task},
    device::{
        Block, Clock, Device, Grain, Purpose,
        cpu::{CpuExecutor, CpuSetup, ThreadMode},
    },
    host,
    plan::{Machine, MachineRates, Trial, plan},
    program::Hyper,
    spec,
    train::initial_values,
    vector::matmul::Kernel,
};

/// Any error.
pub type Fault = Box<dyn Error>;

/// A plan and its data.
pub struct Ready {
    trial: Trial,
    dataset: Dataset,
}

impl Ready {
    /// Reads, opens, plans.
    pub fn new(text: &str) -> Result<Self, Fault> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("bench.toml");
        std::fs::write(&path, text)?;
        let experiment = spec::load(&path, &[]).map_err(|_| "the spec is wrong")?;
        let spec = &experiment.trials.first().ok_or("no trial")?.spec;
        let task = if spec.model.loss.classifies() { Task::Classification } else { Task::Regression };
        let dataset = data::open(&spec.data, task, spec.seed, u64::MAX).map_err(|p| format!("{p:?}"))?;
        let facts = dataset.facts();
        let instruction_set = Kernel::detect().name().to_owned();
        let machine = Machine {
            cache_bytes: host::second_level_cache().unwrap_or(1 << 20),
            rates: MachineRates::typical(&instruction_set),
            instruction_set,
            ..Machine::typical(Vec::new(), u64::MAX)
        };
        let trial = plan(spec, facts, &machine, 1).map_err(|e| format!("{e:?}"))?;
        Ok(Self { trial, dataset })
    }

    fn device(&self) -> Result<Device, Fault> {
        let Trial { spec, plan, .. } = &self.trial;
        let job = CpuSetup::cpu((*plan.programs).clone(), plan.threads, spec.seed, ThreadMode::Team);
        Ok(Device::new("cpu", Box::new(CpuExecutor::new(job)?)))
    }

    fn initial(&self) -> Vec<f32> {
        let Trial { spec, plan, .. } = &self.trial;
        initial_values(&spec.model.init, &plan.programs.layout, spec.seed, None)
    }

    /// A device, ready to run the first steps of an epoch again and again.
    pub fn stepper(&self) -> Result<Stepper, Fault> {
        let layout = &self.trial.programs.layout;
        let mut device = self.device()?;
        device.upload(Purpose::Parameters, |e| e.write(layout.whole(layout.values), &self.initial()))?;
        let Store::Memory(features) = &self.dataset.train.features else {
            return Err("not in memory".into());
        };
        let targets = &self.dataset.train.targets;
        device.upload(Purpose::Dataset, |e| e.bind(layout.train_features, features))?;
        device.upload(Purpose::Dataset, |e| e.bind(layout.train_targets, targets))?;
        let mut order = Vec::new();
        data::epoch_order(0, 1, self.dataset.train.rows as u32, &mut order);
        device.upload(Purpose::Batch, |e| e.bind_order(&order.into()))?;
        // A learning rate so small that the parameters stay the same, however long the bench runs.
        let hyper = Hyper { rate: 1e-9, first: 0.1, correction: 1.0, decay_factor: 1.0, loss_scale: 1.0 };
        let rows = self.dataset.train.rows;
        let steps = (rows / self.trial.programs.train.batch).min(layout.log_slots);
        let clock = Clock::new(Grain::Blocks);
        Ok(Stepper { device, hyper: vec![hyper; steps], rows, clock, ends: Vec::new() })
    }
}

/// Runs blocks of steps.
pub struct Stepper {
    device: Device,
    hyper: Vec<Hyper>,
    rows: usize,
    clock: Clock,
    ends: Vec<f64>,
}

impl Stepper {
    /// Steps in a block.
    pub fn steps(&self) -> u64 {
        self.hyper.len() as u64
    }

    /// Sets how finely the next blocks are timed, and whether a timeline is recorded.
    pub fn time_by(&mut self, grain: Grain, traced: bool) {
        self.clock = Clock::new(grain).traced(traced);
    }

    /// Runs one block, as the training loop does.
    pub fn run(&mut self) -> Result<(), Fault> {
        self.ends.clear();
        let block = Block::first(&self.hyper, self.rows);
        self.device.run(&block, &mut self.clock, &mut self.ends)?;
        Ok(())
    }
}
