//! Streamed rows: a reader thread prepares chunks ahead of the steps.

use std::{
    cell::Cell,
    io,
    ops::Range,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    thread,
    time::Duration,
};

use super::helpers::Helpers;
use crate::{
    data::{Part, Store},
    device::{ChunkRows, LentMemory, make_room},
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

/// A request for a pass: the order (file order if `None`) and the range of it to read.
type Request = (Option<Arc<Vec<u32>>>, Range<usize>);

/// Reads chunks ahead: one is in use, one is ready, one is being read.
pub struct Stream {
    requests: SyncSender<Request>,
    chunks: Receiver<io::Result<Chunk>>,
    /// Used buffers, to be filled again.
    spent: SyncSender<[Arc<Vec<f32>>; 2]>,
    /// Whether a device computes on the chunk itself, as the CPU does, and releases it when it gets the next
    /// one.
    is_held: bool,
    /// The chunk that such a device holds, also between passes.
    held: Cell<Option<Chunk>>,
}

impl Stream {
    /// Starts the reader thread. The last chunk of a pass may be shorter than the others. `is_held`: whether
    /// a device computes on the chunk itself rather than on a copy.
    pub fn new(part: Part, cut: ChunkShape, is_held: bool, lent: Lent) -> io::Result<Self> {
        let (requests, orders) = sync_channel::<Request>(1);
        let (filled, chunks) = sync_channel(1);
        let (spent, reuse) = sync_channel(4 * cut.world_size);
        thread::Builder::new().name("reader".into()).spawn(move || {
            let helpers = Helpers::new(cut.readers.saturating_sub(1));
            let reader = Reader { part, cut, reuse, lent, helpers };
            // The channel closes when the run ends.
            while let Ok((order, rows)) = orders.recv() {
                let order = order.as_ref().map(|o| &o[..]);
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
        Ok(Self { requests, chunks, spent, is_held, held: Cell::new(None) })
    }

    /// Begins a pass over some rows, in `order` or in file order.
    pub fn begin(&self, order: Option<Arc<Vec<u32>>>, rows: Range<usize>) -> io::Result<()> {
        self.requests.send((order, rows)).map_err(|_| ended())
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
            let (mut x, mut y) = (x.take(x_len), y.take(y_len));
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
mod tests {
    use std::sync::{Condvar, Mutex};

    use super::*;
    use crate::{data::RowReader, device::HostMemory};

    /// A fake file that counts the reads that have begun.
    #[derive(Default)]
    struct Notify(Mutex<usize>, Condvar);

    impl Notify {
        /// Waits until this many reads have begun.
        fn reads(&self, count: usize) {
            let wait =
                self.1.wait_timeout_while(self.0.lock().expect("a count"), Duration::from_secs(60), |n| {
                    *n < count
                });
            assert!(!wait.expect("a count").1.timed_out(), "the reader does not read ahead");
        }
    }

    impl RowReader for Notify {
        fn read_rows(&self, _: &[u32], _: &mut [f32]) -> io::Result<()> {
            *self.0.lock().expect("nobody panics") += 1;
            self.1.notify_all();
            Ok(())
        }

        fn read_range(&self, _: u32, _: &mut [f32]) -> io::Result<()> {
            unreachable!("chunks are read by number")
        }

        fn row_bytes(&self) -> u64 {
            4
        }

        fn counted(&self, _: Arc<crate::device::Reads>) -> Arc<dyn RowReader> {
            unreachable!("nobody counts")
        }
    }

    /// The number of buffers used over `passes` passes of `chunks` chunks, if the reader is always as far
    /// ahead as possible.
    fn buffers(chunks: usize, passes: usize, is_held: bool) -> usize {
        let reported = Arc::new(Notify::default());
        let stream = stream(&reported, chunks, is_held, Vec::new());
        let mut seen = std::collections::BTreeSet::new();
        let mut bound = None;
        for pass in 0..passes {
            stream.begin(None, 0..2 * chunks).expect("a thread that reads");
            for taken in 0..chunks {
                // One is ready, one is being read.
                reported.reads(pass * chunks + chunks.min(taken + 2));
                let chunk = stream.next(Duration::MAX).expect("rows").expect("in time");
                seen.insert(chunk.features[0].as_ptr());
                bound = is_held.then(|| chunk.features[0].clone());
                reported.reads(pass * chunks + chunks.min(taken + 3));
                stream.recycle(chunk);
            }
        }
        drop(bound);
        seen.len()
    }

    /// Chunks of two rows of one feature and one target.
    fn stream(reported: &Arc<Notify>, chunks: usize, is_held: bool, lent: Lent) -> Stream {
        let (rows, file) = (2 * chunks, Arc::clone(reported) as Arc<dyn RowReader>);
        let part = Part { rows, features: Store::File(file), targets: Arc::new(vec![0.0; rows]) };
        let cut = ChunkShape { features: 1, targets: 1, batch: 2, chunk: 2, world_size: 1, readers: 1 };
        Stream::new(part, cut, is_held, lent).expect("a thread")
    }

    /// The plan counts the same number: see `on_the_host` in `plan::chunks`.
    #[test]
    fn no_more_chunks_are_in_memory_than_an_epoch_has() {
        let of = |passes, is_held| [1, 2, 3, 4, 6].map(|chunks| buffers(chunks, passes, is_held));
        assert_eq!(of(1, false), [1, 2, 3, 3, 3]);
        assert_eq!(of(3, false), [1, 2, 3, 3, 3]);
        // The device keeps the last chunk until it is given the next one.
        assert_eq!(of(1, true), [1, 2, 3, 4, 4]);
        assert_eq!(of(3, true), [2, 3, 4, 4, 4]);
    }

    /// A GPU holds the last two chunks. With as many blocks as the plan counts the reader never waits for good, and of four it
    /// has one while another is ready.
    #[test]
    fn what_a_device_lent_is_read_into_again_and_again() {
        for (chunks, passes, blocks) in [(1, 1, 1), (1, 2, 2), (1, 5, 3), (2, 1, 2), (2, 3, 4), (6, 2, 4)] {
            let lend = || LentMemory::new((0..blocks).map(|_| Box::new(vec![0.0_f32; 2]) as HostMemory));
            let reported = Arc::new(Notify::default());
            let stream = stream(&reported, chunks, false, vec![Some([lend(), lend()])]);
            let (mut seen, mut held) = (std::collections::BTreeSet::new(), [None, None]);
            for pass in 0..passes {
                stream.begin(None, 0..2 * chunks).expect("a thread that reads");
                for taken in 0..chunks {
                    let chunk = stream.next(Duration::MAX).expect("rows").expect("in time");
                    seen.insert(chunk.features[0].as_ptr());
                    held = [held[1].take(), Some(chunk.features[0].clone())];
                    stream.recycle(chunk);
                    if blocks == 4 {
                        reported.reads(pass * chunks + chunks.min(taken + 3));
                    }
                }
            }
            assert!(seen.len() <= blocks, "{chunks} chunks, {passes} passes");
        }
    }

    #[test]
    fn several_threads_copy_the_rows_that_were_asked_for() {
        let (rows, features) = (700, 1024);
        let all: Vec<f32> = (0..rows * features).map(|i| i as f32).collect();
        let part = Part {
            rows,
            features: Store::Memory(all.into()),
            targets: Arc::new((0..rows).map(|i| i as f32).collect()),
        };
        let cut = ChunkShape { features, targets: 1, batch: 100, chunk: 600, world_size: 1, readers: 3 };
        let stream = Stream::new(part, cut, false, Vec::new()).expect("a thread");
        let order: Vec<u32> = (0..rows as u32).map(|i| i * 337 % rows as u32).collect();
        stream.begin(Some(Arc::new(order.clone())), 0..rows).expect("a thread that reads");
        for expected in [&order[..600], &order[600..]] {
            let chunk = stream.next(Duration::MAX).expect("rows").expect("in time");
            let first: Vec<_> =
                chunk.features[0].chunks(features).map(|row| (row[0], row[features - 1])).collect();
            let number = |row: &u32| (*row as usize * features) as f32;
            let last = |row: &u32| number(row) + (features - 1) as f32;
            assert_eq!(first, expected.iter().map(|row| (number(row), last(row))).collect::<Vec<_>>());
            assert_eq!(chunk.targets[0][..], expected.iter().map(|row| *row as f32).collect::<Vec<_>>());
        }
    }
}
