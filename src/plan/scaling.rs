//! `batch_size` and the learning rate on several devices.

use super::Trial;
use crate::{
    spec::{Curve, LrScaling, Optimizer, Rule, Scaling, Schedule, Spec},
    units,
};

/// Rows of a step over all devices, before the training rows cap it.
pub fn global_batch(spec: &Spec, devices: usize) -> usize {
    match spec.devices.scaling {
        Scaling::Strong => spec.data.batch_size,
        Scaling::Weak => spec.data.batch_size.saturating_mul(devices.max(1)),
    }
}

impl Trial {
    /// The number of devices.
    pub fn world_size(&self) -> usize {
        self.devices.used.len()
    }

    /// Rows of a step, over all devices and on one: under weak scaling the step's rows grow with the devices, if there are
    /// enough rows.
    fn batches(&self) -> [usize; 2] {
        [self.programs.train.batch, self.spec.data.batch_size.min(self.facts.train_rows)]
    }

    /// The factor of the learning rate for the number of devices.
    pub fn lr_factor(&self) -> f64 {
        let [all, one] = self.batches();
        self.spec.devices.lr_scaling.factor(if self.world_size() == 1 {
            1.0
        } else {
            all as f64 / one as f64
        })
    }

    /// The optimizer and the schedule with scaled learning rates.
    pub fn effective_optimizer(&self) -> (Optimizer, Schedule) {
        let factor = self.lr_factor();
        let (optimizer, schedule) = (self.spec.optimizer.clone(), self.spec.schedule.clone());
        (optimizer.with_lr_times(factor), schedule.with_lr_times(factor))
    }

    /// A remark on the batch and rate under weak scaling; `None` without it.
    pub fn scaling_in_words(&self) -> Option<String> {
        let devices = self.world_size();
        if self.spec.devices.scaling == Scaling::Strong || devices == 1 {
            return None;
        }
        let (each, whole) = (self.spec.data.batch_size, self.programs.train.batch);
        // With too few rows the devices share them.
        let shares: Vec<usize> = self.ranks().map(|programs| programs.train.rows).collect();
        let (least, most) = (shares.iter().min().copied(), shares.iter().max().copied());
        let share = match (least.unwrap_or(each), most.unwrap_or(each)) {
            (least, most) if least == most => most.to_string(),
            (least, most) => format!("{least} or {most}"),
        };
        let capped = each.saturating_mul(devices) > whole;
        let (all, instead) = match capped {
            true => (", all there are", format!(" instead of {each}")),
            false => ("", String::new()),
        };
        let batch = format!(
            "weak scaling: a step takes {whole} rows{all}, {share} for each of {devices} devices{instead}"
        );
        // By the ratio of rows if these do not scale with the devices.
        let [all, one] = self.batches();
        let times = if capped { format!("{all}/{one}") } else { devices.to_string() };
        let rule = match self.spec.devices.lr_scaling {
            LrScaling::None => return Some(format!("{batch}; the learning rate is as written")),
            _ if all == one => {
                let why = "a step of one device would take as many";
                return Some(format!("{batch}; the learning rate is as written: {why}"));
            }
            LrScaling::Linear => times,
            LrScaling::Sqrt => format!("the root of {times}"),
        };
        let (name, written) = match &self.spec.schedule.rule {
            Rule::One(Curve::OneCycle(c)) => ("max_lr", c.max_lr),
            _ => ("lr", self.spec.optimizer.lr()),
        };
        let used = units::exact(six_digits(written * self.lr_factor()));
        Some(format!("{batch}; `{name}` is {used}: {} times {rule}", units::exact(written)))
    }
}

/// Rounded for reading: 0.3, not 0.30000000000000004.
fn six_digits(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}
