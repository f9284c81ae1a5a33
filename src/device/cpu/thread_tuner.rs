//! Whether the team walks the next steps, or one thread alone.
//!
//! A team is as fast as its slowest member: where another process takes a member's core, every barrier waits for the
//! scheduler, and a step may take ten times as long as by one thread. So both ways are timed, the quicker one is taken,
//! and the other is tried again now and then, where the trial costs little beside the time since the last one. The team
//! is the rule until a trial says otherwise: its first steps, by threads that have just been woken, prove nothing. The
//! results do not depend on it.

use std::time::Duration;

use crate::device::PassKind;

/// Between two trials of the slower way at first; doubled each time that it is still the slower one.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(500);

/// And at most.
const LONGEST_INTERVAL: Duration = Duration::from_secs(20);

/// The part of a block that is given to a trial.
const TRIAL_PART: usize = 16;

/// A trial waits until so many times its own length has passed: long steps, of which a block has few, are the ones that a
/// busy core holds up least, and a trial of them costs most.
const TRIAL_WAIT: u32 = 50;

/// One thread must be this much quicker than the team to take over. What makes both as slow, as another machine on the
/// same processor does, ends sooner or later, and only the team gains from that at once.
const MARGIN: f64 = 1.25;

/// Measurements of each way that count: the middle one of them, so that a single hold-up decides nothing.
const REMEMBERED: usize = 5;

/// Steps of a trial at least, where the block has them: the first one may wait for threads to wake.
const SHORTEST_TRIAL: usize = 4;

/// Seconds per step of the last few blocks that were walked one way.
#[derive(Clone, Copy, Default)]
struct Seen {
    seconds: [f64; REMEMBERED],
    count: usize,
}

impl Seen {
    fn add(&mut self, seconds: f64) {
        self.seconds[self.count % REMEMBERED] = seconds;
        self.count += 1;
    }

    fn median(&self) -> Option<f64> {
        let mut known = self.seconds;
        let known = &mut known[..self.count.min(REMEMBERED)];
        known.sort_unstable_by(f64::total_cmp);
        known.get(known.len().saturating_sub(1) / 2).copied()
    }
}

/// Chooses for one kind of work.
#[derive(Clone, Copy, Default)]
struct Selection {
    /// What steps took alone and together.
    seen: [Seen; 2],
    /// Time since the slower way was tried.
    since: Duration,
    interval: Duration,
    trying: bool,
}

impl Selection {
    /// Seconds per step alone and together, once the team has walked. One thread takes at most as many times as long as
    /// there are threads.
    fn seconds(&self, threads: usize) -> Option<[f64; 2]> {
        let [alone, together] = self.seen.map(|seen| seen.median());
        together.map(|together| [alone.unwrap_or(threads as f64 * together), together])
    }
}

fn is_team([alone, together]: [f64; 2]) -> bool {
    together <= MARGIN * alone
}

/// How a team and one thread alone share the steps of a trial. The results are the same to the bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadMode {
    /// The quicker way is taken, the other tried now and then.
    Adaptive,
    /// The team walks every step.
    Team,
    /// They take turns, a step each: for tests of the handing over.
    InTurns,
}

/// See the module.
pub struct ThreadTuner {
    threads: usize,
    sharing: ThreadMode,
    turn: bool,
    train: Selection,
    validate: Selection,
}

impl ThreadTuner {
    /// `threads`: of the team; one is none.
    pub fn new(threads: usize, sharing: ThreadMode) -> Self {
        Self { threads, sharing, turn: false, train: Selection::default(), validate: Selection::default() }
    }

    /// Whether the team walks next, and how many of `steps` steps it walks before this is asked again.
    pub fn next(&mut self, work: PassKind, steps: usize) -> (bool, usize) {
        match self.sharing {
            _ if self.threads < 2 => return (false, steps),
            ThreadMode::Team => return (true, steps),
            ThreadMode::InTurns => {
                self.turn = !self.turn;
                return (self.turn, 1);
            }
            ThreadMode::Adaptive => {}
        }
        let threads = self.threads;
        let choice = self.selection(work);
        let Some(seconds) = choice.seconds(threads) else { return (true, steps) };
        let is_team = is_team(seconds);
        let part = steps.div_ceil(TRIAL_PART).max(SHORTEST_TRIAL).min(steps);
        let probe = Duration::from_secs_f64(seconds[usize::from(!is_team)] * part as f64);
        choice.trying = choice.since >= choice.interval.max(TRIAL_WAIT * probe);
        if choice.trying { (!is_team, part) } else { (is_team, steps) }
    }

