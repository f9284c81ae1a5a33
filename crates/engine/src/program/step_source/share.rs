//! The pieces of a step over a grid, what each block touches in them, and the barriers between.

use super::{Access, Window};

/// The most elements of a weight that every block reads, to save a barrier.
pub const READ_BY_ALL: usize = 8192;

/// Which blocks do a piece.
pub enum Spread {
    /// All, or as many as have work; which touches what is not distinguished.
    All { tiles: bool },
    /// The last one.
    Last,
    /// All, each for its rows. Holds what each touches.
    Rows { parts: usize, accesses: Vec<(usize, Access)> },
}

/// An instruction, or several that were merged.
pub struct Share {
    pub text: String,
    pub access: Access,
    pub spread: Spread,
    /// Blocks that have work.
    pub blocks: usize,
    pub elements: usize,
    /// An estimate for each of these blocks.
    pub cycles: f64,
    /// Whether it has a barrier over the grid within.
    pub waits: bool,
}

/// Whether an earlier piece must be complete before a later one begins: for all blocks, or in each block.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
enum Order {
    Free,
    InBlock,
    InGrid,
}

/// Stage and level of each piece. A barrier over the grid separates stages, a barrier of the block the levels of
/// a stage.
pub fn stages(shares: &[Share]) -> Vec<[usize; 2]> {
    let mut places: Vec<[usize; 2]> = Vec::new();
    for (number, share) in shares.iter().enumerate() {
        let mut place = [0, 0];
        for (earlier, [stage, level]) in shares[..number].iter().zip(&places) {
            let least = match order(earlier, share) {
                Order::InGrid => [stage + 1, 0],
                Order::InBlock => [*stage, level + 1],
                Order::Free => continue,
            };
            place = place.max(least);
        }
        places.push(place);
    }
    places
}

fn order(earlier: &Share, later: &Share) -> Order {
    if !earlier.access.conflicts(&later.access) {
        return Order::Free;
    }
    let (Some(before), Some(after)) = (earlier.by_block(), later.by_block()) else { return Order::InGrid };
    let mut window = Window::default();
    before.iter().for_each(|(block, access)| window.add(*block, access));
    let apart = after.iter().all(|(block, access)| window.admits(*block, access));
    if apart { Order::InBlock } else { Order::InGrid }
}

impl Share {
    /// What each block touches, if that is known; the last block counts as `usize::MAX`.
    fn by_block(&self) -> Option<Vec<(usize, Access)>> {
        match &self.spread {
            Spread::All { .. } => None,
            Spread::Last => Some(vec![(usize::MAX, self.access)]),
            Spread::Rows { accesses, .. } => Some(accesses.clone()),
        }
    }
}
