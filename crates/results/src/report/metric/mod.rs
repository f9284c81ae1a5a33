//! The metric by which runs are ranked, and its values in words (`words.rs`).

mod words;

pub(super) use words::in_one_unit;

use super::{
    ReportError,
    grid::done,
    grouping::{distinct, grouped},
    key::{Key, known_figures, runs_have},
    logged::{self, best_column, has_direction, more_is_better},
    run::Run,
};
use crate::{spec::nearest, units};

/// What runs are judged by if they validate nothing.
const TRAIN_LOSS: &str = "train.loss";

/// The column with a run's best value of the metric that it monitors.
const BEST: &str = "best_value";

/// A metric, and the indices of the runs that are judged by it.
pub(super) type Judged = (Metric, Vec<usize>);

/// A value with its interval, if it has one.
pub(super) type Valued = (f64, Option<[f64; 2]>);

/// A metric, with its formatting and direction.
#[derive(Clone, Debug)]
pub(super) struct Metric {
    key: Key,
    pub(super) name: String,
    pub(super) more_is_better: bool,
    /// Whether it depends on the seed rather than on the machine.
    pub(super) is_learned: bool,
    /// Whether to use each run's last value: only some of the runs monitor this metric and so have its value
    /// at their best epoch.
    pub(super) is_last: bool,
    /// Whether it ranks final models, too: their training loss says nothing, unless it is asked for.
    ranks_final: bool,
    /// The least and the largest value that it can have.
    range: [f64; 2],
    /// How many digits a value keeps beside a wide interval.
    kept: i32,
    word: fn(f64) -> String,
}

impl Metric {
    /// A word such as `mae` stands for `validation.mae`, or, if nothing was validated, for `train.mae`.
    ///
    /// `best_value` stands for what the runs monitor.
    ///
    /// # Errors
    /// No run has a number with that name, or the best values are of different metrics.
    pub(super) fn new(name: &str, runs: &[Run]) -> Result<Self, ReportError> {
        Self::find(name, runs)?.ok_or_else(|| Self::unknown(name, runs))
    }

    /// The name itself if runs have the metric, else the nearest one.
    ///
    /// # Errors
    /// No metric is near.
    pub(super) fn nearest(name: &str, runs: &[Run]) -> Result<String, ReportError> {
        let is_known = Self::find(name, runs)?.is_some();
        let known = || Self::near(name, &known_figures(runs)).ok_or_else(|| Self::unknown(name, runs));
        if is_known { Ok(name.to_owned()) } else { known() }
    }

    fn near(name: &str, known: &[&str]) -> Option<String> {
        let words = known.iter().flat_map(|known| [*known, known.rsplit('.').next().unwrap_or(known)]);
        nearest(name, words).map(str::to_owned)
    }

    fn unknown(name: &str, runs: &[Run]) -> ReportError {
        let known = known_figures(runs);
        let near = Self::near(name, &known).map(|near| format!("did you mean `{near}`?"));
        let hint =
            format!("{}; `logging.metrics` adds more to later runs", runs_have(near.as_deref(), known));
        ReportError::query(format!("no run has the metric `{name}`"), Some(&hint))
    }

    /// Like [`Metric::new`]; `None` if no run has it.
    pub(super) fn find(name: &str, runs: &[Run]) -> Result<Option<Self>, ReportError> {
        if name == BEST
            && let Some(monitored) = Self::monitored(runs)?
        {
            return Ok(Some(monitored));
        }
        let is_bare = !name.contains('.') && !runs.iter().any(|run| run.figure(name).is_some());
        let splits: &[&str] = if is_bare { &["validation", "train"] } else { &[] };
        let measured: Vec<String> = splits.iter().map(|split| format!("{split}.{name}")).collect();
        let is_known = |full: &&String| runs.iter().any(|run| run.has_learned(full));
        let name = measured.iter().find(is_known).map_or(name, String::as_str);
        let key = match Key::new(name, runs) {
            Err(ReportError::NoColumn { .. }) => return Ok(None),
            key => key?,
        };
        let metric = Self::from_key(key, runs);
        let is_known = runs.iter().any(|run| metric.value(run).is_some());
        Ok(is_known.then_some(metric))
    }

