//! Permutation importance: how much worse a model does when the values of one column are permuted among the rows.
//! Breiman, *Random Forests* (2001); Fisher, Rudin, Dominici, *All Models are Wrong, but Many are Useful* (2019).
//! Figures are those of scikit-learn's `permutation_importance`.

use std::{cmp::Ordering, ops::Range, sync::Arc};

use serde_json::{Map, Value, json};

use super::{PredictError, Trained, pass::Pass, sample::RowSample};
use crate::{
    data::{ColumnKind, Preprocessing},
    device::DeviceError,
    plan::validation_rows,
    random::{Purpose, fast_stream, shuffle},
    record::text_table,
    report::parallel::map_blocks,
    spec::{Metric, Monitor},
    train::Scores,
    units,
};

/// Permutations of each column.
const REPEATS: u64 = 5;

/// FLOPs of all passes, about a minute on a few cores: of more rows than these allow, a sample is taken.
const MOST_FLOPS: f64 = 1e12;

/// FLOPs of a row whose model is tiny: what moving it costs.
const LEAST_FLOPS: f64 = 1e3;

/// Rows that are taken however long they take.
const FEWEST_ROWS: usize = 100;

/// Maximum features, or outputs, of all rows.
const MOST_VALUES: usize = 1 << 27;

/// Maximum rows of the table.
const SHOWN: usize = 40;

/// The columns by importance, the most important first.
pub struct Importance {
    rows: usize,
    /// The number of rows from which they were drawn.
    of: usize,
    /// What the columns are.
    noun: &'static str,
    /// The metric by which they are sorted, if it is not the loss.
    metric: Option<Monitor>,
    columns: Vec<ColumnImportance>,
}

struct ColumnImportance {
    name: String,
    /// How much the loss rises.
    loss: Spread,
    /// How much worse the metric becomes.
    metric: Spread,
}

/// Over the permutations.
struct Spread {
    mean: f64,
    /// The standard deviation, of a population.
    std: f64,
}

/// The rows for which [`Importance::new`] has the time and the memory.
pub fn sample_for(trained: &Trained) -> Result<RowSample, PredictError> {
    let chunk = validation_rows(trained.spec.data.batch_size);
    let flops = Pass::new(trained, chunk)?.flops / chunk as f64;
    let most = most_rows(flops, columns(trained).len(), trained.features.max(trained.outputs));
    Ok(RowSample::new(most, trained.spec.seed))
}

fn most_rows(flops: f64, columns: usize, widest: usize) -> usize {
    let passes = (columns as u64 * REPEATS) as f64;
    let in_time = MOST_FLOPS / (passes * flops.max(LEAST_FLOPS));
    (in_time as usize).max(FEWEST_ROWS).min(MOST_VALUES / widest.max(1)).max(1)
}

/// Each column's name and its features, in ranges: a number and the indicator of its missing cells belong together, and so do all
/// categories of a column of words.
fn columns(trained: &Trained) -> Vec<(String, Vec<Range<usize>>)> {
    let mut next = 0;
    let mut taken = |width: usize| {
        next += width;
        next - width..next
    };
    match trained.data.preprocessing() {
        Preprocessing::Table { columns, .. } => {
            let (numbers, texts): (Vec<_>, Vec<_>) =
                columns.iter().partition(|column| column.kind == ColumnKind::Numeric);
            let mut all: Vec<_> =
                numbers.iter().map(|column| (column.name.clone(), vec![taken(1)])).collect();
            for (own, column) in all.iter_mut().zip(numbers) {
                own.1.extend(column.indicator.map(|_| taken(1)));
            }
            all.extend(texts.iter().map(|column| {
                let width = column.categories.as_ref().map_or(0, Vec::len);
                (column.name.clone(), vec![taken(width)])
            }));
            all
        }
        Preprocessing::Array(_) => {
            (0..trained.features).map(|feature| (feature.to_string(), vec![taken(1)])).collect()
        }
    }
}

/// A random order of `rows` rows.
fn permutation(rows: usize, seed: u64, index: u64) -> Vec<u32> {
    let mut order: Vec<u32> = (0..rows as u32).collect();
    shuffle(&mut fast_stream(seed, Purpose::Importance, index), &mut order);
    order
}

/// The rows in chunks, as they go through the model.
struct Rows<'a> {
    trained: &'a Trained,
    sample: &'a RowSample,
    /// Those of each chunk.
    targets: Vec<Arc<Vec<f32>>>,
    /// Rows of all chunks but the last.
    chunk: usize,
    monitor: Monitor,
}

impl<'a> Rows<'a> {
    fn new(trained: &'a Trained, sample: &'a RowSample) -> Self {
        let chunk = validation_rows(trained.spec.data.batch_size);
        let targets = sample.targets.chunks(chunk * trained.data.target_width());
        let targets = targets.map(|own| Arc::new(own.to_vec())).collect();
        Self { trained, sample, targets, chunk, monitor: trained.spec.trainer.monitor }
    }

