//! A backend in host memory: the CPU itself, or a virtual GPU, whose memory is only reached by copies.
//!
//! All work is complete when a call returns.

use std::{
    any::Any,
    collections::HashMap,
    mem,
    ops::Range,
    time::{Duration, Instant},
};

use super::{block::Block, product_threads::ProductThreads};
use crate::{
    device::{
        DeviceError, HostMemory, Moved,
        backend::{Backend, NO_MARK, misfit, unknown},
    },
    op::{
        Access, Buffer, BufferId, InputGradient, Job, Layout, Linear, Op, PARTIAL_SUMS, Role, Slice,
        run::{BoundData, Context, Cursor, WorkerState},
        split::{Scratch, Split, Step},
    },
    spec::lab::Memory,
    vector::matmul::Kernel,
};

/// A device in the host's memory.
pub struct HostBackend {
    name: String,
    is_host: bool,
    blocks: HashMap<BufferId, Block>,
    /// One per thread.
    workers: Vec<Worker>,
    threads: ProductThreads,
    kernel: Kernel,
    no_data: BoundData,
    marks: Vec<Instant>,
}

impl HostBackend {
    /// The CPU; `threads` threads share large products.
    pub fn cpu(threads: usize) -> Self {
        Self::new("cpu".to_owned(), true, threads)
    }

    /// A virtual GPU: a memory of its own, one thread.
    pub fn virtual_gpu(ordinal: u32) -> Self {
        Self::new(format!("virtual:{ordinal}"), false, 1)
    }

    fn new(name: String, is_host: bool, threads: usize) -> Self {
        let workers = (0..threads.max(1)).map(|_| Worker::default()).collect();
        let (blocks, no_data, marks) = (HashMap::new(), BoundData::default(), Vec::new());
        let (threads, kernel) = (ProductThreads::default(), Kernel::detect());
        Self { name, is_host, blocks, workers, threads, kernel, no_data, marks }
    }

    /// Runs an op; if it is a product, this many threads share its rows.
    fn run_on(&mut self, op: &Op, threads: usize) -> Result<(), DeviceError> {
        let out = op.access().writes[0];
        let Some(block) = self.blocks.get_mut(&out.buffer) else { return Err(unknown(&self.name)) };
        let (mut block, mut workers) = (mem::take(block), mem::take(&mut self.workers));
        let m = op.product().map_or(1, |[m, ..]| m);
        let done = match block.get_mut(out.offset..out.end()) {
            None => Err(misfit(&self.name, "an op that reaches beyond its result")),
            Some(to) if threads <= 1 => self.part(op, to, &mut workers[0]),
            Some(to) => std::thread::scope(|scope| {
                let (rows, width) = (m.div_ceil(threads), to.len() / m);
                let parts = to.chunks_mut(rows * width).zip(&mut workers).enumerate();
                let started: Vec<_> = parts
                    .map(|(i, (to, worker))| {
                        let part = rows_of(op, &(i * rows..i * rows + to.len() / width));
                        let this = &*self;
                        scope.spawn(move || this.part(part.as_ref().unwrap_or(op), to, worker))
                    })
                    .collect();
                let lost = |_| Err(misfit(&self.name, "a product that its thread did not finish"));
                started.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(lost))
            }),
        };
        self.workers = workers;
        self.blocks.insert(out.buffer, block);
        done
    }

    /// How many threads can share a product.
    fn most_threads(&self, [m, ..]: [usize; 3]) -> usize {
        self.workers.len().min(m).max(1)
    }

    /// A copy between this device and the host. It has to wait for the device, but here all work is complete
    /// already.
    fn moved(&self, numbers: usize) -> Moved {
        if self.is_host { Moved::Nothing } else { waited(numbers) }
    }

    fn memory(&self, len: usize, value: f32) -> Result<Block, DeviceError> {
        let bytes = (len as u64).saturating_mul(4);
        Block::new(len, value).map_err(|_| DeviceError::OutOfMemory { device: self.name.clone(), bytes })
    }

    fn block(&self, block: BufferId) -> Result<&[f32], DeviceError> {
        self.blocks.get(&block).map(|block| &**block).ok_or_else(|| unknown(&self.name))
    }

    /// Fills a block with values.
    fn fill(&mut self, to: BufferId, from: &[f32]) -> Result<(), DeviceError> {
        let Some(to) = self.blocks.get_mut(&to) else { return Err(unknown(&self.name)) };
        if to.len() != from.len() {
            let what = format!("{} numbers where {} are needed", from.len(), to.len());
            return Err(misfit(&self.name, what));
        }
        to.copy_from_slice(from);
        Ok(())
    }

    /// Runs a part of an op on the calling thread. `out` is everything it writes; it has been taken out of
    /// `blocks`.
    fn part(&self, op: &Op, out: &mut [f32], worker: &mut Worker) -> Result<(), DeviceError> {
        let first = op.access().writes[0];
        let mut state = WorkerState::default();
        let (bound, at) = (&self.no_data, Cursor::default());
        let mut context = Context { kernel: self.kernel, bound, at, worker: &mut state };
        let outside = || misfit(&self.name, "an op that reaches beyond its buffers");
        let Worker { scratch, compiled } = worker;
        let Compiled { blocks, tasks, .. } = compile(compiled, scratch, op, self.kernel);
        for (job, access) in tasks {
            let to = access.writes[0];
            let own = to.buffer.0.checked_sub(*blocks);
            let mut taken = own.and_then(|own| scratch.get_mut(own)).map(mem::take).unwrap_or_default();
            let mut reads: [&[f32]; 4] = [&[]; 4];
            for (read, from) in reads.iter_mut().zip(access.reads).filter(|(_, from)| from.len > 0) {
                let whole = match from.buffer.0.checked_sub(*blocks) {
                    None => self.blocks.get(&from.buffer).map(|block| &**block),
                    Some(own) => scratch.get(own).map(Vec::as_slice),
                };
                *read = whole.and_then(|whole| whole.get(from.offset..from.end())).ok_or_else(outside)?;
            }
            let write = match own {
                Some(_) => taken.get_mut(to.offset..to.end()),
                None => out.get_mut(to.offset - first.offset..to.end() - first.offset),
            };
            let writes = [write.ok_or_else(outside)?, &mut [], &mut [], &mut []];
            job.run((reads, writes), &mut context);
            if let Some(own) = own.and_then(|own| scratch.get_mut(own)) {
                *own = taken;
            }
        }
        Ok(())
    }
}

