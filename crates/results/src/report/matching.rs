//! The settings of a group of runs as they are matched with those of another, and which of their runs have no result.

use std::collections::{HashMap, HashSet};

use indexmap::IndexMap;

use super::{
    axes::{is_inferred, is_path},
    comparison::Comparison,
    configurations::{FINISHED, STOPPED},
    grouping::{distinct, grouped},
    key::Key,
    metric::Metric,
    ranking::{Candidate, Ranking, Values},
    run::{Run, SAME_AS, varies_setting},
};
use crate::{run::concerns_learning, units};

/// If no axis tells settings apart, folds all runs: every ranked run has the same status.
const EVERYTHING: &str = "status";

/// Keys of devices that change the batch where each has one of its own.
const OF_BATCH: [&str; 3] = ["devices.scaling", "devices.num_gpus", "devices.use"];

/// The axes of two groups. One that only one of them has counts, too: the specs of the other have a value of it. Only where it
/// changes nothing of the metric are runs of all its values taken together.
pub(super) fn axes_of_both([own, base]: [&Comparison; 2], metric: &Metric) -> Vec<Key> {
    let mut runs = own.runs.iter().chain(&base.runs);
    let are_weak = runs.any(|run| run.setting("devices.scaling") == Some("weak"));
    let counts = |key: &&String| {
        let have_both = own.axes.contains(key) && base.axes.contains(key);
        // Under weak scaling the devices change the batch.
        let learns = concerns_learning(key) || (are_weak && OF_BATCH.contains(&key.as_str()));
        let tells = *key != "name" && (!metric.is_learned || learns);
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
    pub(super) fn by_axes(
        comparison: &'a Comparison,
        metric: &'a Metric,
        keys: &[Key],
        spelling: Spelling,
    ) -> Self {
        let known = values_of_sweeps(&comparison.runs, keys, spelling);
        let in_spec = |run: &Run, key: &Key| value_in_spec(run, key, spelling);
        let value = |run: &Run, key: &Key| match run.spec {
            Some(_) => in_spec(run, key),
            // Others of its sweep have the same value.
            None => known.get(&at_axis(run, key)).cloned().unwrap_or_else(|| in_spec(run, key)),
        };
        Self::new(comparison, metric, keys.to_vec(), value)
    }

    /// By what `--by` names.
    pub(super) fn by_words(
        comparison: &'a Comparison,
        metric: &'a Metric,
        keys: Vec<Key>,
        spelling: Spelling,
    ) -> Self {
        // A table's short name depends on the other tables of its group, so compare values as written.
        let written = |run: &Run, key: &Key| key.table(run).or_else(|| key.value(run)).map(str::to_owned);
        Self::new(comparison, metric, keys, |run, key| Some(spelling.write(&written(run, key)?)))
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

    /// A run of each setting that another group lacks, whether or not it has a result.
    pub(super) fn alone(&self, other: &Self) -> Vec<usize> {
        let alone = self.places.iter().filter(|(values, _)| !other.places.contains_key(*values));
        let mut places: Vec<usize> = alone.map(|(_, places)| places[0]).collect();
        places.sort_unstable();
        places
    }

    /// A setting's values of the keys, as runs of it have them.
    pub(super) fn words(&self, values: &Values) -> Vec<String> {
        let run = &self.comparison.runs[self.places[values][0]];
        let word = |key: &Key| key.value(run).unwrap_or("-").to_owned();
        self.keys.iter().map(word).collect()
    }

    /// The runs of a setting that finished without a value of the metric. Final models are not validated, and never have one.
    pub(super) fn unmeasured(&self, values: &Values) -> Vec<usize> {
        let runs = &self.comparison.runs;
        let is_so =
            |run: &Run| run.status == FINISHED && self.metric.value(run).is_none() && !run.is_final_model();
        self.places[values].iter().copied().filter(|&place| is_so(&runs[place])).collect()
    }

    /// The runs of a setting that have no result: they diverged, failed, were killed or did not run. One whose seed another run
    /// learned from has one, and one that its sweep stopped needs none.
    pub(super) fn without_result(&self, values: &Values) -> Vec<usize> {
        let runs = &self.comparison.runs;
        let is_left = |place: &usize| ![FINISHED, STOPPED, SAME_AS].contains(&&*runs[*place].status);
        let left: Vec<usize> = self.places[values].iter().copied().filter(is_left).collect();
        match self.settings.get(values).filter(|_| self.metric.is_learned) {
            Some(own) => without_another(self.comparison, left, &own.places),
            None => left,
        }
    }
}

/// Those of `left` whose seed none of the runs that `learned` has.
pub(super) fn without_another(comparison: &Comparison, left: Vec<usize>, learned: &[usize]) -> Vec<usize> {
    if left.is_empty() {
        return left;
    }
    let identity = |place: usize| {
        let run = &comparison.runs[place];
        let axes = comparison.axes.iter().filter(|key| *key != "name");
        (run.seeds(), axes.map(|key| run.axis(key)).collect::<Vec<_>>())
    };
    let learned: HashSet<_> = learned.iter().map(|&place| identity(place)).collect();
    left.into_iter().filter(|&place| !learned.contains(&identity(place))).collect()
}

/// A run's sweep, a key, and the value that the sweep gave it, if it varies it.
type AtAxis<'a> = (Option<&'a str>, &'a str, Option<&'a str>);

fn at_axis<'a>(run: &'a Run, key: &'a Key) -> AtAxis<'a> {
    let axis = run.axes.iter().find(|(axis, _)| axis == key.name());
    (run.sweep.as_deref(), key.name(), axis.map(|(_, value)| value.as_str()))
}

/// What the values of sweeps are in the specs of their trials.
fn values_of_sweeps<'a>(
    runs: &'a [Run],
    keys: &'a [Key],
    spelling: Spelling,
) -> HashMap<AtAxis<'a>, Option<String>> {
    let with_spec = runs.iter().filter(|run| run.spec.is_some());
    let value = move |run, key| (at_axis(run, key), value_in_spec(run, key, spelling));
    with_spec.flat_map(|run| keys.iter().map(move |key| value(run, key))).collect()
}

