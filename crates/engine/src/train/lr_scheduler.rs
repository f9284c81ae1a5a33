//! Learning rates: PyTorch's `lr_scheduler` curves in closed form, in f64, and each step's `Hyper`.

use std::f64::consts::PI;

use super::plateau::PlateauRate;
use crate::{
    event::ValidationRow,
    program::{Hyper, UpdateRule},
    spec::{Anneal, Curve, Interval, OneCycle, Optimizer, Rule, Schedule, Stage},
};

/// Learning rate and momentum (Adam: beta1) of one step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LrStep {
    pub lr: f64,
    pub momentum: f64,
}

/// A schedule whose lengths are all filled in.
#[derive(Clone, Debug)]
pub struct LrScheduler {
    optimizer: Optimizer,
    interval: Interval,
    /// Each stage's curve and where it starts (a step or an epoch, by `interval`); empty for a constant rate.
    stages: Vec<(u64, Curve)>,
    /// The rate under a plateau, which is the last stage.
    pub(super) plateau: Option<PlateauRate>,
    /// One per step that `fill` last computed.
    pub hyper: Vec<Hyper>,
    /// The learning rates of the same steps.
    pub lrs: Vec<f64>,
}

impl LrScheduler {
    pub fn new(optimizer: &Optimizer, schedule: &Schedule) -> Self {
        let mut stages = Vec::new();
        match &schedule.rule {
            Rule::Constant => {}
            Rule::One(curve) => stages.push((0, curve.clone())),
            Rule::Chain { chain } => {
                let mut first = 0;
                for Stage { steps, curve } in chain {
                    stages.push((first, curve.clone()));
                    first += steps.unwrap_or(0);
                }
            }
        }
        Self {
            optimizer: optimizer.clone(),
            interval: schedule.interval,
            stages,
            plateau: schedule.plateau().map(|(_, rule)| PlateauRate::new(rule, optimizer.lr())),
            hyper: Vec::new(),
            lrs: Vec::new(),
        }
    }

    /// Learning rate and momentum at step `step` of epoch `epoch`, both counted from 0. Steps under a plateau have its present rate.
    pub fn lr_at(&self, step: u64, epoch: u64) -> LrStep {
        // It is the last stage, and begins with the optimizer's rate.
        let lr = self.plateau.as_ref().map_or(self.optimizer.lr(), |plateau| plateau.state.lr);
        let base = LrStep { lr, momentum: self.optimizer.momentum() };
        let count = self.count(step, epoch);
        match self.stages.iter().rev().find(|(first, _)| *first <= count) {
            Some((first, curve)) => at(curve, base, count - first),
            None => base,
        }
    }

    fn count(&self, step: u64, epoch: u64) -> u64 {
        match self.interval {
            Interval::Step => step,
            Interval::Epoch => epoch,
        }
    }

    /// Lets a plateau judge a validation that follows one of its steps. Returns a line on the rate if it falls.
    pub(super) fn observe(&mut self, row: &ValidationRow) -> Option<String> {
        let count = self.count(row.step.saturating_sub(1), row.epoch.saturating_sub(1));
        let is_reached = self.stages.last().is_some_and(|(first, _)| *first <= count);
        self.plateau.as_mut().filter(|_| is_reached)?.observe(row)
    }

    /// Computes the values of `steps` updates from `step` on, in epochs of `per_epoch` steps.
    pub fn fill(&mut self, step: u64, steps: usize, per_epoch: u64) {
        self.hyper.clear();
        self.lrs.clear();
        // SGD's values do not depend on the step.
        if self.stages.is_empty() && matches!(self.optimizer, Optimizer::Sgd(_)) {
            let rates = self.lr_at(step, 0);
            self.hyper.resize(steps, self.hyper(rates, step));
            self.lrs.resize(steps, rates.lr);
            return;
        }
        for step in step..step + steps as u64 {
            let rates = self.lr_at(step, step / per_epoch.max(1));
            self.hyper.push(self.hyper(rates, step));
            self.lrs.push(rates.lr);
        }
    }

    /// Computed in f64 by the formulas of `torch.optim` and rounded to f32 once.
    fn hyper(&self, LrStep { lr, momentum }: LrStep, step: u64) -> Hyper {
        UpdateRule::hyper(&self.optimizer, lr, momentum, step + 1)
    }
}

fn at(curve: &Curve, base: LrStep, t: u64) -> LrStep {
    let lr = match curve {
        Curve::Step(c) => base.lr * c.gamma.powf((t / c.step_size) as f64),
        Curve::MultiStep(c) => {
            let passed = c.milestones.iter().filter(|m| **m <= t).count();
            base.lr * c.gamma.powf(passed as f64)
        }
        Curve::Exponential(c) => base.lr * c.gamma.powf(t as f64),
        Curve::Cosine(c) => {
            let t_max = c.t_max.unwrap_or(1) as f64;
            c.eta_min + (base.lr - c.eta_min) * (1.0 + (PI * t as f64 / t_max).cos()) / 2.0
        }
        Curve::Linear(c) => {
            let part = t.min(c.total_iters) as f64 / c.total_iters.max(1) as f64;
            base.lr * (c.start_factor + (c.end_factor - c.start_factor) * part)
        }
        Curve::Plateau(_) => base.lr,
        Curve::OneCycle(c) => return one_cycle(c, base, t),
    };
    LrStep { lr, ..base }
}

/// `OneCycleLR`, phase by phase as in PyTorch's source.
fn one_cycle(c: &OneCycle, base: LrStep, t: u64) -> LrStep {
    let total = c.total_steps.unwrap_or(1) as f64;
    let initial = c.max_lr / c.div_factor;
    let lowest = initial / c.final_div_factor;
    let (low, high) = (c.base_momentum, c.max_momentum);
    let rise = c.pct_start * total - 1.0;
    let up = (rise, [initial, c.max_lr], [high, low]);
    let phases = if c.three_phase {
        let fall = (2.0 * c.pct_start * total - 2.0, [c.max_lr, initial], [low, high]);
        vec![up, fall, (total - 1.0, [initial, lowest], [high, high])]
    } else {
        vec![up, (total - 1.0, [c.max_lr, lowest], [low, high])]
    };
    let t = t as f64;
    let mut start = 0.0;
    for (i, (end, lr, momentum)) in phases.iter().enumerate() {
        if t <= *end || i + 1 == phases.len() {
            let part = (t - start) / (end - start);
            let anneal = |[from, to]: [f64; 2]| match c.anneal_strategy {
                Anneal::Cos => to + (from - to) / 2.0 * (1.0 + (PI * part).cos()),
                Anneal::Linear => from + (to - from) * part,
            };
            let momentum = if c.cycle_momentum { anneal(*momentum) } else { base.momentum };
            return LrStep { lr: anneal(*lr), momentum };
        }
        start = *end;
    }
    base
}
