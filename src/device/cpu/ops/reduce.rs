//! Sums in a fixed order, whatever the number of threads.

use super::vectorized;

/// Numbers per partial sum of squares.
pub const CHUNK: usize = 4096;

/// Lanes that are summed apart before they are joined, so that the loop vectorizes in a fixed order.
const LANES: usize = 16;

/// The sum in double precision: 16 running sums, joined in order.
pub fn sum(values: &[f32]) -> f64 {
    vectorized(
        #[inline(always)]
        || lanes(values, |v| v),
    )
}

/// The sum of squares in double precision: 16 running sums, joined in order.
pub fn sum_of_squares(values: &[f32]) -> f64 {
    vectorized(
        #[inline(always)]
        || lanes(values, |v| v * v),
    )
}

/// Sums of squares of each chunk of [`CHUNK`] numbers.
pub fn squares(values: &[f32], partial: &mut [f32]) {
    for (chunk, partial) in values.chunks(CHUNK).zip(partial) {
        *partial = vectorized(
            #[inline(always)]
            || lanes(chunk, |v| v * v),
        ) as f32;
    }
}

#[inline(always)]
fn lanes(values: &[f32], f: impl Fn(f64) -> f64) -> f64 {
    let (chunks, rest) = values.as_chunks::<LANES>();
    let mut sums = [0.0f64; LANES];
    for chunk in chunks {
        for (s, v) in sums.iter_mut().zip(chunk) {
            *s += f(f64::from(*v));
        }
    }
    for (s, v) in sums.iter_mut().zip(rest) {
        *s += f(f64::from(*v));
    }
    sums.iter().sum()
}

/// Column sums of `[rows, stride]`, of the columns `first..first + out.len()`, rows in order.
pub fn columns(values: &[f32], stride: usize, first: usize, out: &mut [f32]) {
    if let (1, [out]) = (stride, &mut *out) {
        *out = sum(values) as f32;
        return;
    }
    out.fill(0.0);
    vectorized(
        #[inline(always)]
        || {
            // Some rows at a time, each read along its length: the sums stay in the nearest cache, and memory is read in
            // the order in which it lies.
            const ROWS: usize = 4;
            let mut rows = values.chunks_exact(ROWS * stride);
            for rows in &mut rows {
                let row = |r: usize| &rows[r * stride + first..][..out.len()];
                let [a, b, c, d] = [row(0), row(1), row(2), row(3)];
                for ((((sum, a), b), c), d) in out.iter_mut().zip(a).zip(b).zip(c).zip(d) {
                    *sum = *sum + a + b + c + d;
                }
            }
            for row in rows.remainder().chunks_exact(stride) {
                out.iter_mut().zip(&row[first..]).for_each(|(sum, v)| *sum += v);
            }
        },
    );
}
