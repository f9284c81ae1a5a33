//! Copies of rows in any order.

use crate::prefetch;

/// Prefetch distance in elements: 24 KiB. That is a small part of the L2 cache, and several times what a core
/// can have in flight from memory.
const AHEAD: usize = 6144;

/// Limits of the prefetch distance in rows: the minimum applies to long rows, the maximum to short ones.
const ROWS_AHEAD: [usize; 2] = [2, 48];

/// Copies rows `order[0], order[1], ...` of `from` (`[_, width]`) to `to`.
///
/// # Panics
/// If `from` lacks one of the rows.
pub fn gather(from: &[f32], order: &[u32], width: usize, to: &mut [f32]) {
    match width {
        // With a constant width the copy of a tiny row becomes a few moves.
        1 => gather_rows::<1>(from, order, to),
        2 => gather_rows::<2>(from, order, to),
        3 => gather_rows::<3>(from, order, to),
        4 => gather_rows::<4>(from, order, to),
        _ => {
            let ahead = (AHEAD / width.max(1)).clamp(ROWS_AHEAD[0], ROWS_AHEAD[1]);
            for (i, (row, to)) in order.iter().zip(to.chunks_exact_mut(width)).enumerate() {
                if let Some(next) = order.get(i + ahead) {
                    prefetch(&from[*next as usize * width..][..width]);
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
