//! `[logging]`: what is recorded of a step, and when it leaves the device.

use super::reader::{Fields, count, interval, some, table, words};

table! {
    /// The table `[logging]`.
    pub struct Logging {
        /// When training rows leave the device.
        pub policy: Policy = Policy::Buffered,
        // Accepted (without effect) under other policies, so that a sweep over policies can set it once.
        /// Steps in a block of `buffered` (an epoch, or several short ones); else without effect.
        pub flush_every: Option<u64> = None => some(count),
        /// Seconds after which `buffered` moves a block that is not full, so that a kill loses no more than these.
        pub flush_every_s: f64 = 10.0 => interval,
        /// Columns of `metrics.csv`; loss always comes first.
        pub metrics: Vec<Metric> = vec![Metric::Loss] => |v| v.list(1..=100, Metric::read),
        /// Whether `trace.json` is written, a timeline for Perfetto and Chrome's tracing.
        pub trace: bool = false,
        /// Whether event files for TensorBoard are written.
        pub tensorboard: bool = false,
        /// Seconds between two rows of `system.csv`: processors, memory, GPUs; absent: no such file.
        pub system_every_s: Option<f64> = None => some(interval),
    }
    check check_metrics
}

words! {
    /// When training rows leave the device.
    pub enum Policy {
        /// After every step.
        Immediate = "immediate",
        /// In blocks of `flush_every` steps.
        Buffered = "buffered",
        /// One mean per epoch, weighted by rows.
        PerEpoch = "per_epoch",
        /// Never.
        Off = "off",
    }
}

words! {
    /// A column of `metrics.csv`.
    pub enum Metric {
        /// The batch's mean loss before the update.
        Loss = "loss",
        /// Share of the batch's rows whose largest output is the label's.
        Accuracy = "accuracy",
        /// L2 norm of all gradients, before clipping.
        GradNorm = "grad_norm",
        /// L2 norm of all parameters, before the update.
        ParamNorm = "param_norm",
        /// The rate that the step's update used.
        Lr = "lr",
        /// Mean absolute error, of validation rows alone, as all that follow.
        Mae = "mae",
        /// Root of the mean squared error.
        Rmse = "rmse",
        /// Coefficient of determination.
        R2 = "r2",
        /// Mean of the classes' F1 scores.
        F1 = "f1",
        /// Mean of the classes' F1 scores, each weighted by its rows.
        F1Weighted = "f1_weighted",
        /// Mean of the classes' precisions.
        Precision = "precision",
        /// Mean of the classes' recalls.
        Recall = "recall",
        /// Area under the ROC curve; of more than two classes the mean of each against the rest.
        Auc = "auc",
        /// Area under the precision-recall curve, as average precision; of more than two classes the mean.
        AveragePrecision = "average_precision",
    }
}

impl Metric {
    /// Whether it is computed from a whole validation's predictions; it is empty in rows of training steps.
    pub fn needs_predictions(self) -> bool {
        let of_classes = [Self::F1, Self::F1Weighted, Self::Precision, Self::Recall];
        self.is_of_numbers() || self.ranks_outputs() || of_classes.contains(&self)
    }

    /// Whether it depends on the order of all rows by their outputs.
    pub fn ranks_outputs(self) -> bool {
        matches!(self, Self::Auc | Self::AveragePrecision)
    }

    /// Whether the device logs it for each step.
    pub fn is_logged(self) -> bool {
        self != Self::Lr && !self.needs_predictions()
    }

    /// Whether it applies to numeric targets only.
    pub fn is_of_numbers(self) -> bool {
        matches!(self, Self::Mae | Self::Rmse | Self::R2)
    }

    /// Whether it applies to classes only.
    pub fn is_of_classes(self) -> bool {
        self == Self::Accuracy || self.needs_predictions() && !self.is_of_numbers()
    }

    /// The column's name for one of several targets.
    pub fn of_target(self, target: &str) -> String {
        format!("{}_{target}", self.name())
    }

    /// Whether a larger value is better.
    pub fn more_is_better(self) -> bool {
        self == Self::R2 || self.is_of_classes()
    }
}

impl Logging {
    fn check_metrics(&mut self, t: &mut Fields<'_>) {
        t.refuse_repeated("metrics", &self.metrics, "name each metric once");
        self.metrics.retain(|m| *m != Metric::Loss);
        self.metrics.insert(0, Metric::Loss);
    }
}
