//! Products whose operands are bfloat16: both are packed in tiles beforehand, each by all threads together.
//!
//! Columns are cut into groups, so that a group of the right operand stays in the L2 cache while all rows pass by, and
//! terms into blocks, between which the result holds the sums. A sum is one chain over its steps of 32 terms (an
//! update's, over those of a block, after which it is applied): its bits depend on the instructions alone.

use std::ops::Range;

use super::{Epilogue, Kernel, Lhs, Source, UpcomingRows, product::TileIndex};
use crate::simd::{BLOCK, Bf16Set, Block, Blocks, InstructionSet, Operand, STEP_WORDS, Side, prefetch};

/// Steps of the longest block: a strip of the left operand is 128 KiB then.
const MOST_STEPS: usize = 64;

/// Bytes of the right operand that stay in the L2 cache.
const GROUP_BYTES: usize = 1 << 20;

/// Numbers in the strips of an operand of `lines` rows or columns.
pub(super) fn len(lines: usize, terms: usize) -> usize {
    lines.div_ceil(BLOCK) * terms.div_ceil(BLOCK) * STEP_WORDS
}

/// The range of some strips.
pub(super) fn range(terms: usize, strips: Range<usize>) -> Range<usize> {
    let each = terms.div_ceil(BLOCK) * STEP_WORDS;
    strips.start * each..strips.end * each
}

pub(super) fn pack_right(
    bf16: Bf16Set,
    source: Source<'_>,
    [k, n]: [usize; 2],
    strips: Range<usize>,
    to: &mut [f32],
) {
    let operand = match source {
        Source::Rows(data) => Operand { data, stride: n, by_terms: false, lines: n, terms: k },
        Source::Transposed(data) => Operand { data, stride: k, by_terms: true, lines: n, terms: k },
    };
    bf16.pack(operand, Side::Right, strips, to);
}

impl Kernel {
    /// The product of bfloat16 with sums of f32, where this machine has instructions for it.
    pub fn bf16() -> Option<Self> {
        Bf16Set::detect().map(|bf16| Self { set: InstructionSet::detect(), bf16: Some(bf16) })
    }

    /// What [`bf16`](Self::bf16) would be: `amx_bf16` or `avx512_bf16`. AMX must be asked for, which this does not.
    pub fn bf16_here() -> Option<&'static str> {
        Bf16Set::name_here()
    }

    /// By name, if this machine has it; `portable` for tests.
    pub fn bf16_named(name: &str) -> Option<Self> {
        Bf16Set::named(name).map(|bf16| Self { set: InstructionSet::detect(), bf16: Some(bf16) })
    }

    /// `amx_bf16` or `avx512_bf16`: what multiplies bfloat16. `None` for a kernel of f32.
    pub fn bf16_name(self) -> Option<&'static str> {
        self.bf16.map(Bf16Set::name)
    }

    /// Rows of a strip of the left operand, where that is packed, too: shares of rows begin at multiples of it.
    pub fn strip_rows(self) -> Option<usize> {
        self.bf16.map(|_| BLOCK)
    }

    /// Elements of a left operand `[m, k]` that is packed.
    pub fn left_len(self, m: usize, k: usize) -> usize {
        len(m, k)
    }

    /// The range of some rows, from the beginning of a strip on, in a left operand `[m, k]`.
    pub fn left_range(self, k: usize, rows: Range<usize>) -> Range<usize> {
        range(k, rows.start / BLOCK..rows.end.div_ceil(BLOCK))
    }

    /// Packs some strips of a left operand `[m, k]` into `out`, the slice at their [`left_range`](Self::left_range).
    ///
    /// # Panics
    /// If a slice is shorter than its shape, the operand is packed already, or the kernel is one of f32.
    pub fn pack_left(self, lhs: Lhs<'_>, [m, k]: [usize; 2], strips: Range<usize>, out: &mut [f32]) {
        let operand = match lhs {
            Lhs::Rows { data, stride } => Operand { data, stride, by_terms: true, lines: m, terms: k },
            Lhs::Columns { data, stride } => Operand { data, stride, by_terms: false, lines: m, terms: k },
            Lhs::Packed(_) => panic!("it is packed already"),
        };
        self.bf16.expect("a kernel of bfloat16").pack(operand, Side::Left, strips, out);
    }
}

/// How a product is cut: steps in blocks, columns in groups, a group's blocks one after the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bf16Blocking {
    steps: usize,
    /// Steps of a block.
    block: usize,
    blocks: usize,
    /// Columns of a group.
    group: usize,
    pub passes: usize,
}

impl Bf16Blocking {
    pub fn new(k: usize, n: usize) -> Self {
        let steps = k.div_ceil(BLOCK);
        let blocks = steps.div_ceil(MOST_STEPS).max(1);
        let block = steps.div_ceil(blocks);
        let bytes = 4 * STEP_WORDS * block * n.div_ceil(BLOCK);
        let groups = bytes.div_ceil(GROUP_BYTES).max(1);
        let group = n.div_ceil(groups).next_multiple_of(BLOCK).max(BLOCK);
        Self { steps, block, blocks, group, passes: n.div_ceil(group).max(1) * blocks }
    }
}

/// A product of operands that are packed.
#[derive(Clone, Copy)]
pub(super) struct Bf16Product<'a> {
    pub bf16: Bf16Set,
    pub set: InstructionSet,
    pub left: &'a [f32],
    pub right: &'a [f32],
    pub k: usize,
    pub n: usize,
    pub epilogue: Epilogue<'a>,
}

