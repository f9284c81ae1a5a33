//! A second signal ends the process at once. Rows that are on their way to the files are waited for, for a moment, and
//! summaries of runs that have not ended say `interrupted`.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    thread,
    time::{Duration, Instant},
};

use super::summary::SummaryCsv;
use crate::host::SecondSignal;

/// How long runs may take to end in order.
const MOST: Duration = Duration::from_secs(1);

const INTERVAL: Duration = Duration::from_millis(5);

/// The summaries of runs that are under way.
static SUMMARIES: Mutex<Vec<Weak<Mutex<SummaryCsv>>>> = Mutex::new(Vec::new());

/// Shares a run's summary with [`end_at_second_signal`].
pub(super) fn shared(summary: SummaryCsv) -> Arc<Mutex<SummaryCsv>> {
    let summary = Arc::new(Mutex::new(summary));
    let mut all = summaries();
    all.retain(|other| other.strong_count() > 0);
    all.push(Arc::downgrade(&summary));
    summary
}

/// From now on a second signal ends the process. Without a thread for it a third one does.
pub fn end_at_second_signal(signal: SecondSignal) {
    let wait = move || signal.wait(close);
    let _ = thread::Builder::new().name("signals".to_owned()).spawn(wait);
}

fn close() {
    let begun = Instant::now();
    let open: Vec<_> = summaries().iter().filter_map(Weak::upgrade).collect();
    // One that cannot be locked is being written.
    let is_open =
        |summary: &Arc<Mutex<SummaryCsv>>| summary.try_lock().map_or(true, |summary| summary.is_open());
    while begun.elapsed() < MOST && open.iter().any(is_open) {
        thread::sleep(INTERVAL);
    }
    for mut summary in open.iter().filter_map(|summary| summary.try_lock().ok()) {
        let _ = summary.end_at_once(); // a run without a row counts as unfinished
    }
}

fn summaries() -> MutexGuard<'static, Vec<Weak<Mutex<SummaryCsv>>>> {
    SUMMARIES.lock().unwrap_or_else(PoisonError::into_inner)
}
