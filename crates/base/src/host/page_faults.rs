//! Counts a thread's page faults, and measures the time of one.

use std::{hint::black_box, sync::LazyLock, time::Instant};

/// Page faults of the calling thread since it started, with and without disk access. `None` if the system
/// does not count them, as macOS, which counts those of whole processes.
pub fn page_faults() -> Option<u64> {
    #[cfg(target_os = "macos")]
    return None;
    #[cfg(not(target_os = "macos"))]
    {
        let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: the pointer is to a struct of the type that getrusage(2) fills, for which all-zero bytes are
        // valid.
        let usage = unsafe {
            if libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) != 0 {
                return None;
            }
            usage.assume_init()
        };
        u64::try_from(usage.ru_minflt + usage.ru_majflt).ok()
    }
}

/// Seconds per page fault without disk access, measured once per process on fresh pages touched one after the
/// other.
pub fn page_fault_s() -> f64 {
    static SECONDS: LazyLock<f64> = LazyLock::new(|| {
        const PAGE: usize = 4096;
        // The allocator gets a block this large directly from the system, and returns it.
        let mut fresh = Vec::<u8>::with_capacity(128 * PAGE);
        let (before, start) = (page_faults(), Instant::now());
        for page in black_box(&mut fresh).spare_capacity_mut().chunks_mut(PAGE) {
            page[0].write(1);
        }
        let seconds = start.elapsed().as_secs_f64();
        let faults = before.zip(page_faults()).map_or(0, |(before, after)| after - before);
        if faults == 0 { 0.0 } else { seconds / faults as f64 }
    });
    *SECONDS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fresh_pages_are_counted_and_take_their_time() {
        let before = page_faults().expect("a count");
        let fresh = black_box(vec![1_u8; 4 << 20]);
        // With huge pages this takes only two faults.
        assert!(page_faults().expect("a count") >= before + 2, "{} bytes", fresh.len());
        assert!((0.0..1e-3).contains(&page_fault_s()), "{}", page_fault_s());
    }
}
