//! Fallible allocation of large buffers.

use crate::{host::prefer_huge_pages, units};

/// An empty buffer with capacity for `[rows, width]`, or on failure the bytes it would need.
pub(super) fn reserved(rows: usize, width: usize) -> Result<Vec<f32>, u128> {
    let bytes = rows as u128 * width as u128 * size_of::<f32>() as u128;
    let mut values = Vec::new();
    let count = rows.checked_mul(width).ok_or(bytes)?;
    values.try_reserve_exact(count).map_err(|_| bytes)?;
    prefer_huge_pages(values.spare_capacity_mut());
    Ok(values)
}

/// Reserves capacity for `more` elements.
pub(super) fn grow(values: &mut Vec<f32>, more: usize) -> Result<(), ()> {
    if values.capacity() - values.len() < more {
        values.try_reserve(more).map_err(drop)?;
        prefer_huge_pages(values.spare_capacity_mut());
    }
    Ok(())
}

/// Formats bytes for messages: `3.2 GiB`.
pub(super) fn size(bytes: u128) -> String {
    units::bytes(u64::try_from(bytes).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_what_no_memory_holds() {
        assert_eq!(reserved(usize::MAX, 2).err(), Some(usize::MAX as u128 * 8));
        assert_eq!(reserved(1 << 60, 1).err(), Some(1 << 62));
        assert_eq!(reserved(2, 3).map(|values| values.capacity()), Ok(6));
    }
}
