//! How often the host steps in during a run: stretches of epochs, blocks of steps, reads of the log.
//!
//! A stretch, a block and a wait for the log also end when their time is over, so most of these counts are the fewest; those under
//! `immediate` and `per_epoch` are exact.

use super::{run_length::RunLength, trial::Trial};
use crate::spec::{Every, Policy, ValidateEvery};

/// Counts over a whole run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stops {
    /// Epochs without the host between them. The first stretch is one epoch, which shows how long a step takes.
    pub stretches: u64,
    /// Blocks of training steps.
    pub blocks: u64,
    /// How often the host reads training losses.
    pub log_reads: u64,
}

impl Stops {
    pub fn new(trial: &Trial, length: &RunLength) -> Self {
        let (steps, epochs, per_epoch) = (length.steps, length.epochs(), length.steps_per_epoch.max(1));
        let spec = &trial.spec;
        let at_once = trial.stretch(0);
        let every_epoch = u64::from(at_once == 1);
        let (validation, in_epochs) = match &spec.trainer.validate_every {
            _ if length.validations == 0 => (0, 0),
            own @ ValidateEvery::Epochs(epochs) => (own.steps(per_epoch), *epochs),
            own @ ValidateEvery::Steps(_) => (own.steps(per_epoch), 0),
        };
        let every = spec.checkpoint.as_deref().map(|rule| &rule.every);
        let checkpoint = every.and_then(|every| checkpoint_interval(every, per_epoch)).unwrap_or(0);
        let save_epochs = if let Some(Every::Epochs(epochs)) = every { *epochs } else { 0 };
        let of_epochs = Due([every_epoch, in_epochs, save_epochs]);
        let by_length = 1 + epochs.saturating_sub(1).div_ceil(at_once);
        let stretches = of_epochs.stops(epochs, 1).max(by_length.min(epochs));
        let due = Due([every_epoch * per_epoch, validation, checkpoint]);
        let ends = due.stops(steps, per_epoch).max(stretches);
        let (blocks, log_reads) = match spec.logging.policy {
            Policy::Immediate => (None, steps),
            Policy::PerEpoch => (Some(ends), epochs),
            Policy::Off => (Some(ends), 0),
            Policy::Buffered => {
                let room = trial.programs.layout.log_slots.div_ceil(2).max(1) as u64;
                // A checkpoint reads what there is.
                let until = if checkpoint > 0 { checkpoint } else { u64::MAX };
                let full = (steps / until) * until.div_ceil(room) + (steps % until).div_ceil(room);
                (Some(ends), if spec.logging.flush_every.is_some() { full } else { full.max(ends) })
            }
        };
        let chunks = trial.chunks.map_or(0, |chunks| length.train_chunks(chunks.train));
        // The first block is one step.
        let is_first_apart = steps > 1 && per_epoch > 1 && !due.is_at(1);
        let fewest = |ends: u64| ends.max(chunks).saturating_add(u64::from(is_first_apart));
        Self { stretches, blocks: blocks.map_or(steps, fewest), log_reads }
    }
}

/// Steps or epochs after which something is due, again and again; 0 for never.
struct Due([u64; 3]);

impl Due {
    fn is_at(&self, number: u64) -> bool {
        self.0.iter().any(|every| *every > 0 && number.is_multiple_of(*every))
    }

    /// How many of the numbers from 1 to `last` have something due, are the last, or are the end of the first stretch.
    fn stops(&self, last: u64, first_stretch: u64) -> u64 {
        let all: Vec<u64> = self.0.into_iter().filter(|every| *every > 0).collect();
        // Inclusion and exclusion.
        let mut count = 0;
        for subset in 1..1_usize << all.len() {
            let chosen = all.iter().enumerate().filter(|(i, _)| subset >> i & 1 == 1);
            let common = i128::from(last / chosen.map(|(_, every)| *every).fold(1, lcm));
            count += if subset.count_ones() % 2 == 1 { common } else { -common };
        }
        let besides = [(last > 0, last), (first_stretch < last, first_stretch)];
        let besides =
            besides.into_iter().filter(|(is_there, number)| *is_there && !self.is_at(*number)).count();
        u64::try_from(count + besides as i128).unwrap_or(last)
    }
}

/// Steps between two checkpoints; `None` if the time says.
pub(super) fn checkpoint_interval(every: &Every, per_epoch: u64) -> Option<u64> {
    match every {
        Every::Steps(steps) => Some(*steps),
        Every::Epochs(epochs) => Some(epochs.saturating_mul(per_epoch)),
        Every::Minutes(_) => None,
    }
}

pub(super) fn lcm(one: u64, other: u64) -> u64 {
    let (mut a, mut b) = (one, other);
    while b > 0 {
        (a, b) = (b, a % b);
    }
    (one / a).saturating_mul(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counted one by one: any of them may be absent, and the run may end between two.
    #[test]
    fn stops_are_those_that_counting_finds() {
        for last in 0..40 {
            for all in [[0, 0, 0], [7, 0, 0], [0, 4, 6], [6, 4, 9], [5, 5, 1]] {
                for first in [1, 7, 12] {
                    let due = Due(all);
                    let counted = (1..=last).filter(|n| due.is_at(*n) || *n == last || *n == first).count();
                    assert_eq!(due.stops(last, first), counted as u64, "{last} {all:?} {first}");
                }
            }
        }
        assert_eq!(Due([u64::MAX - 1, u64::MAX - 2, 3]).stops(u64::MAX - 1, 3), u64::MAX / 3 + 1);
        assert_eq!(Due([1, 1, 1]).stops(u64::MAX, 1), u64::MAX);
    }
}
