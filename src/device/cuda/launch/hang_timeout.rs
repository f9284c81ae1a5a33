//! How long a GPU is waited for: by what it was given, and by how fast it has been. A limit that is too long costs some
//! minutes on the day that a GPU hangs; one that is too short costs a run that was fine.

use std::{env, time::Duration};

use crate::program::Cost;

/// What sets for how many seconds a GPU is waited for at least.
const LEAST_VARIABLE: &str = "RUNNER_GPU_WAIT_S";
const LEAST: Duration = Duration::from_secs(120);
/// No GPU that is served computes or moves as little per second, whatever the engine: a block alone reaches ten times as
/// much.
const SLOWEST_PER_S: f64 = 1e9;
/// Nor does a launch take as long.
const SLOWEST_LAUNCH_S: f64 = 1e-3;
/// A step may take so many times what the slowest one so far took: others may use the GPU, and it may be throttled.
const SLACK: f64 = 100.0;
/// Longer than this nothing is waited for, whatever was planned.
pub const MOST_S: f64 = 30.0 * 24.0 * 3600.0;

/// Seconds for which a GPU is waited for at least, as the environment has it.
///
/// # Errors
/// Where that is no number of seconds.
pub fn least() -> Result<Duration, String> {
    let Some(text) = env::var_os(LEAST_VARIABLE).filter(|text| !text.is_empty()) else { return Ok(LEAST) };
    let seconds = text.to_str().and_then(|text| text.parse::<f64>().ok());
    match seconds.filter(|seconds| *seconds > 0.0 && *seconds <= MOST_S) {
        Some(seconds) => Ok(Duration::from_secs_f64(seconds)),
        None => Err(format!(
            "`{LEAST_VARIABLE}` is `{}`, and must be a number of seconds above 0, such as 600",
            text.to_string_lossy()
        )),
    }
}

/// What a GPU was given to do, and by what it is judged to hang.
pub struct HangTimeout {
    least: Duration,
    /// Seconds that the last two blocks take on the slowest of GPUs: no more are on their way.
    given_s: [f64; 2],
    /// The most that a block took, of what the slowest of GPUs would have taken; `None` before one was done.
    took: Option<f64>,
}

impl HangTimeout {
    pub fn new(least: Duration) -> Self {
        Self { least, given_s: [0.0; 2], took: None }
    }

    /// What so many instructions that cost so much take on the slowest of GPUs.
    pub fn slowest_s(cost: Cost, instructions: usize) -> f64 {
        (cost.flops + cost.bytes) / SLOWEST_PER_S + instructions as f64 * SLOWEST_LAUNCH_S
    }

    /// A block is queued that takes so long on the slowest of GPUs.
    pub fn give(&mut self, slowest_s: f64) {
        self.given_s = [self.given_s[1], slowest_s];
    }

    pub fn learn(&mut self, slowest_s: f64, seconds: f64) {
        if slowest_s > 0.0 {
            let took = seconds / slowest_s;
            self.took = Some(self.took.map_or(took, |most| most.max(took)));
        }
    }

    /// How long what was given is waited for.
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
        let step_s = HangTimeout::slowest_s(Cost { flops: 4e9, bytes: 1e9 }, 10);
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
