//! The facts about the data that planning needs.

const NUMBER_BYTES: u64 = 4;

/// The mean and the standard deviation of all numbers of the targets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TargetSpread {
    pub mean: f64,
    pub deviation: f64,
}

impl TargetSpread {
    /// `None` without targets.
    pub fn new(targets: impl Iterator<Item = f32> + Clone) -> Option<Self> {
        let count = targets.clone().count();
        let mean_of = |value: &dyn Fn(f64) -> f64| {
            targets.clone().map(|target| value(f64::from(target))).sum::<f64>() / count as f64
        };
        let mean = mean_of(&|target| target);
        let deviation = mean_of(&|target| (target - mean).powi(2)).sqrt();
        (count > 0).then_some(Self { mean, deviation })
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DatasetInfo {
    pub train_rows: usize,
    pub validation_rows: usize,
    pub features: usize,
    pub targets: usize,
    /// Whether the row's weight follows them.
    pub weighted: bool,
    /// Number of classes; `None` for a regression.
    pub classes: Option<usize>,
    /// Statistics of the training rows; `None` for classes.
    pub target_spread: Option<TargetSpread>,
    /// Bytes of a row's features in the file, if features are read from there during the run.
    pub file_row_bytes: Option<u64>,
    /// Equal for equal data.
    pub digest: u64,
}

impl DatasetInfo {
    pub fn in_file(&self) -> bool {
        self.file_row_bytes.is_some()
    }

    /// Elements of a target and its weight.
    pub fn target_width(&self) -> usize {
        self.targets + usize::from(self.weighted)
    }

    pub(super) fn rows(&self) -> u64 {
        (self.train_rows as u64).saturating_add(self.validation_rows as u64)
    }

    /// Bytes of a row in memory: features and targets.
    pub(super) fn row_bytes(&self) -> u64 {
        NUMBER_BYTES.saturating_mul((self.features as u64).saturating_add(self.target_width() as u64))
    }

    /// Bytes of all rows in memory: only the targets if features stay in their file.
    pub(super) fn resident_bytes(&self) -> u64 {
        let row_bytes = match self.in_file() {
            true => NUMBER_BYTES.saturating_mul(self.target_width() as u64),
            false => self.row_bytes(),
        };
        self.rows().saturating_mul(row_bytes)
    }
}
