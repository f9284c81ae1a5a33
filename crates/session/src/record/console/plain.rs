//! Progress as text, and how often it is printed without a terminal.

use super::super::summary::per_second;
use crate::{
    event::{Best, Header, Progress, ValidationRow},
    spec::Monitor,
    units,
};

/// Seconds between two lines of progress.
const LINE_INTERVAL_S: f64 = 5.0;

/// Seconds between two lines for short runs.
const SHORTEST_S: f64 = 0.25;

/// Approximate number of validation lines of a long run.
const LINES: u64 = 20;

/// `epoch 3/10, loss 0.01234, best 0.01100 in epoch 3, step 96, 5.126 M rows/s, 12.3 s left`; in the lab
/// `1,000/4,000 products, 500.0 products/s, 6.00 s left`; `at most 6.00 s` where steps may be left out.
pub(super) fn progress(header: &Header, progress: &Progress, best: Option<Best>) -> String {
    let epoch = units::count(progress.epoch);
    // Unknown if the run is limited by time.
    let counted = || [progress.step, header.steps_planned].map(units::count).join("/");
    let mut words = vec![match header.max_time_s {
        _ if header.lab.is_some() => format!("{} {}", counted(), header.lab_unit),
        Some(_) => format!("epoch {epoch}"),
        None => format!("epoch {epoch}/{}", units::count(header.epochs_planned)),
    }];
    if let Some(loss) = progress.loss {
        words.push(format!("loss {}", units::number(loss.into())));
    }
    if let Some(Best { monitor, value, epoch, step, .. }) = best {
        let is_share = monitor == Monitor::ACCURACY;
        let value = if is_share { units::percent(value) } else { units::number(value) };
        words.push(format!("best {value} in epoch {}, step {}", units::count(epoch), units::count(step)));
    }
    if let Some(rate) = per_second(progress.samples, progress.train_s) {
        let unit = if header.lab.is_some() { header.lab_unit } else { "rows" };
        words.push(format!("{} {unit}/s", units::rate(rate)));
    }
    let share = share(header, progress);
    if share > 0.0 {
        let most = if header.may_skip_steps { "at most " } else { "" };
        words.push(format!("{most}{} left", units::seconds(progress.elapsed_s / share - progress.elapsed_s)));
    }
    words.join(", ")
}

/// The completed share of the run: of its steps, or of its time limit if that ends it sooner.
pub(super) fn share(header: &Header, progress: &Progress) -> f64 {
    let of_steps = progress.step as f64 / header.steps_planned.max(1) as f64;
    let of_time = header.max_time_s.filter(|most| *most > 0.0).map_or(0.0, |most| progress.elapsed_s / most);
    of_steps.max(of_time).min(1.0)
}

/// When the last line was printed.
#[derive(Default)]
pub(super) struct PrintInterval {
    last_s: f64,
    /// The step and the epoch of the last line of a validation.
    last_step: u64,
    last_epoch: u64,
}

/// Seconds between two lines of progress: a twentieth of a short time limit.
fn between_s(header: &Header) -> f64 {
    header.max_time_s.map_or(LINE_INTERVAL_S, |most| (most / LINES as f64).clamp(SHORTEST_S, LINE_INTERVAL_S))
}

impl PrintInterval {
    /// At most one line every few seconds, and none while validations are printed.
    pub(super) fn progress_is_due(&mut self, header: &Header, progress: &Progress) -> bool {
        let due = progress.elapsed_s - self.last_s >= between_s(header);
        if due {
            self.last_s = progress.elapsed_s;
        }
        due
    }

