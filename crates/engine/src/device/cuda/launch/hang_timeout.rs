//! How long a GPU's work may take before the GPU counts as hanging, from the work's cost and from how fast the GPU has
//! been. A limit that is too long costs minutes when a GPU hangs; one that is too short kills a healthy run.

use std::time::Duration;

use crate::{host::variable, program::Cost};

/// Sets the shortest wait, in seconds.
const LEAST_VARIABLE: &str = "RUNNER_GPU_WAIT_S";
pub const LEAST: Duration = Duration::from_secs(120);
/// Worst case: no supported GPU computes or moves less per second under any engine; a single block reaches ten times as
/// much.
const SLOWEST_PER_S: f64 = 1e9;
/// Worst case of a launch.
const SLOWEST_LAUNCH_S: f64 = 1e-3;
/// A step may take this many times the slowest step so far: others may use the GPU, and it may be throttled.
const SLACK: f64 = 100.0;
/// No wait is longer.
pub const MOST_S: f64 = 30.0 * 24.0 * 3600.0;

/// How long a GPU is waited for at least, where the environment sets it.
///
/// # Errors
/// It is not a number of seconds.
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

/// The work that a GPU was given, and how fast it was.
pub struct HangTimeout {
    least: Duration,
    /// Worst-case seconds of the last two blocks: no more are on the GPU.
    given_s: [f64; 2],
    /// Largest observed ratio of block time to its worst case; `None` before the first block is done.
    took: Option<f64>,
}

impl HangTimeout {
    pub fn new(least: Duration) -> Self {
        Self { least, given_s: [0.0; 2], took: None }
    }

    /// Worst-case seconds of instructions with a total cost.
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
        // 4 GFLOP and 1 GB on the slowest of GPUs, and ten launches.
        let step_s = HangTimeout::slowest_s(Cost { flops: 4e9, bytes: 1e9, functions: 0.0 }, 10);
        assert!((step_s - 5.01).abs() < 1e-9);
        hang_timeout.give(step_s);
        hang_timeout.give(2.0 * step_s);
        assert!((hang_timeout.limit().as_secs_f64() - 75.03).abs() < 1e-6);
        // A thousand times as fast: a step of 5 ms, so that the three of them may take 1.5 s.
        hang_timeout.learn(step_s, step_s / 1000.0);
        hang_timeout.learn(2.0 * step_s, step_s / 1000.0);
        assert!((hang_timeout.limit().as_secs_f64() - 61.503).abs() < 1e-6);
        // Only two blocks are on their way, and nothing is planned for ever.
        hang_timeout.give(0.0);
        hang_timeout.give(0.0);
        assert_eq!(hang_timeout.limit(), Duration::from_secs(60));
        hang_timeout.give(f64::INFINITY);
        assert_eq!(hang_timeout.limit(), Duration::from_secs(60) + Duration::from_secs_f64(MOST_S));
    }
}
