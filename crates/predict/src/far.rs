//! Values far from those that the model was trained on, and other ones where all of those were the same.

use crate::{
    data::{RowBlock, Scale, TrainedData},
    units,
};

/// Standard deviations from the mean of the training rows beyond which a value is far.
const FAR: f32 = 10.0;

/// Columns that are warned of one by one.
const SHOWN: usize = 10;

/// Counts far values in standardized columns.
pub struct Far {
    columns: Vec<Column>,
    rows: usize,
}

/// A standardized feature.
struct Column {
    feature: usize,
    name: String,
    /// Whether all training rows have the same value.
    constant: bool,
    /// The number of its far values.
    count: usize,
}

impl Far {
    pub fn new(data: &TrainedData) -> Self {
        let column = |(feature, name, scale): (usize, String, Scale)| {
            let constant = scale.constant;
            Column { feature, name, constant, count: 0 }
        };
        Self { columns: data.standardized().into_iter().map(column).collect(), rows: 0 }
    }

    /// Takes preprocessed rows.
    pub fn see(&mut self, block: &RowBlock) {
        let width = block.features.len() / block.rows.max(1);
        for row in block.features.chunks_exact(width.max(1)) {
            for column in &mut self.columns {
                let most = if column.constant { 0.0 } else { FAR };
                column.count += usize::from(row.get(column.feature).is_some_and(|value| value.abs() > most));
            }
        }
        self.rows += block.rows;
    }

    /// A sentence for each column with such values.
    pub fn warnings(&self) -> Vec<String> {
        let found = || self.columns.iter().filter(|column| column.count > 0);
        let words = |Column { name, constant, count, .. }: &Column| {
            let far = format!("more than {FAR} standard deviations from the training rows' mean");
            let what = match (*constant, *count) {
                (true, 1) => {
                    "is not the one that all training rows have: the model has learned nothing of it"
                }
                (true, _) => {
                    "are not the one that all training rows have: the model has learned nothing of them"
                }
                (false, 1) => &format!("lies {far}"),
                (false, _) => &format!("lie {far}"),
            };
            format!(
                "{name}: {} of {} {what}",
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
