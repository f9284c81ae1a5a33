//! What fetching rows from a file takes on this machine, measured on some of the rows themselves: a few milliseconds, or
//! some tens where rows are waited for or very wide.
//!
//! Each figure is the best of some repeats, as those of the machine are: a floor is made of them, and whatever else runs
//! only ever makes one slower.
//!
//! Rows that were looked at once are in the system's memory afterwards, so each look takes others: which ones, the clock
//! decides. Of a disk it takes as many as it has time for.

use std::{
    collections::HashMap,
    io, thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use super::{RowReader, make_room};
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

/// The least of them, where there is time for so many.
const LEAST_LOOKS: usize = 8;

/// So many rows that took long may each have lost their core for a moment.
const CHANCE: usize = 2;

/// A run of rows that takes that many times as long as the same run again came from a disk: out of the processor's caches
/// it comes some two times as quickly as out of memory.
const ELSEWHERE: f64 = 3.0;

/// Bytes that are read at once.
const AT_ONCE_BYTES: u64 = 4 * BLOCK_BYTES;

/// Bytes of a short call, about: those of a small batch.
const SHORT_BYTES: u64 = 2048;

/// Calls that go on where the last one ended, at a time.
const NEXT_CALLS: usize = 64;

/// How long each part of the measurement takes, about, where nothing is waited for.
const LONG: Duration = Duration::from_millis(1);

/// After that long, each part that is left does what it has to and no more.
const LONGEST: Duration = Duration::from_millis(40);

/// Repeats of each figure at most.
const REPEATS: usize = 32;

/// Repeats of each figure, where there is time for so many.
const LEAST_REPEATS: usize = 3;

/// Whether a row of so many bytes that took so long was waited for.
pub fn is_far(took: Duration, row_bytes: u64) -> bool {
    took > CALL + Duration::from_secs_f64(row_bytes as f64 / COPIED_PER_S)
}

/// Measures on `count` rows of `features` numbers; `None` where they cannot be read, or memory does not hold one, which is
/// told by the step that needs them, or there is none.
pub fn file_rates(
    rows: &dyn RowReader,
    (count, features): (usize, usize),
    threads: usize,
) -> Option<FileRates> {
    let begun = Instant::now();
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let clock = || begun.elapsed();
    Probe::new(rows, (count, features), since.as_nanos() as u64, &clock)?.rates(threads).ok()
}

/// Time since the measurement began.
type Watch<'a> = &'a (dyn Fn() -> Duration + Sync);

/// Takes rows nobody has looked at, as far as there are such.
struct Probe<'a> {
    rows: &'a dyn RowReader,
    count: usize,
    features: usize,
    /// Rows of a batch: so few of all that hardly two lie close enough to be read together.
    batch: usize,
    /// Rows that are read at once at most.
    most: usize,
    drawn: u64,
    /// Rows that were not drawn yet, by place: the first so many places. Where no row is noted, it is the place's own.
    left: u64,
    moved: HashMap<u64, u64>,
    room: Vec<f32>,
    clock: Watch<'a>,
}

impl<'a> Probe<'a> {
    /// `None` where there are no rows.
    fn new(
        rows: &'a dyn RowReader,
        (count, features): (usize, usize),
        drawn: u64,
        clock: Watch<'a>,
    ) -> Option<Self> {
        if count == 0 {
            return None;
        }
        let apart = (count as u64).saturating_mul(rows.row_bytes()) / (16 * GAP_BYTES);
        let most = (AT_ONCE_BYTES / rows.row_bytes().max(1)).clamp(1, count as u64) as usize;
        let batch = (apart as usize).clamp(1, LOOKS.min(most));
        let (left, moved) = (count as u64, HashMap::new());
        Some(Self { rows, count, features, batch, most, drawn, left, moved, room: Vec::new(), clock })
    }

    fn random(&mut self) -> u64 {
        self.drawn = self.drawn.wrapping_add(1);
        random::mix(self.drawn)
    }

