//! Work stealing for the tiles of one product: every thread processes its own share, then steals from the
//! others.
//!
//! The threads of a machine are not equally fast: hyperthreads, efficiency cores, interrupts. With fixed
//! shares every stage would wait for the slowest thread; with stealing it waits for at most one tile. Results
//! do not depend on which thread computes a tile.
//!
//! A share is a queue: the current pass and the range of tiles not yet taken, packed into one atomic integer.
//! The owner takes tiles from the front and thieves take them from the back, so the owner keeps reading
//! memory in order. A tile's passes (over parts of its sum) must run in order: `done` counts them, and a pass
//! only starts after the previous one. Counters are never reset but continue from one use of the pool to the
//! next; every member counts its own uses.

use std::{
    ops::Range,
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
};

use super::{
    arena::{Arena, Verified},
    team::Lost,
};
use crate::{
    collective::give_way,
    op::product::fits,
    vector::matmul::{Grid, Turn},
};

/// How often a member spins before it yields while it waits for a tile's previous pass; a tile takes a few
/// microseconds.
const SPINS: u32 = 300;

/// A member's share, on its own pair of cache lines: adjacent lines are prefetched together.
#[repr(align(128))]
struct Queue {
    state: AtomicU64,
    /// How often its owner has used the pool; only the owner writes this.
    entered: AtomicU32,
    first: usize,
    tiles: usize,
}

/// The pass, counted over all uses, and the range of tiles not yet taken in it.
#[derive(Clone, Copy)]
struct State {
    pass: u32,
    front: u16,
    back: u16,
}

impl State {
    fn from_bits(bits: u64) -> Self {
        Self { pass: (bits >> 32) as u32, front: (bits >> 16) as u16, back: bits as u16 }
    }

    fn bits(self) -> u64 {
        u64::from(self.pass) << 32 | u64::from(self.front) << 16 | u64::from(self.back)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Front,
    Back,
}

/// A product's tiles and the memory that they access.
pub struct Pool {
    access: Verified,
    grid: Grid,
    /// Row widths of the first two writes.
    widths: [usize; 2],
    queues: Box<[Queue]>,
    /// Finished passes of each tile, counted over all uses.
    done: Box<[AtomicU32]>,
}

impl Pool {
    /// Divides the tiles of `grid` into equal shares. Each tile writes its rows of the first two writes of
    /// `access`.
    ///
    /// # Panics
    /// If the tiles do not [`fit`](fits) this number of threads: no two queues may hold the same tile.
    pub fn new(access: Verified, grid: Grid, widths: [usize; 2], threads: usize) -> Self {
        assert!(fits(grid.tiles(), threads), "each thread has a tile, and no more than it can count");
        let bound = |t: usize| grid.tiles() * t / threads;
        let queue = |t: usize| {
            let (first, tiles) = (bound(t), bound(t + 1) - bound(t));
            let state = State { pass: 0, front: 0, back: tiles as u16 };
            Queue { state: AtomicU64::new(state.bits()), entered: AtomicU32::new(0), first, tiles }
        };
        let done = (0..grid.tiles()).map(|_| AtomicU32::new(0)).collect();
        Self { access, grid, widths, queues: (0..threads).map(queue).collect(), done }
    }

    /// Starts one member's use of the pool.
    ///
    /// # Safety
    /// `arena` must have verified the access as shared by all members of the team, and `member` must be the
    /// caller's index in it. Between two barriers every member must enter exactly once, finish before the
    /// second barrier, and hold no other slice of the arena.
    pub unsafe fn enter<'a>(&'a self, arena: &'a Arena, member: usize) -> TileQueue<'a> {
        let used = self.queues[member].entered.fetch_add(1, Ordering::Relaxed);
        let base = used.wrapping_mul(self.passes());
        // SAFETY: see the function's contract; writes are borrowed by tile, see `Taken::out`.
        let reads = unsafe { self.access.borrow_reads(arena) };
        TileQueue { pool: self, arena, member, base, reads }
    }

    fn passes(&self) -> u32 {
        self.grid.passes() as u32
    }

