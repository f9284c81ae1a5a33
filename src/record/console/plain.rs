//! Progress in words, and how often words are due where there is no terminal to redraw.

use super::super::summary::per_second;
use crate::{
    event::{Header, Progress, ValidationRow},
    units,
};

/// Seconds between two lines of progress.
const QUIET_S: f64 = 5.0;

/// Lines of validation in a run, whatever the number of epochs.
const VALIDATION_LINES: u64 = 20;

/// `epoch 3/10, loss 0.01234, 5.126 M rows/s, 12.3 s left`.
pub(super) fn progress(header: &Header, progress: &Progress) -> String {
    let mut words =
        vec![format!("epoch {}/{}", units::count(progress.epoch), units::count(header.epochs_planned))];
    if let Some(loss) = progress.loss {
        words.push(format!("loss {}", units::number(loss.into())));
    }
    if let Some(rate) = per_second(progress.samples, progress.train_s) {
        words.push(format!("{} rows/s", units::rate(rate)));
    }
    if progress.step > 0 {
        let steps_left = header.steps_planned.saturating_sub(progress.step);
        let left_s = progress.elapsed_s / progress.step as f64 * steps_left as f64;
        words.push(format!("{} left", units::seconds(left_s)));
    }
    words.join(", ")
}

/// When the last line was said.
#[derive(Default)]
pub(super) struct Pace {
    last_s: f64,
}

impl Pace {
    /// At most one line every few seconds, and none while validations are told.
    pub(super) fn progress_is_due(&mut self, progress: &Progress) -> bool {
        let due = progress.elapsed_s - self.last_s >= QUIET_S;
        if due {
            self.last_s = progress.elapsed_s;
        }
        due
    }

    /// Every validation of a short run; of a long one some twenty, the last among them.
    pub(super) fn validation_is_due(&mut self, header: &Header, row: &ValidationRow) -> bool {
        let stride = header.epochs_planned.div_ceil(VALIDATION_LINES).max(1);
        let due = row.epoch.is_multiple_of(stride) || row.epoch >= header.epochs_planned;
        if due {
            self.last_s = row.elapsed_s;
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
        assert_eq!(progress(&sample::header(), &some), "epoch 1/2, loss 0.2500, 128.0 rows/s, 2.00 s left");
        let none = Progress { step: 0, epoch: 1, samples: 0, train_s: 0.0, elapsed_s: 0.0, loss: None };
        assert_eq!(progress(&sample::header(), &none), "epoch 1/2");
    }

    #[test]
    fn a_long_run_has_twenty_lines_at_even_distances_and_the_last_is_told() {
        let told = |epochs_planned: u64| -> Vec<u64> {
            let header = Header { epochs_planned, ..sample::header() };
            let mut pace = Pace::default();
            let is_due = |&epoch: &u64| {
                let row =
                    ValidationRow { step: epoch, epoch, rows: 1, loss: 1.0, accuracy: None, elapsed_s: 0.0 };
                pace.validation_is_due(&header, &row)
            };
            (1..=epochs_planned).filter(is_due).collect()
        };
        assert_eq!(told(3), [1, 2, 3]);
        assert_eq!(told(25), [2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 25]);
        assert_eq!(told(1000), (1..=20).map(|n| n * 50).collect::<Vec<u64>>());
    }

    #[test]
    fn progress_waits_for_its_turn() {
        let mut pace = Pace::default();
        let due: Vec<bool> = [1.0, 5.0, 9.9, 10.0]
            .map(|elapsed_s| {
                let now = Progress { step: 1, epoch: 1, samples: 1, train_s: 1.0, elapsed_s, loss: None };
                pace.progress_is_due(&now)
            })
            .to_vec();
        assert_eq!(due, [false, true, false, true]);
    }
}
