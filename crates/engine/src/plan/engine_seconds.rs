//! What a step takes with an engine: its lower bound, and what small steps and low precision take besides.

use super::{engine::Engine, gpu_rates::GpuRates, lower_bound::TimeBreakdown};
use crate::spec::Precision;

/// What a small step takes in addition to its lower bound by measured rates, as a share of that, on an H200: `persistent` 1.1 to
/// 1.6, `cooperative` 0 to 0.2, `graph` 1.7 to 1.9. Large steps are nearer to theirs.
const OVER_BOUND: [f64; 3] = [1.4, 0.1, 1.8];
const MOST_OVER_S: f64 = 40e-6;

/// The same on a CPU, where small products do not reach the rate of large ones, and its most in seconds: two cores of an EPYC (Zen 4,
/// AVX-512, 2026-11-28) took 6.6 us in place of 3.5 for 64-32-10, 37.7 in place of 21.6 for 64-128-10, and 996 in place of 987 for
/// 784-256-10.
const OVER_BOUND_ON_CPU: [f64; 2] = [0.9, 17e-6];

/// What large steps in tf32 and bf16 take besides, as a share of their bound: the library's products reach 80 to 90 % of the rate of the
/// largest ones, and other kernels half that of the memory (H200, batches of 1,024 and 8,192 rows, 2026-11-26).
const OVER_LOW_PRECISION: f64 = 0.4;

/// Expected seconds of a step, by what they are spent on; rows are uploaded meanwhile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct EngineSeconds {
    /// Arithmetic and memory, with what low precision does not reach of their rates.
    pub work_s: f64,
    /// The parts of the work by the rates.
    pub arithmetic_s: f64,
    pub memory_s: f64,
    /// Fixed costs of instructions, and what small steps take besides.
    pub latency_s: f64,
    pub all_reduce_s: f64,
    /// Reading rows from their file, on the CPU.
    pub file_s: f64,
    pub upload_s: f64,
}

impl EngineSeconds {
    /// The seconds of a GPU's engine whose bound has these parts.
    pub fn new(engine: Engine, precision: Precision, rates: &GpuRates, parts: &TimeBreakdown) -> Self {
        let over = match engine {
            Engine::Persistent => OVER_BOUND[0],
            Engine::Cooperative => OVER_BOUND[1],
            _ => OVER_BOUND[2],
        };
        let bound = Self::at_least(parts);
        let is_low = engine.uses_library() && rates.product(precision) > rates.f32_flops_per_s;
        let low_s = if is_low { OVER_LOW_PRECISION * bound.work_s } else { 0.0 };
        let over_s = (over * (bound.work_s + bound.latency_s)).min(MOST_OVER_S + low_s);
        let low_s = low_s.min(over_s);
        Self { work_s: bound.work_s + low_s, latency_s: bound.latency_s + over_s - low_s, ..bound }
    }

    /// Those of one thread or a team.
    pub fn on_the_cpu(parts: &TimeBreakdown) -> Self {
        let bound = Self::at_least(parts);
        let [share, most_s] = OVER_BOUND_ON_CPU;
        let bound_s = bound.work_s + bound.latency_s;
        let longer = 1.0 + share.min(most_s / bound_s.max(f64::MIN_POSITIVE));
        Self { work_s: longer * bound.work_s, latency_s: longer * bound.latency_s, ..bound }
    }

    /// The lower bound itself.
    pub fn at_least(parts: &TimeBreakdown) -> Self {
        let TimeBreakdown { arithmetic_s, memory_s, overhead_s, all_reduce_s, upload_s } = *parts;
        let work_s = arithmetic_s + memory_s;
        Self { work_s, arithmetic_s, memory_s, latency_s: overhead_s, all_reduce_s, file_s: 0.0, upload_s }
    }

    /// Without the upload.
    pub fn total_s(&self) -> f64 {
        self.work_s + self.latency_s + self.all_reduce_s + self.file_s
    }

    /// The mean of this step and `share` of another one.
    pub fn mean(&self, other: &Self, share: f64) -> Self {
        let mean = |of: fn(&Self) -> f64| of(self) * (1.0 - share) + of(other) * share;
        Self {
            work_s: mean(|own| own.work_s),
            arithmetic_s: mean(|own| own.arithmetic_s),
            memory_s: mean(|own| own.memory_s),
            latency_s: mean(|own| own.latency_s),
            all_reduce_s: mean(|own| own.all_reduce_s),
            file_s: mean(|own| own.file_s),
            upload_s: mean(|own| own.upload_s),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Small steps take a multiple of their bound; large ones a little more than it, and more of it by tensor cores.
    #[test]
    fn what_steps_take_beyond_their_bound() {
        let parts = |work_s: f64| TimeBreakdown {
            arithmetic_s: work_s,
            memory_s: 0.0,
            overhead_s: 10e-6,
            all_reduce_s: 5e-6,
            upload_s: 1.0,
        };
        let mut rates = GpuRates::typical([1e12, 1e12, 1e9], (100, 1e9));
        let us = |engine, precision, rates: &GpuRates, work_s| {
            let own = EngineSeconds::new(engine, precision, rates, &parts(work_s));
            (1e6 * own.total_s()).round()
        };
        let f32 = Precision::F32;
        assert_eq!(us(Engine::Graph, f32, &rates, 0.0), 10.0 + 18.0 + 5.0);
        assert_eq!(us(Engine::Persistent, f32, &rates, 0.0), 10.0 + 14.0 + 5.0);
        assert_eq!(us(Engine::Cooperative, f32, &rates, 90e-6), 100.0 + 10.0 + 5.0);
        assert_eq!(us(Engine::Launch, f32, &rates, 1e-3), 1010.0 + 40.0 + 5.0);
        // Without tensor cores their formats are f32.
        assert_eq!(us(Engine::Graph, Precision::Tf32, &rates, 1e-3), 1010.0 + 40.0 + 5.0);
        rates.tf32_flops_per_s = 8e12;
        assert_eq!(us(Engine::Graph, Precision::Tf32, &rates, 1e-3), 1010.0 + 40.0 + 400.0 + 5.0);
        assert_eq!(us(Engine::Cooperative, Precision::Tf32, &rates, 90e-6), 100.0 + 10.0 + 5.0);
        let on_cpu = |work_s| (1e6 * EngineSeconds::on_the_cpu(&parts(work_s)).total_s()).round();
        assert_eq!([0.0, 1e-3].map(on_cpu), [19.0 + 5.0, 1010.0 + 17.0 + 5.0]);
    }
}
