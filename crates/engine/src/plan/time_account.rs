//! What a run's time was spent on: measured phases, compared with the least time that its steps need.
//!
//! Time is attributed to a cause only if a measurement supports it. Compute time, up to the lower bound, is
//! divided in the bound's proportions. The excess is attributed to the hand-over of blocks, waits for a core
//! and page faults, up to their cost (how often they occurred times the measured cost of one); the rest is
//! unexplained.
//!
//! On a GPU, compute time comes from its own events. Work that the host does meanwhile costs the run nothing,
//! so rows and log can only be charged with time in which the GPU was idle. Resident rows are copied before
//! the first step, so they are charged first; streamed rows are charged after the log. The rest is
//! unexplained idle time.

use super::{
    lower_bound::{Bottleneck, LowerBound, TimeBreakdown},
    rates::{Origin, Processor},
    trial::Trial,
};
use crate::spec::Policy;

/// What a run spent its training time on, in measured seconds over all its steps.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Measured {
    pub full_steps: u64,
    /// Steps on the smaller batch that ends an epoch.
    pub last_steps: u64,
    /// The whole training time, without validation.
    pub train_s: f64,
    /// The steps themselves, by the device's own clock where it has one.
    pub compute_s: f64,
    /// Fetches of rows from their file by the steps themselves.
    pub fetch_s: f64,
    /// The host waits for chunks of rows; a GPU may compute meanwhile.
    pub wait_s: f64,
    /// The host copies rows to the device; a GPU may compute meanwhile.
    pub upload_s: f64,
    /// The host reads metrics and hands them over, without waits for a core; a GPU may compute meanwhile.
    pub log_s: f64,
    /// The state is copied for checkpoints, including the wait until the previous one is written.
    pub checkpoint_s: f64,
    /// All-reduce, if it is timed separately.
    pub all_reduce_s: f64,
    /// The thread that the clock times was ready to run but had no core.
    pub core_wait_s: f64,
    /// Page faults of that thread: their count times the cost of one.
    pub page_faults_s: f64,
    /// How often the host waited for the device in order to log.
    pub log_waits: u64,
}

/// Seconds of a run and what they were spent on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimeShare {
    pub cause: Bottleneck,
    pub seconds: f64,
}

/// How many reads of losses a run could save, if it read them once per epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FewerReads {
    /// Whether it uses the policy `buffered` already, so that `logging.flush_every` is what to change.
    pub is_buffered: bool,
    /// Reads of the run, each of which it waited for.
    pub reads: u64,
    /// Reads if there were one per epoch.
    pub instead: u64,
}

/// What a run's training time was spent on.
#[derive(Clone, Debug, PartialEq)]
pub struct TimeAccount {
    /// Sorted, the largest first; they add up to the training time.
    pub shares: Vec<TimeShare>,
    pub step_s: f64,
    /// The least that a step could take, as the mean over full and last batches.
    pub least_s: f64,
    /// The kind of processor whose rates the lower bound uses.
    pub processor: Processor,
    /// Where those rates come from.
    pub origin: Origin,
    /// Set if the log takes more time than anything else and could take less.
    pub fewer_reads: Option<FewerReads>,
}

impl TimeAccount {
    /// The account of a trial. `None` without steps, or if the lower bound is for another processor than the
    /// one used: a virtual GPU's speed says nothing, and a real GPU may not have been measured.
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
        // Waits for a core and page faults cannot explain time in which a GPU computed, only its idle time.
        let mut idle = shares.iter_mut().find(|share| share.cause == Bottleneck::Idle);
        let left_s = idle.as_mut().map_or(&mut rest_s, |idle| &mut idle.seconds);
        let core_s = measured.core_wait_s.min(*left_s);
        let page_faults_s = measured.page_faults_s.min(*left_s - core_s);
        *left_s -= core_s + page_faults_s;
        shares.extend([
            TimeShare { cause: Bottleneck::Core, seconds: core_s },
            TimeShare { cause: Bottleneck::PageFaults, seconds: page_faults_s },
        ]);
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

    /// A share's fraction of the training time.
    pub fn part(&self, share: &TimeShare) -> f64 {
        let all: f64 = self.shares.iter().map(|share| share.seconds).sum();
        share.seconds / all.max(f64::MIN_POSITIVE)
    }

    /// Seconds of a cause.
    pub fn seconds(&self, cause: Bottleneck) -> f64 {
        self.shares.iter().filter(|share| share.cause == cause).map(|share| share.seconds).sum()
    }

    /// The ratio of a step's time to what the rates suggest. Rates are measured at another time, so it may be below 1.
    pub fn distance(&self) -> f64 {
        self.step_s / self.least_s.max(f64::MIN_POSITIVE)
    }
}

fn rows_cause(from_file: bool) -> Bottleneck {
    if from_file { Bottleneck::File } else { Bottleneck::Transfer }
}

/// Divides compute time in the proportions of the lower bound; the excess goes to the hand-over of blocks, up
/// to its cost.
fn step_shares(lower_bound: &LowerBound, least: TimeBreakdown, measured: &Measured) -> Vec<TimeShare> {
    let mut least = least;
    if measured.all_reduce_s > 0.0 {
        least.all_reduce_s = 0.0;
    }
    let least_s = least.device_s();
    // A run may be faster than a bound made of typical rates.
    let scale = (measured.compute_s / least_s.max(f64::MIN_POSITIVE)).min(1.0);
    let excess_s = (measured.compute_s - least_s).max(0.0);
    // A GPU's compute time includes no hand-over.
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

/// Divides the time in which a GPU was idle among its causes.
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

/// The saving from reading losses once per epoch; `None` if they are not read more often than that.
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