    /// All validations of a short run; about twenty of a long one, including the last, also where many are within an epoch. A run
    /// limited by time has an unknown number of epochs, so its validations are printed at the rate of progress lines.
    pub(super) fn validation_is_due(&mut self, header: &Header, row: &ValidationRow) -> bool {
        let stride = header.epochs_planned.div_ceil(LINES).max(1);
        let is_last_epoch = row.epoch >= header.epochs_planned;
        let is_apart = row.step.saturating_sub(self.last_step) >= header.steps_planned / LINES
            || is_last_epoch && row.step >= header.steps_planned;
        let is_next = row.epoch / stride > self.last_epoch / stride || stride == 1;
        let by_count = (is_next || is_last_epoch) && is_apart;
        let by_time = header
            .max_time_s
            .is_some_and(|most| row.elapsed_s - self.last_s >= between_s(header) || row.elapsed_s >= most);
        let due = by_count || by_time;
        if due {
            (self.last_s, self.last_step, self.last_epoch) = (row.elapsed_s, row.step, row.epoch);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::sample;

    #[test]
    fn progress_in_words() {
        let some =
            Progress { step: 2, epoch: 1, samples: 64, train_s: 0.5, elapsed_s: 1.0, loss: Some(0.25) };
        assert_eq!(
            progress(&sample::header(), &some, sample::outcome().best),
            "epoch 1/2, loss 0.2500, best 0.05000 in epoch 1, step 3, 128.0 rows/s, 2.00 s left"
        );
        let none = Progress { step: 0, epoch: 1, samples: 0, train_s: 0.0, elapsed_s: 0.0, loss: None };
        assert_eq!(progress(&sample::header(), &none, None), "epoch 1/2");
        let lab = Header {
            lab: Some("products".to_owned()),
            lab_unit: "products",
            steps_planned: 4000,
            may_skip_steps: true,
            ..Header::default()
        };
        let some =
            Progress { step: 1000, samples: 1000, train_s: 2.0, elapsed_s: 2.0, ..Progress::default() };
        assert_eq!(
            progress(&lab, &some, None),
            "1,000/4,000 products, 500.0 products/s, at most 6.00 s left"
        );
    }

    #[test]
    fn a_long_run_has_twenty_lines_at_even_distances_and_the_last_is_told() {
        let reported = |epochs_planned: u64| -> Vec<u64> {
            let header = Header { epochs_planned, ..sample::header() };
            let mut pace = PrintInterval::default();
            let is_due = |&epoch: &u64| {
                let row = ValidationRow { step: epoch, epoch, rows: 1, ..ValidationRow::default() };
                pace.validation_is_due(&header, &row)
            };
            (1..=epochs_planned).filter(is_due).collect()
        };
        assert_eq!(reported(3), [1, 2, 3]);
        assert_eq!(reported(25), [2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 25]);
        assert_eq!(reported(1000), (1..=20).map(|n| n * 50).collect::<Vec<u64>>());
    }

    #[test]
    fn a_long_epoch_has_twenty_lines_of_validations() {
        let header = Header { epochs_planned: 2, steps_planned: 1003, ..sample::header() };
        let mut pace = PrintInterval::default();
        let is_due = |&step: &u64| {
            let row = ValidationRow { step, epoch: step.div_ceil(502), rows: 1, ..ValidationRow::default() };
            pace.validation_is_due(&header, &row)
        };
        let printed: Vec<u64> = (10..=1000).step_by(10).chain([1003]).filter(is_due).collect();
        assert_eq!(printed, (1..=20).map(|n| n * 50).chain([1003]).collect::<Vec<u64>>());
    }

    /// Few of the validations by steps are in an epoch whose number is a multiple of another.
    #[test]
    fn validations_by_steps_of_many_epochs_have_twenty_lines() {
        let header = Header { epochs_planned: 400, steps_planned: 2400, ..sample::header() };
        for every in [9, 41] {
            let mut pace = PrintInterval::default();
            let is_due = |&step: &u64| {
                let row =
                    ValidationRow { step, epoch: step.div_ceil(6), rows: 1, ..ValidationRow::default() };
                pace.validation_is_due(&header, &row)
            };
            let printed = (every..2400).step_by(every as usize).chain([2400]).filter(is_due).count();
            assert!((18..=21).contains(&printed), "{every}: {printed}");
        }
    }

    #[test]
    fn progress_waits_for_its_turn() {
        let mut pace = PrintInterval::default();
        let due: Vec<bool> = [1.0, 5.0, 9.9, 10.0]
            .map(|elapsed_s| {
                let now = Progress { step: 1, epoch: 1, samples: 1, train_s: 1.0, elapsed_s, loss: None };
                pace.progress_is_due(&sample::header(), &now)
            })
            .to_vec();
        assert_eq!(due, [false, true, false, true]);
    }

    #[test]
    fn a_run_that_time_ends_is_told_by_its_share_of_it() {
        let header = Header {
            max_time_s: Some(10.0),
            epochs_planned: 1 << 40,
            steps_planned: 1 << 50,
            ..sample::header()
        };
        let at = |elapsed_s| Progress { step: 9, epoch: 3, samples: 64, train_s: 0.5, elapsed_s, loss: None };
        assert_eq!(progress(&header, &at(4.0), None), "epoch 3, 128.0 rows/s, 6.00 s left");
        let mut pace = PrintInterval::default();
        let reported = (1..=100).filter(|tenth| pace.progress_is_due(&header, &at(f64::from(*tenth) / 10.0)));
        assert_eq!(reported.count(), 20);
        let mut pace = PrintInterval::default();
        let row = |elapsed_s| ValidationRow { step: 9, epoch: 3, elapsed_s, ..ValidationRow::default() };
        let due = [0.1, 0.5, 0.9, 9.8, 9.9, 10.0].map(|s| pace.validation_is_due(&header, &row(s)));
        assert_eq!(due, [false, true, false, true, false, true]);
    }
}
