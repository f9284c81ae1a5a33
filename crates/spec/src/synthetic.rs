//! Sources that make their rows: `[data.synthetic_regression]` and `[data.synthetic_classification]`.

use super::reader::{Fields, Rule, finite, non_negative, size, some, table};

table! {
    /// Features from N(0, 1), targets `X w + b` and N(0, noise²).
    pub struct SyntheticRegression {
        /// The true weights, one per feature.
        pub weights: Option<Vec<f64>> = None => some(|v| v.list(1..=1_000_000, finite)),
        /// In their place, the number of weights: they are drawn, a vector of length 1, the same for every seed.
        pub features: Option<usize> = None => some(size),
        /// The true bias.
        pub bias: f64 = 0.0 => finite,
        /// Standard deviation of the noise.
        pub noise: f64 = 0.01 => non_negative,
        /// Rows to train on.
        pub train_rows: usize = 1000 => size,
        /// Rows to validate on; 0 for none.
        pub validation_rows: usize = 1000 => |v| v.size(0),
    }
    check check
}

table! {
    /// Rows around one centre per class: each row's class is drawn, and its features are those of the centre and N(0, 1).
    pub struct SyntheticClassification {
        /// Features per row.
        pub features: usize => size,
        /// Number of classes.
        pub classes: u32 => |v| v.integer(2..=10_000) as u32,
        /// The distance between two centres, as root mean square, in standard deviations of the rows around them. The centres are
        /// drawn, the same for every seed.
        pub separation: f64 = 3.0 => non_negative,
        /// Rows to train on.
        pub train_rows: usize = 1000 => size,
        /// Rows to validate on; 0 for none.
        pub validation_rows: usize = 1000 => |v| v.size(0),
    }
}

impl SyntheticRegression {
    fn check(&mut self, t: &mut Fields<'_>) {
        t.rule(Rule::Either("weights", "features"));
        t.rule(Rule::Exclude("weights", "features"));
    }

    /// What it makes.
    pub fn made(&self) -> Synthetic {
        Synthetic {
            table: "data.synthetic_regression",
            train_key: "data.synthetic_regression.train_rows",
            train_rows: self.train_rows,
            validation_key: "data.synthetic_regression.validation_rows",
            validation_rows: self.validation_rows,
            features: self.weights.as_ref().map(Vec::len).or(self.features).unwrap_or(0),
            parameters_key: "data.synthetic_regression.features",
            parameter_vectors: 1,
        }
    }
}

impl SyntheticClassification {
    /// What it makes.
    pub fn made(&self) -> Synthetic {
        Synthetic {
            table: "data.synthetic_classification",
            train_key: "data.synthetic_classification.train_rows",
            train_rows: self.train_rows,
            validation_key: "data.synthetic_classification.validation_rows",
            validation_rows: self.validation_rows,
            features: self.features,
            parameters_key: "data.synthetic_classification.classes",
            parameter_vectors: self.classes as usize,
        }
    }
}

/// What the sources that make their rows have in common.
#[derive(Clone, Copy, Debug)]
pub struct Synthetic {
    /// The source's table.
    pub table: &'static str,
    /// The key of `train_rows`.
    pub train_key: &'static str,
    /// Rows to train on.
    pub train_rows: usize,
    /// The key of `validation_rows`.
    pub validation_key: &'static str,
    /// Rows to validate on.
    pub validation_rows: usize,
    /// Features per row.
    pub features: usize,
    /// The key that makes the parameters of the rows many.
    pub parameters_key: &'static str,
    /// Vectors of as many numbers as features that the rows are made from: one of weights, or a centre per class.
    pub parameter_vectors: usize,
}
