//! `[schedule]`: how the learning rate changes. The curves are PyTorch's `lr_scheduler` classes.

use serde::Serialize;

use super::{
    monitor::Monitor,
    reader::{
        Choice, Choices, Fields, How, Item, Read, below_one, choices, count, count_or_zero, non_negative,
        positive, positive_unit, some, table, unit, words,
    },
};

table! {
    /// The table `[schedule]`; absent, the rate is constant.
    pub struct Schedule {
        /// The unit of the schedule: one count is an optimizer step or an epoch.
        pub interval: Interval = Interval::Step,
        /// Epochs that a curve without a length of its own lasts, as if the run did; absent, it is as long as the run.
        pub curve_epochs: Option<u64> = None => some(count),
        /// The curve or chain of curves.
        pub rule: Rule [flatten],
    }
    check check_chain
}

impl Schedule {
    /// The schedule of a spec without one.
    pub(super) const CONSTANT: Self =
        Self { interval: Interval::Step, curve_epochs: None, rule: Rule::Constant };

    /// Whether the rate is constant; the table is then left out of the resolved spec.
    pub fn is_constant(&self) -> bool {
        self.rule == Rule::Constant
    }

    /// Multiplies the rate that the schedule itself names (`max_lr` of a `one_cycle`) by `factor`. Other
    /// curves scale the optimizer's rate, or name a floor (`eta_min`), and stay the same.
    pub fn with_lr_times(&self, factor: f64) -> Self {
        let mut schedule = self.clone();
        let times = |curve: &mut Curve| {
            if let Curve::OneCycle(c) = curve {
                c.max_lr *= factor;
            }
        };
        match &mut schedule.rule {
            Rule::Constant => {}
            Rule::One(curve) => times(curve),
            Rule::Chain { chain } => chain.iter_mut().for_each(|stage| times(&mut stage.curve)),
        }
        schedule
    }

    /// The key of the length that follows from the run's. It is resolved to `total` counts, if the run has as many.
    pub(super) fn length_of_run(&self, total: u64) -> Option<String> {
        let (key, length) = self.length()?;
        (length == total).then_some(key)
    }

    /// The key of the last curve's length, and in how many counts the schedule has ended by it; `None` where that curve takes or has
    /// no length.
    pub fn length(&self) -> Option<(String, u64)> {
        let (curve, key, before) = match &self.rule {
            Rule::Constant => return None,
            Rule::One(curve) => (curve, "schedule".to_owned(), 0),
            Rule::Chain { chain } => {
                let before = chain.iter().filter_map(|stage| stage.steps).sum();
                (&chain.last()?.curve, format!("schedule.chain.{}", chain.len() - 1), before)
            }
        };
        let (name, length) = match curve {
            Curve::Cosine(cosine) => ("cosine.t_max", cosine.t_max),
            Curve::OneCycle(cycle) => ("one_cycle.total_steps", cycle.total_steps),
            _ => return None,
        };
        Some((format!("{key}.{name}"), before + length?))
    }

    /// The plateau, which watches validations, and the key that it is under; of a chain it is the last curve.
    pub fn plateau(&self) -> Option<(&'static str, &Plateau)> {
        let (key, curve) = match &self.rule {
            Rule::Constant => return None,
            Rule::One(curve) => ("schedule.plateau", curve),
            Rule::Chain { chain } => ("schedule.chain", &chain.last()?.curve),
        };
        if let Curve::Plateau(plateau) = curve { Some((key, plateau)) } else { None }
    }

    /// Has a plateau that names no metric watch `monitor`.
    pub(super) fn watch(&mut self, monitor: Monitor) {
        let curve = match &mut self.rule {
            Rule::Constant => None,
            Rule::One(curve) => Some(curve),
            Rule::Chain { chain } => chain.last_mut().map(|stage| &mut stage.curve),
        };
        if let Some(Curve::Plateau(plateau)) = curve {
            plateau.metric.get_or_insert(monitor);
        }
    }

