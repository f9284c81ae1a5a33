//! Schedules that are as long as their runs: a length that nobody chose tells no setting from another.

use super::run::Run;

/// Keys of lengths, at the end of `schedule.` or of `schedule.chain.1.`.
const LENGTHS: [&str; 2] = ["cosine.t_max", "one_cycle.total_steps"];

impl Run {
    /// Whether a key of the spec, which the recorded spec always has, says that the schedule lasts as long as the run.
    pub(super) fn is_its_length(&self, key: &str) -> bool {
        let Some(within) = key.strip_prefix("schedule.") else { return false };
        LENGTHS.iter().any(|length| within.ends_with(length))
            && self.ends_with_its_schedule(key) == Some(true)
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
        let of_curve = number("schedule.curve_epochs");
        let epochs = of_curve.or_else(|| number("trainer.max_epochs"));
        let total = if self.setting("schedule.interval") == Some("epoch") {
            epochs?
        } else if let (Some(steps), None) = (number("trainer.max_steps"), of_curve) {
            steps
        } else {
            let count = |figure: &str| self.figure(figure)?.parse::<u64>().ok();
            epochs? * count("steps")?.div_ceil(count("epochs").filter(|epochs| *epochs > 0)?)
        };
        Some(length == total)
    }
}
