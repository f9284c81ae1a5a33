//! Results of the lab: products, copies and tensor steps, as the rows of their files.

use crate::{spec::lab::Order, units::named};

/// Norms of consecutive products that have reached the host.
#[derive(Clone, Debug, PartialEq)]
pub struct Norms {
    pub device: String,
    /// m, k, n.
    pub shape: [usize; 3],
    /// The number of the last of them, counted from 1.
    pub last: u64,
    /// The norms in order; under `per_epoch` their mean.
    pub values: Vec<f32>,
}

/// All devices have finished their products of a shape.
#[derive(Clone, Debug, PartialEq)]
pub struct Together {
    pub devices: Vec<String>,
    pub order: Order,
    pub shape: [usize; 3],
    /// Seconds from the start of the first product to the end of the last one.
    pub wall_s: f64,
}

/// A row of `matmul.csv`.
#[derive(Clone, Debug, PartialEq)]
pub struct ProductRow {
    pub device: String,
    pub order: Order,
    pub shape: [usize; 3],
    pub count: u64,
    /// Seconds of all products, including norms and log.
    pub total_s: f64,
    /// The part of it for moving norms to the host and writing them down.
    pub log_s: f64,
    /// The sum of the norms that reached the host.
    pub norm_sum: Option<f64>,
    /// Of single products, each with its norm, or of means over `in_a_row` of them.
    pub spread: Spread,
    pub in_a_row: u64,
    /// Threads of the host that shared a product; `None` on a GPU, and if a run's file does not tell.
    pub threads: Option<usize>,
}

impl ProductRow {
    /// Seconds of one product, including norm and log.
    pub fn mean_s(&self) -> f64 {
        self.total_s / self.count.max(1) as f64
    }

    /// 2 m k n operations per product over the whole time, in 10⁹ per second; `None` if the clock measured no
    /// time.
    pub fn gflop_per_s(&self) -> Option<f64> {
        let [m, k, n] = self.shape.map(|axis| axis as f64);
        (self.total_s > 0.0).then(|| 2.0 * m * k * n * self.count as f64 / self.total_s / 1e9)
    }

    /// Operations per second of the median product.
    pub fn median_flop_per_s(&self) -> Option<f64> {
        let [m, k, n] = self.shape.map(|axis| axis as f64);
        (self.spread.p50_s > 0.0).then(|| 2.0 * m * k * n / self.spread.p50_s)
    }
}

/// Seconds of single products or copies.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    pub p50_s: f64,
    pub min_s: f64,
    pub max_s: f64,
}

impl Spread {
    /// All zero if there are no samples.
    pub fn new(mut samples_s: Vec<f64>) -> Self {
        samples_s.sort_unstable_by(f64::total_cmp);
        let at = |i: usize| samples_s.get(i).copied().unwrap_or_default();
        let last = samples_s.len().saturating_sub(1);
        Self { p50_s: f64::midpoint(at(last / 2), at(last.div_ceil(2))), min_s: at(0), max_s: at(last) }
    }
}

/// A row of `transfer.csv`.
#[derive(Clone, Debug, PartialEq)]
pub struct CopyRow {
    pub from: String,
    pub to: String,
    /// Whether the host's memory is pinned or pageable, if it takes part.
    pub memory: Option<&'static str>,
    /// Bytes of one copy.
    pub bytes: u64,
    pub count: u64,
    /// Seconds of one copy, until the device has completed it.
    pub mean_s: f64,
    pub spread: Spread,
}

impl CopyRow {
    /// 10⁹ bytes per second of the median copy; `None` if the clock measured no time.
    pub fn gb_per_s(&self) -> Option<f64> {
        (self.spread.p50_s > 0.0).then(|| self.bytes as f64 / self.spread.p50_s / 1e9)
    }
}

/// A row of `tensors.csv`, and what is printed with it.
#[derive(Clone, Debug, PartialEq)]
pub struct StepRow {
    /// Counted from 1.
    pub step: usize,
    /// The key of the spec.
    pub op: &'static str,
    /// In mathematical notation: `Z = X.copy(virtual:1)`.
    pub expression: String,
    pub name: Option<String>,
    pub device: Option<String>,
    pub shape: Option<Vec<usize>>,
    pub dtype: Option<&'static str>,
    /// Bytes of the tensor on its device.
    pub bytes: Option<u64>,
    /// Bytes that the step copied between memories.
    pub copied_bytes: u64,
    pub status: StepStatus,
    /// The error, or why it was skipped.
    pub message: Option<String>,
    /// The tensor, formatted as PyTorch prints it.
    pub shown: Option<String>,
    /// For a net: name, shape and device of each parameter.
    pub parameters: Vec<(String, Vec<usize>, String)>,
}

named! {
    /// How a step ended.
    pub enum StepStatus {
        Done = "done",
        /// A copy to the device that already holds the tensor: nothing moved.
        Same = "same",
        /// It raised the error that it declares.
        Raised = "raised",
        /// This machine cannot raise the error that it declares.
        Skipped = "skipped",
        /// It failed, and with it the run.
        Failed = "failed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_lies_in_the_middle() {
        let figures = |samples: &[f64]| {
            let Spread { p50_s, min_s, max_s } = Spread::new(samples.to_vec());
            [p50_s, min_s, max_s]
        };
        assert_eq!(figures(&[]), [0.0; 3]);
        assert_eq!(figures(&[3.0]), [3.0; 3]);
        assert_eq!(figures(&[3.0, 1.0]), [2.0, 1.0, 3.0]);
        assert_eq!(figures(&[9.0, 1.0, 2.0]), [2.0, 1.0, 9.0]);
    }
}
