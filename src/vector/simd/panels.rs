//! A right operand laid out in panels, as wide as a tile.

use super::layout::{Matrix, RawCopy, copy_rows, transpose_blocks};
use super::vector::Vector;
use super::{InstructionSet, check, dispatch};

/// Rows that are copied together: far reads run on along the rows.
const ROWS_AT_A_TIME: usize = 8;

/// Bytes of a cache line.
const LINE: usize = 64;

/// What is laid out: `[rows, columns]`.
#[derive(Clone, Copy)]
pub(in super::super) enum From<'a> {
    /// A row is a row.
    Rows(Matrix<'a>),
    /// A row is a column.
    Columns(Matrix<'a>),
}

/// Who reads the panels next.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Reach {
    /// Somebody soon: they stay in the caches.
    Near,
    /// Nobody before the caches would have lost them: they are written past them, which spares reading the old contents.
    Far,
}

impl InstructionSet {
    /// Lays out `rows` x `columns` numbers as panels of two vectors' width, one behind the other, each row-major; what is
    /// past `columns` in the last one is 0.
    ///
    /// # Panics
    /// Where a slice is shorter than its shape says.
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
        // SAFETY: both shapes were checked above; the set's instructions are there.
        unsafe { dispatch!(self, panels(&raw)) }
    }
}

/// Panels, checked.
pub(super) struct RawPanels {
    from: *const f32,
    stride: usize,
    transposed: bool,
    rows: usize,
    columns: usize,
    to: *mut f32,
    /// Written past the caches; then `to` begins a cache line.
    far: bool,
}

/// Lays out panels.
///
/// # Safety
/// The shapes are checked; the machine has the vector's instructions.
#[inline(always)]
pub(super) unsafe fn lay_out<V: Vector, const N: usize>(p: &RawPanels) {
    // A transposed block is as wide as a vector: only one that fills cache lines can be written past the caches.
    // SAFETY: the caller's word; rows of panels are whole cache lines, or for the portable vector no matter.
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
/// As for [`lay_out`]; for `FAR`, `to` begins a cache line, and so does each of a panel's rows.
#[inline(always)]
unsafe fn copy<V: Vector, const FAR: bool>(p: &RawPanels) {
    let width = 2 * V::LANES;
    for row in (0..p.rows).step_by(ROWS_AT_A_TIME) {
        for (panel, column) in (0..p.columns).step_by(width).enumerate() {
            // SAFETY: rows and columns below those of the shape.
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
        // SAFETY: rows and columns below those of the shape.
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
