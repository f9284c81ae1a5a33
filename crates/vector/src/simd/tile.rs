//! The register tile of the matrix product.
//!
//! **The tile.** [`InstructionSet::strip`] keeps a tile of the result in registers, `tile_rows` high and two
//! vectors wide, and loops over k: two loads of the right operand, one broadcast per row of the left, two
//! fused multiply-adds per row.
//!
//! | set | vector | tile | registers for sums |
//! | --- | --- | --- | --- |
//! | avx512 | 16 | 14 x 32 | 28 of 32 |
//! | avx2 | 8 | 6 x 16 | 12 of 16 |
//! | portable | 4 | 4 x 8 | 8 of 16 |
//!
//! Why two vectors wide: layers are mostly multiples of 32 wide, so no column is wasted, and 14 broadcasts
//! and two loads for 28 multiply-adds leave the two load ports idle almost half of the time. Why this height:
//! the remaining registers hold the operands. Lower heights are compiled too, so that rows can be shared
//! evenly.
//!
//! Measured on a Xeon with AVX-512 (2 MiB of L2 per core), one thread, as speed relative to the `gemm` crate
//! at the same time: 0.95 to 1.05 at 256 x 784 x 256, 0.89 to 0.97 at 1024 x 2048 x 2048 (packing, 5 % more,
//! not counted), 1.05 to 1.1 at 32 x 64 x 32, 1.9 at 256 x 256 x 10, and 3 for the gradient of that layer's
//! weights.
//!
//! **The order of additions.** An element is one chain over k, from first to last. Its bits do not depend on
//! the tile's shape, on packing, or on partial sums that were stored and loaded again.

use super::prefetch::into_l2;
use super::vector::{Vector, opaque};
use super::{InstructionSet, check, dispatch};

/// Memory order of the left operand.
#[derive(Clone, Copy)]
pub(in super::super) enum Order {
    /// Element (row, k) at `row * stride + k`.
    Rows,
    /// Element (row, k) at `k * stride + row`.
    Columns,
}

/// The epilogue of a finished sum. Slices start at the strip's first element.
#[derive(Clone, Copy)]
pub(in super::super) enum Finish<'a> {
    /// `sum`
    Store,
    /// `max(sum + bias, floor)`
    Affine { bias: Option<&'a [f32]>, floor: f32 },
    /// `out - rate * sum`
    Update { rate: f32 },
    /// `sum` where `saved > 0`, else 0; `saved` has the layout of `out`.
    WherePositive { saved: &'a [f32] },
}

/// One row of tiles: a few rows of the result with all columns.
pub(in super::super) struct Strip<'a> {
    pub lhs: &'a [f32],
    pub lhs_order: Order,
    pub lhs_stride: usize,
    /// Rows of the result; at most `tile_rows`.
    pub rows: usize,
    pub k: usize,
    pub rhs: &'a [f32],
    /// Elements from one k to the next.
    pub rhs_stride: usize,
    /// Elements from one panel of columns to the next.
    pub rhs_panel_stride: usize,
    /// Columns of the result.
    pub columns: usize,
    pub out: &'a mut [f32],
    pub out_stride: usize,
    /// Whether sums continue from `out` instead of 0.
    pub resume: bool,
    pub finish: Finish<'a>,
    /// Rows to prefetch meanwhile: what the caller reads from memory next.
    pub ahead: [TilePrefetch<'a>; 2],
}

/// Rows to prefetch: consecutive ones, or those that a non-empty `order` lists.
#[derive(Clone, Copy, Default)]
pub(in super::super) struct TilePrefetch<'a> {
    pub data: &'a [f32],
    pub stride: usize,
    pub rows: usize,
    pub columns: usize,
    pub order: &'a [u32],
}

/// Progress of a [`TilePrefetch`].
struct Lines<'a> {
    ahead: TilePrefetch<'a>,
    at: *const f32,
    stride: usize,
    rows: usize,
    columns: usize,
    column: usize,
}

impl<'a> Lines<'a> {
    #[inline(always)]
    fn new(ahead: TilePrefetch<'a>) -> Self {
        let TilePrefetch { data, stride, rows, columns, order } = ahead;
        let first = order.first().map_or(0, |row| *row as usize * stride);
        Self { ahead, at: data.as_ptr().wrapping_add(first), stride, rows, columns, column: 0 }
    }

