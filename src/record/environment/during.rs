//! What happened while a run went on: what its GPUs did, and what else kept the machine busy.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{
    host::{self, load::Load},
    record::Findings,
};

/// What the GPUs of a run did.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct During {
    /// Those whose clocks a limit of power or heat held back: `gpu:0: power_cap`.
    pub throttled: Vec<String>,
    /// Joules by GPU, from the start of training to its end.
    pub energy_j: BTreeMap<String, f64>,
}

/// What else the machine did during a run (and, where that was short, the runs before it).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MachineLoad {
    /// Seconds that were looked at.
    pub window_s: f64,
    /// Processors that other processes kept busy, on average.
    pub others_cores: f64,
    /// Processors taken by other virtual machines, on average.
    pub stolen_cores: f64,
    /// Times that a processor slowed down for its heat.
    pub throttles: u64,
    /// Seconds in which the control group's limit withheld processor time.
    pub withheld_s: f64,
    /// The system's load average over a minute, this process included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub average_1m: Option<f64>,
}

impl MachineLoad {
    /// Of what was looked at.
    pub fn new(load: Load) -> Self {
        let Load { window_s, others_cores, stolen_cores, throttles, withheld_s, .. } = load;
        let average_1m = host::load::average_1m();
        Self { window_s, others_cores, stolen_cores, throttles, withheld_s, average_1m }
    }
}

impl During {
    /// `None` where the GPUs told nothing.
    pub fn from_findings(findings: Findings) -> Option<Self> {
        let during =
            Self { throttled: findings.throttled, energy_j: findings.energy_j.into_iter().collect() };
        (!during.throttled.is_empty() || !during.energy_j.is_empty()).then_some(during)
    }
}