    /// The model, for each size of chunks.
    fn passes(&self) -> Result<Vec<Pass>, DeviceError> {
        let (whole, rest) = (self.sample.rows / self.chunk, self.sample.rows % self.chunk);
        let sizes = [if whole > 0 { self.chunk } else { 0 }, rest];
        sizes.into_iter().filter(|rows| *rows > 0).map(|rows| Pass::new(self.trained, rows)).collect()
    }

    /// The mean loss, and what is monitored, with its sign set so that smaller is better. `permuted` are features
    /// and, for each row, that from which it has them.
    fn measure(
        &self,
        passes: &mut [Pass],
        permuted: Option<(&[Range<usize>], &[u32])>,
    ) -> Result<[f64; 2], DeviceError> {
        let (width, all) = (self.trained.features, &self.sample.features);
        let line = self.trained.data.target_width();
        let mut scores = self.scores();
        for (number, targets) in self.targets.iter().enumerate() {
            let first = number * self.chunk;
            let rows = self.chunk.min(self.sample.rows - first);
            let mut features = all[first * width..][..rows * width].to_vec();
            if let Some((own, order)) = permuted {
                for (row, from) in features.chunks_exact_mut(width).zip(&order[first..]) {
                    let from = &all[*from as usize * width..];
                    own.iter().for_each(|own| row[own.clone()].copy_from_slice(&from[own.clone()]));
                }
            }
            for pass in passes.iter_mut().filter(|pass| pass.rows == rows) {
                let predictions = pass.run(std::mem::take(&mut features), targets)?;
                scores.iter_mut().for_each(|scores| scores.add(&predictions, targets, line));
            }
        }
        let mut means = [0.0; 2];
        for pass in passes {
            means.iter_mut().zip(pass.sums()?).for_each(|(mean, sum)| *mean += sum);
        }
        let weight = self.trained.data.weight_of(&self.sample.targets);
        let (loss, accuracy) = (means[0] / weight, means[1] / self.sample.rows as f64);
        let value = match (self.monitor.metric(), &scores) {
            (Metric::Loss, _) => loss,
            (Metric::Accuracy, _) => accuracy,
            (_, scores) => scores.as_ref().and_then(|scores| self.value(scores)).unwrap_or(f64::NAN),
        };
        Ok([loss, self.monitor.cost(value)])
    }

    /// What computes the monitored metric, if that is not done with the loss.
    fn scores(&self) -> Option<Scores> {
        let metric = self.monitor.metric();
        match (metric.needs_predictions(), metric.is_of_numbers()) {
            (false, _) => None,
            (true, true) => Some(Scores::of_numbers(&self.trained.data.target_scales())),
            (true, false) => Some(Scores::of_classes(self.trained.outputs, metric.ranks_outputs())),
        }
    }

    fn value(&self, scores: &Scores) -> Option<f64> {
        let Some(target) = self.monitor.target() else { return scores.value(self.monitor.metric()) };
        let names = self.trained.data.target_names();
        let values = scores.of_targets(self.monitor.metric(), &names);
        let target = names.iter().position(|name| name == target)?;
        values.get(target).map(|(_, value)| *value)
    }
}

impl Spread {
    fn new(values: impl Iterator<Item = f64> + Clone) -> Self {
        let mean = values.clone().sum::<f64>() / REPEATS as f64;
        let squares = values.map(|value| (value - mean).powi(2)).sum::<f64>();
        Self { mean, std: (squares / REPEATS as f64).sqrt() }
    }

    fn words(&self) -> String {
        format!("{} \u{b1} {}", units::number(self.mean), units::number(self.std))
    }
}

impl Importance {
    /// Permutes each column several times, with the run's seed.
    pub fn new(trained: &Trained, sample: &RowSample) -> Result<Self, PredictError> {
        let rows = Rows::new(trained, sample);
        let mut passes = rows.passes()?;
        let plain = rows.measure(&mut passes, None)?;
        let columns: Vec<_> = columns(trained).into_iter().enumerate().collect();
        let of_column = |(place, (name, own)): &(usize, (String, Vec<Range<usize>>))| {
            let mut passes = rows.passes()?;
            let worse = |repeat: u64| {
                let index = *place as u64 * REPEATS + repeat;
                let order = permutation(sample.rows, trained.spec.seed, index);
                let found = rows.measure(&mut passes, Some((own, &order)))?;
                Ok([found[0] - plain[0], found[1] - plain[1]])
            };
            let worse = (0..REPEATS).map(worse).collect::<Result<Vec<_>, DeviceError>>()?;
            let [loss, metric] = [0, 1].map(|which| Spread::new(worse.iter().map(|worse| worse[which])));
            Ok(ColumnImportance { name: name.clone(), loss, metric })
        };
        // Several threads work on a column, or each on one of its own.
        let block = if passes.iter().any(Pass::is_shared) { columns.len() } else { 1 };
        let measured = map_blocks(&columns, block, of_column);
        let mut columns = measured.into_iter().collect::<Result<Vec<_>, DeviceError>>()?;
        let is_known = rows.monitor.metric() != Metric::Loss && !plain[1].is_nan();
        let by = |column: &ColumnImportance| if is_known { column.metric.mean } else { column.loss.mean };
        columns.sort_by(|a, b| {
            by(b)
                .total_cmp(&by(a))
                .then_with(|| b.loss.mean.partial_cmp(&a.loss.mean).unwrap_or(Ordering::Equal))
        });
        let is_table = matches!(trained.data.preprocessing(), Preprocessing::Table { .. });
        let (noun, metric) = (if is_table { "column" } else { "feature" }, is_known.then_some(rows.monitor));
        Ok(Self { rows: sample.rows, of: sample.of, noun, metric, columns })
    }

