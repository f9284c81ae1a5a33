//! Which keys of its spec may change when a run goes on.

use crate::spec::{Source, Spec};

/// Keys that may change when a run is resumed: how long it lasts, what is recorded, and where it runs. So may the
/// [places of its data](Source::names_file), which must be the same data. `docs/checkpoints.md` has this list.
const MAY_CHANGE: [&str; 20] = [
    "description",
    "devices.num_gpus",
    "devices.use",
    "devices.on_missing",
    "devices.engine",
    "devices.hosts",
    "devices.host_timeout",
    "trainer.max_epochs",
    "trainer.max_steps",
    "trainer.max_time",
    "trainer.early_stopping.patience",
    "trainer.early_stopping.min_delta",
    "trainer.early_stopping.stopping_threshold",
    "trainer.restore_best",
    "checkpoint",
    "logging.flush_every",
    "logging.flush_every_s",
    "logging.trace",
    "logging.tensorboard",
    "logging.system_every_s",
];

/// The changes with which a run cannot go on, in words; `None` where there are none.
pub fn refused_changes(old: &Spec, new: &Spec) -> Option<String> {
    in_words(old, new, |key| !may_change(key), "would be")
}

/// A hash of the keys with whose changes a run cannot go on.
pub(super) fn kept_hash(spec: &Spec) -> String {
    spec.hash8_of(|key| !may_change(key))
}

/// The changes with which a run does not go on unless its user names it; `None` where there are none. A run with another
/// `description`, or longer than asked for, may be another job's.
pub(super) fn refused_unasked(old: &Spec, new: &Spec) -> Option<String> {
    let (was, is) = (&old.trainer, &new.trainer);
    let tells_jobs_apart = |key: &str| match key {
        "description" => true,
        "trainer.max_epochs" => is.max_epochs < was.max_epochs,
        "trainer.max_steps" => was.max_steps.zip(is.max_steps).is_some_and(|(was, is)| is < was),
        "trainer.max_time" => was.max_time.zip(is.max_time).is_some_and(|(was, is)| is < was),
        _ => false,
    };
    in_words(old, new, |key| !may_change(key) || tells_jobs_apart(key), "would be")
}

/// The changes of a run that may go on with them, in words, and the overrides that make them; none where its length is smaller.
/// `None` where a run cannot go on with them, or nothing has changed.
pub(super) fn allowed_changes(old: &Spec, new: &Spec) -> Option<(String, Vec<String>)> {
    if refused_changes(old, new).is_some() {
        return None;
    }
    let overrides = old.changes(new).into_iter().filter(|_| refused_unasked(old, new).is_none());
    let overrides =
        overrides.map(|(key, _, is)| is.map_or_else(|| format!("~{key}"), |is| format!("{key}={is}")));
    Some((in_words(old, new, |_| true, "would be")?, overrides.collect()))
}

/// All changes of a run that goes on, in words; `None` where there are none.
pub(super) fn changes_in_words(old: &Spec, new: &Spec) -> Option<String> {
    in_words(old, new, |_| true, "is now")
}

/// Where a spec is not that of a sweep's trial, in words: it differs in an axis, or in a key that a resumed run keeps.
pub(super) fn not_the_trials(found: &Spec, own: &Spec, axes: &[String]) -> Option<String> {
    let is_axis = |key: &str| axes.iter().any(|axis| is_below(key, axis));
    let is_meant = |key: &str| is_axis(key) || !may_change(key);
    // Hosts that share a folder may have it at different places.
    let name = |value: &Option<String>| {
        let path = value.as_ref()?.trim_matches('"');
        path.starts_with('/').then(|| path.rsplit('/').next().map(str::to_owned))?
    };
    let mut changes = found.changes(own).into_iter();
    let (key, found, own) = changes.find(|(key, found, own)| {
        let has_moved = name(found).is_some_and(|found| Some(found) == name(own));
        is_meant(key) && !has_moved
    })?;
    let [found, own] = [found, own].map(|value| value.unwrap_or_else(|| "absent".to_owned()));
    Some(format!("`{key}` is {found}, not {own}"))
}

/// Whether an override gives one place to a file of data.
pub fn is_place_of_data(word: &str) -> bool {
    let place = word.split_once('=').map(|(key, place)| (key.trim_end(), place));
    place.is_some_and(|(key, place)| {
        let is_one = place.starts_with('"') || !place.contains(',');
        Source::names_file(key) && is_one
    })
}

fn may_change(key: &str) -> bool {
    Source::names_file(key) || MAY_CHANGE.iter().any(|may| is_below(key, may))
}

/// Whether a key is in a table, or is that key.
fn is_below(key: &str, table: &str) -> bool {
    key.strip_prefix(table).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// The changes of some keys: "`seed` was 0, and would be 1".
fn in_words(old: &Spec, new: &Spec, is_meant: impl Fn(&str) -> bool, verb: &str) -> Option<String> {
    let changes = old.changes(new).into_iter().filter(|(key, ..)| is_meant(key));
    let in_words = changes.map(|(key, was, is)| {
        let [was, is] = [was, is].map(|value| value.unwrap_or_else(|| "absent".to_owned()));
        format!("`{key}` was {was}, and {verb} {is}")
    });
    let words: Vec<_> = in_words.collect();
    (!words.is_empty()).then(|| words.join("; "))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_documentation_lists_the_keys_that_may_change() {
        let page = include_str!("../../../../docs/checkpoints.md");
        let (_, list) = page.split_once("On resume you may change ").unwrap();
        let (list, _) = list.split_once("; and the location of the same data").unwrap();
        let listed: BTreeSet<&str> = list.split('`').skip(1).step_by(2).collect();
        assert_eq!(listed, BTreeSet::from(MAY_CHANGE));
    }
}