/// The value of a key in a run's spec, with all that is in it; without a spec, that of its sweep.
fn value_in_spec(run: &Run, key: &Key, spelling: Spelling) -> Option<String> {
    if let Some(value) = run.setting(key.name()) {
        return Some(spelling.write(value));
    }
    let within = |own: &str| own.strip_prefix(key.name())?.strip_prefix('.').map(str::to_owned);
    let leaves = run
        .spec
        .iter()
        .flat_map(|spec| spec.iter())
        .filter(|(own, _)| !is_inferred(own) && !run.is_its_length(own));
    let leaves =
        leaves.filter_map(|(own, value)| Some(format!("{} {}", within(own)?, spelling.write(value))));
    let leaves = leaves.collect::<Vec<_>>().join("\n");
    match leaves.is_empty() {
        true => run.written(key.name()).map(|value| spelling.write(value)),
        false => Some(leaves),
    }
}

/// How values are written so that two groups can be matched: numbers in one way, and absolute paths by their last parts, since the
/// groups may be of projects in different places.
#[derive(Clone, Copy)]
pub(super) struct Spelling {
    /// As many parts as tell apart the files of a key in each group.
    parts: usize,
}

impl Spelling {
    pub(super) fn new(groups: [&Comparison; 2], keys: &[Key]) -> Self {
        let parts = groups.into_iter().flat_map(|group| keys.iter().map(|key| parts(&group.runs, key)));
        Self { parts: parts.max().unwrap_or(1) }
    }

    fn write(self, value: &str) -> String {
        value
            .parse::<f64>()
            .map_or_else(|_| last_parts(value, self.parts).to_owned(), |number| format!("{number:?}"))
    }
}

/// How many of their last parts tell apart the paths that a key, or a key within it, has.
fn parts(runs: &[Run], key: &Key) -> usize {
    let is_within =
        |own: &str| own.strip_prefix(key.name()).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    let leaves = runs.iter().flat_map(|run| run.spec.iter().flat_map(|spec| spec.iter()));
    let paths =
        distinct(leaves.filter(|(own, value)| is_path(value) && is_within(own)).map(|(_, value)| value));
    let are_told =
        |parts: &usize| distinct(paths.iter().map(|path| last_parts(path, *parts))).len() == paths.len();
    (1..).find(are_told).unwrap_or(1)
}

fn last_parts(value: &str, parts: usize) -> &str {
    let slashes = || value.rmatch_indices('/');
    match slashes().nth(parts - 1).filter(|_| is_path(value)) {
        Some((slash, _)) => &value[slash + 1..],
        None => value,
    }
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
