//! `[trainer]`: how long, and what happens around the steps.

use std::time::Duration;

use super::{
    duration::{read_time, seconds},
    monitor::Monitor,
    reader::{count, count_or_zero, non_negative, some, table},
};

table! {
    /// Length of training, clipping, validation and choice of the best weights.
    pub struct Trainer {
        /// Passes over the training rows.
        pub max_epochs: u64 = 10 => count,
        /// Optimizer steps after which the run ends, whatever the epoch.
        pub max_steps: Option<u64> = None => some(count),
        /// Training time after which the run ends, such as `"90s"`, `"10m"` or `"1h30m"`; checked after each block of steps.
        pub max_time: Option<Duration> [serialize_with = "seconds"] = None => some(read_time),
        /// Global L2 norm to clip gradients to, as `torch.nn.utils.clip_grad_norm_`; 0 is off.
        pub gradient_clip_val: f64 = 0.0 => non_negative,
        /// Epochs between two validations; 0 for none.
        pub validate_every_epochs: u64 = 1 => count_or_zero,
        /// What the best weights are chosen by, as early stopping is if it names a metric; `best.safetensors` holds them.
        pub monitor: Monitor = Monitor::LOSS,
        /// Whether `model.safetensors` holds the best weights in place of the last; by default under early stopping alone.
        pub restore_best: Option<bool> = None,
        /// Ends the run when a metric no longer improves.
        pub early_stopping: Option<EarlyStopping> = None,
    }
}

table! {
    /// Ends the run after `patience` validations without an improvement of more than `min_delta`.
    pub struct EarlyStopping {
        /// What is watched; by default what `trainer.monitor` names.
        pub metric: Option<Monitor> = None,
        /// After how many validations in a row without improvement the run ends.
        pub patience: u64 => count_or_zero,
        /// An improvement must exceed this.
        pub min_delta: f64 = 0.0 => non_negative,
    }
}

impl Trainer {
    /// Every key that names a monitor, with what it names.
    pub(super) fn monitors(&self) -> impl Iterator<Item = (&'static str, Monitor)> {
        let early = self.early_stopping.as_ref().and_then(|early| early.metric);
        let early = early.map(|metric| ("trainer.early_stopping.metric", metric));
        [("trainer.monitor", self.monitor)].into_iter().chain(early)
    }

    /// The keys that need rows to validate on.
    pub(super) fn needing_validation(&self) -> impl Iterator<Item = &'static str> {
        let needs = [
            ("trainer.early_stopping", self.early_stopping.is_some()),
            ("trainer.monitor", self.monitor != Monitor::LOSS),
            ("trainer.restore_best", self.restore_best == Some(true)),
        ];
        needs.into_iter().filter_map(|(key, needs)| needs.then_some(key))
    }
}
