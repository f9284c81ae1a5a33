//! Tasks: one thread's share of an instruction, with every size and place worked out beforehand.

use std::{
    io,
    ops::Range,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    arena::{Slices, Verified},
    compile::SUM_ROWS,
    linear,
    matmul::{Kernel, Lines, Source, UpcomingRows},
    ops::{activation, dropout, gather, loss, optimizer, reduce},
    pool::Pool,
};
use crate::collective::{Collective, CollectiveError};
use crate::device::Store;
use crate::program::{Accumulator, Activation, Hyper, LossKind, Phase, UpdateRule};

/// A job with its proven access.
pub struct Task {
    /// What is done.
    pub job: TaskKind,
    /// On what.
    pub share: Share,
    /// Whether the team meets before it.
    pub barrier: bool,
    /// Where its time counts.
    pub phase: Phase,
}

/// Whose a task is.
pub enum Share {
    /// One thread's.
    Own(Verified),
    /// A product's tiles, of which all threads of the team take some.
    Shared(Arc<Pool>),
}

/// Which data buffers a gather reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// Training rows.
    Train,
    /// Validation rows.
    Validation,
}

/// How a gather finds its rows; see [`crate::program::RowSource`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowIndex {
    /// By the epoch's order.
    Order,
    /// By position.
    Position,
    /// Within a chunk.
    Chunk,
}

/// Which rows of the data a share of the batch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowFetch {
    /// Of which split.
    pub split: Split,
    /// How they are found.
    pub place: RowIndex,
    /// The share's first row within the batch.
    pub first: usize,
}

impl RowFetch {
    /// Those from a row of the share on.
    pub fn from(self, row: usize) -> Self {
        Self { first: self.first + row, ..self }
    }
}

/// The training rows that the next step fetches by the epoch's order.
#[derive(Clone, Copy, Debug)]
pub struct NextRows {
    /// How far behind this step's first row they begin.
    pub first: usize,
    /// How many.
    pub rows: usize,
    /// Numbers in each.
    pub width: usize,
}

/// What a task does. Reads and writes are numbered as in the comment of each.
#[derive(Clone, Copy, Debug)]
pub enum TaskKind {
    /// Writes x, y: rows of the batch. x is left alone where those who read it have the rows `in_place`.
    Gather { fetch: RowFetch, width: usize, target_width: usize, in_place: bool },
    /// Reads a right operand, writes units of its packed form.
    Pack { transposed: bool, shape: [usize; 2], units: (usize, usize) },
    /// Reads x, weight (perhaps packed), bias; writes y, and z before the activation where `keep`. One output may be computed
    /// from rows that are in place.
    Linear {
        shape: [usize; 3],
        packed: bool,
        bias: bool,
        activation: Option<Activation>,
        keep: bool,
        in_place: Option<RowFetch>,
    },
    /// Reads dy, packed Wᵀ, saved; writes dx.
    InputGradient { shape: [usize; 3], derivative: Option<Activation> },
    /// Reads x, dy (perhaps packed); writes rows of the gradient, or of the weight where `update`. Meanwhile the next
    /// step's rows may be brought near.
    WeightGradient {
        shape: [usize; 3],
        first: usize,
        stride: usize,
        packed: bool,
        update: bool,
        upcoming: Option<NextRows>,
    },
    /// Reads x, perhaps in place, and dy (one number per row); writes their products, a row of sums per chunk of rows.
    PartialSums { inputs: usize, stride: usize, in_place: Option<RowFetch> },
    /// Reads rows; writes the sums of columns: a gradient.
    ColumnSums { stride: usize, first: usize },
    /// Reads rows; writes a parameter, from which the sums are subtracted, and a scratch of the same length.
    ColumnSumsUpdate { stride: usize, first: usize },
    /// Reads x, writes y.
    Activate(Activation),
    /// Reads saved, writes dy.
    ActivateBackward(Activation),
    /// Reads x, writes y.
    Dropout { p: f32, layer: u32, width: usize, first: usize },
    /// Writes dy.
    DropoutBackward { p: f32, layer: u32, width: usize, first: usize },
    /// Reads prediction, target; writes per_row, hits, gradient.
    Loss { kind: LossKind, width: usize, total_rows: usize },
    /// Writes numbers: sums over all devices.
    AllReduce,
    /// Writes zeros.
    Zero,
    /// Reads numbers, writes a partial sum of squares per chunk.
    Squares,
    /// Reads partial sums, writes the root of their sum.
    Root,
    /// Reads the norm, writes gradients.
    Clip { max_norm: f32 },
    /// Reads gradients; writes values, first and second state.
    Update(UpdateRule),
    /// Reads numbers, writes their scaled sum.
    Mean { scale: f64 },
    /// Reads cells, writes the log.
    LogAppend,
    /// Reads cells.
    Accumulate { rows: usize, sums: Accumulator },
    /// Reads the loss.
    Watch,
    /// Only meets the others at a barrier.
    Idle,
}

