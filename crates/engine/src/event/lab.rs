//! What products, copies and steps over tensors give: the rows of their files.

use crate::{spec::lab::Order, units::named};

/// Norms of consecutive products that have reached the host.
#[derive(Clone, Debug, PartialEq)]
pub struct Norms {
    pub device: String,
    /// m, k, n.
    pub shape: [usize; 3],
    /// The number of the last of them, counted from 1.
    pub last: u64,
    /// In order; under `per_epoch` their mean.
    pub values: Vec<f32>,
}

/// All devices have done their products of a shape.
#[derive(Clone, Debug, PartialEq)]
pub struct Together {
    pub devices: Vec<String>,
    pub order: Order,
    pub shape: [usize; 3],
    /// Seconds from the first product's begin to the last one's end.
    pub wall_s: f64,
}

/// A row of `matmul.csv`.
#[derive(Clone, Debug, PartialEq)]
pub struct ProductRow {
    pub device: String,
    pub order: Order,
    pub shape: [usize; 3],
    pub count: u64,
    /// All of them, norms and log included.
    pub total_s: f64,
    /// Of that, moving norms to the host and writing them down.
    pub log_s: f64,
    /// The sum of the norms that reached the host.
    pub norm_sum: Option<f64>,
}

impl ProductRow {
    /// Of one product, norm and log included.
    pub fn mean_s(&self) -> f64 {
        self.total_s / self.count.max(1) as f64
    }

    /// 2 m k n operations per product over the whole time, in 10⁹ per second; `None` where no time was seen to pass.
    pub fn gflop_per_s(&self) -> Option<f64> {
        let [m, k, n] = self.shape.map(|axis| axis as f64);
        (self.total_s > 0.0).then(|| 2.0 * m * k * n * self.count as f64 / self.total_s / 1e9)
    }
}

/// A row of `transfer.csv`.
#[derive(Clone, Debug, PartialEq)]
pub struct CopyRow {
    pub from: String,
    pub to: String,
    /// What the host's memory is to the device, where it takes part.
    pub memory: Option<&'static str>,
    /// Of one copy.
    pub bytes: u64,
    pub count: u64,
    /// Of one copy, until the device has done it.
    pub mean_s: f64,
    pub p50_s: f64,
    pub min_s: f64,
    pub max_s: f64,
}

impl CopyRow {
    /// 10⁹ bytes per second of the median copy; `None` where no time was seen to pass.
    pub fn gb_per_s(&self) -> Option<f64> {
        (self.p50_s > 0.0).then(|| self.bytes as f64 / self.p50_s / 1e9)
    }
}

/// A row of `tensors.csv`, and what is printed of it.
#[derive(Clone, Debug, PartialEq)]
pub struct StepRow {
    /// From 1.
    pub step: usize,
    /// The key of the spec.
    pub op: &'static str,
    /// As a person would write it: `Z = X.copy(virtual:1)`.
    pub expression: String,
    pub name: Option<String>,
    pub device: Option<String>,
    pub shape: Option<Vec<usize>>,
    pub dtype: Option<&'static str>,
    /// What it takes on its device.
    pub bytes: Option<u64>,
    /// Bytes that the step copied between memories.
    pub copied_bytes: u64,
    pub status: StepStatus,
    /// The error, or why it was skipped.
    pub message: Option<String>,
    /// The tensor as the textbook prints it.
    pub shown: Option<String>,
    /// For a net: name, shape and device of each parameter.
    pub parameters: Vec<(String, Vec<usize>, String)>,
}

named! {
    /// How a step ended.
    pub enum StepStatus {
        Done = "done",
        /// A copy to where the tensor is: the same tensor, nothing moved.
        Same = "same",
        /// It raised the error that it declares.
        Raised = "raised",
        /// This machine cannot raise the error that it declares.
        Skipped = "skipped",
        /// It failed, and the run with it.
        Failed = "failed",
    }
}