    fn check_chain(&mut self, t: &mut Fields<'_>) {
        let Rule::Chain { chain } = &self.rule else { return };
        for (i, stage) in chain.iter().enumerate() {
            if i + 1 < chain.len() && matches!(stage.curve, Curve::Plateau(_)) {
                let message = "a plateau lasts to the end, so no curve comes after it";
                t.refuse_item("chain", i, message, "make it the last curve");
            } else if i + 1 < chain.len() && stage.steps.is_none() {
                t.refuse_item("chain", i, "every curve but the last needs `steps`", "add `steps = ...`");
            } else if i + 1 == chain.len() && stage.steps.is_some() {
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

words! {
    /// What one count of a schedule is.
    pub enum Interval {
        /// An optimizer step.
        Step = "step",
        /// An epoch.
        Epoch = "epoch",
    }
}

/// A constant rate, one curve, or a chain of curves (`SequentialLR`).
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Rule {
    /// A constant rate.
    Constant,
    /// One curve over the whole run.
    One(Curve),
    /// Several curves in turn.
    Chain {
        /// The curves in order; each but the last says how many counts it lasts.
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
        /// Multiplies the rate by `gamma` every `step_size` counts (`StepLR`).
        Step(Step) = "step",
        /// Multiplies the rate by `gamma` at each milestone (`MultiStepLR`).
        MultiStep(MultiStep) = "multi_step",
        /// Multiplies the rate by `gamma` at every count (`ExponentialLR`).
        Exponential(Exponential) = "exponential",
        /// Half a cosine from the initial rate down to `eta_min` (`CosineAnnealingLR`).
        Cosine(Cosine) = "cosine",
        /// A linear ramp of the factor (`LinearLR`).
        Linear(LinearRamp) = "linear",
        /// Up to `max_lr` and down again (`OneCycleLR`).
        OneCycle(OneCycle) = "one_cycle",
        /// Multiplies the rate by `factor` once validations no longer improve (`ReduceLROnPlateau`).
        Plateau(Plateau) = "plateau",
    }
}

table! {
    /// Multiplies the rate by `gamma` every `step_size` counts.
    pub struct Step {
        /// Counts between two drops.
        pub step_size: u64 => count,
        /// The rate is multiplied by this at each drop.
        pub gamma: f64 = 0.1 => positive,
    }
}

table! {
    /// Multiplies the rate by `gamma` at each milestone.
    pub struct MultiStep {
        /// Counts at which the rate drops, in ascending order.
        pub milestones: Vec<u64> => |v| v.list(1..=100_000, count),
        /// The rate is multiplied by this at each drop.
        pub gamma: f64 = 0.1 => positive,
    }
    check check_order
}

table! {
    /// Multiplies the rate by `gamma` at every count.
    pub struct Exponential {
        /// Factor per count.
        pub gamma: f64 => positive,
    }
}

table! {
    /// Half a cosine from the initial rate to `eta_min`.
    pub struct Cosine {
        /// Counts from the highest to the lowest rate (the whole run, or the whole stage of a chain).
        pub t_max: Option<u64> = None => some(count),
        /// The lowest rate.
        pub eta_min: f64 = 0.0 => non_negative,
    }
}

table! {
    /// A linear ramp of the factor.
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
        /// Counts of the cycle (the whole run).
        pub total_steps: Option<u64> = None => some(count),
        /// Fraction of the cycle in which the rate rises.
        pub pct_start: f64 = 0.3 => unit,
        /// The shape.
        pub anneal_strategy: Anneal = Anneal::Cos,
        /// Whether momentum (Adam: beta1) falls while the rate rises, and rises while it falls.
        pub cycle_momentum: bool = true,
        /// Lowest momentum.
        pub base_momentum: f64 = 0.85 => below_one,
        /// Highest momentum.
        pub max_momentum: f64 = 0.95 => below_one,
        /// The initial rate is `max_lr` divided by this.
        pub div_factor: f64 = 25.0 => positive,
        /// The final rate is the initial one divided by this.
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

table! {
    /// Multiplies the rate by `factor` after more than `patience` validations in a row without an improvement.
    pub struct Plateau {
        /// The rate is multiplied by this at each reduction.
        pub factor: f64 = 0.1 => below_one,
        /// Validations in a row without an improvement that leave the rate as it is; one more reduces it.
        pub patience: u64 = 10 => count_or_zero,
        /// By how much a value must be better than the best so far, as `threshold_mode` says.
        pub threshold: f64 = 1e-4 => non_negative,
        /// Whether `threshold` is a part of the best value or a difference from it.
        pub threshold_mode: ThresholdMode = ThresholdMode::Rel,
        /// Validations after a reduction that are not counted as without an improvement.
        pub cooldown: u64 = 0 => count_or_zero,
        /// The rate is never reduced below this.
        pub min_lr: f64 = 0.0 => non_negative,
        /// A reduction by this or less is left out.
        pub eps: f64 = 1e-8 => non_negative,
        /// What is watched; by default what `trainer.monitor` names.
        pub metric: Option<Monitor> = None,
    }
}

words! {
    /// What an improvement must exceed.
    pub enum ThresholdMode {
        /// `best * (1 - threshold)`; where more is better, `best * (1 + threshold)`.
        Rel = "rel",
        /// `best - threshold`; where more is better, `best + threshold`.
        Abs = "abs",
    }
}

impl Choices for Rule {
    fn choices() -> Vec<Choice<Self>> {
        let mut rules: Vec<_> = Curve::choices().into_iter().map(|curve| curve.map(Self::One)).collect();
        let doc =
            "one curve after the other, as SequentialLR; all but the last say how many `steps` they last";
        let chain = |v: Item<'_>| Self::Chain { chain: v.list(1..=1000, Stage::read) };
        rules.push(Choice { name: "chain", doc, how: How::Settings(Box::new(chain)) });
        rules
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::load::load_text;

    fn schedule(toml: &str) -> Schedule {
        let spec = format!(
            "data.synthetic_regression.weights = [1]\nmodel.layers = [{{ linear = {{ out_features = 1 }} }}]\n\
             optimizer.sgd.lr = 0.1\nschedule = {toml}"
        );
        let loaded = load_text(Path::new("a.toml"), Path::new("."), spec, (&[], 0));
        let crate::Loaded::Train(experiment) = loaded.map_err(|e| e.render(false)).unwrap() else {
            panic!("a training")
        };
        Schedule::clone(&experiment.trials[0].spec.schedule)
    }

    #[test]
    fn lengths_that_follow_the_run_are_known() {
        let chain = "{ chain = [{ linear = {}, steps = 40 }, { step = { step_size = 9 }, steps = 10 }, { cosine = { t_max = 950 } }] }";
        let last = Some("schedule.chain.2.cosine.t_max");
        for (toml, wanted) in [
            ("{ cosine = { t_max = 1000 } }", Some("schedule.cosine.t_max")),
            ("{ one_cycle = { max_lr = 1, total_steps = 1000 } }", Some("schedule.one_cycle.total_steps")),
            (chain, last),
            ("{ cosine = { t_max = 700 } }", None),
            ("{ cosine = {} }", None),
            ("{ multi_step = { milestones = [1000] } }", None),
        ] {
            assert_eq!(schedule(toml).length_of_run(1000).as_deref(), wanted, "{toml}");
        }
        assert_eq!(Schedule::CONSTANT.length_of_run(1000), None);
    }
}
