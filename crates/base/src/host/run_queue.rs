//! How long a thread was ready to run while others held the cores.
//!
//! From `/proc/self/task/TID/schedstat`, whose second number is the time on a run queue in ns (Documentation/scheduler/
//! sched-stats.rst of Linux).

use std::{fs, time::Duration};

/// The number of the calling thread; `None` where the system does not tell.
pub fn thread() -> Option<u32> {
    fs::read_link("/proc/thread-self").ok()?.file_name()?.to_str()?.parse().ok()
}

/// How long a thread of this process has waited for a core since it began; `None` where the system does not count it.
pub fn waited(thread: u32) -> Option<Duration> {
    waited_in(&fs::read_to_string(format!("/proc/self/task/{thread}/schedstat")).ok()?)
}

fn waited_in(schedstat: &str) -> Option<Duration> {
    schedstat.split_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_number_is_the_wait() {
        assert_eq!(waited_in("1016036 2889260 2\n"), Some(Duration::from_nanos(2_889_260)));
        assert_eq!(waited_in("1016036\n"), None);
    }

    #[test]
    fn a_wait_does_not_shrink() {
        let Some(thread) = thread() else { return };
        let Some(before) = waited(thread) else { return };
        std::thread::yield_now();
        assert!(waited(thread).is_some_and(|after| after >= before));
        assert_eq!(waited(0), None);
    }
}
