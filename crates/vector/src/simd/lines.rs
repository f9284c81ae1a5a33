//! Matrix-vector products, limited by reading the matrix once.

use super::prefetch::{into_l1, into_l2};
use super::vector::Vector;
use super::{InstructionSet, check, dispatch};

/// Rows of a matrix: consecutive ones, or those that `order` lists.
#[derive(Clone, Copy, Debug)]
pub struct Lines<'a> {
    /// The matrix, row-major.
    pub data: &'a [f32],
    /// Elements from one row to the next.
    pub stride: usize,
    /// Row indices; `None` for consecutive rows.
    pub order: Option<&'a [u32]>,
}

impl<'a> Lines<'a> {
    /// Consecutive rows.
    pub fn new(data: &'a [f32], stride: usize) -> Self {
        Self { data, stride, order: None }
    }

    /// The rows without their first `count` columns.
    pub fn skip_columns(self, count: usize) -> Self {
        Self { data: self.data.get(count..).unwrap_or_default(), ..self }
    }

    /// `rows` rows, starting at `first`.
    pub fn part(self, first: usize, rows: usize) -> Self {
        match self.order {
            Some(order) => Self { order: Some(&order[first..first + rows]), ..self },
            None => Self { data: self.data.get(first * self.stride..).unwrap_or_default(), ..self },
        }
    }

    /// Panics if there are fewer rows or columns than given.
    fn check(&self, rows: usize, columns: usize) {
        match self.order {
            None => check(self.data, rows, self.stride, columns),
            Some(order) => {
                let highest = order[..rows].iter().max().map_or(0, |row| *row as usize);
                check(self.data, if rows == 0 { 0 } else { highest + 1 }, self.stride, columns);
            }
        }
    }

    /// The start of a row; for a row past the end, that of the last row.
    #[inline(always)]
    fn at(&self, row: usize, rows: usize) -> *const f32 {
        let row = row.min(rows - 1);
        let row = self.order.map_or(row, |order| order[row] as usize);
        self.data.as_ptr().wrapping_add(row * self.stride)
    }

    /// The start of a row and that of a later one, for prefetching.
    #[inline(always)]
    fn near(&self, row: usize, rows: usize) -> [*const f32; 2] {
        let at = self.at(row, rows);
        [
            at,
            if self.order.is_some() {
                self.at(row + NEXT, rows)
            } else {
                at.wrapping_add(NEXT * self.stride)
            },
        ]
    }
}

/// Prefetch distance in rows, for cached rows.
const NEXT: usize = 16;

/// Prefetch distance in rows, for rows in a given order: about 20 KiB if rows have a hundred elements.
const AHEAD: usize = 48;

impl InstructionSet {
    /// `out[r] = max(x[r] . w + bias, floor)`.
    ///
    /// # Panics
    /// If `x` has fewer than `out.len()` rows of `w.len()` elements.
    pub fn gemv(self, x: Lines<'_>, w: &[f32], bias: f32, floor: f32, out: &mut [f32]) {
        x.check(out.len(), w.len());
        // SAFETY: the shape was checked above; this machine has the set's instructions.
        unsafe {
            if w.len() == 2 && x.stride == 2 && x.order.is_none() {
                dispatch!(self, pairs(x.data, w, bias, floor, out))
            } else {
                dispatch!(self, gemv(x, w, bias, floor, out))
            }
        }
    }

    /// `out[c] = sum over r of x[r][c] * weights[r]`, or `out[c] - rate * sum`.
    ///
    /// # Panics
    /// If `x` has fewer than `weights.len()` rows of `out.len()` elements.
    pub fn gemv_t(self, x: Lines<'_>, weights: &[f32], rate: Option<f32>, out: &mut [f32]) {
        x.check(weights.len(), out.len());
        // SAFETY: the shape was checked above; this machine has the set's instructions.
        unsafe { dispatch!(self, gemv_t(x, weights, rate, out)) }
    }
}