    /// The metric that all runs with a best value monitor; `None` if no run has one.
    fn monitored(runs: &[Run]) -> Result<Option<Self>, ReportError> {
        let have_best = runs.iter().filter(|run| run.figure(BEST).is_some());
        let names = distinct(have_best.map(Run::monitor));
        if names.len() > 1 {
            let message = format!("`{BEST}` is of different metrics: {}", names.join(", "));
            return Err(ReportError::query(message, Some("name one of them")));
        }
        Ok(names.first().map(|name| Self { is_last: false, ..Self::from_key(Key::full(name), runs) }))
    }

    pub(super) fn from_key(key: Key, runs: &[Run]) -> Self {
        let full = key.name();
        let of_target = logged::of_target(full);
        let metric = logged::metric_of(full);
        let has = |ending: &str| metric.ends_with(ending);
        let word: fn(f64) -> String = match full {
            _ if has("accuracy") || has("share") => units::percent,
            _ if has("per_s") => units::rate,
            _ if has("_s") => units::seconds,
            _ if metric.starts_with("bytes_") || has("_bytes") => |value| units::bytes(value as u64),
            _ => units::number,
        };
        let is_machines =
            has("_s") || has("share") || metric.contains("bytes") || ["syncs", "energy_j"].contains(&full);
        let words = match full {
            "train.loss" => "train loss",
            _ => full.strip_prefix("train.").unwrap_or(full),
        };
        let words = match full {
            "steps_per_s" => &format!("{}_per_s", done(&distinct(runs.iter().map(Run::kind)))[0]),
            _ => words,
        };
        let words = words.replace(['.', '_'], " ").replace("per s", "per second");
        let range = match metric.rsplit_once('.').map_or(metric, |(_, name)| name) {
            "accuracy" | "f1" | "f1_weighted" | "precision" | "recall" | "auc" | "average_precision" => {
                [0.0, 1.0]
            }
            "r2" => [f64::NEG_INFINITY, 1.0],
            "best_epoch" | "best_step" => [1.0, f64::INFINITY],
            "loss" | "mae" | "rmse" | "grad_norm" | "param_norm" | "epochs" | "steps" => [0.0, f64::INFINITY],
            _ if has("share") => [0.0, 1.0],
            _ if has("per_s") || has("_s") || metric.contains("bytes") => [0.0, f64::INFINITY],
            _ => [f64::NEG_INFINITY, f64::INFINITY],
        };
        let monitor_it = runs.iter().filter(|run| run.has_learned(full));
        Self {
            name: of_target.map_or(words, |(metric, target)| format!("validation {metric} {target}")),
            more_is_better: more_is_better(full),
            is_learned: !is_machines,
            is_last: distinct(monitor_it.map(|run| run.monitor() == full)).len() > 1,
            ranks_final: true,
            range,
            kept: 2,
            word,
            key,
        }
    }

    /// The metrics by which runs are judged without `--metric`: what each run monitors, with the runs at
    /// `places` that do; the training loss if none has a value of what it monitors. Runs without a value are
    /// added to the first metric.
    pub(super) fn declared(runs: &[Run], places: &[usize]) -> Vec<Judged> {
        let monitor = |place: &usize| {
            let run = &runs[*place];
            run.learned(run.monitor()).map(|_| run.monitor())
        };
        let first = places.iter().find_map(monitor);
        let Some(first) = first.or_else(|| {
            let has_loss = places.iter().any(|&place| runs[place].learned(TRAIN_LOSS).is_some());
            has_loss.then_some(TRAIN_LOSS)
        }) else {
            return Vec::new();
        };
        let groups = grouped(places.iter().map(|place| (monitor(place).unwrap_or(first), *place)));
        let declared = groups.into_iter().map(|(name, places)| {
            // All of these runs monitor it.
            let ranks_final = name != TRAIN_LOSS;
            (Self { is_last: false, ranks_final, ..Self::from_key(Key::full(name), runs) }, places)
        });
        declared.collect()
    }

