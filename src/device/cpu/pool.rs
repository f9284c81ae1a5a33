//! Tiles of one product, for a team: every thread works through a share of its own, and then through what others have left.
//!
//! Threads of the same machine are not equally fast: a neighbour on the same core, a smaller core, an interrupt. With fixed
//! shares all wait for the slowest in every stage; here the wait is that of one tile. Who computes a tile changes no bit.
//!
//! A share is a queue: the current pass, and the first and last tile of it that nobody has taken, in one atomic number. The
//! owner takes tiles from the front, others from the back, so that the owner's way stays the one that its caches expect.
//! Passes of a tile must follow each other: `done` counts them, and a tile is entered only when the pass before is over.
//! Nothing is ever set back: counters go on from one use of the pool to the next, and every member counts its uses itself.

use std::{
    ops::Range,
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
};

use super::{
    arena::{Arena, Verified},
    matmul::{Grid, Turn},
    team::Lost,
};

/// Turns of the spinning wait for a tile's earlier pass before it begins to yield: one in a tile of a few microseconds.
const SPINS: u32 = 300;

/// A member's share, on a cache line of its own and of the one that is fetched with it.
#[repr(align(128))]
struct Queue {
    /// See [`State`].
    state: AtomicU64,
    /// How often the member has entered. Only it writes here.
    entered: AtomicU32,
    /// Its first tile.
    first: usize,
    tiles: usize,
}

/// What a queue holds: pass, counted over all uses; first and end of the tiles that are left of it.
#[derive(Clone, Copy)]
struct State {
    pass: u32,
    front: u16,
    back: u16,
}

impl State {
    fn of(bits: u64) -> Self {
        Self { pass: (bits >> 32) as u32, front: (bits >> 16) as u16, back: bits as u16 }
    }

    fn bits(self) -> u64 {
        u64::from(self.pass) << 32 | u64::from(self.front) << 16 | u64::from(self.back)
    }
}

/// Which end of a queue.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Front,
    Back,
}

/// A product's tiles with what they read and write.
pub struct Pool {
    access: Verified,
    grid: Grid,
    /// Numbers in a row of each of the first two writes.
    widths: [usize; 2],
    queues: Box<[Queue]>,
    /// By tile: passes that are over, counted over all uses.
    done: Box<[AtomicU32]>,
}

impl Pool {
    /// Whether so many tiles can be shared by so many threads.
    pub fn fits(tiles: usize, threads: usize) -> bool {
        tiles >= threads && tiles.div_ceil(threads) <= usize::from(u16::MAX)
    }

    /// The tiles of `grid`, of which each writes its rows of `access`'s first two writes, in equal shares.
    ///
    /// # Panics
    /// Where the tiles do not [`fit`](Self::fits) so many threads: no two queues may hold the same tile.
    pub fn new(access: Verified, grid: Grid, widths: [usize; 2], threads: usize) -> Self {
        assert!(Self::fits(grid.tiles(), threads), "each thread has a tile, and no more than it can count");
        let bound = |t: usize| grid.tiles() * t / threads;
        let queue = |t: usize| {
            let (first, tiles) = (bound(t), bound(t + 1) - bound(t));
            let state = State { pass: 0, front: 0, back: tiles as u16 };
            Queue { state: AtomicU64::new(state.bits()), entered: AtomicU32::new(0), first, tiles }
        };
        let done = (0..grid.tiles()).map(|_| AtomicU32::new(0)).collect();
        Self { access, grid, widths, queues: (0..threads).map(queue).collect(), done }
    }

    /// A member's way through the pool, once for each use.
    ///
    /// # Safety
    /// `arena` is the one that verified the access, as one that all members of the team share, and `member` is the caller's
    /// number in the team. Every member enters once between the same two barriers, and is done with it before the second;
    /// it holds no other slice of the arena meanwhile.
    pub unsafe fn enter<'a>(&'a self, arena: &'a Arena, member: usize) -> Turns<'a> {
        let used = self.queues[member].entered.fetch_add(1, Ordering::Relaxed);
        let base = used.wrapping_mul(self.passes());
        // SAFETY: the caller's word; writes are lent by tile, see `Taken::out`.
        let reads = unsafe { self.access.borrow_reads(arena) };
        Turns { pool: self, arena, member, base, reads }
    }

