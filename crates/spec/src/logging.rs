//! `[logging]`: what is recorded of a step, and when it leaves the device.

use super::reader::{Fields, count, interval, some, table, words};

table! {
    /// The table `[logging]`.
    pub struct Logging {
        /// When training rows leave the device.
        pub policy: Policy = Policy::Buffered,
        // Under another policy it has no effect, so that a sweep over the policies may set it once for all.
        /// Steps in a block of `buffered` (one epoch); else without effect.
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
    }
}

impl Logging {
    fn check_metrics(&mut self, t: &mut Fields<'_>) {
        t.refuse_repeated("metrics", &self.metrics, "name each metric once");
        self.metrics.retain(|m| *m != Metric::Loss);
        self.metrics.insert(0, Metric::Loss);
    }
}
