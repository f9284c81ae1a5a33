//! Huge pages for large buffers.
//!
//! Random access to rows misses the TLB once the rows cover more pages than it holds: about 6 MB in pages of
//! 4 KiB, a thousand times as much in pages of 2 MiB.

use std::mem::MaybeUninit;

/// Bytes of a huge page on x86-64 and, with base pages of 4 KiB, on AArch64. Elsewhere the system rounds the
/// range.
const PAGE: usize = 2 << 20;

/// Advises the system to use huge pages for the part of unwritten memory that consists of whole huge pages.
/// No effect if the system refuses.
pub fn prefer_huge_pages<T>(room: &mut [MaybeUninit<T>]) {
    let (start, bytes) = (room.as_mut_ptr().cast::<u8>(), size_of_val(room));
    let skipped = start.align_offset(PAGE);
    let whole = bytes.saturating_sub(skipped) / PAGE * PAGE;
    #[cfg(target_os = "linux")]
    if whole > 0 {
        // SAFETY: the range lies within `room`, which is borrowed exclusively. The advice changes no visible
        // byte, and a failure has no effect.
        unsafe {
            libc::madvise(start.wrapping_add(skipped).cast(), whole, libc::MADV_HUGEPAGE);
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (start, whole);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_are_as_ever() {
        for bytes in [0, 1, PAGE - 1, PAGE, 3 * PAGE + 5] {
            let mut values: Vec<u8> = Vec::with_capacity(bytes);
            prefer_huge_pages(values.spare_capacity_mut());
            values.extend((0..bytes).map(|i| i as u8));
            prefer_huge_pages(values.spare_capacity_mut());
            assert!(values.iter().enumerate().all(|(i, &v)| v == i as u8));
        }
    }
}
