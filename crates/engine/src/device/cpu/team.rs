//! A team of threads that run one program together, with barriers that spin before they yield.
//!
//! Between two blocks of steps a worker spins for a while and then sleeps. A worker that panics or fails
//! marks the team as lost, so that no other thread waits for it.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle, Thread},
};

use crate::collective::give_way;

/// How often a wait spins before it yields: about ten microseconds. Spinning longer would help on an idle
/// machine, but is expensive when another process has taken the core of the thread that is waited for.
const SPINS: u32 = 300;

/// Turns of a wait, most of them yielding, before an idle worker sleeps.
const SLEEP_AFTER: u32 = 1_000;

/// A member of the team has failed, so the others have to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost;

#[derive(Default)]
pub struct Barrier {
    members: usize,
    arrived: AtomicUsize,
    generation: AtomicUsize,
    lost: AtomicBool,
}

impl Barrier {
    /// Ends all current and later waits.
    fn lose(&self) {
        self.lost.store(true, Ordering::Release);
    }

    /// Returns when all members have arrived, or an error if the team is lost.
    pub fn wait(&self) -> Result<(), Lost> {
        if self.lost.load(Ordering::Acquire) {
            return Err(Lost);
        }
        let generation = self.generation.load(Ordering::Acquire);
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.members {
            self.arrived.store(0, Ordering::Relaxed);
            self.generation.store(generation.wrapping_add(1), Ordering::Release);
            return Ok(());
        }
        let mut spins = 0u32;
        while self.generation.load(Ordering::Acquire) == generation {
            if self.lost.load(Ordering::Relaxed) {
                return Err(Lost);
            }
            spins = spins.saturating_add(1);
            if spins < SPINS { std::hint::spin_loop() } else { give_way() }
        }
        Ok(())
    }
}

/// Proof of being a certain member in a certain run of a team. Only [`Team`] creates tokens, one per member
/// and run, so no two threads ever have the same share of the work at the same time.
pub struct WorkerToken<'a> {
    member: usize,
    barrier: &'a Barrier,
}

impl WorkerToken<'_> {
    pub fn member(&self) -> usize {
        self.member
    }

    pub fn is_lost(&self) -> bool {
        self.barrier.lost.load(Ordering::Relaxed)
    }

    pub fn wait(&self) -> Result<(), Lost> {
        self.barrier.wait()
    }
}

#[derive(Default)]
struct Shared {
    barrier: Barrier,
    /// The number of runs started.
    block: AtomicUsize,
    quit: AtomicBool,
}

/// Member 0 is the caller; the others are threads of the team.
pub struct Team {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

impl Team {
    /// Starts `members - 1` threads that call `work` once for every [`Team::run`].
    pub fn new(
        members: usize,
        work: impl Fn(WorkerToken<'_>) -> Result<(), Lost> + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let barrier = Barrier { members, ..Barrier::default() };
        let shared = Arc::new(Shared { barrier, ..Shared::default() });
        let work = Arc::new(work);
        let mut team = Self { shared: Arc::clone(&shared), workers: Vec::new() };
        for member in 1..members {
            let (shared, work) = (Arc::clone(&shared), Arc::clone(&work));
            let body = move || serve(&shared, |barrier| work(WorkerToken { member, barrier }));
            team.workers.push(thread::Builder::new().name(format!("cpu-{member}")).spawn(body)?);
        }
        Ok(team)
    }

    /// Runs every member's work once. The caller is member 0 and runs `own`, which must wait at the barrier
    /// as often as the others do. It takes `&mut self` because a team has only one run at a time.
    pub fn run<R>(&mut self, own: impl FnOnce(WorkerToken<'_>) -> Result<R, Lost>) -> Result<R, Lost> {
        let barrier = &self.shared.barrier;
        let _watch = Watch(barrier);
        self.shared.block.fetch_add(1, Ordering::Release);
        self.workers.iter().map(JoinHandle::thread).for_each(Thread::unpark);
        let result = own(WorkerToken { member: 0, barrier }).inspect_err(|_| barrier.lose())?;
        // When this barrier opens, all members have finished their work.
        barrier.wait()?;
        Ok(result)
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.shared.quit.store(true, Ordering::Release);
        // Workers may still be waiting for the caller.
        self.shared.barrier.lose();
        self.workers.iter().map(JoinHandle::thread).for_each(Thread::unpark);
        for worker in self.workers.drain(..) {
            // A panicked worker has marked the team as lost, which `run` has reported.
            drop(worker.join());
        }
    }
}

/// Marks the team as lost when its holder unwinds.
struct Watch<'a>(&'a Barrier);

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.lose();
        }
    }
}

fn serve(shared: &Shared, work: impl Fn(&Barrier) -> Result<(), Lost>) {
    let _watch = Watch(&shared.barrier);
    let mut seen = 0;
    loop {
        let mut spins = 0u32;
        while shared.block.load(Ordering::Acquire) == seen {
            if shared.quit.load(Ordering::Acquire) {
                return;
            }
            spins = spins.saturating_add(1);
            match spins {
                ..SPINS => std::hint::spin_loop(),
                SPINS..SLEEP_AFTER => give_way(),
                _ => thread::park(),
            }
        }
        seen = seen.wrapping_add(1);
        if work(&shared.barrier).and_then(|()| shared.barrier.wait()).is_err() {
            shared.barrier.lose();
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn members_wait_and_see_what_the_others_wrote() {
        let cells: Arc<Vec<AtomicU64>> = Arc::new((0..3).map(|_| AtomicU64::new(0)).collect());
        let body = {
            let cells = Arc::clone(&cells);
            move |token: WorkerToken<'_>| {
                for round in 1..=100 {
                    cells[token.member()].store(round, Ordering::Relaxed);
                    token.wait()?;
                    assert!(cells.iter().all(|c| c.load(Ordering::Relaxed) == round));
                    token.wait()?;
                }
                Ok(())
            }
        };
        let own = body.clone();
        let mut team = Team::new(3, body).expect("threads");
        for _ in 0..20 {
            assert_eq!(team.run(&own), Ok(()));
        }
    }

    #[test]
    fn a_lost_member_ends_the_wait() {
        let mut team =
            Team::new(2, |_| -> Result<(), Lost> { std::panic::panic_any("planted") }).expect("threads");
        assert_eq!(team.run(|token| token.wait().and_then(|()| token.wait())), Err(Lost));
        assert_eq!(team.run(|token| token.wait()), Err(Lost), "and every later one");
    }

    #[test]
    fn a_caller_that_panics_leaves_nobody_waiting() {
        let mut team = Team::new(3, |token| token.wait().and_then(|()| token.wait())).expect("threads");
        let run = std::panic::AssertUnwindSafe(|| {
            let _: Result<(), Lost> = team.run(|_| std::panic::panic_any("planted"));
        });
        assert!(std::panic::catch_unwind(run).is_err());
        // This joins the workers: the test would hang if one of them were still waiting.
        drop(team);
    }
}
