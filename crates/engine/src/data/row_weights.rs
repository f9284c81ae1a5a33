//! How much rows weigh together: a row's weight follows its targets.

use super::{Dataset, Part, TrainedData};

impl Dataset {
    /// The sum of the weights of a part's rows; without weights their number.
    pub fn weight_of(&self, part: &Part) -> f64 {
        sum(&part.targets, self.target_width(), self.weighted)
    }
}

impl TrainedData {
    /// The sum of the weights of rows of targets; without weights the number of rows.
    pub fn weight_of(&self, targets: &[f32]) -> f64 {
        sum(targets, self.target_width(), self.weight().is_some())
    }
}

fn sum(targets: &[f32], width: usize, weighted: bool) -> f64 {
    let rows = targets.chunks_exact(width);
    match weighted {
        true => rows.map(|row| f64::from(row[width - 1])).sum(),
        false => rows.len() as f64,
    }
}
