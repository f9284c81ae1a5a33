//! What fetching rows from a file takes on this machine, measured on some of the rows themselves: a few milliseconds.
//!
//! Rows that were looked at once are in the system's memory afterwards, so each look takes others: which ones, the clock
//! decides. Of a disk it takes as many as it has time for.

use std::{
    io, thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use super::RowReader;
use crate::{
    plan::{BLOCK_BYTES, Disk, FileRates, GAP_BYTES, Origin},
    random,
};

/// Reading a row takes longer than this only where something is waited for: a call of the system takes a microsecond or
/// two, the quickest of disks some fifty.
const CALL: Duration = Duration::from_micros(20);

/// Bytes that are copied from memory in a second at least.
const COPIED_PER_S: f64 = 1e9;

/// Rows that are looked at one by one.
const LOOKS: usize = 64;

/// The least of them, however long they take.
const LEAST_LOOKS: usize = 8;

/// How long each part of the measurement takes, about, where nothing is waited for.
const LONG: Duration = Duration::from_millis(1);

/// Repeats of each figure at most.
const REPEATS: usize = 32;

/// Whether a row of so many bytes that took so long was waited for.
pub fn is_far(took: Duration, row_bytes: u64) -> bool {
    took > CALL + Duration::from_secs_f64(row_bytes as f64 / COPIED_PER_S)
}

/// Measures on `count` rows of `features` numbers; `None` where they cannot be read, which is told by the step that needs
/// them, or there is none.
pub fn file_rates(
    rows: &dyn RowReader,
    (count, features): (usize, usize),
    threads: usize,
) -> Option<FileRates> {
    if count == 0 {
        return None;
    }
    Probe::new(rows, count, features).rates(threads).ok()
}

/// Takes rows nobody has looked at, as far as there are such.
struct Probe<'a> {
    rows: &'a dyn RowReader,
    count: usize,
    features: usize,
    /// Rows of a batch: so few of all that hardly two lie close enough to be read together.
    batch: usize,
    drawn: u64,
    room: Vec<f32>,
}

impl<'a> Probe<'a> {
    fn new(rows: &'a dyn RowReader, count: usize, features: usize) -> Self {
        let apart = count as u64 * rows.row_bytes() / (16 * GAP_BYTES);
        let batch = (apart as usize).clamp(1, LOOKS);
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { rows, count, features, batch, drawn: since.as_nanos() as u64, room: Vec::new() }
    }

    fn draw(&mut self, many: usize) -> Vec<u32> {
        let count = self.count as u64;
        (0..many)
            .map(|_| {
                self.drawn = self.drawn.wrapping_add(1);
                (random::mix(self.drawn) % count) as u32
            })
            .collect()
    }

    /// Seconds of reading those rows.
    fn read(&mut self, rows: &[u32]) -> io::Result<f64> {
        self.room.resize(rows.len() * self.features, 0.0);
        let begun = Instant::now();
        self.rows.read_rows(rows, &mut self.room)?;
        Ok(begun.elapsed().as_secs_f64())
    }

    fn rates(&mut self, threads: usize) -> io::Result<FileRates> {
        let row_bytes = self.rows.row_bytes();
        let looks = self.look()?;
        let far: Vec<f64> = looks
            .iter()
            .filter(|(_, s)| is_far(Duration::from_secs_f64(*s), row_bytes))
            .map(|l| l.1)
            .collect();
        // One that took long may have lost its core for a moment.
        let waited = far.len() > 1;
        let row_s = match waited {
            false => self.near(None)?,
            // Those that were waited for are in memory now.
            true => {
                let again: Vec<u32> = looks.iter().map(|(row, _)| *row).collect();
                self.near(Some(&again))?
            }
        };
        let [first, again] = self.in_a_row()?;
        // Where nothing is waited for, what was read before is nearer than a run has it.
        let bytes_per_s = row_bytes as f64 / if waited { again } else { first };
        let disk = waited.then(|| Disk {
            rows: far.len() as u32,
            row_s: far.iter().sum::<f64>() / far.len() as f64,
            bytes_per_s: row_bytes as f64 / first.max(again),
        });
        let scaling = if threads > 1 && !waited { self.scaling(row_s)? } else { FileRates::TYPICAL.scaling };
        Ok(FileRates {
            origin: Origin::Measured,
            call_s: (row_s - row_bytes as f64 / bytes_per_s).max(0.0),
            bytes_per_s,
            scaling,
            looked_at: looks.len() as u32,
            disk,
        })
    }

