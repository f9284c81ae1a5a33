//! Products of bfloat16 with f32 sums: operands packed into tiles, and blocks of the result.
//!
//! An operand is divided into strips of 32 rows (for the right operand, 32 columns) and steps of 32 terms.
//! One step of a strip is two consecutive tiles of 16 rows or columns each. The unit within a tile is a pair
//! of consecutive terms, 32 bits, which is stored as an f32 but never computed with. A tile of the left
//! operand is `[16 rows][16 pairs]`, one of the right operand `[16 pairs][16 columns]`. Whatever lies beyond
//! the operand's edge is zero.
//!
//! Elements are rounded to nearest, ties to even, when they are packed; denormals become zero.

use std::ops::Range;

#[cfg(target_arch = "x86_64")]
use super::{amx, dot_bf16};
use super::{check, plain_bf16};

/// Rows and columns of a block of the result, and terms of a step.
pub(in super::super) const BLOCK: usize = 32;

/// Pairs per tile, and `f32`s per step of a strip.
pub(in super::super) const TILE_WORDS: usize = 256;
pub(in super::super) const STEP_WORDS: usize = 512;

/// The instructions that multiply. Values exist only for instructions that this machine has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Bf16Set(Set);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Set {
    #[cfg(target_arch = "x86_64")]
    Amx,
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// For tests: the reference for the others.
    Plain,
}

/// Which of the operands is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Side {
    Left,
    Right,
}

/// An operand as it lies in memory; its lines are the rows of the left operand or the columns of the right
/// one.
#[derive(Clone, Copy)]
pub(in super::super) struct Operand<'a> {
    pub data: &'a [f32],
    /// Elements from one line to the next (with `by_terms`), or else from one term to the next.
    pub stride: usize,
    /// Whether the terms of a line are contiguous; otherwise the lines of a term are.
    pub by_terms: bool,
    /// Number of lines, counted from the first in `data`, and of terms.
    pub lines: usize,
    pub terms: usize,
}

/// The operands of a block: a strip of each, starting at some step.
#[derive(Clone, Copy)]
pub(in super::super) struct Block<'a> {
    pub left: &'a [f32],
    pub right: &'a [f32],
    pub steps: usize,
    /// Whether to add to the existing sums instead of starting from 0.
    pub resume: bool,
}

impl Bf16Set {
    /// The sets that this machine has, best first. The portable one is never chosen for a run: it is slower
    /// than f32.
    fn all() -> impl Iterator<Item = Self> {
        let all = [
            #[cfg(target_arch = "x86_64")]
            (Set::Amx, dot_bf16::is_there() && amx::is_there()),
            #[cfg(target_arch = "x86_64")]
            (Set::Avx512, dot_bf16::is_there()),
            (Set::Plain, true),
        ];
        all.into_iter().filter(|&(_, there)| there).map(|(set, _)| Self(set))
    }

    /// The name of the best set; does not request permission from the system's kernel.
    pub fn name_here() -> Option<&'static str> {
        #[cfg(target_arch = "x86_64")]
        if dot_bf16::is_there() {
            let set = if amx::is_supported() { Set::Amx } else { Set::Avx512 };
            return Some(Self(set).name());
        }
        None
    }

    pub fn detect() -> Option<Self> {
        Self::all().next().filter(|set| set.0 != Set::Plain)
    }

    /// The set with this name, if this machine has it.
    pub fn named(name: &str) -> Option<Self> {
        Self::all().find(|set| set.name() == name)
    }

    pub fn name(self) -> &'static str {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Set::Amx => "amx_bf16",
            #[cfg(target_arch = "x86_64")]
            Set::Avx512 => "avx512_bf16",
            Set::Plain => "portable",
        }
    }

    /// Packs some strips of an operand; `lines` starts at the first of them.
    ///
    /// # Panics
    /// If a slice is shorter than its shape.
    pub fn pack(self, lines: Operand<'_>, side: Side, strips: Range<usize>, to: &mut [f32]) {
        let (count, inner) =
            if lines.by_terms { (lines.lines, lines.terms) } else { (lines.terms, lines.lines) };
        check(lines.data, count, lines.stride, inner);
        assert!(strips.end <= lines.lines.div_ceil(BLOCK), "no such strip");
        check(
            to,
            strips.len(),
            lines.terms.div_ceil(BLOCK) * STEP_WORDS,
            lines.terms.div_ceil(BLOCK) * STEP_WORDS,
        );
        match self.0 {
            // SAFETY: shapes were checked above; this machine has the set's instructions.
            #[cfg(target_arch = "x86_64")]
            Set::Amx | Set::Avx512 => unsafe { dot_bf16::pack(&lines, side, strips, to.as_mut_ptr()) },
            Set::Plain => plain_bf16::pack(&lines, side, strips, to),
        }
    }

    /// Prepares this thread to multiply.
    pub fn open(self) -> Blocks {
        match self.0 {
            // SAFETY: this machine has the set's instructions.
            #[cfg(target_arch = "x86_64")]
            Set::Amx => Blocks::Tiles(unsafe { amx::Tiles::new() }),
            #[cfg(target_arch = "x86_64")]
            Set::Avx512 => Blocks::Vectors,
            Set::Plain => Blocks::Plain,
        }
    }
}

/// A thread's state for multiplying.
pub(in super::super) enum Blocks {
    #[cfg(target_arch = "x86_64")]
    Tiles(amx::Tiles),
    #[cfg(target_arch = "x86_64")]
    Vectors,
    Plain,
}

impl Blocks {
    /// Computes a block of the result, row-major.
    ///
    /// # Panics
    /// If an operand is shorter than its steps.
    #[inline]
    pub fn multiply(&self, block: Block<'_>, sums: &mut [f32; BLOCK * BLOCK]) {
        check(block.left, 1, 0, block.steps * STEP_WORDS);
        check(block.right, 1, 0, block.steps * STEP_WORDS);
        match self {
            // SAFETY: the operands' lengths were checked, and the tiles are configured.
            #[cfg(target_arch = "x86_64")]
            Self::Tiles(tiles) => unsafe { tiles.multiply(block, sums) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Self::Vectors => unsafe { dot_bf16::multiply(block, sums) },
            Self::Plain => plain_bf16::multiply(block, sums),
        }
    }
}
