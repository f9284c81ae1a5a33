//! How many bytes the folder of a planned run will have.

use super::{MetricColumns, MetricsCsv, RecordError, Sink};
use crate::{
    data::Dataset,
    event::Event,
    plan::Trial,
    spec::{Metric, Policy},
};

/// Mean bytes of a number in `metrics.csv` where no row was measured: in a row of training, an f32, and of validation, an f64.
const NUMBER: [f64; 2] = [11.5, 19.0];

/// Files of other kinds, and the most bytes of one; `run.log` has a line per validation.
const SMALL: [u64; 2] = [5, 4_000];
const LOG: [u64; 2] = [1_400, 85];

/// Bytes of a weights file beside its numbers, of a row of `rows.csv`, and of a record for TensorBoard and each of its metrics.
const HEADER: u64 = 700;
const HELD_ROW: u64 = 16;
const RECORD: [u64; 2] = [31, 22];

/// Rows of `metrics.csv` that are measured and kept nowhere.
pub struct RowLengths {
    sink: MetricsCsv,
    /// Rows and bytes, of training and of validation, without the digits of steps.
    seen: [(u64, u64); 2],
}

impl RowLengths {
    pub fn new(trial: &Trial) -> Result<Self, RecordError> {
        Ok(Self { sink: MetricsCsv::discard(MetricColumns::from_trial(trial))?, seen: [(0, 0); 2] })
    }

    pub fn take(&mut self, event: &Event) -> Result<(), RecordError> {
        let (split, rows, steps) = match event {
            Event::Train(block) => {
                let rows = block.len() as u64;
                (0, rows, digits(block.first_step + rows) - digits(block.first_step))
            }
            Event::Validation(row) => (1, 1, digits(row.step + 1) - digits(row.step)),
            _ => return Ok(()),
        };
        let before = self.sink.written();
        self.sink.event(event)?;
        self.seen[split].0 += rows;
        self.seen[split].1 += self.sink.written() - before - steps;
        Ok(())
    }

    /// Mean bytes of a row of training and of one of validation, without its step; `None` where there was none.
    pub fn means(&self) -> [Option<f64>; 2] {
        self.seen.map(|(rows, bytes)| (rows > 0).then(|| bytes as f64 / rows as f64))
    }
}

/// The digits of all numbers from 1 to below `end`.
fn digits(end: u64) -> u64 {
    // Each of them has a digit for every power of ten that it reaches.
    let reaching = |power: u32| 10_u64.checked_pow(power).map_or(0, |least| end.saturating_sub(least));
    (0..20).map(reaching).fold(0, u64::saturating_add)
}

/// How much a run will do.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    pub seconds: f64,
    /// The part of its steps that there is time for.
    pub part: f64,
    /// The means of [`RowLengths`].
    pub row_bytes: [Option<f64>; 2],
}

/// The files of a run, without `trace.json` and `system.csv`: how many are of which size.
pub fn run_files(trial: &Trial, dataset: &Dataset, extent: &Extent) -> Vec<(u64, u64)> {
    let layout = &trial.programs.layout;
    let counts = row_counts(trial, extent.part);
    let beside = HEADER + dataset.stored_preprocessing().map_or(0, |text| text.len() as u64);
    let model = beside + 4 * layout.parameter_count();
    let mut files = vec![
        SMALL.into(),
        (1, LOG[1].saturating_mul(counts[1]).saturating_add(LOG[0])),
        (1, metrics_bytes(trial, counts, extent)),
        (1 + u64::from(layout.best.is_some()), model),
        (1, HELD_ROW * dataset.apart.iter().map(|rows| rows.len() as u64).sum::<u64>()),
    ];
    if let Some(rule) = &trial.spec.checkpoint {
        let made = trial.checkpoints(extent.seconds).min(rule.keep_last.saturating_add(rule.keep_best));
        files.extend([(made, beside + 4 * trial.saved_numbers()), (made, SMALL[1])]);
    }
    if trial.spec.logging.tensorboard {
        let record = RECORD[0] + RECORD[1] * trial.spec.logging.metrics.len() as u64;
        files.push((1, record.saturating_mul(counts[0].saturating_add(counts[1]))));
    }
    let counts_classes = |metric: &Metric| metric.needs_predictions();
    if let Some(classes) = trial.facts.classes.filter(|_| trial.spec.scores().iter().any(counts_classes)) {
        files.push((1, 3 * (classes as u64).pow(2)));
    }
    files
}

/// Rows of training and of validation, where there is time for this part of the steps.
fn row_counts(trial: &Trial, part: f64) -> [u64; 2] {
    let train = match trial.spec.logging.policy {
        Policy::Immediate | Policy::Buffered => trial.steps,
        Policy::PerEpoch => trial.steps.div_ceil(trial.steps_per_epoch.max(1)),
        Policy::Off => 0,
    };
    [train, trial.validations()].map(|count| (count as f64 * part).ceil() as u64)
}

fn metrics_bytes(trial: &Trial, counts: [u64; 2], extent: &Extent) -> u64 {
    let Extent { seconds, part, row_bytes: rows } = *extent;
    let steps = (trial.steps as f64 * part).ceil() as u64;
    let columns = MetricColumns::from_trial(trial);
    let epochs = steps.div_ceil(trial.steps_per_epoch.max(1)).max(1);
    // What grows after the rows that were measured: epochs, and seconds since the start.
    let mean_digits = |most: u64| digits(most.saturating_add(1)) as f64 / most.max(1) as f64;
    let grown = mean_digits(epochs) - 1.0 + (mean_digits(seconds as u64) - 1.0).max(0.0);
    let logged = trial.spec.logging.metrics.iter().map(|metric| match metric {
        Metric::Accuracy => 0.6, // a multiple of the batch's part has fewer digits
        metric if metric.needs_predictions() => 0.0,
        _ => 1.0,
    });
    let logged: f64 = logged.sum();
    let shared = ",1,train,32,\n".len() as f64 + "0.123456789".len() as f64;
    let unmeasured = [shared + NUMBER[0] * logged, shared + 5.0 + NUMBER[1] * columns.numbers() as f64];
    let rest: f64 =
        (0..2).map(|split| counts[split] as f64 * (rows[split].unwrap_or(unmeasured[split]) + grown)).sum();
    let steps = mean_digits(steps) * counts.iter().map(|count| *count as f64).sum::<f64>();
    columns.header_bytes().saturating_add((rest + steps) as u64)
}

#[cfg(test)]
mod tests {
    use super::digits;

    #[test]
    fn digits_of_the_numbers_below() {
        let slow = |end: u64| (1..end).map(|n| n.to_string().len() as u64).sum::<u64>();
        for end in [1, 2, 9, 10, 11, 99, 100, 101, 1_000, 12_345] {
            assert_eq!(digits(end), slow(end), "{end}");
        }
    }
}
