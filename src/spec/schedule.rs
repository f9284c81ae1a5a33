//! `[schedule]`: how the learning rate moves. The curves are PyTorch's `lr_scheduler` classes.

use serde::Serialize;

/// The table `[schedule]`; absent, the rate is constant.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Schedule {
    /// What one count of the schedule is.
    pub interval: Interval,
    /// The curve or chain of curves.
    #[serde(flatten)]
    pub rule: Rule,
}

impl Schedule {
    /// Whether the rate never moves, so that the table need not be written.
    pub fn is_constant(&self) -> bool {
        self.rule == Rule::Constant
    }
}

/// What one count of a schedule is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Interval {
    /// One optimizer step.
    Step,
    /// One epoch.
    Epoch,
}

/// Nothing, one curve, or a chain (`SequentialLR`).
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Rule {
    /// The rate never moves.
    Constant,
    /// One curve over the whole run.
    One(Curve),
    /// One curve after the other.
    Chain {
        /// In order; all but the last say how many counts they last.
        chain: Vec<Link>,
    },
}

/// A curve in a chain.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Link {
    /// Counts this curve lasts; absent for the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<u64>,
    /// The curve.
    #[serde(flatten)]
    pub curve: Curve,
}

/// PyTorch's curves; the variant is the name of the sub-table.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Curve {
    /// `StepLR`.
    Step(Step),
    /// `MultiStepLR`.
    MultiStep(MultiStep),
    /// `ExponentialLR`.
    Exponential(Exponential),
    /// `CosineAnnealingLR`.
    Cosine(Cosine),
    /// `LinearLR`.
    Linear(LinearRamp),
    /// `OneCycleLR`.
    OneCycle(OneCycle),
}

/// Times `gamma` every `step_size` counts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Step {
    /// Counts between two drops; must be given.
    pub step_size: u64,
    /// The factor (0.1).
    pub gamma: f64,
}

/// Times `gamma` at each milestone.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MultiStep {
    /// Counts at which the rate drops; must be given.
    pub milestones: Vec<u64>,
    /// The factor (0.1).
    pub gamma: f64,
}

/// Times `gamma` at every count.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Exponential {
    /// The factor; must be given.
    pub gamma: f64,
}

/// Half a cosine from the initial rate to `eta_min`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cosine {
    /// Counts of the half period; absent: all counts of the run (or of its link).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub t_max: Option<u64>,
    /// The lowest rate (0).
    pub eta_min: f64,
}

/// A straight ramp of the factor.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LinearRamp {
    /// Factor at the start (1/3).
    pub start_factor: f64,
    /// Factor at the end (1).
    pub end_factor: f64,
    /// Counts of the ramp (5).
    pub total_iters: u64,
}

/// Up to `max_lr` and down again.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OneCycle {
    /// The peak; must be given.
    pub max_lr: f64,
    /// Counts of the cycle; absent: all counts of the run (or of its link).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_steps: Option<u64>,
    /// Part of the cycle that rises (0.3).
    pub pct_start: f64,
    /// The shape ("cos").
    pub anneal_strategy: Anneal,
    /// Whether momentum (or beta1) moves the other way (true).
    pub cycle_momentum: bool,
    /// Lowest momentum (0.85).
    pub base_momentum: f64,
    /// Highest momentum (0.95).
    pub max_momentum: f64,
    /// Initial rate is `max_lr / div_factor` (25).
    pub div_factor: f64,
    /// Final rate is the initial one over this (1e4).
    pub final_div_factor: f64,
    /// Whether a third phase leads from the initial to the final rate (false).
    pub three_phase: bool,
}

/// The shape of a OneCycle's phases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Anneal {
    /// Half a cosine.
    Cos,
    /// A straight line.
    Linear,
}
