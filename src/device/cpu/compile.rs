//! From a program to the tasks of each thread.
//!
//! Every instruction is split in one way that suits it: by rows of the batch, by rows of a weight, by columns, by
//! elements, or not at all; the tiles of a large product are shared by whoever is free. A barrier stands only where one
//! thread would touch what another one writes: small networks, of which all that is split by rows of the batch stays with
//! the same thread, run through the forward and the backward pass without one.

use std::ops::Range;

use super::{
    arena::{Access, Arena, Conflict, Span},
    matmul::Kernel,
    ops::reduce,
    pool::Pool,
    stage::{Draft, Shared, Stages, Step, access},
    task::{Job, NextRows, Place, Split, Task},
};
use crate::program::{Layout, Op, Phase, Program, RowSource, Slice};

/// Shares begin at multiples of this many rows, columns or elements, where there are enough: whole cache lines.
const GRAIN: usize = 16;

/// Rows per partial sum of a single column: a fixed number, so that the order of additions does not depend on threads.
pub const SUM_ROWS: usize = 64;

/// A product's tiles are shared by whoever is free where each thread has so many of them, ...
const SHARED_TILES: usize = 4;

/// ... as wide as two of the widest tiles, ...
const SHARED_COLUMNS: usize = 64;

/// ... and so many terms: some 50 µs of one thread, against one for taking tiles and for one more barrier.
const SHARED_TERMS: usize = 3 << 20;

/// Scratch memory that tasks need beyond the layout, by number of floats.
#[derive(Default)]
pub struct Scratch {
    /// Lengths, in the order asked for.
    pub lens: Vec<usize>,
    next: usize,
}

impl Scratch {
    /// Begins another program, which may use the same memory as those before.
    pub fn restart(&mut self) {
        self.next = 0;
    }

    fn take(&mut self, len: usize) -> usize {
        let index = self.next;
        self.next += 1;
        if index == self.lens.len() {
            self.lens.push(0);
        }
        self.lens[index] = self.lens[index].max(len);
        index
    }
}

/// Compiles programs for a team of `threads`.
pub struct Compiler<'a> {
    /// Its buffers.
    pub layout: &'a Layout,
    /// Number of threads.
    pub threads: usize,
    /// Decides what is packed.
    pub kernel: Kernel,
}

/// Where spans lie; a dry run that only measures scratch has no arena yet.
struct Places<'a> {
    arena: Option<&'a Arena>,
    /// The batch's features, and the next step's rows of them, where those are drawn by an order.
    fetched: Option<(Slice, NextRows)>,
    layout: &'a Layout,
    scratch: &'a mut Scratch,
}

impl Places<'_> {
    fn of(&self, slice: Slice) -> Span {
        self.arena.map_or(Span::default(), |a| a.span(slice))
    }

    fn part(&self, slice: Slice, part: Range<usize>) -> Span {
        self.of(Slice { offset: slice.offset + part.start, len: part.len(), ..slice })
    }

    fn scratch(&mut self, len: usize) -> Span {
        let index = self.scratch.take(len);
        self.arena.map_or(Span::default(), |a| a.scratch(self.layout, index).part(0, len))
    }

    fn sub(&self, span: Span, part: Range<usize>) -> Span {
        if self.arena.is_some() { span.part(part.start, part.len()) } else { span }
    }
}

