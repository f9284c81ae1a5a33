//! A planned trial.

use std::{
    ops::{Deref, DerefMut},
    sync::Arc,
};

use super::{
    all_reduce::{AllReducePlan, PeerAccess},
    chunks::Chunks,
    dataset_info::DatasetInfo,
    devices::{DeviceId, ResolvedDevices},
    engine::{Engine, EngineReason},
    footprint::Footprint,
    lower_bound::LowerBound,
    run_length::RunLength,
    shapes::LayerRow,
};
use crate::{
    program::{Programs, Role, is_large},
    spec::{Every, Optimizer, Schedule, Shared, Spec},
};

/// A spec and its plan. It dereferences to the plan.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The spec with all values that depend on data and model.
    pub spec: Spec,
    pub facts: DatasetInfo,
    pub plan: Shared<Plan>,
    /// Warnings about the data.
    pub data_warnings: Arc<Vec<String>>,
}

/// What will happen. Thousands of trials that differ only in learning rates and seeds have equal plans.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    pub devices: ResolvedDevices,
    pub engine: Engine,
    pub engine_reason: EngineReason,
    /// Whether its steps take one block of a GPU, which leaves room for others.
    pub is_one_block: bool,
    /// The all-reduce method, for several devices with GPUs among them.
    pub sums: Option<AllReducePlan>,
    pub threads: usize,
    pub layers: Vec<LayerRow>,
    /// The programs of the first device. Trials with equal steps may share them.
    pub programs: Arc<Programs>,
    /// The programs of the other devices.
    pub peers: Vec<Arc<Programs>>,
    /// Optimizer steps per epoch; the last may have fewer rows.
    pub steps_per_epoch: u64,
    /// Steps of the whole run, if nothing ends it early.
    pub steps: u64,
    /// The chunks of streamed rows; `None` for resident rows, or if each step reads its own.
    pub chunks: Option<Chunks>,
    pub readers: usize,
    pub lower_bound: LowerBound,
    pub data_bytes: u64,
    pub footprint: Footprint,
    /// Its memory use if all rows were resident, if that is less.
    pub resident: Option<Footprint>,
}

impl Deref for Trial {
    type Target = Plan;

    fn deref(&self) -> &Plan {
        &self.plan
    }
}

impl DerefMut for Trial {
    fn deref_mut(&mut self) -> &mut Plan {
        &mut self.plan
    }
}

impl Trial {
    /// Keeps what equals a part of `other` only once. Returns whether all of the plan does.
    pub fn share_with(&mut self, other: &Self) -> bool {
        self.spec.share_with(&other.spec);
        self.plan.share_with(&other.plan)
    }

    /// How many epochs after `epoch` run without the host between them. Several devices compare their parameters after
    /// every epoch, and rows that are not resident are read epoch by epoch.
    pub fn stretch(&self, epoch: u64) -> u64 {
        let alone = self.world_size() == 1 && self.chunks.is_none() && !self.facts.in_file();
        let length = RunLength::new(&self.spec, self.facts, self.programs.train.batch);
        if alone { length.stretch(&self.spec, epoch) } else { 1 }
    }

    /// Passes over the validation rows, if nothing ends the run early.
    pub fn validations(&self) -> u64 {
        RunLength::new(&self.spec, self.facts, self.programs.train.batch).validations
    }

    /// A pass over the validation rows, as a number of steps with as much arithmetic.
    pub fn validation_steps(&self) -> f64 {
        let Some(pass) = &self.programs.validate else { return 0.0 };
        let chunks = self.facts.validation_rows as f64 / pass.batch.max(1) as f64;
        chunks * pass.cost().flops / self.programs.train.cost().flops.max(1.0)
    }

    /// Checkpoints of a run that takes `seconds`, if nothing ends it early: those that are due, and that at its end.
    pub fn checkpoints(&self, seconds: f64) -> u64 {
        let of = |every: u64, all: u64| all / every + u64::from(!all.is_multiple_of(every));
        match self.spec.checkpoint.as_ref().map(|rule| &rule.every) {
            None => 0,
            Some(Every::Epochs(n)) => of(*n, self.steps.div_ceil(self.steps_per_epoch.max(1))),
            Some(Every::Steps(n)) => of(*n, self.steps),
            Some(Every::Minutes(n)) => (seconds / (60.0 * n)) as u64 + 1, // the cast saturates
        }
    }