    /// Takes note of how long steps took.
    pub fn took(&mut self, work: PassKind, together: bool, steps: usize, time: Duration) {
        let threads = self.threads;
        let choice = self.selection(work);
        let seen = &mut choice.seen[usize::from(together)];
        if choice.trying {
            // What was seen at an earlier trial is no news.
            *seen = Seen::default();
        }
        seen.add(time.as_secs_f64() / steps.max(1) as f64);
        choice.since += time;
        if choice.trying {
            let won = choice.seconds(threads).is_none_or(|seconds| together == is_team(seconds));
            choice.since = Duration::ZERO;
            // A change is looked at again soon: what made it may have been a moment's.
            choice.interval = if won {
                Duration::ZERO
            } else {
                (2 * choice.interval).clamp(SHORTEST_INTERVAL, LONGEST_INTERVAL)
            };
            choice.trying = false;
        }
    }

    fn selection(&mut self, work: PassKind) -> &mut Selection {
        match work {
            PassKind::Train => &mut self.train,
            PassKind::Validate => &mut self.validate,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `seconds` of steps that take `alone` and `together` microseconds; the part of steps the team walked.
    fn share(pace: &mut ThreadTuner, [alone, together]: [u64; 2], seconds: u64) -> f64 {
        let (mut spent, mut counts) = (Duration::ZERO, [0, 0]);
        while spent < Duration::from_secs(seconds) {
            let (team, steps) = pace.next(PassKind::Train, 100);
            let time = Duration::from_micros(if team { together } else { alone }) * steps as u32;
            pace.took(PassKind::Train, team, steps, time);
            counts[usize::from(team)] += steps;
            spent += time;
        }
        f64::from(counts[1] as u32) / f64::from((counts[0] + counts[1]) as u32)
    }

    #[test]
    fn the_quicker_way_is_the_rule_and_the_other_is_tried() {
        let mut pace = ThreadTuner::new(2, ThreadMode::Adaptive);
        assert!(share(&mut pace, [100, 60], 20) > 0.98);
        // Another process takes a core: the team is twenty times slower, and rests.
        assert!(share(&mut pace, [100, 2000], 20) < 0.05);
        // And it is back soon after the core is.
        assert!(share(&mut pace, [100, 60], 60) > 0.6);
    }

    #[test]
    fn long_steps_are_not_spent_on_trials() {
        let mut pace = ThreadTuner::new(2, ThreadMode::Adaptive);
        let (mut spent, mut lost) = (0.0, 0.0);
        while spent < 60.0 {
            // Blocks of one step of a fifth of a second, or of two fifths by one thread.
            let (team, steps) = pace.next(PassKind::Train, 1);
            let seconds = if team { 0.2 } else { 0.4 };
            pace.took(PassKind::Train, team, steps, Duration::from_secs_f64(seconds));
            (spent, lost) = (spent + seconds, lost + seconds - 0.2);
        }
        assert!(lost > 0.0 && lost < 0.02 * spent, "{lost}");
    }

    #[test]
    fn a_slow_start_of_the_team_is_no_verdict() {
        let mut pace = ThreadTuner::new(2, ThreadMode::Adaptive);
        assert_eq!(pace.next(PassKind::Train, 48), (true, 48));
        pace.took(PassKind::Train, true, 48, Duration::from_millis(200));
        assert_eq!(pace.next(PassKind::Train, 48), (true, 48));
        pace.took(PassKind::Train, true, 48, Duration::from_millis(50));
        assert!(share(&mut pace, [2000, 1000], 20) > 0.98);
    }

    #[test]
    fn one_hold_up_is_no_verdict_nor_are_two_ways_as_slow() {
        let mut pace = ThreadTuner::new(2, ThreadMode::Adaptive);
        assert!(share(&mut pace, [1900, 1000], 3) > 0.9);
        for round in 0..400 {
            let (team, steps) = pace.next(PassKind::Train, 10);
            // Every fifth block of the team is held up for some milliseconds.
            let micros = if !team {
                1900
            } else if round % 5 == 0 {
                4000
            } else {
                1400
            };
            pace.took(PassKind::Train, team, steps, Duration::from_micros(micros) * steps as u32);
            assert!(team || steps <= SHORTEST_TRIAL, "round {round}");
        }
        assert!(share(&mut pace, [1850, 1900], 20) > 0.9);
    }

    #[test]
    fn without_a_choice_there_is_none() {
        assert_eq!(ThreadTuner::new(1, ThreadMode::Adaptive).next(PassKind::Train, 7), (false, 7));
        assert_eq!(ThreadTuner::new(2, ThreadMode::Team).next(PassKind::Train, 7), (true, 7));
    }
}
