//! Schedules that are as long as their runs: a length that nobody chose tells no setting from another.

use std::path::Path;

use super::run::Run;
use crate::{host::read_text, spec::RateFall};

/// Keys of lengths, at the end of `schedule.` or of `schedule.chain.1.`.
const LENGTHS: [&str; 2] = ["cosine.t_max", "one_cycle.total_steps"];

/// The steps of an epoch of the run in a folder, if that is recorded.
pub fn steps_per_epoch(folder: &Path) -> Option<u64> {
    Run::read_or_report(folder, &mut None).steps_per_epoch()
}

/// Where a plateau reduced the rate of the run in a folder, as its log has it. What a resumed run took again counts once.
pub fn rate_falls(folder: &Path) -> Vec<RateFall> {
    let log = read_text(&folder.join("run.log")).unwrap_or_default();
    let of_line = |line: &str| {
        let (place, rest) = line.split_once(": the learning rate falls from ")?;
        let (before, rest) = rest.split_once(" to ")?;
        let rate = |text: &str| text.parse().ok();
        let rates = [rate(before)?, rate(rest.split_once(':')?.0)?];
        let (epoch, step) = place.split_once("epoch ")?.1.split_once(", step ")?;
        let number = |text: &str| text.replace(',', "").parse().ok();
        Some(RateFall { epoch: number(epoch)?, step: number(step)?, rates })
    };
    let mut falls: Vec<RateFall> = log.lines().filter_map(of_line).collect();
    falls.sort_by_key(|fall| fall.step);
    falls.dedup_by_key(|fall| fall.step);
    falls
}

impl Run {
    /// Whether a key of the spec, which the recorded spec always has, says that the schedule lasts as long as the run.
    pub(super) fn is_its_length(&self, key: &str) -> bool {
        let Some(within) = key.strip_prefix("schedule.") else { return false };
        LENGTHS.iter().any(|length| within.ends_with(length))
            && self.ends_with_its_schedule(key) == Some(true)
    }

    /// The steps of an epoch, by what is recorded when a run begins: it may have ended within one.
    fn steps_per_epoch(&self) -> Option<u64> {
        let devices = match self.setting("devices.scaling") {
            Some("weak") => self.figure("devices_used")?.split(';').count() as u64,
            _ => 1,
        };
        let rows = self.environment_number("data.rows_to_train_on")? as u64;
        let batch = self.setting("data.batch_size")?.parse::<u64>().ok()?;
        Some(rows.div_ceil(batch.saturating_mul(devices).max(1)).max(1))
    }

    fn ends_with_its_schedule(&self, key: &str) -> Option<bool> {
        let number = |key: &str| self.setting(key)?.parse::<u64>().ok();
        // In a chain, earlier stages have steps of their own.
        let stage = key
            .strip_prefix("schedule.chain.")
            .and_then(|rest| rest.split_once('.')?.0.parse::<usize>().ok());
        let before =
            (0..stage.unwrap_or(0)).filter_map(|stage| number(&format!("schedule.chain.{stage}.steps")));
        let length = number(key)? + before.sum::<u64>();
        let per_epoch = self.steps_per_epoch()?;
        let of_epochs = per_epoch.saturating_mul(number("trainer.max_epochs")?);
        let steps = number("trainer.max_steps").map_or(of_epochs, |most| most.min(of_epochs));
        let is_by_epoch = self.setting("schedule.interval") == Some("epoch");
        let total = match (is_by_epoch, number("schedule.curve_epochs")) {
            (true, Some(epochs)) => epochs,
            (true, None) => steps.div_ceil(per_epoch),
            (false, Some(epochs)) => per_epoch.saturating_mul(epochs),
            (false, None) => steps,
        };
        Some(length == total)
    }
}
