//! Products of bfloat16 in plain Rust, one element after the other: the reference for the vector
//! instructions.

use std::ops::Range;

use super::bf16::{BLOCK, Block, Operand, STEP_WORDS, Side, TILE_WORDS};

/// The nearest bfloat16, ties to even; a NaN stays one, and denormals become zero.
fn rounded(x: f32) -> u32 {
    let bits = x.to_bits();
    if x.is_nan() {
        return bits >> 16 | 0x40;
    }
    if bits & 0x7f80_0000 == 0 {
        return bits >> 16 & 0x8000;
    }
    (bits + 0x7fff + (bits >> 16 & 1)) >> 16
}

pub(super) fn pack(l: &Operand<'_>, side: Side, strips: Range<usize>, to: &mut [f32]) {
    let steps = l.terms.div_ceil(BLOCK);
    let number = |line: usize, term: usize| match l.by_terms {
        _ if line >= l.lines || term >= l.terms => 0,
        true => rounded(l.data[line * l.stride + term]),
        false => rounded(l.data[term * l.stride + line]),
    };
    for (i, word) in to[..strips.len() * steps * STEP_WORDS].iter_mut().enumerate() {
        let (tile, row, column) = (i / TILE_WORDS, i % TILE_WORDS / 16, i % 16);
        let (line, pair) = if side == Side::Left { (row, column) } else { (column, row) };
        let line = (strips.start + tile / 2 / steps) * BLOCK + tile % 2 * 16 + line;
        let term = tile / 2 % steps * BLOCK + 2 * pair;
        *word = f32::from_bits(number(line, term) | number(line, term + 1) << 16);
    }
}

/// The two numbers of a pair: even term, odd term.
fn pair(word: f32) -> [f32; 2] {
    [f32::from_bits(word.to_bits() << 16), f32::from_bits(word.to_bits() & 0xffff_0000)]
}

/// Computes the same as `TDPBF16PS`: see `amx.rs`.
pub(super) fn multiply(block: Block<'_>, sums: &mut [f32; BLOCK * BLOCK]) {
    let Block { left, right, steps, resume } = block;
    for (i, sum) in sums.iter_mut().enumerate() {
        let (row, column) = (i / BLOCK, i % BLOCK);
        let mut all = if resume { *sum } else { 0.0 };
        for step in 0..steps {
            let left = &left[step * STEP_WORDS + row * 16..][..16];
            let right = &right[step * STEP_WORDS + column / 16 * TILE_WORDS + column % 16..];
            let mut parts = [0.0_f32; 2];
            for (term, left) in left.iter().enumerate() {
                for (part, (a, b)) in
                    parts.iter_mut().zip(pair(*left).into_iter().zip(pair(right[16 * term])))
                {
                    *part = a.mul_add(b, *part);
                }
            }
            all += parts[0] + parts[1];
        }
        *sum = all;
    }
}