    pub(super) fn value(&self, run: &Run) -> Option<f64> {
        if !self.ranks_final && run.is_final_model() {
            return None;
        }
        let text = if self.is_last { run.learned_last(self.full_name()) } else { self.key.value(run) };
        text?.parse().ok().filter(|value: &f64| !value.is_nan())
    }

    /// The column of an export with its values: `best_validation_f1`, or `final_train_accuracy` of the last epoch.
    pub(super) fn column(&self) -> String {
        match (self.full_name().split_once('.'), self.full_name()) {
            (_, TRAIN_LOSS) => "epoch_train_loss".to_owned(),
            (Some(("validation", name)), _) if !self.is_last => best_column(name),
            (Some((split @ ("train" | "validation"), name)), _) => format!("final_{split}_{name}"),
            (_, figure) => figure.to_owned(),
        }
    }

    pub(super) fn full_name(&self) -> &str {
        self.key.name()
    }

    pub(super) fn word(&self, value: f64) -> String {
        // `word` formats rates and times, with their units, only for positive values.
        if value < 0.0 { format!("-{}", (self.word)(-value)) } else { (self.word)(value) }
    }

    /// The part of an interval that the metric can have.
    pub(super) fn within_range(&self, [low, high]: [f64; 2]) -> [f64; 2] {
        [low.max(self.range[0]), high.min(self.range[1])]
    }

    /// `intervals are cut: validation accuracy is never above 100 %` of intervals that were; none if they were not.
    pub(super) fn cut_words(&self, intervals: impl Iterator<Item = [f64; 2]> + Clone) -> Option<String> {
        let is_cut = |end: usize| intervals.clone().any(|interval| interval[end] == self.range[end]);
        let words = [(0, "below"), (1, "above")].into_iter().filter(|(end, _)| is_cut(*end));
        let words: Vec<String> =
            words.map(|(end, side)| format!("{side} {}", self.word(self.range[end]))).collect();
        (!words.is_empty())
            .then(|| format!("intervals are cut: {} is never {}", self.name, words.join(" or ")))
    }

    /// Whether it is known which of its values are better.
    pub(super) fn has_direction(&self) -> bool {
        has_direction(self.full_name())
    }

    /// The value as a cost: lower is better.
    pub(super) fn cost(&self, value: f64) -> f64 {
        if self.more_is_better { -value } else { value }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_end_where_a_metric_does() {
        let cut = |name: &str| {
            let metric = Metric::from_key(Key::full(name), &[]);
            let interval = metric.within_range([-2.0, 20.0]);
            (interval, metric.cut_words([interval].into_iter()).unwrap_or_default())
        };
        let is = |low, high, words: &str| ([low, high], words.to_owned());
        let accuracy = "intervals are cut: validation accuracy is never below 0.0 % or above 100.0 %";
        assert_eq!(cut("validation.accuracy"), is(0.0, 1.0, accuracy));
        let mae = "intervals are cut: validation mae price is never below 0";
        assert_eq!(cut("validation.mae_price"), is(0.0, 20.0, mae));
        let r2 = "intervals are cut: validation r2 is never above 1.000";
        assert_eq!(cut("validation.r2"), is(-2.0, 1.0, r2));
        assert_eq!(cut("best_epoch"), is(1.0, 20.0, "intervals are cut: best epoch is never below 1.000"));
        assert_eq!(cut("steps_per_s"), is(0.0, 20.0, "intervals are cut: steps per second is never below 0"));
        assert_eq!(cut("optimizer.lr"), is(-2.0, 20.0, ""));
    }
}