    /// A row that was not drawn yet, until all were: Fisher and Yates, of whose places only those are kept that were
    /// touched.
    fn draw(&mut self) -> u32 {
        if self.left == 0 {
            self.left = self.count as u64;
            self.moved.clear();
        }
        let place = self.random() % self.left;
        self.left -= 1;
        let row = self.moved.get(&place).copied().unwrap_or(place);
        let last = self.moved.remove(&self.left).unwrap_or(self.left);
        self.moved.insert(place, last);
        row as u32
    }

    /// Whether a figure has so many repeats as it needs, or that there is time for.
    fn is_enough(&self, repeats: usize, begun: Duration) -> bool {
        let now = (self.clock)();
        let least = if now > LONGEST { 1 } else { LEAST_REPEATS };
        repeats >= least && (repeats >= REPEATS || now > LONGEST || now - begun > LONG)
    }

    /// Room for so many rows.
    fn make_room(&mut self, rows: usize) -> io::Result<()> {
        let numbers = rows.saturating_mul(self.features);
        self.room.truncate(numbers);
        make_room(&mut self.room, numbers, "rows to measure by")?;
        self.room.resize(numbers, 0.0);
        Ok(())
    }

    /// How long reading those rows takes.
    fn read(&mut self, rows: &[u32]) -> io::Result<Duration> {
        self.make_room(rows.len())?;
        let begun = (self.clock)();
        self.rows.read_rows(rows, &mut self.room)?;
        Ok((self.clock)() - begun)
    }

    fn rates(&mut self, threads: usize) -> io::Result<FileRates> {
        let row_bytes = self.rows.row_bytes();
        let looks = self.look()?;
        let slow: Vec<f64> =
            looks.iter().filter(|l| is_far(l.1, row_bytes)).map(|l| l.1.as_secs_f64()).collect();
        let waited = self.is_a_disk(&looks, slow.len())?;
        let row_s = match waited {
            false => self.near(None)?,
            // Those that were waited for are in memory now.
            true => {
                let again: Vec<u32> = looks.iter().take(self.most).map(|(row, _)| *row).collect();
                self.near(Some(&again))?
            }
        };
        let runs = self.in_a_row()?;
        let [first, again, laid] = [0, 1, 2].map(|i| least(runs.iter().map(|run| run[i])));
        // Where nothing is waited for, what was read before is nearer than a run has it.
        let bytes_per_s = row_bytes as f64 / if waited { again } else { first };
        let next_s = self.next(1.0 / bytes_per_s)?;
        // Once more, now that all that serves a read is warm.
        let row_s = if waited { row_s } else { row_s.min(self.near(None)?) };
        let disk = waited.then(|| Disk {
            rows: slow.len() as u32,
            row_s: slow.iter().sum::<f64>() / slow.len() as f64,
            bytes_per_s: row_bytes as f64 / far_s(&runs),
        });
        let scaling = if threads > 1 && !waited && (self.clock)() < LONGEST {
            self.scaling(row_s)?
        } else {
            FileRates::TYPICAL.scaling
        };
        Ok(FileRates {
            origin: Origin::Measured,
            call_s: (row_s - row_bytes as f64 / bytes_per_s).max(0.0),
            next_s,
            bytes_per_s,
            row_s: (laid - again).max(0.0),
            scaling,
            looked_at: looks.len() as u32,
            slow: slow.len() as u32,
            disk,
        })
    }

    /// Rows one by one, and what each took.
    fn look(&mut self) -> io::Result<Vec<(u32, Duration)>> {
        let begun = (self.clock)();
        let mut looks = Vec::with_capacity(LOOKS);
        while looks.len() < LOOKS.min(self.count) {
            let row = self.draw();
            looks.push((row, self.read(&[row])?));
            let now = (self.clock)();
            if now > LONGEST || (looks.len() >= LEAST_LOOKS && now - begun > 10 * LONG) {
                break;
            }
        }
        Ok(looks)
    }

    /// Whether a disk made some of the looks slow. The same rows are in memory now: what makes them slow again, others do,
    /// and did before.
    fn is_a_disk(&mut self, looks: &[(u32, Duration)], slow: usize) -> io::Result<bool> {
        if slow == 0 || (slow <= CHANCE && slow < looks.len()) {
            return Ok(false);
        }
        let mut again = 0;
        for (row, _) in looks {
            again += usize::from(is_far(self.read(&[*row])?, self.rows.row_bytes()));
            if (self.clock)() > 2 * LONGEST {
                break;
            }
        }
        Ok(slow > 2 * again)
    }

