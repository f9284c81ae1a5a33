//! How an op's work is split over the threads of the CPU: one way that suits it, by rows of the batch, by rows of a weight,
//! by columns, by elements, or not at all; idle threads take the tiles of a large product.

use std::ops::Range;

use super::{
    Access, Job, Layout, Phase, Slice,
    layout::BufferId,
    run::{NextRows, RowFetch},
};
use crate::vector::matmul::{Grid, Kernel};

/// Shares begin at multiples of this many rows, columns or elements, where there are enough: whole cache lines.
pub const GRAIN: usize = 16;

/// A task before its access is proven.
pub struct Draft {
    pub job: Job,
    pub access: Access,
    pub phase: Phase,
}

/// One op, or a part of it.
pub enum Step {
    /// At most one draft per thread.
    Each(Vec<Option<Draft>>),
    /// A product whose tiles idle threads take.
    Shared(Box<Shared>),
}

/// A product for all threads together.
pub struct Shared {
    pub draft: Draft,
    pub grid: Grid,
    /// Numbers in a row of each of the first two writes.
    pub widths: [usize; 2],
}

/// Scratch memory that tasks need beyond the layout, by number of floats. Programs use the same memory.
#[derive(Default)]
pub struct Scratch {
    /// Lengths, in the order asked for.
    pub lens: Vec<usize>,
}

/// The steps of a program, as its ops add them.
pub struct Split<'a> {
    pub layout: &'a Layout,
    pub threads: usize,
    /// Decides what is packed.
    pub kernel: Kernel,
    /// Where the time of the current op counts.
    pub phase: Phase,
    /// The batch's features, and which rows they are, where they are read where they lie.
    pub features: Option<(Slice, RowFetch)>,
    /// The batch's features, and the next step's rows of them, where those are drawn by an order.
    pub fetched: Option<(Slice, NextRows)>,
    pub steps: Vec<Step>,
    scratch: &'a mut Scratch,
    scratches: usize,
}

impl<'a> Split<'a> {
    pub fn new(layout: &'a Layout, threads: usize, kernel: Kernel, scratch: &'a mut Scratch) -> Self {
        let (phase, steps) = (Phase::Other, Vec::new());
        Self { layout, threads, kernel, phase, features: None, fetched: None, steps, scratch, scratches: 0 }
    }

    /// Which rows `x` is, where it is read where it lies.
    pub(super) fn in_place(&self, x: Slice) -> Option<RowFetch> {
        self.features.filter(|(features, _)| *features == x).map(|(_, fetch)| fetch)
    }

    /// The next step's rows of `x`, where they may be prefetched.
    pub(super) fn upcoming(&self, x: Slice) -> Option<NextRows> {
        self.fetched.filter(|(features, _)| *features == x).map(|(_, next)| next)
    }

    /// Scratch memory of this program.
    pub(super) fn scratch(&mut self, len: usize) -> Slice {
        let index = self.scratches;
        self.scratches += 1;
        if index == self.scratch.lens.len() {
            self.scratch.lens.push(0);
        }
        self.scratch.lens[index] = self.scratch.lens[index].max(len);
        Slice { buffer: BufferId(self.layout.buffers.len() + index), offset: 0, len }
    }

    /// Adds a step: each thread has a share of `n` things, in whole cache lines where there are enough.
    pub(super) fn each<J: Into<Job>>(&mut self, n: usize, draft: impl FnMut(Range<usize>) -> (J, Access)) {
        self.units(n, self.grain(n), draft);
    }

    /// Adds a step: each thread has a share of `n` things that come in units.
    pub(super) fn units<J: Into<Job>>(
        &mut self,
        n: usize,
        unit: usize,
        mut draft: impl FnMut(Range<usize>) -> (J, Access),
    ) {
        let units = n.div_ceil(unit);
        let bound = |t: usize| (units * t / self.threads * unit).min(n);
        let phase = self.phase;
        let mut share = |part: Range<usize>| {
            (!part.is_empty()).then(|| {
                let (job, access) = draft(part);
                Draft { job: job.into(), access, phase }
            })
        };
        let drafts = (0..self.threads).map(|t| share(bound(t)..bound(t + 1))).collect();
        self.steps.push(Step::Each(drafts));
    }

    /// Adds a step of the first thread.
    pub(super) fn single(&mut self, job: impl Into<Job>, access: Access) {
        let first = Some(Draft { job: job.into(), access, phase: self.phase });
        self.steps.push(Step::Each(std::iter::once(first).chain((1..self.threads).map(|_| None)).collect()));
    }

    /// The unit in which shares of `n` are handed out: whole cache lines where there are enough.
    pub(super) fn grain(&self, n: usize) -> usize {
        if n >= GRAIN * self.threads { GRAIN } else { 1 }
    }
}
