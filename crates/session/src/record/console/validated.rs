//! What the validations of a run measured, for the line at its end.

use super::{super::messages::since_resume, sparkline::sparkline};
use crate::{
    event::{Best, Header, Outcome, ValidationRow},
    spec::Metric,
    units,
};

/// Maximum metrics beside the loss that are shown.
const MOST: usize = 3;

/// What the validations measured.
#[derive(Default)]
pub(super) struct Validated {
    /// Every loss.
    pub(super) curve: Vec<f64>,
    /// The logged metrics of the last validation, without the loss.
    last: Vec<(Metric, f64)>,
    /// The step of the best validation, and its logged metrics.
    best: (u64, Vec<(Metric, f64)>),
}

impl Validated {
    /// Takes a validation.
    pub(super) fn see(&mut self, header: &Header, row: &ValidationRow, is_best: bool) {
        self.curve.push(row.loss);
        let others = header.metrics.iter().filter(|metric| **metric != Metric::Loss);
        self.last = others.filter_map(|metric| Some((*metric, row.measured(*metric)?))).take(MOST).collect();
        if is_best {
            self.best = (row.step, self.last.clone());
        }
    }

    /// `0.1000; best 0.05000 in epoch 1, step 3, mae 43.12  █▁▂`: the metrics are those of the best validation. `None`
    /// if nothing was validated.
    pub(super) fn in_words(&self, outcome: &Outcome) -> Option<String> {
        let loss = units::number(outcome.final_validation_loss?);
        let accuracy = outcome.final_validation_accuracy;
        let accuracy = accuracy.map(|a| format!(", accuracy {}", units::percent(a))).unwrap_or_default();
        let best = match best_in_words(outcome) {
            None => metrics_in_words(&self.last, Some(Metric::Accuracy)),
            Some((best, monitored)) => {
                let (step, metrics) = &self.best;
                // A resumed run has not seen the validations before.
                let is_seen = outcome.best.is_some_and(|best| best.step == *step);
                let metrics = if is_seen { metrics_in_words(metrics, monitored) } else { String::new() };
                format!("; {best}{metrics}")
            }
        };
        let curve = sparkline(&self.curve).map(|curve| format!("  {curve}{}", since_resume(outcome)));
        let curve = curve.unwrap_or_default();
        Some(format!("{loss}{accuracy}{best}{curve}"))
    }
}

/// `, mae 43.12, r2 0.5000`: the metrics but the one that is shown already.
fn metrics_in_words(metrics: &[(Metric, f64)], shown: Option<Metric>) -> String {
    let others = metrics.iter().filter(|(metric, _)| Some(*metric) != shown);
    let words = others.map(|(metric, value)| match metric {
        Metric::Accuracy => format!(", accuracy {}", units::percent(*value)),
        _ => format!(", {metric} {}", units::number(*value)),
    });
    words.collect()
}

/// The best validation, if it is not the last one, and the metric that chose it, unless that is of one target.
fn best_in_words(outcome: &Outcome) -> Option<(String, Option<Metric>)> {
    let Best { monitor, value, epoch, step, .. } = outcome.best?;
    let metric = monitor.metric();
    let (words, is_last) = match metric {
        Metric::Loss => (units::number(value), outcome.final_validation_loss == Some(value)),
        Metric::Accuracy => {
            let is_last = outcome.final_validation_accuracy == Some(value);
            (format!("accuracy {}", units::percent(value)), is_last)
        }
        _ => (format!("{} {}", monitor.column(), units::number(value)), step == outcome.steps),
    };
    let words = format!("best {words} in epoch {}, step {}", units::count(epoch), units::count(step));
    let metric = monitor.target().is_none().then_some(metric);
    (!is_last).then_some((words, metric))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::sample;

    /// Those of the best validation follow it; the last ones are shown where it is the best.
    #[test]
    fn the_metrics_that_the_spec_logs() {
        let header = Header { metrics: vec![Metric::Loss, Metric::Mae, Metric::R2], ..sample::header() };
        let mut validated = Validated::default();
        for (step, loss, mae, r2, is_best) in [(3, 0.05, 43.125, 0.5, true), (6, 0.1, 52.0, 0.25, false)] {
            let scores =
                [("mae", mae), ("r2", r2), ("rmse", 99.0)].map(|(name, value)| (name.to_owned(), value));
            let row = ValidationRow {
                step,
                epoch: step / 3,
                loss,
                scores: scores.into(),
                ..ValidationRow::default()
            };
            validated.see(&header, &row, is_best);
        }
        let outcome = Outcome { final_validation_accuracy: None, ..sample::outcome() };
        let words = |outcome: &Outcome| validated.in_words(outcome).unwrap();
        assert_eq!(words(&outcome), "0.1000; best 0.05000 in epoch 1, step 3, mae 43.12, r2 0.5000");
        let best = outcome.best.map(|best| Best { step: 2, ..best });
        let resumed = Outcome { best, ..outcome.clone() };
        assert_eq!(words(&resumed), "0.1000; best 0.05000 in epoch 1, step 2");
        let best = outcome.best.map(|best| Best { value: 0.1, ..best });
        assert_eq!(words(&Outcome { best, ..outcome }), "0.1000, mae 52.00, r2 0.2500");
    }
}
