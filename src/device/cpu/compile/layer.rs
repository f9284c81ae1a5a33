//! A Linear layer's products and sums: what is packed, whose rows are whose, and which tiles are for whoever is free.

use std::ops::Range;

use super::super::{
    arena::{Access, Span},
    pool::Pool,
    stage::{Draft, Shared, Step, access},
    task::TaskKind,
};
use super::{Compiler, GRAIN, SUM_ROWS, buffer_map::BufferMap, rows_of};
use crate::program::{Op, Phase, Slice};

/// A product's tiles are shared by whoever is free where each thread has so many of them, ...
const SHARED_TILES: usize = 4;

/// ... as wide as two of the widest tiles, ...
const SHARED_COLUMNS: usize = 64;

/// ... and so many terms: some 50 µs of one thread, against one for taking tiles and for one more barrier.
const SHARED_TERMS: usize = 3 << 20;

impl Compiler<'_> {
    /// The steps of one of a layer's instructions; none of others.
    pub(super) fn layer(&self, op: &Op, phase: Phase, p: &mut BufferMap<'_>) -> Vec<Step> {
        let mut steps = Vec::new();
        match *op {
            Op::Linear { x, weight, bias, activation, pre, y, rows, inputs, outputs } => {
                let shape = [rows, inputs, outputs];
                let (right, packed) = self.pack(weight, false, shape, phase, p, &mut steps);
                let widths = [outputs, if pre.is_some() { outputs } else { 0 }];
                steps.push(self.product(shape, packed, self.grain(rows), phase, widths, |r| {
                    let shape = [r.len(), inputs, outputs];
                    let (keep, in_place) = (pre.is_some(), p.in_place(x, r.start));
                    let job =
                        TaskKind::Linear { shape, packed, bias: bias.is_some(), activation, keep, in_place };
                    let out = rows_of(&r, outputs);
                    let bias = bias.map_or(Span::default(), |b| p.span(b));
                    let kept = pre.map_or(Span::default(), |z| p.part(z, out.clone()));
                    (job, access([p.part(x, rows_of(&r, inputs)), right, bias], [p.part(y, out), kept]))
                }));
            }
            Op::InputGradient { dy, weight, dx, derivative, rows, inputs, outputs } => {
                let shape = [rows, outputs, inputs];
                let (right, packed) = self.pack(weight, true, shape, phase, p, &mut steps);
                steps.push(self.product(shape, packed, self.grain(rows), phase, [inputs, 0], |r| {
                    let shape = [r.len(), outputs, inputs];
                    let job = TaskKind::InputGradient { shape, derivative: derivative.map(|(f, _)| f) };
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
                    let job = TaskKind::PartialSums { inputs, stride, in_place: p.in_place(x, r.start) };
                    let reads = [p.part(x, rows_of(&r, inputs)), p.part(dy, r)];
                    (job, access(reads, [p.sub(partial, rows_of(&c, stride))]))
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
                    let job = TaskKind::WeightGradient { shape, first, stride, packed, update, upcoming };
                    (job, access([p.span(x), right], [p.part(to, rows_of(&r, outputs))]))
                }));
            }
            Op::BiasGradient { dy, to, update, outputs, .. } => {
                let dy = p.span(dy);
                steps.push(self.column_sums(dy, outputs, outputs, to, update, phase, p));
            }
            _ => {}
        }
        steps
    }

    /// A product's step: its tiles for whoever is free, where there are enough of them, or else shares of `unit` rows.
    fn product(
        &self,
        shape: [usize; 3],
        packed: bool,
        unit: usize,
        phase: Phase,
        widths: [usize; 2],
        draft: impl Fn(Range<usize>) -> (TaskKind, Access),
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

    /// Packs a right operand `[k, n]` if that is worth it for a left one of `m` rows; where it lies, and how.
    fn pack(
        &self,
        right: Slice,
        transposed: bool,
        [m, k, n]: [usize; 3],
        phase: Phase,
        p: &mut BufferMap<'_>,
        steps: &mut Vec<Step>,
    ) -> (Span, bool) {
        let source = p.span(right);
        if !transposed && !self.kernel.worth_packing(m, n) {
            return (source, false);
        }
        let packed = p.scratch(self.kernel.packed_len(k, n));
        steps.push(self.split_units(self.kernel.units(k, n), 1, phase, |units| {
            let to = p.sub(packed, self.kernel.unit_range(k, n, units.clone()));
            (
                TaskKind::Pack { transposed, shape: [k, n], units: (units.start, units.end) },
                access([source], [to]),
            )
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
        p: &mut BufferMap<'_>,
    ) -> Step {
        let sums = if update { p.scratch(columns) } else { Span::default() };
        self.split(columns, phase, |c| {
            let first = c.start;
            let (job, scratch) = if update {
                (TaskKind::ColumnSumsUpdate { stride, first }, p.sub(sums, c.clone()))
            } else {
                (TaskKind::ColumnSums { stride, first }, Span::default())
            };
            (job, access([of], [p.part(to, c), scratch]))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::cpu::matmul::Kernel;
    use crate::program::Layout;

    /// Whether a team of so many shares the tiles of a product.
    fn shares(threads: usize, shape: [usize; 3]) -> bool {
        let layout = Layout::bare(Vec::new());
        let compiler = Compiler { layout: &layout, threads, kernel: Kernel::detect() };
        let draft = |_: Range<usize>| (TaskKind::Idle, Access::default());
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
