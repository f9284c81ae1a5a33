//! Resolves the names used in options: axes, keys of the spec, columns of `summary.csv`, keys of the
//! environment.

use std::collections::{BTreeSet, HashSet};

use super::{
    ReportError,
    axes::TABLES,
    grid::done,
    grouping::distinct,
    logged,
    run::{LEARNED, Run},
};
pub(super) use crate::spec::short_keys as short;
use crate::{
    files::{LAYERS, Leaves, is_of_layers},
    spec::nearest,
};

/// The name for a run's tags.
const TAG: &str = "tag";

/// The name for the best value of what a run monitors, as shown by `list`.
pub(super) const BEST: &str = "best";

/// A resolved name: the full keys that it may stand for. A run has at most one of them.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Key(Vec<String>);

/// Columns that hold text, even if it looks like a number.
pub(super) const WORDS: [&str; 11] = [
    "path",
    "reason",
    "run",
    "name",
    "status",
    "devices_requested",
    "devices_used",
    "scaling",
    "precision",
    "engine",
    "data_digest",
];

impl Key {
    /// Finds a key by its full name or by its last words: `lr` stands for `optimizer.sgd.lr`.
    ///
    /// # Errors
    /// No run has such a key, or it is ambiguous within a run.
    pub(super) fn new(word: &str, runs: &[Run]) -> Result<Self, ReportError> {
        let word = if word == "tags" { TAG } else { of_title(word, runs).unwrap_or(word) };
        if word == TAG || LEARNED.contains(&word) || runs.iter().any(|run| value(run, word).is_some()) {
            return Ok(Self::full(word));
        }
        let of_target = format!("validation.{word}");
        if logged::of_target(&of_target).is_some() && runs.iter().any(|run| run.has_learned(&of_target)) {
            return Ok(Self::full(&of_target));
        }
        let of_runs: HashSet<&str> = runs.iter().flat_map(names).collect();
        let of_runs: BTreeSet<&str> = of_runs.into_iter().collect();
        let known = || of_runs.iter().copied().chain(LEARNED);
        let ending = format!(".{word}");
        let mut found: Vec<&str> = known().filter(|name| name.ends_with(&ending)).collect();
        let is_axis = |name: &&str| runs.iter().any(|run| run.axes.iter().any(|(axis, _)| axis == name));
        if found.iter().any(is_axis) {
            // Runs without any of these axes may have the setting under another key: the rate of another optimizer.
            let (axes, mut others): (Vec<&str>, Vec<&str>) = found.into_iter().partition(is_axis);
            let count =
                |run: &Run, names: &[&str]| names.iter().filter(|name| value(run, name).is_some()).count();
            let is_apart =
                |run: &Run| count(run, &others) < 2 && (count(run, &axes) == 0 || count(run, &others) == 0);
            if !runs.iter().all(is_apart) {
                others.clear();
            }
            found = [axes, others].concat();
        }
        // Prefer other keys to those of training steps: `lr` means the optimizer's setting, `accuracy` the
        // validation's.
        if found.iter().any(|name| !name.starts_with("train.")) {
            found.retain(|name| !name.starts_with("train."));
        }
        if found.is_empty() {
            let last = known().chain([TAG]).flat_map(|name| [name, name.rsplit('.').next().unwrap_or(name)]);
            let near = nearest(word, last).map(|near| format!("did you mean `{near}`?"));
            let axes = distinct(runs.iter().flat_map(|run| &run.axes).map(|(axis, _)| axis));
            let all = short(&axes).into_iter().chain(["status"]).chain(known_figures(runs));
            let hint = format!("{}, and the keys of their spec", runs_have(near.as_deref(), all));
            return Err(ReportError::NoColumn { word: word.to_owned(), hint });
        }
        let has_two = |run: &Run| found.iter().filter(|name| value(run, name).is_some()).count() > 1;
        if runs.iter().any(has_two) {
            let hint = format!("name one of `{}`", found.join("`, `"));
            return Err(ReportError::query(format!("`{word}` stands for several keys"), Some(&hint)));
        }
        Ok(Self(found.into_iter().map(str::to_owned).collect()))
    }

    pub(super) fn full(name: &str) -> Self {
        Self(vec![name.to_owned()])
    }

    pub(super) fn value<'a>(&self, run: &'a Run) -> Option<&'a str> {
        self.0.iter().find_map(|name| value(run, name))
    }

    /// The value as in `sweep.csv`, if it is a table with a short name.
    pub(super) fn table<'a>(&self, run: &'a Run) -> Option<&'a str> {
        self.0.iter().find_map(|name| run.table(name))
    }

    /// The run's tags, if the key stands for them.
    pub(super) fn tags<'a>(&self, run: &'a Run) -> Option<&'a [String]> {
        (self.name() == TAG).then_some(&run.tags[..])
    }

    pub(super) fn name(&self) -> &str {
        &self.0[0]
    }

    /// Whether the key is a result of runs rather than a setting.
    pub(super) fn is_outcome(&self, runs: &[Run]) -> bool {
        let is_figure = |name: &String| {
            let is_set = |run: &Run| run.axis(name).is_some();
            let comes_of = |run: &Run| value(run, name).is_some() && run.fact(name).is_none();
            !WORDS.contains(&&**name) && !runs.iter().any(is_set) && runs.iter().any(comes_of)
        };
        self.0.iter().any(is_figure)
    }

    pub(super) fn stands_for(&self, name: &str) -> bool {
        self.0.iter().any(|own| own == name)
    }
}

