//! The keys of spec and environment in which runs differ.

use std::{collections::BTreeSet, path::Path};

use crate::{
    files::{LAYERS, Leaves, is_of_layers},
    report::{
        grouping::{distinct, grouped},
        run::{Run, varies_setting},
    },
};

/// Whether a value of a resolved spec is a path: these are absolute.
pub(in crate::report) fn is_path(value: &str) -> bool {
    value.starts_with('/')
}

/// A path's last part, which does not depend on where a project lies; other values as they are.
pub(in crate::report) fn file_name(value: &str) -> &str {
    let name = if is_path(value) { Path::new(value).file_name() } else { None };
    name.and_then(|name| name.to_str()).unwrap_or(value)
}

/// A key with different values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::report) struct Difference {
    pub(in crate::report) key: String,
    /// Each value with the numbers of the tables that have it, in order of first use; `None` stands for an
    /// absent key.
    pub(in crate::report) values: Vec<(Option<String>, Vec<usize>)>,
}

/// The keys that differ among tables. Most keys are equal in all of them.
pub(in crate::report) fn keys<'a>(tables: impl IntoIterator<Item = &'a Leaves>) -> BTreeSet<&'a str> {
    let mut tables = tables.into_iter();
    let Some(first) = tables.next() else { return BTreeSet::new() };
    tables.flat_map(|other| first.differing(other)).collect()
}

/// The `wanted` keys that differ among the tables.
pub(in crate::report) fn differences(
    tables: &[(usize, &Leaves)],
    wanted: impl Fn(&str) -> bool,
) -> Vec<Difference> {
    let keys = keys(tables.iter().map(|(_, table)| *table)).into_iter().filter(|key| wanted(key));
    let difference = |key: &str| {
        let values = grouped(tables.iter().map(|(place, leaves)| (leaves.get(key), *place)));
        let values = values.into_iter().map(|(value, places)| (value.map(str::to_owned), places));
        Difference { key: key.to_owned(), values: values.collect() }
    };
    keys.map(difference).collect()
}

/// Environment key: number of threads that computed.
pub(in crate::report) const THREADS: &str = "host.threads";

/// Environment key: number of available threads.
pub(in crate::report) const AVAILABLE: &str = "host.available_threads";

/// Environment keys that always differ and do not matter.
const NOT_THE_MACHINE: [&str; 15] = [
    "trial",
    "sweep",
    "started",
    "command",
    "resumed_after",
    "devices.requested",
    "devices.used",
    "devices.virtual",
    "devices.timed_by",
    // A setting that is part of the spec.
    "devices.precision",
    // Contains times of the engine's probe; the engine itself is in the summary.
    "devices.engine",
    "devices.sums",
    "memory.available_bytes",
    // Compared separately, among runs on the CPU.
    THREADS,
    AVAILABLE,
];

/// Whether a spec key only affects what is recorded, and when.
pub(in crate::report) fn is_of_record(key: &str) -> bool {
    const RECORD: [&str; 7] = [
        "description",
        "final_model",
        "logging.flush_every",
        "logging.flush_every_s",
        "logging.trace",
        "logging.tensorboard",
        "logging.system_every_s",
    ];
    RECORD.contains(&key) || key == "checkpoint" || key.starts_with("checkpoint.")
}

/// Whether a spec key follows from the data and the other keys.
pub(in crate::report) fn is_inferred(key: &str) -> bool {
    key.starts_with("model.") && key.ends_with(".in_features")
}

/// Whether a spec key only names the files of rows that are known by a digest of all bytes, which all of `runs` share.
pub(in crate::report) fn names_same_rows(key: &str, runs: &[&Run]) -> bool {
    let is_file = |run: &&Run| run.setting(key).is_none_or(is_path);
    let is_swept = |run: &&Run| run.axes.iter().any(|(axis, _)| axis == key);
    let digests = distinct(runs.iter().map(|run| run.rows_digest()));
    key.starts_with("data.")
        && matches!(digests[..], [Some(_)])
        && runs.iter().all(|run| !run.is_sampled() && is_file(run) && !is_swept(run))
}

/// Whether a spec key says how long a run lasts: it may change where one goes on, also where it is a trial of a sweep.
fn is_length(key: &str) -> bool {
    key.starts_with("trainer.max_")
}

