//! Flushes denormals to zero: arithmetic on them is a hundred times slower, and training produces them (the
//! optimizer state of a dead unit). Without effect on processors that have no such switch.
//!
//! Rust folds constants in the default floating-point environment. Folded and computed tiny numbers may thus
//! differ, which is harmless here, since no decision depends on them.

/// x86-64: flush-to-zero (bit 15) and denormals-are-zero (bit 6) of MXCSR. aarch64: bit 24 of FPCR.
#[cfg(target_arch = "x86_64")]
const BITS: u64 = 0x8040;
#[cfg(not(target_arch = "x86_64"))]
const BITS: u64 = 1 << 24;

/// Flushes denormals in the calling thread for the rest of its life.
pub fn flush_denormals() {
    write(read() | BITS);
}

/// Whether denormals are flushed in the calling thread.
pub fn denormals_flushed() -> bool {
    read() & BITS == BITS
}

/// Flushes denormals in the current thread until it is dropped.
pub struct Flushed {
    before: u64,
    /// Not `Send`: the register belongs to the thread.
    _thread: std::marker::PhantomData<*const ()>,
}

impl Flushed {
    /// Flushes denormals from now on.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        let before = read();
        write(before | BITS);
        Self { before, _thread: std::marker::PhantomData }
    }
}

impl Drop for Flushed {
    fn drop(&mut self) {
        write(self.before);
    }
}

/// The calling thread's floating-point control register.
fn read() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        let mut mxcsr = 0u32;
        // SAFETY: stores the register, nothing else.
        unsafe { std::arch::asm!("stmxcsr [{}]", in(reg) &raw mut mxcsr, options(nostack, preserves_flags)) };
        u64::from(mxcsr)
    }
    #[cfg(target_arch = "aarch64")]
    {
        let fpcr: u64;
        // SAFETY: reads the register, nothing else.
        unsafe { std::arch::asm!("mrs {}, fpcr", out(reg) fpcr, options(nomem, nostack, preserves_flags)) };
        fpcr
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        0
    }
}

/// Sets the register. `value` may differ from the register's only in [`BITS`]: rounding and exceptions stay.
fn write(value: u64) {
    #[cfg(target_arch = "x86_64")]
    {
        let mxcsr = value as u32;
        // SAFETY: loads a value that was read from the same register, with only the two flushing bits
        // changed.
        unsafe {
            std::arch::asm!("ldmxcsr [{}]", in(reg) &raw const mxcsr, options(nostack, preserves_flags))
        };
    }
    #[cfg(target_arch = "aarch64")]
    {
        // SAFETY: as above, with only the flushing bit changed.
        unsafe { std::arch::asm!("msr fpcr, {}", in(reg) value, options(nomem, nostack, preserves_flags)) };
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = value;
}