/// The figure that tables of the lab's runs have under another title: `steps_per_s` for `products_per_s`, as for `products/s`.
fn of_title(word: &str, runs: &[Run]) -> Option<&'static str> {
    distinct(runs.iter().map(Run::kind)).into_iter().filter(|kind| *kind != "train").find_map(|kind| {
        let [count, _, rate] = done(&[kind]);
        match word {
            _ if word == count => Some("steps"),
            _ if word == rate || word == rate.replace("/s", "_per_s") => Some("steps_per_s"),
            _ => None,
        }
    })
}

/// A hint about the available names.
pub(super) fn runs_have<'a>(near: Option<&str>, names: impl IntoIterator<Item = &'a str>) -> String {
    let near = near.map(|near| format!("{near} ")).unwrap_or_default();
    format!("{near}runs here have {}", names.into_iter().collect::<Vec<_>>().join(", "))
}

/// The names of all figures that some run has a number for; of the metrics of single targets, those of the first run.
pub(super) fn known_figures(runs: &[Run]) -> Vec<&str> {
    let learned = LEARNED.into_iter().filter(|name| runs.iter().any(|run| run.learned(name).is_some()));
    let of_targets = runs.first().into_iter().flat_map(Run::names_of_targets);
    let logged = runs.iter().flat_map(Run::logged_names).map(|name| -> &str { name });
    let logged = distinct(logged.chain(of_targets));
    let is_number = |(column, cell): &(&str, &str)| !WORDS.contains(column) && cell.parse::<f64>().is_ok();
    let figures = runs.iter().flat_map(|run| run.figures.iter().filter(is_number));
    let figures: BTreeSet<&str> = figures.map(|(column, _)| column).collect();
    learned.chain(logged).chain(figures).collect()
}

/// All names that may be used for a run.
fn names(run: &Run) -> impl Iterator<Item = &str> {
    let has_layers = |spec: &Leaves| spec.keys().any(is_of_layers);
    let layers = run.spec.as_ref().is_some_and(has_layers).then_some(LAYERS);
    let axes = run.axes.iter().map(|(axis, _)| axis.as_str()).chain(layers);
    let tables = [&run.spec, &run.environment].into_iter().flatten().flat_map(Leaves::keys);
    let logged = run.logged_names().map(|name| -> &str { name });
    let figures = run.figures.keys().chain(logged);
    axes.chain(figures).chain(tables).chain(["status"])
}

/// A run's value for a full name.
fn value<'a>(run: &'a Run, name: &str) -> Option<&'a str> {
    match name {
        "status" => Some(run.status.as_str()),
        LAYERS => run.axis(LAYERS).or_else(|| run.architecture()),
        _ if TABLES.contains(&name) => run.axis(name).or_else(|| run.kind_of(name)),
        BEST => run.axis(BEST).or_else(|| run.learned(run.monitor())),
        _ => run
            .learned(name)
            .or_else(|| run.axis(name))
            .or_else(|| run.figure(name))
            .or_else(|| exported(run, name))
            .or_else(|| run.fact(name)),
    }
}

/// What a column of an export has: `best_validation_f1`, `final_train_accuracy`.
fn exported<'a>(run: &'a Run, column: &str) -> Option<&'a str> {
    let (when, metric) = column.split_once('_')?;
    let name = metric.replacen('_', ".", 1);
    match when {
        "best" => run.figure("best_value").and_then(|_| run.learned(&name)),
        "final" => run.learned_last(&name),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(axes: &[(&str, &str)]) -> Run {
        Run {
            axes: axes.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
            status: "finished".to_owned(),
            ..Run::default()
        }
    }

    #[test]
    fn names_may_be_short_where_they_tell() {
        let runs = [
            run(&[("optimizer.sgd.lr", "0.1"), ("layers.0.width", "8"), ("layers.2.width", "4")]),
            run(&[("optimizer.adam.lr", "0.2")]),
        ];
        let key = |word| Key::new(word, &runs);
        let lr = key("lr").unwrap();
        assert_eq!(runs.each_ref().map(|run| lr.value(run)), [Some("0.1"), Some("0.2")]);
        let beside = Run {
            spec: Some([("optimizer.adamw.lr".to_owned(), "0.3".to_owned())].into_iter().collect()),
            ..run(&[])
        };
        let with_other = [runs[1].clone(), beside];
        let lr = Key::new("lr", &with_other).unwrap();
        assert_eq!(
            (lr.name(), with_other.each_ref().map(|run| lr.value(run))),
            ("optimizer.adam.lr", [Some("0.2"), Some("0.3")])
        );
        assert_eq!(key("0.width").unwrap().name(), "layers.0.width");
        assert_eq!(key("status").unwrap().value(&runs[0]), Some("finished"));
        let error = |word| {
            let error = key(word).unwrap_err();
            format!("{error}; {}", error.hint().unwrap_or_default())
        };
        assert_eq!(
            error("wdth"),
            "no run has a column `wdth`; did you mean `width`? runs here have sgd.lr, 0.width, 2.width, adam.lr, \
             status, and the keys of their spec"
        );
        assert_eq!(
            error("width"),
            "`width` stands for several keys; name one of `layers.0.width`, `layers.2.width`"
        );
    }
}
