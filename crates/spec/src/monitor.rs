//! What a run is judged by: a metric of its validations, of all targets or of one.

use std::{collections::BTreeSet, sync::Mutex};

use runner_base::host::lock;
use serde::{Serialize, Serializer};

use super::{
    logging::Metric,
    reader::{Item, Read, Word},
};

/// A metric of validation; which value is better follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Monitor {
    metric: Metric,
    /// `validation.mae`, or `validation.mae_NAME` for one of several targets.
    name: &'static str,
}

/// Those of all targets.
const WORDS: [Word<Monitor>; 11] = [
    lower("validation.loss", Metric::Loss),
    higher("validation.accuracy", Metric::Accuracy),
    lower("validation.mae", Metric::Mae),
    lower("validation.rmse", Metric::Rmse),
    higher("validation.r2", Metric::R2),
    higher("validation.f1", Metric::F1),
    higher("validation.f1_weighted", Metric::F1Weighted),
    higher("validation.precision", Metric::Precision),
    higher("validation.recall", Metric::Recall),
    higher("validation.auc", Metric::Auc),
    higher("validation.average_precision", Metric::AveragePrecision),
];

/// Metrics that each of several targets has.
const OF_TARGETS: &str = r"^validation\.(mae|rmse|r2)_.";

const fn lower(name: &'static str, metric: Metric) -> Word<Monitor> {
    Word { name, value: Monitor { metric, name }, doc: "Lower is better." }
}

const fn higher(name: &'static str, metric: Metric) -> Word<Monitor> {
    Word { name, value: Monitor { metric, name }, doc: "Higher is better." }
}

impl Monitor {
    /// The loss of validations, the default.
    pub const LOSS: Self = WORDS[0].value;

    /// The share of rows that are classified correctly.
    pub const ACCURACY: Self = WORDS[1].value;

    /// The coefficient of determination.
    pub const R2: Self = WORDS[4].value;

    /// The name in a spec and in the files of a run.
    pub fn name(self) -> &'static str {
        self.name
    }

    /// Its column in `metrics.csv`: `loss`, `mae_NAME`.
    pub fn column(self) -> &'static str {
        self.name.trim_start_matches("validation.")
    }

    /// The metric that it watches.
    pub fn metric(self) -> Metric {
        self.metric
    }

    /// The target whose metric it is; `None` for that of all.
    pub fn target(self) -> Option<&'static str> {
        self.column().strip_prefix(self.metric.name())?.strip_prefix('_')
    }

    /// The value with its sign set so that smaller is better.
    pub fn cost(self, value: f64) -> f64 {
        if self.metric().more_is_better() { -value } else { value }
    }

    /// Whether the data have its target.
    ///
    /// # Errors
    /// They have none of this name, and a hint with the names that there are.
    pub fn check_target(self, targets: &[String]) -> Result<(), [String; 2]> {
        let metric = self.metric;
        match (self.target(), targets) {
            (None, _) => Ok(()),
            (Some(target), [_, _, ..]) if targets.iter().any(|known| known == target) => Ok(()),
            (Some(target), [_, _, ..]) => {
                let names = targets.iter().map(|known| format!("`validation.{}`", metric.of_target(known)));
                let names = names.collect::<Vec<_>>().join(", ");
                let hint = format!("it is {names}, or `validation.{metric}` for the mean over them");
                Err([format!("no target is called `{target}`"), hint])
            }
            _ => Err(["the data have one target".to_owned(), format!("`validation.{metric}` is of it")]),
        }
    }

    fn of_target(name: &str) -> Option<Self> {
        let column = name.strip_prefix("validation.")?;
        let metric = [Metric::Mae, Metric::Rmse, Metric::R2].into_iter().find(|metric| {
            let target = column.strip_prefix(metric.name()).and_then(|rest| rest.strip_prefix('_'));
            target.is_some_and(|target| !target.is_empty())
        })?;
        Some(Self { metric, name: kept(name) })
    }
}

/// The same name, kept as long as the program runs, so that a monitor can be copied. Specs name few.
fn kept(name: &str) -> &'static str {
    static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut names = lock(&NAMES);
    names.get(name).copied().unwrap_or_else(|| {
        let name: &'static str = Box::leak(name.into());
        names.insert(name);
        name
    })
}

impl Read for Monitor {
    fn read(v: Item<'_>) -> Self {
        let meaning = "`validation.mae_NAME`, and so on: of one of several targets";
        v.word_or(&WORDS, (OF_TARGETS, meaning), Self::of_target)
    }
}

impl Serialize for Monitor {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.name)
    }
}