impl Compiler<'_> {
    /// Adds up the scratch memory that `program` needs.
    pub fn measure(&self, program: &Program, scratch: &mut Scratch) {
        scratch.restart();
        let mut places = Places { arena: None, fetched: None, layout: self.layout, scratch };
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
        let mut places = Places { arena: Some(arena), fetched, layout: self.layout, scratch };
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
    fn split(&self, n: usize, phase: Phase, draft: impl FnMut(Range<usize>) -> (Job, Access)) -> Step {
        self.split_units(n, self.grain(n), phase, draft)
    }

    fn split_units(
        &self,
        n: usize,
        unit: usize,
        phase: Phase,
        mut draft: impl FnMut(Range<usize>) -> (Job, Access),
    ) -> Step {
        let part = |part: Range<usize>| {
            (!part.is_empty()).then(|| {
                let (job, access) = draft(part);
                Draft { job, access, phase }
            })
        };
        Step::Each((0..self.threads).map(|t| self.share(n, unit, t)).map(part).collect())
    }

    fn single(&self, phase: Phase, job: Job, access: Access) -> Step {
        let first = Some(Draft { job, access, phase });
        Step::Each(std::iter::once(first).chain((1..self.threads).map(|_| None)).collect())
    }

    /// A product's step: its tiles for whoever is free, where there are enough of them, or else shares of `unit` rows.
    fn product(
        &self,
        shape: [usize; 3],
        packed: bool,
        unit: usize,
        phase: Phase,
        widths: [usize; 2],
        draft: impl Fn(Range<usize>) -> (Job, Access),
    ) -> Step {
        let [m, k, n] = shape;
        let grid = self.kernel.grid(shape, packed, self.threads);
        let tiles = grid.tiles();
        let shared = self.threads > 1
            && m >= tiles
            && tiles >= SHARED_TILES * self.threads
            && n >= SHARED_COLUMNS
            && m * k * n >= SHARED_TERMS
            && Pool::fits(tiles, self.threads);
        if shared {
            let (job, access) = draft(0..m);
            return Step::Shared(Box::new(Shared { draft: Draft { job, access, phase }, grid, widths }));
        }
        self.split_units(m, unit, phase, draft)
    }

    /// The unit in which shares of `n` are handed out: whole cache lines where there are enough.
    fn grain(&self, n: usize) -> usize {
        if n >= GRAIN * self.threads { GRAIN } else { 1 }
    }

    /// Packs a right operand `[k, n]` if that is worth it for a left one of `m` rows; where it lies, and how.
    fn pack(
        &self,
        right: Slice,
        transposed: bool,
        [m, k, n]: [usize; 3],
        phase: Phase,
        p: &mut Places<'_>,
        steps: &mut Vec<Step>,
    ) -> (Span, bool) {
        let source = p.of(right);
        if !transposed && !self.kernel.worth_packing(m, n) {
            return (source, false);
        }
        let packed = p.scratch(self.kernel.packed_len(k, n));
        steps.push(self.split_units(self.kernel.units(k, n), 1, phase, |units| {
            let to = p.sub(packed, self.kernel.unit_range(k, n, units.clone()));
            (Job::Pack { transposed, shape: [k, n], units: (units.start, units.end) }, access([source], [to]))
        }));
        (packed, true)
    }

    /// Sums over the rows of `[_, stride]`, of its first `columns` columns: a gradient, or subtracted from a parameter.
    #[expect(clippy::too_many_arguments, reason = "two callers, and no two of these belong together")]
    fn column_sums(
        &self,
        of: Span,
        stride: usize,
        columns: usize,
        to: Slice,
        update: bool,
        phase: Phase,
        p: &mut Places<'_>,
    ) -> Step {
        let sums = if update { p.scratch(columns) } else { Span::default() };
        self.split(columns, phase, |c| {
            let first = c.start;
            let (job, scratch) = if update {
                (Job::ColumnSumsUpdate { stride, first }, p.sub(sums, c.clone()))
            } else {
                (Job::ColumnSums { stride, first }, Span::default())
            };
            (job, access([of], [p.part(to, c), scratch]))
        })
    }

    fn steps(&self, op: &Op, phase: Phase, p: &mut Places<'_>) -> Vec<Step> {
        let mut steps = Vec::new();
        let rows_of = |r: &Range<usize>, width: usize| r.start * width..r.end * width;
        match *op {
            Op::Gather { features, source, first, x, y, rows, width, target_width, .. } => {
                let split =
                    if features == p.layout.train_features { Split::Train } else { Split::Validation };
                steps.push(self.split(rows, phase, |r| {
                    let (place, first) = match source {
                        RowSource::Order(_) => (Place::Order, first + r.start),
                        RowSource::Position => (Place::Position, first + r.start),
                        RowSource::Chunk => (Place::Chunk, r.start),
                    };
                    let job = Job::Gather { split, place, first, width, target_width };
                    (job, access([], [p.part(x, rows_of(&r, width)), p.part(y, rows_of(&r, target_width))]))
                }));
            }
            Op::Linear { x, weight, bias, activation, pre, y, rows, inputs, outputs } => {
                let shape = [rows, inputs, outputs];
                let (right, packed) = self.pack(weight, false, shape, phase, p, &mut steps);
                let widths = [outputs, if pre.is_some() { outputs } else { 0 }];
                steps.push(self.product(shape, packed, self.grain(rows), phase, widths, |r| {
                    let shape = [r.len(), inputs, outputs];
                    let job =
                        Job::Linear { shape, packed, bias: bias.is_some(), activation, keep: pre.is_some() };
                    let out = rows_of(&r, outputs);
                    let bias = bias.map_or(Span::default(), |b| p.of(b));
                    let kept = pre.map_or(Span::default(), |z| p.part(z, out.clone()));
                    (job, access([p.part(x, rows_of(&r, inputs)), right, bias], [p.part(y, out), kept]))
                }));
            }
            Op::InputGradient { dy, weight, dx, derivative, rows, inputs, outputs } => {
                let shape = [rows, outputs, inputs];
                let (right, packed) = self.pack(weight, true, shape, phase, p, &mut steps);
                steps.push(self.product(shape, packed, self.grain(rows), phase, [inputs, 0], |r| {
                    let shape = [r.len(), outputs, inputs];
                    let job = Job::InputGradient { shape, derivative: derivative.map(|(f, _)| f) };
                    let out = rows_of(&r, inputs);
                    let saved = derivative.map_or(Span::default(), |(_, s)| p.part(s, out.clone()));
                    (job, access([p.part(dy, rows_of(&r, outputs)), right, saved], [p.part(dx, out)]))
                }));
            }
            Op::WeightGradient { x, dy, to, update, rows, inputs, outputs: 1 } if rows > SUM_ROWS => {
                // Each thread sums over its own rows, which are in its cache; the other way, every row would wander
                // from one core's cache to the other's and back in every step.
                let chunks = rows.div_ceil(SUM_ROWS);
                let stride = inputs.next_multiple_of(GRAIN);
                let partial = p.scratch(chunks * stride);
                steps.push(self.split_units(chunks, 1, phase, |c| {
                    let r = c.start * SUM_ROWS..(c.end * SUM_ROWS).min(rows);
                    let reads = [p.part(x, rows_of(&r, inputs)), p.part(dy, r)];
                    (
                        Job::PartialSums { inputs, stride },
                        access(reads, [p.sub(partial, rows_of(&c, stride))]),
                    )
                }));
                steps.push(self.column_sums(partial, stride, inputs, to, update, phase, p));
            }
            Op::WeightGradient { x, dy, to, update, rows, inputs, outputs } => {
                let shape = [inputs, rows, outputs];
                let (right, packed) = self.pack(dy, false, shape, phase, p, &mut steps);
                // The sums of a single column are taken by strips of this width, which are not to be split.
                let unit = if outputs == 1 || inputs >= GRAIN * self.threads { GRAIN } else { 1 };
                // The first layer's comes last in a step.
                let upcoming = p.fetched.filter(|(features, _)| *features == x).map(|(_, next)| next);
                steps.push(self.product(shape, packed, unit, phase, [outputs, 0], |r| {
                    let shape = [r.len(), rows, outputs];
                    let (first, stride) = (r.start, inputs);
                    let job = Job::WeightGradient { shape, first, stride, packed, update, upcoming };
                    (job, access([p.of(x), right], [p.part(to, rows_of(&r, outputs))]))
                }));
            }
            Op::BiasGradient { dy, to, update, outputs, .. } => {
                let dy = p.of(dy);
                steps.push(self.column_sums(dy, outputs, outputs, to, update, phase, p));
            }
            Op::Activate { activation, x, y, rows, width } => steps.push(self.split(rows, phase, |r| {
                let r = rows_of(&r, width);
                (Job::Activate(activation), access([p.part(x, r.clone())], [p.part(y, r)]))
            })),
            Op::ActivateBackward { activation, saved, dy, rows, width } => {
                steps.push(self.split(rows, phase, |r| {
                    let r = rows_of(&r, width);
                    (Job::ActivateBackward(activation), access([p.part(saved, r.clone())], [p.part(dy, r)]))
                }))
            }
            Op::Dropout { x, y, p: chance, layer, first, rows, width } => {
                steps.push(self.split(rows, phase, |r| {
                    let job = Job::Dropout { p: chance, layer, width, first: first + r.start };
                    let r = rows_of(&r, width);
                    (job, access([p.part(x, r.clone())], [p.part(y, r)]))
                }))
            }
            Op::DropoutBackward { dy, p: chance, layer, first, rows, width } => {
                steps.push(self.split(rows, phase, |r| {
                    let job = Job::DropoutBackward { p: chance, layer, width, first: first + r.start };
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
                        Job::Loss { kind, width, total_rows },
                        access(reads, [p.part(per_row, r), hits, gradient]),
                    )
                }));
            }
            Op::AllReduce { of } => {
                steps.push(self.single(phase, Job::AllReduce, access([], [p.of(of)])));
            }
            Op::Zero { of } => {
                steps.push(self.split(of.len, phase, |e| (Job::Zero, access([], [p.part(of, e)]))))
            }
            Op::Norm { of, cell } => {
                let chunks = of.len.div_ceil(reduce::CHUNK);
                let partial = p.scratch(chunks);
                steps.push(self.split_units(chunks, 1, phase, |c| {
                    let part = c.start * reduce::CHUNK..(c.end * reduce::CHUNK).min(of.len);
                    (Job::Squares, access([p.part(of, part)], [p.sub(partial, c)]))
                }));
                steps.push(self.single(phase, Job::Root, access([partial], [p.of(cell)])));
            }
            Op::Clip { gradients, norm, max_norm } => steps.push(self.split(gradients.len, phase, |e| {
                (Job::Clip { max_norm }, access([p.of(norm)], [p.part(gradients, e)]))
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
                    Job::Update(rule),
                    access([p.part(gradients, e.clone())], [p.part(values, e), first, second]),
                )
            })),
            Op::Mean { of, cell, scale } => {
                steps.push(self.single(phase, Job::Mean { scale }, access([p.of(of)], [p.of(cell)])));
            }
            Op::LogAppend { cells, log } => {
                let log = p.of(p.layout.whole(log));
                steps.push(self.single(phase, Job::LogAppend, access([p.of(cells)], [log])));
            }
            Op::Accumulate { cells, rows, sums } => {
                steps.push(self.single(phase, Job::Accumulate { rows, sums }, access([p.of(cells)], [])));
            }
            Op::Watch { cell } => steps.push(self.single(phase, Job::Watch, access([p.of(cell)], []))),
        }
        steps
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a team of so many shares the tiles of a product.
    fn shares(threads: usize, shape: [usize; 3]) -> bool {
        let layout = Layout::bare(Vec::new());
        let compiler = Compiler { layout: &layout, threads, kernel: Kernel::detect() };
        let draft = |_: Range<usize>| (Job::Idle, Access::default());
        matches!(compiler.product(shape, false, 1, Phase::Forward, [0, 0], draft), Step::Shared(_))
    }

    #[test]
    fn a_team_shares_products_of_many_tiles() {
        assert!(shares(2, [256, 784, 256]) && shares(2, [784, 256, 256]) && shares(2, [1024, 2048, 2048]));
        // One thread, a short product, a narrow one, more threads than tiles of their own.
        for (threads, shape) in
            [(1, [1024, 2048, 2048]), (2, [32, 64, 32]), (2, [1024, 2048, 10]), (64, [256, 784, 256])]
        {
            assert!(!shares(threads, shape), "{threads} {shape:?}");
        }
    }
}
