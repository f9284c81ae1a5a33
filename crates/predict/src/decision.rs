//! Which of two classes is predicted, if a user does not want the more probable one.

use super::{PredictError, Trained, forward::quoted};
use crate::{host::escape_line, train::DecisionRule};

/// How a class is chosen of two.
#[derive(Clone, Copy, Default)]
pub struct DecisionRequest<'a> {
    /// The positive class is predicted where its probability is at least this; above 0, at most 1.
    pub threshold: Option<f64>,
    /// The class that counts as positive; the second by default.
    pub positive: Option<&'a str>,
    /// Whether metrics are wanted at several thresholds.
    pub table: bool,
}

/// The rule that a request means for a model.
#[derive(Default)]
pub struct Decision {
    pub rule: DecisionRule,
    pub threshold: Option<f64>,
    /// A line on the threshold; empty without one.
    pub text: String,
}

impl Decision {
    /// # Errors
    /// The model has not two classes, or none that is called so.
    pub fn new(trained: &Trained, request: &DecisionRequest<'_>) -> Result<Self, PredictError> {
        let DecisionRequest { threshold, positive, table } = *request;
        let option = match (threshold, positive, table) {
            (Some(_), ..) => "--threshold",
            (_, _, true) => "--thresholds",
            (_, Some(_), _) => "--positive",
            (None, None, false) => return Ok(Self::default()),
        };
        let names = trained.data.class_names().filter(|names| names.len() == 2);
        let Some(names) = names else {
            let classes = trained.spec.model.loss.classifies().then_some(trained.outputs);
            return Err(PredictError::NotTwoClasses { option, classes });
        };
        let positive = match positive {
            None => DecisionRule::default().positive,
            Some(name) => names.iter().position(|own| own == name).ok_or_else(|| {
                PredictError::NoSuchClass { name: name.to_owned(), classes: quoted(&names) }
            })?,
        };
        let [class, other] = [positive, 1 - positive].map(|class| escape_line(&names[class]));
        let text = threshold.map(|threshold| {
            format!(
                "threshold: `{class}` where its probability is at least {threshold}, otherwise `{other}`\n"
            )
        });
        let rule = DecisionRule { positive, threshold: threshold.map(|value| value as f32) };
        Ok(Self { rule, threshold, text: text.unwrap_or_default() })
    }
}
