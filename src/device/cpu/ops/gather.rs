//! Fetching the rows of a batch.

use super::super::simd;

/// How far ahead rows are asked for, in numbers: 24 KiB, a small part of the second-level cache, and several times what a
/// core has under way from memory at a time.
const AHEAD: usize = 6144;

/// And in rows: at least of long ones, at most of short ones.
const ROWS_AHEAD: [usize; 2] = [2, 48];

/// Copies rows `order[0], order[1], ...` of `from` (`[_, width]`) to `to`.
pub fn gather(from: &[f32], order: &[u32], width: usize, to: &mut [f32]) {
    match width {
        // A constant width turns the copy of a tiny row into a move.
        1 => gather_rows::<1>(from, order, to),
        2 => gather_rows::<2>(from, order, to),
        3 => gather_rows::<3>(from, order, to),
        4 => gather_rows::<4>(from, order, to),
        _ => {
            let ahead = (AHEAD / width.max(1)).clamp(ROWS_AHEAD[0], ROWS_AHEAD[1]);
            for (i, (row, to)) in order.iter().zip(to.chunks_exact_mut(width)).enumerate() {
                if let Some(next) = order.get(i + ahead) {
                    simd::prefetch(&from[*next as usize * width..][..width]);
                }
                to.copy_from_slice(&from[*row as usize * width..][..width]);
            }
        }
    }
}

fn gather_rows<const WIDTH: usize>(from: &[f32], order: &[u32], to: &mut [f32]) {
    let (from, to) = (from.as_chunks::<WIDTH>().0, to.as_chunks_mut::<WIDTH>().0);
    for (row, to) in order.iter().zip(to) {
        *to = from[*row as usize];
    }
}
