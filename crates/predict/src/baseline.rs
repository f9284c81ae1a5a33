//! What a model without features would have: the least that a model must be better than.

use serde_json::{Map, Value, json};

use super::Trained;
use crate::{
    data::Scale,
    host::escape_line,
    spec::{Loss, Metric},
    train::{Errors, Scores},
};

/// The metrics of a model that gives the mean of the evaluated rows, or the shares of their classes.
pub struct Baseline {
    /// In the order of the metrics; `None` where one is not known.
    pub values: Vec<Option<f64>>,
    /// The class that it predicts.
    class: Option<String>,
    /// How many means it gives.
    targets: usize,
}

impl Baseline {
    /// `metrics` are those of the model; `named` gives the same ones from a loss, an accuracy and scores. `targets` has those of all
    /// rows, or none if there were too many.
    pub fn new(
        trained: &Trained,
        scores: &Scores,
        targets: &[f32],
        metrics: &[(String, f64)],
        named: impl Fn(f64, Option<f64>, &Scores) -> Vec<(String, f64)>,
    ) -> Self {
        let own = scores.baseline(targets, trained.data.target_width());
        let (accuracy, class) = match scores {
            Scores::Numbers(_) => (None, None),
            Scores::Classes(all) => {
                let names = trained.data.class_names().unwrap_or_default();
                let most = all.most_frequent();
                (all.shares().nth(most), names.get(most).cloned())
            }
        };
        let known = named(mean_loss(trained, &own, scores), accuracy, &own);
        let value = |(name, value): &(String, f64)| {
            let (_, own) = known.iter().find(|(own, _)| own == name)?;
            (value.is_finite() && own.is_finite()).then_some(*own)
        };
        let targets = if class.is_none() { trained.data.targets() } else { 0 };
        Self { values: metrics.iter().map(value).collect(), class, targets }
    }

    /// A line on what the baseline is.
    ///
    /// With a threshold of the model it still predicts the class of the highest probability.
    pub fn text(&self, has_threshold: bool) -> String {
        let whatever = if has_threshold { ", whatever the threshold" } else { "" };
        let what = match (&self.class, self.targets) {
            (Some(class), _) => format!(
                "predicts `{}`{whatever}, with the shares of the classes in these rows as probabilities",
                escape_line(class)
            ),
            (None, 1) => "predicts the mean of these rows".to_owned(),
            (None, _) => "predicts the means of these rows".to_owned(),
        };
        format!("baseline: a model that always {what}\n")
    }

    /// The baseline of each metric by name, and the class that it predicts.
    pub fn json(&self, metrics: &[(String, f64)]) -> Value {
        let values: Map<_, _> =
            metrics.iter().zip(&self.values).map(|((name, _), value)| (name.clone(), json!(value))).collect();
        match &self.class {
            Some(class) => json!({ "class": class, "metrics": values }),
            None => json!({ "metrics": values }),
        }
    }
}

/// The mean loss in the units of training; NaN where metrics do not tell it.
fn mean_loss(trained: &Trained, baseline: &Scores, scores: &Scores) -> f64 {
    match (trained.spec.model.loss, baseline, scores) {
        // The entropy of the classes. Weights of rows would change the shares.
        (Loss::CrossEntropy, _, Scores::Classes(all)) if trained.data.weight().is_none() => {
            0.0 - all.shares().filter(|share| *share > 0.0).map(|share| share * share.ln()).sum::<f64>()
        }
        (loss @ (Loss::Mse | Loss::L1), Scores::Numbers(errors), _) => {
            let scales = trained.data.target_scales();
            let of_target = |(errors, scale): (&Errors, &Scale)| {
                let of = |metric| errors.value(metric).map_or(f64::NAN, |value| value / scale.std);
                if loss == Loss::L1 { of(Metric::Mae) } else { of(Metric::Rmse).powi(2) }
            };
            errors.iter().zip(&scales).map(of_target).sum::<f64>() / errors.len() as f64
        }
        _ => f64::NAN,
    }
}
