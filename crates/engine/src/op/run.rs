//! What CPU tasks run on: the data, a thread's position within a block, and what the first thread keeps.

use std::{
    io,
    ops::Range,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{Gather, Hyper, Layout, RowSource, Store};
use crate::{
    collective::{Collective, CollectiveError},
    vector::matmul::{Kernel, Lines, UpcomingRows},
};

/// The slices that a task reads and writes, in the order of its [`Access`](super::Access).
pub type Slices<'a> = ([&'a [f32]; 4], [&'a mut [f32]; 4]);

/// What tasks need besides their slices.
pub struct Context<'a> {
    /// The matrix products' instruction set.
    pub kernel: Kernel,
    pub bound: &'a BoundData,
    pub at: Cursor,
    pub worker: &'a mut WorkerState,
}

/// Which rows of the data form a share of the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowFetch {
    /// Whether they are validation rows.
    pub validation: bool,
    pub source: RowSource,
    /// The share's first row within the batch.
    pub first: usize,
}

impl RowFetch {
    pub fn new(gather: &Gather, layout: &Layout) -> Self {
        let validation = gather.features != layout.train_features;
        let first = if gather.source == RowSource::Chunk { 0 } else { gather.first };
        Self { validation, source: gather.source, first }
    }

    /// The same share without the rows before `row`.
    pub fn from(self, row: usize) -> Self {
        Self { first: self.first + row, ..self }
    }
}

/// The training rows that the next step will fetch by the epoch's order.
#[derive(Clone, Copy, Debug)]
pub struct NextRows {
    /// The distance in rows from this step's first row to the first of these.
    pub first: usize,
    pub rows: usize,
    pub width: usize,
}

#[derive(Default)]
pub struct Part {
    /// `[rows, features]`.
    pub features: Store,
    /// `[rows, targets]`.
    pub targets: Arc<Vec<f32>>,
}

/// The data bound to the device: in host memory, or in files.
#[derive(Default)]
pub struct BoundData {
    /// Training rows, then validation rows.
    pub parts: [Part; 2],
    pub order: Arc<Vec<u32>>,
}

/// The most elements prefetched while a product computes: half a MiB, since more would evict its operands
/// from the L2 cache.
const MOST_UPCOMING: usize = 1 << 17;

impl BoundData {
    pub(super) fn part(&self, validation: bool) -> &Part {
        &self.parts[usize::from(validation)]
    }

    /// `rows` rows of `width` elements in place; or their copies, if they are in a file or were copied
    /// anyway.
    pub fn lines<'a>(
        &'a self,
        in_place: Option<RowFetch>,
        copies: &'a [f32],
        [rows, width]: [usize; 2],
        at: &Cursor,
    ) -> Lines<'a> {
        let Some(fetch) = in_place else { return Lines::new(copies, width) };
        let Store::Memory(data) = &self.part(fetch.validation).features else {
            return Lines::new(copies, width);
        };
        let start = at.start(fetch);
        match fetch.source {
            RowSource::Order(_) => {
                Lines { data, stride: width, order: Some(&self.order[start..start + rows]) }
            }
            RowSource::Position | RowSource::Chunk => Lines::new(&data[start * width..], width),
        }
    }

    /// A part of the next step's rows, up to the end of the bound order; empty if they are in a file.
    pub fn upcoming(&self, next: NextRows, part: Range<usize>, at: &Cursor) -> UpcomingRows<'_> {
        let Store::Memory(data) = &self.parts[0].features else { return UpcomingRows::default() };
        let (first, most) = (at.order + at.position + next.first, MOST_UPCOMING / next.width.max(1));
        let end = (first + part.end.min(part.start + most)).min(self.order.len());
        let order = self.order.get(first + part.start..end);
        UpcomingRows { data, width: next.width, order: order.unwrap_or_default() }
    }
}

/// A thread's position within a block of steps.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cursor {
    pub seed: u64,
    pub step: u64,
    /// First row of the global batch within the epoch.
    pub position: usize,
    /// Where the epoch's order begins in the bound one.
    pub order: usize,
    /// First row of this device's share within a streamed chunk.
    pub offset: usize,
    pub slot: usize,
    /// The values for this step's update.
    pub hyper: Hyper,
}

impl Cursor {
    /// Where the rows of a fetch begin: in the order, the data or the chunk.
    pub(super) fn start(&self, fetch: RowFetch) -> usize {
        let before = match fetch.source {
            RowSource::Chunk => self.offset,
            RowSource::Order(_) => self.order + self.position,
            RowSource::Position => self.position,
        };
        before + fetch.first
    }
}

/// Why a step cannot be completed.
#[derive(Debug)]
pub enum Failure {
    /// Its rows could not be read.
    Rows(io::Error),
    /// The sum over devices failed.
    Sum(CollectiveError),
}

/// What a thread keeps from step to step. Apart from `failure`, only the first thread uses it: it runs all
/// tasks that need it.
#[derive(Default)]
pub struct WorkerState {
    /// The connection to the other devices, if there are any.
    pub collective: Option<Box<dyn Collective>>,
    pub failure: Option<Failure>,
    /// Number of sums over devices so far, and the time they took.
    pub all_reduces: (u64, Duration),
    pub all_reduce_bytes: u64,
    /// Running sums, indexed by `Accumulator`.
    pub sums: [Vec<f64>; 2],
    /// The first step (from 1) whose loss was not finite.
    pub non_finite: Option<u64>,
}

impl WorkerState {
    /// Calls the collective, and adds the time. Returns false if it fails, or there is none.
    pub(super) fn sum(
        &mut self,
        call: impl FnOnce(&mut dyn Collective) -> Result<(), CollectiveError>,
    ) -> bool {
        let Some(collective) = &mut self.collective else { return false };
        let start = Instant::now();
        self.failure = call(collective.as_mut()).err().map(Failure::Sum);
        self.all_reduces.1 += start.elapsed();
        self.failure.is_none()
    }

    pub(super) fn watch(&mut self, loss: f32, step: u64) {
        if !loss.is_finite() && self.non_finite.is_none() {
            self.non_finite = Some(step + 1);
        }
    }
}
