//! `[trainer]`: how long, and what happens around the steps.

use std::time::Duration;

use super::{
    duration::{read_time, seconds},
    monitor::Monitor,
    reader::{Fields, Rule, choices, count, count_or_zero, finite, non_negative, some, table},
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
        /// When the run validates, besides at its end.
        pub validate_every: ValidateEvery [flatten] = ValidateEvery::Epochs(1),
        /// What the best weights are chosen by, as early stopping is if it names a metric; `best.safetensors` holds them.
        pub monitor: Monitor = Monitor::LOSS,
        /// Whether `model.safetensors` holds the best weights in place of the last; by default under early stopping alone.
        pub restore_best: Option<bool> = None,
        /// Ends the run when a metric no longer improves.
        pub early_stopping: Option<EarlyStopping> = None,
    }
}

table! {
    /// Ends the run after `patience` validations without an improvement of more than `min_delta`, or once `stopping_threshold` is
    /// reached.
    pub struct EarlyStopping {
        /// What is watched; by default what `trainer.monitor` names.
        pub metric: Option<Monitor> = None,
        /// After how many validations in a row without improvement the run ends (0 is as 1); without it only `stopping_threshold` ends it.
        pub patience: Option<u64> = None => some(count_or_zero),
        /// An improvement must exceed this.
        pub min_delta: f64 = 0.0 => non_negative,
        /// The run ends with the first validation that reaches this value: at most it, or at least it where higher is better.
        pub stopping_threshold: Option<f64> = None => some(finite),
    }
    check check
}

impl EarlyStopping {
    fn check(&self, t: &mut Fields<'_>) {
        t.rule(Rule::Either("patience", "stopping_threshold"));
    }
}

choices! {
    /// How often a run validates.
    pub enum ValidateEvery {
        /// Epochs between two validations (1); 0 for none.
        Epochs(u64) = "validate_every_epochs" => count_or_zero,
        /// Instead of `validate_every_epochs`, optimizer steps between two validations, counted over the whole run.
        Steps(u64) = "validate_every_steps" => count,
    }
}

impl ValidateEvery {
    /// Not at all.
    pub const NEVER: Self = Self::Epochs(0);

    /// Optimizer steps between two validations; 0 for none.
    pub fn steps(&self, steps_per_epoch: u64) -> u64 {
        match self {
            Self::Epochs(epochs) => epochs.saturating_mul(steps_per_epoch),
            Self::Steps(steps) => *steps,
        }
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
