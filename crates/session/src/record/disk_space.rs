//! How many bytes the folder of a planned run will have.

use super::{MetricColumns, MetricsCsv, RecordError, Sink, held_rows::PARTS};
use crate::{
    data::Dataset,
    event::Event,
    plan::Trial,
    spec::{Metric, Policy},
};

/// Mean bytes of a number in `metrics.csv` where no row was measured: in a row of training, an f32, and of validation, an f64.
const NUMBER: [f64; 2] = [11.5, 19.0];

/// `environment.toml`, `summary.csv`, `timing.csv` and `transfers.csv`, and the description of a checkpoint, are about as long.
const SMALL: u64 = 1_200;

/// Bytes of `run.log` without its lines on validations, and of such a line.
const LOG: [u64; 2] = [1_400, 85];

/// Bytes of a weights file's metadata, and of a tensor's entry in its header.
const HEADER: [u64; 2] = [300, 80];

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

/// The files of a run that takes `seconds`, without `trace.json` and `system.csv`: how many are of which size. `rows` are the means
/// of [`RowLengths`].
pub fn run_files(trial: &Trial, dataset: &Dataset, rows: [Option<f64>; 2], seconds: f64) -> Vec<(u64, u64)> {
    let layout = &trial.programs.layout;
    let preprocessing = dataset.stored_preprocessing().map_or(0, |text| text.len() as u64);
    let weights = |sets: u64, bytes: u64| {
        HEADER[0] + preprocessing + HEADER[1] * sets * layout.parameters.len() as u64 + bytes
    };
    let parameters = 4 * layout.parameter_count();
    let model = weights(1, parameters);
    let mut files = vec![
        (1, trial.spec.to_toml().len() as u64),
        (4, SMALL),
        (1, LOG[0] + LOG[1] * trial.validations()),
        (1, metrics_bytes(trial, rows, seconds)),
        (1 + u64::from(layout.best.is_some()), model),
    ];
    if dataset.apart.iter().any(|rows| !rows.is_empty()) {
        files.push((1, held_rows_bytes(&dataset.apart)));
    }
    if let Some(rule) = &trial.spec.checkpoint {
        let kept = trial.checkpoints(seconds).min(rule.keep_last.saturating_add(rule.keep_best));
        let saved = 4 * trial.saved_numbers();
        files.extend([(kept, weights(saved / parameters.max(1), saved)), (kept, SMALL)]);
    }
    if trial.spec.logging.tensorboard {
        files.push((1, tensorboard_bytes(trial)));
    }
    let counts_classes = |metric: &Metric| metric.needs_predictions();
    if let Some(classes) = trial.facts.classes.filter(|_| trial.spec.scores().iter().any(counts_classes)) {
        files.push((1, 3 * (classes as u64).pow(2)));
    }
    files
}

/// Rows of training and of validation.
fn row_counts(trial: &Trial) -> [u64; 2] {
    let train = match trial.spec.logging.policy {
        Policy::Immediate | Policy::Buffered => trial.steps,
        Policy::PerEpoch => trial.steps.div_ceil(trial.steps_per_epoch.max(1)),
        Policy::Off => 0,
    };
    [train, trial.validations()]
}

fn metrics_bytes(trial: &Trial, rows: [Option<f64>; 2], seconds: f64) -> u64 {
    let columns = MetricColumns::from_trial(trial);
    let epochs = trial.steps.div_ceil(trial.steps_per_epoch.max(1)).max(1);
    // What grows after the rows that were measured: epochs, and seconds since the start.
    let mean_digits = |most: u64| digits(most + 1) as f64 / most.max(1) as f64;
    let grown = mean_digits(epochs) - 1.0 + (mean_digits(seconds as u64) - 1.0).max(0.0);
    let logged = trial.spec.logging.metrics.iter().map(|metric| match metric {
        Metric::Accuracy => 0.6, // a multiple of the batch's part has fewer digits
        metric if metric.needs_predictions() => 0.0,
        _ => 1.0,
    });
    let logged: f64 = logged.sum();
    let shared = ",1,train,32,\n".len() as f64 + "0.123456789".len() as f64;
    let unmeasured = [shared + NUMBER[0] * logged, shared + 5.0 + NUMBER[1] * columns.numbers() as f64];
    let counts = row_counts(trial);
    let rest: f64 =
        (0..2).map(|split| counts[split] as f64 * (rows[split].unwrap_or(unmeasured[split]) + grown)).sum();
    let steps = mean_digits(trial.steps) * counts.iter().sum::<u64>() as f64;
    columns.header_bytes() + (rest + steps) as u64
}

/// The length of `rows.csv`.
fn held_rows_bytes(apart: &[Vec<u32>; 3]) -> u64 {
    let part = |(split, rows): (&str, &Vec<u32>)| -> u64 {
        let beside = split.len() as u64 + 2;
        rows.iter().map(|row| beside + u64::from(row.checked_ilog10().unwrap_or(0)) + 1).sum()
    };
    "split,row\n".len() as u64 + PARTS.into_iter().zip(apart).map(part).sum::<u64>()
}

/// Records of `events.out.tfevents`: a length, checksums, the time and the step, then a tag and a value per metric.
fn tensorboard_bytes(trial: &Trial) -> u64 {
    let metrics = || trial.spec.logging.metrics.iter();
    let record = |tags: u64| 16 + 9 + 4 + 2 + tags;
    let tag = |metric: &Metric, split: &str| (metric.name().len() + split.len() + 1 + 4 + 5) as u64;
    let of_train =
        metrics().filter(|metric| !metric.needs_predictions()).map(|metric| tag(metric, "train")).sum();
    let of_validation = metrics().map(|metric| tag(metric, "validation")).sum();
    let [train, validation] = row_counts(trial);
    train * record(of_train) + validation * record(of_validation)
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