    fn passes(&self) -> u32 {
        self.grid.passes() as u32
    }

    /// Takes the next tile of a queue: its pass in this use, and its number.
    fn take(&self, queue: &Queue, base: u32, end: End) -> Option<(u32, usize)> {
        let mut bits = queue.state.load(Ordering::Relaxed);
        loop {
            let State { pass, front, back } = State::of(bits);
            let now = pass.wrapping_sub(base);
            if now >= self.passes() {
                return None;
            }
            let (tile, front, back) = match end {
                End::Front => (front, front + 1, back),
                End::Back => (back - 1, front, back - 1),
            };
            let after = match front == back {
                true => State { pass: pass.wrapping_add(1), front: 0, back: queue.tiles as u16 },
                false => State { pass, front, back },
            };
            // What tiles hold is handed on by `done`: this only counts.
            let swap =
                queue.state.compare_exchange_weak(bits, after.bits(), Ordering::Relaxed, Ordering::Relaxed);
            match swap {
                Ok(_) => return Some((now, queue.first + usize::from(tile))),
                Err(other) => bits = other,
            }
        }
    }

    /// How many tiles a queue has left in this use.
    fn left(&self, queue: &Queue, base: u32) -> usize {
        let State { pass, front, back } = State::of(queue.state.load(Ordering::Relaxed));
        let passes = self.passes().saturating_sub(pass.wrapping_sub(base)) as usize;
        (passes * queue.tiles).saturating_sub(queue.tiles - usize::from(back.saturating_sub(front)))
    }
}

/// A member's way through a pool.
pub struct Turns<'a> {
    pool: &'a Pool,
    arena: &'a Arena,
    member: usize,
    base: u32,
    reads: [&'a [f32]; 4],
}

impl<'a> Turns<'a> {
    /// The tiles.
    pub fn grid(&self) -> &'a Grid {
        &self.pool.grid
    }

    /// The member's part of `n` things of which each member has as many.
    pub fn share(&self, n: usize) -> Range<usize> {
        let bound = |member: usize| n * member / self.pool.queues.len();
        bound(self.member)..bound(self.member + 1)
    }

    /// What all tiles read.
    pub fn reads(&self) -> [&'a [f32]; 4] {
        self.reads
    }

    /// The next turn; `None` when all are taken. Waits where another member is still at the same tile's pass before.
    pub fn next(&mut self, lost: impl Fn() -> bool) -> Result<Option<Taken<'_>>, Lost> {
        let Some((pass, tile, among)) = self.claim() else { return Ok(None) };
        let (done, mut spins) = (&self.pool.done[tile], 0u32);
        let before = self.base.wrapping_add(pass);
        while done.load(Ordering::Acquire) != before {
            if lost() {
                return Err(Lost);
            }
            spins = spins.saturating_add(1);
            if spins < SPINS { std::hint::spin_loop() } else { std::thread::yield_now() }
        }
        let turn = Turn { pass: pass as usize, tile, among };
        Ok(Some(Taken { pool: self.pool, arena: self.arena, turn, after: before.wrapping_add(1) }))
    }

    fn claim(&self) -> Option<(u32, usize, Range<usize>)> {
        let Self { pool, member, base, .. } = *self;
        let own = &pool.queues[member];
        if let Some((pass, tile)) = pool.take(own, base, End::Front) {
            return Some((pass, tile, own.first..own.first + own.tiles));
        }
        loop {
            let others = pool.queues.iter().enumerate().filter(|(other, _)| *other != member);
            let (left, queue) = others.map(|(_, q)| (pool.left(q, base), q)).max_by_key(|(left, _)| *left)?;
            if left == 0 {
                return None;
            }
            if let Some((pass, tile)) = pool.take(queue, base, End::Back) {
                return Some((pass, tile, 0..0));
            }
        }
    }
}

/// A turn that is this member's alone, until it is [`finish`](Self::finish)ed.
pub struct Taken<'a> {
    pool: &'a Pool,
    arena: &'a Arena,
    turn: Turn,
    after: u32,
}