    /// Whether its times are those of its devices, and all of these are here.
    pub fn is_timed_here(&self) -> bool {
        !self.devices.any_virtual() && !self.devices.over_hosts()
    }

    /// Numbers of a checkpoint: parameters, the optimizer's state, and the weights of the best validation.
    pub fn saved_numbers(&self) -> u64 {
        let of_role = |role| self.programs.layout.of_role(role).map_or(0, |slice| slice.len as u64);
        [Role::Values, Role::State, Role::Best].into_iter().map(of_role).sum()
    }

    pub fn steps_of_epochs(&self) -> u64 {
        self.steps_per_epoch.saturating_mul(self.spec.trainer.max_epochs)
    }

    /// The same trial on other devices of the same kind, connected in the same way.
    pub fn on(&self, devices: ResolvedDevices) -> Self {
        let mut trial = self.clone();
        let rename = |own: &mut DeviceId| {
            let place = self.devices.used.iter().position(|device| device == own);
            place.and_then(|place| devices.used.get(place)).inspect(|other| *own = **other);
        };
        match trial.sums.as_mut().map(|sums| &mut sums.peers) {
            Some(PeerAccess::Unreached(from, to)) => [from, to].into_iter().for_each(rename),
            Some(PeerAccess::NotCooperative(own)) => rename(own),
            _ => {}
        }
        trial.devices = devices;
        trial
    }

    /// Whether a step has a matrix product that is computed by the GPU's library.
    pub fn has_large_product(&self) -> bool {
        has_large_product(&self.programs)
    }

    /// Whether its engine has such a product computed by the library.
    pub fn uses_products_library(&self) -> bool {
        self.engine.uses_library() && self.has_large_product()
    }

    /// Names of the targets, if there are several: column names, or numbers from 0.
    pub fn target_names(&self) -> Vec<String> {
        target_names(&self.spec, self.facts)
    }

    pub fn world_size(&self) -> usize {
        self.devices.used.len()
    }

    /// Rows of a step, over all devices and per device before scaling. Under weak scaling the first grows
    /// with the number of devices, if there are enough rows.
    pub fn batches(&self) -> [usize; 2] {
        [self.programs.train.batch, self.spec.data.batch_size.min(self.facts.train_rows)]
    }

    /// The factor by which weak scaling changes the learning rate.
    pub fn lr_factor(&self) -> f64 {
        let [all, one] = self.batches();
        let ratio = if self.world_size() == 1 { 1.0 } else { all as f64 / one as f64 };
        self.spec.devices.lr_scaling.factor(ratio)
    }

    /// The optimizer and the schedule with scaled learning rates.
    pub fn effective_optimizer(&self) -> (Optimizer, Schedule) {
        let factor = self.lr_factor();
        (self.spec.optimizer.with_lr_times(factor), self.spec.schedule.with_lr_times(factor))
    }

    /// Each device's programs, in the order of [`ResolvedDevices::used`].
    pub fn ranks(&self) -> impl Iterator<Item = &Programs> {
        std::iter::once(&self.programs).chain(&self.peers).map(|programs| &**programs)
    }
}

/// Whether a step has a product that the GPU's library computes; an update cannot be fused into such a
/// product.
pub(super) fn has_large_product(programs: &Programs) -> bool {
    programs.train.instructions.iter().any(|i| i.op.product().is_some_and(is_large))
}

/// Names of the targets, if there are several: column names, or numbers from 0.
pub(super) fn target_names(spec: &Spec, facts: DatasetInfo) -> Vec<String> {
    match (facts.targets, spec.data.source.table()) {
        (0 | 1, _) => Vec::new(),
        (_, Some((_, csv))) => csv.target.clone(),
        (targets, None) => (0..targets).map(|target| target.to_string()).collect(),
    }
}
