//! Sources that make their rows: `[data.synthetic_regression]` and `[data.synthetic_classification]`.

use super::{
    data::Source,
    reader::{Fields, Rule, finite, non_negative, size, some, table},
};

table! {
    /// Features from N(0, 1), targets `X w + b` and N(0, noise²).
    pub struct SyntheticRegression {
        /// The true weights, one per feature.
        pub weights: Option<Vec<f64>> = None => some(|v| v.list(1..=1_000_000, finite)),
        /// In their place, how many weights the run's seed draws, from N(0, 1/features).
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
        pub classes: u32 => |v| v.integer(2..=1_000_000) as u32,
        /// Distance between two centres, in standard deviations of the rows around them: the centres are drawn from
        /// N(0, separation² / (2 features)). Of two classes 3 apart, the best model mistakes 6.7 %.
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
            keys: [
                "data.synthetic_regression.train_rows",
                "data.synthetic_regression.validation_rows",
                "data.synthetic_regression.features",
            ],
            features: self.weights.as_ref().map(Vec::len).or(self.features).unwrap_or(0),
            train_rows: self.train_rows,
            validation_rows: self.validation_rows,
            lists: 1,
        }
    }
}

impl SyntheticClassification {
    /// What it makes.
    pub fn made(&self) -> Synthetic {
        Synthetic {
            keys: [
                "data.synthetic_classification.train_rows",
                "data.synthetic_classification.validation_rows",
                "data.synthetic_classification.classes",
            ],
            features: self.features,
            train_rows: self.train_rows,
            validation_rows: self.validation_rows,
            lists: self.classes as usize,
        }
    }
}

/// What the sources that make their rows have in common.
#[derive(Clone, Copy, Debug)]
pub struct Synthetic {
    /// The keys with the numbers of rows to train on, of those to validate on, and of `lists`, or how long these are.
    pub keys: [&'static str; 3],
    /// Features per row.
    pub features: usize,
    /// Rows to train on.
    pub train_rows: usize,
    /// Rows to validate on.
    pub validation_rows: usize,
    /// How many lists of as many numbers as features make the rows: one of weights, or one per class.
    pub lists: usize,
}

impl Source {
    /// What the source makes; `None` if it reads its rows.
    pub fn synthetic(&self) -> Option<Synthetic> {
        match self {
            Self::SyntheticRegression(s) => Some(s.made()),
            Self::SyntheticClassification(s) => Some(s.made()),
            _ => None,
        }
    }
}
