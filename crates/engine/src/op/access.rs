//! What ops and tasks read and write, and which of them may run between the same two barriers. This one
//! analysis places the barriers of the CPU and of GPUs.

use std::collections::BTreeMap;

use super::{BufferId, Instruction, Slice};

/// What a task or an op reads and writes; unused entries are empty slices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// May be shared with other readers.
    pub reads: [Slice; 4],
    /// Must be exclusive.
    pub writes: [Slice; 4],
}

impl Access {
    /// The reads and writes, in the order in which a task's `run` receives them.
    pub fn new<const R: usize, const W: usize>(reads: [Slice; R], writes: [Slice; W]) -> Self {
        let mut access = Self::default();
        access.reads[..R].copy_from_slice(&reads);
        access.writes[..W].copy_from_slice(&writes);
        access
    }

    /// Whether one writes what the other touches, so that their order matters.
    pub fn conflicts(&self, other: &Self) -> bool {
        let writes_of =
            |a: &Self, b: &Self| a.writes.iter().any(|w| b.touched().any(|slice| slice.overlaps(*w)));
        writes_of(self, other) || writes_of(other, self)
    }

    /// Every slice that is read or written.
    pub fn touched(self) -> impl Iterator<Item = Slice> {
        self.reads.into_iter().chain(self.writes)
    }
}

/// The flag for losses that are not finite, treated like a buffer so that a GPU's ops that write it exclude
/// each other. On the CPU this is not needed: the first thread runs all of them.
pub const NON_FINITE: Slice = Slice { buffer: BufferId(usize::MAX), offset: 0, len: 1 };

/// A GPU's scratch memory for sums over its blocks, treated in the same way.
pub const PARTIAL_SUMS: Slice = Slice { buffer: BufferId(usize::MAX - 1), offset: 0, len: 1 };

/// What was touched since the last barrier, and by which party: a thread, a task that several threads share,
/// or an op.
#[derive(Default)]
pub struct Window {
    written: Footprint,
    touched: Footprint,
}

impl Window {
    /// Whether `party` may do this before the next barrier: it touches nothing that another party wrote, and
    /// writes nothing that another party touched.
    pub fn admits(&self, party: usize, access: &Access) -> bool {
        !access.touched().any(|slice| self.written.meets_another(slice, party))
            && !access.writes.into_iter().any(|slice| self.touched.meets_another(slice, party))
    }

    pub fn add(&mut self, party: usize, access: &Access) {
        access.writes.into_iter().for_each(|slice| self.written.add(slice, party));
        access.touched().for_each(|slice| self.touched.add(slice, party));
    }
}

/// Whether a barrier is needed before each instruction, on a device whose threads share every instruction.
pub fn barriers(instructions: &[Instruction]) -> Vec<bool> {
    let mut since = Window::default();
    let mut before = |(number, instruction): (usize, &Instruction)| {
        let access = instruction.op.access();
        let barrier = !since.admits(number, &access);
        if barrier {
            since = Window::default();
        }
        since.add(number, &access);
        barrier
    };
    instructions.iter().enumerate().map(&mut before).collect()
}

/// Disjoint pieces of buffers, each with the party that touched it. With n pieces a lookup takes O(log n), so
/// scheduling a deep model for many threads takes O(n log n).
#[derive(Default)]
struct Footprint {
    /// By buffer and first element: the end, and the party; `None` if there were several parties.
    pieces: BTreeMap<(BufferId, usize), (usize, Option<usize>)>,
}

impl Footprint {
    fn add(&mut self, slice: Slice, party: usize) {
        let (buffer, start, end) = (slice.buffer, slice.offset, slice.end());
        if slice.len == 0 {
            return;
        }
        self.split_at(buffer, start);
        self.split_at(buffer, end);
        let mut gaps = Vec::new();
        let mut at = start;
        for (&(_, piece), (piece_end, owner)) in self.pieces.range_mut((buffer, start)..(buffer, end)) {
            if at < piece {
                gaps.push((at, piece));
            }
            at = *piece_end;
            *owner = owner.filter(|owner| *owner == party);
        }
        if at < end {
            gaps.push((at, end));
        }
        self.pieces.extend(gaps.into_iter().map(|(from, to)| ((buffer, from), (to, Some(party)))));
    }

    /// Whether another party than `party` touched a part of the slice.
    fn meets_another(&self, slice: Slice, party: usize) -> bool {
        let (buffer, start, end) = (slice.buffer, slice.offset, slice.end());
        let pieces = self.pieces.range((buffer, 0)..(buffer, end)).rev();
        let mut overlapping = pieces.take_while(|(_, (piece_end, _))| *piece_end > start);
        slice.len > 0 && overlapping.any(|(_, (_, owner))| *owner != Some(party))
    }

    /// Splits the piece that contains the element `place`.
    fn split_at(&mut self, buffer: BufferId, place: usize) {
        if let Some((_, piece)) = self.pieces.range_mut((buffer, 0)..(buffer, place)).next_back()
            && piece.0 > place
        {
            let (end, owner) = *piece;
            piece.0 = place;
            self.pieces.insert((buffer, place), (end, owner));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_marking_every_number() {
        let mut random = 1_u64;
        let mut below = |n: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            ((random >> 33) % n) as usize
        };
        for _ in 0..50 {
            let mut footprint = Footprint::default();
            let mut marks = [[false; 3]; 80];
            for _ in 0..60 {
                let (buffer, offset, party) = (below(2), below(40), below(3));
                let slice = Slice { buffer: BufferId(buffer), offset, len: below(41 - offset as u64) };
                let marked = &mut marks[40 * buffer + offset..40 * buffer + slice.end()];
                let others = |marks: &[bool; 3]| (0..3).any(|t| t != party && marks[t]);
                assert_eq!(footprint.meets_another(slice, party), marked.iter().any(others));
                footprint.add(slice, party);
                marked.iter_mut().for_each(|m| m[party] = true);
            }
        }
    }
}
