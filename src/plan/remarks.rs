//! Warnings about keys without effect, or with less effect than they seem to have. Shown by `runner check` and at the start
//! of a run.

use super::{DeviceId, Footprint, Trial, global_batch};
use crate::{
    spec::{Curve, Interval, Placement, Policy, Rule, Scaling},
    units,
};

impl Trial {
    /// One sentence per remark.
    pub fn remarks(&self) -> Vec<String> {
        let all = [
            self.batch(),
            self.placement(),
            self.outputs(),
            self.validation(),
            self.max_steps(),
            self.validate_every(),
            self.patience(),
            self.flush_every(),
            self.chain(),
        ];
        all.into_iter().flatten().chain(self.milestones()).collect()
    }

    /// A batch larger than the training rows.
    fn batch(&self) -> Option<String> {
        let devices = self.world_size();
        if global_batch(&self.spec, devices) <= self.facts.train_rows {
            return None;
        }
        let each = match self.spec.devices.scaling {
            Scaling::Weak if devices > 1 => format!(" for each of {devices} devices"),
            _ => String::new(),
        };
        let batch = units::count(self.spec.data.batch_size as u64);
        let rows = match self.facts.train_rows {
            1 => "there is 1 training row: a step takes it".to_owned(),
            rows => {
                format!("there are {} training rows: a step takes them all", units::count(rows as u64))
            }
        };
        Some(format!("`data.batch_size` is {batch}{each}, and {rows}"))
    }

    /// Rows to be streamed to a device that already holds them.
    fn placement(&self) -> Option<String> {
        if self.spec.data.placement != Placement::Streamed {
            return None;
        }
        if self.devices.used == [DeviceId::Cpu] && !self.facts.in_file() {
            let nothing = "`data.placement = \"streamed\"` changes nothing here: the CPU computes in the memory that \
                           holds the rows";
            return Some(nothing.to_owned());
        }
        let of = |footprint: &Footprint| footprint.in_host_memory(&self.devices.used);
        let [streamed, resident] = units::two_sizes(of(&self.footprint), of(self.resident.as_ref()?));
        Some(format!(
            "`data.placement = \"streamed\"` saves no memory here: chunks of rows make it {streamed}, and with \
             all rows in memory it would be {resident}"
        ))
    }

    /// Outputs without a class.
    fn outputs(&self) -> Option<String> {
        let classes = self.facts.classes?;
        let last = self.layers.iter().rfind(|layer| layer.parameters > 0)?;
        if last.outputs <= classes {
            return None;
        }
        let verb = if last.outputs - classes == 1 { "stands" } else { "stand" };
        let others = units::count((last.outputs - classes) as u64);
        let numbers = units::counted(last.outputs as u64, "number");
        let count = match classes {
            1 => "1 class".to_owned(),
            count => format!("{} classes", units::count(count as u64)),
        };
        Some(format!(
            "the model puts out {numbers} per row, and the data have {count}: the other {others} {verb} \
             for none; `out_features = {classes}` in the last linear layer fits"
        ))
    }

    /// A validation fraction of less than one row.
    fn validation(&self) -> Option<String> {
        let (key, fraction) = self.spec.data.source.validation_fraction()?;
        if fraction == 0.0 || self.facts.validation_rows > 0 {
            return None;
        }
        let rows = units::counted(self.facts.train_rows as u64, "row");
        Some(format!("`{key}` is {fraction}, which of {rows} is none: nothing is validated"))
    }

    /// `max_steps` beyond the epochs' steps.
    fn max_steps(&self) -> Option<String> {
        let (most, of_epochs) = (self.spec.trainer.max_steps?, self.steps_of_epochs());
        if most <= of_epochs {
            return None;
        }
        let (most, epochs) = (units::count(most), units::counted(self.spec.trainer.max_epochs, "epoch"));
        let of_epochs = units::counted(of_epochs, "step");
        Some(format!(
            "`trainer.max_steps` is {most}, and `trainer.max_epochs` ends the run before, after {epochs}, {of_epochs}"
        ))
    }

    /// Epochs with at least one step, if nothing ends the run early.
    fn epochs(&self) -> u64 {
        self.steps.div_ceil(self.steps_per_epoch)
    }

