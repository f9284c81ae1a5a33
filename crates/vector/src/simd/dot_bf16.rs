//! AVX512-BF16: rounds elements and packs them into tiles, and computes blocks of the result without AMX.

use std::arch::is_x86_feature_detected;
use std::arch::x86_64::*;
use std::mem::transmute;
use std::ops::Range;

use super::bf16::{BLOCK, Block, Operand, STEP_WORDS, Side, TILE_WORDS};
use super::tile::for_rows;
use super::vector::Vector;

pub(super) fn is_there() -> bool {
    is_x86_feature_detected!("avx512bf16")
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
}

/// A mask for the first `count` of 16 lanes.
fn first(count: usize) -> __mmask16 {
    if count >= 16 { !0 } else { (1 << count) - 1 }
}

/// # Safety
/// The shapes must be checked, and the machine must have the instructions.
#[target_feature(enable = "avx512bf16,avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) unsafe fn pack(l: &Operand<'_>, side: Side, strips: Range<usize>, to: *mut f32) {
    let (steps, count) = (l.terms.div_ceil(BLOCK), strips.len());
    let tile = |strip: usize, step: usize| {
        for half in 0..2 {
            let line = (strips.start + strip) * BLOCK + 16 * half;
            // SAFETY: by the contract; the strip and the step are within the shape.
            unsafe {
                let to = to.add((strip * steps + step) * STEP_WORDS + half * TILE_WORDS);
                lay_out_tile(l, side, line, step * BLOCK, to);
            }
        }
    };
    // Go along the rows in memory.
    if l.by_terms {
        (0..count).for_each(|strip| (0..steps).for_each(|step| tile(strip, step)));
    } else {
        (0..steps).for_each(|step| (0..count).for_each(|strip| tile(strip, step)));
    }
}

/// Packs a tile, starting at this line and term.
///
/// # Safety
/// As for [`pack`]; `to` must have room for a tile.
#[inline]
#[target_feature(enable = "avx512bf16,avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn lay_out_tile(l: &Operand<'_>, side: Side, line: usize, term: usize, to: *mut f32) {
    let (lines, terms) = (l.lines.saturating_sub(line).min(16), l.terms - term);
    let mut tile = [_mm512_setzero_ps(); 16];
    let data = l.data.as_ptr();
    // SAFETY: only lines and terms within the shape are loaded; other lanes are masked.
    unsafe {
        if l.by_terms {
            let (low, high) = (first(terms), first(terms.saturating_sub(16)));
            for (i, row) in tile.iter_mut().enumerate().take(lines) {
                let from = data.add((line + i) * l.stride + term);
                let (low, high) =
                    (_mm512_maskz_loadu_ps(low, from), _mm512_maskz_loadu_ps(high, from.wrapping_add(16)));
                *row = transmute::<__m512bh, __m512>(_mm512_cvtne2ps_pbh(high, low));
            }
        } else {
            // Interleave the 16 elements of two terms into pairs.
            let zip = _mm512_or_si512(
                _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
                _mm512_slli_epi32::<16>(_mm512_setr_epi32(
                    16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31,
                )),
            );
            let there = first(lines);
            for (i, row) in tile.iter_mut().enumerate().take(terms.div_ceil(2)) {
                let from = data.wrapping_add((term + 2 * i) * l.stride + line);
                let second = if 2 * i + 1 < terms { there } else { 0 };
                let (even, odd) = (
                    _mm512_maskz_loadu_ps(there, from),
                    _mm512_maskz_loadu_ps(second, from.wrapping_add(l.stride)),
                );
                let both = transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(odd, even));
                *row = _mm512_castsi512_ps(_mm512_permutexvar_epi16(zip, both));
            }
        }
        if l.by_terms != (side == Side::Left) {
            Vector::transpose(&mut tile);
        }
        for (i, row) in tile.into_iter().enumerate() {
            _mm512_storeu_ps(to.add(16 * i), row);
        }
    }
}

/// Computes a block by dot products of pairs.
///
/// # Safety
/// The operands must have the block's steps, and the machine must have the instructions.
#[target_feature(enable = "avx512bf16,avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) unsafe fn multiply(block: Block<'_>, sums: &mut [f32; BLOCK * BLOCK]) {
    const ROWS: usize = 8;
    for row in (0..BLOCK).step_by(ROWS) {
        // SAFETY: see the contract.
        unsafe { multiply_rows::<ROWS>(block, row, sums) };
    }
}

/// Computes some rows of a block.
///
/// # Safety
/// As for [`multiply`]; `row` must be a multiple of `ROWS` below 32.
#[inline]
#[target_feature(enable = "avx512bf16,avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn multiply_rows<const ROWS: usize>(block: Block<'_>, row: usize, sums: &mut [f32; BLOCK * BLOCK]) {
    let Block { left, right, steps, resume } = block;
    let own = sums[row * BLOCK..].as_mut_ptr();
    let mut all = [[_mm512_setzero_ps(); 2]; ROWS];
    // SAFETY: rows and columns are below 32, and the operands have that number of steps.
    unsafe {
        if resume {
            for_rows!(r < ROWS {
                all[r] = [_mm512_loadu_ps(own.add(r * BLOCK)), _mm512_loadu_ps(own.add(r * BLOCK + 16))];
            });
        }
        let mut left = left.as_ptr().add(row * 16).cast::<i32>();
        let mut right = right.as_ptr();
        for _ in 0..steps {
            for pair in 0..16 {
                let columns = [0, TILE_WORDS]
                    .map(|tile| transmute::<__m512, __m512bh>(_mm512_loadu_ps(right.add(tile + 16 * pair))));
                for_rows!(r < ROWS {
                    let pairs = _mm512_set1_epi32(*left.add(16 * r + pair));
                    let pairs = transmute::<__m512i, __m512bh>(pairs);
                    for (sum, columns) in all[r].iter_mut().zip(columns) {
                        *sum = _mm512_dpbf16_ps(*sum, pairs, columns);
                    }
                });
            }
            (left, right) = (left.add(STEP_WORDS), right.add(STEP_WORDS));
        }
        for_rows!(r < ROWS {
            _mm512_storeu_ps(own.add(r * BLOCK), all[r][0]);
            _mm512_storeu_ps(own.add(r * BLOCK + 16), all[r][1]);
        });
    }
}
