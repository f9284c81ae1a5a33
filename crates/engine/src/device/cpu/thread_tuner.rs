//! Chooses whether the team or a single thread runs the next steps. The choice does not affect results.
//!
//! A team is as fast as its slowest member: if another process takes a member's core, every barrier waits for
//! the scheduler, and a step may take ten times as long as on one thread. So both modes are timed and the
//! faster one is used. The slower one is probed again when a probe is cheap compared with the time since the
//! last probe, and the team also when the cores that it lacked are free. The team is the default, unless others use the cores
//! when a trial begins; its first steps, on threads that have just been woken, do not count as evidence.

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
    /// Whether others kept the team from its cores when the trial began, or when it was last found slower.
    crowded: bool,
}

impl Selection {
    /// Seconds per step on one thread and on the team, once one of them has run. The other is assumed to take that times the
    /// number of threads, and one thread no more than the estimate allows.
    fn seconds(&self, threads: usize) -> Option<[f64; 2]> {
        let [alone, together] = self.seen.map(|seen| seen.median());
        let most = self.estimate_s.map_or(f64::INFINITY, |estimate| ESTIMATE_SLACK * estimate);
        let other = threads as f64 * alone.or(together)?;
        Some([alone.unwrap_or(other.min(most)), together.unwrap_or(other)])
    }

    /// The required time since the last probe, as a multiple of a probe's cost.
    fn wait(&self) -> u32 {
        let [alone, together] = self.seen.map(|seen| seen.median());
        let is_slow = together.zip(self.least_s).is_some_and(|(now, least)| now > SLOW * least);
        let is_known = alone.is_some() && self.least_s.is_some();
        if !is_known || is_slow { EAGER_WAIT } else { PROBE_WAIT }
    }
}

/// Steps of a short part.
fn in_a_part(step_s: f64) -> usize {
    // A float cast to an integer saturates.
    ((LONGEST_PART.as_secs_f64() / step_s) as usize).max(SHORTEST_PROBE)
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
        Self::on(cores, load::running, threads, sharing, known)
    }

    fn on(
        cores: usize,
        running: fn() -> Option<usize>,
        threads: usize,
        sharing: ThreadMode,
        known: KnownTimes,
    ) -> Self {
        let selections = Default::default();
        let mut tuner = Self { threads, sharing, turn: false, selections, running, cores };
        let is_crowded = threads > 1 && sharing == ThreadMode::Adaptive && tuner.crowd()(1);
        if is_crowded {
            for choice in &mut tuner.selections {
                (choice.crowded, choice.interval) = (true, SHORTEST_INTERVAL);
            }
        }
        let train = &mut tuner.selections[PassKind::Train as usize];
        train.estimate_s = known.estimate_s;
        // What a team took before others used its cores says nothing of now.
        let modes = if is_crowded { 1 } else { 2 };
        train
            .seen
            .iter_mut()
            .zip(known.tried_s.iter().flatten())
            .take(modes)
            .for_each(|(seen, s)| seen.add(*s));
        tuner
    }

    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Whether the team is likely to run the first steps.
    pub fn begins_together(&self) -> bool {
        self.threads > 1 && !self.selections[PassKind::Train as usize].crowded
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
        let Some(seconds) = choice.seconds(threads) else {
            let is_team = !(choice.crowded && is_crowded(1));
            let longest = choice.estimate_s.filter(|_| !is_team).map_or(steps, in_a_part);
            return (is_team, steps.min(longest));
        };
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
        (is_team, steps.min(step_s.map_or(steps, in_a_part)))
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
#[path = "thread_tuner_tests.rs"]
mod tests;
