//! The metric by which runs are ranked.

use super::{
    ReportError,
    grid::done,
    grouping::{distinct, grouped},
    key::{Key, known_figures, runs_have},
    logged::{self, best_column, more_is_better},
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
        let is_machines = has("_s") || has("share") || metric.contains("bytes") || full == "syncs";
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

    /// The value as a cost: lower is better.
    pub(super) fn cost(&self, value: f64) -> f64 {
        if self.more_is_better { -value } else { value }
    }

    /// `0.446 [0.425, 0.493]`, with only as many digits as are meaningful.
    pub(super) fn with_interval(&self, value: f64, interval: Option<[f64; 2]>) -> String {
        let Some([low, high]) = interval else { return self.word(value) };
        let own = [(value, interval)];
        match (self.digits(&own), self.scale()) {
            (Some(digits), _) => self.with_digits(own[0], digits),
            (None, Some(_)) => format!("{} [{}, {}]", self.word(value), self.word(low), self.word(high)),
            (None, None) => {
                let [value, low, high] = in_one_unit([value, low, high], self.word);
                format!("{value} [{low}, {high}]")
            }
        }
    }

    /// Values with their intervals in a column; all have the same number of decimals if there are intervals.
    pub(super) fn in_column(&self, column: &[Valued]) -> Vec<String> {
        match self.digits(column) {
            Some(digits) => column.iter().map(|own| self.with_digits(*own, digits)).collect(),
            None => column.iter().map(|(value, interval)| self.with_interval(*value, *interval)).collect(),
        }
    }

    /// The factor and the unit of what is written with a fixed number of decimals; `None` of rates, times and sizes.
    fn scale(&self) -> Option<(f64, &'static str)> {
        match self.word(12345.0).as_str() {
            "12345" => Some((1.0, "")),
            "1234500.0 %" => Some((100.0, " %")),
            _ => None,
        }
    }

    /// The decimals of a column: enough for the width of each interval, for a value without one as where it stands alone, and to
    /// tell values apart, where that takes no more than six significant digits; `None` if there is no interval, or values are too
    /// small or large for decimals.
    fn digits(&self, column: &[Valued]) -> Option<usize> {
        let (scale, _) = self.scale()?;
        let ends = column
            .iter()
            .flat_map(|(value, interval)| [*value].into_iter().chain(interval.iter().flatten().copied()));
        let largest = scale * ends.map(f64::abs).fold(0.0, f64::max);
        if column.iter().all(|own| own.1.is_none()) || (largest != 0.0 && !(1e-4..1e6).contains(&largest)) {
            return None;
        }
        let decimals_of =
            |digits: i32, of: f64| (digits - 1 - of.log10().floor() as i32).clamp(0, 12) as usize;
        let of_interval =
            |[low, high]: [f64; 2]| if high > low { decimals_of(2, scale * (high - low)) } else { 4 };
        let alone = |value: f64| match self.word(value).split_once('.') {
            Some((_, decimals)) if !decimals.contains('e') => {
                decimals.bytes().take_while(u8::is_ascii_digit).count()
            }
            _ => 0,
        };
        let own = column.iter().map(|(value, interval)| interval.map_or_else(|| alone(*value), of_interval));
        let own = own.max()?;
        if column.len() == 1 || largest == 0.0 {
            return Some(own);
        }
        let most = decimals_of(6, largest).max(1);
        let word = |value: f64, digits: usize| format!("{:.digits$}", scale * value);
        let is_told = |digits: &usize| {
            column.windows(2).all(|pair| {
                let [a, b] = [pair[0].0, pair[1].0];
                a == b || word(a, *digits) != word(b, *digits)
            })
        };
        let own = own.min(most);
        Some((own..=most).find(is_told).unwrap_or(own))
    }

    fn with_digits(&self, (value, interval): Valued, digits: usize) -> String {
        let (scale, unit) = self.scale().unwrap_or((1.0, ""));
        let fixed = |value: f64| unsigned_zero(format!("{:.digits$}", scale * value));
        let interval = interval.map(|[low, high]| format!(" [{}, {}]", fixed(low), fixed(high)));
        format!("{}{unit}{}", fixed(value), interval.unwrap_or_default())
    }
}

