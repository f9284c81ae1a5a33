//! `[trainer]`: how long, and what happens around the steps.

use std::time::Duration;

use super::{
    duration::{read_time, seconds},
    logging::Metric,
    reader::{count, count_or_zero, non_negative, some, table, words},
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
        pub monitor: Monitor = Monitor::ValidationLoss,
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

words! {
    /// A metric of validation, and where it should go.
    pub enum Monitor {
        /// Lower is better.
        ValidationLoss = "validation.loss",
        /// Higher is better.
        ValidationAccuracy = "validation.accuracy",
        /// Lower is better.
        ValidationMae = "validation.mae",
        /// Lower is better.
        ValidationRmse = "validation.rmse",
        /// Higher is better.
        ValidationR2 = "validation.r2",
        /// Higher is better.
        ValidationF1 = "validation.f1",
        /// Higher is better.
        ValidationF1Weighted = "validation.f1_weighted",
        /// Higher is better.
        ValidationPrecision = "validation.precision",
        /// Higher is better.
        ValidationRecall = "validation.recall",
        /// Higher is better.
        ValidationAuc = "validation.auc",
    }
}

impl Monitor {
    /// The metric that it watches.
    pub fn metric(self) -> Metric {
        match self {
            Self::ValidationLoss => Metric::Loss,
            Self::ValidationAccuracy => Metric::Accuracy,
            Self::ValidationMae => Metric::Mae,
            Self::ValidationRmse => Metric::Rmse,
            Self::ValidationR2 => Metric::R2,
            Self::ValidationF1 => Metric::F1,
            Self::ValidationF1Weighted => Metric::F1Weighted,
            Self::ValidationPrecision => Metric::Precision,
            Self::ValidationRecall => Metric::Recall,
            Self::ValidationAuc => Metric::Auc,
        }
    }

    /// The value with its sign set so that smaller is better.
    pub fn cost(self, value: f64) -> f64 {
        if self.metric().more_is_better() { -value } else { value }
    }
}

impl Trainer {
    /// Every key that names a monitor, with what it names.
    pub fn monitors(&self) -> impl Iterator<Item = (&'static str, Monitor)> {
        let early = self.early_stopping.as_ref().and_then(|early| early.metric);
        let early = early.map(|metric| ("trainer.early_stopping.metric", metric));
        [("trainer.monitor", self.monitor)].into_iter().chain(early)
    }

    /// A key that is set and needs validation, if any.
    pub fn needs_validation(&self) -> Option<&'static str> {
        if self.early_stopping.is_some() {
            return Some("trainer.early_stopping");
        }
        if self.monitor != Monitor::ValidationLoss {
            return Some("trainer.monitor");
        }
        self.restore_best.filter(|restore| *restore).map(|_| "trainer.restore_best")
    }
}
