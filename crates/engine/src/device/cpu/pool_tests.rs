//! Every tile and pass is taken once, and a tile's passes run in order, even if a member is slow or lost.

use std::sync::{Arc, Mutex};

use super::*;
use crate::{
    device::cpu::{
        arena::Prover,
        team::{Team, WorkerToken},
    },
    op::{Access, BufferId, Slice},
    program::MemoryPlan,
    vector::matmul::Kernel,
};

const ROWS: usize = 200;
const WIDTH: usize = 3;

struct Shared {
    arena: Arena,
    pool: Pool,
    /// Finished turns in order: use, pass, tile.
    taken: Mutex<Vec<(usize, usize, usize)>>,
}

impl Shared {
    fn taken(&self) -> usize {
        self.taken.lock().expect("no panic").len()
    }
}

fn shared(threads: usize) -> Shared {
    let mut plan = MemoryPlan::default();
    plan.add(BufferId(1), ROWS * WIDTH);
    let arena = Arena::new(plan).expect("memory");
    let access = Access::new([], [Slice { buffer: BufferId(1), offset: 0, len: ROWS * WIDTH }]);
    let access = Prover::new(&arena, false).verify(threads, &access).expect("no conflict");
    // The terms are split into three blocks, so a tile has three passes.
    let grid = Kernel::portable().grid([ROWS, 900, 64], true, threads);
    assert_eq!(grid.passes(), 3);
    Shared { arena, pool: Pool::new(access, grid, [WIDTH, 0], threads), taken: Mutex::default() }
}