    /// The least seconds per row of batches in any order: of rows that are new, or of those.
    fn near(&mut self, of: Option<&[u32]>) -> io::Result<f64> {
        let (begun, mut all) = ((self.clock)(), Vec::new());
        while !self.is_enough(all.len(), begun) {
            let batch = match of {
                Some(rows) => rows.to_vec(),
                None => (0..self.batch).map(|_| self.draw()).collect(),
            };
            all.push(self.read(&batch)?.as_secs_f64() / batch.len() as f64);
        }
        Ok(least(all.into_iter()))
    }

    /// Seconds per row of rows that follow each other: when they are first read, and again; and then in disorder.
    fn in_a_row(&mut self) -> io::Result<Vec<[f64; 3]>> {
        let rows = self.most;
        let mut disorder: Vec<u32> = Vec::new();
        make_room(&mut disorder, rows, "the numbers of rows to measure by")?;
        disorder.extend(0..rows as u32);
        for place in (1..rows).rev() {
            disorder.swap(place, (self.random() % (place as u64 + 1)) as usize);
        }
        let mut before = 0;
        let (started, mut all) = ((self.clock)(), Vec::new());
        while !self.is_enough(all.len(), started) {
            let first = (self.random() % (self.count - rows + 1) as u64) as u32;
            let [one, again] = [self.read_range(first, rows)?, self.read_range(first, rows)?];
            disorder.iter_mut().for_each(|row| *row = *row - before + first);
            before = first;
            let laid = self.read(&disorder)?;
            all.push([one, again, laid].map(|took| took.as_secs_f64() / rows as f64));
        }
        Ok(all)
    }

    /// The least seconds of a call that goes on where the last one ended, beside bytes of which each takes so long.
    fn next(&mut self, byte_s: f64) -> io::Result<f64> {
        let row_bytes = self.rows.row_bytes();
        let rows = (SHORT_BYTES / row_bytes.max(1)).clamp(1, self.most as u64) as usize;
        let calls = (self.most / rows).clamp(1, NEXT_CALLS);
        let (started, mut all) = ((self.clock)(), Vec::new());
        while !self.is_enough(all.len(), started) {
            let mut first = (self.random() % (self.count - calls * rows + 1) as u64) as u32;
            let mut took = Duration::ZERO;
            for _ in 0..calls {
                took += self.read_range(first, rows)?;
                first += rows as u32;
            }
            all.push(took.as_secs_f64() / calls as f64);
        }
        Ok((least(all.into_iter()) - byte_s * (rows as u64 * row_bytes) as f64).max(0.0))
    }

    /// How long reading so many rows from that one on takes.
    fn read_range(&mut self, first: u32, rows: usize) -> io::Result<Duration> {
        self.make_room(rows)?;
        let begun = (self.clock)();
        self.rows.read_range(first, &mut self.room)?;
        Ok((self.clock)() - begun)
    }

    /// What a second thread adds to the speed of one that takes `row_s` for a row.
    fn scaling(&mut self, row_s: f64) -> io::Result<f64> {
        let drawn = random::mix(self.drawn);
        let Some(mut other) = Probe::new(self.rows, (self.count, self.features), drawn, self.clock) else {
            return Ok(0.0);
        };
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

/// Seconds per row of runs that came from a disk: the median of those that were much quicker again. Where all were in
/// memory, a disk is at best as quick as the slowest of them.
fn far_s(runs: &[[f64; 3]]) -> f64 {
    let far: Vec<f64> =
        runs.iter().filter(|[first, again, _]| *first > ELSEWHERE * again).map(|run| run[0]).collect();
    if far.is_empty() {
        runs.iter().flat_map(|run| &run[..2]).copied().fold(0.0, f64::max)
    } else {
        median(far)
    }
}

fn least(all: impl Iterator<Item = f64>) -> f64 {
    all.fold(f64::INFINITY, f64::min)
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_unstable_by(f64::total_cmp);
    all[all.len() / 2]
}

#[cfg(test)]
#[path = "file_rates_tests.rs"]
mod tests;
