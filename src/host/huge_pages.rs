//! Large pages of memory for large buffers.
//!
//! Rows that are fetched in a random order cost a walk through the page tables each, once they cover more pages than the
//! processor keeps at hand: 6 MB or so in pages of 4 KiB, a thousand times as much in pages of 2 MiB.

use std::mem::MaybeUninit;

/// Bytes of a large page on x86-64 and, with small pages of 4 KiB, on AArch64. Where it is another size the system
/// rounds by itself.
const PAGE: usize = 2 << 20;

/// Asks the system to back room that is not yet written with large pages, as far as whole ones lie within it. Advice
/// only: where it is refused, or there are no such pages, nothing changes.
pub fn prefer_huge_pages<T>(room: &mut [MaybeUninit<T>]) {
    let (start, bytes) = (room.as_mut_ptr().cast::<u8>(), size_of_val(room));
    let skipped = start.align_offset(PAGE);
    let whole = bytes.saturating_sub(skipped) / PAGE * PAGE;
    if whole == 0 {
        return;
    }
    #[cfg(target_os = "linux")]
    // SAFETY: the range lies within `room`, which is borrowed exclusively; this advice changes no byte that the program
    // can see, and a failure leaves all as it was.
    unsafe {
        libc::madvise(start.wrapping_add(skipped).cast(), whole, libc::MADV_HUGEPAGE);
    }
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
