//! `[schedule]`: how the learning rate moves. The curves are PyTorch's `lr_scheduler` classes.

use std::ops::RangeInclusive;

use serde::Serialize;

use super::reader::{Choice, Fields, Range, Word};

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

    /// The same with `factor` times the rate that it names itself: a `one_cycle`'s largest. Other curves bend the
    /// optimizer's rate, or name a floor.
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
        chain: Vec<Stage>,
    },
}

/// A curve in a chain.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stage {
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

impl Curve {
    /// The name of its sub-table.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Step(_) => "step",
            Self::MultiStep(_) => "multi_step",
            Self::Exponential(_) => "exponential",
            Self::Cosine(_) => "cosine",
            Self::Linear(_) => "linear",
            Self::OneCycle(_) => "one_cycle",
        }
    }
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

/// As many counts as a run can have.
const COUNTS: RangeInclusive<u64> = 1..=i64::MAX as u64;

/// What `[schedule]` can be: a curve, and at the end the chain of curves.
const RULES: [Choice<Rule>; 7] = [
    Choice { name: "step", doc: "StepLR", read: |v| Rule::One(Curve::Step(v.table(Step::read))) },
    Choice {
        name: "multi_step",
        doc: "MultiStepLR",
        read: |v| Rule::One(Curve::MultiStep(v.table(MultiStep::read))),
    },
    Choice {
        name: "exponential",
        doc: "ExponentialLR",
        read: |v| Rule::One(Curve::Exponential(v.table(Exponential::read))),
    },
    Choice {
        name: "cosine",
        doc: "CosineAnnealingLR",
        read: |v| Rule::One(Curve::Cosine(v.table(Cosine::read))),
    },
    Choice { name: "linear", doc: "LinearLR", read: |v| Rule::One(Curve::Linear(v.table(LinearRamp::read))) },
    Choice {
        name: "one_cycle",
        doc: "OneCycleLR",
        read: |v| Rule::One(Curve::OneCycle(v.table(OneCycle::read))),
    },
    Choice {
        name: "chain",
        doc: "SequentialLR: one curve after the other; all but the last say how many `steps` they last",
        read: |v| Rule::Chain { chain: v.list(1..=1000, |v| v.table(Stage::read)) },
    },
];

impl Schedule {
    pub(super) fn read(t: &mut Fields<'_>) -> Self {
        let interval = t.default("interval", "what one count of the schedule is", Interval::Step, |v| {
            v.word(
                &[
                    Word { name: "step", value: Interval::Step, doc: "an optimizer step" },
                    Word { name: "epoch", value: Interval::Epoch, doc: "an epoch" },
                ],
                &[],
            )
        });
        let rule = t.one_of(None, &RULES).unwrap_or(Rule::Constant);
        if let Rule::Chain { chain } = &rule {
            check_chain(t, chain);
        }
        Self { interval, rule }
    }

    /// The schedule of a spec that has none.
    pub(super) fn constant() -> Self {
        Self { interval: Interval::Step, rule: Rule::Constant }
    }
}