/// Keys that distinguish runs: the sweeps' axes in order, and by how much trials were extended beyond the
/// sweep. If there are single runs, or trials of several sweeps, also everything else in which their specs differ.
pub(in crate::report) fn axes(runs: &[Run], spec: &[Difference]) -> Vec<String> {
    let swept = runs.iter().flat_map(|run| &run.axes).map(|(key, _)| key.as_str());
    let is_alone = runs.iter().any(|run| run.sweep.is_none());
    let are_several = distinct(runs.iter().map(|run| run.sweep.as_deref())).len() > 1;
    let tells_sweeps = |key: &str| are_several && varies_setting(key) && key != "name";
    let with_spec: Vec<&Run> = runs.iter().filter(|run| run.spec.is_some()).collect();
    let has_axis = |run: &Run, axis: &str| run.axes.iter().any(|(own, _)| own == axis);
    let is_named = |key: &str| {
        let with_key: Vec<&&Run> = with_spec.iter().filter(|run| run.setting(key).is_some()).collect();
        let is_of_all = |axis: &str| with_key.iter().all(|run| has_axis(run, axis));
        key.match_indices('.').any(|(end, _)| is_of_all(&key[..end]))
    };
    let tells = |key: &&String| {
        (is_alone || is_length(key) || tells_sweeps(key))
            && !is_of_record(key)
            && !is_inferred(key)
            && !is_named(key)
            && !names_same_rows(key, &with_spec)
    };
    let are_one = runs.iter().any(|run| run.layers.is_some());
    let more = spec.iter().map(|difference| &difference.key).filter(tells);
    let more = more.map(|key| if are_one && is_of_layers(key) { LAYERS } else { key });
    distinct(swept.chain(more)).into_iter().map(str::to_owned).collect()
}

/// Keys that tell the table that they are in, where others of it say as little: that is what people look for.
const TELLING: [&str; 2] = [".lr", ".patience"];

/// A key that a spec has only where it stops early.
const FOLLOWS_STOPPING: &str = "trainer.restore_best";

/// Removes keys of a table that only some runs have, if each has a single value and another key of that table
/// stays: they only show that the table is there.
pub(in crate::report) fn keep_telling(keys: &mut Vec<String>, runs: &[&Run]) {
    let table = |key: &str| key.rsplit_once('.').map(|(table, _)| format!("{table}."));
    let is_swept = |key: &str| runs.iter().any(|run| run.axes.iter().any(|(axis, _)| axis == key));
    let had_by = |key: &str| runs.iter().map(|run| run.axis(key).is_some()).collect::<Vec<bool>>();
    let tells = |key: &str, had_by: &[bool]| {
        is_swept(key)
            || had_by.iter().all(|has| *has)
            || distinct(runs.iter().filter_map(|run| run.axis(key))).len() > 1
    };
    let is_telling = |key: &str| TELLING.iter().any(|end| key.ends_with(end));
    let is_of_all = |table: &str| {
        let has =
            |run: &&Run| run.spec.as_ref().is_none_or(|spec| spec.keys().any(|key| key.starts_with(table)));
        runs.iter().all(has)
    };
    let mut known: Vec<(bool, bool, Vec<bool>, &String)> = keys
        .iter()
        .map(|key| (key, had_by(key)))
        .map(|(key, had_by)| (!tells(key, &had_by), !is_telling(key), had_by, key))
        .collect();
    known.sort_by_key(|(is_silent, is_other, ..)| (*is_silent, *is_other));
    let stands = |place: usize| {
        let (is_silent, _, had_by, key) = &known[place];
        // A table within it shows that the table is there, too. A key of a table that all have shows more.
        let is_within = |other: &str| match table(key) {
            Some(own) if is_of_all(&own) && *key != FOLLOWS_STOPPING => false,
            Some(own) => other.starts_with(&own),
            None => !other.contains('.'),
        };
        let is_like = |other: &(bool, bool, Vec<bool>, &String)| other.2 == *had_by && is_within(other.3);
        !is_silent || !known[..place].iter().any(is_like)
    };
    let kept: Vec<String> =
        (0..known.len()).filter(|&place| stands(place)).map(|place| known[place].3.clone()).collect();
    keys.retain(|key| kept.contains(key));
}

