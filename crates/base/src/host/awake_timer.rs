//! Measures how long a wait has lasted, to tell a hung device from a slow one.

use std::time::{Duration, Instant};

/// The most that is counted between two calls.
const LONGEST: Duration = Duration::from_secs(1);

/// Measures a wait whose caller reads this timer more often than once a second. If the process was stopped
/// for an hour (Ctrl-Z, a suspended job), that counts as one second, since whatever it waits for may have
/// been stopped too.
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
