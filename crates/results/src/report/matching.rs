//! The settings of a group of runs as they are matched with those of another, and which of their runs have no result.

use std::collections::{HashMap, HashSet};

use indexmap::IndexMap;

use super::{
    ReportError,
    comparison::{Comparison, concerns_learning},
    configurations::{FINISHED, STOPPED},
    differences::{file_name, is_inferred},
    grouping::{distinct, grouped},
    key::Key,
    metric::Metric,
    ranking::{Candidate, Ranking, Values},
    run::{Run, SAME_AS, varies_setting},
};
use crate::units;

/// If no axis tells settings apart, folds all runs: every ranked run has the same status.
const EVERYTHING: &str = "status";

/// The axes of two groups. One that only one of them has counts, too: the specs of the other have a value of it. Only where it
/// changes nothing of the metric are runs of all its values taken together.
pub(super) fn axes_of_both([own, base]: [&Comparison; 2], metric: &Metric) -> Vec<Key> {
    let counts = |key: &&String| {
        let have_both = own.axes.contains(key) && base.axes.contains(key);
        let tells = *key != "name" && (!metric.is_learned || concerns_learning(key));
        varies_setting(key) && (have_both || tells)
    };
    let axes = distinct(own.axes.iter().chain(&base.axes).filter(counts));
    axes.into_iter().map(|axis| Key::full(axis)).collect()
}

/// The runs of a group, by setting.
pub(super) struct Group<'a> {
    comparison: &'a Comparison,
    metric: &'a Metric,
    pub(super) keys: Vec<Key>,
    /// Settings with results, best first.
    pub(super) settings: IndexMap<Values, Candidate>,
    /// All runs, by their values.
    places: IndexMap<Values, Vec<usize>>,
}

impl<'a> Group<'a> {
    /// By keys of the spec.
    pub(super) fn by_axes(comparison: &'a Comparison, metric: &'a Metric, keys: &[Key]) -> Self {
        let known = values_of_sweeps(&comparison.runs, keys);
        let value = |run: &Run, key: &Key| match run.spec {
            Some(_) => value_in_spec(run, key),
            // Others of its sweep have the same value.
            None => known.get(&at_axis(run, key)).cloned().unwrap_or_else(|| value_in_spec(run, key)),
        };
        Self::new(comparison, metric, keys.to_vec(), value)
    }

    /// By what `--by` names.
    pub(super) fn by_words(
        comparison: &'a Comparison,
        metric: &'a Metric,
        by: &[String],
    ) -> Result<Self, ReportError> {
        let keys = by.iter().map(|word| Key::new(word, &comparison.runs)).collect::<Result<_, _>>()?;
        // A table's short name depends on the other tables of its group, so compare values as written.
        let value = |run: &Run, key: &Key| key.table(run).or_else(|| key.value(run)).map(in_one_spelling);
        Ok(Self::new(comparison, metric, keys, value))
    }

    fn new(
        comparison: &'a Comparison,
        metric: &'a Metric,
        keys: Vec<Key>,
        value: impl Fn(&Run, &Key) -> Option<String>,
    ) -> Self {
        let values = |run: &Run| keys.iter().map(|key| value(run, key)).collect::<Values>();
        let of_runs: Vec<Values> = comparison.runs.iter().map(values).collect();
        let places: Vec<usize> = (0..of_runs.len()).collect();
        let everything = [Key::full(EVERYTHING)];
        let by = if keys.is_empty() { &everything[..] } else { &keys };
        let ranking = Ranking::by_keys(comparison, &places, metric, by, &|place| of_runs[place].clone());
        let settings =
            ranking.settings.into_iter().map(|setting| (of_runs[setting.places[0]].clone(), setting));
        let settings = settings.collect();
        let places = grouped(of_runs.into_iter().zip(places)).into_iter().collect();
        Self { comparison, metric, keys, settings, places }
    }

    /// The settings that another group has, too, whether or not they have results.
    pub(super) fn shared(&self, other: &Self) -> impl Iterator<Item = &Values> {
        self.places.keys().filter(|values| other.places.contains_key(*values))
    }

