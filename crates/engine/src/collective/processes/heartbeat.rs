//! Heartbeats: in each process a thread sends them and checks those of other ranks.
//!
//! Silence is counted in rounds of this thread's loop, not by a clock. So a process that was suspended, or
//! had no core for a while, does not conclude that the others are gone.

use std::{
    io,
    sync::{Arc, atomic::Ordering},
    thread::{self, JoinHandle},
    time::Duration,
};

use super::{ProcessGroup, Tag, Transfer};

/// The time between two heartbeats.
const INTERVAL: Duration = Duration::from_millis(100);

/// The time between two heartbeats while this rank leaves the job.
const LAST_INTERVAL: Duration = Duration::from_millis(1);

/// The silence that is enough once this process was asked to end: a launcher that ends the job because a rank
/// is gone gives the others only about a second.
const ENDING_TIMEOUT: Duration = Duration::from_millis(600);

/// After this time in one call, MPI counts as stuck. It may hang in the call in which it learns that a rank
/// was killed.
const CALL_TIMEOUT: Duration = Duration::from_millis(400);

const LIVES: u8 = 1;
const ABORTS: u8 = 2;
const LEAVES: u8 = 3;

/// The state of the connection to another rank.
struct Other {
    rank: usize,
    /// The last heartbeat to it, until it has been sent.
    given: Option<Box<dyn Transfer>>,
    /// Whether it was told that this rank leaves.
    is_told: bool,
    /// Receives its next heartbeat; `None` once it has left.
    next: Option<Box<dyn Transfer>>,
    /// The time since its last heartbeat.
    silent: Duration,
    /// The time since this process was asked to end.
    ending: Duration,
    /// The value of `ending` when its last heartbeat arrived.
    heard_at: Duration,
}

/// Starts the thread. It ends once this rank and the others have left, so that no message is pending, as MPI
/// requires.
pub(super) fn start(world: &Arc<ProcessGroup>) -> io::Result<JoinHandle<()>> {
    let world = Arc::clone(world);
    let leads = world.rank() == 0;
    let others = if leads { 1..world.size() } else { 0..1 };
    let mut others: Vec<_> = others.map(|rank| Other::new(&world, rank)).collect();
    let mut stuck = Stuck { call: None, since: Duration::ZERO };
    let beat = move || loop {
        let is_over = world.is_over.load(Ordering::Acquire);
        let pause = if is_over { LAST_INTERVAL } else { INTERVAL };
        if stuck.look(world.transport.call(), pause) {
            world.is_stuck.store(true, Ordering::Relaxed);
            let names: Vec<_> = others.iter().map(|other| world.name_of(other.rank)).collect();
            world.lose(
                names.join("` or `"),
                "MPI does not return from a call, as where a rank was killed".to_owned(),
            );
        }
        others.retain_mut(|other| other.look(&world, is_over, pause));
        if is_over && (others.is_empty() || world.lost().is_some()) {
            return;
        }
        thread::sleep(pause);
    };
    thread::Builder::new().name("heartbeat".to_owned()).spawn(beat)
}

/// The call in which the transport was found, and how long it has been the same one. Each call has a number,
/// because threads that share a core may be found in one call after another.
struct Stuck {
    call: Option<u64>,
    since: Duration,
}

impl Stuck {
    /// Whether the call counts as stuck.
    fn look(&mut self, call: Option<u64>, pause: Duration) -> bool {
        let before = if call == self.call { self.since } else { Duration::ZERO };
        (self.call, self.since) = (call, if call.is_some() { before + pause } else { Duration::ZERO });
        self.since >= CALL_TIMEOUT
    }
}

impl Other {
    fn new(world: &ProcessGroup, rank: usize) -> Self {
        let next = Some(world.transport.receive(rank, Tag::Heartbeat, 1));
        Self {
            rank,
            given: None,
            is_told: false,
            next,
            silent: Duration::ZERO,
            ending: Duration::ZERO,
            heard_at: Duration::ZERO,
        }
    }

    /// One round of checks. Returns whether this rank has to be checked further.
    fn look(&mut self, world: &ProcessGroup, is_over: bool, pause: Duration) -> bool {
        let is_ending = world.signal.load(Ordering::Relaxed) != 0;
        match self.exchange(world, is_over) {
            Ok(true) => (self.silent, self.heard_at) = (Duration::ZERO, self.ending),
            Ok(false) => self.silent += pause,
            Err(why) => {
                world.lose(world.name_of(self.rank), format!("its connection failed ({why})"));
                return false;
            }
        }
        self.ending += if is_ending { pause } else { Duration::ZERO };
        // A heartbeat may have been on its way when the rank was killed.
        let has_outlived = self.heard_at > 2 * INTERVAL;
        let limit =
            if is_ending && !has_outlived { ENDING_TIMEOUT.min(world.limit()) } else { world.limit() };
        if self.silent >= limit {
            let waited = crate::units::seconds(self.silent.as_secs_f64());
            world.lose(world.name_of(self.rank), format!("no sign of life for {waited}"));
            return false;
        }
        !(self.is_told && self.given.is_none() && self.next.is_none())
    }

    /// Sends and receives what is possible without waiting. Returns whether a heartbeat has arrived.
    fn exchange(&mut self, world: &ProcessGroup, is_over: bool) -> Result<bool, String> {
        if let Some(given) = &mut self.given
            && given.poll()?.is_some()
        {
            self.given = None;
        }
        if self.given.is_none() && !self.is_told {
            self.is_told = is_over;
            let sign = match is_over {
                true => LEAVES,
                false if world.is_poisoned() => ABORTS,
                false => LIVES,
            };
            self.given = Some(world.transport.send(self.rank, Tag::Heartbeat, vec![sign]));
        }
        let mut is_heard = false;
        while let Some(next) = &mut self.next {
            let Some(sign) = next.poll()? else { break };
            is_heard = true;
            if sign == [ABORTS] {
                world.is_poisoned.store(true, Ordering::Release);
            }
            self.next = (sign != [LEAVES]).then(|| world.transport.receive(self.rank, Tag::Heartbeat, 1));
        }
        Ok(is_heard)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_call_that_does_not_return_is_stuck() {
        let mut stuck = Stuck { call: None, since: Duration::ZERO };
        assert!((0..100).all(|call| !stuck.look(Some(call), INTERVAL)), "each is another call");
        let looks = (0..100).take_while(|_| !stuck.look(Some(99), INTERVAL)).count();
        assert_eq!(looks, 2, "the last of them does not return");
        assert!(!stuck.look(None, INTERVAL) && !stuck.look(Some(99), INTERVAL));
    }
}
