//! Rows of `npy` features, read from their file on demand.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Instant,
};

use super::{
    FileChange, FileFingerprint, Reads, RowReader,
    raw::{self, Layout},
};
use crate::{
    device::make_room,
    host::lock,
    plan::{BLOCK_BYTES, GAP_BYTES},
};

/// A `[rows, width]` array in a file.
///
/// It is read at positions, not memory-mapped: a map counts fully against an address-space limit, and a page
/// that cannot be read kills the process instead of returning an error.
pub(super) struct Array {
    pub(super) file: File,
    pub(super) path: PathBuf,
    pub(super) layout: Layout,
    pub(super) width: usize,
    /// Offset of the first element.
    pub(super) offset: u64,
    /// The file's fingerprint when it was opened.
    pub(super) stamp: FileFingerprint,
}

/// Some rows of an [`Array`], renumbered from 0.
pub(super) struct Rows {
    array: Arc<Array>,
    /// Their indices in the array; `None` for all rows.
    chosen: Option<Arc<[u32]>>,
    rows: u32,
    reads: Arc<Reads>,
    /// Buffers of earlier reads, reused so that steady reading does not allocate.
    spare: Mutex<Vec<Buffers>>,
}

#[derive(Default)]
struct Buffers {
    wanted: Vec<Wanted>,
    bytes: Vec<u8>,
}

/// A row's index in the array and its position in the request, packed into one integer that sorts like the
/// pair. Sorting pairs would take several times as long.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Wanted(u64);

impl Wanted {
    fn new(number: u32, place: u32) -> Self {
        Self(u64::from(number) << 32 | u64::from(place))
    }

    fn number(self) -> u32 {
        (self.0 >> 32) as u32
    }

    fn place(self) -> usize {
        (self.0 as u32) as usize
    }

    /// Whether its row and its position directly follow those of `other`.
    fn follows(self, other: Self) -> bool {
        self.0.wrapping_sub(other.0) == Self::new(1, 1).0
    }
}

/// The most bytes of one read.
const BLOCK: usize = BLOCK_BYTES as usize;

impl Rows {
    pub(super) fn new(array: Arc<Array>, rows: u32, chosen: Option<Arc<[u32]>>) -> Self {
        Self { array, chosen, rows, reads: Arc::default(), spare: Mutex::new(Vec::new()) }
    }

    /// Counts rows read since `begun`, and system calls.
    fn count(&self, rows: usize, calls: usize, begun: Instant) {
        self.reads.add(calls as u64, rows as u64 * self.row_bytes(), begun.elapsed());
    }

    /// The index of row `row` in the array.
    fn number(&self, row: u32) -> io::Result<u32> {
        let number = match &self.chosen {
            None => (row < self.rows).then_some(row),
            Some(chosen) => chosen.get(row as usize).copied(),
        };
        number.ok_or_else(|| io::Error::other(format!("row {row} of {} does not exist", self.rows)))
    }
}

impl RowReader for Rows {
    fn read_rows(&self, rows: &[u32], out: &mut [f32]) -> io::Result<()> {
        let width = self.array.width;
        if out.len() != rows.len() * width {
            let message = format!("room for {} numbers, not {}", out.len(), rows.len() * width);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let begun = Instant::now();
        let Buffers { mut wanted, mut bytes } = lock(&self.spare).pop().unwrap_or_default();
        wanted.clear();
        make_room(&mut wanted, rows.len(), "the numbers of rows to read")?;
        for (row, place) in rows.iter().zip(0..) {
            wanted.push(Wanted::new(self.number(*row)?, place));
        }
        // Read in file order: neighbours share a read, and a disk reads in one direction.
        wanted.sort_unstable();
        let mut calls = 0;
        let mut rest = &wanted[..];
        while let Some(first) = rest.first() {
            let (run, after) = rest.split_at(self.array.run(rest.iter().map(|row| row.number())));
            if run.len() == following(run) {
                let out = &mut out[first.place() * width..][..run.len() * width];
                calls += self.array.read(first.number(), out, &mut bytes)?;
            } else {
                self.array.pick(run, out, &mut bytes)?;
                calls += 1;
            }
            rest = after;
        }
        lock(&self.spare).push(Buffers { wanted, bytes });
        self.count(rows.len(), calls, begun);
        Ok(())
    }

    fn read_range(&self, first: u32, out: &mut [f32]) -> io::Result<()> {
        let rows = first..first + (out.len() / self.array.width.max(1)) as u32;
        rows.end.checked_sub(1).map_or(Ok(first), |last| self.number(last))?;
        let begun = Instant::now();
        let mut buffers = lock(&self.spare).pop().unwrap_or_default();
        let calls = match &self.chosen {
            None => self.array.read(first, out, &mut buffers.bytes)?,
            Some(chosen) => {
                let numbers = &chosen[rows.start as usize..rows.end as usize];
                self.array.read_ascending(numbers, out, &mut buffers.bytes)?
            }
        };
        lock(&self.spare).push(buffers);
        self.count(rows.len(), calls, begun);
        Ok(())
    }

    fn row_bytes(&self) -> u64 {
        self.array.row_bytes() as u64
    }

    fn counted(&self, reads: Arc<Reads>) -> Arc<dyn RowReader> {
        let (array, chosen) = (Arc::clone(&self.array), self.chosen.clone());
        Arc::new(Self { reads, ..Self::new(array, self.rows, chosen) })
    }

    fn change(&self) -> Option<FileChange> {
        // If the metadata cannot be read, the rows cannot be read either, which is reported then.
        self.array.file.metadata().ok().and_then(|now| self.array.stamp.change(&now))
    }
}

/// A buffer of `len` bytes to read into, with arbitrary contents.
fn room(bytes: &mut Vec<u8>, len: usize) -> &mut [u8] {
    if bytes.len() < len {
        bytes.resize(len, 0);
    }
    &mut bytes[..len]
}

/// How many rows at the start follow each other both in the array and in their positions.
fn following(run: &[Wanted]) -> usize {
    1 + run.windows(2).take_while(|pair| pair[1].follows(pair[0])).count()
}

impl Array {
    fn row_bytes(&self) -> usize {
        self.width * self.layout.element.bytes()
    }

