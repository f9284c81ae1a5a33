//! Software prefetch.

/// Prefetches into the L2 cache, which allows more outstanding requests than L1.
#[inline(always)]
pub fn prefetch(numbers: &[f32]) {
    // If the slice is not aligned, its last element may lie on one more cache line.
    for line in numbers.chunks(16).chain(numbers.last().map(std::slice::from_ref)) {
        into_l2(line.as_ptr());
    }
}

/// Prefetches the cache line at `at` into L1; any address is valid, since one that is not mapped does nothing.
// What it reads, the program never sees.
#[allow(clippy::pointers_in_nomem_asm_block)]
#[inline(always)]
pub(super) fn into_l1(at: *const f32) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch has no visible effect and never faults; SSE is part of x86-64.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a prefetch has no visible effect and never faults.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{}]", in(reg) at, options(nomem, nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = at;
}

/// Prefetches the cache line at `at` into L2; any address is valid.
#[allow(clippy::pointers_in_nomem_asm_block)]
#[inline(always)]
pub(super) fn into_l2(at: *const f32) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch has no visible effect and never faults; SSE is part of x86-64.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T1 }>(at.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a prefetch has no visible effect and never faults.
    unsafe {
        std::arch::asm!("prfm pldl2keep, [{}]", in(reg) at, options(nomem, nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = at;
}
