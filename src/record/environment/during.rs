//! Conditions during a run: its GPUs and the machine's load.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{
    host::{self, load::Load},
    record::Findings,
};

/// GPU observations of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct During {
    /// GPUs throttled by power or heat: `gpu:0: power_cap`.
    pub throttled: Vec<String>,
    /// Energy per GPU in joules, over training.
    pub energy_j: BTreeMap<String, f64>,
}

/// The machine's load during a run (and, if it was short, the runs before it).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MachineLoad {
    /// Length of the window in seconds.
    pub window_s: f64,
    /// Average number of cores that other processes used.
    pub others_cores: f64,
    /// Average number of cores that other virtual machines took.
    pub stolen_cores: f64,
    /// Thermal throttling events.
    pub throttles: u64,
    /// Seconds for which the cgroup's quota withheld the processor.
    pub withheld_s: f64,
    /// The one-minute load average, including this process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub average_1m: Option<f64>,
}

impl MachineLoad {
    /// From a measured load.
    pub fn new(load: Load) -> Self {
        let Load { window_s, others_cores, stolen_cores, throttles, withheld_s, .. } = load;
        let average_1m = host::load::average_1m();
        Self { window_s, others_cores, stolen_cores, throttles, withheld_s, average_1m }
    }
}

impl During {
    /// `None` without GPU observations.
    pub fn from_findings(findings: Findings) -> Option<Self> {
        let during =
            Self { throttled: findings.throttled, energy_j: findings.energy_j.into_iter().collect() };
        (!during.throttled.is_empty() || !during.energy_j.is_empty()).then_some(during)
    }
}
