//! The facts about a machine that decide times.

use std::collections::BTreeMap;

use super::{
    axes::{AVAILABLE, THREADS},
    run::Run,
};
use crate::files::Leaves;

/// Environment keys that must be equal for times to be comparable.
const DECIDES_TIMES: [&str; 7] = [
    "cpu.model",
    "cpu.instruction_set",
    "cpu.bf16_unit",
    "cpu.governor",
    "cpu.simultaneous_threads",
    "cpu.quota_cores",
    "versions.build",
];

/// The same for each GPU, in runs with GPUs.
const DECIDES_GPU_TIMES: [&str; 5] = ["model", "driver", "pcie", "power_limit_w", "mig"];

/// The facts of a run's machine that decide times.
#[derive(PartialEq, Eq, Hash)]
pub(super) struct Machine<'a> {
    facts: BTreeMap<&'a str, &'a str>,
    is_on_cpu: bool,
}

impl<'a> Machine<'a> {
    pub(super) fn from_run(run: &'a Run) -> Self {
        let is_fact = |key: &str| is_decisive(key) || [THREADS, AVAILABLE].contains(&key);
        let facts = run.environment.iter().flat_map(Leaves::iter).filter(|(key, _)| is_fact(key));
        Self { facts: facts.collect(), is_on_cpu: run.figure("devices_used") == Some("cpu") }
    }

    /// Whether the two machines differ in no known fact.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let differs = |key: &str| {
            self.facts.get(key).zip(other.facts.get(key)).is_some_and(|(value, other)| value != other)
        };
        let are_on_cpu = self.is_on_cpu && other.is_on_cpu;
        !(self.facts.keys().any(|key| is_decisive(key) && differs(key))
            || (are_on_cpu && differs(THREADS) && differs(AVAILABLE)))
    }
}

/// Whether a key of the environment alone decides times.
pub(super) fn is_decisive(key: &str) -> bool {
    let of_gpu = key.strip_prefix("gpus.").and_then(|rest| rest.split_once('.')).map(|(_, key)| key);
    DECIDES_TIMES.contains(&key) || of_gpu.is_some_and(|key| DECIDES_GPU_TIMES.contains(&key))
}
