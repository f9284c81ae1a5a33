//! From a program to the tasks of each thread.
//!
//! Every instruction is split in one way that suits it: by rows of the batch, by rows of a weight, by columns, by
//! elements, or not at all; the tiles of a large product are shared by whoever is free. A barrier stands only where one
//! thread would touch what another one writes: small networks, of which all that is split by rows of the batch stays with
//! the same thread, run through the forward and the backward pass without one.

mod buffer_map;
mod layer;

use std::ops::Range;

use super::{
    arena::{Access, Arena, Conflict, Span},
    matmul::Kernel,
    ops::reduce,
    stage::{Draft, Stages, Step, access},
    task::{NextRows, RowFetch, RowIndex, Split, Task, TaskKind},
};
use crate::program::{IN_PLACE_FROM, Layout, Op, Phase, Program, RowSource, Slice};
use buffer_map::BufferMap;
pub use buffer_map::Scratch;

/// Shares begin at multiples of this many rows, columns or elements, where there are enough: whole cache lines.
const GRAIN: usize = 16;

/// Rows per partial sum of a single column: a fixed number, so that the order of additions does not depend on threads.
pub const SUM_ROWS: usize = 64;

/// Rows are read in place by partial sums, not by the gradient of few rows.
const _: () = assert!(IN_PLACE_FROM >= SUM_ROWS);

/// Compiles programs for a team of `threads`.
pub struct Compiler<'a> {
    /// Its buffers.
    pub layout: &'a Layout,
    /// Number of threads.
    pub threads: usize,
    /// Decides what is packed.
    pub kernel: Kernel,
}

