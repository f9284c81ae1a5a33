//! `[logging]`: what is recorded of a step, and when it leaves the device.

use serde::Serialize;

use super::reader::{Fields, Item, Range, Word};

/// The table `[logging]`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Logging {
    /// When training rows leave the device.
    pub policy: Policy,
    /// Steps in a block of `buffered`; absent: one epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flush_every: Option<u64>,
    /// The columns, loss first.
    pub metrics: Vec<Metric>,
    /// Whether a timeline is written.
    pub trace: bool,
    /// Seconds between two samples of the machine; absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_every_s: Option<f64>,
}

/// When training rows leave the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// After every step.
    Immediate,
    /// In blocks of `flush_every` steps.
    Buffered,
    /// One row-weighted mean per epoch.
    PerEpoch,
    /// Never.
    Off,
}

/// A column of `metrics.csv`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// The batch's mean loss before the update.
    Loss,
    /// Part of the batch's rows whose largest output is the label's.
    Accuracy,
    /// L2 norm of all gradients, before clipping.
    GradNorm,
    /// L2 norm of all parameters, before the update.
    ParamNorm,
    /// The rate that the step's update used.
    Lr,
}

impl Metric {
    /// The column's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Loss => "loss",
            Self::Accuracy => "accuracy",
            Self::GradNorm => "grad_norm",
            Self::ParamNorm => "param_norm",
            Self::Lr => "lr",
        }
    }
}

impl Logging {
    pub(super) fn read(t: &mut Fields<'_>) -> Self {
        let policy = t.default("policy", "when training rows leave the device", Policy::Buffered, |v| {
            v.word(
                &[
                    Word { name: "immediate", value: Policy::Immediate, doc: "after every step" },
                    Word {
                        name: "buffered",
                        value: Policy::Buffered,
                        doc: "in blocks of `flush_every` steps",
                    },
                    Word {
                        name: "per_epoch",
                        value: Policy::PerEpoch,
                        doc: "one row-weighted mean per epoch",
                    },
                    Word { name: "off", value: Policy::Off, doc: "never" },
                ],
                &[],
            )
        });
        // Under another policy it has no effect, so that a sweep over the policies may set it once for all.
        let flush_every = t.optional(
            "flush_every",
            "steps in a block of `buffered` (one epoch); else without effect",
            |v| v.integer(1..=i64::MAX as u64),
        );
        let metrics = t.default(
            "metrics",
            "columns of `metrics.csv`; loss always comes first",
            vec![Metric::Loss],
            |v| v.list(1..=100, Metric::read),
        );
        for (i, metric) in metrics.iter().enumerate() {
            if metrics[..i].contains(metric) {
                t.refuse_item(
                    "metrics",
                    i,
                    format!("`{}` is named twice", metric.name()),
                    "name each metric once",
                );
            }
        }
        let doc = "whether `trace.json` is written, a timeline for Perfetto and Chrome's tracing";
        let trace = t.default("trace", doc, false, |v| v.boolean());
        let doc = "seconds between two rows of `system.csv`: processors, memory, GPUs; absent: no such file";
        let system_every_s = t.optional("system_every_s", doc, |v| v.float(Range::Interval));
        t.later(&["tensorboard"]);
        let others = metrics.into_iter().filter(|m| *m != Metric::Loss);
        let metrics = std::iter::once(Metric::Loss).chain(others).collect();
        Self { policy, flush_every, metrics, trace, system_every_s }
    }
}

impl Metric {
    fn read(v: Item<'_>) -> Self {
        v.word(
            &[
                Word { name: "loss", value: Self::Loss, doc: "the batch's mean loss before the update" },
                Word { name: "accuracy", value: Self::Accuracy, doc: "part of the rows that is right" },
                Word {
                    name: "grad_norm",
                    value: Self::GradNorm,
                    doc: "L2 norm of all gradients before clipping",
                },
                Word { name: "param_norm", value: Self::ParamNorm, doc: "L2 norm of all parameters" },
                Word { name: "lr", value: Self::Lr, doc: "the rate of the step's update" },
            ],
            &[],
        )
    }
}
