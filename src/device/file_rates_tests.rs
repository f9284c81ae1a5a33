//! What is measured of files whose times are made up.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

use super::*;
use crate::device::Reads;

/// A file by its own clock: every read takes so long, and so long for each row that is new.
struct Made {
    row_bytes: u64,
    every: Duration,
    /// Of a call; of a row that does not follow the one before, half as long.
    call: Duration,
    /// Of a row that is new.
    new: fn(u32) -> Duration,
    /// Of the so manieth read.
    disturbed: fn(usize) -> Duration,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    now: Duration,
    reads: usize,
    rows: BTreeSet<u32>,
    /// Numbers that were asked for at once at most.
    most: usize,
}

const DISK: Duration = Duration::from_micros(100);
const NONE: Duration = Duration::ZERO;

impl Made {
    fn new(row_bytes: u64, new: fn(u32) -> Duration) -> Self {
        let every = Duration::from_nanos(1500 + row_bytes / 4);
        Self { row_bytes, every, call: NONE, new, disturbed: |_| NONE, seen: Mutex::default() }
    }

    fn rates(&self, count: usize) -> Option<FileRates> {
        let clock = || self.seen.lock().expect("nobody panics").now;
        let features = (self.row_bytes / 4) as usize;
        Probe::new(self, (count, features), 7, &clock)?.rates(1).ok()
    }

    fn wait(&self, rows: impl Iterator<Item = u32>, numbers: usize) {
        let mut seen = self.seen.lock().expect("nobody panics");
        seen.reads += 1;
        seen.most = seen.most.max(numbers);
        let disturbed = (self.disturbed)(seen.reads);
        seen.now += disturbed + self.call;
        let mut before = None;
        for row in rows {
            seen.now += self.every;
            if before.is_some_and(|before: u32| row != before.wrapping_add(1)) {
                seen.now += self.call / 2;
            }
            before = Some(row);
            if seen.rows.insert(row) {
                seen.now += (self.new)(row);
            }
        }
    }
}

impl RowReader for Made {
    fn read_rows(&self, rows: &[u32], out: &mut [f32]) -> io::Result<()> {
        self.wait(rows.iter().copied(), out.len());
        Ok(())
    }

    fn read_range(&self, first: u32, out: &mut [f32]) -> io::Result<()> {
        self.wait(first..first + (4 * out.len() as u64 / self.row_bytes) as u32, out.len());
        Ok(())
    }

    fn row_bytes(&self) -> u64 {
        self.row_bytes
    }

    fn counted(&self, _: Arc<Reads>) -> Arc<dyn RowReader> {
        unreachable!("nobody counts")
    }
}

fn close(a: f64, b: f64) {
    assert!((a / b - 1.0).abs() < 1e-6, "{a} {b}");
}

#[test]
fn a_disk_is_told_from_memory() {
    let made = Made::new(4000, |_| DISK);
    let rates = made.rates(1_000_000).expect("rates");
    let every = 2.5e-6;
    assert_eq!((rates.looked_at, rates.slow, rates.origin), (64, 64, Origin::Measured));
    let disk = rates.disk.expect("a disk");
    assert_eq!(disk.rows, 64);
    close(disk.row_s, 102.5e-6);
    close(disk.bytes_per_s, 4000.0 / 102.5e-6);
    close(rates.bytes_per_s, 4000.0 / every);

    let rates = Made::new(4000, |_| NONE).rates(1_000_000).expect("rates");
    assert_eq!((rates.looked_at, rates.slow, rates.disk), (64, 0, None));
    close(rates.bytes_per_s, 4000.0 / every);
    assert_eq!(Made::new(4000, |_| DISK).rates(0), None);
}

/// Each is looked at once.
#[test]
fn a_small_file_that_is_not_in_memory_is_seen_as_that() {
    for count in [1, 2, 10] {
        let rates = Made::new(4000, |_| DISK).rates(count).expect("rates");
        let rows = count as u32;
        assert_eq!((rates.looked_at, rates.disk.map(|disk| disk.rows)), (rows, Some(rows)));
        // All runs are in memory by now.
        close(rates.disk.expect("a disk").bytes_per_s, 4000.0 / 2.5e-6);
    }
}