    /// Rows one by one, and what each took.
    fn look(&mut self) -> io::Result<Vec<(u32, f64)>> {
        let begun = Instant::now();
        let mut looks = Vec::with_capacity(LOOKS);
        for row in self.draw(LOOKS) {
            looks.push((row, self.read(&[row])?));
            if looks.len() >= LEAST_LOOKS && begun.elapsed() > 10 * LONG {
                break;
            }
        }
        Ok(looks)
    }

    /// The median of seconds per row of batches in any order: of rows that are new, or of those.
    fn near(&mut self, of: Option<&[u32]>) -> io::Result<f64> {
        let (begun, mut all) = (Instant::now(), Vec::new());
        while all.len() < 3 || (all.len() < REPEATS && begun.elapsed() < LONG) {
            let batch = match of {
                Some(rows) => rows.to_vec(),
                None => self.draw(self.batch),
            };
            all.push(self.read(&batch)? / batch.len() as f64);
        }
        Ok(median(all))
    }

    /// Seconds per row of rows that follow each other: when they are first read, and again.
    fn in_a_row(&mut self) -> io::Result<[f64; 2]> {
        let rows = (4 * BLOCK_BYTES / self.rows.row_bytes().max(1)).clamp(1, self.count as u64) as usize;
        self.room.resize(rows * self.features, 0.0);
        let (started, mut all) = (Instant::now(), [Vec::new(), Vec::new()]);
        while all[0].len() < 3 || (all[0].len() < REPEATS && started.elapsed() < LONG) {
            self.drawn = self.drawn.wrapping_add(1);
            let first = (random::mix(self.drawn) % (self.count - rows + 1) as u64) as u32;
            for seconds in &mut all {
                let begun = Instant::now();
                self.rows.read_range(first, &mut self.room)?;
                seconds.push(begun.elapsed().as_secs_f64() / rows as f64);
            }
        }
        Ok(all.map(median))
    }

    /// What a second thread adds to the speed of one that takes `row_s` for a row.
    fn scaling(&mut self, row_s: f64) -> io::Result<f64> {
        let mut other = Probe::new(self.rows, self.count, self.features);
        other.drawn = random::mix(other.drawn);
        let both = thread::scope(|scope| {
            // It takes a while to start: it reads for longer than what is timed.
            let other = thread::Builder::new()
                .spawn_scoped(scope, move || (0..4).try_for_each(|_| other.near(None).map(drop)));
            let own = self.near(None).and_then(|_| self.near(None));
            other.ok().map(|_| own)
        });
        Ok(both.transpose()?.map_or(0.0, |both| (2.0 * row_s / both - 1.0).clamp(0.0, 1.0)))
    }
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_unstable_by(f64::total_cmp);
    all[all.len() / 2]
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::device::Reads;

    /// Takes so long for each row that is new to it, and for every row.
    struct Slow {
        new: Duration,
        every: Duration,
        seen: Mutex<std::collections::BTreeSet<u32>>,
    }

    impl Slow {
        fn wait(&self, rows: impl Iterator<Item = u32>) {
            for row in rows {
                let is_new = self.seen.lock().expect("nobody panics").insert(row);
                let (begun, long) = (Instant::now(), if is_new { self.new } else { self.every });
                while begun.elapsed() < long {
                    std::hint::spin_loop();
                }
            }
        }
    }

    impl RowReader for Slow {
        fn read_rows(&self, rows: &[u32], _: &mut [f32]) -> io::Result<()> {
            self.wait(rows.iter().copied());
            Ok(())
        }

        fn read_range(&self, first: u32, out: &mut [f32]) -> io::Result<()> {
            self.wait(first..first + out.len() as u32);
            Ok(())
        }

        fn row_bytes(&self) -> u64 {
            1 << 20
        }

        fn counted(&self, _: Arc<Reads>) -> Arc<dyn RowReader> {
            unreachable!("nobody counts")
        }
    }

    /// What takes long is at least as long as it is made to be; how much longer depends on others.
    #[test]
    fn a_disk_is_told_from_memory() {
        let slow = |new, every| Slow { new, every, seen: Mutex::default() };
        // A megabyte is copied in a millisecond at most.
        let [disk, memory] = [1500, 100].map(Duration::from_micros);
        let rates = file_rates(&slow(disk, memory), (100_000, 1), 1).expect("rates");
        let far = rates.disk.expect("a disk");
        assert!(rates.looked_at >= 8 && far.rows == rates.looked_at && far.row_s >= 1.5e-3, "{rates:?}");
        assert!(rates.bytes_per_s <= f64::from(1 << 20) / 100e-6, "{rates:?}");
        assert_eq!(rates.origin, Origin::Measured);
        assert_eq!(file_rates(&slow(disk, memory), (0, 1), 1), None);
    }
}