impl Taken<'_> {
    /// Which one.
    pub fn turn(&self) -> &Turn {
        &self.turn
    }

    /// Which rows of the result it makes.
    pub fn rows(&self) -> Range<usize> {
        self.pool.grid.rows(self.turn.tile)
    }

    /// The tile's rows of what the pool writes.
    pub fn out(&mut self) -> [&mut [f32]; 2] {
        let (pool, rows) = (self.pool, self.rows());
        let part = |write: usize| {
            let width = pool.widths[write];
            // SAFETY: tiles' rows do not overlap, and of a tile there is one `Taken` at a time: a (pass, tile) pair is taken
            // from its queue once, a `Taken` is made only when the pass before has been finished (`done`, which also hands
            // on what was written), and the borrow of `self` ends before this one is finished. That nobody else touches
            // the writes is the word of him who entered.
            unsafe { pool.access.borrow_part(self.arena, write, rows.start * width..rows.end * width) }
        };
        [part(0), part(1)]
    }

    /// Whether this was the tile's last pass.
    pub fn is_last(&self) -> bool {
        self.turn.pass + 1 == self.pool.grid.passes()
    }

    /// Hands the tile on.
    pub fn finish(self) {
        self.pool.done[self.turn.tile].store(self.after, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::{
        device::cpu::{
            arena::Access,
            matmul::Kernel,
            team::{Seat, Team},
        },
        program::{Buffer, BufferId, Layout, Role},
    };

    const ROWS: usize = 200;
    const WIDTH: usize = 3;

    struct Shared {
        arena: Arena,
        pool: Pool,
        /// Turns in the order in which they were finished: use, pass, tile.
        taken: Mutex<Vec<(usize, usize, usize)>>,
    }

    impl Shared {
        fn taken(&self) -> usize {
            self.taken.lock().expect("no panic").len()
        }
    }

    fn shared(threads: usize) -> Shared {
        let id = BufferId(0);
        let layout = Layout {
            buffers: vec![Buffer { name: "out".into(), len: ROWS * WIDTH, role: Role::Activation }],
            parameters: vec![],
            train_features: id,
            train_targets: id,
            validation_features: id,
            validation_targets: id,
            order: id,
            values: id,
            log: id,
            log_width: 1,
            log_slots: 1,
        };
        let arena = Arena::new(&layout, &[]).expect("memory");
        let mut access = Access::default();
        access.writes[0] = arena.span(layout.whole(id));
        let idle = vec![vec![]; threads];
        let stage = idle.into_iter().chain([vec![access]]).collect();
        let access = arena.verify(&[stage]).expect("no conflict")[0][threads][0];
        // Three blocks of terms, each a pass.
        let grid = Kernel::portable().grid([ROWS, 900, 64], true, threads);
        assert_eq!(grid.passes(), 3);
        Shared { arena, pool: Pool::new(access, grid, [WIDTH, 0], threads), taken: Mutex::default() }
    }

    /// Goes through the pool once; a tile takes `work` turns of the processor by its number.
    fn go(shared: &Shared, seat: &Seat<'_>, used: usize, work: impl Fn(usize) -> usize) -> Result<(), Lost> {
        let Shared { arena, pool, taken } = shared;
        seat.meet()?;
        // SAFETY: every member comes by here once between two barriers.
        let mut turns = unsafe { pool.enter(arena, seat.member()) };
        while let Some(mut turn) = turns.next(|| seat.is_lost())? {
            let (pass, tile) = (turn.turn().pass, turn.turn().tile);
            for _ in 0..work(tile) {
                std::hint::spin_loop();
            }
            let [out, _] = turn.out();
            // What an earlier pass left is there, whoever did it.
            let before = (used * 3 + pass) as f32;
            assert!(out.iter().all(|x| *x == before), "use {used}, pass {pass}, tile {tile}: {out:?}");
            out.iter_mut().for_each(|x| *x += 1.0);
            taken.lock().expect("no panic").push((used, pass, tile));
            turn.finish();
        }
        seat.meet()
    }

    #[test]
    fn every_turn_is_taken_once_and_a_tiles_passes_follow_each_other() {
        for threads in [1, 2, 3, 5] {
            // Members are slow in turns, so that others take what they leave.
            let slow = move |used: usize, member: usize| if used % threads == member { 3000 } else { 10 };
            const USES: usize = 40;
            let state = Arc::new(shared(threads));
            let body = {
                let state = Arc::clone(&state);
                move |seat: Seat<'_>| {
                    let member = seat.member();
                    (0..USES)
                        .try_for_each(|used| go(&state, &seat, used, |tile| slow(used, member) * (tile % 3)))
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
        // As after so many uses that the next two lie on both sides of the largest number.
        let uses = u32::MAX;
        for queue in &all.pool.queues {
            let state = State { pass: uses.wrapping_mul(3), front: 0, back: queue.tiles as u16 };
            queue.state.store(state.bits(), Ordering::Relaxed);
            queue.entered.store(uses, Ordering::Relaxed);
        }
        all.pool.done.iter().for_each(|done| done.store(uses.wrapping_mul(3), Ordering::Relaxed));
        let body = {
            let all = Arc::clone(&all);
            move |seat: Seat<'_>| (0..3).try_for_each(|used| go(&all, &seat, used, |_| 0))
        };
        let own = body.clone();
        let mut team = Team::new(2, body).expect("threads");
        assert_eq!(team.run(own), Ok(()));
        assert_eq!(all.taken.lock().expect("no panic").len(), 3 * 3 * all.pool.grid.tiles());
    }

    #[test]
    fn what_a_slow_member_leaves_is_done_by_others() {
        let all = Arc::new(shared(2));
        let [own, slow] = [0, 1].map(|member: usize| all.pool.queues[member].tiles);
        // All but the slow member's first tile, and the last pass of its others, which comes behind that.
        let possible = 3 * own + 2 * (slow - 1);
        let is_left = Arc::new(AtomicU32::new(0));
        let body = {
            let (all, is_left) = (Arc::clone(&all), Arc::clone(&is_left));
            move |seat: Seat<'_>| {
                seat.meet()?;
                // SAFETY: every member comes by here once between two barriers.
                let mut turns = unsafe { all.pool.enter(&all.arena, seat.member()) };
                let first = turns.next(|| seat.is_lost())?.expect("its own first tile");
                assert_eq!((first.turn().pass, first.turn().tile), (0, own));
                while all.taken() < possible && is_left.load(Ordering::Acquire) == 0 {
                    std::thread::yield_now();
                }
                let done = all.taken();
                first.finish();
                // The rest is anybody's.
                while let Some(taken) = turns.next(|| seat.is_lost())? {
                    taken.finish();
                }
                assert_eq!(done, possible);
                seat.meet()
            }
        };
        let caller = {
            let all = Arc::clone(&all);
            move |seat: Seat<'_>| {
                seat.meet()?;
                // SAFETY: as above.
                let mut turns = unsafe { all.pool.enter(&all.arena, seat.member()) };
                while let Some(taken) = turns.next(|| seat.is_lost())? {
                    all.taken.lock().expect("no panic").push((0, taken.turn().pass, taken.turn().tile));
                    taken.finish();
                }
                is_left.store(1, Ordering::Release);
                seat.meet()
            }
        };
        let mut team = Team::new(2, body).expect("threads");
        assert_eq!(team.run(caller), Ok(()));
    }

    #[test]
    fn a_tile_of_a_member_that_is_gone_is_not_waited_for() {
        let all = Arc::new(shared(2));
        let body = {
            let all = Arc::clone(&all);
            move |seat: Seat<'_>| -> Result<(), Lost> {
                seat.meet()?;
                // SAFETY: each member comes by here once.
                let mut turns = unsafe { all.pool.enter(&all.arena, seat.member()) };
                // Takes a tile and never finishes it.
                turns.next(|| seat.is_lost()).map(drop)?;
                seat.meet()?;
                Err(Lost)
            }
        };
        let caller = {
            let all = Arc::clone(&all);
            move |seat: Seat<'_>| {
                seat.meet()?;
                // SAFETY: as above.
                let mut turns = unsafe { all.pool.enter(&all.arena, seat.member()) };
                // The other has its tile.
                seat.meet()?;
                let mut finished = 0;
                while let Some(taken) = turns.next(|| seat.is_lost())? {
                    taken.finish();
                    finished += 1;
                }
                Ok(finished)
            }
        };
        let mut team = Team::new(2, body).expect("threads");
        assert_eq!(team.run(caller), Err(Lost), "by the wait for that tile: all others are there");
    }

    #[test]
    fn only_what_a_queue_can_count_is_shared() {
        assert!(Pool::fits(4, 4) && !Pool::fits(3, 4));
        assert!(Pool::fits(2 * 65_535, 2) && !Pool::fits(2 * 65_535 + 1, 2));
    }
}
