//! `[devices]`: where an experiment runs, and what happens where a device is not there.

use std::fmt;

use serde::{Serialize, Serializer};

/// The table `[devices]`; absent, it means the CPU.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Devices {
    /// `num_gpus` or `use`.
    #[serde(flatten)]
    pub request: Request,
    /// What to do when a requested device is not there.
    pub on_missing: OnMissing,
    /// What `batch_size` means on several devices.
    pub scaling: Scaling,
    /// How the learning rate follows the number of devices.
    pub lr_scaling: LrScaling,
    /// The number format of the products.
    pub precision: Precision,
    /// What runs the steps.
    pub engine: EngineChoice,
}

/// Which devices are asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Request {
    /// `num_gpus = n` or `"all"`; 0 is the CPU.
    #[serde(rename = "num_gpus")]
    NumGpus(GpuCount),
    /// `use = ["gpu:1", ...]`.
    #[serde(rename = "use")]
    Use(Vec<DeviceName>),
}

/// A number of GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GpuCount {
    /// Exactly so many; 0 is the CPU.
    Exactly(u32),
    /// Every GPU there is; none there is the CPU.
    All,
}

impl Serialize for GpuCount {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Exactly(n) => s.serialize_u32(*n),
            Self::All => s.serialize_str("all"),
        }
    }
}

/// A device as a user names it. `gpu` and `cuda:0` are read as `gpu:0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DeviceName {
    /// The host's processor and memory.
    Cpu,
    /// The GPU of that ordinal.
    Gpu(u32),
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Gpu(i) => write!(f, "gpu:{i}"),
        }
    }
}

impl Serialize for DeviceName {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

/// What happens when a requested device is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OnMissing {
    /// Nothing runs, exit code 3.
    Error,
    /// Those that are there, the CPU where none is: min(num_gpus, available).
    Clamp,
    /// The CPU as soon as one is missing.
    Cpu,
}

/// What `batch_size` means on several devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Scaling {
    /// The global batch, split over the devices.
    Strong,
}

/// How the learning rate follows the number of devices under weak scaling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LrScaling {
    /// Not at all.
    None,
}

/// The number format of the products.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Precision {
    /// IEEE single precision.
    F32,
}

/// What runs the steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EngineChoice {
    /// The plan picks by its cost model.
    Auto,
    /// One CPU thread walks the program.
    Serial,
    /// A team of CPU threads walks the program together.
    Team,
}
