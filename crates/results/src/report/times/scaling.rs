//! Scaling over devices: speed-up, efficiency, serial fraction, and break-even batch size.
//!
//! Pure arithmetic over one [`Point`] per device count. With several devices, a step consists of an
//! all-reduce and the rest; [`break_even`] assumes that the rest grows with the rows of a step and the
//! all-reduce does not.

use crate::report::statistics::Estimate;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::report) enum Kind {
    Cpu,
    Gpu,
    /// Virtual GPUs: they share one processor, so their times do not predict real ones.
    Virtual,
}

/// A run's figures, from its files.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::report) struct Point {
    pub(in crate::report) names: String,
    pub(in crate::report) devices: usize,
    pub(in crate::report) kind: Kind,
    /// Whether each device had its own batch (weak scaling).
    pub(in crate::report) weak: bool,
    /// Average rows of a step over all devices.
    pub(in crate::report) rows: f64,
    /// Seconds per step, without validation.
    pub(in crate::report) step_s: f64,
    /// Share of the step in all-reduces, averaged over devices.
    pub(in crate::report) all_reduce: f64,
    /// Share of the step spent on selecting, reading and moving rows.
    pub(in crate::report) data: f64,
    /// Share of the step spent on logging.
    pub(in crate::report) log: f64,
    /// Rows per second of each repeat in the order of execution; empty without repeats.
    pub(in crate::report) rates: Vec<f64>,
}

impl Point {
    /// In rows per second.
    pub(in crate::report) fn throughput(&self) -> f64 {
        self.rows / self.step_s
    }

    pub(in crate::report) fn runs(&self) -> usize {
        self.rates.len().max(1)
    }

    fn all_reduce_s(&self) -> f64 {
        self.all_reduce * self.step_s
    }
}

/// Rows per second relative to one device; with equal batches this is the ratio of times. Configurations
/// alternate within a repeat, so that a disturbance affects both: with repeats, ratios are computed within
/// each.
pub(in crate::report) fn speed_up(one: &Point, point: &Point) -> Estimate {
    let ratios: Vec<f64> = one.rates.iter().zip(&point.rates).map(|(one, rate)| rate / one).collect();
    let single = point.throughput() / one.throughput();
    let repeated = Estimate::from_values(&ratios).filter(|estimate| estimate.count > 1);
    repeated.unwrap_or(Estimate { count: 1, median: single, interval: None })
}

/// The serial fraction for a given speed-up on `devices` devices: Karp and Flatt, Measuring Parallel
/// Processor Performance, CACM 33(5), 1990, equation 2. Valid for a fixed problem size.
pub(in crate::report) fn serial_fraction(speed_up: f64, devices: usize) -> f64 {
    let p = devices as f64;
    (1.0 / speed_up - 1.0 / p) / (1.0 - 1.0 / p)
}

/// The rows per step, over all devices, from which several devices are as fast as one. Let `t` be one
/// device's time for these rows, `T` the step's time and `a` the time of its all-reduce. Then `k` times the
/// rows take `k t` and `k (T - a) + a`, which are equal at `k = a / (t - (T - a))`. `None` if no batch is
/// large enough.
pub(in crate::report) fn break_even(one: &Point, point: &Point) -> Option<f64> {
    let alone_s = point.rows / one.throughput();
    let rest_s = point.step_s - point.all_reduce_s();
    (rest_s < alone_s).then(|| point.rows * point.all_reduce_s() / (alone_s - rest_s))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn point(devices: usize, rows: f64, step_s: f64, all_reduce: f64) -> Point {
        let names = (0..devices).map(|i| format!("gpu:{i}")).collect::<Vec<_>>().join(" ");
        let (kind, weak, rates) = (Kind::Gpu, false, Vec::new());
        Point { names, devices, kind, weak, rows, step_s, all_reduce, data: 0.05, log: 0.01, rates }
    }

    fn near(a: f64, b: f64) {
        assert!((a - b).abs() <= 1e-12 * b.abs(), "{a} {b}");
    }

    #[test]
    fn speed_up_is_of_rows() {
        let one = point(1, 256.0, 1e-3, 0.0);
        near(speed_up(&one, &point(2, 256.0, 0.5e-3, 0.0)).median, 2.0);
        // Weak scaling: four times the rows in the same time.
        near(speed_up(&one, &point(4, 1024.0, 1e-3, 0.0)).median, 4.0);
    }

    /// Amdahl's law with a serial part `f` gives a speed-up of 1 / (f + (1 - f) / p).
    #[test]
    fn the_serial_fraction_is_amdahls() {
        for f in [0.01, 0.1, 0.5, 1.0] {
            for p in [2, 3, 8] {
                let speed_up = 1.0 / (f + (1.0 - f) / p as f64);
                let found = serial_fraction(speed_up, p);
                assert!((found - f).abs() < 1e-12, "{found} {f}");
            }
        }
        assert_eq!(serial_fraction(2.0, 2), 0.0);
    }

    /// At the returned batch the model's times are equal.
    #[test]
    fn at_the_break_even_both_take_as_long() {
        for (one, point) in [
            (point(1, 256.0, 1.0e-3, 0.0), point(2, 256.0, 1.45e-3, 0.61)),
            (point(1, 256.0, 1.0e-3, 0.0), point(4, 256.0, 0.3e-3, 0.1)),
            (point(1, 256.0, 1.0e-3, 0.0), point(4, 1024.0, 1.5e-3, 0.3)),
        ] {
            let rows = break_even(&one, &point).unwrap();
            let times = rows / point.rows;
            let several_s = times * (point.step_s - point.all_reduce_s()) + point.all_reduce_s();
            near(several_s, rows / one.throughput());
        }
        // 0.5655 ms without the all-reduce, 1 ms alone: 0.8845 / 0.4345 times the rows.
        near(
            break_even(&point(1, 256.0, 1.0e-3, 0.0), &point(2, 256.0, 1.45e-3, 0.61)).unwrap(),
            256.0 * 0.8845 / 0.4345,
        );
        // The rest of the step is no faster: no batch is large enough.
        assert_eq!(break_even(&point(1, 256.0, 1.0e-3, 0.0), &point(2, 256.0, 2.0e-3, 0.5)), None);
    }
}
