//! Rows that stay in memory because they go through the model many times.

use crate::{
    data::RowBlock,
    random::{Purpose, Rng, fast_stream},
};

/// All rows; of more than fit, a random sample without replacement.
pub struct RowSample {
    /// `[rows, width]`, preprocessed.
    pub features: Vec<f32>,
    /// `[rows, targets]`, each row with its weight if it has one.
    pub targets: Vec<f32>,
    pub rows: usize,
    /// The number of rows from which they are drawn.
    pub of: usize,
    most: usize,
    seed: u64,
}

impl RowSample {
    pub fn new(most: usize, seed: u64) -> Self {
        Self { features: Vec::new(), targets: Vec::new(), rows: 0, of: 0, most, seed }
    }

    /// Takes rows by Vitter's algorithm R (1985): once the sample is full, the n-th row replaces a random one with
    /// the probability `most / n`.
    pub fn see(&mut self, block: &RowBlock) {
        let [width, targets] =
            [&block.features, &block.targets].map(|values| values.len() / block.rows.max(1));
        for row in 0..block.rows {
            let features = &block.features[row * width..][..width];
            let target = &block.targets[row * targets..][..targets];
            let number = self.of;
            self.of += 1;
            if self.rows < self.most {
                self.features.extend_from_slice(features);
                self.targets.extend_from_slice(target);
                self.rows += 1;
                continue;
            }
            let word = fast_stream(self.seed, Purpose::Importance, u64::MAX - number as u64).next_u64();
            let place = ((u128::from(word) * self.of as u128) >> 64) as usize;
            if place < self.most {
                self.features[place * width..][..width].copy_from_slice(features);
                self.targets[place * targets..][..targets].copy_from_slice(target);
            }
        }
    }
}
