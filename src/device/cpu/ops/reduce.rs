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
    vectorized(
        #[inline(always)]
        || {
            // One strip of columns stays in registers while the rows pass.
            const STRIP: usize = 64;
            let mut strip = 0;
            while strip < out.len() {
                let width = STRIP.min(out.len() - strip);
                let mut sums = [0.0f32; STRIP];
                for row in values.chunks_exact(stride) {
                    let row = &row[first + strip..][..width];
                    if let Ok(row) = <&[f32; STRIP]>::try_from(row) {
                        sums.iter_mut().zip(row).for_each(|(s, v)| *s += v);
                    } else {
                        sums.iter_mut().zip(row).for_each(|(s, v)| *s += v);
                    }
                }
                out[strip..strip + width].copy_from_slice(&sums[..width]);
                strip += width;
            }
        },
    );
}