impl Bf16Product<'_> {
    /// All of `m` rows.
    pub fn run(&self, m: usize, out: &mut [f32]) {
        let cut = Bf16Blocking::new(self.k, self.n);
        let blocks = self.bf16.open();
        for pass in 0..cut.passes {
            for first in (0..m).step_by(BLOCK) {
                let rows = first..m.min(first + BLOCK);
                let out = &mut out[first * self.n..rows.end * self.n];
                self.strip(&blocks, &cut, pass, rows, UpcomingRows::default(), out);
            }
        }
    }

    /// One strip in one pass; `out` holds its rows. Meanwhile its part of the rows that come next is fetched into L2.
    pub fn take(
        &self,
        cut: &Bf16Blocking,
        pass: usize,
        rows: Range<usize>,
        (upcoming, place): (UpcomingRows<'_>, TileIndex),
        out: &mut [f32],
    ) {
        let upcoming = UpcomingRows { order: upcoming.share(place), ..upcoming };
        self.strip(&self.bf16.open(), cut, pass, rows, upcoming, out);
    }

    fn strip(
        &self,
        blocks: &Blocks,
        cut: &Bf16Blocking,
        pass: usize,
        rows: Range<usize>,
        upcoming: UpcomingRows<'_>,
        out: &mut [f32],
    ) {
        let (group, block) = (pass / cut.blocks, pass % cut.blocks);
        let first = block * cut.block;
        let steps = (cut.steps - first).min(cut.block);
        let columns = group * cut.group..self.n.min((group + 1) * cut.group);
        let resume = block > 0 && !matches!(self.epilogue, Epilogue::Update { .. });
        let last = block + 1 == cut.blocks;
        let order = if pass + 1 == cut.passes { upcoming.order } else { &[] };
        let panels = columns.len().div_ceil(BLOCK);
        let left = &self.left[(rows.start / BLOCK * cut.steps + first) * STEP_WORDS..];
        let mut sums = Sums([0.0; BLOCK * BLOCK]);
        for (panel, column) in columns.clone().step_by(BLOCK).enumerate() {
            let next = order.len() * panel / panels..order.len() * (panel + 1) / panels;
            for row in &order[next] {
                prefetch(&upcoming.data[*row as usize * upcoming.width..][..upcoming.width]);
            }
            let columns = column..columns.end.min(column + BLOCK);
            let right = &self.right[(column / BLOCK * cut.steps + first) * STEP_WORDS..];
            let rows = rows.clone();
            if resume {
                for (sums, out) in sums.0.chunks_mut(BLOCK).zip(out.chunks(self.n)) {
                    sums[..columns.len()].copy_from_slice(&out[columns.clone()]);
                }
            }
            blocks.multiply(Block { left, right, steps, resume }, &mut sums.0);
            self.set.run(
                #[inline(always)]
                || self.finish(&sums.0, rows, columns, last, out),
            );
        }
    }

    /// What becomes of a block's sums.
    #[inline(always)]
    fn finish(
        &self,
        sums: &[f32; BLOCK * BLOCK],
        rows: Range<usize>,
        columns: Range<usize>,
        last: bool,
        out: &mut [f32],
    ) {
        let n = self.n;
        for (r, row) in rows.enumerate() {
            let sums = &sums[r * BLOCK..][..columns.len()];
            let out = &mut out[r * n..][columns.clone()];
            match self.epilogue {
                Epilogue::Update { rate } => store(sums, sums, out, |sum, _, own| (-rate).mul_add(sum, own)),
                Epilogue::Bias { bias, relu } if last => {
                    let floor = if relu { 0.0 } else { f32::NEG_INFINITY };
                    // Adding -0 changes nothing, not even the sign of a zero.
                    let bias = bias.map_or(&[-0.0; BLOCK][..columns.len()], |bias| &bias[columns.clone()]);
                    // A NaN stays one.
                    let at_least = |x: f32| if x < floor { floor } else { x };
                    store(sums, bias, out, |sum, bias, _| at_least(sum + bias));
                }
                Epilogue::WherePositive { saved } if last => {
                    let saved = &saved[row * n..][columns.clone()];
                    store(sums, saved, out, |sum, saved, _| if saved > 0.0 { sum } else { 0.0 });
                }
                _ => out.copy_from_slice(sums),
            }
        }
    }
}

/// A block's sums, on cache lines of their own.
#[repr(align(64))]
struct Sums([f32; BLOCK * BLOCK]);

/// `out = f(sums, with, out)`, compiled for whole blocks apart. Plain loops: an adapter that is not inlined here would be
/// compiled without the set's instructions.
#[inline(always)]
fn store(sums: &[f32], with: &[f32], out: &mut [f32], f: impl Fn(f32, f32, f32) -> f32) {
    let n = out.len();
    if let (Some(sums), Some(with), Some(out)) =
        (sums.first_chunk::<BLOCK>(), with.first_chunk::<BLOCK>(), out.first_chunk_mut::<BLOCK>())
    {
        for i in 0..BLOCK {
            out[i] = f(sums[i], with[i], out[i]);
        }
        return;
    }
    let (sums, with) = (&sums[..n], &with[..n]);
    for i in 0..n {
        out[i] = f(sums[i], with[i], out[i]);
    }
}
