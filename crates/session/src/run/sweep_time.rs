//! What the trials of a sweep took their time for.

use crate::{
    event::{Outcome, PhaseTime},
    plan::Bottleneck,
    units,
};

/// Less time than this, in seconds, is not worth a word.
const SHORT_S: f64 = 10.0;

/// Seconds of the trials that this process ran.
#[derive(Clone, Copy, Debug, Default)]
pub struct SweepTime {
    /// From the start of a trial to the end of its files.
    wall_s: f64,
    checkpoints_s: f64,
    core_wait_s: f64,
    /// What is outside of training and validation.
    start_and_files_s: f64,
}

impl SweepTime {
    pub fn add(&mut self, wall_s: f64, outcome: &Outcome) {
        if outcome.epochs.is_none() {
            return; // products or copies of the lab
        }
        let here_s = outcome.loop_s - outcome.earlier_s;
        let is_wait = |row: &&PhaseTime| (row.phase, row.clock) == ("checkpoint", "host");
        self.wall_s += wall_s;
        self.start_and_files_s += (wall_s - here_s).max(0.0);
        self.checkpoints_s += outcome.timing.iter().filter(is_wait).map(|row| row.total_s).sum::<f64>();
        self.core_wait_s += outcome.account.as_ref().map_or(0.0, |account| account.seconds(Bottleneck::Core));
    }

    /// What took most of the time and how to have less of it; `None` if that is training. `jobs` trials of `threads` threads ran
    /// at a time.
    pub fn in_words(&self, jobs: usize, threads: usize) -> Option<String> {
        let training_s = self.wall_s - self.start_and_files_s - self.checkpoints_s - self.core_wait_s;
        let fewer = "a larger `checkpoint.every_epochs` or `every_steps` makes fewer";
        let parts = [
            ("training", training_s, None),
            ("checkpoints", self.checkpoints_s, Some(fewer)),
            ("waiting for a core", self.core_wait_s, (threads > 1).then_some("`--threads 1` waits less")),
            (
                "start-up and files",
                self.start_and_files_s,
                (jobs == 1).then_some("`--jobs auto` runs several trials at a time"),
            ),
        ];
        let (cause, seconds, way_out) =
            parts.into_iter().reduce(|most, own| if own.1 > most.1 { own } else { most })?;
        if cause == "training" || self.wall_s < SHORT_S {
            return None;
        }
        let (share, all) = (units::percent(seconds / self.wall_s), units::seconds(self.wall_s));
        let way_out = way_out.map(|words| format!("; {words}")).unwrap_or_default();
        Some(format!("most of the trials' time was {cause}, {share} of {all}{way_out}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Origin, Processor, TimeAccount, TimeShare};

    fn outcome(loop_s: f64, checkpoints_s: f64, core_s: f64) -> Outcome {
        let checkpoint = PhaseTime {
            device: "cpu".to_owned(),
            clock: "host",
            phase: "checkpoint",
            count: 4,
            total_s: checkpoints_s,
            mean_s: checkpoints_s / 4.0,
            std_s: None,
            min_s: 0.0,
            p50_s: 0.0,
            p95_s: 0.0,
            p99_s: 0.0,
            max_s: 0.0,
            share: 0.0,
            samples: 4,
        };
        let account = TimeAccount {
            shares: vec![TimeShare { cause: Bottleneck::Core, seconds: core_s }],
            step_s: 1.0,
            least_s: 1.0,
            processor: Processor::Cpu,
            origin: Origin::Measured,
            fewer_reads: None,
        };
        Outcome {
            epochs: Some(20),
            loop_s,
            timing: vec![checkpoint],
            account: Some(account),
            ..Outcome::default()
        }
    }

    #[test]
    fn what_took_most_is_named_with_the_way_out() {
        let words = |wall_s, outcome: &Outcome, jobs, threads| {
            let mut time = SweepTime::default();
            (0..200).for_each(|_| time.add(wall_s, outcome));
            time.in_words(jobs, threads)
        };
        let checkpoints = outcome(0.18, 0.175, 0.0);
        assert_eq!(
            words(0.2, &checkpoints, 1, 1).as_deref(),
            Some(
                "most of the trials' time was checkpoints, 87.5 % of 40.0 s; a larger `checkpoint.every_epochs` or \
                 `every_steps` makes fewer"
            )
        );
        let short = outcome(0.01, 0.0, 0.001);
        let files = "most of the trials' time was start-up and files, 90.0 % of 20.0 s";
        assert_eq!(
            words(0.1, &short, 1, 2),
            Some(format!("{files}; `--jobs auto` runs several trials at a time"))
        );
        assert_eq!(words(0.1, &short, 2, 1).as_deref(), Some(files));
        let crowded = outcome(0.09, 0.0, 0.08);
        let waiting = "most of the trials' time was waiting for a core, 80.0 % of 20.0 s";
        assert_eq!(words(0.1, &crowded, 1, 2), Some(format!("{waiting}; `--threads 1` waits less")));
        assert_eq!(words(0.1, &crowded, 1, 1).as_deref(), Some(waiting));
        assert_eq!(words(0.1, &outcome(0.09, 0.01, 0.02), 1, 2), None, "training");
        assert_eq!(words(0.04, &short, 1, 2), None, "8 s in all");
    }
}
