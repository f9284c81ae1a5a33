//! What a run's time went into: measured phases, held against the least time that its steps need.
//!
//! Time is booked to a cause only where something shows it. The time of computing is divided as the lower bound is, up to
//! that bound; what it takes longer is unexplained, but for the hand-over of blocks, waits for a core and page faults. Blocks
//! and faults are counted, and what one takes is measured.
//!
//! A GPU's time of computing is by its own events. What the host does meanwhile costs the run nothing: rows and log are
//! charged with no more than the time in which the GPU stood idle. Resident rows are moved before the first step, so they
//! come first there; streamed ones come after the log. The rest is idle time that nothing explains.

use super::{
    lower_bound::{Bottleneck, LowerBound, TimeBreakdown},
    rates::{Origin, Processor},
    trial::Trial,
};
use crate::spec::Policy;

/// What a run spent its training time on, in seconds over all its steps, as measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Measured {
    pub full_steps: u64,
    /// Steps on the fewer rows that an epoch ends with.
    pub last_steps: u64,
    /// All of it, without validation.
    pub train_s: f64,
    /// The steps themselves, by the device's own clock where it has one.
    pub compute_s: f64,
    /// Fetching rows from their file, by the steps themselves.
    pub fetch_s: f64,
    /// The host waiting for chunks of rows, while a GPU may compute.
    pub wait_s: f64,
    /// The host moving rows to the device, while a GPU may compute.
    pub upload_s: f64,
    /// Reading metrics and handing them over, while a GPU may compute.
    pub log_s: f64,
    /// Copying the state for checkpoints, and waiting until the one before is written.
    pub checkpoint_s: f64,
    /// All-reduce, where it is timed by itself.
    pub all_reduce_s: f64,
    /// How long the thread that the clock times was ready to run and had no core.
    pub core_wait_s: f64,
    /// Page faults of that thread, as many as there were times what one takes.
    pub page_faults_s: f64,
    /// Times that the host waited for the device in order to log.
    pub log_waits: u64,
}

/// Seconds of a run and what they went into.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimeShare {
    pub cause: Bottleneck,
    pub seconds: f64,
}

/// A run that reads its losses more often than once per epoch, as counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FewerReads {
    /// Whether it reads blocks already, so that `logging.flush_every` is what to change.
    pub is_buffered: bool,
    /// Reads that it waited for.
    pub reads: u64,
    /// Reads with one per epoch.
    pub instead: u64,
}

/// What a run's training time went into.
#[derive(Clone, Debug, PartialEq)]
pub struct TimeAccount {
    /// The largest first; they add up to the training time.
    pub shares: Vec<TimeShare>,
    pub step_s: f64,
    /// The least that a step could take, as the mean over full and last batches.
    pub least_s: f64,
    /// Whose rates the lower bound is made of.
    pub processor: Processor,
    /// Where those rates come from.
    pub origin: Origin,
    /// Where the log takes most of the time and could take less.
    pub fewer_reads: Option<FewerReads>,
}

impl TimeAccount {
    /// The account of a trial. `None` without steps, and if the lower bound is that of another processor: the speed of a
    /// virtual GPU says nothing, and a real one may not have been measured.
    pub fn new(trial: &Trial, measured: &Measured) -> Option<Self> {
        let steps = (measured.full_steps + measured.last_steps) as f64;
        let lower_bound = &trial.lower_bound;
        let on_gpu = !trial.devices.on_cpu();
        if steps == 0.0 || measured.train_s <= 0.0 || on_gpu != lower_bound.rates.processor.is_gpu() {
            return None;
        }
        let least = lower_bound.of_steps(trial.threads, measured.full_steps, measured.last_steps);
        let from_file = trial.facts.in_file();
        let streamed = trial.chunks.is_some() || from_file;
        let mut shares = step_shares(lower_bound, least, measured);
        let checkpoints = TimeShare { cause: Bottleneck::Checkpoint, seconds: measured.checkpoint_s };
        let beside = if on_gpu {
            idle_shares(measured, lower_bound.rates.block_s, streamed, from_file)
        } else {
            vec![
                TimeShare { cause: Bottleneck::Transfer, seconds: measured.upload_s },
                TimeShare { cause: rows_cause(from_file), seconds: measured.fetch_s + measured.wait_s },
                TimeShare { cause: Bottleneck::Log, seconds: measured.log_s },
            ]
        };
        for share in beside.into_iter().chain([checkpoints]) {
            match shares.iter_mut().find(|known| known.cause == share.cause) {
                Some(known) => known.seconds += share.seconds,
                None => shares.push(share),
            }
        }
        let known_s: f64 = shares.iter().map(|share| share.seconds).sum();
        let mut rest_s = (measured.train_s - known_s).max(0.0);
        // What the host lacked explains no time in which a GPU computed.
        let mut idle = shares.iter_mut().find(|share| share.cause == Bottleneck::Idle);
        let left_s = idle.as_mut().map_or(&mut rest_s, |idle| &mut idle.seconds);
        let mut causes = [
            TimeShare { cause: Bottleneck::Core, seconds: measured.core_wait_s },
            TimeShare { cause: Bottleneck::PageFaults, seconds: measured.page_faults_s },
        ];
        for cause in &mut causes {
            cause.seconds = cause.seconds.min(*left_s);
            *left_s -= cause.seconds;
        }
        shares.extend(causes);
        shares.push(TimeShare { cause: Bottleneck::Unexplained, seconds: rest_s });
        shares.retain(|share| share.seconds > 0.0);
        shares.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        let is_log = shares.first().is_some_and(|share| share.cause == Bottleneck::Log);
        Some(Self {
            shares,
            step_s: measured.train_s / steps,
            least_s: least.total_s() / steps,
            processor: lower_bound.rates.processor,
            origin: lower_bound.rates.origin,
            fewer_reads: fewer_reads(trial, steps as u64, measured.log_waits).filter(|_| is_log),
        })
    }