/// Rows of one split.
#[derive(Default)]
pub struct Part {
    /// `[rows, features]`.
    pub features: Store,
    /// `[rows, targets]`.
    pub targets: Arc<Vec<f32>>,
}

impl Part {
    /// Features of rows that `order` names, or from row `first` on.
    fn fetch(&self, order: Option<&[u32]>, first: usize, width: usize, to: &mut [f32]) -> io::Result<()> {
        match (&self.features, order) {
            (Store::Memory(all), Some(order)) => gather::gather(all, order, width, to),
            (Store::Memory(all), None) => to.copy_from_slice(&all[first * width..][..to.len()]),
            (Store::File(file), Some(order)) => return file.read_rows(order, to),
            (Store::File(file), None) => return file.read_range(first as u32, to),
        }
        Ok(())
    }
}

/// Data bound to the device: the host's own memory, or its files.
#[derive(Default)]
pub struct BoundData {
    /// The training rows.
    pub train: Part,
    /// The validation rows.
    pub validation: Part,
    /// The epoch's order.
    pub order: Arc<Vec<u32>>,
}

/// Numbers that are brought near while a product computes at most, half a MiB: more would drive out of the second-level
/// cache what it works on.
const MOST_UPCOMING: usize = 1 << 17;

impl BoundData {
    fn part(&self, split: Split) -> &Part {
        match split {
            Split::Train => &self.train,
            Split::Validation => &self.validation,
        }
    }

    /// So many rows of that width where they lie; their copies where that is in a file, or where copies were made anyway.
    pub fn lines<'a>(
        &'a self,
        in_place: Option<RowFetch>,
        copies: &'a [f32],
        [rows, width]: [usize; 2],
        at: &Cursor,
    ) -> Lines<'a> {
        let Some(fetch) = in_place else { return Lines::new(copies, width) };
        let Store::Memory(data) = &self.part(fetch.split).features else { return Lines::new(copies, width) };
        let start = at.start(fetch);
        match fetch.place {
            RowIndex::Order => Lines { data, stride: width, order: Some(&self.order[start..start + rows]) },
            RowIndex::Position | RowIndex::Chunk => Lines::new(&data[start * width..], width),
        }
    }

    /// A part of the next step's rows, as far as the epoch goes; none where they lie in a file.
    pub fn upcoming(&self, next: NextRows, part: Range<usize>, at: &Cursor) -> UpcomingRows<'_> {
        let Store::Memory(data) = &self.train.features else { return UpcomingRows::default() };
        let (first, most) = (at.position + next.first, MOST_UPCOMING / next.width.max(1));
        let end = (first + part.end.min(part.start + most)).min(self.order.len());
        let order = self.order.get(first + part.start..end);
        UpcomingRows { data, width: next.width, order: order.unwrap_or_default() }
    }
}

/// Where a thread is within a block.
#[derive(Clone, Copy, Debug)]
pub struct Cursor {
    /// The run's seed.
    pub seed: u64,
    /// Optimizer steps done.
    pub step: u64,
    /// First row of the global batch within the epoch.
    pub position: usize,
    /// First row of this device's share within a streamed chunk.
    pub offset: usize,
    /// Next row of the log.
    pub slot: usize,
    /// What this step's update uses.
    pub hyper: Hyper,
}

impl Cursor {
    /// Where the rows of a fetch begin: in the order, in the data, or in the chunk.
    fn start(&self, fetch: RowFetch) -> usize {
        fetch.first + if fetch.place == RowIndex::Chunk { self.offset } else { self.position }
    }
}

/// What only the first thread keeps: it alone runs the tasks that touch it.
#[derive(Default)]
pub struct WorkerState {
    /// The way to the other devices, where there are any.
    pub collective: Option<Box<dyn Collective>>,
    /// At which step (1-based) a sum over devices did not come about, and why.
    pub fault: Option<(u64, CollectiveError)>,
    /// Sums over devices so far, and the time they took.
    pub all_reduces: (u64, Duration),
    /// Bytes of each.
    pub all_reduce_bytes: u64,
    /// Running sums, by [`Accumulator`].
    pub sums: [Vec<f64>; 2],
    /// First step (1-based) whose loss was not finite.
    pub non_finite: Option<u64>,
}

impl WorkerState {
    fn all_reduce(&mut self, numbers: &mut [f32], step: u64) {
        let Some(collective) = &mut self.collective else { return };
        let start = Instant::now();
        if let Err(e) = collective.all_reduce(numbers, step + 1) {
            self.fault = Some((step + 1, e));
            return;
        }
        self.all_reduces.0 += 1;
        self.all_reduces.1 += start.elapsed();
        self.all_reduce_bytes = 4 * numbers.len() as u64;
    }

    fn watch(&mut self, loss: f32, step: u64) {
        if !loss.is_finite() && self.non_finite.is_none() {
            self.non_finite = Some(step + 1);
        }
    }
}

