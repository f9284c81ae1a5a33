//! What an experiment of the lab finds, as data.

use crate::{
    device::Traffic,
    event::{Level, Status},
    spec::lab::Order,
};

/// One thing that was found.
#[derive(Clone, Debug)]
pub enum Finding {
    /// Something that `run.log` keeps and a person may want to read.
    Notice(Level, String),
    /// Norms of consecutive products have reached the host.
    Norms {
        /// The device.
        device: String,
        /// m, k, n.
        shape: [usize; 3],
        /// The number of the last of them, counted from 1.
        last: u64,
        /// In order; under `per_epoch` their mean.
        values: Vec<f32>,
    },
    /// A device has done all its products of a shape.
    Product(ProductRow),
    /// All devices have done theirs, in so many seconds together.
    Together {
        /// Names of the devices.
        devices: Vec<String>,
        /// How they shared the time.
        order: Order,
        /// m, k, n.
        shape: [usize; 3],
        /// From the first product's begin to the last one's end.
        wall_s: f64,
    },
    /// All copies of a size are done.
    Copy(CopyRow),
    /// A step of a tour is done.
    Step(Box<StepRow>),
}

/// A row of `matmul.csv`.
#[derive(Clone, Debug, PartialEq)]
pub struct ProductRow {
    /// The device's name.
    pub device: String,
    /// How the devices shared the time.
    pub order: Order,
    /// m, k, n.
    pub shape: [usize; 3],
    /// Products.
    pub count: u64,
    /// All of them, norms and log included.
    pub total_s: f64,
    /// Of that, moving norms to the host and writing them down.
    pub log_s: f64,
    /// Of the norms that reached the host.
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
    /// The memory that is read.
    pub from: String,
    /// The memory that is written.
    pub to: String,
    /// What the host's memory is to the device, where it takes part.
    pub memory: Option<&'static str>,
    /// Of one copy.
    pub bytes: u64,
    /// Copies.
    pub count: u64,
    /// Of one copy, until the device has done it.
    pub mean_s: f64,
    /// The median.
    pub p50_s: f64,
}

impl CopyRow {
    /// 10⁹ bytes per second of the mean copy; `None` where no time was seen to pass.
    pub fn gb_per_s(&self) -> Option<f64> {
        (self.mean_s > 0.0).then(|| self.bytes as f64 / self.mean_s / 1e9)
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
    /// What the result is called.
    pub name: Option<String>,
    /// Where the result lives.
    pub device: Option<String>,
    /// Its shape.
    pub shape: Option<Vec<usize>>,
    /// The type of its numbers.
    pub dtype: Option<&'static str>,
    /// What it takes on its device.
    pub bytes: Option<u64>,
    /// Bytes that the step copied between memories.
    pub copied_bytes: u64,
    /// How it ended.
    pub status: StepStatus,
    /// The error, or why it was skipped.
    pub message: Option<String>,
    /// The tensor as the textbook prints it.
    pub shown: Option<String>,
    /// Of a net: name, shape and device of each parameter.
    pub parameters: Vec<(String, Vec<usize>, String)>,
}

/// How a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepStatus {
    /// Done.
    Done,
    /// A copy to where the tensor is: the same tensor, nothing moved.
    Same,
    /// It raised the error that it declares.
    Raised,
    /// This machine cannot raise the error that it declares.
    Skipped,
    /// It failed, and the run with it.
    Failed,
}

impl StepStatus {
    /// The word in `tensors.csv`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Same => "same",
            Self::Raised => "raised",
            Self::Skipped => "skipped",
            Self::Failed => "failed",
        }
    }
}

/// The end of an experiment.
#[derive(Clone, Debug)]
pub struct LabOutcome {
    /// How it ended.
    pub status: Status,
    /// Why it ended so, where that needs words.
    pub reason: Option<String>,
    /// Products, copies or steps.
    pub done: u64,
    /// The whole experiment.
    pub wall_s: f64,
    /// Of that, within products, copies or steps: what is measured.
    pub work_s: f64,
    /// Of that, the log.
    pub logging_s: f64,
    /// Bytes that a device held at most.
    pub peak_device_bytes: u64,
    /// Every copy and every wait.
    pub traffic: Traffic,
}
