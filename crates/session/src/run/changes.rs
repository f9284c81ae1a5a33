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
    let may_change = |key: &str| {
        let below =
            |may: &&str| key.strip_prefix(*may).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        MAY_CHANGE.iter().any(below)
    };
    let refused = old.changes(new).into_iter().filter(|(key, ..)| !may_change(key));
    let in_words = refused.map(|(key, was, is)| {
        let [was, is] = [was, is].map(|value| value.unwrap_or_else(|| "absent".to_owned()));
        format!("`{key}` was {was}, and would be {is}")
    });
    let words: Vec<_> = in_words.collect();
    (!words.is_empty()).then(|| words.join("; "))
}
