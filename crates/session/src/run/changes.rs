//! Which keys of its spec may change when a run goes on.

use crate::spec::Spec;

/// Keys that may change when a run is resumed: how long it lasts, what is recorded, where it runs, and where
/// its data is (which must be the same data).
const MAY_CHANGE: [&str; 29] = [
    "description",
    "data.csv.path",
    "data.parquet.path",
    "data.npy.features",
    "data.npy.labels",
    "data.npy.validation_features",
    "data.npy.validation_labels",
    "data.idx.images",
    "data.idx.labels",
    "data.idx.validation_images",
    "data.idx.validation_labels",
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

/// All changes of a run that goes on, in words; `None` where there are none.
pub(super) fn changes_in_words(old: &Spec, new: &Spec) -> Option<String> {
    in_words(old, new, |_| true, "is now")
}

fn may_change(key: &str) -> bool {
    let below =
        |may: &&str| key.strip_prefix(*may).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    MAY_CHANGE.iter().any(below)
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
