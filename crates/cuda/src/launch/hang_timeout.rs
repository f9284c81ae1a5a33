//! How long a GPU's work may take before the GPU counts as hanging; derived from the work's cost and from the GPU's speed so
//! far. A limit that is too long costs minutes when a GPU hangs; one that is too short kills a healthy run.

use std::time::Duration;

use crate::{host::variable, program::Cost};

/// The environment variable for the shortest wait, in seconds.
const LEAST_VARIABLE: &str = "RUNNER_GPU_WAIT_S";
pub const LEAST: Duration = Duration::from_secs(120);
/// Worst-case operations or bytes per second: every supported GPU is faster with every engine; even a single
/// block is ten times as fast.
const SLOWEST_PER_S: f64 = 1e9;
/// Worst-case seconds of a launch.
const SLOWEST_LAUNCH_S: f64 = 1e-3;
/// A block may take this many times the slowest block so far: others may use the GPU, and it may be throttled.
const SLACK: f64 = 100.0;
/// The longest wait, in seconds.
pub const MOST_S: f64 = 30.0 * 24.0 * 3600.0;

/// The minimum wait for a GPU, if the environment sets it.
///
/// # Errors
/// If the value is not a number of seconds.
pub fn least_set() -> Result<Option<Duration>, String> {
    let Some(text) = variable(LEAST_VARIABLE) else { return Ok(None) };
    let seconds = text.to_str().and_then(|text| text.parse::<f64>().ok());
    match seconds.filter(|seconds| *seconds > 0.0 && *seconds <= MOST_S) {
        Some(seconds) => Ok(Some(Duration::from_secs_f64(seconds))),
        None => Err(format!(
            "`{LEAST_VARIABLE}` is `{}`, and must be a number of seconds above 0, such as 600",
            text.to_string_lossy()
        )),
    }
}

/// The work given to a GPU, and the GPU's speed so far.
pub struct HangTimeout {
    least: Duration,
    /// Worst-case seconds of the last two blocks; the GPU never holds more.
    given_s: [f64; 2],
    /// Largest observed ratio of block time to its worst case; `None` before the first block is done.
    took: Option<f64>,
}

impl HangTimeout {
    pub fn new(least: Duration) -> Self {
        Self { least, given_s: [0.0; 2], took: None }
    }

    /// Worst-case seconds of instructions with this total cost.
    pub fn slowest_s(cost: Cost, instructions: usize) -> f64 {
        (cost.flops + cost.bytes) / SLOWEST_PER_S + instructions as f64 * SLOWEST_LAUNCH_S
    }

    /// Records a queued block by its worst-case seconds.
    pub fn give(&mut self, slowest_s: f64) {
        self.given_s = [self.given_s[1], slowest_s];
    }

    pub fn learn(&mut self, slowest_s: f64, seconds: f64) {
        if slowest_s > 0.0 {
            let took = seconds / slowest_s;
            self.took = Some(self.took.map_or(took, |most| most.max(took)));
        }
    }

    /// How long the queued work may take.
    pub fn limit(&self) -> Duration {
        let given_s: f64 = self.given_s.iter().sum();
        let s = given_s * self.took.map_or(1.0, |took| SLACK * took);
        self.least + Duration::from_secs_f64(if s.is_nan() { MOST_S } else { s.min(MOST_S) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_is_waited_for_by_what_it_was_given_and_by_how_fast_it_has_been() {
        let mut hang_timeout = HangTimeout::new(Duration::from_secs(60));
        assert_eq!(hang_timeout.limit(), Duration::from_secs(60));
        // 4 GFLOP and 1 GB on the slowest GPU, plus ten launches.
        let step_s = HangTimeout::slowest_s(Cost { flops: 4e9, bytes: 1e9, functions: 0.0 }, 10);
        assert!((step_s - 5.01).abs() < 1e-9);
        hang_timeout.give(step_s);
        hang_timeout.give(2.0 * step_s);
        assert!((hang_timeout.limit().as_secs_f64() - 75.03).abs() < 1e-6);
        // A thousand times faster: a step takes 5 ms, so the three queued ones may take 1.5 s.
        hang_timeout.learn(step_s, step_s / 1000.0);
        hang_timeout.learn(2.0 * step_s, step_s / 1000.0);
        assert!((hang_timeout.limit().as_secs_f64() - 61.503).abs() < 1e-6);
        // Only the last two blocks count, and no limit is infinite.
        hang_timeout.give(0.0);
        hang_timeout.give(0.0);
        assert_eq!(hang_timeout.limit(), Duration::from_secs(60));
        hang_timeout.give(f64::INFINITY);
        assert_eq!(hang_timeout.limit(), Duration::from_secs(60) + Duration::from_secs_f64(MOST_S));
    }
}
