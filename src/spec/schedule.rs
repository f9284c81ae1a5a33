//! `[schedule]`: how the learning rate moves. The curves are PyTorch's `lr_scheduler` classes.

use serde::Serialize;

use super::reader::{
    Choice, Choices, Fields, How, Item, Read, below_one, choices, count, non_negative, positive,
    positive_unit, some, table, unit, words,
};

table! {
    /// The table `[schedule]`; absent, the rate is constant.
    pub struct Schedule {
        /// What one count of the schedule is.
        pub interval: Interval = Interval::Step,
        /// The curve or chain of curves.
        pub rule: Rule [flatten],
    }
    check check_chain
}

impl Schedule {
    /// Whether the rate never moves, so that the table need not be written.
    pub fn is_constant(&self) -> bool {
        self.rule == Rule::Constant
    }

    /// The schedule with `factor` times the rate that it names itself: the largest of a `one_cycle`. Other curves bend
    /// the optimizer's rate, or name a floor.
    pub fn with_lr_times(mut self, factor: f64) -> Self {
        let times = |curve: &mut Curve| {
            if let Curve::OneCycle(c) = curve {
                c.max_lr *= factor;
            }
        };
        match &mut self.rule {
            Rule::Constant => {}
            Rule::One(curve) => times(curve),
            Rule::Chain { chain } => chain.iter_mut().for_each(|link| times(&mut link.curve)),
        }
        self
    }
}

words! {
    /// What one count of a schedule is.
    pub enum Interval {
        /// An optimizer step.
        Step = "step",
        /// An epoch.
        Epoch = "epoch",
    }
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
        chain: Vec<Stage>,
    },
}

table! {
    /// A curve in a chain.
    pub struct Stage {
        /// Counts this curve lasts; not for the last.
        pub steps: Option<u64> = None => some(count),
        /// The curve.
        pub curve: Curve [flatten],
    }
}

choices! {
    /// PyTorch's curves; the variant is the name of the sub-table.
    pub enum Curve {
        /// `StepLR`.
        Step(Step) = "step",
        /// `MultiStepLR`.
        MultiStep(MultiStep) = "multi_step",
        /// `ExponentialLR`.
        Exponential(Exponential) = "exponential",
        /// `CosineAnnealingLR`.
        Cosine(Cosine) = "cosine",
        /// `LinearLR`.
        Linear(LinearRamp) = "linear",
        /// `OneCycleLR`.
        OneCycle(OneCycle) = "one_cycle",
    }
}

table! {
    /// Times `gamma` every `step_size` counts.
    pub struct Step {
        /// Counts between two drops.
        pub step_size: u64 => count,
        /// The factor of a drop.
        pub gamma: f64 = 0.1 => positive,
    }
}

table! {
    /// Times `gamma` at each milestone.
    pub struct MultiStep {
        /// Counts at which the rate drops, rising.
        pub milestones: Vec<u64> => |v| v.list(1..=100_000, count),
        /// The factor of a drop.
        pub gamma: f64 = 0.1 => positive,
    }
    check check_order
}

table! {
    /// Times `gamma` at every count.
    pub struct Exponential {
        /// The factor of every count.
        pub gamma: f64 => positive,
    }
}

table! {
    /// Half a cosine from the initial rate to `eta_min`.
    pub struct Cosine {
        /// Counts of the half period (all of the run, or of its link).
        pub t_max: Option<u64> = None => some(count),
        /// The lowest rate.
        pub eta_min: f64 = 0.0 => non_negative,
    }
}

table! {
    /// A straight ramp of the factor.
    pub struct LinearRamp {
        /// Factor at the start.
        pub start_factor: f64 = 1.0 / 3.0 => positive_unit,
        /// Factor at the end.
        pub end_factor: f64 = 1.0 => unit,
        /// Counts of the ramp.
        pub total_iters: u64 = 5 => count,
    }
}

table! {
    /// Up to `max_lr` and down again.
    pub struct OneCycle {
        /// The peak.
        pub max_lr: f64 => positive,
        /// Counts of the cycle (all of the run, or of its link).
        pub total_steps: Option<u64> = None => some(count),
        /// Part of the cycle that rises.
        pub pct_start: f64 = 0.3 => unit,
        /// The shape.
        pub anneal_strategy: Anneal = Anneal::Cos,
        /// Whether momentum (or beta1) moves the other way.
        pub cycle_momentum: bool = true,
        /// Lowest momentum.
        pub base_momentum: f64 = 0.85 => below_one,
        /// Highest momentum.
        pub max_momentum: f64 = 0.95 => below_one,
        /// The initial rate is `max_lr` over this.
        pub div_factor: f64 = 25.0 => positive,
        /// The final rate is the initial one over this.
        pub final_div_factor: f64 = 1e4 => positive,
        /// Whether a third phase leads from the initial to the final rate.
        pub three_phase: bool = false,
    }
    check check_momentum
}

words! {
    /// The shape of a OneCycle's phases.
    pub enum Anneal {
        /// Half a cosine.
        Cos = "cos",
        /// A straight line.
        Linear = "linear",
    }
}

impl Schedule {
    /// The schedule of a spec that has none.
    pub(super) const CONSTANT: Self = Self { interval: Interval::Step, rule: Rule::Constant };
}

impl Choices for Rule {
    fn choices() -> Vec<Choice<Self>> {
        let mut rules: Vec<_> = Curve::choices().into_iter().map(|curve| curve.map(Self::One)).collect();
        let doc = "SequentialLR: one curve after the other; all but the last say how many `steps` they last";
        let chain = |v: Item<'_>| Self::Chain { chain: v.list(1..=1000, Stage::read) };
        rules.push(Choice { name: "chain", doc, how: How::Settings(Box::new(chain)) });
        rules
    }
}

impl Schedule {
    fn check_chain(&mut self, t: &mut Fields<'_>) {
        let Rule::Chain { chain } = &self.rule else { return };
        for (i, link) in chain.iter().enumerate() {
            if i + 1 < chain.len() && link.steps.is_none() {
                t.refuse_item("chain", i, "every curve but the last needs `steps`", "add `steps = ...`");
            } else if i + 1 == chain.len() && link.steps.is_some() {
                t.refuse_item(
                    "chain",
                    i,
                    "the last curve lasts to the end, so it takes no `steps`",
                    "remove its `steps`",
                );
            }
        }
    }
}

impl MultiStep {
    fn check_order(&mut self, t: &mut Fields<'_>) {
        for (i, pair) in self.milestones.windows(2).enumerate() {
            if pair[1] <= pair[0] {
                let message = format!("{} does not come after {}", pair[1], pair[0]);
                t.refuse_item("milestones", i + 1, message, "write the milestones in rising order");
            }
        }
    }
}

impl OneCycle {
    fn check_momentum(&mut self, t: &mut Fields<'_>) {
        let (base, max) = (self.base_momentum, self.max_momentum);
        if base > max {
            let name = if t.has("base_momentum") { "base_momentum" } else { "max_momentum" };
            let message = format!("the lowest momentum, {base:?}, is above the highest, {max:?}");
            t.refuse(name, &["base_momentum", "max_momentum"], message, "set both");
        }
    }
}
