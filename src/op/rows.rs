//! Rows of features: in memory, or kept in a file and fetched from there.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::units;

/// Reads rows of features by number from something larger than memory.
pub trait RowReader: Send + Sync {
    /// Copies the rows numbered `rows`, in that order, to `out` (`rows.len() * features`).
    fn read_rows(&self, rows: &[u32], out: &mut [f32]) -> io::Result<()>;
    /// Copies as many rows as `out` holds, from number `first` on.
    fn read_range(&self, first: u32, out: &mut [f32]) -> io::Result<()>;
    /// Bytes that a row has where it is kept.
    fn row_bytes(&self) -> u64;
    /// The same rows; what is read by way of these is counted there.
    fn counted(&self, reads: Arc<Reads>) -> Arc<dyn RowReader>;
    /// What has become of what they are read from since it was opened: for a look now and then, and at the end.
    fn change(&self) -> Option<FileChange> {
        None
    }
}

/// What became of an open file, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileChange {
    /// Something was written to it: what is read may be of either content.
    Written(String),
    /// Its path leads elsewhere or nowhere: what is read is still of the file that was opened.
    Replaced(String),
}

/// Room for `len` items in all, where memory has it, and for no more than that, which is what the plan counts.
///
/// # Errors
/// `memory does not hold <what>, 3 MiB`.
pub fn make_room<T>(buffer: &mut Vec<T>, len: usize, what: &str) -> io::Result<()> {
    buffer.try_reserve_exact(len.saturating_sub(buffer.len())).map_err(|_| {
        let bytes = units::bytes((len as u64).saturating_mul(size_of::<T>() as u64));
        io::Error::new(io::ErrorKind::OutOfMemory, format!("memory does not hold {what}, {bytes}"))
    })
}

/// What was read of rows in a file, by however many threads.
#[derive(Debug, Default)]
pub struct Reads {
    calls: AtomicU64,
    bytes: AtomicU64,
    nanoseconds: AtomicU64,
}

impl Reads {
    /// Counts rows of so many bytes that took so many calls of the system.
    pub fn add(&self, calls: u64, bytes: u64, time: Duration) {
        // Sums, which nothing else depends on.
        self.calls.fetch_add(calls, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.nanoseconds.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }

    /// What was counted so far: the calls, the bytes of the rows, and the time of all threads together.
    pub fn total(&self) -> (u64, u64, Duration) {
        let nanoseconds = self.nanoseconds.load(Ordering::Relaxed);
        let counts = [&self.calls, &self.bytes].map(|count| count.load(Ordering::Relaxed));
        (counts[0], counts[1], Duration::from_nanos(nanoseconds))
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
