//! Packs a right operand into panels as wide as a tile.

use super::layout::{Matrix, RawCopy, copy_rows, transpose_blocks};
use super::vector::Vector;
use super::{InstructionSet, check, dispatch};

/// Number of rows copied together, so that memory is read along the rows.
const ROWS_AT_A_TIME: usize = 8;

const LINE: usize = 64;

/// The source, `[rows, columns]`.
#[derive(Clone, Copy)]
pub(in super::super) enum From<'a> {
    /// Row-major.
    Rows(Matrix<'a>),
    /// Column-major.
    Columns(Matrix<'a>),
}

/// When the panels are read next.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Reach {
    /// Soon: keep them in the caches.
    Near,
    /// Late: bypass the caches, which avoids loading the lines that are overwritten.
    Far,
}

impl InstructionSet {
    /// Packs `rows` x `columns` elements into consecutive row-major panels of two vectors' width; the last is
    /// zero-padded.
    ///
    /// # Panics
    /// If a slice is shorter than its shape.
    pub fn panels(self, from: From<'_>, [rows, columns]: [usize; 2], to: &mut [f32], reach: Reach) {
        let width = 2 * self.lanes();
        let panels = columns.div_ceil(width);
        match from {
            From::Rows(m) => check(m.data, rows, m.stride, columns),
            From::Columns(m) => check(m.data, columns, m.stride, rows),
        }
        check(to, panels, rows * width, rows * width);
        let (From::Rows(Matrix { data, stride }) | From::Columns(Matrix { data, stride })) = from;
        let raw = RawPanels {
            from: data.as_ptr(),
            stride,
            transposed: matches!(from, From::Columns(_)),
            rows,
            columns,
            far: reach == Reach::Far && to.as_ptr().addr().is_multiple_of(LINE),
            to: to.as_mut_ptr(),
        };
        // SAFETY: both shapes were checked above; this machine has the set's instructions.
        unsafe { dispatch!(self, panels(&raw)) }
    }
}

/// Panels whose shapes are checked.
pub(super) struct RawPanels {
    from: *const f32,
    stride: usize,
    transposed: bool,
    rows: usize,
    columns: usize,
    to: *mut f32,
    /// Whether to bypass the caches; `to` is then aligned to a cache line.
    far: bool,
}

/// # Safety
/// The shapes are checked; the machine has the vector's instructions.
#[inline(always)]
pub(super) unsafe fn pack<V: Vector, const N: usize>(p: &RawPanels) {
    // A transposed block is as wide as a vector; only one that fills cache lines can bypass the caches.
    // SAFETY: see the contract. Rows of panels are whole cache lines; the portable vector does not need that.
    unsafe {
        match (p.transposed, p.far) {
            (false, false) => copy::<V, false>(p),
            (false, true) => copy::<V, true>(p),
            (true, true) if 4 * N == LINE => transpose::<V, N, true>(p),
            (true, _) => transpose::<V, N, false>(p),
        }
    }
    if p.far {
        V::fence();
    }
}

/// # Safety
/// As for [`pack`]; if `FAR`, `to` and each panel row are aligned to cache lines.
#[inline(always)]
unsafe fn copy<V: Vector, const FAR: bool>(p: &RawPanels) {
    let width = 2 * V::LANES;
    for row in (0..p.rows).step_by(ROWS_AT_A_TIME) {
        for (panel, column) in (0..p.columns).step_by(width).enumerate() {
            // SAFETY: rows and columns are within the shape.
            unsafe {
                copy_rows::<V, FAR>(&RawCopy {
                    from: p.from.add(row * p.stride + column),
                    from_stride: p.stride,
                    rows: (p.rows - row).min(ROWS_AT_A_TIME),
                    columns: (p.columns - column).min(width),
                    to: p.to.add((panel * p.rows + row) * width),
                    to_stride: width,
                    width,
                });
            }
        }
    }
}

/// # Safety
/// As for [`copy`].
#[inline(always)]
unsafe fn transpose<V: Vector, const N: usize, const FAR: bool>(p: &RawPanels) {
    let width = 2 * V::LANES;
    for (panel, column) in (0..p.columns).step_by(width).enumerate() {
        // SAFETY: rows and columns are within the shape.
        unsafe {
            transpose_blocks::<V, N, FAR>(&RawCopy {
                from: p.from.add(column * p.stride),
                from_stride: p.stride,
                rows: (p.columns - column).min(width),
                columns: p.rows,
                to: p.to.add(panel * p.rows * width),
                to_stride: width,
                width,
            });
        }
    }
}
