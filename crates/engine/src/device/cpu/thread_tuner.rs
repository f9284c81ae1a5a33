//! Chooses whether the team or a single thread runs the next steps. The choice does not affect results.
//!
//! A team is as fast as its slowest member: if another process takes a member's core, every barrier waits for
//! the scheduler, and a step may take ten times as long as on one thread. So both modes are timed and the
//! faster one is used. The slower one is probed again when a probe is cheap compared with the time since the
//! last probe, and the team also when the cores that it lacked are free. The team is the default: its first steps, on threads that have just been woken, do not count
//! as evidence.

use std::time::Duration;

use crate::{
    device::PassKind,
    host::{self, load},
};

/// Initial time between two probes of the slower mode; doubled after each probe that confirms it as slower.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(500);

const LONGEST_INTERVAL: Duration = Duration::from_secs(20);

/// A probe takes 1/16 of a block.
const PROBE_DIVISOR: usize = 16;

/// Probe only if its cost is under 1/50 of the time since the last probe, because long steps are expensive to
/// probe.
const PROBE_WAIT: u32 = 50;

/// The same while little is known: a mode has not been timed in this run, or steps have become slow.
const EAGER_WAIT: u32 = 8;

/// Steps count as slow if they take this many times the team's best time, probably because others need the
/// cores.
const SLOW: f64 = 1.5;

/// One thread takes over only if it is faster by this factor. If a disturbance slows both modes equally, the
/// team should be in use when it ends.
const MARGIN: f64 = 1.25;

/// A single thread that was not timed yet is assumed to take at most this many times the plan's estimate,
/// which is a lower bound.
const ESTIMATE_SLACK: f64 = 4.0;

/// Measurements per mode; their median counts, so a single delay decides nothing.
const REMEMBERED: usize = 5;

/// While a change is likely to matter, a block is run in parts of this length, at best: a team that lost a core is
/// left after a few of them, and joined soon after the core is free.
const LONGEST_PART: Duration = Duration::from_millis(4);

/// Minimum steps of a probe, if the block has as many: the first may wait for threads to wake.
const SHORTEST_PROBE: usize = 4;

/// Seconds per step of the latest blocks in one mode.
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

/// The choice for one kind of pass.
#[derive(Clone, Copy, Default)]
struct Selection {
    /// Step times on one thread and on the team.
    seen: [Seen; 2],
    /// The shortest step time of the team so far.
    least_s: Option<f64>,
    /// As in [`KnownTimes`].
    estimate_s: Option<f64>,
    since: Duration,
    interval: Duration,
    trying: bool,
    /// Whether others kept the team from its cores when it was last found slower.
    crowded: bool,
}

impl Selection {
    /// Seconds per step on one thread and on the team, once the team has run. If one thread was not timed,
    /// its time is the team's times the number of threads, limited by the estimate.
    fn seconds(&self, threads: usize) -> Option<[f64; 2]> {
        let [alone, together] = self.seen.map(|seen| seen.median());
        let most = self.estimate_s.map_or(f64::INFINITY, |estimate| ESTIMATE_SLACK * estimate);
        together.map(|together| [alone.unwrap_or((threads as f64 * together).min(most)), together])
    }

    /// The required time since the last probe, as a multiple of a probe's cost.
    fn wait(&self) -> u32 {
        let [alone, together] = self.seen.map(|seen| seen.median());
        let is_slow = together.zip(self.least_s).is_some_and(|(now, least)| now > SLOW * least);
        let is_known = alone.is_some() && self.least_s.is_some();
        if !is_known || is_slow { EAGER_WAIT } else { PROBE_WAIT }
    }
}

fn is_team([alone, together]: [f64; 2]) -> bool {
    together <= MARGIN * alone
}

/// Which threads run the steps of a trial. Results are bit-identical in all modes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadMode {
    /// The faster of team and single thread, re-measured at run time.
    Adaptive,
    Team,
    /// Team and single thread alternate every step, for tests of the handover.
    InTurns,
}