    /// A setting's values of the keys, as runs of it have them.
    pub(super) fn words(&self, values: &Values) -> Vec<String> {
        let run = &self.comparison.runs[self.places[values][0]];
        let word = |key: &Key| key.value(run).unwrap_or("-").to_owned();
        self.keys.iter().map(word).collect()
    }

    /// The runs of a setting that have no result: they diverged, failed, were killed or did not run. One whose seed another run
    /// learned from has one, and one that its sweep stopped needs none.
    pub(super) fn without_result(&self, values: &Values) -> Vec<usize> {
        let runs = &self.comparison.runs;
        let is_left = |place: &usize| ![FINISHED, STOPPED, SAME_AS].contains(&&*runs[*place].status);
        let mut left: Vec<usize> = self.places[values].iter().copied().filter(is_left).collect();
        let identity = |place: usize| {
            let axes = self.comparison.axes.iter().filter(|key| *key != "name");
            (runs[place].seeds(), axes.map(|key| runs[place].axis(key)).collect::<Vec<_>>())
        };
        let ranked = self.settings.get(values).filter(|_| self.metric.is_learned && !left.is_empty());
        let ranked = ranked.into_iter().flat_map(|own| &own.places);
        let learned: HashSet<_> = ranked.map(|&place| identity(place)).collect();
        left.retain(|&place| !learned.contains(&identity(place)));
        left
    }
}

/// A run's sweep, a key, and the value that the sweep gave it, if it varies it.
type AtAxis<'a> = (Option<&'a str>, &'a str, Option<&'a str>);

fn at_axis<'a>(run: &'a Run, key: &'a Key) -> AtAxis<'a> {
    let axis = run.axes.iter().find(|(axis, _)| axis == key.name());
    (run.sweep.as_deref(), key.name(), axis.map(|(_, value)| value.as_str()))
}

/// What the values of sweeps are in the specs of their trials.
fn values_of_sweeps<'a>(runs: &'a [Run], keys: &'a [Key]) -> HashMap<AtAxis<'a>, Option<String>> {
    let with_spec = runs.iter().filter(|run| run.spec.is_some());
    let values =
        with_spec.flat_map(|run| keys.iter().map(move |key| (at_axis(run, key), value_in_spec(run, key))));
    values.collect()
}

/// The value of a key in a run's spec, with all that is in it; without a spec, that of its sweep.
fn value_in_spec(run: &Run, key: &Key) -> Option<String> {
    if let Some(value) = run.setting(key.name()) {
        return Some(in_one_spelling(value));
    }
    let within = |own: &str| own.strip_prefix(key.name())?.strip_prefix('.').map(str::to_owned);
    let leaves = run.spec.iter().flat_map(|spec| spec.iter()).filter(|(own, _)| !is_inferred(own));
    let leaves =
        leaves.filter_map(|(own, value)| Some(format!("{} {}", within(own)?, in_one_spelling(value))));
    let leaves = leaves.collect::<Vec<_>>().join("\n");
    match leaves.is_empty() {
        true => run.written(key.name()).map(in_one_spelling),
        false => Some(leaves),
    }
}

fn in_one_spelling(value: &str) -> String {
    value.parse::<f64>().map_or_else(|_| file_name(value).to_owned(), |number| format!("{number:?}"))
}

/// `5 of 8 runs diverged (#0, 2, 4 to 6), 1 unfinished (#3)`; the `lost` ones of `all` runs of a setting have no result.
pub(super) fn lost_in_words(comparison: &Comparison, lost: &[usize], all: usize) -> String {
    let by_status = grouped(lost.iter().map(|&place| (comparison.runs[place].status.as_str(), place)));
    let words = by_status.iter().enumerate().map(|(number, (status, places))| {
        let of_all =
            if number == 0 { format!(" of {}", units::counted(all as u64, "run")) } else { String::new() };
        format!("{}{of_all} {status} ({})", places.len(), comparison.numbers(places))
    });
    words.collect::<Vec<_>>().join(", ")
}