/// Spec keys that differ. A run whose kind does not have a key is not counted as differing. Where every schedule that has a length
/// is as long as its run, that length follows from other keys.
pub(in crate::report) fn spec(runs: &[Run]) -> Vec<Difference> {
    let tables: Vec<(usize, &Leaves)> =
        runs.iter().enumerate().filter_map(|(place, run)| Some((place + 1, run.spec.as_ref()?))).collect();
    let mut found = differences(&tables, |_| true);
    found.retain(|own| {
        let mut lengths =
            own.values.iter().filter(|(value, _)| value.is_some()).flat_map(|(_, places)| places);
        !lengths.all(|place| runs[place - 1].is_its_length(&own.key))
    });
    for difference in &mut found {
        let kind = |place: &usize| runs[place - 1].kind();
        let (with, without): (Vec<_>, Vec<_>) =
            difference.values.drain(..).partition(|(value, _)| value.is_some());
        let has_key =
            |place: &usize| with.iter().flat_map(|(_, places)| places).any(|p| kind(p) == kind(place));
        let lack = without.into_iter().flat_map(|(_, places)| places).filter(has_key);
        let lack: Vec<usize> = lack.collect();
        difference.values = with;
        if !lack.is_empty() {
            difference.values.push((None, lack));
        }
        difference.values.sort_by_key(|(_, places)| places.first().copied());
    }
    found.retain(|difference| difference.values.len() > 1);
    found
}

/// The differing environment keys that matter. For runs on the CPU these include the number of threads that
/// computed; the number of available threads is only mentioned.
pub(in crate::report) fn environment(runs: &[Run]) -> Vec<Difference> {
    let of = |so: &dyn Fn(&Run) -> bool, wanted: &dyn Fn(&str) -> bool| {
        let so = runs.iter().enumerate().filter(|(_, run)| so(run));
        let tables: Vec<(usize, &Leaves)> =
            so.filter_map(|(place, run)| Some((place + 1, run.environment.as_ref()?))).collect();
        differences(&tables, wanted)
    };
    let is_of_machine = |key: &str| {
        !NOT_THE_MACHINE.contains(&key)
            // Compared as the task.
            && !key.starts_with("data.")
            && !key.starts_with("load.")
            && !key.starts_with("during.")
            // The work of a step follows from the spec, and rates are those of the last measurement.
            && !key.starts_with("step.")
            // It does not matter which GPU of a machine it was; its model and clocks do.
            && !(key.starts_with("gpus.") && (key.ends_with(".name") || key.ends_with(".uuid")))
    };
    let mut environment = of(&|_| true, &is_of_machine);
    // Keys that only some runs have: a GPU, or the unit that multiplies bfloat16.
    let is_of_some = |key: &str| key.starts_with("gpus.") || key == "cpu.bf16_unit";
    environment.retain(|difference| !is_of_some(&difference.key) || known_values(difference) > 1);
    let is_cpu = |run: &Run| run.figure("devices_used") == Some("cpu");
    let threads = of(&is_cpu, &|key| [THREADS, AVAILABLE].contains(&key));
    if threads.iter().any(|difference| difference.key == THREADS) {
        environment.extend(threads);
        environment.sort_by(|a, b| a.key.cmp(&b.key));
    }
    environment
}

/// The number of distinct values over all runs.
fn known_values(difference: &Difference) -> usize {
    difference.values.iter().filter(|(value, _)| value.is_some()).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaves(leaves: &[(&str, &str)]) -> Leaves {
        leaves.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn values_are_grouped_by_place() {
        let (a, b, c) = (
            leaves(&[("x", "1"), ("y", "1")]),
            leaves(&[("x", "2"), ("y", "1")]),
            leaves(&[("x", "1"), ("y", "1"), ("z", "1")]),
        );
        let found = differences(&[(1, &a), (2, &b), (4, &c)], |key| key != "y");
        let value = |text: &str| Some(text.to_owned());
        let x =
            Difference { key: "x".to_owned(), values: vec![(value("1"), vec![1, 4]), (value("2"), vec![2])] };
        let z = Difference { key: "z".to_owned(), values: vec![(None, vec![1, 2]), (value("1"), vec![4])] };
        assert_eq!(found, [x, z]);
    }
}