/// All that tasks need beside the arena.
pub struct Context<'a> {
    /// The matrix products' instruction set.
    pub kernel: Kernel,
    /// The data.
    pub bound: &'a BoundData,
}

impl Task {
    /// Runs the task on its slices. An error where rows cannot be read.
    #[inline]
    pub fn run(
        &self,
        (reads, writes): Slices<'_>,
        context: &Context<'_>,
        at: &Cursor,
        tally: &mut WorkerState,
    ) -> io::Result<()> {
        let [r0, r1, ..] = reads;
        let [w0, w1, w2, _] = writes;
        let kernel = context.kernel;
        match self.job {
            TaskKind::Gather { fetch, width, target_width, in_place } => {
                let (part, start, rows) =
                    (context.bound.part(fetch.split), at.start(fetch), w0.len() / width);
                let order =
                    (fetch.place == RowIndex::Order).then(|| &context.bound.order[start..start + rows]);
                if !in_place || matches!(part.features, Store::File(_)) {
                    part.fetch(order, start, width, w0)?;
                }
                match order {
                    Some(order) => gather::gather(&part.targets, order, target_width, w1),
                    None => w1.copy_from_slice(&part.targets[start * target_width..][..w1.len()]),
                }
            }
            TaskKind::Pack { transposed, shape, units } => {
                let source = if transposed { Source::Transposed(r0) } else { Source::Rows(r0) };
                kernel.pack(source, shape, units.0..units.1, w0);
            }
            TaskKind::Linear { .. } | TaskKind::InputGradient { .. } | TaskKind::WeightGradient { .. } => {
                linear::multiply(context, &self.job, reads, [w0, w1], at);
            }
            TaskKind::PartialSums { inputs, stride, in_place } => {
                let x = context.bound.lines(in_place, r0, [r1.len(), inputs], at);
                for (i, (dy, sums)) in r1.chunks(SUM_ROWS).zip(w0.chunks_exact_mut(stride)).enumerate() {
                    kernel.weigh_rows(x.part(i * SUM_ROWS, dy.len()), dy, None, &mut sums[..inputs]);
                }
            }
            TaskKind::ColumnSums { stride, first } => reduce::columns(r0, stride, first, w0),
            TaskKind::ColumnSumsUpdate { stride, first } => {
                reduce::columns(r0, stride, first, w1);
                optimizer::sgd_step(at.hyper.rate, w0, w1);
            }
            TaskKind::Activate(f) => activation::activate(f, r0, w0),
            TaskKind::ActivateBackward(f) => activation::activate_backward(f, r0, w0),
            TaskKind::Dropout { p, layer, width, first } => {
                dropout::dropout(mask(at, p, layer, width, first), r0, w0);
            }
            TaskKind::DropoutBackward { p, layer, width, first } => {
                dropout::dropout_in_place(mask(at, p, layer, width, first), w0);
            }
            TaskKind::Loss { kind, width, total_rows } => {
                let mut out = loss::Out { per_row: w0, hits: w1, gradient: w2 };
                if kind.classifies() {
                    loss::cross_entropy(r0, r1, width, total_rows as f32, &mut out);
                } else {
                    loss::regression(kind, r0, r1, width, (total_rows * width) as f32, &mut out);
                }
            }
            TaskKind::AllReduce => tally.all_reduce(w0, at.step),
            TaskKind::Zero => w0.fill(0.0),
            TaskKind::Squares => reduce::squares(r0, w0),
            TaskKind::Root => w0[0] = reduce::sum(r0).sqrt() as f32,
            TaskKind::Clip { max_norm } => optimizer::clip(w0, r0[0], max_norm),
            TaskKind::Update(rule) => optimizer::update(rule, at.hyper, w0, r0, [w1, w2]),
            TaskKind::Mean { scale } => w0[0] = (reduce::sum(r0) * scale) as f32,
            TaskKind::LogAppend => {
                w0[at.slot * r0.len()..][..r0.len()].copy_from_slice(r0);
                tally.watch(r0[0], at.step);
            }
            TaskKind::Accumulate { rows, sums } => {
                if sums == Accumulator::Epoch {
                    // What comes after the first loss that is not finite never happened.
                    if tally.non_finite.is_some() {
                        return Ok(());
                    }
                    tally.watch(r0[0], at.step);
                }
                let to = &mut tally.sums[usize::from(sums == Accumulator::Validation)];
                to.resize(r0.len(), 0.0);
                to.iter_mut().zip(r0).for_each(|(s, v)| *s += f64::from(*v) * rows as f64);
            }
            TaskKind::Watch => tally.watch(r0[0], at.step),
            TaskKind::Idle => {}
        }
        Ok(())
    }
}

fn mask(at: &Cursor, p: f32, layer: u32, width: usize, first: usize) -> dropout::Mask {
    dropout::Mask { seed: at.seed, layer, step: at.step, first_row: (at.position + first) as u64, p, width }
}
