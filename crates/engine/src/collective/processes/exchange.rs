//! All-reduce over processes, with the additions of [`Shared`](crate::collective::Shared): every element is
//! summed in rank order, so the bits are the same as in one process with as many devices, whatever the
//! transport.
//!
//! A small buffer is sent to all ranks, and each sums everything. In a large one each rank sums a part and
//! sends the sums to all others.

use std::{
    ops::Range,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use super::{ProcessGroup, SumWait, Tag, Transfer};
use crate::collective::CollectiveError;

/// Up to this many elements every rank sums everything.
const SMALL: usize = 4096;

/// The most elements that are summed at once.
pub(super) const PIECE: usize = 1 << 20;

/// What each rank sends in one sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traffic {
    pub messages: u64,
    pub bytes: u64,
}

impl Traffic {
    /// Whether each rank sends all elements to all others.
    pub fn is_small(elements: usize) -> bool {
        elements <= SMALL
    }

    /// The traffic of a sum of `elements` over `ranks`, as an `Exchange` sends it.
    pub fn new(elements: usize, ranks: usize) -> Self {
        let (others, mut traffic) = (ranks.saturating_sub(1), Self { messages: 0, bytes: 0 });
        let mut rest = elements;
        while rest > 0 {
            let piece = rest.min(PIECE);
            let [messages, sent] = if Self::is_small(piece) {
                [others, others * piece]
            } else {
                // Each rank sends all parts but its own to their owners, and its own sums to all others.
                [2 * others, 2 * (piece - piece / ranks)]
            };
            traffic.messages += messages as u64;
            traffic.bytes += 4 * sent as u64;
            rest -= piece;
        }
        traffic
    }
}

/// What a sum needs, on whichever thread it runs.
#[derive(Clone)]
pub(super) struct Exchange {
    pub(super) world: Arc<ProcessGroup>,
    /// How long to wait for another rank that is alive but does not arrive.
    limit: Duration,
    piece: usize,
    /// See [`SumWait`].
    pub(super) is_urgent: Arc<AtomicBool>,
}

impl Exchange {
    pub(super) fn new(world: &Arc<ProcessGroup>, limit: Duration, piece: usize) -> Self {
        Self { world: Arc::clone(world), limit, piece, is_urgent: Arc::new(AtomicBool::new(true)) }
    }

    pub(super) fn sum(&self, elements: &mut [f32]) -> Result<(), CollectiveError> {
        elements.chunks_mut(self.piece).try_for_each(|piece| self.add_up(piece))
    }

    fn wait(&self, transfer: Box<dyn Transfer>, rank: usize) -> Result<Vec<u8>, CollectiveError> {
        self.world.wait(transfer, rank, Some(SumWait { limit: self.limit, is_urgent: &self.is_urgent }))
    }

    fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let own = self.world.rank();
        // Each rank starts with its successor, so that not all send to the same rank at first.
        let size = self.world.size();
        (1..size).map(move |step| (own + step) % size)
    }

    fn part(&self, rank: usize, len: usize) -> Range<usize> {
        let size = self.world.size();
        len * rank / size..len * (rank + 1) / size
    }

    /// Sends `of(rank)` to each other rank, and receives `len(rank)` elements from each. Returns the bytes by
    /// rank; this rank's entry is empty.
    fn exchange<'a>(
        &self,
        tag: Tag,
        of: impl Fn(usize) -> &'a [f32],
        len: impl Fn(usize) -> usize,
    ) -> Result<Vec<Vec<u8>>, CollectiveError> {
        let transport = &self.world.transport;
        let receive = |rank| (rank, transport.receive(rank, tag, 4 * len(rank)));
        let incoming: Vec<(usize, Box<dyn Transfer>)> = self.others().map(receive).collect();
        let send = |rank| (rank, transport.send(rank, tag, bytemuck::cast_slice(of(rank)).to_vec()));
        let outgoing: Vec<(usize, Box<dyn Transfer>)> = self.others().map(send).collect();
        let mut got = vec![Vec::new(); self.world.size()];
        for (rank, transfer) in incoming {
            got[rank] = self.wait(transfer, rank)?;
        }
        for (rank, transfer) in outgoing {
            self.wait(transfer, rank)?;
        }
        Ok(got)
    }

    fn add_up(&self, elements: &mut [f32]) -> Result<(), CollectiveError> {
        let (own, len) = (self.world.rank(), elements.len());
        if len <= SMALL {
            let got = self.exchange(Tag::Gradients, |_| elements, |_| len)?;
            sum(elements, &got, own);
            return Ok(());
        }
        let part = self.part(own, len);
        let got = self.exchange(Tag::Gradients, |rank| &elements[self.part(rank, len)], |_| part.len())?;
        sum(&mut elements[part.clone()], &got, own);
        let got = self.exchange(Tag::Sums, |_| &elements[part.clone()], |rank| self.part(rank, len).len())?;
        for rank in self.others() {
            numbers(&got[rank]).zip(&mut elements[self.part(rank, len)]).for_each(|(sum, to)| *to = sum);
        }
        Ok(())
    }
}

fn numbers(bytes: &[u8]) -> impl Iterator<Item = f32> {
    bytes.chunks_exact(4).map(|bytes| f32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}

/// Adds this rank's elements and those of the others, in rank order. `own` is this rank.
fn sum(elements: &mut [f32], others: &[Vec<u8>], own: usize) {
    let mut sums: Option<Vec<f32>> = None;
    for (rank, other) in others.iter().enumerate() {
        let add = |sums: &mut Vec<f32>| match rank == own {
            true => sums.iter_mut().zip(&*elements).for_each(|(sum, more)| *sum += more),
            false => sums.iter_mut().zip(numbers(other)).for_each(|(sum, more)| *sum += more),
        };
        match &mut sums {
            Some(sums) => add(sums),
            None if rank == own => sums = Some(elements.to_vec()),
            None => sums = Some(numbers(other).collect()),
        }
    }
    if let Some(sums) = sums {
        elements.copy_from_slice(&sums);
    }
}