fn waited(numbers: usize) -> Moved {
    Moved::AfterWait { bytes: 4 * numbers as u64, wait: Duration::ZERO }
}

/// Per-thread state that is kept between ops.
#[derive(Default)]
struct Worker {
    /// Scratch of its tasks.
    scratch: Vec<Vec<f32>>,
    /// The most recent ops with their tasks.
    compiled: Vec<Compiled>,
}

/// An op and its tasks for one thread.
struct Compiled {
    op: Op,
    /// Buffers with this index or a higher one are scratch.
    blocks: usize,
    tasks: Vec<(Job, Access)>,
}

/// How many ops' tasks are kept.
const MOST_COMPILED: usize = 16;

fn compile<'a>(
    compiled: &'a mut Vec<Compiled>,
    scratch: &mut Vec<Vec<f32>>,
    op: &Op,
    kernel: Kernel,
) -> &'a Compiled {
    let at = compiled.iter().position(|own| own.op == *op).unwrap_or_else(|| {
        if compiled.len() >= MOST_COMPILED {
            compiled.clear();
        }
        // Higher numbers stand for scratch memory of GPU kernels.
        let numbers =
            op.access().touched().map(|slice| slice.buffer.0).filter(|n| *n < PARTIAL_SUMS.buffer.0);
        let blocks = 1 + numbers.max().unwrap_or(0);
        let unnamed = Buffer { name: String::new(), len: 0, role: Role::Activation };
        let (layout, mut needed) = (Layout::bare(vec![unnamed; blocks]), Scratch::default());
        let mut split = Split::new(&layout, 1, kernel, &mut needed);
        op.split(&mut split);
        // For one thread every step has a single task.
        let task = |step| match step {
            Step::Each(drafts) => drafts.into_iter().next().flatten().map(|draft| (draft.job, draft.access)),
            Step::Shared(_) => None,
        };
        let tasks = split.steps.into_iter().filter_map(task).collect();
        compiled.push(Compiled { op: op.clone(), blocks, tasks });
        scratch.resize_with(scratch.len().max(needed.lens.len()), Vec::new);
        for (own, len) in scratch.iter_mut().zip(needed.lens).filter(|(own, len)| own.len() < *len) {
            own.resize(len, 0.0);
        }
        compiled.len() - 1
    });
    &compiled[at]
}

