//! A second signal ends the process at once. Rows that are on their way to the files are waited for, for a moment, and
//! summaries of runs that have not ended say `interrupted`.

use std::{
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use super::summary::SummaryCsv;
use crate::host::{SecondSignal, lock};

/// How long runs may take to end in order.
const MOST: Duration = Duration::from_secs(1);

const INTERVAL: Duration = Duration::from_millis(5);

/// The summaries of runs that are under way.
static SUMMARIES: Registry<Mutex<SummaryCsv>> = Registry(Mutex::new(Vec::new()));

/// For each recorder at work, the number of batches that were sent to it and are not written.
static UNWRITTEN: Registry<AtomicUsize> = Registry(Mutex::new(Vec::new()));

/// What runs share with [`close`] while they use it.
struct Registry<T>(Mutex<Vec<Weak<T>>>);

impl<T> Registry<T> {
    fn add(&self, new: T) -> Arc<T> {
        let new = Arc::new(new);
        let mut all = lock(&self.0);
        all.retain(|other| other.strong_count() > 0);
        all.push(Arc::downgrade(&new));
        new
    }

    fn in_use(&self) -> Vec<Arc<T>> {
        let all = lock(&self.0);
        all.iter().filter_map(Weak::upgrade).collect()
    }
}

/// Shares a run's summary with [`end_at_second_signal`].
pub(super) fn shared(summary: SummaryCsv) -> Arc<Mutex<SummaryCsv>> {
    SUMMARIES.add(Mutex::new(summary))
}

/// A recorder's number of unwritten batches, shared with [`end_at_second_signal`].
pub(super) fn unwritten() -> Arc<AtomicUsize> {
    UNWRITTEN.add(AtomicUsize::new(0))
}

/// From now on a second signal ends the process. Without a thread for it a third one does.
pub fn end_at_second_signal(signal: SecondSignal) {
    let wait = move || signal.wait(close);
    let _ = thread::Builder::new().name("signals".to_owned()).spawn(wait);
}

/// Returns whether all rows that left the devices are written.
fn close() -> bool {
    let begun = Instant::now();
    let open = SUMMARIES.in_use();
    // One that cannot be locked is being written.
    let is_open =
        |summary: &Arc<Mutex<SummaryCsv>>| summary.try_lock().map_or(true, |summary| summary.is_open());
    while begun.elapsed() < MOST && open.iter().any(is_open) {
        thread::sleep(INTERVAL);
    }
    // A run that has its summary has its rows, although its end may still be on the way to a terminal.
    let is_written = !open.iter().any(is_open)
        || UNWRITTEN.in_use().iter().all(|batches| batches.load(Ordering::SeqCst) == 0);
    for mut summary in open.iter().filter_map(|summary| summary.try_lock().ok()) {
        let _ = summary.end_at_once(); // a run without a row counts as unfinished
    }
    is_written
}
