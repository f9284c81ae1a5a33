//! Rows of features read from their file as they are needed.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use crate::{
    data::{
        FileChange, Reads, RowReader, Stamp,
        raw::{self, Layout},
    },
    device::make_room,
    plan::{BLOCK_BYTES, GAP_BYTES},
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
    /// What the file was like when it was opened.
    pub(super) stamp: Stamp,
}

/// Some rows of an [`Array`], numbered from 0.
pub(super) struct Rows {
    array: Arc<Array>,
    /// Their numbers in the array; `None` where they are all of it.
    chosen: Option<Arc<[u32]>>,
    rows: u32,
    reads: Arc<Reads>,
    /// Buffers that came back from earlier reads, so that reading allocates nothing once it runs.
    spare: Mutex<Vec<Buffers>>,
}

#[derive(Default)]
struct Buffers {
    wanted: Vec<Wanted>,
    bytes: Vec<u8>,
}

/// A row's number in the array, and which of the rows asked for it is.
type Wanted = (u32, u32);

/// Bytes of one read at most.
const BLOCK: usize = BLOCK_BYTES as usize;

impl Rows {
    pub(super) fn new(array: Arc<Array>, rows: u32, chosen: Option<Arc<[u32]>>) -> Self {
        Self { array, chosen, rows, reads: Arc::default(), spare: Mutex::new(Vec::new()) }
    }

    /// Counts so many rows that were read since `begun` by so many calls.
    fn count(&self, rows: usize, calls: usize, begun: Instant) {
        self.reads.add(calls as u64, rows as u64 * self.row_bytes(), begun.elapsed());
    }

    /// The number in the array of row `row`.
    fn number(&self, row: u32) -> io::Result<u32> {
        let number = match &self.chosen {
            None => (row < self.rows).then_some(row),
            Some(chosen) => chosen.get(row as usize).copied(),
        };
        number.ok_or_else(|| io::Error::other(format!("row {row} of {} does not exist", self.rows)))
    }

    fn spare(&self) -> MutexGuard<'_, Vec<Buffers>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RowReader for Rows {
    fn read_rows(&self, rows: &[u32], out: &mut [f32]) -> io::Result<()> {
        let begun = Instant::now();
        let width = self.array.width;
        if out.len() != rows.len() * width {
            let message = format!("room for {} numbers, not {}", out.len(), rows.len() * width);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let Buffers { mut wanted, mut bytes } = self.spare().pop().unwrap_or_default();
        wanted.clear();
        make_room(&mut wanted, rows.len(), "the numbers of rows to read")?;
        for (row, place) in rows.iter().zip(0..) {
            wanted.push((self.number(*row)?, place));
        }
        // In the order of the file: neighbours are one read, and a disk is read in one direction.
        wanted.sort_unstable();
        let mut calls = 0;
        let mut rest = &wanted[..];
        while let Some(&(first, place)) = rest.first() {
            let (run, after) = rest.split_at(self.array.run(rest));
            let in_order = run
                .iter()
                .zip(0..)
                .all(|(&(number, to), i)| number - first == i && to == place.wrapping_add(i));
            if in_order {
                let out = &mut out[place as usize * width..][..run.len() * width];
                calls += self.array.read(first, out, &mut bytes)?;
            } else {
                self.array.pick(run, out, &mut bytes)?;
                calls += 1;
            }
            rest = after;
        }
        self.spare().push(Buffers { wanted, bytes });
        self.count(rows.len(), calls, begun);
        Ok(())
    }

    fn read_range(&self, first: u32, out: &mut [f32]) -> io::Result<()> {
        let rows = first..first + (out.len() / self.array.width.max(1)) as u32;
        match &self.chosen {
            None => {
                rows.end.checked_sub(1).map_or(Ok(first), |last| self.number(last))?;
                let begun = Instant::now();
                let mut bytes = self.spare().pop().unwrap_or_default();
                let calls = self.array.read(first, out, &mut bytes.bytes)?;
                self.spare().push(bytes);
                self.count(rows.len(), calls, begun);
                Ok(())
            }
            Some(_) => self.read_rows(&rows.collect::<Vec<_>>(), out),
        }
    }

    fn row_bytes(&self) -> u64 {
        self.array.row_bytes() as u64
    }

    fn counted(&self, reads: Arc<Reads>) -> Arc<dyn RowReader> {
        let (array, chosen) = (Arc::clone(&self.array), self.chosen.clone());
        Arc::new(Self { reads, ..Self::new(array, self.rows, chosen) })
    }

    fn change(&self) -> Option<FileChange> {
        // A file that no longer tells of itself cannot be read either, which is told with its rows.
        self.array.file.metadata().ok().and_then(|now| self.array.stamp.change(&now))
    }
}

impl Array {
    fn row_bytes(&self) -> usize {
        self.width * self.layout.element.bytes()
    }

