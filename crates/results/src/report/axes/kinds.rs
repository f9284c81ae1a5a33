//! Optimizers and schedules of runs as one axis each, where other keys than those of a sweep tell their kinds apart: a key of one kind
//! says nothing of another.

use std::collections::HashMap;

use super::differences::Difference;
use crate::{
    report::{grouping::distinct, run::Run},
    spec::kinds_in_words,
};

/// Tables of a spec that hold one of several kinds.
pub(in crate::report) const TABLES: [&str; 2] = ["optimizer", "schedule"];

/// The kind of a schedule where there is none: the rate is constant.
const CONSTANT: &str = "constant";

/// Gives each run its optimizer as one value, such as `sgd(momentum 0.9)`, in place of its sweep's axes within it, if runs differ in
/// its kind and neither the axes of sweeps nor their `tasks` tell that; likewise its schedule. `spec` has the keys in which specs
/// differ.
pub(in crate::report) fn take_kinds(
    runs: &mut [Run],
    spec: &[Difference],
    tasks: fn(&[Run]) -> Vec<Option<usize>>,
) {
    // Before other axes, so that their order does not depend on which run comes first.
    for table in TABLES.into_iter().rev() {
        let is_within = |key: &str| within(table, key).is_some();
        let is_of_some = |own: &Difference| own.values.iter().any(|(value, _)| value.is_none());
        if !spec.iter().any(|own| is_within(&own.key) && is_of_some(own))
            || are_told(runs, table, &tasks(runs))
        {
            continue;
        }
        let names = names(runs, table);
        for (run, names) in runs.iter_mut().zip(names) {
            let is_own = |axis: &str| axis == table || is_within(axis);
            let first = run.axes.iter().position(|(axis, _)| is_own(axis));
            // A trial that was not run has no spec, and only a sweep over the whole table names its kind.
            let [name, written] = names.unwrap_or_else(|| {
                [run.axis(table), run.table(table)].map(|own| own.unwrap_or_default().to_owned())
            });
            run.axes.retain(|(axis, _)| !is_own(axis));
            run.tables.retain(|(axis, _)| !is_own(axis));
            let place = first.unwrap_or(0);
            let is_named = !name.is_empty();
            run.axes.splice(place..place, is_named.then(|| (table.to_owned(), name)));
            run.tables.extend((!written.is_empty()).then(|| (table.to_owned(), written)));
        }
    }
}

/// Whether the axis of the whole table tells the kinds of all runs of each task.
fn are_told(runs: &[Run], table: &str, tasks: &[Option<usize>]) -> bool {
    let mut by_axis = HashMap::new();
    runs.iter().zip(tasks).all(|(run, task)| {
        let kind = run.kind_of(table);
        kind.is_none() || *by_axis.entry((task, run.axis(table))).or_insert(kind) == kind
    })
}

/// What tells the table of each run from others of its kind, and all that it holds.
fn names(runs: &[Run], table: &str) -> Vec<Option<[String; 2]>> {
    let held = |run: &'_ Run| -> Option<Vec<(String, String)>> {
        run.kind_of(table)?;
        let own = run.spec.as_ref()?.iter();
        let own = own.filter(|(key, _)| !run.is_its_length(key));
        let own = own.filter_map(|(key, value)| Some((within(table, key)?.to_owned(), value.to_owned())));
        Some(own.collect())
    };
    let held: Vec<_> = runs.iter().map(held).collect();
    let known = distinct(held.iter().flatten());
    let names = kinds_in_words(&known, CONSTANT);
    let names: HashMap<_, _> = known.into_iter().zip(names).collect();
    held.iter().map(|own| own.as_ref().and_then(|own| names.get(own).cloned())).collect()
}

/// A key within a table, without it.
fn within<'k>(table: &str, key: &'k str) -> Option<&'k str> {
    key.strip_prefix(table)?.strip_prefix('.')
}

impl Run {
    /// The kind of its optimizer or schedule: `sgd`; `None` of a run that does not train.
    pub(in crate::report) fn kind_of(&self, table: &str) -> Option<&str> {
        let spec = self.spec.as_ref().filter(|_| self.kind() == "train")?;
        let kind = spec.keys().find_map(|key| Some(within(table, key)?.split_once('.')?.0));
        kind.or((table == TABLES[1]).then_some(CONSTANT))
    }
}
