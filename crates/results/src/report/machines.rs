//! The facts about a machine that decide times.

use std::collections::BTreeMap;

use super::run::Run;
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
}

impl<'a> Machine<'a> {
    pub(super) fn from_run(run: &'a Run) -> Self {
        let facts = run.environment.iter().flat_map(Leaves::iter).filter(|(key, _)| is_decisive(key));
        Self { facts: facts.collect() }
    }

    /// Whether the two machines differ in no known fact.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let differs = |key: &str| {
            self.facts.get(key).zip(other.facts.get(key)).is_some_and(|(value, other)| value != other)
        };
        !self.facts.keys().any(|key| differs(key))
    }
}

/// Whether a key of the environment alone decides times.
pub(super) fn is_decisive(key: &str) -> bool {
    let of_gpu = key.strip_prefix("gpus.").and_then(|rest| rest.split_once('.')).map(|(_, key)| key);
    DECIDES_TIMES.contains(&key) || of_gpu.is_some_and(|key| DECIDES_GPU_TIMES.contains(&key))
}
