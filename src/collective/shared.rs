//! Sums over the threads of one process: each rank lays down what others need of it, all meet, and each sums what
//! the others laid down.
//!
//! Small buffers are summed whole by everyone, which costs one meeting. Of large ones each rank sums its own part, and
//! picks up the other parts after a second meeting. Either way the additions of an element are made in rank order, so
//! that all ranks hold the same bits, and a run's bits repeat.

use std::{
    ops::Range,
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard},
    time::Duration,
};

use super::{Abort, Collective, CollectiveError, barrier::Barrier};

/// Numbers up to which everyone sums everything.
const SMALL: usize = 4096;

/// What the ranks share.
struct Table {
    meeting: Barrier,
    /// What each rank laid down; two sets in turn, so that one meeting is enough: who writes a set again has met the
    /// others since they read it.
    laid: [Vec<RwLock<Vec<f32>>>; 2],
    /// The sums of each rank's part.
    summed: Vec<RwLock<Vec<f32>>>,
}

/// One rank's handle.
pub struct Shared {
    table: Arc<Table>,
    rank: usize,
    calls: usize,
}

/// A handle for each of the named ranks, and what lets all of them go. A rank is waited for no longer than `limit`.
pub fn shared(names: Vec<String>, limit: Duration) -> (Vec<Shared>, Abort) {
    let world = names.len();
    let places = || (0..world).map(|_| RwLock::default()).collect();
    let meeting = Barrier::new(names, limit);
    let table = Arc::new(Table { meeting, laid: [places(), places()], summed: places() });
    let ranks = (0..world).map(|rank| Shared { table: Arc::clone(&table), rank, calls: 0 }).collect();
    (ranks, Abort::new(move || table.meeting.poison()))
}

impl Shared {
    fn part(&self, rank: usize, len: usize) -> Range<usize> {
        let world = self.table.summed.len();
        let lines = len.div_ceil(16);
        let bound = |rank: usize| (lines * rank / world * 16).min(len);
        bound(rank)..bound(rank + 1)
    }
}

impl Collective for Shared {
    fn all_reduce(&mut self, numbers: &mut [f32], _: u64) -> Result<(), CollectiveError> {
        let table = &*self.table;
        let laid = &table.laid[self.calls % 2];
        self.calls += 1;
        if numbers.len() <= SMALL {
            write(&laid[self.rank], |place| {
                place.clear();
                place.extend_from_slice(numbers);
            });
            table.meeting.wait(self.rank)?;
            laid.iter().enumerate().for_each(|(rank, place)| add(numbers, &read(place), rank));
            return Ok(());
        }
        // Nobody else reads this rank's own part: it is not laid down.
        let own = self.part(self.rank, numbers.len());
        write(&laid[self.rank], |place| {
            place.resize(numbers.len(), 0.0);
            place[..own.start].copy_from_slice(&numbers[..own.start]);
            place[own.end..].copy_from_slice(&numbers[own.end..]);
        });
        table.meeting.wait(self.rank)?;
        write(&table.summed[self.rank], |sums| {
            sums.resize(own.len(), 0.0);
            for (rank, place) in laid.iter().enumerate() {
                if rank == self.rank {
                    add(sums, &numbers[own.clone()], rank);
                } else {
                    add(sums, &read(place)[own.clone()], rank);
                }
            }
            numbers[own].copy_from_slice(sums);
        });
        table.meeting.wait(self.rank)?;
        for (rank, place) in table.summed.iter().enumerate().filter(|(rank, _)| *rank != self.rank) {
            let part = self.part(rank, numbers.len());
            numbers[part].copy_from_slice(&read(place));
        }
        Ok(())
    }
}

/// Adds the numbers of a rank; those of the first are what the sum begins with.
fn add(to: &mut [f32], from: &[f32], rank: usize) {
    if rank == 0 {
        to.copy_from_slice(from);
    } else {
        to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
    }
}

fn read(place: &RwLock<Vec<f32>>) -> RwLockReadGuard<'_, Vec<f32>> {
    place.read().unwrap_or_else(PoisonError::into_inner)
}

/// A poisoned lock only says that its rank's thread has panicked, which the meeting reports.
fn write(place: &RwLock<Vec<f32>>, f: impl FnOnce(&mut Vec<f32>)) {
    f(&mut place.write().unwrap_or_else(PoisonError::into_inner));
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn names(world: usize) -> Vec<String> {
        (0..world).map(|rank| format!("virtual:{rank}")).collect()
    }

    /// What rank `rank` brings: sums of these depend on the order of additions.
    fn brought(rank: usize, call: usize, len: usize) -> Vec<f32> {
        (0..len).map(|i| ((i * 7 + rank * 13 + call) as f32).sin() * 10f32.powi(rank as i32 % 3)).collect()
    }

    #[test]
    fn every_rank_has_the_sum_in_rank_order() {
        for world in [1, 2, 3, 4, 7] {
            for len in [0, 1, 15, SMALL, SMALL + 1, 3 * SMALL + 5] {
                let (ranks, _) = shared(names(world), LONG);
                let work = |mut rank: Shared| {
                    (0..5).for_each(|call| {
                        let mut numbers = brought(rank.rank, call, len);
                        rank.all_reduce(&mut numbers, 1).expect("all come");
                        let mut want = brought(0, call, len);
                        for other in 1..world {
                            want.iter_mut().zip(brought(other, call, len)).for_each(|(sum, v)| *sum += v);
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