    /// How many of the rows with these ascending indices are close enough together to be covered by one read.
    fn run(&self, mut numbers: impl Iterator<Item = u32>) -> usize {
        let size = self.row_bytes() as u64;
        let Some(first) = numbers.next() else { return 0 };
        let mut before = first;
        let near = numbers.take_while(|&next| {
            let skipped = u64::from(next - before).saturating_sub(1);
            before = next;
            skipped * size <= GAP_BYTES && (u64::from(next - first) + 1) * size <= BLOCK as u64
        });
        1 + near.count()
    }

    /// Reads the rows with these ascending indices into `out`; returns the number of system calls.
    fn read_ascending(
        &self,
        mut numbers: &[u32],
        mut out: &mut [f32],
        bytes: &mut Vec<u8>,
    ) -> io::Result<usize> {
        let mut calls = 0;
        while let Some(&first) = numbers.first() {
            let (run, after) = numbers.split_at(self.run(numbers.iter().copied()));
            let (to, rest) = out.split_at_mut(run.len() * self.width);
            let span = (run[run.len() - 1] - first) as usize + 1;
            if span == run.len() {
                calls += self.read(first, to, bytes)?;
            } else {
                let (bytes, are_finite) = self.span(first, span, bytes)?;
                let mut to = to;
                for piece in run.chunk_by(|row, next| next - row == 1) {
                    let (own, rest) = to.split_at_mut(piece.len() * self.width);
                    self.place(bytes, [first, piece[0]], are_finite, own)?;
                    to = rest;
                }
                calls += 1;
            }
            (numbers, out) = (after, rest);
        }
        Ok(calls)
    }

    /// Reads rows from index `first` on into `out`, through `bytes` if they are not f32; returns the number
    /// of system calls.
    fn read(&self, first: u32, out: &mut [f32], bytes: &mut Vec<u8>) -> io::Result<usize> {
        let size = self.layout.element.bytes();
        let as_they_are = self.layout.is_f32_of_this_machine();
        let mut element = u64::from(first) * self.width as u64;
        let calls = out.len().div_ceil(BLOCK / size);
        for out in out.chunks_mut(BLOCK / size) {
            if as_they_are {
                self.read_bytes(element, bytemuck::cast_slice_mut(out))?;
            } else {
                let bytes = room(bytes, out.len() * size);
                self.read_bytes(element, bytes)?;
                self.layout.decode_f32(bytes, out);
            }
            self.check(element, out)?;
            element += out.len() as u64;
        }
        Ok(calls)
    }

    /// Reads a range of rows, each to its position in `out`.
    fn pick(&self, run: &[Wanted], out: &mut [f32], bytes: &mut Vec<u8>) -> io::Result<()> {
        let (first, last) = (run[0].number(), run[run.len() - 1].number());
        let (bytes, are_finite) = self.span(first, (last - first) as usize + 1, bytes)?;
        for piece in run.chunk_by(|row, next| next.follows(*row)) {
            let out = &mut out[piece[0].place() * self.width..][..piece.len() * self.width];
            self.place(bytes, [first, piece[0].number()], are_finite, out)?;
        }
        Ok(())
    }

    /// Reads consecutive rows as stored, and checks in the same pass whether all are finite. A bad row may be
    /// one that was not requested.
    fn span<'b>(&self, first: u32, rows: usize, bytes: &'b mut Vec<u8>) -> io::Result<(&'b [u8], bool)> {
        let bytes = room(bytes, rows * self.row_bytes());
        self.read_bytes(u64::from(first) * self.width as u64, bytes)?;
        let are_finite = self.layout.is_f32_of_this_machine()
            && bytemuck::try_cast_slice(bytes).is_ok_and(|all| raw::first_not_finite(all).is_none());
        Ok((bytes, are_finite))
    }

    /// Converts rows from index `from` on; `bytes` holds the rows from index `first` on.
    fn place(
        &self,
        bytes: &[u8],
        [first, from]: [u32; 2],
        are_finite: bool,
        out: &mut [f32],
    ) -> io::Result<()> {
        let bytes = &bytes[(from - first) as usize * self.row_bytes()..];
        self.layout.decode_f32(&bytes[..out.len() * self.layout.element.bytes()], out);
        if are_finite { Ok(()) } else { self.check(u64::from(from) * self.width as u64, out) }
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

    /// Checks that elements are finite; `element` is the index of the first one in the array.
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