impl Compiler<'_> {
    /// Adds up the scratch memory that `program` needs.
    pub fn measure(&self, program: &Program, scratch: &mut Scratch) {
        scratch.restart();
        let mut places =
            BufferMap { arena: None, fetched: None, in_place: None, layout: self.layout, scratch };
        for instruction in &program.instructions {
            self.steps(&instruction.op, instruction.phase, &mut places);
        }
    }

    /// The tasks of each thread, proven free of conflicts.
    pub fn compile(
        &self,
        program: &Program,
        arena: &Arena,
        scratch: &mut Scratch,
    ) -> Result<Vec<Vec<Task>>, Conflict> {
        scratch.restart();
        let fetched = program.instructions.iter().find_map(|i| next_rows(&i.op, program.batch));
        let in_place = read_in_place(program, self.layout);
        let mut places = BufferMap { arena: Some(arena), fetched, in_place, layout: self.layout, scratch };
        let mut stages = Stages::new(self.threads);
        for instruction in &program.instructions {
            self.steps(&instruction.op, instruction.phase, &mut places)
                .into_iter()
                .for_each(|s| stages.push(s));
        }
        stages.tasks(arena)
    }

    /// Thread `t`'s share of `n` things that come in units.
    fn share(&self, n: usize, unit: usize, t: usize) -> Range<usize> {
        let units = n.div_ceil(unit);
        let bound = |t: usize| (units * t / self.threads * unit).min(n);
        bound(t)..bound(t + 1)
    }

    /// Splits by whole cache lines where there are enough.
    fn split(&self, n: usize, phase: Phase, draft: impl FnMut(Range<usize>) -> (TaskKind, Access)) -> Step {
        self.split_units(n, self.grain(n), phase, draft)
    }

    fn split_units(
        &self,
        n: usize,
        unit: usize,
        phase: Phase,
        mut draft: impl FnMut(Range<usize>) -> (TaskKind, Access),
    ) -> Step {
        let part = |part: Range<usize>| {
            (!part.is_empty()).then(|| {
                let (job, access) = draft(part);
                Draft { job, access, phase }
            })
        };
        Step::Each((0..self.threads).map(|t| self.share(n, unit, t)).map(part).collect())
    }

    fn single(&self, phase: Phase, job: TaskKind, access: Access) -> Step {
        let first = Some(Draft { job, access, phase });
        Step::Each(std::iter::once(first).chain((1..self.threads).map(|_| None)).collect())
    }

    /// The unit in which shares of `n` are handed out: whole cache lines where there are enough.
    fn grain(&self, n: usize) -> usize {
        if n >= GRAIN * self.threads { GRAIN } else { 1 }
    }

    fn steps(&self, op: &Op, phase: Phase, p: &mut BufferMap<'_>) -> Vec<Step> {
        let mut steps = Vec::new();
        match *op {
            Op::Gather { x, y, rows, width, target_width, .. } => {
                let Some(fetch) = fetch(op, p.layout) else { return steps };
                let in_place = p.in_place.is_some_and(|(features, _)| features == x);
                steps.push(self.split(rows, phase, |r| {
                    let job = TaskKind::Gather { fetch: fetch.from(r.start), width, target_width, in_place };
                    (job, access([], [p.part(x, rows_of(&r, width)), p.part(y, rows_of(&r, target_width))]))
                }));
            }
            Op::Linear { .. }
            | Op::InputGradient { .. }
            | Op::WeightGradient { .. }
            | Op::BiasGradient { .. } => steps = self.layer(op, phase, p),
            Op::Activate { activation, x, y, rows, width } => steps.push(self.split(rows, phase, |r| {
                let r = rows_of(&r, width);
                (TaskKind::Activate(activation), access([p.part(x, r.clone())], [p.part(y, r)]))
            })),
            Op::ActivateBackward { activation, saved, dy, rows, width } => {
                steps.push(self.split(rows, phase, |r| {
                    let r = rows_of(&r, width);
                    (
                        TaskKind::ActivateBackward(activation),
                        access([p.part(saved, r.clone())], [p.part(dy, r)]),
                    )
                }))
            }
            Op::Dropout { x, y, p: chance, layer, first, rows, width } => {
                steps.push(self.split(rows, phase, |r| {
                    let job = TaskKind::Dropout { p: chance, layer, width, first: first + r.start };
                    let r = rows_of(&r, width);
                    (job, access([p.part(x, r.clone())], [p.part(y, r)]))
                }))
            }
            Op::DropoutBackward { dy, p: chance, layer, first, rows, width } => {
                steps.push(self.split(rows, phase, |r| {
                    let job = TaskKind::DropoutBackward { p: chance, layer, width, first: first + r.start };
                    (job, access([], [p.part(dy, rows_of(&r, width))]))
                }))
            }
            Op::Loss { kind, prediction, target, per_row, hits, gradient, rows, total_rows, width } => {
                let target_width = target.len / rows.max(1);
                steps.push(self.split(rows, phase, |r| {
                    let wide = rows_of(&r, width);
                    let hits = hits.map_or(Span::default(), |h| p.part(h, r.clone()));
                    let gradient = gradient.map_or(Span::default(), |g| p.part(g, wide.clone()));
                    let reads = [p.part(prediction, wide), p.part(target, rows_of(&r, target_width))];
                    (
                        TaskKind::Loss { kind, width, total_rows },
                        access(reads, [p.part(per_row, r), hits, gradient]),
                    )
                }));
            }
            Op::AllReduce { of } => {
                steps.push(self.single(phase, TaskKind::AllReduce, access([], [p.span(of)])));
            }
            Op::Zero { of } => {
                steps.push(self.split(of.len, phase, |e| (TaskKind::Zero, access([], [p.part(of, e)]))))
            }
            Op::Norm { of, cell } => {
                let chunks = of.len.div_ceil(reduce::CHUNK);
                let partial = p.scratch(chunks);
                steps.push(self.split_units(chunks, 1, phase, |c| {
                    let part = c.start * reduce::CHUNK..(c.end * reduce::CHUNK).min(of.len);
                    (TaskKind::Squares, access([p.part(of, part)], [p.sub(partial, c)]))
                }));
                steps.push(self.single(phase, TaskKind::Root, access([partial], [p.span(cell)])));
            }
            Op::Clip { gradients, norm, max_norm } => steps.push(self.split(gradients.len, phase, |e| {
                (TaskKind::Clip { max_norm }, access([p.span(norm)], [p.part(gradients, e)]))
            })),
            Op::Update { rule, values, gradients, state } => steps.push(self.split(values.len, phase, |e| {
                let moment = |k: usize| match state {
                    Some(s) if rule.state_per_parameter() > k => {
                        p.part(s, k * values.len + e.start..k * values.len + e.end)
                    }
                    _ => Span::default(),
                };
                let (first, second) = (moment(0), moment(1));
                (
                    TaskKind::Update(rule),
                    access([p.part(gradients, e.clone())], [p.part(values, e), first, second]),
                )
            })),
            Op::Mean { of, cell, scale } => {
                steps.push(self.single(
                    phase,
                    TaskKind::Mean { scale },
                    access([p.span(of)], [p.span(cell)]),
                ));
            }
            Op::LogAppend { cells, log } => {
                let log = p.span(p.layout.whole(log));
                steps.push(self.single(phase, TaskKind::LogAppend, access([p.span(cells)], [log])));
            }
            Op::Accumulate { cells, rows, sums } => {
                steps.push(self.single(
                    phase,
                    TaskKind::Accumulate { rows, sums },
                    access([p.span(cells)], []),
                ));
            }
            Op::Watch { cell } => steps.push(self.single(phase, TaskKind::Watch, access([p.span(cell)], []))),
        }
        steps
    }
}

/// The numbers of some rows of that width.
fn rows_of(rows: &Range<usize>, width: usize) -> Range<usize> {
    rows.start * width..rows.end * width
}

/// Which rows a gather brings.
fn fetch(op: &Op, layout: &Layout) -> Option<RowFetch> {
    let Op::Gather { features, source, first, .. } = *op else { return None };
    let split = if features == layout.train_features { Split::Train } else { Split::Validation };
    Some(match source {
        RowSource::Order(_) => RowFetch { split, place: RowIndex::Order, first },
        RowSource::Position => RowFetch { split, place: RowIndex::Position, first },
        RowSource::Chunk => RowFetch { split, place: RowIndex::Chunk, first: 0 },
    })
}

/// The batch's features and which rows they are, where they are read where they lie.
fn read_in_place(program: &Program, layout: &Layout) -> Option<(Slice, RowFetch)> {
    let x = program.features_in_place()?;
    let gather = program.instructions.iter().find_map(|i| fetch(&i.op, layout))?;
    Some((x, gather))
}

/// What a program fetches by an order, one batch on.
fn next_rows(op: &Op, batch: usize) -> Option<(Slice, NextRows)> {
    match *op {
        Op::Gather { source: RowSource::Order(_), first, x, rows, width, .. } => {
            Some((x, NextRows { first: batch + first, rows, width }))
        }
        _ => None,
    }
}
