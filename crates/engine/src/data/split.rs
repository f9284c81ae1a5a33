//! The seeded split into training and validation rows.

use crate::{
    host::prefer_huge_pages,
    random::{self, Purpose},
    spec::Problem,
};

/// A split into training and validation rows; both keep the order of the file.
#[derive(Debug)]
pub(super) struct Split {
    /// Whether each row belongs to validation; empty if none does.
    validates: Vec<bool>,
    rows: usize,
    validation_rows: usize,
}

impl Split {
    /// All rows belong to training.
    pub(super) fn none(rows: usize) -> Self {
        Self { validates: Vec::new(), rows, validation_rows: 0 }
    }

    /// `round(fraction * rows)` rows belong to validation, chosen by the seed. `key` is the fraction's key; the spec has
    /// checked that it is below 1.
    pub(super) fn by_fraction(seed: u64, rows: usize, fraction: f64, key: &str) -> Result<Self, Problem> {
        let validation_rows = (fraction * rows as f64).round() as usize;
        if validation_rows == 0 {
            return Ok(Self::none(rows));
        }
        let (Ok(count), true) = (u32::try_from(rows), validation_rows < rows) else {
            let message = format!("`{fraction}` of {rows} rows leaves no row to train on");
            return Err(Problem::at_key(key, message).hint("use a smaller fraction, or 0 for no validation"));
        };
        // A partial shuffle draws without repetition.
        let mut rng = random::fast_stream(seed, Purpose::Split, 0);
        let mut order: Vec<u32> = (0..count).collect();
        let mut validates = vec![false; rows];
        for first in 0..validation_rows {
            let chosen = first + random::below(&mut rng, count - first as u32) as usize;
            order.swap(first, chosen);
            validates[order[first] as usize] = true;
        }
        Ok(Self { validates, rows, validation_rows })
    }

    pub(super) fn train_rows(&self) -> usize {
        self.rows - self.validation_rows
    }

    pub(super) fn validation_rows(&self) -> usize {
        self.validation_rows
    }

    /// Whether a row belongs to validation.
    #[inline]
    pub(super) fn validates(&self, row: usize) -> bool {
        self.validates.get(row).copied().unwrap_or(false)
    }

    /// Indices of the validation or of the training rows, in file order.
    pub(super) fn rows_of(&self, validation: bool) -> impl Iterator<Item = usize> + Clone + '_ {
        (0..self.rows).filter(move |&row| self.validates(row) == validation)
    }

    /// Splits `values`, `width` per row, into training and validation values.
    pub(super) fn apply(&self, values: Vec<f32>, width: usize) -> (Vec<f32>, Vec<f32>) {
        if self.validation_rows == 0 {
            return (values, Vec::new());
        }
        let mut train = Vec::with_capacity(self.train_rows() * width);
        prefer_huge_pages(train.spare_capacity_mut());
        let mut validation = Vec::with_capacity(self.validation_rows * width);
        for (row, values) in values.chunks_exact(width.max(1)).enumerate() {
            if self.validates(row) { &mut validation } else { &mut train }.extend_from_slice(values);
        }
        (train, validation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "data.csv.validation_fraction";

    fn split(seed: u64, rows: usize, fraction: f64) -> Split {
        Split::by_fraction(seed, rows, fraction, KEY).map_err(|problem| problem.message).expect("a split")
    }

    #[test]
    fn numbers_are_frozen() {
        assert_eq!(split(0, 20, 0.25).rows_of(true).collect::<Vec<_>>(), [0, 4, 7, 17, 19]);
    }

    #[test]
    fn takes_the_rounded_part_and_keeps_the_order() {
        for (rows, fraction, expected) in [(10, 0.2, 2), (7, 0.5, 4), (3, 0.1, 0), (1000, 0.999, 999)] {
            let split = split(3, rows, fraction);
            assert_eq!((split.validation_rows(), split.train_rows()), (expected, rows - expected));
            let (train, validation): (Vec<_>, Vec<_>) =
                (split.rows_of(false).collect(), split.rows_of(true).collect());
            assert!(train.is_sorted() && validation.is_sorted());
            let mut all = [train, validation].concat();
            all.sort_unstable();
            assert!(all.into_iter().eq(0..rows));
        }
        assert_ne!(
            split(1, 100, 0.2).rows_of(true).collect::<Vec<_>>(),
            split(2, 100, 0.2).rows_of(true).collect::<Vec<_>>()
        );
    }

    #[test]
    fn refuses_what_leaves_nothing() {
        let message = |rows, fraction| Split::by_fraction(0, rows, fraction, KEY).err().map(|p| p.message);
        assert_eq!(message(2, 0.9).as_deref(), Some("`0.9` of 2 rows leaves no row to train on"));
        assert_eq!(message(0, 0.5), None);
    }
}
