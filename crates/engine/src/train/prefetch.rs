//! Reads rows that steps will fetch from a file into the operating system's file cache, ahead of the steps.
//!
//! A sample of the next rows shows whether reading them waits for a disk. If so, threads read all of them and drop the data, so
//! that steps find them cached. If not, reading ahead would only take a core from the steps.

use std::{
    io,
    ops::Range,
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use crate::{device::RowReader, host::lock, plan::READERS_AHEAD};

/// Rows in the sample.
const SAMPLE_ROWS: usize = 16;

/// Rows that a thread reads before it checks whether to stop; a hard disk may take 10 ms for each.
const ROWS_PER_CHECK: usize = 16;

/// Smallest window, in bytes: about 10 ms of a fast disk, and of steps.
const WINDOW_BYTES: usize = 32 << 20;

/// A row that takes longer than this to read was waited for: a system call takes one or two microseconds, the
/// fastest disks take about fifty.
const CALL: Duration = Duration::from_micros(20);

/// A lower limit of the rate at which bytes are copied from cached memory, per second.
const COPIED_PER_S: f64 = 1e9;

/// Whether reading a row took too long for it to have been cached.
fn is_far(took: Duration, row_bytes: u64) -> bool {
    took > CALL + Duration::from_secs_f64(row_bytes as f64 / COPIED_PER_S)
}

/// Rows of a window. Steps report their position at least once per window.
pub fn window(features: usize) -> usize {
    (WINDOW_BYTES / (4 * features.max(1))).max(SAMPLE_ROWS)
}

#[derive(Default)]
struct Pass {
    order: Option<Arc<Vec<u32>>>,
    rows: usize,
    /// The next row that the steps will take.
    position: usize,
    /// Rows before this one have been looked at.
    covered: usize,
    ended: bool,
}

struct Shared {
    pass: Mutex<Pass>,
    changed: Condvar,
}

pub struct Prefetch {
    shared: Arc<Shared>,
    worker: Option<JoinHandle<()>>,
}

impl Prefetch {
    pub fn new(rows: Arc<dyn RowReader>, features: usize) -> io::Result<Self> {
        let shared = Arc::new(Shared { pass: Mutex::default(), changed: Condvar::new() });
        let worker = Worker { rows, features: features.max(1), shared: Arc::clone(&shared) };
        let worker = thread::Builder::new().name("read-ahead".into()).spawn(move || worker.serve())?;
        Ok(Self { shared, worker: Some(worker) })
    }

    /// Begins a pass, in `order` or in file order.
    pub fn begin(&self, order: Option<Arc<Vec<u32>>>, rows: usize) {
        *lock(&self.shared.pass) = Pass { order, rows, ..Pass::default() };
        self.shared.changed.notify_one();
    }

    pub fn at(&self, position: usize) {
        lock(&self.shared.pass).position = position;
        self.shared.changed.notify_one();
    }
}

impl Drop for Prefetch {
    fn drop(&mut self) {
        lock(&self.shared.pass).ended = true;
        self.shared.changed.notify_one();
        if let Some(worker) = self.worker.take() {
            // If a worker panicked, some rows are not cached, nothing worse.
            drop(worker.join());
        }
    }
}

struct Worker {
    rows: Arc<dyn RowReader>,
    features: usize,
    shared: Arc<Shared>,
}

impl Worker {
    fn serve(&self) {
        while let Some(rows) = self.next() {
            let rows = rows.numbers();
            if self.is_far(&rows) {
                self.bring_near(&rows);
            }
        }
    }

    /// The next window, once the steps are close to it; `None` at the end.
    fn next(&self) -> Option<PrefetchBatch> {
        let window = window(self.features);
        let mut pass = lock(&self.shared.pass);
        loop {
            if pass.ended {
                return None;
            }
            if let Some(range) = upcoming(&pass, window) {
                pass.covered = range.end;
                return Some(PrefetchBatch { order: pass.order.clone(), range });
            }
            pass = self.shared.changed.wait(pass).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Whether some of the rows are not in the file cache.
    fn is_far(&self, rows: &[u32]) -> bool {
        let mut row = vec![0.0; self.features];
        // A spread sample. A single slow read may only mean that this thread lost its core for a moment, so
        // at least two must be slow.
        let looked_at = rows
            .iter()
            .step_by((rows.len() / SAMPLE_ROWS).max(1))
            .take_while(|_| !lock(&self.shared.pass).ended);
        let slow = looked_at.filter(|number| {
            let begun = Instant::now();
            // The error is ignored here; the step that needs the row reports it.
            let _ = self.rows.read_rows(&[**number], &mut row);
            is_far(begun.elapsed(), self.rows.row_bytes())
        });
        slow.count() > 1
    }

    fn bring_near(&self, rows: &[u32]) {
        thread::scope(|scope| {
            for rows in rows.chunks(rows.len().div_ceil(READERS_AHEAD).max(1)) {
                let read = move || {
                    let mut room = vec![0.0; ROWS_PER_CHECK * self.features];
                    for rows in rows.chunks(ROWS_PER_CHECK).take_while(|_| !lock(&self.shared.pass).ended) {
                        let _ = self.rows.read_rows(rows, &mut room[..rows.len() * self.features]);
                    }
                };
                // If no thread can be started, the steps simply wait for their rows.
                let _ = thread::Builder::new().name("read-ahead".into()).spawn_scoped(scope, read);
            }
        });
    }
}

struct PrefetchBatch {
    order: Option<Arc<Vec<u32>>>,
    range: Range<usize>,
}

impl PrefetchBatch {
    fn numbers(&self) -> Vec<u32> {
        let Range { start, end } = self.range;
        match &self.order {
            Some(order) => order.get(start..end).unwrap_or_default().to_vec(),
            None => (start as u32..end as u32).collect(),
        }
    }
}

/// The next window, if it begins within two windows of the steps.
fn upcoming(pass: &Pass, window: usize) -> Option<Range<usize>> {
    let first = pass.covered.max(pass.position);
    let near = first < pass.rows && first < pass.position.saturating_add(2 * window);
    near.then(|| first..pass.rows.min(first + window))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Reads;
    use std::{
        sync::mpsc::{Sender, channel},
        time::Duration,
    };

    /// Reports which rows are read; each read takes the given time.
    struct Notify(Mutex<Sender<Vec<u32>>>, Duration);

    impl RowReader for Notify {
        fn read_rows(&self, rows: &[u32], _: &mut [f32]) -> io::Result<()> {
            let begun = Instant::now();
            while begun.elapsed() < self.1 {
                std::hint::spin_loop();
            }
            let _ = self.0.lock().expect("nobody panics").send(rows.to_vec());
            Err(io::Error::other("nobody asks for the numbers"))
        }

        fn read_range(&self, _: u32, _: &mut [f32]) -> io::Result<()> {
            Ok(())
        }

        fn row_bytes(&self) -> u64 {
            4 * FEATURES as u64
        }

        fn counted(&self, _: Arc<Reads>) -> Arc<dyn RowReader> {
            unreachable!("nobody counts")
        }
    }

    const FEATURES: usize = 1 << 15;
    const WINDOW: usize = WINDOW_BYTES / (4 * FEATURES);

    #[test]
    fn rows_that_are_waited_for_are_all_read_in_the_order_of_the_pass() {
        let (tell, reported) = channel();
        let prefetch =
            Prefetch::new(Arc::new(Notify(Mutex::new(tell), Duration::from_micros(200))), FEATURES);
        let prefetch = prefetch.expect("a thread");
        let order: Vec<u32> = (0..3 * WINDOW as u32).rev().collect();
        prefetch.begin(Some(Arc::new(order.clone())), order.len());
        // Two windows at the start, and no more until the steps advance.
        let mut read = std::collections::BTreeSet::new();
        while read.len() < 2 * WINDOW {
            read.extend(reported.recv().expect("reads go on"));
        }
        assert_eq!(read.iter().next(), Some(&(WINDOW as u32)));
        prefetch.at(WINDOW);
        while read.len() < 3 * WINDOW {
            read.extend(reported.recv().expect("reads go on"));
        }
        drop(prefetch);
        assert!(reported.iter().flatten().all(|row| read.contains(&row)));
    }

    #[test]
    fn steps_that_are_further_leave_rows_behind() {
        let pass = |position, covered| Pass { rows: 1000, position, covered, ..Pass::default() };
        assert_eq!(upcoming(&pass(0, 0), 100), Some(0..100));
        assert_eq!(upcoming(&pass(0, 100), 100), Some(100..200));
        assert_eq!(upcoming(&pass(0, 200), 100), None, "far enough ahead");
        assert_eq!(upcoming(&pass(450, 200), 100), Some(450..550), "what is past is no use");
        assert_eq!(upcoming(&pass(900, 950), 100), Some(950..1000));
        assert_eq!(upcoming(&pass(1000, 1000), 100), None);
    }
}