    /// Prefetches the next cache line.
    #[inline(always)]
    fn next(&mut self) {
        if self.rows == 0 {
            return;
        }
        into_l2(self.at.wrapping_add(self.column));
        self.column += 16;
        if self.column >= self.columns {
            (self.at, self.rows, self.column) = (self.at.wrapping_add(self.stride), self.rows - 1, 0);
            if let Some(row) = self.ahead.order.get(self.ahead.rows.wrapping_sub(self.rows)) {
                self.at = self.ahead.data.as_ptr().wrapping_add(*row as usize * self.stride);
            }
        }
    }
}

impl InstructionSet {
    /// Computes a row of tiles.
    ///
    /// # Panics
    /// If a slice is shorter than its shape.
    #[inline]
    pub fn strip(self, s: &mut Strip<'_>) {
        let width = 2 * self.lanes();
        assert!(s.rows <= self.tile_rows(), "strip taller than a tile");
        if s.rows == 0 || s.columns == 0 {
            return;
        }
        match s.lhs_order {
            Order::Rows => check(s.lhs, s.rows, s.lhs_stride, s.k),
            Order::Columns => check(s.lhs, s.k, s.lhs_stride, s.rows),
        }
        let last = if s.k == 0 { 0 } else { (s.columns - 1) / width };
        let step = last
            .checked_mul(s.rhs_panel_stride)
            .filter(|&n| n <= s.rhs.len())
            .expect("operand shorter than its shape");
        check(&s.rhs[step..], s.k, s.rhs_stride, s.columns - last * width);
        if last > 0 {
            let before = (last - 1) * s.rhs_panel_stride;
            check(&s.rhs[before..], s.k, s.rhs_stride, width);
        }
        check(s.out, s.rows, s.out_stride, s.columns);
        match s.finish {
            Finish::Affine { bias: Some(bias), .. } => check(bias, 1, 0, s.columns),
            Finish::WherePositive { saved } => check(saved, s.rows, s.out_stride, s.columns),
            _ => {}
        }
        // SAFETY: every address that a strip touches was checked above; this machine has the set's
        // instructions.
        unsafe { dispatch!(self, strip(s)) }
    }
}

/// Computes all tiles of a strip of `R` rows.
///
/// # Safety
/// The strip must be checked and have `R` rows; the machine must have the vector's instructions.
#[inline(always)]
pub(super) unsafe fn tiles<V: Vector, const R: usize>(s: &mut Strip<'_>) {
    let (width, mut column, mut rhs) = (2 * V::LANES, 0, s.rhs.as_ptr());
    let ahead = &mut s.ahead.map(Lines::new);
    let out = s.out.as_mut_ptr();
    while column < s.columns {
        let left = s.columns - column;
        // SAFETY: the columns are within the strip.
        unsafe {
            match left {
                n if n >= width => tile::<V, R, 2, false>(s, rhs, out.add(column), column, ahead),
                n if n > V::LANES => tile::<V, R, 2, true>(s, rhs, out.add(column), column, ahead),
                _ => tile::<V, R, 1, true>(s, rhs, out.add(column), column, ahead),
            }
        }
        column += width;
        rhs = rhs.wrapping_add(s.rhs_panel_stride);
    }
}

/// Unrolls `$body` for each row `$r` of a tile of `$rows`: the optimizer keeps sums in registers only without
/// a loop over them, and does not unroll loops of this length.
macro_rules! for_rows {
    ($r:ident < $rows:ident $body:block) => { for_rows!($r < $rows $body, 0 1 2 3 4 5 6 7 8 9 10 11 12 13) };
    ($r:ident < $rows:ident $body:block, $($number:literal)*) => {
        $(if $number < $rows {
            let $r: usize = $number;
            $body
        })*
    };
}
#[cfg(target_arch = "x86_64")]
pub(super) use for_rows;