/// Dot products of rows with `w`. `G` rows are processed at a time, each with a vector of partial sums; the
/// sums of `N` rows (the vector's lanes) are then reduced together. A row's bits do not depend on its
/// neighbours.
///
/// # Safety
/// The shapes are checked; the machine has the vector's instructions.
#[inline(always)]
pub(super) unsafe fn dot_rows<V: Vector, const N: usize, const G: usize>(
    x: Lines<'_>,
    w: &[f32],
    bias: f32,
    floor: f32,
    out: &mut [f32],
) {
    let (rows, k) = (out.len(), w.len());
    // SAFETY: rows and columns are within the shape; lanes past them are masked; prefetches accept any
    // address.
    unsafe {
        let (bias, floor) = (V::splat(bias), V::splat(floor));
        // The hardware prefetches long rows by itself; short rows and rows in a given order need explicit
        // prefetches.
        let ahead = if k < 256 { 2 * G * k } else { 64 };
        let named = x.order.is_some();
        let (whole, part) = (k / N * N, V::first(k % N));
        for row in (0..rows).step_by(N) {
            let there = (rows - row).min(N);
            let mut sums = [V::splat(0.0); N];
            for group in (0..there).step_by(G) {
                // Rows past the end repeat the last one; their sums are not stored.
                let at: [*const f32; G] = std::array::from_fn(|g| x.at(row + group + g, rows));
                let far: [*const f32; G] = if named && row + group + AHEAD < rows {
                    std::array::from_fn(|g| x.at(row + group + g + AHEAD, rows))
                } else {
                    at.map(|at| at.wrapping_add(ahead))
                };
                let mut acc = [V::splat(0.0); G];
                for j in (0..whole).step_by(N) {
                    let w = V::load(w.as_ptr().add(j));
                    let begins_line = N >= 8 || j % 16 == 0;
                    for g in 0..G {
                        if begins_line && named {
                            into_l2(far[g].wrapping_add(j))
                        } else if begins_line {
                            into_l1(far[g].wrapping_add(j))
                        }
                        acc[g] = V::load(at[g].add(j)).mul_add(w, acc[g]);
                    }
                }
                if whole < k {
                    let w = V::load_some(w.as_ptr().add(whole), part);
                    for g in 0..G {
                        if named {
                            into_l2(far[g].wrapping_add(whole));
                            into_l2(far[g].wrapping_add(k - 1));
                        }
                        acc[g] = V::load_some(at[g].add(whole), part).mul_add(w, acc[g]);
                    }
                }
                sums[group..group + G].copy_from_slice(&acc);
            }
            V::transpose(&mut sums);
            let mut count = N;
            while count > 1 {
                count /= 2;
                for i in 0..count {
                    sums[i] = sums[i].add(sums[i + count]);
                }
            }
            let to = out.as_mut_ptr().add(row);
            let sum = sums[0].add(bias).at_least(floor);
            if there == N { sum.store(to) } else { sum.store_some(to, V::first(there)) }
        }
    }
}

/// [`dot_rows`] for two columns: the lanes are rows.
///
/// # Safety
/// The shapes are checked; the machine has the vector's instructions.
#[inline(always)]
pub(super) unsafe fn dot_pairs<V: Vector, const N: usize>(
    x: &[f32],
    w: &[f32],
    bias: f32,
    floor: f32,
    out: &mut [f32],
) {
    let rows = out.len();
    // SAFETY: rows and columns are within the shape; lanes past them are masked; prefetches accept any
    // address.
    unsafe {
        let (bias, floor) = (V::splat(bias), V::splat(floor));
        let (w0, w1) = (V::splat(w[0]), V::splat(w[1]));
        for row in (0..rows).step_by(N) {
            let there = rows - row;
            let (from, to) = (x.as_ptr().add(2 * row), out.as_mut_ptr().add(row));
            if there >= N {
                let (x0, x1) = V::deinterleave(V::load(from), V::load(from.add(N)));
                x1.mul_add(w1, x0.mul_add(w0, V::splat(0.0))).add(bias).at_least(floor).store(to);
            } else {
                let (low, high) = (V::first(2 * there), V::first((2 * there).saturating_sub(N)));
                let high = V::load_some(from.wrapping_add(N), high);
                let (x0, x1) = V::deinterleave(V::load_some(from, low), high);
                let sum = x1.mul_add(w1, x0.mul_add(w0, V::splat(0.0)));
                sum.add(bias).at_least(floor).store_some(to, V::first(there));
            }
        }
    }
}

