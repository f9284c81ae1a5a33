//! Numbers below the normal range, as zeros.

/// Makes the calling thread treat numbers below the normal range as 0, as operands and as results: arithmetic on them
/// is a hundred times slower, and a training run makes them (the moments of a dead unit). Nothing where the processor
/// has no such switch.
pub fn flush_denormals() {
    #[cfg(target_arch = "x86_64")]
    {
        let mut mxcsr = 0u32;
        // SAFETY: reads and writes the calling thread's SSE control register; only flush-to-zero (bit 15) and
        // denormals-are-zero (bit 6) change, no exception is unmasked.
        unsafe {
            std::arch::asm!("stmxcsr [{}]", in(reg) &raw mut mxcsr, options(nostack));
            mxcsr |= 0x8040;
            std::arch::asm!("ldmxcsr [{}]", in(reg) &raw const mxcsr, options(nostack));
        }
    }
    #[cfg(target_arch = "aarch64")]
    {
        // SAFETY: sets only bit 24 (flush to zero) of the calling thread's floating-point control register.
        unsafe {
            let mut fpcr: u64;
            std::arch::asm!("mrs {}, fpcr", out(reg) fpcr, options(nomem, nostack));
            fpcr |= 1 << 24;
            std::arch::asm!("msr fpcr, {}", in(reg) fpcr, options(nostack));
        }
    }
}

/// Whether [`flush_denormals`] is in force in the calling thread.
pub fn denormals_flushed() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        let mut mxcsr = 0u32;
        // SAFETY: reads the calling thread's SSE control register.
        unsafe { std::arch::asm!("stmxcsr [{}]", in(reg) &raw mut mxcsr, options(nostack)) };
        mxcsr & 0x8040 == 0x8040
    }
    #[cfg(target_arch = "aarch64")]
    {
        let fpcr: u64;
        // SAFETY: reads the calling thread's floating-point control register.
        unsafe { std::arch::asm!("mrs {}, fpcr", out(reg) fpcr, options(nomem, nostack)) };
        fpcr & (1 << 24) != 0
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        false
    }
}
