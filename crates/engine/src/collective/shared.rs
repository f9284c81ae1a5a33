//! All-reduce over the threads of one process: each rank copies its elements to a shared table, waits for the
//! others, and sums from the table.
//!
//! Small buffers: every rank sums everything, which takes one barrier. Large buffers: every rank sums a part,
//! and copies the other parts after a second barrier. Each element is always summed in rank order, so all
//! ranks get the same bits, and a repeated run gives them again.

use std::{
    ops::Range,
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard},
    time::Duration,
};

use super::{Abort, Collective, CollectiveError, barrier::Barrier};

/// Up to this many elements every rank sums everything.
const SMALL: usize = 4096;

/// The most elements that are summed at once: the table has 2 MiB per rank, however large the model is.
const PIECE: usize = 1 << 18;

struct Table {
    piece: usize,
    barrier: Barrier,
    /// Each rank's elements. Calls alternate between two sets, so that one barrier is enough: before a rank
    /// writes a set again, the others have read it and passed the next barrier. Buffers never shrink; new
    /// space is filled before it is read.
    inputs: [Vec<RwLock<Vec<f32>>>; 2],
    /// The sums of each rank's part.
    summed: Vec<RwLock<Vec<f32>>>,
}

pub struct Shared {
    table: Arc<Table>,
    rank: usize,
    calls: usize,
}

/// A handle for each rank, and an [`Abort`] that releases them all. A rank waits at most `limit` for the
/// others.
pub fn shared(names: Vec<String>, limit: Duration) -> (Vec<Shared>, Abort) {
    with_pieces(names, limit, PIECE)
}

fn with_pieces(names: Vec<String>, limit: Duration, piece: usize) -> (Vec<Shared>, Abort) {
    let world = names.len();
    let buffers = || (0..world).map(|_| RwLock::default()).collect();
    let barrier = Barrier::new(names, limit);
    let table = Arc::new(Table { piece, barrier, inputs: [buffers(), buffers()], summed: buffers() });
    let ranks = (0..world).map(|rank| Shared { table: Arc::clone(&table), rank, calls: 0 }).collect();
    (ranks, Abort::new(move || table.barrier.poison()))
}

impl Collective for Shared {
    fn all_reduce(&mut self, elements: &mut [f32], _: u64) -> Result<(), CollectiveError> {
        elements.chunks_mut(self.table.piece).try_for_each(|piece| self.add_up(piece))
    }
}

impl Shared {
    fn part(&self, rank: usize, len: usize) -> Range<usize> {
        let world = self.table.summed.len();
        let lines = len.div_ceil(16);
        let bound = |rank: usize| (lines * rank / world * 16).min(len);
        bound(rank)..bound(rank + 1)
    }

    fn add_up(&mut self, elements: &mut [f32]) -> Result<(), CollectiveError> {
        let table = &*self.table;
        let inputs = &table.inputs[self.calls % 2];
        self.calls += 1;
        if elements.len() <= SMALL {
            let len = elements.len();
            write(&inputs[self.rank], len, |buffer| buffer.copy_from_slice(elements));
            table.barrier.wait(self.rank)?;
            inputs.iter().enumerate().for_each(|(rank, buffer)| add(elements, &read(buffer)[..len], rank));
            return Ok(());
        }
        // No other rank reads this rank's own part, so it is not copied.
        let own = self.part(self.rank, elements.len());
        write(&inputs[self.rank], elements.len(), |buffer| {
            buffer[..own.start].copy_from_slice(&elements[..own.start]);
            buffer[own.end..].copy_from_slice(&elements[own.end..]);
        });
        table.barrier.wait(self.rank)?;
        write(&table.summed[self.rank], own.len(), |sums| {
            for (rank, buffer) in inputs.iter().enumerate() {
                if rank == self.rank {
                    add(sums, &elements[own.clone()], rank);
                } else {
                    add(sums, &read(buffer)[own.clone()], rank);
                }
            }
            elements[own].copy_from_slice(sums);
        });
        table.barrier.wait(self.rank)?;
        for (rank, buffer) in table.summed.iter().enumerate().filter(|(rank, _)| *rank != self.rank) {
            let part = self.part(rank, elements.len());
            let sums = &read(buffer)[..part.len()];
            elements[part].copy_from_slice(sums);
        }
        Ok(())
    }
}