/// What is known about the time of a training step before the first one runs.
#[derive(Clone, Copy, Default)]
pub struct KnownTimes {
    /// Seconds on one thread, estimated by the plan.
    pub estimate_s: Option<f64>,
    /// Seconds on one thread and on the team, measured by a trial.
    pub tried_s: Option<[f64; 2]>,
}

pub struct ThreadTuner {
    threads: usize,
    sharing: ThreadMode,
    turn: bool,
    /// Indexed by kind of pass.
    selections: [Selection; 2],
    /// How many threads of the machine run or wait for a core.
    running: fn() -> Option<usize>,
    cores: usize,
}

impl ThreadTuner {
    /// `threads` is the team's size; 1 means no team.
    pub fn new(threads: usize, sharing: ThreadMode, known: KnownTimes) -> Self {
        let cores = host::logical_cores().unwrap_or(threads);
        let selections = Default::default();
        let mut tuner = Self { threads, sharing, turn: false, selections, running: load::running, cores };
        let train = &mut tuner.selections[PassKind::Train as usize];
        train.estimate_s = known.estimate_s;
        train.seen.iter_mut().zip(known.tried_s.iter().flatten()).for_each(|(seen, s)| seen.add(*s));
        tuner
    }

    /// Whether the team runs next, and how many of `steps` steps until the next call.
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
        let (threads, is_crowded) = (self.threads, self.crowd());
        let choice = &mut self.selections[work as usize];
        let Some(seconds) = choice.seconds(threads) else { return (true, steps) };
        let is_team = is_team(seconds);
        let part = steps.div_ceil(PROBE_DIVISOR).max(SHORTEST_PROBE).min(steps);
        let probe = Duration::from_secs_f64(seconds[usize::from(!is_team)] * part as f64);
        choice.trying = choice.since >= choice.interval.max(choice.wait() * probe);
        if !is_team && choice.crowded && choice.since >= EAGER_WAIT * probe {
            choice.trying |= !is_crowded(1);
        }
        if choice.trying {
            return (!is_team, part);
        }
        let step_s = if is_team { choice.least_s } else { choice.crowded.then_some(seconds[0]) };
        // A float cast to an integer saturates.
        let longest = step_s.map_or(steps, |step_s| (LONGEST_PART.as_secs_f64() / step_s) as usize);
        (is_team, steps.min(longest.max(SHORTEST_PROBE)))
    }

    /// Tells whether others leave too few cores for the team, while `own` threads of it run.
    fn crowd(&self) -> impl Fn(usize) -> bool + use<> {
        let (threads, cores, running) = (self.threads, self.cores, self.running);
        move |own| running().is_some_and(|running| running.saturating_sub(own) + threads > cores)
    }

    /// Records a measured time. `batches`: the rows of the steps, in full batches.
    pub fn took(&mut self, work: PassKind, together: bool, batches: f64, time: Duration) {
        let (threads, is_crowded) = (self.threads, self.crowd());
        let choice = &mut self.selections[work as usize];
        // An epoch's last batch has fewer rows, so its time says nothing about the others.
        if batches < 1.0 {
            choice.since += time;
            choice.trying = false;
            return;
        }
        let seen = &mut choice.seen[usize::from(together)];
        if choice.trying {
            // The measurements of earlier probes are outdated.
            *seen = Seen::default();
        }
        let step_s = time.as_secs_f64() / batches;
        seen.add(step_s);
        if together {
            choice.least_s = Some(choice.least_s.map_or(step_s, |least| least.min(step_s)));
        }
        choice.since += time;
        if together && choice.seconds(threads).is_some_and(|seconds| !is_team(seconds)) {
            choice.crowded = is_crowded(threads);
        }
        if choice.trying {
            let won = choice.seconds(threads).is_none_or(|seconds| together == is_team(seconds));
            choice.since = Duration::ZERO;
            // The mode has changed: probe again soon, since the cause may be short-lived.
            choice.interval = if won {
                Duration::ZERO
            } else {
                (2 * choice.interval).clamp(SHORTEST_INTERVAL, LONGEST_INTERVAL)
            };
            choice.trying = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// A tuner of two threads on two cores that knows nothing about other processes.
    fn adaptive(known: KnownTimes) -> ThreadTuner {
        ThreadTuner { running: || None, cores: 2, ..ThreadTuner::new(2, ThreadMode::Adaptive, known) }
    }

    /// Simulates `seconds` of steps that take `alone` or `together` microseconds; returns the fraction that
    /// the team ran.
    fn share(tuner: &mut ThreadTuner, [alone, together]: [u64; 2], seconds: u64) -> f64 {
        let (mut spent, mut counts) = (Duration::ZERO, [0, 0]);
        while spent < Duration::from_secs(seconds) {
            let (team, steps) = tuner.next(PassKind::Train, 100);
            let time = Duration::from_micros(if team { together } else { alone }) * steps as u32;
            tuner.took(PassKind::Train, team, steps as f64, time);
            counts[usize::from(team)] += steps;
            spent += time;
        }
        f64::from(counts[1] as u32) / f64::from((counts[0] + counts[1]) as u32)
    }

    #[test]
    fn the_quicker_way_is_the_rule_and_the_other_is_tried() {
        let mut tuner = adaptive(KnownTimes::default());
        assert!(share(&mut tuner, [100, 60], 20) > 0.98);
        // Another process takes a core: the team becomes twenty times slower and is not used.
        assert!(share(&mut tuner, [100, 2000], 20) < 0.05);
        // It is used again soon after the core is free.
        assert!(share(&mut tuner, [100, 60], 60) > 0.6);
    }

    #[test]
    fn the_team_is_back_as_soon_as_its_core_is_free() {
        static RUNNING: AtomicUsize = AtomicUsize::new(2);
        let mut tuner = adaptive(KnownTimes::default());
        tuner.running = || Some(RUNNING.load(Ordering::Relaxed));
        assert!(share(&mut tuner, [100, 60], 5) > 0.98);
        RUNNING.store(3, Ordering::Relaxed);
        assert!(share(&mut tuner, [100, 2000], 30) < 0.05);
        // By now the next probe without evidence would be many seconds away.
        RUNNING.store(1, Ordering::Relaxed);
        assert!(share(&mut tuner, [100, 60], 1) > 0.9);
    }

    #[test]
    fn long_steps_are_not_spent_on_probes() {
        let mut tuner = adaptive(KnownTimes::default());
        let (mut spent, mut lost) = (0.0, 0.0);
        while spent < 60.0 {
            // Blocks of one step, which takes the team 0.2 s and one thread 0.4 s.
            let (team, steps) = tuner.next(PassKind::Train, 1);
            let seconds = if team { 0.2 } else { 0.4 };
            tuner.took(PassKind::Train, team, steps as f64, Duration::from_secs_f64(seconds));
            (spent, lost) = (spent + seconds, lost + seconds - 0.2);
        }
        assert!(lost > 0.0 && lost < 0.02 * spent, "{lost}");
    }

    #[test]
    fn a_slow_start_of_the_team_is_no_verdict() {
        let mut tuner = adaptive(KnownTimes::default());
        assert_eq!(tuner.next(PassKind::Train, 48), (true, 48));
        tuner.took(PassKind::Train, true, 48.0, Duration::from_millis(200));
        assert!(tuner.next(PassKind::Train, 48).0);
        tuner.took(PassKind::Train, true, 48.0, Duration::from_millis(50));
        assert!(share(&mut tuner, [2000, 1000], 20) > 0.98);
    }

    #[test]
    fn one_hold_up_is_no_verdict_nor_are_two_ways_as_slow() {
        let mut tuner = adaptive(KnownTimes::default());
        assert!(share(&mut tuner, [1900, 1000], 3) > 0.9);
        for round in 0..400 {
            let (team, steps) = tuner.next(PassKind::Train, 10);
            // Every fifth block of the team is delayed by some milliseconds.
            let micros = if !team {
                1900
            } else if round % 5 == 0 {
                4000
            } else {
                1400
            };
            tuner.took(PassKind::Train, team, steps as f64, Duration::from_micros(micros) * steps as u32);
            assert!(team || steps <= SHORTEST_PROBE, "round {round}");
        }
        assert!(share(&mut tuner, [1850, 1900], 20) > 0.9);
    }

    #[test]
    fn steps_begin_as_a_trial_found_them_and_long_ones_are_probed_soon_once_slow() {
        let tried = |tried_s| KnownTimes { tried_s: Some(tried_s), estimate_s: None };
        let mut tuner = adaptive(tried([100e-6, 300e-6]));
        assert_eq!(tuner.next(PassKind::Train, 100), (false, 100));
        // The trial had both threads on one core; a tenth of a second corrects it.
        assert!(share(&mut tuner, [100, 60], 2) > 0.95);
        // Steps of 7 ms. After some seconds another process takes a core; waiting three seconds would be too
        // long.
        let mut tuner = adaptive(tried([0.012, 0.007]));
        let mut run = |together: u64, seconds: f64| {
            let (mut spent, mut alone) = (0.0, 0.0);
            while spent < seconds {
                let (team, steps) = tuner.next(PassKind::Train, 7);
                let time = Duration::from_millis(if team { together } else { 12 }) * steps as u32;
                tuner.took(PassKind::Train, team, steps as f64, time);
                spent += time.as_secs_f64();
                alone += if team { 0.0 } else { time.as_secs_f64() };
            }
            alone / spent
        };
        assert!(run(7, 10.0) < 0.03);
        assert!(run(25, 4.0) > 0.75);
    }

    #[test]
    fn an_epochs_last_batch_makes_no_others_slow() {
        let mut tuner = adaptive(KnownTimes::default());
        let (mut spent, mut probed) = (0.0, 0.0);
        for step in 1..3000 {
            // Blocks of one step; every tenth has a tenth of the rows.
            let batches = if step % 10 == 0 { 0.1 } else { 1.0 };
            let (team, _) = tuner.next(PassKind::Train, 1);
            tuner.took(PassKind::Train, team, batches, Duration::from_secs_f64(batches));
            (spent, probed) = (spent + batches, probed + if team { 0.0 } else { batches });
        }
        assert!(probed > 0.0 && probed < 0.025 * spent, "{probed} of {spent}");
    }

    #[test]
    fn a_team_that_takes_many_times_what_one_thread_needs_is_left_at_once() {
        let known = KnownTimes { estimate_s: Some(50e-6), tried_s: None };
        let mut tuner = adaptive(known);
        assert_eq!(tuner.next(PassKind::Train, 23), (true, 23));
        tuner.took(PassKind::Train, true, 23.0, Duration::from_micros(23 * 841));
        assert!(!tuner.next(PassKind::Train, 23).0);
        // One thread proves slow as well, so the team is used again.
        tuner.took(PassKind::Train, false, 23.0, Duration::from_micros(23 * 1500));
        assert!(tuner.next(PassKind::Train, 23).0);
    }

    #[test]
    fn without_a_choice_there_is_none() {
        assert_eq!(
            ThreadTuner::new(1, ThreadMode::Adaptive, KnownTimes::default()).next(PassKind::Train, 7),
            (false, 7)
        );
        assert_eq!(
            ThreadTuner::new(2, ThreadMode::Team, KnownTimes::default()).next(PassKind::Train, 7),
            (true, 7)
        );
    }
}
