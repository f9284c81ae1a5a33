//! Rows of features: in memory, or kept in a file and fetched from there.

use std::{io, sync::Arc};

/// Reads rows of features by number from something larger than memory.
pub trait RowReader: Send + Sync {
    /// Copies the rows numbered `rows`, in that order, to `out` (`rows.len() * features`).
    fn read_rows(&self, rows: &[u32], out: &mut [f32]) -> io::Result<()>;
    /// Copies as many rows as `out` holds, from number `first` on.
    fn read_range(&self, first: u32, out: &mut [f32]) -> io::Result<()>;
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
    /// Its path leads elsewhere: what is read is still of the file that was opened.
    Replaced(String),
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
