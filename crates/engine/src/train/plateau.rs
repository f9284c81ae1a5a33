//! The learning rate of a plateau: `torch.optim.lr_scheduler.ReduceLROnPlateau`, whose `mode` follows from the metric.

use crate::{
    event::{PlateauState, ValidationRow},
    spec::{Monitor, Plateau, ThresholdMode},
    units,
};

/// A rate that falls when validations no longer improve.
#[derive(Clone, Debug)]
pub struct PlateauRate {
    rule: Plateau,
    pub state: PlateauState,
}

impl PlateauRate {
    /// Begins with the rate `lr`.
    pub fn new(rule: &Plateau, lr: f64) -> Self {
        let state = PlateauState { lr, best: None, waited: 0, cooldown: 0 };
        Self { rule: rule.clone(), state }
    }

    fn metric(&self) -> Monitor {
        self.rule.metric.unwrap_or(Monitor::LOSS)
    }

    /// Judges a validation, in the order of PyTorch's `step`. Returns a line on the rate if it falls.
    pub fn observe(&mut self, row: &ValidationRow) -> Option<String> {
        let value = row.value(self.metric())?;
        if self.is_better(value) {
            (self.state.best, self.state.waited) = (Some(value), 0);
        } else {
            self.state.waited += 1;
        }
        if self.state.cooldown > 0 {
            self.state.cooldown -= 1;
            self.state.waited = 0;
        }
        if self.state.waited <= self.rule.patience {
            return None;
        }
        let waited = std::mem::take(&mut self.state.waited);
        self.state.cooldown = self.rule.cooldown;
        let before = self.state.lr;
        let lr = (before * self.rule.factor).max(self.rule.min_lr);
        // Also where the rate is below `min_lr` already.
        if before - lr <= self.rule.eps {
            return None;
        }
        self.state.lr = lr;
        let [before, lr] = [before, lr].map(|lr| units::shortest(lr as f32));
        let (waited, name) = (units::counted(waited, "validation"), self.metric().column());
        let best = match self.state.best {
            Some(best) => format!("on a validation {name} of {}", units::shortest(best as f32)),
            None => format!("(no validation {name} was a finite number)"),
        };
        let [epoch, step] = [row.epoch, row.step].map(units::count);
        Some(format!(
            "epoch {epoch}, step {step}: the learning rate falls from {before} to {lr}: {waited} without an improvement {best}"
        ))
    }

    /// `_is_better` in PyTorch's source. NaN never is.
    fn is_better(&self, value: f64) -> bool {
        let (threshold, is_up) = (self.rule.threshold, self.metric().metric().more_is_better());
        let best = self.state.best.unwrap_or(if is_up { f64::NEG_INFINITY } else { f64::INFINITY });
        match (self.rule.threshold_mode, is_up) {
            (ThresholdMode::Rel, false) => value < best * (1.0 - threshold),
            (ThresholdMode::Rel, true) => value > best * (1.0 + threshold),
            (ThresholdMode::Abs, false) => value < best - threshold,
            (ThresholdMode::Abs, true) => value > best + threshold,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rates after each validation.
    fn rates(metric: Monitor, threshold_mode: ThresholdMode, values: [f64; 12]) -> Vec<f64> {
        let (metric, threshold) = (Some(metric), 0.1);
        let rule = Plateau {
            factor: 0.5,
            patience: 1,
            threshold,
            threshold_mode,
            cooldown: 1,
            min_lr: 0.2,
            eps: 0.06,
            metric,
        };
        let mut rate = PlateauRate::new(&rule, 1.0);
        let observe = |value: f64| {
            let scores = [("r2".to_owned(), value)].into();
            let loss = if metric == Some(Monitor::LOSS) { value } else { 0.0 };
            rate.observe(&ValidationRow {
                step: 1,
                epoch: 1,
                rows: 1,
                loss,
                scores,
                ..ValidationRow::default()
            });
            rate.state.lr
        };
        values.into_iter().map(observe).collect()
    }

    /// Made with torch 2.15.0: `ReduceLROnPlateau(SGD(lr=1.0), mode, threshold_mode=..., threshold=0.1, factor=0.5, patience=1,
    /// cooldown=1, min_lr=0.2, eps=0.06)`. The last reduction would be from 0.25 to 0.2, less than `eps`.
    #[test]
    fn rates_are_those_of_pytorch() {
        use ThresholdMode::{Abs, Rel};
        let above = [0.5, 0.52, 0.6, 0.6, f64::NAN, 0.55, 0.7, 0.68, 0.7, 0.69, 0.7, 0.7];
        let below = [-1.0, -1.05, -1.2, -1.2, f64::NAN, -1.1, -1.31, -1.3, -1.3, -1.3, -1.3, -1.3];
        // How often each of the rates 1, 0.5 and 0.25 stood.
        for (metric, mode, values, counts) in [
            (Monitor::LOSS, Rel, above, [2, 3, 7]),
            (Monitor::LOSS, Abs, above, [2, 3, 7]),
            (Monitor::LOSS, Rel, below, [12, 0, 0]),
            (Monitor::LOSS, Abs, below, [4, 4, 4]),
            (Monitor::R2, Rel, above, [4, 4, 4]),
            (Monitor::R2, Abs, above, [2, 3, 7]),
            (Monitor::R2, Rel, below, [3, 4, 5]),
            (Monitor::R2, Abs, below, [2, 3, 7]),
        ] {
            let wanted = [1.0, 0.5, 0.25].into_iter().zip(counts).flat_map(|(lr, n)| vec![lr; n]);
            assert_eq!(
                rates(metric, mode, values),
                wanted.collect::<Vec<_>>(),
                "{metric:?} {mode} {values:?}"
            );
        }
    }
}
