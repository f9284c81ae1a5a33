//! What of a machine decides times.

use super::{
    differing::{AVAILABLE, THREADS},
    run::Run,
};

/// Environment keys that must be equal for comparable times.
const DECIDES_TIMES: [&str; 7] = [
    "cpu.model",
    "cpu.instruction_set",
    "cpu.governor",
    "cpu.simultaneous_threads",
    "cpu.quota_cores",
    "devices.precision",
    "versions.build",
];

/// As above, for runs with GPUs.
const DECIDES_GPU_TIMES: [&str; 5] = ["model", "driver", "pcie", "power_limit_w", "mig"];

/// Whether no known fact of the machines that decides times differs between two runs.
pub(super) fn times_are_comparable(a: &Run, b: &Run) -> bool {
    let differs =
        |key: &str| environment(a, key).zip(environment(b, key)).is_some_and(|(value, other)| value != other);
    let mut keys = a.environment.iter().flatten().map(|(key, _)| key.as_str());
    let are_on_cpu = [a, b].iter().all(|run| run.figure("devices_used") == Some("cpu"));
    !(keys.any(|key| is_decisive(key) && differs(key))
        || (are_on_cpu && differs(THREADS) && differs(AVAILABLE)))
}

/// Whether a key of the environment decides times by itself.
pub(super) fn is_decisive(key: &str) -> bool {
    let of_gpu = key.strip_prefix("gpus.").and_then(|rest| rest.split_once('.')).map(|(_, key)| key);
    DECIDES_TIMES.contains(&key) || of_gpu.is_some_and(|key| DECIDES_GPU_TIMES.contains(&key))
}

/// A value of a run's environment.
pub(super) fn environment<'a>(run: &'a Run, key: &str) -> Option<&'a str> {
    run.environment.as_ref()?.get(key).map(String::as_str)
}
