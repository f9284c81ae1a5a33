//! Matrix products with bfloat16 operands. Both operands are packed into tiles beforehand, by all threads
//! together.
//!
//! Columns are divided into groups, so that a group of the right operand stays in the L2 cache while all rows
//! are processed. Terms (k) are divided into blocks, between which the result holds the sums. Each sum is one
//! chain over its steps of 32 terms (for an update, one chain per block, which is applied after the block),
//! so its bits depend only on the instructions used.

use std::ops::Range;

use super::{Epilogue, Kernel, Lhs, Source, UpcomingRows, product::TileIndex};
use crate::simd::{BLOCK, Bf16Set, Block, Blocks, InstructionSet, Operand, STEP_WORDS, Side, prefetch};

/// Maximum steps per block: a strip of the left operand then has 128 KiB.
const MOST_STEPS: usize = 64;

/// Bytes of a group of the right operand, which stays in the L2 cache.
const GROUP_BYTES: usize = 1 << 20;

/// Length of a packed operand with `lines` rows or columns, in words: each `f32` holds a pair of bfloat16.
pub(super) fn len(lines: usize, terms: usize) -> usize {
    lines.div_ceil(BLOCK) * terms.div_ceil(BLOCK) * STEP_WORDS
}

/// The range of words of some strips.
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
    /// The kernel for bfloat16 with sums in f32, if this machine has instructions for it.
    pub fn bf16() -> Option<Self> {
        Bf16Set::detect().map(|bf16| Self { set: InstructionSet::detect(), bf16: Some(bf16) })
    }

    /// The name of the kernel that [`bf16`](Self::bf16) would return: `amx_bf16` or `avx512_bf16`. Does not
    /// request permission for AMX.
    pub fn bf16_here() -> Option<&'static str> {
        Bf16Set::name_here()
    }

    /// The bfloat16 kernel with this name, if this machine has it; `portable` is for tests.
    pub fn bf16_named(name: &str) -> Option<Self> {
        Bf16Set::named(name).map(|bf16| Self { set: InstructionSet::detect(), bf16: Some(bf16) })
    }

    /// `amx_bf16` or `avx512_bf16`; `None` for an f32 kernel.
    pub fn bf16_name(self) -> Option<&'static str> {
        self.bf16.map(Bf16Set::name)
    }

    /// Rows per strip of a packed left operand: shares of rows start at multiples of this. `None` if the
    /// kernel does not pack it.
    pub fn strip_rows(self) -> Option<usize> {
        self.bf16.map(|_| BLOCK)
    }

    /// Length of a packed left operand `[m, k]`, in words of two bfloat16.
    pub fn left_len(self, m: usize, k: usize) -> usize {
        len(m, k)
    }

    /// The range of some rows in a packed left operand `[m, k]`; they start at the beginning of a strip.
    pub fn left_range(self, k: usize, rows: Range<usize>) -> Range<usize> {
        range(k, rows.start / BLOCK..rows.end.div_ceil(BLOCK))
    }

    /// Packs some strips of a left operand `[m, k]` into `out`, the slice at their
    /// [`left_range`](Self::left_range).
    ///
    /// # Panics
    /// If a slice is shorter than its shape, the operand is packed already, or the kernel is for f32.
    pub fn pack_left(self, lhs: Lhs<'_>, [m, k]: [usize; 2], strips: Range<usize>, out: &mut [f32]) {
        let operand = match lhs {
            Lhs::Rows { data, stride } => Operand { data, stride, by_terms: true, lines: m, terms: k },
            Lhs::Columns { data, stride } => Operand { data, stride, by_terms: false, lines: m, terms: k },
            Lhs::Packed(_) => panic!("it is packed already"),
        };
        self.bf16.expect("a kernel of bfloat16").pack(operand, Side::Left, strips, out);
    }
}

/// How a product is divided: steps into blocks, columns into groups; a group's blocks are processed one after
/// the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bf16Blocking {
    steps: usize,
    /// Steps per block.
    block: usize,
    blocks: usize,
    /// Columns per group.
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

/// A product of packed operands.
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
    /// Computes all `m` rows.
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

    /// Computes one strip in one pass; `out` holds its rows. Meanwhile prefetches this strip's part of the
    /// upcoming rows into L2.
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

    /// Stores a block's sums according to the epilogue.
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
                    // Adding -0 changes no value, not even the sign of a zero.
                    let bias = bias.map_or(&[-0.0; BLOCK][..columns.len()], |bias| &bias[columns.clone()]);
                    // Unlike `f32::max`, this keeps a NaN.
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

/// The sums of a block, aligned to cache lines.
#[repr(align(64))]
struct Sums([f32; BLOCK * BLOCK]);

/// `out = f(sums, with, out)`, with separate code for whole blocks. Uses plain loops: an iterator adapter
/// that is not inlined here would be compiled without the set's vector instructions.
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
