//! Rows of features read from their file as they are needed.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use crate::data::{
    RowReader,
    raw::{self, Layout},
};

/// A `[rows, width]` array in a file.
///
/// It is read at positions and not mapped: a mapping counts wholly against a limit of the address space, and a page that
/// cannot be read kills the process instead of giving an error.
pub(super) struct Array {
    pub(super) file: File,
    pub(super) path: PathBuf,
    pub(super) layout: Layout,
    pub(super) width: usize,
    /// Where the first element stands.
    pub(super) offset: u64,
}

/// Some rows of an [`Array`], numbered from 0.
pub(super) struct Rows {
    array: Arc<Array>,
    /// Their numbers in the array; `None` where they are all of it.
    chosen: Option<Vec<u32>>,
    rows: u32,
    /// Buffers that came back from earlier reads, so that reading allocates nothing once it runs.
    spare: Mutex<Vec<Vec<u8>>>,
}

/// Bytes of one read at most: large enough to make a system call cheap, small enough for the second-level cache.
const BLOCK: usize = 1 << 18;

impl Rows {
    pub(super) fn new(array: Arc<Array>, rows: u32, chosen: Option<Vec<u32>>) -> Self {
        Self { array, chosen, rows, spare: Mutex::new(Vec::new()) }
    }

    /// The number in the array of row `row`.
    fn number(&self, row: u32) -> io::Result<u64> {
        let number = match &self.chosen {
            None => (row < self.rows).then_some(row),
            Some(chosen) => chosen.get(row as usize).copied(),
        };
        let missing = || io::Error::other(format!("row {row} of {} does not exist", self.rows));
        number.map(u64::from).ok_or_else(missing)
    }

    /// Reads the elements from `first` on (counted in the whole array) into `out`, by way of `bytes`.
    fn read_run(&self, first: u64, out: &mut [f32], bytes: &mut Vec<u8>) -> io::Result<()> {
        let Array { file, path, layout, width, offset } = &*self.array;
        let size = layout.element.bytes();
        bytes.resize(BLOCK, 0);
        for (index, out) in out.chunks_mut(BLOCK / size).enumerate() {
            let element = first + (index * (BLOCK / size)) as u64;
            let bytes = &mut bytes[..out.len() * size];
            file.read_exact_at(bytes, offset + element * size as u64).map_err(|error| {
                io::Error::new(error.kind(), format!("cannot read `{}`: {error}", path.display()))
            })?;
            layout.decode_f32(bytes, out);
            if let Some(bad) = raw::first_not_finite(out) {
                let (element, value) = (element + bad as u64, out[bad]);
                let (row, feature) = (element / *width as u64, element % *width as u64);
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!(
                        "row {row}, feature {feature} (both counted from 0) of `{}` is {value}: \
                         expected a finite number",
                        path.display()
                    ),
                ));
            }
        }
        Ok(())
    }
}

impl RowReader for Rows {
    fn read_rows(&self, rows: &[u32], mut out: &mut [f32]) -> io::Result<()> {
        let width = self.array.width;
        if out.len() != rows.len() * width {
            let message = format!("room for {} numbers, not {}", out.len(), rows.len() * width);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let mut bytes = self.spare().pop().unwrap_or_default();
        let mut at = 0;
        while at < rows.len() {
            // Rows that follow each other in the file are one read.
            let first = self.number(rows[at])?;
            let mut run = 1;
            while at + run < rows.len() && self.number(rows[at + run])? == first + run as u64 {
                run += 1;
            }
            let (head, tail) = out.split_at_mut(run * width);
            self.read_run(first * width as u64, head, &mut bytes)?;
            out = tail;
            at += run;
        }
        self.spare().push(bytes);
        Ok(())
    }
}

impl Rows {
    fn spare(&self) -> std::sync::MutexGuard<'_, Vec<Vec<u8>>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