/// Formats values with the unit and decimals of the largest: `0.1 k`, `215.6 k`.
pub(super) fn in_one_unit<const N: usize>(values: [f64; N], word: fn(f64) -> String) -> [String; N] {
    let text = word(values.into_iter().map(f64::abs).fold(0.0, f64::max));
    let (number, unit) = text.rsplit_once(' ').unwrap_or((&text, ""));
    let scale = match unit {
        "" | "s" | "B" => 1.0,
        "µs" => 1e-6,
        "ms" => 1e-3,
        "min" => 60.0,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "P" => 1e15,
        "KiB" => 1024.0,
        "MiB" => 1024_f64.powi(2),
        "GiB" => 1024_f64.powi(3),
        "TiB" => 1024_f64.powi(4),
        _ => f64::NAN,
    };
    if scale.is_nan() || number.contains('e') {
        return values.map(|value| if value < 0.0 { format!("-{}", word(-value)) } else { word(value) });
    }
    let digits = number.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    values.map(|value| {
        if value == 0.0 {
            return word(value);
        }
        unsigned_zero(format!("{:.digits$} {unit}", value / scale)).trim_end().to_owned()
    })
}

/// What is rounded to zero has no sign.
fn unsigned_zero(fixed: String) -> String {
    match fixed.strip_prefix('-') {
        Some(zero) if !zero.contains(|c| ('1'..='9').contains(&c)) => zero.to_owned(),
        _ => fixed,
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

    /// A single value has the digits that a heading gives it, and means beside it as many.
    #[test]
    fn a_column_keeps_the_digits_of_single_values() {
        let column = |name: &str, values: &[Valued]| Metric::from_key(Key::full(name), &[]).in_column(values);
        let mean = (0.1398, Some([0.0776, 0.202]));
        assert_eq!(column("validation.loss", &[(0.1474, None), mean]), ["0.1474", "0.1398 [0.0776, 0.2020]"]);
        assert_eq!(column("validation.loss", &[mean]), ["0.14 [0.08, 0.20]"]);
        let accuracy = [(0.9384, None), (0.9, Some([0.8, 1.0]))];
        assert_eq!(column("validation.accuracy", &accuracy), ["93.8 %", "90.0 % [80.0, 100.0]"]);
        let tiny = [(1e-7, None), (0.5, Some([0.4, 0.6]))];
        assert_eq!(column("validation.loss", &tiny), ["0.00", "0.50 [0.40, 0.60]"]);
    }

    #[test]
    fn an_interval_has_one_unit() {
        assert_eq!(in_one_unit([154.3e3, 51.72, 215.6e3], units::rate), ["154.3 k", "0.1 k", "215.6 k"]);
        assert_eq!(
            in_one_unit([-20_210.0, -208_696.0, 168_300.0], units::rate),
            ["-20.2 k", "-208.7 k", "168.3 k"]
        );
        assert_eq!(in_one_unit([8000.0, -3.0, 9000.0], units::rate), ["8000", "-3", "9000"]);
        assert_eq!(in_one_unit([0.5, 0.0002, 1.5], units::seconds), ["0.50 s", "0.00 s", "1.50 s"]);
        assert_eq!(in_one_unit([302.0, 250.0, 355.0], units::seconds), ["302 s", "250 s", "355 s"]);
        assert_eq!(in_one_unit([1e-9, 0.0, 2e-9], units::rate), ["1.000e-9", "0", "2.000e-9"]);
        assert_eq!(in_one_unit([0.0, -20_210.0, 168_300.0], units::rate), ["0", "-20.2 k", "168.3 k"]);
        assert_eq!(
            ["-0.00000", "-0.00010", "0.00"].map(|text| unsigned_zero(text.to_owned())),
            ["0.00000", "-0.00010", "0.00"]
        );
    }
}