#[test]
fn the_speed_of_a_disk_is_that_of_what_came_from_it() {
    let far_s = |runs: &[[f64; 2]]| far_s(&runs.iter().map(|[a, b]| [*a, *b, 99.0]).collect::<Vec<_>>());
    assert_eq!(far_s(&[[1.0, 1.0], [10.0, 1.0], [2.0, 1.0], [12.0, 2.0], [9.0, 1.0]]), 10.0);
    assert_eq!(far_s(&[[1.0, 1.0], [2.5, 1.0], [1.0, 1.5]]), 2.5);
    // A quarter of the file is far.
    let made = Made::new(100_000, |row| if row % 4000 < 1000 { DISK } else { NONE });
    let rates = made.rates(1_000_000).expect("rates");
    let disk = rates.disk.expect("a disk");
    assert!(disk.rows >= 4 && disk.rows < 32 && disk.rows == rates.slow, "{rates:?}");
    close(disk.row_s, 126.5e-6);
}

#[test]
fn who_is_disturbed_does_not_wait_for_a_disk() {
    // A core is lost now and then.
    let few =
        Made { disturbed: |read| if read % 30 == 7 { DISK } else { NONE }, ..Made::new(4000, |_| NONE) };
    let rates = few.rates(1_000_000).expect("rates");
    assert_eq!((rates.slow, rates.disk), (2, None));
    // By a machine that is busy throughout.
    let busy =
        |new| Made { disturbed: |read| if read % 4 == 0 { DISK } else { NONE }, ..Made::new(4000, new) };
    let rates = busy(|_| NONE).rates(1_000_000).expect("rates");
    assert_eq!((rates.slow, rates.disk), (16, None));
    // A disk is told even there.
    let rates = busy(|_| DISK).rates(1_000_000).expect("rates");
    assert_eq!(rates.disk.map(|disk| disk.rows), Some(64));
}

/// A floor is made of them: who is disturbed in half of what he does tells the same figures as who is not.
#[test]
fn figures_are_those_of_the_best_repeats() {
    let calm = Made::new(4000, |_| NONE).rates(1_000_000).expect("rates");
    let disturbed = |read: usize| if read.is_multiple_of(2) { NONE } else { DISK };
    let busy = Made { disturbed, ..Made::new(4000, |_| NONE) }.rates(1_000_000).expect("rates");
    assert_eq!((calm.disk, busy.disk), (None, None));
    close(calm.bytes_per_s, busy.bytes_per_s);
    close(calm.call_s + 1.0, busy.call_s + 1.0);
    close(calm.row_s + 1.0, busy.row_s + 1.0);
}

/// Every call takes as long as so many rows, and a row that does not follow the one before as long as one.
#[test]
fn calls_and_rows_are_told_apart() {
    let row_bytes = 40;
    let made = Made { call: Duration::from_micros(1), ..Made::new(row_bytes, |_| NONE) };
    let rates = made.rates(1_000_000).expect("rates");
    let every = 1.51e-6;
    // Twenty-six thousand rows at a time hide the call.
    assert!((rates.bytes_per_s / (40.0 / every) - 1.0).abs() < 1e-3, "{rates:?}");
    assert!((rates.next_s / 1e-6 - 1.0).abs() < 0.01, "{rates:?}");
    assert!((rates.row_s / 0.5e-6 - 1.0).abs() < 0.01, "{rates:?}");
}

/// However wide rows are, what is read at once is bounded, and so is the time.
#[test]
fn wide_rows_are_read_one_at_a_time() {
    for (row_bytes, at_once) in [(300_000, 3), (4_000_000, 1), (40_000_000, 1)] {
        let made = Made::new(row_bytes, |_| NONE);
        let rates = made.rates(1000).expect("rates");
        assert_eq!(rates.disk, None);
        let seen = made.seen.lock().expect("nobody panics");
        assert!(seen.most as u64 * 4 <= at_once * row_bytes, "{} numbers", seen.most);
        // What has to be read: to look, twice by itself, twice in a row and in disorder, and to go on from one that was read.
        let longest = LONGEST.max(made.every) + 7 * made.every;
        assert!(seen.now <= longest, "{:?} of {row_bytes}", seen.now);
    }
}

#[test]
fn rows_that_memory_does_not_hold_are_not_measured() {
    let made = Made::new(1 << 62, |_| NONE);
    assert_eq!(made.rates(3), None);
}
