//! Values far from those that the model was trained on.

use crate::{
    data::{RowBlock, TrainedData},
    units,
};

/// Standard deviations from the mean of the training rows beyond which a value is far.
const FAR: f32 = 10.0;

/// Columns that are warned of one by one.
const SHOWN: usize = 10;

/// Counts far values in standardized columns.
pub struct Far {
    /// The index of each standardized feature, its name, and the number of its far values.
    columns: Vec<(usize, String, usize)>,
    rows: usize,
}

impl Far {
    pub fn new(data: &TrainedData) -> Self {
        let columns = data.standardized().into_iter().map(|(feature, name)| (feature, name, 0));
        Self { columns: columns.collect(), rows: 0 }
    }

    /// Takes preprocessed rows.
    pub fn see(&mut self, block: &RowBlock) {
        let width = block.features.len() / block.rows.max(1);
        for row in block.features.chunks_exact(width.max(1)) {
            for (feature, _, count) in &mut self.columns {
                *count += usize::from(row.get(*feature).is_some_and(|value| value.abs() > FAR));
            }
        }
        self.rows += block.rows;
    }

    /// A sentence for each column with such values.
    pub fn warnings(&self) -> Vec<String> {
        let found = || self.columns.iter().filter(|(.., count)| *count > 0);
        let words = |(_, name, count): &(usize, String, usize)| {
            let verb = if *count == 1 { "lies" } else { "lie" };
            format!(
                "{name}: {} of {} {verb} more than {FAR} standard deviations from the training rows' mean",
                units::count(*count as u64),
                units::counted(self.rows as u64, "value")
            )
        };
        let more = found().count().saturating_sub(SHOWN);
        let more =
            (more > 0).then(|| format!("{} have such values", units::counted(more as u64, "more column")));
        found().take(SHOWN).map(words).chain(more).collect()
    }
}
