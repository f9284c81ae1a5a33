//! How long a thread was ready to run while others used the cores.

use std::time::Duration;

/// The total time that the calling thread has waited on a run queue: the second number of
/// `/proc/thread-self/schedstat`, in ns (see sched-stats.rst of Linux). `None` if the system does not count
/// it.
pub fn run_delay() -> Option<Duration> {
    delay_in(&super::read_proc("/proc/thread-self/schedstat")?)
}

fn delay_in(schedstat: &str) -> Option<Duration> {
    schedstat.split_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_number_is_the_delay() {
        assert_eq!(delay_in("1016036 2889260 2\n"), Some(Duration::from_nanos(2_889_260)));
        assert_eq!(delay_in("1016036\n"), None);
    }

    #[test]
    fn a_delay_does_not_shrink() {
        let Some(before) = run_delay() else { return };
        std::thread::yield_now();
        assert!(run_delay().is_some_and(|after| after >= before));
    }
}
