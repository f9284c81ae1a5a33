//! Rows of features, in memory or in a file.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::units;

/// Reads rows of features by index from a source larger than memory.
pub trait RowReader: Send + Sync {
    /// Copies `rows`, in this order, to `out`, which has `rows.len() * features` elements.
    fn read_rows(&self, rows: &[u32], out: &mut [f32]) -> io::Result<()>;
    /// Fills `out` with consecutive rows from `first` on.
    fn read_range(&self, first: u32, out: &mut [f32]) -> io::Result<()>;
    fn row_bytes(&self) -> u64;
    /// A reader of the same rows that counts its reads in `reads`.
    fn counted(&self, reads: Arc<Reads>) -> Arc<dyn RowReader>;
    /// How the source has changed since it was opened; checked from time to time and at the end.
    fn change(&self) -> Option<FileChange> {
        None
    }
}

/// A change of an open file, as a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileChange {
    /// The file was modified: reads may return old or new contents.
    Written(String),
    /// Its path leads to another file or to none: reads still return the contents of the opened file.
    Replaced(String),
}

/// Reserves capacity for exactly `len` items in total, which is what the plan counted.
///
/// # Errors
/// If there is no memory: `memory does not hold <what>, 3 MiB`.
pub fn make_room<T>(buffer: &mut Vec<T>, len: usize, what: &str) -> io::Result<()> {
    buffer.try_reserve_exact(len.saturating_sub(buffer.len())).map_err(|_| {
        let bytes = units::bytes((len as u64).saturating_mul(size_of::<T>() as u64));
        io::Error::new(io::ErrorKind::OutOfMemory, format!("memory does not hold {what}, {bytes}"))
    })
}

/// Counts of rows read from a file, over all threads.
#[derive(Debug, Default)]
pub struct Reads {
    calls: AtomicU64,
    bytes: AtomicU64,
    nanoseconds: AtomicU64,
}

impl Reads {
    /// Counts the bytes and system calls of a read.
    pub fn add(&self, calls: u64, bytes: u64, time: Duration) {
        // Relaxed: the counters are independent of each other and of other memory.
        self.calls.fetch_add(calls, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.nanoseconds.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }

    /// The counts so far: calls, bytes of the rows, and time, summed over all threads.
    pub fn total(&self) -> (u64, u64, Duration) {
        let nanoseconds = self.nanoseconds.load(Ordering::Relaxed);
        let counts = [&self.calls, &self.bytes].map(|count| count.load(Ordering::Relaxed));
        (counts[0], counts[1], Duration::from_nanos(nanoseconds))
    }
}

#[derive(Clone)]
pub enum Store {
    /// In the host's memory, row-major.
    Memory(Arc<Vec<f32>>),
    File(Arc<dyn RowReader>),
}

impl Store {
    /// The rows in memory; replaces rows in a file by an empty vector.
    pub fn in_memory(&mut self) -> &mut Arc<Vec<f32>> {
        match self {
            Self::Memory(rows) => rows,
            file => {
                *file = Self::default();
                file.in_memory()
            }
        }
    }
}

impl Default for Store {
    fn default() -> Self {
        Self::Memory(Arc::default())
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Memory(v) => write!(f, "Memory({} numbers)", v.len()),
            Self::File(_) => f.write_str("File"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_that_is_not_there_is_an_error() {
        let mut buffer = vec![0_u32; 3];
        make_room(&mut buffer, 10, "ten").expect("there is room");
        assert!(buffer.capacity() >= 10 && buffer.len() == 3);
        make_room(&mut buffer, 1, "one").expect("it has it");
        let error = make_room(&mut buffer, 1 << 60, "a chunk").expect_err("there is no such memory");
        assert_eq!(error.kind(), io::ErrorKind::OutOfMemory);
        assert_eq!(error.to_string(), "memory does not hold a chunk, 4 EiB");
    }
}
