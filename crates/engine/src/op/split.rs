//! How an op's work is divided among CPU threads: in the way that suits the op, by rows of the batch, rows of
//! a weight, columns or elements, or not at all. The tiles of a large product are shared, so that idle
//! threads take over some of them.

use std::ops::Range;

use super::{
    Access, Job, Layout, Phase, Slice,
    layout::BufferId,
    run::{NextRows, RowFetch},
};
use crate::vector::matmul::{Grid, Kernel};

/// Shares begin at multiples of this many rows, columns or elements if there are enough, so that they are
/// whole cache lines.
pub const GRAIN: usize = 16;

/// A task whose access has not been verified yet.
pub struct Draft {
    pub job: Job,
    pub access: Access,
    pub phase: Phase,
}

/// One op, or a part of one.
pub enum Step {
    /// At most one draft per thread.
    Each(Vec<Option<Draft>>),
    /// A product whose tiles are shared by all threads.
    Shared(Box<Shared>),
}

/// A product for all threads together.
pub struct Shared {
    pub draft: Draft,
    pub grid: Grid,
    /// Row widths of the first two writes.
    pub widths: [usize; 2],
}

/// Scratch memory that tasks need beyond the layout, in f32 elements. All programs use the same memory.
#[derive(Default)]
pub struct Scratch {
    /// Lengths of the scratch buffers, in the order requested.
    pub lens: Vec<usize>,
}

/// The steps of a program, as its ops add them.
pub struct Split<'a> {
    pub layout: &'a Layout,
    pub threads: usize,
    /// Decides which operands are packed.
    pub kernel: Kernel,
    /// The phase under which the current op's time is counted.
    pub phase: Phase,
    /// The batch's features, and which rows of the data they are, if they are used in place.
    pub features: Option<(Slice, RowFetch)>,
    /// The batch's features, and the rows that the next step will use, if rows follow an order.
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

    /// Which rows of the data `x` is, if it is used in place.
    pub(super) fn in_place(&self, x: Slice) -> Option<RowFetch> {
        self.features.filter(|(features, _)| *features == x).map(|(_, fetch)| fetch)
    }

    /// The next step's rows of `x`, if they may be prefetched.
    pub(super) fn upcoming(&self, x: Slice) -> Option<NextRows> {
        self.fetched.filter(|(features, _)| *features == x).map(|(_, next)| next)
    }

    /// Requests scratch memory for this program.
    pub(super) fn scratch(&mut self, len: usize) -> Slice {
        let index = self.scratches;
        self.scratches += 1;
        if index == self.scratch.lens.len() {
            self.scratch.lens.push(0);
        }
        self.scratch.lens[index] = self.scratch.lens[index].max(len);
        Slice { buffer: BufferId(self.layout.buffers.len() + index), offset: 0, len }
    }

    /// Adds a step that divides `n` items among the threads, in whole cache lines if there are enough.
    pub(super) fn each<J: Into<Job>>(&mut self, n: usize, draft: impl FnMut(Range<usize>) -> (J, Access)) {
        self.units(n, self.grain(n), draft);
    }

    /// Adds a step that divides `n` items among the threads in multiples of `unit`.
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

    /// Adds a step that only the first thread runs.
    pub(super) fn single(&mut self, job: impl Into<Job>, access: Access) {
        let first = Some(Draft { job: job.into(), access, phase: self.phase });
        self.steps.push(Step::Each(std::iter::once(first).chain((1..self.threads).map(|_| None)).collect()));
    }

    /// The unit in which `n` items are divided: whole cache lines if there are enough.
    pub(super) fn grain(&self, n: usize) -> usize {
        if n >= GRAIN * self.threads { GRAIN } else { 1 }
    }
}
