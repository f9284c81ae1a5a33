//! Rows of features: in memory, or kept in a file and fetched from there.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use super::Line;
use crate::units;

/// Reads rows of features by number from something larger than memory.
pub trait RowReader: Send + Sync {
    /// Copies the rows numbered `rows`, in that order, to `out` (`rows.len() * features`).
    fn read_rows(&self, rows: &[u32], out: &mut [f32]) -> io::Result<()>;
    /// Copies consecutive rows from `first` on until `out` is full.
    fn read_range(&self, first: u32, out: &mut [f32]) -> io::Result<()>;
    /// Bytes of a stored row.
    fn row_bytes(&self) -> u64;
    /// The same rows, with reads counted in `reads`.
    fn counted(&self, reads: Arc<Reads>) -> Arc<dyn RowReader>;
    /// How the file has changed since it was opened.
    fn change(&self) -> Option<FileChange> {
        None
    }
}

/// A change of an open file, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileChange {
    /// It was written to: rows may be of either content.
    Written(String),
    /// It was replaced or deleted: rows are still of the opened file.
    Replaced(String),
}

/// Reserves room for exactly `len` items, as the plan counts.
///
/// # Errors
/// `memory does not hold <what>, 3 MiB`.
pub fn make_room<T>(buffer: &mut Vec<T>, len: usize, what: &str) -> io::Result<()> {
    buffer.try_reserve_exact(len.saturating_sub(buffer.len())).map_err(|_| {
        let bytes = units::bytes((len as u64).saturating_mul(size_of::<T>() as u64));
        io::Error::new(io::ErrorKind::OutOfMemory, format!("memory does not hold {what}, {bytes}"))
    })
}

/// Reads of rows in a file, by all threads.
#[derive(Debug, Default)]
pub struct Reads {
    calls: AtomicU64,
    bytes: AtomicU64,
    nanoseconds: AtomicU64,
}

impl Reads {
    /// Counts reads of rows.
    pub fn add(&self, calls: u64, bytes: u64, time: Duration) {
        // Sums, which nothing else depends on.
        self.calls.fetch_add(calls, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.nanoseconds.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }

    /// System calls, bytes, and the time of all threads.
    pub fn line(&self) -> Line {
        Line {
            count: self.calls.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            time: Duration::from_nanos(self.nanoseconds.load(Ordering::Relaxed)),
            ..Line::default()
        }
    }
}

/// Where features are.
#[derive(Clone)]
pub enum Store {
    /// In the host's memory, row-major.
    Memory(Arc<Vec<f32>>),
    /// In a file, read by rows.
    File(Arc<dyn RowReader>),
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