/// Runs the pool with two members: the caller and another thread.
fn pair<R>(
    all: &Arc<Shared>,
    caller: impl FnOnce(&Shared, WorkerToken<'_>) -> Result<R, Lost>,
    other: impl Fn(&Shared, WorkerToken<'_>) -> Result<(), Lost> + Send + Sync + 'static,
) -> Result<R, Lost> {
    let theirs = Arc::clone(all);
    let mut team = Team::new(2, move |token| other(&theirs, token)).expect("threads");
    team.run(|token| caller(all, token))
}

/// Takes part in one use of the pool; `work` gives the number of spins per tile.
fn go(
    shared: &Shared,
    token: &WorkerToken<'_>,
    used: usize,
    work: impl Fn(usize) -> usize,
) -> Result<(), Lost> {
    let Shared { arena, pool, taken } = shared;
    token.wait()?;
    // SAFETY: every member enters once between two barriers.
    let mut turns = unsafe { pool.enter(arena, token.member()) };
    while let Some(mut turn) = turns.next(|| token.is_lost())? {
        let (pass, tile) = (turn.turn().pass, turn.turn().tile);
        for _ in 0..work(tile) {
            std::hint::spin_loop();
        }
        let [out, _] = turn.out();
        // The result of the previous pass is visible, whichever member computed it.
        let before = (used * 3 + pass) as f32;
        assert!(out.iter().all(|x| *x == before), "use {used}, pass {pass}, tile {tile}: {out:?}");
        out.iter_mut().for_each(|x| *x += 1.0);
        taken.lock().expect("no panic").push((used, pass, tile));
        turn.finish();
    }
    token.wait()
}

#[test]
fn every_turn_is_taken_once_and_a_tiles_passes_follow_each_other() {
    for threads in [1, 2, 3, 5] {
        // Another member is slow in each use, so that the others take over its tiles.
        let slow = move |used: usize, member: usize| if used % threads == member { 3000 } else { 10 };
        const USES: usize = 40;
        let state = Arc::new(shared(threads));
        let body = {
            let state = Arc::clone(&state);
            move |token: WorkerToken<'_>| {
                let member = token.member();
                (0..USES)
                    .try_for_each(|used| go(&state, &token, used, |tile| slow(used, member) * (tile % 3)))
            }
        };
        let own = body.clone();
        let mut team = Team::new(threads, body).expect("threads");
        assert_eq!(team.run(own), Ok(()));
        drop(team);
        let taken = state.taken.lock().expect("no panic");
        let tiles = state.pool.grid.tiles();
        let mut sorted = taken.clone();
        sorted.sort_unstable();
        let expected: Vec<_> = (0..USES)
            .flat_map(|used| (0..3).flat_map(move |pass| (0..tiles).map(move |tile| (used, pass, tile))))
            .collect();
        assert_eq!(sorted, expected);
    }
}

#[test]
fn counters_may_overflow() {
    let all = Arc::new(shared(2));
    // The state just before the counter wraps: it does so between the next two uses.
    let used = u32::MAX;
    for queue in &all.pool.queues {
        let state = State { pass: used.wrapping_mul(3), front: 0, back: queue.tiles as u16 };
        queue.state.store(state.bits(), Ordering::Relaxed);
        queue.entered.store(used, Ordering::Relaxed);
    }
    all.pool.done.iter().for_each(|done| done.store(used.wrapping_mul(3), Ordering::Relaxed));
    let uses =
        |all: &Shared, token: WorkerToken<'_>| (0..3).try_for_each(|used| go(all, &token, used, |_| 0));
    assert_eq!(pair(&all, uses, uses), Ok(()));
    assert_eq!(all.taken.lock().expect("no panic").len(), 3 * 3 * all.pool.grid.tiles());
}

#[test]
fn what_a_slow_member_leaves_is_done_by_others() {
    let all = Arc::new(shared(2));
    let [own, slow] = [0, 1].map(|member: usize| all.pool.queues[member].tiles);
    // All but the slow member's first tile, and the last pass of its other tiles, which waits for that one.
    let possible = 3 * own + 2 * (slow - 1);
    let is_left = Arc::new(AtomicU32::new(0));
    let left = Arc::clone(&is_left);
    let other = move |all: &Shared, token: WorkerToken<'_>| {
        token.wait()?;
        // SAFETY: every member enters once between two barriers.
        let mut turns = unsafe { all.pool.enter(&all.arena, token.member()) };
        let first = turns.next(|| token.is_lost())?.expect("its own first tile");
        assert_eq!((first.turn().pass, first.turn().tile), (0, own));
        token.wait()?;
        while all.taken() < possible && left.load(Ordering::Acquire) == 0 {
            std::thread::yield_now();
        }
        let done = all.taken();
        first.finish();
        // Any member may take the rest.
        while let Some(taken) = turns.next(|| token.is_lost())? {
            taken.finish();
        }
        assert_eq!(done, possible);
        token.wait()
    };
    let caller = |all: &Shared, token: WorkerToken<'_>| {
        token.wait()?;
        // SAFETY: as above.
        let mut turns = unsafe { all.pool.enter(&all.arena, token.member()) };
        // Wait until the slow member has its first tile: a fast one would take that too.
        token.wait()?;
        while let Some(taken) = turns.next(|| token.is_lost())? {
            all.taken.lock().expect("no panic").push((0, taken.turn().pass, taken.turn().tile));
            taken.finish();
        }
        is_left.store(1, Ordering::Release);
        token.wait()
    };
    assert_eq!(pair(&all, caller, other), Ok(()));
}

#[test]
fn a_tile_of_a_member_that_is_gone_is_not_waited_for() {
    let other = |all: &Shared, token: WorkerToken<'_>| -> Result<(), Lost> {
        token.wait()?;
        // SAFETY: each member enters once.
        let mut turns = unsafe { all.pool.enter(&all.arena, token.member()) };
        // Takes a tile and never finishes it.
        turns.next(|| token.is_lost()).map(drop)?;
        token.wait()?;
        Err(Lost)
    };
    let caller = |all: &Shared, token: WorkerToken<'_>| {
        token.wait()?;
        // SAFETY: as above.
        let mut turns = unsafe { all.pool.enter(&all.arena, token.member()) };
        // Wait until the other member has taken its tile.
        token.wait()?;
        while let Some(taken) = turns.next(|| token.is_lost())? {
            taken.finish();
        }
        Ok(())
    };
    let lost = pair(&Arc::new(shared(2)), caller, other);
    assert_eq!(lost, Err(Lost), "by the wait for that tile: all others are there");
}

#[test]
fn only_what_a_queue_can_count_is_shared() {
    assert!(fits(4, 4) && !fits(3, 4));
    assert!(fits(2 * 65_535, 2) && !fits(2 * 65_535 + 1, 2));
}
