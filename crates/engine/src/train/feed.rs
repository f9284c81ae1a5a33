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

use crate::{
    data::{Part, Store},
    device::make_room,
    host::prefer_huge_pages,
    program::Shard,
    vector::gather,
};

/// The fewest elements that a thread is started for, to copy them from memory: 1 MiB takes 0.1 ms.
const COPIED: usize = 1 << 18;

pub struct Chunk {
    /// Position of the chunk's first row within the epoch.
    pub first: usize,
    pub rows: usize,
    /// For each device `[rows of the device, features]`.
    pub features: Vec<Arc<Vec<f32>>>,
    /// For each device `[rows of the device, targets]`.
    pub targets: Vec<Arc<Vec<f32>>>,
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
    pub fn new(part: Part, cut: ChunkShape, is_held: bool) -> io::Result<Self> {
        let (requests, orders) = sync_channel::<Request>(1);
        let (filled, chunks) = sync_channel(1);
        let (spent, reuse) = sync_channel(4 * cut.world_size);
        let reader = Reader { part, cut, reuse };
        thread::Builder::new().name("reader".into()).spawn(move || {
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

    /// Reuses the memory of a chunk once no device holds it.
    pub fn recycle(&self, chunk: Chunk) {
        let free = if self.is_held { self.held.replace(Some(chunk)) } else { Some(chunk) };
        let Some(chunk) = free else { return };
        for pair in chunk.features.into_iter().zip(chunk.targets) {
            // If the queue is full the buffers are dropped, which only costs an allocation later.
            let _ = self.spent.try_send(pair.into());
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
        let world_size = self.cut.world_size;
        let mut chunk = Chunk { first, rows, features: Vec::new(), targets: Vec::new() };
        for rank in 0..world_size {
            let wanted = self.share(Shard { rank, world_size }, order, first, rows)?;
            let (x, y) = self.rows(&wanted)?;
            chunk.features.push(Arc::new(x));
            chunk.targets.push(Arc::new(y));
        }
        Ok(chunk)
    }

    /// One device's rows: its share of each batch of the chunk.
    fn share(&self, shard: Shard, order: Option<&[u32]>, first: usize, rows: usize) -> io::Result<Vec<u32>> {
        let shares = || {
            let batches = (0..rows).step_by(self.cut.batch);
            batches.map(|start| (start, shard.rows(self.cut.batch.min(rows - start))))
        };
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

    fn rows(&self, wanted: &[u32]) -> io::Result<(Vec<f32>, Vec<f32>)> {
        let ChunkShape { features, targets, .. } = self.cut;
        let [mut x, mut y] = self.reuse.try_recv().map_or_else(|_| Default::default(), |b| b.map(unshare));
        resize(&mut x, wanted.len() * features)?;
        resize(&mut y, wanted.len() * targets)?;
        self.read_rows(wanted, &mut x)?;
        gather(&self.part.targets, wanted, targets, &mut y);
        Ok((x, y))
    }

    /// Reads with several threads: a disk serves many reads at once, and one core copies rows more slowly than a
    /// bus takes them.
    fn read_rows(&self, wanted: &[u32], x: &mut [f32]) -> io::Result<()> {
        let (from, ChunkShape { features, readers, .. }) = (&self.part.features, self.cut);
        let read = |wanted: &[u32], x: &mut [f32]| match from {
            Store::File(file) => file.read_rows(wanted, x),
            Store::Memory(all) => {
                gather(all, wanted, features, x);
                Ok(())
            }
        };
        let least = if let Store::Memory(_) = from { COPIED / features.max(1) } else { 1 };
        let rows = wanted.len().div_ceil(readers.max(1)).max(least).max(1);
        thread::scope(|scope| {
            let mut parts = wanted.chunks(rows).zip(x.chunks_mut((rows * features).max(1)));
            let own = parts.next();
            let start = |(wanted, x)| {
                let reader = thread::Builder::new().name("reader".into());
                reader.spawn_scoped(scope, move || read(wanted, x))
            };
            let others: Vec<_> = parts.map(start).collect();
            own.map_or(Ok(()), |(wanted, x)| read(wanted, x))?;
            others.into_iter().try_for_each(|other| other?.join().unwrap_or_else(|_| Err(ended())))
        })
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
    use crate::data::RowReader;

    /// A fake file that counts the reads that have begun.
    #[derive(Default)]
    struct Notify(Mutex<usize>, Condvar);

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
        let (rows, file) = (2 * chunks, Arc::clone(&reported) as Arc<dyn RowReader>);
        let part = Part { rows, features: Store::File(file), targets: Arc::new(vec![0.0; rows]) };
        let cut = ChunkShape { features: 1, targets: 1, batch: 2, chunk: 2, world_size: 1, readers: 1 };
        let stream = Stream::new(part, cut, is_held).expect("a thread");
        let reads = |count: usize| {
            let wait = reported.1.wait_timeout_while(
                reported.0.lock().expect("a count"),
                Duration::from_secs(60),
                |n| *n < count,
            );
            assert!(!wait.expect("a count").1.timed_out(), "the reader does not read ahead");
        };
        let mut seen = std::collections::BTreeSet::new();
        let mut bound = None;
        for pass in 0..passes {
            stream.begin(None, 0..rows).expect("a thread that reads");
            for taken in 0..chunks {
                // One is ready, one is being read.
                reads(pass * chunks + chunks.min(taken + 2));
                let chunk = stream.next(Duration::MAX).expect("rows").expect("in time");
                seen.insert(chunk.features[0].as_ptr());
                bound = is_held.then(|| Arc::clone(&chunk.features[0]));
                reads(pass * chunks + chunks.min(taken + 3));
                stream.recycle(chunk);
            }
        }
        drop(bound);
        seen.len()
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
        let stream = Stream::new(part, cut, false).expect("a thread");
        let order: Vec<u32> = (0..rows as u32).map(|i| i * 337 % rows as u32).collect();
        stream.begin(Some(Arc::new(order.clone())), 0..rows).expect("a thread that reads");
        for expected in [&order[..600], &order[600..]] {
            let chunk = stream.next(Duration::MAX).expect("rows").expect("in time");
            let first: Vec<_> =
                chunk.features[0].chunks(features).map(|row| (row[0], row[features - 1])).collect();
            let number = |row: &u32| (*row as usize * features) as f32;
            let last = |row: &u32| number(row) + (features - 1) as f32;
            assert_eq!(first, expected.iter().map(|row| (number(row), last(row))).collect::<Vec<_>>());
            assert_eq!(*chunk.targets[0], expected.iter().map(|row| *row as f32).collect::<Vec<_>>());
        }
    }
}