    /// The part of the training time that a share has.
    pub fn part(&self, share: &TimeShare) -> f64 {
        let all: f64 = self.shares.iter().map(|share| share.seconds).sum();
        share.seconds / all.max(f64::MIN_POSITIVE)
    }

    /// How many times its lower bound a step takes; `None` below it, which only says that the rates are another machine's.
    pub fn distance(&self) -> Option<f64> {
        Some(self.step_s / self.least_s.max(f64::MIN_POSITIVE)).filter(|times| *times >= 1.0)
    }
}

fn rows_cause(from_file: bool) -> Bottleneck {
    if from_file { Bottleneck::File } else { Bottleneck::Transfer }
}

/// The time of computing, divided as the lower bound is; what takes longer goes to the hand-over of blocks, up to its cost.
fn step_shares(lower_bound: &LowerBound, least: TimeBreakdown, measured: &Measured) -> Vec<TimeShare> {
    let mut least = least;
    if measured.all_reduce_s > 0.0 {
        least.all_reduce_s = 0.0;
    }
    let least_s = least.device_s();
    // A run may be quicker than the bound of typical rates.
    let scale = (measured.compute_s / least_s.max(f64::MIN_POSITIVE)).min(1.0);
    let excess_s = (measured.compute_s - least_s).max(0.0);
    // A GPU's steps hold no hand-over.
    let waits = if lower_bound.rates.processor.is_gpu() { 0 } else { measured.log_waits };
    let handover_s = excess_s.min(waits as f64 * lower_bound.rates.block_s);
    vec![
        TimeShare { cause: Bottleneck::Arithmetic, seconds: least.arithmetic_s * scale },
        TimeShare { cause: Bottleneck::Memory, seconds: least.memory_s * scale },
        TimeShare { cause: Bottleneck::Overhead, seconds: least.overhead_s * scale },
        TimeShare {
            cause: Bottleneck::AllReduce,
            seconds: least.all_reduce_s * scale + measured.all_reduce_s,
        },
        TimeShare { cause: Bottleneck::Log, seconds: handover_s },
    ]
}

/// What a GPU stood idle for.
fn idle_shares(measured: &Measured, block_s: f64, streamed: bool, from_file: bool) -> Vec<TimeShare> {
    let busy_s = measured.compute_s + measured.all_reduce_s + measured.checkpoint_s;
    let idle_s = (measured.train_s - busy_s).max(0.0);
    let log_s = measured.log_s + measured.log_waits as f64 * block_s;
    let moved_s = measured.upload_s + measured.wait_s;
    let (log_s, rows_s) = if streamed {
        let log_s = log_s.min(idle_s);
        (log_s, moved_s.min(idle_s - log_s))
    } else {
        let rows_s = moved_s.min(idle_s);
        (log_s.min(idle_s - rows_s), rows_s)
    };
    let waited_s = rows_s * measured.wait_s / moved_s.max(f64::MIN_POSITIVE);
    let mut shares = vec![
        TimeShare { cause: Bottleneck::Log, seconds: log_s },
        TimeShare { cause: Bottleneck::Transfer, seconds: rows_s - waited_s },
        TimeShare { cause: Bottleneck::Idle, seconds: idle_s - log_s - rows_s },
    ];
    match from_file {
        true => shares.push(TimeShare { cause: Bottleneck::File, seconds: waited_s }),
        false => shares[1].seconds += waited_s,
    }
    shares
}

/// `None` where losses are read once per epoch, or less.
fn fewer_reads(trial: &Trial, steps: u64, reads: u64) -> Option<FewerReads> {
    let instead = steps.div_ceil(trial.steps_per_epoch.max(1));
    let is_buffered = match trial.spec.logging.policy {
        Policy::Immediate => false,
        Policy::Buffered => true,
        Policy::PerEpoch | Policy::Off => return None,
    };
    (instead < reads).then_some(FewerReads { is_buffered, reads, instead })
}

#[cfg(test)]
#[path = "time_account_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "time_account_gpu_tests.rs"]
mod gpu_tests;
