//! Where a step's rows come from: bound to the device once, or streamed to it in chunks that a thread of its own reads
//! ahead of the computing.

use std::{
    io,
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
};

use crate::data::{Part, Store};

/// Consecutive rows of an epoch, in its order.
pub struct Chunk {
    /// Position of its first row within the epoch.
    pub first: usize,
    /// How many.
    pub rows: usize,
    /// `[rows, features]`.
    pub features: Arc<Vec<f32>>,
    /// `[rows, targets]`.
    pub targets: Arc<Vec<f32>>,
}

/// An order of rows to read, and how many of them.
type Request = (Option<Arc<Vec<u32>>>, usize);

/// Reads chunks ahead: one is computed with, one is ready, one is being read.
pub struct Stream {
    requests: SyncSender<Request>,
    chunks: Receiver<io::Result<Chunk>>,
    /// Buffers that were computed with, to be filled again.
    spent: SyncSender<[Arc<Vec<f32>>; 2]>,
}

impl Stream {
    /// Starts the reading thread; chunks hold `rows` rows, but the last of a pass.
    pub fn new(part: &Part, features: usize, targets: usize, rows: usize) -> io::Result<Self> {
        let (requests, orders) = sync_channel::<Request>(1);
        let (filled, chunks) = sync_channel(1);
        let (spent, reuse) = sync_channel(4);
        let reader = Reader { part: part.clone(), features, targets, rows, reuse };
        thread::Builder::new().name("reader".into()).spawn(move || {
            // The other side hangs up when the run ends; then so does this thread.
            while let Ok((order, total)) = orders.recv() {
                for first in (0..total).step_by(reader.rows) {
                    let chunk = reader.read(order.as_ref().map(|o| &o[..]), first, total);
                    let failed = chunk.is_err();
                    if filled.send(chunk).is_err() || failed {
                        return;
                    }
                }
            }
        })?;
        Ok(Self { requests, chunks, spent })
    }

    /// Begins a pass over the rows, in `order` or as they stand.
    pub fn begin(&self, order: Option<Arc<Vec<u32>>>, rows: usize) -> io::Result<()> {
        self.requests.send((order, rows)).map_err(|_| ended())
    }

    /// The next chunk of the pass.
    pub fn next(&self) -> io::Result<Chunk> {
        self.chunks.recv().map_err(|_| ended())?
    }

    /// Gives a chunk's memory back.
    pub fn recycle(&self, features: Arc<Vec<f32>>, targets: Arc<Vec<f32>>) {
        // A full queue drops the buffers, which only costs an allocation later.
        let _ = self.spent.try_send([features, targets]);
    }
}

fn ended() -> io::Error {
    io::Error::other("the reading thread has ended")
}

struct Reader {
    part: Part,
    features: usize,
    targets: usize,
    rows: usize,
    reuse: Receiver<[Arc<Vec<f32>>; 2]>,
}

impl Reader {
    fn read(&self, order: Option<&[u32]>, first: usize, total: usize) -> io::Result<Chunk> {
        let rows = self.rows.min(total - first);
        let [mut x, mut y] = self.reuse.try_recv().map_or_else(|_| Default::default(), |b| b.map(unshare));
        x.resize(rows * self.features, 0.0);
        y.resize(rows * self.targets, 0.0);
        let plain: Vec<u32>;
        let wanted = match order {
            Some(order) => &order[first..first + rows],
            None => {
                plain = (first as u32..(first + rows) as u32).collect();
                &plain
            }
        };
        match &self.part.features {
            Store::File(file) => file.read_rows(wanted, &mut x)?,
            Store::Memory(all) => pick(all, wanted, self.features, &mut x),
        }
        pick(&self.part.targets, wanted, self.targets, &mut y);
        Ok(Chunk { first, rows, features: Arc::new(x), targets: Arc::new(y) })
    }
}

/// The buffer itself where nobody else holds it, which is so unless a device still does.
fn unshare(buffer: Arc<Vec<f32>>) -> Vec<f32> {
    Arc::try_unwrap(buffer).unwrap_or_default()
}

fn pick(all: &[f32], rows: &[u32], width: usize, to: &mut [f32]) {
    for (row, to) in rows.iter().zip(to.chunks_exact_mut(width)) {
        to.copy_from_slice(&all[*row as usize * width..][..width]);
    }
}