/// The op for some rows of a product. Splitting does not change the result's bits.
fn rows_of(op: &Op, rows: &Range<usize>) -> Option<Op> {
    let (cut, count) = (|slice: Slice, width: usize| slice.rows(rows, width), rows.len());
    match op {
        Op::Linear(l) => {
            let (x, y) = (cut(l.x, l.inputs), cut(l.y, l.outputs));
            Some(Linear { x, y, rows: count, ..l.clone() }.into())
        }
        Op::InputGradient(g) => {
            let (dy, dx) = (cut(g.dy, g.outputs), cut(g.dx, g.inputs));
            Some(InputGradient { dy, dx, rows: count, ..g.clone() }.into())
        }
        _ => None,
    }
}

impl Backend for HostBackend {
    fn alloc(&mut self, block: BufferId, len: usize, value: f32) -> Result<(), DeviceError> {
        let values = self.memory(len, value)?;
        self.blocks.insert(block, values);
        Ok(())
    }

    fn clear(&mut self) {
        self.blocks.clear();
    }

    fn bytes(&self) -> u64 {
        self.blocks.values().map(|block| 4 * block.len() as u64).sum()
    }

    fn staging(&mut self, memory: Memory, len: usize) -> Result<HostMemory, DeviceError> {
        match memory {
            Memory::Pageable => Ok(Box::new(self.memory(len, 0.0)?)),
            Memory::Pinned => {
                let why = "pinned memory needs a GPU's driver".to_owned();
                Err(DeviceError::Unusable { device: self.name.clone(), why })
            }
        }
    }

    fn write(&mut self, to: BufferId, from: &[f32]) -> Result<Moved, DeviceError> {
        self.fill(to, from)?;
        Ok(self.moved(from.len()))
    }

    fn read(&mut self, from: BufferId, to: &mut [f32]) -> Result<Moved, DeviceError> {
        let first = self.block(from)?.get(..to.len());
        to.copy_from_slice(first.ok_or_else(|| misfit(&self.name, "a block that is too short"))?);
        Ok(self.moved(to.len()))
    }

    fn copy(&mut self, to: BufferId, from: BufferId) -> Result<Moved, DeviceError> {
        let Some(values) = self.blocks.remove(&from) else { return Err(unknown(&self.name)) };
        let (filled, bytes) = (self.fill(to, &values), 4 * values.len() as u64);
        self.blocks.insert(from, values);
        filled.map(|()| Moved::Bytes(bytes))
    }

    fn copy_from(
        &mut self,
        to: BufferId,
        peer: &mut dyn Backend,
        from: BufferId,
    ) -> Result<Moved, DeviceError> {
        let Some(peer) = peer.as_any().downcast_mut::<Self>() else { return Err(unknown(&self.name)) };
        let values = peer.block(from)?;
        self.fill(to, values)?;
        Ok(waited(values.len()))
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }

    fn run(&mut self, op: &Op) -> Result<(), DeviceError> {
        let threads = op.product().map(|shape| self.threads.count(shape, self.most_threads(shape)));
        self.run_on(op, threads.unwrap_or(1))
    }

    fn prepare(&mut self, op: &Op) -> Result<Option<usize>, DeviceError> {
        let Some(shape) = op.product() else { return self.run_on(op, 1).map(|()| Some(1)) };
        let (most, mut threads) = (self.most_threads(shape), mem::take(&mut self.threads));
        let chosen = threads.choose(shape, most, |threads| {
            let begun = Instant::now();
            self.run_on(op, threads)?;
            Ok(begun.elapsed())
        });
        self.threads = threads;
        chosen.map(Some)
    }

    fn synchronize(&mut self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn mark(&mut self, number: usize) -> Result<(), DeviceError> {
        let now = Instant::now();
        match self.marks.get_mut(number) {
            Some(mark) => *mark = now,
            None => self.marks.resize(number + 1, now),
        }
        Ok(())
    }

    fn seconds_between(&self, marks: [usize; 2]) -> Result<f64, DeviceError> {
        let [Some(from), Some(to)] = marks.map(|number| self.marks.get(number)) else {
            return Err(misfit(&self.name, NO_MARK));
        };
        Ok(to.saturating_duration_since(*from).as_secs_f64())
    }
}

#[cfg(test)]
#[path = "backend_tests.rs"]
mod tests;
