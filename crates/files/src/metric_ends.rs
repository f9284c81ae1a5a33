//! Where a metric of `metrics.csv` stands: its last and its best values, and the means of its epochs.

use crate::series::Series;

/// Where a metric stands.
#[derive(Clone, Debug, Default)]
pub struct Ends {
    /// The lowest and the highest validation.
    pub extremes: [Option<Validation>; 2],
    /// The cell of the last validation, as written.
    pub validation: Option<String>,
    /// The last value in training.
    pub train: Option<f64>,
    /// The first training epoch, once another began: the lines before may hold more of it.
    first: Option<EpochValues>,
    /// Means of the epochs between the first and the last.
    means: Series,
    pub epoch: EpochValues,
}

/// Values of a training epoch.
#[derive(Clone, Debug, Default)]
pub struct EpochValues {
    pub epoch: u64,
    /// The last one.
    pub step: u64,
    pub rows: u64,
    /// Each value times its rows.
    pub sum: f64,
    /// The value of all rows, while they have one.
    pub only: Option<f64>,
}

/// A value with its text, epoch and step.
#[derive(Clone, Debug)]
pub struct Validation {
    pub value: f64,
    pub text: String,
    pub epoch: u64,
    pub step: u64,
}

impl Ends {
    /// The mean over the rows of the last training epoch, where it has values.
    pub fn epoch_mean(&self) -> Option<f64> {
        self.epoch.mean().map(|(_, mean)| mean)
    }

    /// The means of all training epochs, each at its last step.
    pub fn means(self) -> Series {
        let mut means = Series::default();
        let push = |means: &mut Series, own: &EpochValues| {
            own.mean().into_iter().for_each(|(step, mean)| means.push(step as f64, mean));
        };
        self.first.iter().for_each(|own| push(&mut means, own));
        means.append(self.means);
        push(&mut means, &self.epoch);
        means
    }

    /// Adds rows of an epoch, where 0 stands for none.
    pub fn add(&mut self, added: EpochValues) {
        if added.epoch != self.epoch.epoch && added.epoch > 0 && self.epoch.epoch > 0 {
            self.end_epoch();
        }
        self.epoch.add(added);
    }

    fn end_epoch(&mut self) {
        let ended = std::mem::take(&mut self.epoch);
        if self.first.is_none() {
            self.first = Some(ended);
        } else if let Some((step, mean)) = ended.mean() {
            self.means.push(step as f64, mean);
        }
    }

    /// Adds what is known of the lines that follow.
    pub fn append(&mut self, later: Self) {
        for (side, (known, found)) in self.extremes.iter_mut().zip(later.extremes).enumerate() {
            if let Some(found) = found {
                keep(side, known, found.value, || found);
            }
        }
        self.validation = later.validation.or(self.validation.take());
        self.train = later.train.or(self.train);
        if let Some(first) = later.first {
            self.add(first);
            self.end_epoch();
            self.means.append(later.means);
        }
        self.add(later.epoch);
    }
}

impl EpochValues {
    /// Its last step, and the mean over its rows.
    fn mean(&self) -> Option<(u64, f64)> {
        // Sums are rounded.
        (self.rows > 0).then(|| (self.step, self.only.unwrap_or(self.sum / self.rows as f64)))
    }

    /// Adds rows of the same epoch.
    fn add(&mut self, added: Self) {
        if added.epoch > 0 {
            self.epoch = added.epoch;
        }
        if added.rows > 0 {
            let equal = |own: &f64| added.only == Some(*own);
            self.only = if self.rows == 0 { added.only } else { self.only.filter(equal) };
            self.step = added.step;
            self.rows += added.rows;
            self.sum += added.sum;
        }
    }
}

/// Keeps the lower value (side 0) or the higher one (side 1), the first of equal ones.
pub fn keep(side: usize, known: &mut Option<Validation>, value: f64, found: impl FnOnce() -> Validation) {
    let sign = if side == 0 { 1.0 } else { -1.0 };
    if !value.is_nan() && known.as_ref().is_none_or(|known| sign * value < sign * known.value) {
        *known = Some(found());
    }
}
