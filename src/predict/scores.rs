//! Metrics that follow from predictions alone, with the definitions of scikit-learn: of numbers in the units of the
//! training file, averaged over the targets, and of classes, averaged over those that occur (`macro`).

use super::output::largest;
use crate::data::TrainedData;

/// What is added up row by row.
pub enum Scores {
    /// One for each target.
    Numbers(Vec<Errors>),
    Classes(Confusion),
}

/// Errors of one target, and how its true values spread.
#[derive(Clone, Default)]
pub struct Errors {
    rows: f64,
    absolute: f64,
    squared: f64,
    mean: f64,
    /// The sum of squared differences from the mean.
    spread: f64,
}

/// Rows by their class (the rows of the matrix) and the predicted one.
pub struct Confusion {
    pub classes: usize,
    pub counts: Vec<u64>,
}

impl Scores {
    pub fn new(data: &TrainedData, outputs: usize) -> Self {
        match data.class_names() {
            Some(_) => Self::Classes(Confusion { classes: outputs, counts: vec![0; outputs * outputs] }),
            None => Self::Numbers(vec![Errors::default(); outputs]),
        }
    }

    /// Adds rows: `[rows, outputs]`, and `[rows, outputs]` numbers or `[rows]` classes.
    pub fn add(&mut self, data: &TrainedData, predictions: &[f32], targets: &[f32]) {
        match self {
            Self::Numbers(errors) => {
                let pairs = predictions.chunks_exact(errors.len()).zip(targets.chunks_exact(errors.len()));
                for (predicted, actual) in pairs {
                    for ((errors, predicted), actual) in errors.iter_mut().zip(predicted).zip(actual) {
                        errors.add(data.original((*predicted).into()), data.original((*actual).into()));
                    }
                }
            }
            Self::Classes(confusion) => {
                for (outputs, actual) in predictions.chunks_exact(confusion.classes).zip(targets) {
                    confusion.counts[*actual as usize * confusion.classes + largest(outputs)] += 1;
                }
            }
        }
    }

    /// Names and values.
    pub fn metrics(&self) -> Vec<(&'static str, f64)> {
        match self {
            Self::Numbers(errors) => {
                let over = |metric: fn(&Errors) -> f64| mean(errors.iter().map(metric));
                vec![("mae", over(Errors::mae)), ("rmse", over(Errors::rmse)), ("r2", over(Errors::r2))]
            }
            Self::Classes(confusion) => {
                let over =
                    |metric: fn(&Counts) -> f64| mean(confusion.occurring().map(|class| metric(&class)));
                vec![
                    ("f1", over(Counts::f1)),
                    ("precision", over(Counts::precision)),
                    ("recall", over(Counts::recall)),
                ]
            }
        }
    }
}

impl Errors {
    fn add(&mut self, predicted: f64, actual: f64) {
        let error = predicted - actual;
        (self.absolute, self.squared) = (self.absolute + error.abs(), self.squared + error * error);
        // Welford's sums keep their digits where values are large and spread little.
        self.rows += 1.0;
        let from_mean = actual - self.mean;
        self.mean += from_mean / self.rows;
        self.spread += from_mean * (actual - self.mean);
    }

    fn mae(&self) -> f64 {
        self.absolute / self.rows
    }

    fn rmse(&self) -> f64 {
        (self.squared / self.rows).sqrt()
    }

    /// For equal true values: 1 if all are hit, else 0.
    fn r2(&self) -> f64 {
        match (self.squared > 0.0, self.spread > 0.0) {
            _ if self.rows < 2.0 => f64::NAN,
            (_, true) => 1.0 - self.squared / self.spread,
            (is_wrong, false) => f64::from(u8::from(!is_wrong)),
        }
    }
}

/// Counts of one class.
struct Counts {
    hits: f64,
    actual: f64,
    predicted: f64,
}

impl Confusion {
    /// The classes that occur, in the rows or in the predictions.
    fn occurring(&self) -> impl Iterator<Item = Counts> + '_ {
        let at = |row: usize, column: usize| self.counts[row * self.classes + column] as f64;
        let counts = move |class| Counts {
            hits: at(class, class),
            actual: (0..self.classes).map(|other| at(class, other)).sum(),
            predicted: (0..self.classes).map(|other| at(other, class)).sum(),
        };
        (0..self.classes).map(counts).filter(|class| class.actual + class.predicted > 0.0)
    }
}

impl Counts {
    /// 0 for a class that is never predicted.
    fn precision(&self) -> f64 {
        if self.predicted > 0.0 { self.hits / self.predicted } else { 0.0 }
    }

    /// 0 for a class that has no row.
    fn recall(&self) -> f64 {
        if self.actual > 0.0 { self.hits / self.actual } else { 0.0 }
    }

    fn f1(&self) -> f64 {
        2.0 * self.hits / (self.actual + self.predicted)
    }
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    sum / count
}