/// Adds a rank's elements; those of rank 0 replace `to`.
fn add(to: &mut [f32], from: &[f32], rank: usize) {
    if rank == 0 {
        to.copy_from_slice(from);
    } else {
        to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
    }
}

fn read(buffer: &RwLock<Vec<f32>>) -> RwLockReadGuard<'_, Vec<f32>> {
    buffer.read().unwrap_or_else(PoisonError::into_inner)
}

/// Writes the first `len` elements. A poisoned lock only means that its rank's thread panicked, which the
/// barrier reports.
fn write(buffer: &RwLock<Vec<f32>>, len: usize, f: impl FnOnce(&mut [f32])) {
    let mut buffer = buffer.write().unwrap_or_else(PoisonError::into_inner);
    if buffer.len() < len {
        buffer.resize(len, 0.0);
    }
    f(&mut buffer[..len]);
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn names(world: usize) -> Vec<String> {
        (0..world).map(|rank| format!("virtual:{rank}")).collect()
    }

    /// The elements of one rank; their sum depends on the order of additions.
    fn input(rank: usize, call: usize, len: usize) -> Vec<f32> {
        (0..len).map(|i| ((i * 7 + rank * 13 + call) as f32).sin() * 10f32.powi(rank as i32 % 3)).collect()
    }

    /// Calls of several lengths over one table, as for a model's gradients and its norm.
    fn sums_are_in_rank_order(world: usize, piece: usize, lengths: &[usize]) {
        let (ranks, _) = with_pieces(names(world), LONG, piece);
        let work = |mut rank: Shared| {
            for (call, &len) in lengths.iter().enumerate() {
                let mut numbers = input(rank.rank, call, len);
                rank.all_reduce(&mut numbers, 1).expect("all come");
                let mut want = input(0, call, len);
                for other in 1..world {
                    want.iter_mut().zip(input(other, call, len)).for_each(|(sum, v)| *sum += v);
                }
                assert!(numbers == want, "{world} ranks, {len} numbers in pieces of {piece}, call {call}");
            }
        };
        thread::scope(|scope| {
            ranks.into_iter().for_each(|rank| drop(scope.spawn(move || work(rank))));
        });
    }

    #[test]
    fn every_rank_has_the_sum_in_rank_order() {
        let piece = 4 * SMALL;
        for world in [1, 2, 3, 4, 7] {
            for len in [0, 1, 15, SMALL, SMALL + 1, 3 * SMALL + 5, piece + 7, 2 * piece + SMALL + 9] {
                sums_are_in_rank_order(world, piece, &[len; 5]);
            }
            sums_are_in_rank_order(
                world,
                piece,
                &[2 * piece + 7, 1, 3 * piece, 15, piece - 1, 2 * piece + 7],
            );
        }
        for world in [2, 3] {
            sums_are_in_rank_order(world, PIECE, &[PIECE + 7, 2 * PIECE + SMALL + 9, 3, PIECE]);
        }
    }

    /// The failure happens in a small call, or in the first or the second of three pieces.
    #[test]
    fn a_rank_that_fails_lets_the_others_go() {
        let piece = 2 * SMALL;
        for (len, done) in [(1, 0), (3 * piece, 0), (3 * piece, 1)] {
            let (mut ranks, abort) = with_pieces(names(2), LONG, piece);
            let mut failing = ranks.pop().expect("two ranks");
            let mut other = ranks.pop().expect("two ranks");
            let result = thread::scope(|scope| {
                let waiting = scope.spawn(move || other.all_reduce(&mut vec![1.0; len], 1));
                (0..done).for_each(|_| failing.add_up(&mut vec![1.0; piece]).expect("both come"));
                drop(abort.guard());
                waiting.join()
            });
            assert_eq!(
                result.ok(),
                Some(Err(CollectiveError::Poisoned)),
                "{len} numbers, {done} pieces done"
            );
        }
    }

    #[test]
    fn a_rank_that_does_not_come_is_named() {
        let (mut ranks, _) = shared(names(2), Duration::from_millis(1));
        let stalled = ranks[0].all_reduce(&mut [1.0], 1);
        let device = "virtual:1".to_owned();
        assert_eq!(stalled, Err(CollectiveError::Stalled { device, waited: Duration::from_millis(1) }));
        assert_eq!(ranks[1].all_reduce(&mut [1.0], 1), Err(CollectiveError::Poisoned));
    }
}