    /// Validations further apart than the run is long, or without rows. No warning for the default of one per epoch.
    fn validate_every(&self) -> Option<String> {
        let (every, epochs) = (self.spec.trainer.validate_every_epochs, self.epochs());
        if self.facts.validation_rows == 0 {
            return (every > 1).then(|| {
                let every = units::count(every);
                format!("`trainer.validate_every_epochs` is {every}, and there is no row to validate on: nothing is validated")
            });
        }
        if every <= epochs {
            return None;
        }
        let (every, epochs) = (units::count(every), units::counted(epochs, "epoch"));
        Some(format!(
            "`trainer.validate_every_epochs` is {every}, and the run takes {epochs}: it validates once, at its end"
        ))
    }

    /// Patience of more validations than the run has: the first counts as an improvement, and the last ends the run anyway.
    fn patience(&self) -> Option<String> {
        let patience = self.spec.trainer.early_stopping.as_ref()?.patience;
        let validations = self.epochs().div_ceil(self.spec.trainer.validate_every_epochs.max(1));
        if patience.max(1).saturating_add(1) < validations {
            return None;
        }
        let times = match validations {
            1 => "once".to_owned(),
            2 => "twice".to_owned(),
            more => format!("{} times", units::count(more)),
        };
        let patience = units::count(patience);
        Some(format!(
            "`trainer.early_stopping.patience` is {patience}, and the run validates {times}: it is never stopped early"
        ))
    }

    /// Blocks for a policy without blocks.
    fn flush_every(&self) -> Option<String> {
        let logging = &self.spec.logging;
        (logging.flush_every.is_some() && logging.policy != Policy::Buffered).then(|| {
            "`logging.flush_every` changes nothing here: only `logging.policy = \"buffered\"` moves blocks of steps"
                .to_owned()
        })
    }

    /// The schedule's unit: its number in the run, and its name.
    fn counts(&self) -> (u64, &'static str) {
        match self.spec.schedule.interval {
            Interval::Step => (self.steps, "step"),
            Interval::Epoch => (self.epochs(), "epoch"),
        }
    }

    /// Drops of the rate after the end of the run or of their stage.
    fn milestones(&self) -> Vec<String> {
        let (counts, thing) = self.counts();
        match &self.spec.schedule.rule {
            Rule::Constant => Vec::new(),
            Rule::One(curve) => {
                let ends = format!("the run takes {}", units::counted(counts, thing));
                never_dropped(curve, "schedule", counts, thing, &ends).into_iter().collect()
            }
            Rule::Chain { chain } => {
                let mut left = counts;
                let parts = chain.iter().enumerate().filter_map(|(index, link)| {
                    let own = link.steps.unwrap_or(left).min(left);
                    left -= own;
                    let key = format!("schedule.chain.{index}");
                    let ends = format!("this part of the chain lasts {}", units::counted(own, thing));
                    // A stage that is never reached has its own warning.
                    (own > 0).then(|| never_dropped(&link.curve, &key, own, thing, &ends))?
                });
                parts.collect()
            }
        }
    }

    /// A stage that starts after the run's end.
    fn chain(&self) -> Option<String> {
        let Rule::Chain { chain } = &self.spec.schedule.rule else { return None };
        let (counts, thing) = self.counts();
        let mut first = 0_u64;
        for (index, link) in chain.iter().enumerate() {
            if first >= counts {
                let more = if index + 1 < chain.len() { " (and what comes after it)" } else { "" };
                let (first, counts) = (units::counted(first, thing), units::count(counts));
                return Some(format!(
                    "`schedule.chain.{index}`{more} is never reached: it begins after {first}, and the run takes {counts}"
                ));
            }
            first = first.saturating_add(link.steps.unwrap_or(u64::MAX));
        }
        None
    }
}

/// A curve's drops that are not within `counts`; the first count is 0.
fn never_dropped(curve: &Curve, key: &str, counts: u64, thing: &str, ends: &str) -> Option<String> {
    match curve {
        Curve::Step(step) if step.step_size >= counts => {
            let size = units::counted(step.step_size, thing);
            Some(format!("`{key}.step` never changes the rate: it would after {size}, and {ends}"))
        }
        Curve::MultiStep(steps) => {
            let beyond: Vec<u64> = steps.milestones.iter().copied().filter(|at| *at >= counts).collect();
            let list = beyond.iter().map(|at| units::count(*at)).collect::<Vec<_>>().join(" and ");
            let what = match beyond.len() {
                0 => return None,
                all if all == steps.milestones.len() => "any milestone".to_owned(),
                1 => format!("the milestone {list}"),
                2 => format!("the milestones {list}"),
                more => format!("its last {more} milestones"),
            };
            Some(format!("`{key}.multi_step` never reaches {what}: {ends}"))
        }
        _ => None,
    }
}
