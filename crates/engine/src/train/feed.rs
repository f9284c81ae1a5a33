//! Streamed rows: a reader thread prepares chunks ahead of the steps.

use std::{
    cell::Cell,
    io,
    ops::Range,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use super::helpers::Helpers;
use crate::{
    data::{Part, Store, epoch_order},
    device::{ChunkRows, Closer, LentMemory, make_room},
    host::prefer_huge_pages,
    program::Shard,
    vector::gather,
};

/// The fewest elements that a thread is woken for, to copy them from memory: 256 KiB take 25 µs.
const COPIED: usize = 1 << 16;

pub struct Chunk {
    /// Position of the chunk's first row within the epoch.
    pub first: usize,
    pub rows: usize,
    /// For each device `[rows of the device, features]`.
    pub features: Vec<ChunkRows>,
    /// For each device `[rows of the device, targets]`.
    pub targets: Vec<ChunkRows>,
}

/// How rows are divided into chunks.
#[derive(Clone, Copy, Debug)]
pub struct ChunkShape {
    pub features: usize,
    pub targets: usize,
    /// Rows of a global batch.
    pub batch: usize,
    /// Rows of a chunk, a multiple of the batch.
    pub chunk: usize,
    pub world_size: usize,
    pub readers: usize,
    /// The seed of the epochs' orders, if rows are shuffled.
    pub shuffle: Option<u64>,
}

impl ChunkShape {
    /// The most elements of features and of targets that a chunk has for a device.
    pub fn room(&self, rank: usize) -> [usize; 2] {
        let rows: usize = self.shares(rank, self.chunk).map(|(_, share)| share.len()).sum();
        [self.features, self.targets].map(|width| rows * width)
    }

    /// Where each batch of a chunk begins, and which of its rows are the device's.
    fn shares(&self, rank: usize, rows: usize) -> impl Iterator<Item = (usize, Range<usize>)> {
        let (batch, shard) = (self.batch, Shard { rank, world_size: self.world_size });
        (0..rows).step_by(batch).map(move |start| (start, shard.rows(batch.min(rows - start))))
    }
}

/// The memory that each device lent for its features and targets, if it did.
pub type Lent = Vec<Option<[LentMemory; 2]>>;

/// A request for a pass: its number (that of the epoch if rows are shuffled) and the range of its rows to read.
type Request = (u64, Range<usize>);

/// Reads chunks ahead: one is in use, one is ready, one is being read.
pub struct Stream {
    requests: SyncSender<Request>,
    /// The last pass that has begun.
    begun: Cell<Option<u64>>,
    chunks: Receiver<io::Result<Chunk>>,
    /// Used buffers, to be filled again.
    spent: SyncSender<[Arc<Vec<f32>>; 2]>,
    /// Whether a device computes on the chunk itself, as the CPU does, and releases it when it gets the next one.
    is_held: bool,
    /// The chunk that such a device holds, also between passes.
    held: Cell<Option<Chunk>>,
    /// Whether the reader has blocks of memory and reads as far ahead as these go, also into the next pass.
    pub is_lent: bool,
    _closers: Vec<Closer>,
    /// Keep this field last: the thread ends when those before it are gone.
    _reader: Joined,
}

/// A thread that is waited for, so that it does not outlive its run with memory that devices lent.
struct Joined(Option<JoinHandle<()>>);

impl Drop for Joined {
    fn drop(&mut self) {
        // A panic of the thread was reported as its end.
        self.0.take().map(JoinHandle::join);
    }
}

impl Stream {
    /// Starts the reader thread. The last chunk of a pass may be shorter than the others. `is_held`: whether
    /// a device computes on the chunk itself rather than on a copy.
    pub fn new(part: Part, cut: ChunkShape, is_held: bool, lent: Lent) -> io::Result<Self> {
        let (requests, requested) = sync_channel::<Request>(1);
        let is_lent = lent.iter().any(Option::is_some);
        let closers = lent.iter().flatten().flatten().map(LentMemory::closer).collect();
        let (filled, chunks) = sync_channel(1);
        let (spent, reuse) = sync_channel(4 * cut.world_size);
        let reader = thread::Builder::new().name("reader".into()).spawn(move || {
            let helpers = Helpers::new(cut.readers.saturating_sub(1));
            let reader = Reader { part, cut, reuse, lent, helpers };
            // The channel closes when the stream is dropped.
            let mut order = Vec::new();
            while let Ok((pass, rows)) = requested.recv() {
                let order = match reader.order(pass, &mut order) {
                    Ok(order) => order,
                    Err(fault) => return drop(filled.send(Err(fault))),
                };
                for first in rows.clone().step_by(reader.cut.chunk) {
                    let rows = reader.cut.chunk.min(rows.end - first);
                    let read = reader.read(order, first, rows).map_or_else(
                        |_| reader.read_by_batch(order, first, rows),
                        |chunk| [Some(Ok(chunk)), None],
                    );
                    for chunk in read.into_iter().flatten() {
                        let failed = chunk.is_err();
                        if filled.send(chunk).is_err() || failed {
                            return;
                        }
                    }
                }
            }
        })?;
        let (begun, held) = (Cell::new(None), Cell::new(None));
        let (_closers, _reader) = (closers, Joined(Some(reader)));
        Ok(Self { requests, begun, chunks, spent, is_held, held, is_lent, _closers, _reader })
    }

    /// Begins a pass over some rows, unless it has begun. Shuffled rows are in the order of the epoch with this number.
    pub fn begin(&self, pass: u64, rows: Range<usize>) -> io::Result<()> {
        if self.begun.replace(Some(pass)) == Some(pass) {
            return Ok(());
        }
        self.requests.send((pass, rows)).map_err(|_| ended())
    }

    /// The next chunk of the pass; `None` if it is not ready in time.
    pub fn next(&self, within: Duration) -> io::Result<Option<Chunk>> {
        match self.chunks.recv_timeout(within) {
            Ok(chunk) => chunk.map(Some),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(ended()),
        }
    }

    /// Reuses the memory of a chunk once no device holds it. What a device lent goes back by itself.
    pub fn recycle(&self, chunk: Chunk) {
        let free = if self.is_held { self.held.replace(Some(chunk)) } else { Some(chunk) };
        let Some(chunk) = free else { return };
        for pair in chunk.features.into_iter().zip(chunk.targets) {
            if let (ChunkRows::Own(x), ChunkRows::Own(y)) = pair {
                // If the queue is full the buffers are dropped, which only costs an allocation later.
                let _ = self.spent.try_send([x, y]);
            }
        }
    }
}

fn ended() -> io::Error {
    io::Error::other("the reading thread has ended")
}

struct Reader {
    part: Part,
    cut: ChunkShape,
    reuse: Receiver<[Arc<Vec<f32>>; 2]>,
    lent: Lent,
    helpers: Helpers,
}

impl Reader {
    /// The order of the rows of a pass; `None` for that of the file.
    fn order<'a>(&self, pass: u64, order: &'a mut Vec<u32>) -> io::Result<Option<&'a [u32]>> {
        let Some(seed) = self.cut.shuffle else { return Ok(None) };
        order.clear();
        make_room(order, self.part.rows, "their order")?;
        epoch_order(seed, pass, self.part.rows as u32, order);
        Ok(Some(order))
    }

    /// After a failed read: returns the rows of the batches before the failing one, and the error.
    fn read_by_batch(
        &self,
        order: Option<&[u32]>,
        first: usize,
        rows: usize,
    ) -> [Option<io::Result<Chunk>>; 2] {
        let batches = (0..rows).step_by(self.cut.batch);
        let fault =
            batches.map(|start| (start, self.read(order, first + start, self.cut.batch.min(rows - start))));
        match fault.into_iter().find_map(|(start, read)| read.err().map(|fault| (start, fault))) {
            Some((0, fault)) => [Some(Err(fault)), None],
            Some((start, fault)) => [Some(self.read(order, first, start)), Some(Err(fault))],
            // Every batch could be read this time.
            None => [Some(self.read(order, first, rows)), None],
        }
    }

    fn read(&self, order: Option<&[u32]>, first: usize, rows: usize) -> io::Result<Chunk> {
        let mut chunk = Chunk { first, rows, features: Vec::new(), targets: Vec::new() };
        for rank in 0..self.cut.world_size {
            let wanted = self.share(rank, order, first, rows)?;
            let [x, y] = self.rows(rank, &wanted)?;
            chunk.features.push(x);
            chunk.targets.push(y);
        }
        Ok(chunk)
    }

    /// One device's rows: its share of each batch of the chunk.
    fn share(&self, rank: usize, order: Option<&[u32]>, first: usize, rows: usize) -> io::Result<Vec<u32>> {
        let shares = || self.cut.shares(rank, rows);
        // Reserve exactly as much as the plan counts.
        let mut wanted = Vec::new();
        make_room(
            &mut wanted,
            shares().map(|(_, share)| share.len()).sum(),
            "the numbers of a chunk's rows",
        )?;
        for (start, share) in shares() {
            let positions = first + start + share.start..first + start + share.end;
            match order {
                Some(order) => wanted.extend_from_slice(&order[positions]),
                None => wanted.extend(positions.start as u32..positions.end as u32),
            }
        }
        Ok(wanted)
    }

    fn rows(&self, rank: usize, wanted: &[u32]) -> io::Result<[ChunkRows; 2]> {
        let [x_len, y_len] = [self.cut.features, self.cut.targets].map(|width| wanted.len() * width);
        if let Some(Some([x, y])) = self.lent.get(rank) {
            let (Some(mut x), Some(mut y)) = (x.take(x_len), y.take(y_len)) else { return Err(ended()) };
            self.fill(wanted, &mut x, &mut y)?;
            return Ok([x, y].map(|rows| ChunkRows::Lent(Arc::new(rows))));
        }
        let [mut x, mut y] = self.reuse.try_recv().map_or_else(|_| Default::default(), |b| b.map(unshare));
        resize(&mut x, x_len)?;
        resize(&mut y, y_len)?;
        self.fill(wanted, &mut x, &mut y)?;
        Ok([x, y].map(|rows| ChunkRows::Own(Arc::new(rows))))
    }

    fn fill(&self, wanted: &[u32], x: &mut [f32], y: &mut [f32]) -> io::Result<()> {
        self.read_rows(wanted, x)?;
        gather(&self.part.targets, wanted, self.cut.targets, y);
        Ok(())
    }

    /// Reads with several threads: a disk serves many reads at once, and one core copies rows more slowly than a
    /// bus takes them.
    fn read_rows(&self, wanted: &[u32], x: &mut [f32]) -> io::Result<()> {
        let (from, features) = (&self.part.features, self.cut.features);
        let read = |(wanted, x): (&[u32], &mut [f32])| match from {
            Store::File(file) => file.read_rows(wanted, x),
            Store::Memory(all) => {
                gather(all, wanted, features, x);
                Ok(())
            }
        };
        let least = if let Store::Memory(_) = from { COPIED / features.max(1) } else { 1 };
        let rows = wanted.len().div_ceil(self.helpers.threads()).max(least).max(1);
        self.helpers.share(wanted.chunks(rows).zip(x.chunks_mut((rows * features).max(1))), read)
    }
}

fn resize(buffer: &mut Vec<f32>, len: usize) -> io::Result<()> {
    buffer.truncate(len);
    make_room(buffer, len, "a chunk")?;
    // Rows in random order are written all over the buffer.
    prefer_huge_pages(buffer.spare_capacity_mut());
    buffer.resize(len, 0.0);
    Ok(())
}

/// The buffer itself for reuse, or an empty one if a device still holds it.
fn unshare(buffer: Arc<Vec<f32>>) -> Vec<f32> {
    Arc::try_unwrap(buffer).unwrap_or_default()
}

#[cfg(test)]
#[path = "feed_tests.rs"]
mod tests;
