//! The cost of a message between hosts, and of an all-reduce over them.

use crate::{
    collective::Traffic,
    program::{Op, Program},
};

/// A network between hosts, by the model of Hockney (1994, Parallel Computing 20): a message of `m` bytes
/// takes `latency_s + m / bytes_per_s`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    pub latency_s: f64,
    pub bytes_per_s: f64,
}

impl Link {
    /// The time of a rank's messages one after the other, counted as pairwise exchanges (Thakur, Rabenseifner
    /// and Gropp 2005, Int. J. High Performance Computing Applications 19). It is an upper bound where the
    /// network carries several messages at once.
    pub fn seconds(&self, traffic: Traffic) -> f64 {
        traffic.messages as f64 * self.latency_s + traffic.bytes as f64 / self.bytes_per_s
    }

    /// The link that explains the measured times of a small and a large sum; `None` if the large one was not
    /// slower.
    pub fn from_sums([small, large]: [(Traffic, f64); 2]) -> Option<Self> {
        let messages = |(traffic, _): (Traffic, f64)| traffic.messages as f64;
        let bytes = |(traffic, _): (Traffic, f64)| traffic.bytes as f64;
        // Two equations, messages * latency + bytes / rate = time, by Cramer's rule.
        let determinant = messages(small) * bytes(large) - messages(large) * bytes(small);
        let latency_s = (small.1 * bytes(large) - large.1 * bytes(small)) / determinant;
        let per_byte_s = (messages(small) * large.1 - messages(large) * small.1) / determinant;
        (latency_s > 0.0 && per_byte_s > 0.0 && per_byte_s.is_finite())
            .then(|| Self { latency_s, bytes_per_s: 1.0 / per_byte_s })
    }
}

/// Seconds of a step's sums that remain when everything else is done. `compute_s` is the time of everything
/// else, which instructions share by their floating-point operations; `sum_s` is the time of a sum of so many
/// elements, one after the other.
pub fn exposed_s(program: &Program, compute_s: f64, sum_s: impl Fn(usize) -> f64) -> f64 {
    let flop_s = compute_s / program.cost().flops.max(1.0);
    let (mut now_s, mut summed_s, mut started) = (0.0, 0.0, 0);
    for op in program.instructions.iter().map(|instruction| &instruction.op) {
        match op {
            Op::StartAllReduce(part) => {
                summed_s = f64::max(summed_s, now_s) + sum_s(part.of.len);
                started += part.of.len;
            }
            Op::AllReduce(all) => {
                return f64::max(summed_s, now_s) + sum_s(all.of.len - started) - now_s;
            }
            op => now_s += flop_s * op.cost().flops,
        }
    }
    0.0
}

/// A step's time as a line in its number of rows: `fixed_s + rows * row_s`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepTime {
    pub fixed_s: f64,
    pub row_s: f64,
}

impl StepTime {
    /// Fits the line to measured steps by least squares of relative errors, so that small steps count as much
    /// as large ones. `None` if all steps have the same size, or larger ones were not slower.
    pub fn fit(steps: &[(usize, f64)]) -> Option<Self> {
        // Weights of 1 / s^2 make errors relative.
        let sum =
            |of: &dyn Fn(f64, f64) -> f64| steps.iter().map(|(rows, s)| of(*rows as f64, *s) / (s * s)).sum();
        let [w, r, rr, s, rs]: [f64; 5] =
            [sum(&|_, _| 1.0), sum(&|r, _| r), sum(&|r, _| r * r), sum(&|_, s| s), sum(&|r, s| r * s)];
        let determinant = w * rr - r * r;
        let (row_s, fixed_s) = ((w * rs - r * s) / determinant, (rr * s - r * rs) / determinant);
        (determinant > 1e-9 * w * rr && row_s > 0.0).then_some(Self { fixed_s: fixed_s.max(0.0), row_s })
    }

    pub fn seconds(&self, rows: f64) -> f64 {
        self.fixed_s + rows * self.row_s
    }

