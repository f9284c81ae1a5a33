//! How many products or copies are done, told now and then while more are measured.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use super::Emit;
use crate::event::{Closed, Event, Progress};

/// The time between two reports. Each wakes the thread that prints it, which takes a moment from what is measured.
const INTERVAL: Duration = Duration::from_millis(500);

/// Counts for all devices, which may work at the same time.
pub(super) struct Counter<'a> {
    emit: Emit<'a>,
    begun: Instant,
    interval: Duration,
    done: AtomicU64,
    /// Nanoseconds from `begun` to the next report.
    next_ns: AtomicU64,
}

impl<'a> Counter<'a> {
    pub(super) fn new(emit: Emit<'a>) -> Self {
        Self::with_interval(emit, INTERVAL)
    }

    fn with_interval(emit: Emit<'a>, interval: Duration) -> Self {
        let next_ns = AtomicU64::new(nanoseconds(interval));
        Self { emit, begun: Instant::now(), interval, done: AtomicU64::new(0), next_ns }
    }

    /// Counts one more, and reports how many there are if it is time.
    pub(super) fn count(&self) -> Result<(), Closed> {
        let step = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        let (elapsed, due) = (self.begun.elapsed(), self.next_ns.load(Ordering::Relaxed));
        if nanoseconds(elapsed) < due {
            return Ok(());
        }
        let next = nanoseconds(elapsed + self.interval);
        // One of several threads reports.
        if self.next_ns.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return Ok(());
        }
        let elapsed_s = elapsed.as_secs_f64();
        let progress = Progress { step, samples: step, train_s: elapsed_s, elapsed_s, ..Progress::default() };
        (self.emit)(Event::Progress(progress))
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::host::lock;

    /// The steps that are reported of five products.
    fn reported(interval: Duration) -> Vec<u64> {
        let steps = Mutex::new(Vec::new());
        let emit = |event| {
            if let Event::Progress(Progress { step, .. }) = event {
                lock(&steps).push(step);
            }
            Ok(())
        };
        let counter = Counter::with_interval(&emit, interval);
        (0..5).for_each(|_| counter.count().unwrap());
        steps.into_inner().unwrap()
    }

    #[test]
    fn it_reports_when_it_is_time() {
        assert_eq!(reported(Duration::ZERO), [1, 2, 3, 4, 5]);
        assert!(reported(Duration::from_secs(3600)).is_empty());
    }
}
