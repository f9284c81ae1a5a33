//! All-reduce over the threads of one process: each rank copies its elements to a shared table, waits for the others,
//! and sums from the table.
//!
//! Small buffers: every rank sums everything, which takes one barrier. Large buffers: every rank sums its own part and
//! copies the other parts after a second barrier. An element is always added up in rank order, so all ranks get the same
//! bits, and a run's bits repeat.

use std::{
    ops::Range,
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard},
    time::Duration,
};

use super::{Abort, Collective, CollectiveError, barrier::Barrier};

/// Elements up to which every rank sums everything.
const SMALL: usize = 4096;

/// Elements that are summed at one time: the table has a MiB for each rank, twice, whatever the model.
const PIECE: usize = if cfg!(test) { 4 * SMALL } else { 1 << 18 };

struct Table {
    barrier: Barrier,
    /// Each rank's elements. Calls alternate between two sets, so that one barrier is enough: before a rank writes a set
    /// again, the others have passed a barrier after reading it.
    inputs: [Vec<RwLock<Vec<f32>>>; 2],
    /// The sum of each rank's part.
    summed: Vec<RwLock<Vec<f32>>>,
}

pub struct Shared {
    table: Arc<Table>,
    rank: usize,
    calls: usize,
}

/// A handle for each rank, and the abort that releases them all. A rank waits at most `limit` for the others.
pub fn shared(names: Vec<String>, limit: Duration) -> (Vec<Shared>, Abort) {
    let world = names.len();
    let buffers = || (0..world).map(|_| RwLock::default()).collect();
    let barrier = Barrier::new(names, limit);
    let table = Arc::new(Table { barrier, inputs: [buffers(), buffers()], summed: buffers() });
    let ranks = (0..world).map(|rank| Shared { table: Arc::clone(&table), rank, calls: 0 }).collect();
    (ranks, Abort::new(move || table.barrier.poison()))
}

impl Collective for Shared {
    fn all_reduce(&mut self, elements: &mut [f32], _: u64) -> Result<(), CollectiveError> {
        elements.chunks_mut(PIECE).try_for_each(|piece| self.add_up(piece))
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
            write(&inputs[self.rank], |buffer| {
                buffer.clear();
                buffer.extend_from_slice(elements);
            });
            table.barrier.wait(self.rank)?;
            inputs.iter().enumerate().for_each(|(rank, buffer)| add(elements, &read(buffer), rank));
            return Ok(());
        }
        // No other rank reads this rank's own part, so it is not copied.
        let own = self.part(self.rank, elements.len());
        write(&inputs[self.rank], |buffer| {
            buffer.resize(elements.len(), 0.0);
            buffer[..own.start].copy_from_slice(&elements[..own.start]);
            buffer[own.end..].copy_from_slice(&elements[own.end..]);
        });
        table.barrier.wait(self.rank)?;
        write(&table.summed[self.rank], |sums| {
            sums.resize(own.len(), 0.0);
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
            elements[part].copy_from_slice(&read(buffer));
        }
        Ok(())
    }
}

/// Adds a rank's elements; rank 0's start the sum.
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

/// A poisoned lock only means that its rank's thread panicked, which the barrier reports.
fn write(buffer: &RwLock<Vec<f32>>, f: impl FnOnce(&mut Vec<f32>)) {
    f(&mut buffer.write().unwrap_or_else(PoisonError::into_inner));
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

    #[test]
    fn every_rank_has_the_sum_in_rank_order() {
        for world in [1, 2, 3, 4, 7] {
            for len in [0, 1, 15, SMALL, SMALL + 1, 3 * SMALL + 5, PIECE + 7, 2 * PIECE + SMALL + 9] {
                let (ranks, _) = shared(names(world), LONG);
                let work = |mut rank: Shared| {
                    (0..5).for_each(|call| {
                        let mut numbers = input(rank.rank, call, len);
                        rank.all_reduce(&mut numbers, 1).expect("all come");
                        let mut want = input(0, call, len);
                        for other in 1..world {
                            want.iter_mut().zip(input(other, call, len)).for_each(|(sum, v)| *sum += v);
                        }
                        assert_eq!(numbers, want, "{world} ranks, {len} numbers, call {call}");
                    });
                };
                thread::scope(|scope| {
                    ranks.into_iter().for_each(|rank| drop(scope.spawn(move || work(rank))));
                });
            }
        }
    }

    #[test]
    fn a_rank_that_fails_lets_the_others_go() {
        let (mut ranks, abort) = shared(names(2), LONG);
        let first = ranks.pop();
        let result = thread::scope(|scope| {
            let waiting = scope.spawn(|| first.map(|mut rank| rank.all_reduce(&mut [1.0], 1)));
            drop(abort.guard());
            waiting.join()
        });
        assert_eq!(result.ok().flatten(), Some(Err(CollectiveError::Poisoned)));
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