fn check_chain(t: &mut Fields<'_>, chain: &[Stage]) {
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

impl Stage {
    fn read(t: &mut Fields<'_>) -> Self {
        let steps = t.optional("steps", "counts this curve lasts; not for the last", |v| v.integer(COUNTS));
        match t.one_of(None, &RULES[..RULES.len() - 1]) {
            Some(Rule::One(curve)) => Self { steps, curve },
            _ => Self { steps, curve: Curve::Exponential(Exponential { gamma: 0.5 }) },
        }
    }
}

impl Step {
    fn read(t: &mut Fields<'_>) -> Self {
        Self {
            step_size: t.required("step_size", "counts between two drops", |v| v.integer(COUNTS)),
            gamma: t.default("gamma", "the factor of a drop", 0.1, |v| v.float(Range::Positive)),
        }
    }
}

impl MultiStep {
    fn read(t: &mut Fields<'_>) -> Self {
        let doc = "counts at which the rate drops, rising";
        let milestones = t.required("milestones", doc, |v| v.list(1..=100_000, |v| v.integer(COUNTS)));
        for (i, pair) in milestones.windows(2).enumerate() {
            if pair[1] <= pair[0] {
                let message = format!("{} does not come after {}", pair[1], pair[0]);
                t.refuse_item("milestones", i + 1, message, "write the milestones in rising order");
            }
        }
        let gamma = t.default("gamma", "the factor of a drop", 0.1, |v| v.float(Range::Positive));
        Self { milestones, gamma }
    }
}

impl Exponential {
    fn read(t: &mut Fields<'_>) -> Self {
        Self { gamma: t.required("gamma", "the factor of every count", |v| v.float(Range::Positive)) }
    }
}

impl Cosine {
    fn read(t: &mut Fields<'_>) -> Self {
        let doc = "counts of the half period (all of the run, or of its link)";
        Self {
            t_max: t.optional("t_max", doc, |v| v.integer(COUNTS)),
            eta_min: t.default("eta_min", "the lowest rate", 0.0, |v| v.float(Range::NonNegative)),
        }
    }
}

impl LinearRamp {
    fn read(t: &mut Fields<'_>) -> Self {
        Self {
            start_factor: t
                .default("start_factor", "factor at the start", 1.0 / 3.0, |v| v.float(Range::PositiveUnit)),
            end_factor: t.default("end_factor", "factor at the end", 1.0, |v| v.float(Range::Unit)),
            total_iters: t.default("total_iters", "counts of the ramp", 5, |v| v.integer(COUNTS)),
        }
    }
}

impl OneCycle {
    fn read(t: &mut Fields<'_>) -> Self {
        let momentum = |t: &mut Fields<'_>, name, doc, default: f64| {
            t.default(name, doc, default, |v| v.float(Range::BelowOne))
        };
        let factor = |t: &mut Fields<'_>, name, doc, default: f64| {
            t.default(name, doc, default, |v| v.float(Range::Positive))
        };
        let one_cycle = Self {
            max_lr: t.required("max_lr", "the peak", |v| v.float(Range::Positive)),
            total_steps: t.optional(
                "total_steps",
                "counts of the cycle (all of the run, or of its link)",
                |v| v.integer(COUNTS),
            ),
            pct_start: t.default("pct_start", "part of the cycle that rises", 0.3, |v| v.float(Range::Unit)),
            anneal_strategy: t.default("anneal_strategy", "the shape", Anneal::Cos, |v| {
                v.word(
                    &[
                        Word { name: "cos", value: Anneal::Cos, doc: "half a cosine" },
                        Word { name: "linear", value: Anneal::Linear, doc: "a straight line" },
                    ],
                    &[],
                )
            }),
            cycle_momentum: t.default(
                "cycle_momentum",
                "whether momentum (or beta1) moves the other way",
                true,
                |v| v.boolean(),
            ),
            base_momentum: momentum(t, "base_momentum", "lowest momentum", 0.85),
            max_momentum: momentum(t, "max_momentum", "highest momentum", 0.95),
            div_factor: factor(t, "div_factor", "the initial rate is `max_lr` over this", 25.0),
            final_div_factor: factor(
                t,
                "final_div_factor",
                "the final rate is the initial one over this",
                1e4,
            ),
            three_phase: t
                .default("three_phase", "whether a third phase ends the cycle", false, |v| v.boolean()),
        };
        if one_cycle.base_momentum > one_cycle.max_momentum {
            let name = if t.has("base_momentum") { "base_momentum" } else { "max_momentum" };
            let (base, max) = (one_cycle.base_momentum, one_cycle.max_momentum);
            let message = format!("the lowest momentum, {base:?}, is above the highest, {max:?}");
            t.refuse(name, &["base_momentum", "max_momentum"], message, "set both");
        }
        one_cycle
    }
}
