//! The facts about the data that planning needs.

const NUMBER_BYTES: u64 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatasetInfo {
    pub train_rows: usize,
    pub validation_rows: usize,
    pub features: usize,
    pub targets: usize,
    /// Number of classes; `None` for a regression.
    pub classes: Option<usize>,
    /// Bytes of a row's features in the file, if features are read from there during the run.
    pub file_row_bytes: Option<u64>,
    /// Equal for equal data.
    pub digest: u64,
}

impl DatasetInfo {
    pub fn in_file(&self) -> bool {
        self.file_row_bytes.is_some()
    }

    pub(super) fn rows(&self) -> u64 {
        (self.train_rows as u64).saturating_add(self.validation_rows as u64)
    }

    /// Bytes of a row in memory: features and targets.
    pub(super) fn row_bytes(&self) -> u64 {
        NUMBER_BYTES.saturating_mul((self.features as u64).saturating_add(self.targets as u64))
    }

    /// Bytes of all rows in memory: only the targets if features stay in their file.
    pub(super) fn resident_bytes(&self) -> u64 {
        let row_bytes = match self.in_file() {
            true => NUMBER_BYTES.saturating_mul(self.targets as u64),
            false => self.row_bytes(),
        };
        self.rows().saturating_mul(row_bytes)
    }
}
