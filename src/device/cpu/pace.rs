//! Whether the team walks the next steps, or one thread alone.
//!
//! A team is as fast as its slowest member: where another process takes a member's core, every barrier waits for the
//! scheduler, and a step may take ten times as long as by one thread. So both ways are timed, the quicker one is taken,
//! and the other is tried again now and then. The results do not depend on it.

use std::time::Duration;

use crate::device::Work;

/// Between two trials of the slower way at first; doubled each time that it is still the slower one.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(500);

/// And at most.
const LONGEST_INTERVAL: Duration = Duration::from_secs(20);

/// The part of a block that is given to a trial.
const TRIAL_PART: usize = 16;

/// Chooses for one kind of work.
#[derive(Clone, Copy, Default)]
struct Choice {
    /// Seconds per step alone and together, as last seen.
    seconds: [Option<f64>; 2],
    /// Time since the slower way was tried.
    since: Duration,
    interval: Duration,
    trying: bool,
}

/// How a team and one thread alone share the steps of a trial. The results are the same to the bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// The quicker way is taken, the other tried now and then.
    Adaptive,
    /// The team walks every step.
    Team,
    /// They take turns, a step each: for tests of the handing over.
    InTurns,
}

/// See the module.
pub struct Pace {
    team: bool,
    sharing: Sharing,
    turn: bool,
    train: Choice,
    validate: Choice,
}

impl Pace {
    /// `team`: whether there is one.
    pub fn new(team: bool, sharing: Sharing) -> Self {
        Self { team, sharing, turn: false, train: Choice::default(), validate: Choice::default() }
    }

    /// Whether the team walks next, and how many of `steps` steps it walks before this is asked again.
    pub fn next(&mut self, work: Work, steps: usize) -> (bool, usize) {
        match self.sharing {
            _ if !self.team => return (false, steps),
            Sharing::Team => return (true, steps),
            Sharing::InTurns => {
                self.turn = !self.turn;
                return (self.turn, 1);
            }
            Sharing::Adaptive => {}
        }
        let part = steps.div_ceil(TRIAL_PART);
        let choice = self.of(work);
        let together = match choice.seconds {
            // The very first step is slow in any way, so the team, which is to be the rule, is judged by later ones.
            [None, _] => return (false, part),
            [_, None] => return (true, part),
            [Some(alone), Some(together)] => together <= alone,
        };
        choice.trying = choice.since >= choice.interval;
        if choice.trying { (!together, part) } else { (together, steps) }
    }

    /// Takes note of how long steps took.
    pub fn took(&mut self, work: Work, together: bool, steps: usize, time: Duration) {
        let choice = self.of(work);
        let seconds = time.as_secs_f64() / steps.max(1) as f64;
        let slot = &mut choice.seconds[usize::from(together)];
        *slot = Some(match *slot {
            Some(before) if !choice.trying => 0.5 * (before + seconds),
            _ => seconds,
        });
        choice.since += time;
        if choice.trying || choice.interval.is_zero() {
            let won = match choice.seconds {
                [Some(alone), Some(with)] => together == (with <= alone),
                _ => true,
            };
            choice.since = Duration::ZERO;
            choice.interval = if won {
                SHORTEST_INTERVAL
            } else {
                (2 * choice.interval).clamp(SHORTEST_INTERVAL, LONGEST_INTERVAL)
            };
            choice.trying = false;
        }
    }

    fn of(&mut self, work: Work) -> &mut Choice {
        match work {
            Work::Train => &mut self.train,
            Work::Validate => &mut self.validate,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `seconds` of steps that take `alone` and `together` microseconds; the part of steps the team walked.
    fn share(pace: &mut Pace, [alone, together]: [u64; 2], seconds: u64) -> f64 {
        let (mut spent, mut counts) = (Duration::ZERO, [0, 0]);
        while spent < Duration::from_secs(seconds) {
            let (team, steps) = pace.next(Work::Train, 100);
            let time = Duration::from_micros(if team { together } else { alone }) * steps as u32;
            pace.took(Work::Train, team, steps, time);
            counts[usize::from(team)] += steps;
            spent += time;
        }
        f64::from(counts[1] as u32) / f64::from((counts[0] + counts[1]) as u32)
    }

    #[test]
    fn the_quicker_way_is_the_rule_and_the_other_is_tried() {
        let mut pace = Pace::new(true, Sharing::Adaptive);
        assert!(share(&mut pace, [100, 60], 20) > 0.98);
        // Another process takes a core: the team is twenty times slower, and rests.
        assert!(share(&mut pace, [100, 2000], 20) < 0.05);
        // And it is back soon after the core is.
        assert!(share(&mut pace, [100, 60], 60) > 0.6);
    }

    #[test]
    fn without_a_choice_there_is_none() {
        assert_eq!(Pace::new(false, Sharing::Adaptive).next(Work::Train, 7), (false, 7));
        assert_eq!(Pace::new(true, Sharing::Team).next(Work::Train, 7), (true, 7));
    }
}