    /// How many of the rows, which are sorted, one read brings: those that lie close together.
    fn run(&self, wanted: &[Wanted]) -> usize {
        let (size, first) = (self.row_bytes() as u64, wanted[0].0);
        let follows = |pair: &[Wanted]| {
            let skipped = u64::from(pair[1].0 - pair[0].0).saturating_sub(1);
            skipped * size <= GAP_BYTES && (u64::from(pair[1].0 - first) + 1) * size <= BLOCK as u64
        };
        1 + wanted.windows(2).take_while(|pair| follows(pair)).count()
    }

    /// Reads rows from number `first` on into `out`, by way of `bytes` where they are not f32; by how many calls.
    fn read(&self, first: u32, out: &mut [f32], bytes: &mut Vec<u8>) -> io::Result<usize> {
        let size = self.layout.element.bytes();
        let as_they_are = self.layout.is_f32_of_this_machine();
        let mut element = u64::from(first) * self.width as u64;
        let calls = out.len().div_ceil(BLOCK / size);
        for out in out.chunks_mut(BLOCK / size) {
            if as_they_are {
                self.read_bytes(element, bytemuck::cast_slice_mut(out))?;
            } else {
                bytes.resize(out.len() * size, 0);
                self.read_bytes(element, bytes)?;
                self.layout.decode_f32(bytes, out);
            }
            self.check(element, out)?;
            element += out.len() as u64;
        }
        Ok(calls)
    }

    /// Reads the rows of a run, each to its place in `out`.
    fn pick(&self, run: &[Wanted], out: &mut [f32], bytes: &mut Vec<u8>) -> io::Result<()> {
        let (size, first, last) = (self.row_bytes(), run[0].0, run[run.len() - 1].0);
        bytes.resize((last - first + 1) as usize * size, 0);
        self.read_bytes(u64::from(first) * self.width as u64, bytes)?;
        for &(number, place) in run {
            let out = &mut out[place as usize * self.width..][..self.width];
            self.layout.decode_f32(&bytes[(number - first) as usize * size..][..size], out);
            self.check(u64::from(number) * self.width as u64, out)?;
        }
        Ok(())
    }

    fn read_bytes(&self, element: u64, bytes: &mut [u8]) -> io::Result<()> {
        let place = self.offset + element * self.layout.element.bytes() as u64;
        self.file.read_exact_at(bytes, place).map_err(|error| {
            let why = match error.kind() {
                io::ErrorKind::UnexpectedEof => {
                    let row = element / self.width.max(1) as u64;
                    format!("it ends before what is read from row {row} (counted from 0) on, and was longer when it was opened")
                }
                _ => error.to_string(),
            };
            io::Error::new(error.kind(), format!("cannot read `{}`: {why}", self.path.display()))
        })
    }

    /// That numbers, of which the first is `element` of the array, are finite.
    fn check(&self, element: u64, numbers: &[f32]) -> io::Result<()> {
        let Some(bad) = raw::first_not_finite(numbers) else { return Ok(()) };
        let (element, width) = (element + bad as u64, self.width as u64);
        let mut bytes = vec![0; self.layout.element.bytes()];
        self.read_bytes(element, &mut bytes)?;
        let message = format!(
            "row {}, feature {} (both counted from 0) of `{}` {}",
            element / width,
            element % width,
            self.path.display(),
            raw::not_finite(self.layout.exact(&bytes))
        );
        Err(io::Error::new(io::ErrorKind::InvalidData, message))
    }
}