/// Computes one tile: `R` rows and `C` vectors of columns starting at `column`; the last may be partial
/// (`PART`).
///
/// # Safety
/// As for [`tiles`]; `rhs` and `out` point to the tile's first column.
#[allow(clippy::too_many_lines, reason = "one register tile: its sums live in registers from load to store")]
#[inline(always)]
unsafe fn tile<V: Vector, const R: usize, const C: usize, const PART: bool>(
    s: &Strip<'_>,
    rhs: *const f32,
    out: *mut f32,
    column: usize,
    ahead: &mut [Lines<'_>; 2],
) {
    // SAFETY: rows below `R`, k below the strip's, and columns under the mask were checked; prefetches accept
    // any address.
    unsafe {
        let mask = V::first(s.columns - column - (C - 1) * V::LANES);
        let load = |from: *const f32, c: usize| {
            let from = from.add(c * V::LANES);
            if PART && c + 1 == C { V::load_some(from, mask) } else { V::load(from) }
        };
        let mut sums = [[V::splat(0.0); C]; R];
        if s.resume {
            for_rows!(r < R {
                for (c, sum) in sums[r].iter_mut().enumerate() {
                    *sum = load(out.add(r * s.out_stride), c);
                }
            });
        }
        // Prefetches the next tile's part of the result, one line at a time so as not to delay this tile's
        // loads.
        let more = s.columns - column > C * V::LANES;
        let mut next = Lines {
            ahead: TilePrefetch::default(),
            at: out.wrapping_add(C * V::LANES),
            stride: s.out_stride,
            rows: if more { R } else { 0 },
            columns: C * V::LANES,
            column: 0,
        };
        let (row_stride, k_stride) = match s.lhs_order {
            Order::Rows => (s.lhs_stride, 1),
            Order::Columns => (1, s.lhs_stride),
        };
        // In bytes: adding a scaled register takes the ports of multiply-adds on Intel's processors (`llvm-mca
        // -mcpu=sapphirerapids`: 16.5 cycles per k, and 15.1 so).
        let (k_bytes, rhs_bytes) = (4 * k_stride, 4 * s.rhs_stride);
        // One pointer per three rows: one per row would not fit the registers.
        let mut third: [*const f32; 5] =
            std::array::from_fn(|i| s.lhs.as_ptr().wrapping_add((3 * i).wrapping_mul(row_stride)));
        let (mut k, mut rhs) = (s.k, rhs);
        while k > 0 {
            ahead[0].next();
            ahead[1].next();
            next.next();
            let few = k.min(8);
            k -= few;
            for _ in 0..few {
                let mut right = [V::splat(0.0); C];
                for (c, v) in right.iter_mut().enumerate() {
                    *v = load(rhs, c);
                }
                for_rows!(r < R {
                    let left = V::splat(*third[r / 3].add(r % 3 * row_stride));
                    for (c, sum) in sums[r].iter_mut().enumerate() {
                        *sum = left.mul_add(right[c], *sum);
                    }
                });
                for pointer in &mut third {
                    *pointer = opaque(pointer.wrapping_byte_add(k_bytes));
                }
                rhs = rhs.wrapping_byte_add(rhs_bytes);
            }
        }
        let store = |to: *mut f32, c: usize, v: V| {
            let to = to.add(c * V::LANES);
            if PART && c + 1 == C { v.store_some(to, mask) } else { v.store(to) }
        };
        let (bias, floor) = match s.finish {
            Finish::Affine { bias, floor } => (bias, floor),
            _ => (None, f32::NEG_INFINITY),
        };
        match s.finish {
            Finish::Store | Finish::Affine { .. } => {
                let floor = V::splat(floor);
                // Adding -0 changes nothing, not even the sign of a zero.
                let mut add = [V::splat(-0.0); C];
                if let Some(bias) = bias {
                    for (c, v) in add.iter_mut().enumerate() {
                        *v = load(bias.as_ptr().add(column), c);
                    }
                }
                for_rows!(r < R {
                    for (c, sum) in sums[r].iter().enumerate() {
                        store(out.add(r * s.out_stride), c, sum.add(add[c]).at_least(floor));
                    }
                });
            }
            Finish::Update { rate } => {
                let rate = V::splat(-rate);
                for_rows!(r < R {
                    let out = out.add(r * s.out_stride);
                    for (c, sum) in sums[r].iter().enumerate() {
                        store(out, c, rate.mul_add(*sum, load(out, c)));
                    }
                });
            }
            Finish::WherePositive { saved } => {
                for_rows!(r < R {
                    let at = r * s.out_stride;
                    for (c, sum) in sums[r].iter().enumerate() {
                        store(out.add(at), c, sum.where_positive(load(saved.as_ptr().add(column + at), c)));
                    }
                });
            }
        }
    }
}