    /// Takes the next tile of a queue; returns its pass within this use, and its index.
    fn take(&self, queue: &Queue, base: u32, end: End) -> Option<(u32, usize)> {
        let mut bits = queue.state.load(Ordering::Relaxed);
        loop {
            let State { pass, front, back } = State::from_bits(bits);
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
            // Relaxed is enough here: `done` synchronizes the tiles' contents.
            let swap =
                queue.state.compare_exchange_weak(bits, after.bits(), Ordering::Relaxed, Ordering::Relaxed);
            match swap {
                Ok(_) => return Some((now, queue.first + usize::from(tile))),
                Err(other) => bits = other,
            }
        }
    }

    /// The number of tiles of a queue left in this use, over all passes.
    fn left(&self, queue: &Queue, base: u32) -> usize {
        let State { pass, front, back } = State::from_bits(queue.state.load(Ordering::Relaxed));
        let passes = self.passes().saturating_sub(pass.wrapping_sub(base)) as usize;
        (passes * queue.tiles).saturating_sub(queue.tiles - usize::from(back.saturating_sub(front)))
    }
}

/// A member's access to the pool during one use.
pub struct TileQueue<'a> {
    pool: &'a Pool,
    arena: &'a Arena,
    member: usize,
    base: u32,
    reads: [&'a [f32]; 4],
}

impl<'a> TileQueue<'a> {
    pub fn grid(&self) -> &'a Grid {
        &self.pool.grid
    }

    /// An equal share of `n` items for this member.
    pub fn share(&self, n: usize) -> Range<usize> {
        let bound = |member: usize| n * member / self.pool.queues.len();
        bound(self.member)..bound(self.member + 1)
    }

    pub fn reads(&self) -> [&'a [f32]; 4] {
        self.reads
    }

    /// The next tile and pass; `None` when all are taken. Waits if another member is still at the tile's
    /// previous pass.
    pub fn next(&mut self, lost: impl Fn() -> bool) -> Result<Option<Taken<'_>>, Lost> {
        let Some((pass, tile, among)) = self.claim() else { return Ok(None) };
        let (done, mut spins) = (&self.pool.done[tile], 0u32);
        let before = self.base.wrapping_add(pass);
        while done.load(Ordering::Acquire) != before {
            if lost() {
                return Err(Lost);
            }
            spins = spins.saturating_add(1);
            if spins < SPINS { std::hint::spin_loop() } else { give_way() }
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

/// A tile and pass that belong to this member until it calls [`finish`](Self::finish).
pub struct Taken<'a> {
    pool: &'a Pool,
    arena: &'a Arena,
    turn: Turn,
    after: u32,
}

impl Taken<'_> {
    pub fn turn(&self) -> &Turn {
        &self.turn
    }

    /// The rows of the result that the tile computes.
    pub fn rows(&self) -> Range<usize> {
        self.pool.grid.rows(self.turn.tile)
    }

    /// The tile's rows of the pool's writes.
    pub fn out(&mut self) -> [&mut [f32]; 2] {
        let (pool, rows) = (self.pool, self.rows());
        let part = |write: usize| {
            let width = pool.widths[write];
            // SAFETY: the rows of different tiles do not overlap, and a tile has only one `Taken` at a time:
            // each (pass, tile) pair is taken from its queue once; a `Taken` is only created after the
            // previous pass was finished (`done`, which also makes that pass's writes visible); and the
            // borrow of `self` ends before this pass is finished. The callers of `enter` guarantee that
            // nobody else touches the writes.
            unsafe { pool.access.borrow_part(self.arena, write, rows.start * width..rows.end * width) }
        };
        [part(0), part(1)]
    }

    /// Whether this was the tile's last pass.
    pub fn is_last(&self) -> bool {
        self.turn.pass + 1 == self.pool.grid.passes()
    }

    pub fn finish(self) {
        self.pool.done[self.turn.tile].store(self.after, Ordering::Release);
    }
}

#[cfg(test)]
#[path = "pool_tests.rs"]
mod tests;
