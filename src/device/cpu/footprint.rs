//! Which thread accesses which part of the arena within a stage.

use std::collections::BTreeMap;

use super::arena::Span;

/// Disjoint pieces of the arena with their threads, so that scheduling a deep model for many threads takes O(n log n).
#[derive(Default)]
pub struct Footprint {
    /// By first element: the end and the thread, `None` for several threads.
    pieces: BTreeMap<usize, (usize, Option<usize>)>,
}

impl Footprint {
    /// Adds an access of `thread`.
    pub fn add(&mut self, span: Span, thread: usize) {
        let (start, end) = (span.start(), span.end());
        if span.is_empty() {
            return;
        }
        self.part_at(start);
        self.part_at(end);
        let mut gaps = Vec::new();
        let mut at = start;
        for (&piece, (piece_end, owner)) in self.pieces.range_mut(start..end) {
            if at < piece {
                gaps.push((at, piece));
            }
            at = *piece_end;
            *owner = owner.filter(|owner| *owner == thread);
        }
        if at < end {
            gaps.push((at, end));
        }
        self.pieces.extend(gaps.into_iter().map(|(from, to)| (from, (to, Some(thread)))));
    }

    /// Whether another thread accesses a part of `span`.
    pub fn meets_another(&self, span: Span, thread: usize) -> bool {
        let (start, end) = (span.start(), span.end());
        let mut overlapping =
            self.pieces.range(..end).rev().take_while(|(_, (piece_end, _))| *piece_end > start);
        !span.is_empty() && overlapping.any(|(_, (_, owner))| *owner != Some(thread))
    }

    /// Splits the piece that contains `place`.
    fn part_at(&mut self, place: usize) {
        if let Some((_, piece)) = self.pieces.range_mut(..place).next_back()
            && piece.0 > place
        {
            let (end, owner) = *piece;
            piece.0 = place;
            self.pieces.insert(place, (end, owner));
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
            let mut marks = [[false; 3]; 40];
            for _ in 0..30 {
                let (start, thread) = (below(40), below(3));
                let span = Span::new(start, below(41 - start as u64));
                let others = |marks: &[bool; 3]| (0..3).any(|t| t != thread && marks[t]);
                let meets = marks[start..span.end()].iter().any(others);
                assert_eq!(footprint.meets_another(span, thread), meets);
                footprint.add(span, thread);
                marks[start..span.end()].iter_mut().for_each(|m| m[thread] = true);
            }
        }
    }
}
