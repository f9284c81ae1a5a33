//! Software prefetch.

/// Prefetches into the L2 cache, which allows more outstanding requests than L1.
#[inline(always)]
pub fn prefetch(numbers: &[f32]) {
    #[cfg(target_arch = "x86_64")]
    // If the slice is not aligned, its last element may lie on one more cache line.
    for line in numbers.chunks(16).chain(numbers.last().map(std::slice::from_ref)) {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        // SAFETY: a prefetch has no visible effect and never faults; SSE is part of x86-64.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(line.as_ptr().cast()) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = numbers;
}