    /// The smallest global batch at which training on `hosts` hosts reaches the parallel efficiency
    /// `efficiency`, if sums add `sum_s(c)` to a step that computes for `c` seconds. Efficiency is the speed
    /// relative to the same hosts without any cost of summing or of splitting. At least one row per host;
    /// `None` for an efficiency of 1 or more.
    pub fn least_batch(&self, hosts: usize, sum_s: impl Fn(f64) -> f64, efficiency: f64) -> Option<f64> {
        let n = hosts as f64;
        let reaches = |batch: f64| {
            let own_s = self.seconds(batch / n);
            self.seconds(batch) >= efficiency * n * (own_s + sum_s(own_s))
        };
        // Larger batches are more efficient.
        let (mut low, mut high) = (n, n);
        while efficiency < 1.0 && high.is_finite() && !reaches(high) {
            (low, high) = (high, 2.0 * high);
        }
        while high - low > 1e-12 * high {
            let middle = low.midpoint(high);
            if reaches(middle) { high = middle } else { low = middle }
        }
        (efficiency < 1.0 && high.is_finite()).then_some(high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::{AllReduce, Instruction, Phase, Slice, StartAllReduce, WeightGradient};

    #[test]
    fn a_link_is_found_from_the_sums_over_it() {
        let link = Link { latency_s: 2e-6, bytes_per_s: 1e9 };
        for ranks in [2, 3, 8] {
            let sums = [1, 1 << 22].map(|elements| {
                let traffic = Traffic::new(elements, ranks);
                (traffic, link.seconds(traffic))
            });
            let found = Link::from_sums(sums).expect("a link");
            assert!((found.latency_s / 2e-6 - 1.0).abs() < 1e-6, "{found:?}");
            assert!((found.bytes_per_s / 1e9 - 1.0).abs() < 1e-6, "{found:?}");
        }
        let traffic = [1, 1 << 22].map(|elements| Traffic::new(elements, 2));
        assert_eq!(Link::from_sums([(traffic[0], 1e-3), (traffic[1], 1e-3)]), None);
    }

    /// Two gradients that take equally long; the sum of 1,000 elements starts between them, and 500 are left.
    #[test]
    fn a_sum_hides_behind_what_is_computed_meanwhile() {
        let slice = |len| Slice { len, ..Slice::default() };
        let [x, dy, to] = [slice(1_000_000); 3];
        let (rows, inputs, outputs) = (1000, 1000, 1000);
        let gradient = Op::from(WeightGradient { x, dy, to, update: false, rows, inputs, outputs });
        let sum = Op::from(AllReduce { of: slice(1500), payload: 1500 });
        let program = |ops: &[Op]| {
            let instruction = |op: &Op| Instruction { op: op.clone(), phase: Phase::Backward };
            Program { batch: rows, rows, instructions: ops.iter().map(instruction).collect() }
        };
        let start = Op::from(StartAllReduce { of: slice(1000), in_place: false });
        let early = program(&[gradient.clone(), start, gradient.clone(), sum.clone()]);
        let late = program(&[gradient.clone(), gradient, sum]);
        for (program, each_s, exposed) in
            [(&early, 1e-3, 0.5), (&early, 1e-4, 0.05), (&early, 3e-3, 3.5), (&late, 1e-3, 1.5)]
        {
            let found_s = exposed_s(program, 2.0, |elements| elements as f64 * each_s);
            assert!((found_s - exposed).abs() < 1e-5, "{found_s} {exposed}");
        }
    }

    #[test]
    fn a_step_is_a_line_over_its_rows() {
        let steps = [(1, 11e-6), (10, 20e-6), (100, 110e-6)];
        let fitted = StepTime::fit(&steps).expect("a line");
        assert!((fitted.fixed_s - 10e-6).abs() < 1e-12 && (fitted.row_s - 1e-6).abs() < 1e-12, "{fitted:?}");
        assert_eq!(StepTime::fit(&steps[..1]), None);
        assert_eq!(StepTime::fit(&[(1, 2.0), (2, 1.0)]), None);
    }

    #[test]
    fn the_least_batch_has_just_the_efficiency() {
        let time = StepTime { fixed_s: 10e-6, row_s: 1e-6 };
        for (hosts, sum_s, efficiency) in [(2, 5e-6, 0.9), (8, 50e-6, 0.5), (1024, 4e-3, 0.8)] {
            let batch = time.least_batch(hosts, |_| sum_s, efficiency).expect("a batch");
            let n = hosts as f64;
            let got = time.seconds(batch) / (n * (time.seconds(batch / n) + sum_s));
            assert!((got - efficiency).abs() < 1e-9, "{hosts}: {batch} {got}");
        }
        assert_eq!(time.least_batch(4, |_| 0.0, 0.01), Some(4.0));
        assert_eq!(time.least_batch(4, |_| 0.0, 1.0), None);
        // A sum that half the step hides: (10 + B) / (2 (10 + B / 2 + (50 - (10 + B / 2) / 2))) = 0.8.
        let hidden = |compute_s: f64| f64::max(50e-6 - compute_s / 2.0, 0.0);
        let batch = time.least_batch(2, hidden, 0.8).expect("a batch");
        assert!((batch - 130.0).abs() < 1e-6, "{batch}");
    }
}