    /// A line for each column.
    pub fn table(&self) -> String {
        let counted = |rows: usize| units::count(rows as u64);
        let of = units::counted(self.of as u64, "row");
        let rows = match self.rows < self.of {
            true => format!("{} of {of}, drawn at random", counted(self.rows)),
            false => of,
        };
        let metric = self.metric.map(|metric| {
            let verb = if metric.metric().more_is_better() { "falls" } else { "rises" };
            format!("{} {verb} by", metric.column())
        });
        let mut header = vec![self.noun];
        header.extend(metric.iter().map(String::as_str).chain(["loss rises by"]));
        let cells = |column: &ColumnImportance| {
            let metric = self.metric.is_some().then(|| column.metric.words());
            [column.name.clone()].into_iter().chain(metric).chain([column.loss.words()]).collect()
        };
        let shown: Vec<Vec<String>> = self.columns.iter().take(SHOWN).map(cells).collect();
        let mut out = format!(
            "the values of one {} permuted among {rows}: mean \u{b1} standard deviation of {REPEATS} permutations\n",
            self.noun
        );
        for line in text_table::lines(&header, &shown, |place| place > 0) {
            out.push_str(&format!("{line}\n"));
        }
        if self.columns.len() > SHOWN {
            let all = counted(self.columns.len());
            out.push_str(&format!("the first {SHOWN} of {all} {}s; `--json` has all\n", self.noun));
        }
        out
    }

    /// With all digits.
    pub fn json(&self) -> Value {
        let column = |column: &ColumnImportance| {
            let mut object = Map::new();
            object.insert(self.noun.to_owned(), json!(column.name));
            let metric = self.metric.map(|metric| (metric.column(), &column.metric));
            for (name, spread) in metric.into_iter().chain([("loss", &column.loss)]) {
                object.insert(name.to_owned(), json!({ "mean": spread.mean, "std": spread.std }));
            }
            Value::Object(object)
        };
        let columns: Vec<Value> = self.columns.iter().map(column).collect();
        json!({ "rows": self.rows, "repeats": REPEATS, "columns": columns })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::RowBlock;

    #[test]
    fn a_permutation_has_each_row_once() {
        let mut order = permutation(1000, 7, 3);
        assert_eq!(order, permutation(1000, 7, 3));
        assert_ne!(order, permutation(1000, 7, 4));
        assert!(order.iter().zip(0..).filter(|(from, row)| *from == row).count() < 10);
        order.sort_unstable();
        assert!(order.into_iter().eq(0..1000));
    }

    #[test]
    fn the_rows_are_counted() {
        let words = |rows, of| {
            let all = Importance { rows, of, noun: "column", metric: None, columns: Vec::new() };
            all.table().split(" among ").nth(1).and_then(|text| text.split(':').next()).map(str::to_owned)
        };
        assert_eq!(words(1, 1).as_deref(), Some("1 row"));
        assert_eq!(words(627, 1500).as_deref(), Some("627 of 1,500 rows, drawn at random"));
    }

    /// Passes over an image's pixels are many; a million rows of ten columns are all taken.
    #[test]
    fn rows_are_taken_as_time_and_memory_allow() {
        assert_eq!(most_rows(2e5, 784, 784), 1275);
        assert!(most_rows(1e3, 10, 10) > 10_000_000);
        assert_eq!(most_rows(1e12, 1000, 10), FEWEST_ROWS);
        assert_eq!(most_rows(1e3, 1, MOST_VALUES / 3), 3);
    }

    /// Each row is in the sample with the same probability, together with its target.
    #[test]
    fn a_sample_is_uniform() {
        let values: Vec<f32> = (0..40_u8).map(f32::from).collect();
        let block = RowBlock { rows: 40, features: values.clone(), targets: values, kept: Vec::new() };
        let mut taken = [0_i32; 80];
        for seed in 0..2000 {
            let mut sample = RowSample::new(20, seed);
            sample.see(&block);
            let targets = block.targets.iter().map(|target| target + 40.0).collect();
            sample.see(&RowBlock {
                features: block.features.iter().map(|x| x + 40.0).collect(),
                targets,
                ..block.clone()
            });
            assert_eq!((sample.rows, sample.of, &sample.features), (20, 80, &sample.targets));
            sample.features.iter().for_each(|row| taken[*row as usize] += 1);
        }
        // Five standard deviations of a binomial with n = 2000 and p = 1/4.
        assert!(taken.iter().all(|count| (count - 500).abs() < 97), "{taken:?}");
    }
}
