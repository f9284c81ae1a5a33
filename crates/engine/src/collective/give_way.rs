//! How a thread that waits for another lets go of its core.
//!
//! A thread that yields to a process that computes gets its core back after that process's time slice, milliseconds later; a team
//! would pay that at each barrier. One that sleeps for a moment runs again ahead of that process. On a core of its own a yield
//! returns at once, and a sleep takes longer.

use std::{
    cell::Cell,
    thread,
    time::{Duration, Instant},
};

/// A yield that takes longer than this gave the core to a process that used up its time slice.
const SLICE: Duration = Duration::from_millis(1);

/// How long a thread sleeps after such a yield instead of yielding again.
const CROWDED: Duration = Duration::from_millis(250);

/// The system adds some 50 microseconds.
const MOMENT: Duration = Duration::from_nanos(1);

thread_local! {
    static CORE: Cell<Core> = const { Cell::new(Core { crowded_until: None }) };
}

/// What a thread knows about the other processes on its core.
#[derive(Clone, Copy, Default)]
struct Core {
    crowded_until: Option<Instant>,
}

impl Core {
    fn is_crowded(self, now: Instant) -> bool {
        self.crowded_until.is_some_and(|until| now < until)
    }

    /// After a yield.
    fn after_yield(self, begun: Instant, now: Instant) -> Self {
        if now - begun > SLICE { Self { crowded_until: Some(now + CROWDED) } } else { self }
    }
}

/// Lets other threads run.
pub fn give_way() {
    let (core, begun) = (CORE.get(), Instant::now());
    if core.is_crowded(begun) {
        thread::sleep(MOMENT);
    } else {
        thread::yield_now();
        CORE.set(core.after_yield(begun, Instant::now()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_sleeps_after_a_yield_that_cost_a_time_slice() {
        let (mut core, begun) = (Core::default(), Instant::now());
        core = core.after_yield(begun, begun + Duration::from_micros(60));
        assert!(!core.is_crowded(begun), "a yield that returned soon");
        let now = begun + Duration::from_millis(4);
        core = core.after_yield(begun, now);
        assert!(core.is_crowded(now + Duration::from_millis(240)), "another process has the core");
        assert!(!core.is_crowded(now + CROWDED), "and a yield tells whether it still has");
    }
}
