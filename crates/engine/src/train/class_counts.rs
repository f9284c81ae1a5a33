//! Precision, recall and F1 of a class, from a confusion matrix.

/// The rows of one class.
pub struct ClassCounts {
    /// Those that are predicted as this class.
    pub hits: u64,
    /// All rows of this class.
    pub rows: u64,
    /// Rows of any class that are predicted as this one.
    pub predicted: u64,
}

impl ClassCounts {
    /// Each class of a confusion matrix.
    pub fn all(counts: &[u64], classes: usize) -> impl Iterator<Item = Self> + '_ {
        let at = move |row: usize, column: usize| counts[row * classes + column];
        (0..classes).map(move |class| Self {
            hits: at(class, class),
            rows: (0..classes).map(|other| at(class, other)).sum(),
            predicted: (0..classes).map(|other| at(other, class)).sum(),
        })
    }

    /// 0 for a class that is never predicted.
    pub fn precision(&self) -> f64 {
        share(self.hits, self.predicted)
    }

    /// 0 for a class without rows.
    pub fn recall(&self) -> f64 {
        share(self.hits, self.rows)
    }

    /// 0 for a class that does not occur.
    pub fn f1(&self) -> f64 {
        share(2 * self.hits, self.rows + self.predicted)
    }
}

fn share(part: u64, of: u64) -> f64 {
    if of > 0 { part as f64 / of as f64 } else { 0.0 }
}
