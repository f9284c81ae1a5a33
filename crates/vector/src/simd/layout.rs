//! Copies and transposes of matrices.

use super::vector::Vector;
use super::{InstructionSet, check, dispatch};

/// A row-major matrix with rows `stride` elements apart.
#[derive(Clone, Copy)]
pub(in super::super) struct Matrix<'a> {
    pub data: &'a [f32],
    pub stride: usize,
}

/// A [`Matrix`] to write to.
pub(in super::super) struct MatrixMut<'a> {
    pub data: &'a mut [f32],
    pub stride: usize,
}

impl InstructionSet {
    /// Copies `rows` x `columns` elements, zero-padding each row of `to` to `width`.
    ///
    /// # Panics
    /// If a slice is shorter than its shape, or `columns > width`.
    pub fn copy(self, from: Matrix<'_>, rows: usize, columns: usize, to: MatrixMut<'_>, width: usize) {
        assert!(columns <= width, "more columns than the copy's width");
        check(from.data, rows, from.stride, columns);
        check(to.data, rows, to.stride, width);
        let raw = RawCopy {
            from: from.data.as_ptr(),
            from_stride: from.stride,
            rows,
            columns,
            to: to.data.as_mut_ptr(),
            to_stride: to.stride,
            width,
        };
        // SAFETY: both shapes were checked above; this machine has the set's instructions.
        unsafe { dispatch!(self, copy(&raw)) }
    }

    /// Transposes `rows` x `columns` elements, zero-padding each row of `to` to `width`.
    ///
    /// # Panics
    /// If a slice is shorter than its shape, `rows > width`, or `width` exceeds a panel.
    pub fn transpose(self, from: Matrix<'_>, rows: usize, columns: usize, to: MatrixMut<'_>, width: usize) {
        assert!(rows <= width, "more rows than the transposed width");
        check(from.data, rows, from.stride, columns);
        check(to.data, columns, to.stride, width);
        let raw = RawCopy {
            from: from.data.as_ptr(),
            from_stride: from.stride,
            rows,
            columns,
            to: to.data.as_mut_ptr(),
            to_stride: to.stride,
            width,
        };
        // SAFETY: both shapes were checked above; this machine has the set's instructions.
        unsafe { dispatch!(self, transpose(&raw)) }
    }
}

/// A copy or transpose whose shapes are checked.
pub(super) struct RawCopy {
    pub from: *const f32,
    pub from_stride: usize,
    pub rows: usize,
    pub columns: usize,
    pub to: *mut f32,
    pub to_stride: usize,
    pub width: usize,
}

/// Stores a full vector, bypassing the caches if `FAR`.
///
/// # Safety
/// As for [`Vector::store`], or [`Vector::stream`].
#[inline(always)]
unsafe fn put<V: Vector, const FAR: bool>(v: V, to: *mut f32) {
    // SAFETY: see the function's contract.
    unsafe { if FAR { v.stream(to) } else { v.store(to) } }
}

/// Copies row by row, bypassing the caches if `FAR` (without a fence).
///
/// # Safety
/// The shapes are checked, and for `FAR` what is written is aligned to cache lines; the machine has the
/// vector's instructions.
#[inline(always)]
pub(super) unsafe fn copy_rows<V: Vector, const FAR: bool>(t: &RawCopy) {
    // SAFETY: rows and columns are within the shape; lanes past them are masked.
    unsafe {
        if t.width == V::LANES {
            let (loaded, all) = (V::first(t.columns), t.columns == V::LANES);
            for r in 0..t.rows {
                let from = t.from.add(r * t.from_stride);
                let v = if all { V::load(from) } else { V::load_some(from, loaded) };
                put::<V, FAR>(v, t.to.add(r * t.to_stride));
            }
            return;
        }
        for r in 0..t.rows {
            let (from, to) = (t.from.add(r * t.from_stride), t.to.add(r * t.to_stride));
            for c in (0..t.width).step_by(V::LANES) {
                let there = t.columns.saturating_sub(c);
                let v = if there >= V::LANES {
                    V::load(from.add(c))
                } else {
                    V::load_some(from.wrapping_add(c), V::first(there))
                };
                if t.width - c >= V::LANES {
                    put::<V, FAR>(v, to.add(c))
                } else {
                    v.store_some(to.add(c), V::first(t.width - c))
                }
            }
        }
    }
}

/// Transposes in square blocks of `N` lanes, bypassing the caches if `FAR` (without a fence).
///
/// # Safety
/// As for [`copy_rows`].
#[inline(always)]
pub(super) unsafe fn transpose_blocks<V: Vector, const N: usize, const FAR: bool>(t: &RawCopy) {
    for i in (0..t.width).step_by(N) {
        let (rows, stored) = (t.rows.saturating_sub(i).min(N), (t.width - i).min(N));
        for j in (0..t.columns).step_by(N) {
            let columns = (t.columns - j).min(N);
            // SAFETY: rows and columns are within the shape; lanes past them are masked.
            unsafe {
                let (loaded, stored_mask) = (V::first(columns), V::first(stored));
                let mut block = [V::splat(0.0); N];
                let from = t.from.wrapping_add(i * t.from_stride + j);
                if rows == N && columns == N {
                    for (r, v) in block.iter_mut().enumerate() {
                        *v = V::load(from.add(r * t.from_stride));
                    }
                } else {
                    for (r, v) in block.iter_mut().enumerate().take(rows) {
                        *v = V::load_some(from.add(r * t.from_stride), loaded);
                    }
                }
                V::transpose(&mut block);
                let to = t.to.add(j * t.to_stride + i);
                if stored == N && columns == N {
                    for (c, v) in block.iter().enumerate() {
                        put::<V, FAR>(*v, to.add(c * t.to_stride));
                    }
                } else {
                    for (c, v) in block.iter().enumerate().take(columns) {
                        v.store_some(to.add(c * t.to_stride), stored_mask);
                    }
                }
            }
        }
    }
}