/// Weighted sums of rows, a few vectors of columns at a time. Each element is the sum of four chains, each
/// over every fourth row, which hides the latency of additions; its bits do not depend on its neighbours.
/// With two columns, lanes are rows, since most lanes would be empty otherwise.
///
/// # Safety
/// The shapes are checked; the machine has the vector's instructions.
#[inline(always)]
pub(super) unsafe fn weigh_rows<V: Vector>(
    x: Lines<'_>,
    weights: &[f32],
    rate: Option<f32>,
    out: &mut [f32],
) {
    // SAFETY: rows and columns are within the shape; lanes past them are masked; prefetches accept any
    // address.
    unsafe {
        if out.len() == 2 && x.stride == 2 && x.order.is_none() {
            let mut sums = [V::splat(0.0); 2];
            for row in (0..weights.len()).step_by(V::LANES) {
                let (from, there) = (x.data.as_ptr().add(2 * row), weights.len() - row);
                let (x0, x1, d);
                if there >= V::LANES {
                    (x0, x1) = V::deinterleave(V::load(from), V::load(from.add(V::LANES)));
                    d = V::load(weights.as_ptr().add(row));
                } else {
                    let (low, high) = (V::first(2 * there), V::first((2 * there).saturating_sub(V::LANES)));
                    let high = V::load_some(from.wrapping_add(V::LANES), high);
                    (x0, x1) = V::deinterleave(V::load_some(from, low), high);
                    d = V::load_some(weights.as_ptr().add(row), V::first(there));
                }
                sums = [x0.mul_add(d, sums[0]), x1.mul_add(d, sums[1])];
            }
            for (out, sum) in out.iter_mut().zip(sums) {
                *out = rate.map_or(sum.sum(), |rate| *out - rate * sum.sum());
            }
            return;
        }
        let mut column = 0;
        while column < out.len() {
            let x = x.skip_columns(column);
            let out = &mut out[column..];
            match out.len().div_ceil(V::LANES) {
                1 => weigh_columns::<V, 1>(x, weights, rate, out),
                2 => weigh_columns::<V, 2>(x, weights, rate, out),
                3 if V::LANES > 8 => weigh_columns::<V, 3>(x, weights, rate, out),
                _ if V::LANES > 8 => weigh_columns::<V, 4>(x, weights, rate, out),
                _ => weigh_columns::<V, 2>(x, weights, rate, out),
            }
            column += if V::LANES > 8 { 4 } else { 2 } * V::LANES;
        }
    }
}

/// [`weigh_rows`] for `C` vectors of columns; the last may be partial.
///
/// # Safety
/// As for [`weigh_rows`]; `x` and `out` start at the first of these columns.
#[inline(always)]
unsafe fn weigh_columns<V: Vector, const C: usize>(
    x: Lines<'_>,
    weights: &[f32],
    rate: Option<f32>,
    out: &mut [f32],
) {
    // SAFETY: rows and columns are within the shape; lanes past them are masked; prefetches accept any
    // address.
    unsafe {
        let last = V::first(out.len() - (C - 1) * V::LANES);
        let mut sums = [[V::splat(0.0); C]; 4];
        let (fours, rest) = weights.as_chunks::<4>();
        let rows = weights.len();
        for (i, four) in fours.iter().enumerate() {
            for (j, sums) in sums.iter_mut().enumerate() {
                weigh_row(sums, x.near(4 * i + j, rows), four[j], last);
            }
        }
        for (j, sums) in sums.iter_mut().enumerate() {
            if let Some(weight) = rest.get(j) {
                weigh_row(sums, x.near(4 * fours.len() + j, rows), *weight, last);
            }
        }
        let [even, odd, even_next, odd_next] = sums;
        for c in 0..C {
            let mut sum = even[c].add(odd[c]).add(even_next[c].add(odd_next[c]));
            let to = out.as_mut_ptr().add(c * V::LANES);
            if let Some(rate) = rate {
                let before = if c + 1 == C { V::load_some(to, last) } else { V::load(to) };
                sum = V::splat(-rate).mul_add(sum, before);
            }
            if c + 1 == C { sum.store_some(to, last) } else { sum.store(to) }
        }
    }
}

/// Adds a row to the sums and prefetches a later one.
///
/// # Safety
/// As for [`weigh_rows`]; `from` points to the first of the columns.
#[inline(always)]
unsafe fn weigh_row<V: Vector, const C: usize>(
    sums: &mut [V; C],
    [from, later]: [*const f32; 2],
    weight: f32,
    last: V::Mask,
) {
    // SAFETY: columns are within the shape; lanes past them are masked; prefetches accept any address.
    unsafe {
        let weight = V::splat(weight);
        for (c, sum) in sums.iter_mut().enumerate() {
            let from = from.add(c * V::LANES);
            if V::LANES >= 8 || c * V::LANES % 16 == 0 {
                into_l1(later.wrapping_add(c * V::LANES));
            }
            let x = if c + 1 == C { V::load_some(from, last) } else { V::load(from) };
            *sum = x.mul_add(weight, *sum);
        }
    }
}
