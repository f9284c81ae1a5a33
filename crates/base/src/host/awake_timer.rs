//! The time of a wait, for limits that tell a device that hangs from one that is slow.

use std::time::{Duration, Instant};

/// The most that counts between two looks.
const LONGEST: Duration = Duration::from_secs(1);

/// Counts the time of a wait that looks at it more often than once a second. A process that was stopped for an hour (Ctrl-Z,
/// a suspended job) has waited for a second then, since those that it waits for were stopped, too.
pub struct AwakeTimer {
    last: Instant,
    elapsed: Duration,
}

impl AwakeTimer {
    pub fn start() -> Self {
        Self { last: Instant::now(), elapsed: Duration::ZERO }
    }

    pub fn elapsed(&mut self) -> Duration {
        let now = Instant::now();
        self.elapsed += now.saturating_duration_since(self.last).min(LONGEST);
        self.last = now;
        self.elapsed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_hour_without_a_look_counts_for_a_second() {
        let mut timer = AwakeTimer::start();
        let Some(long_ago) = timer.last.checked_sub(Duration::from_secs(3600)) else { return };
        timer.last = long_ago;
        assert_eq!(timer.elapsed(), LONGEST);
        timer.last -= Duration::from_millis(10);
        assert!(timer.elapsed() >= LONGEST + Duration::from_millis(10));
    }
}
