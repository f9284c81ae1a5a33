//! A product that several threads compute tile by tile, in any order that keeps each tile's passes in turn.

use std::ops::Range;

use super::product::{Blocking, COPY_LEFT_COLUMNS, Product, Rows, SCRATCH, TileIndex};
use super::{Epilogue, Kernel, Lhs, Rhs};

/// The tiles of a product, rows by passes: known before its operands are.
#[derive(Clone, Copy, Debug)]
pub struct Grid {
    rows: Rows,
    passes: usize,
}

/// A tile's part of a pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Passes of a tile follow each other: each goes on with the sums of the one before.
    pub pass: usize,
    /// Which tile.
    pub tile: usize,
    /// The tiles through which the same thread goes one after the other, this among them; empty where this is the only one.
    pub among: Range<usize>,
}

/// Rows that are fetched soon, to be brought near while a product computes: rows `order[0]`, `order[1]`, ... of `data`.
#[derive(Clone, Copy, Debug, Default)]
pub struct UpcomingRows<'a> {
    /// The numbers.
    pub data: &'a [f32],
    /// Of a row.
    pub width: usize,
    /// Which rows.
    pub order: &'a [u32],
}

/// Room for a thread's copies of the left operand.
pub struct Scratch([f32; SCRATCH]);

impl Default for Scratch {
    fn default() -> Self {
        Self([0.0; SCRATCH])
    }
}

/// A product with its operands.
pub struct Tiled<'a> {
    product: Product<'a>,
    cut: Blocking,
    rows: Rows,
}

impl Grid {
    /// How many tiles there are.
    pub fn tiles(&self) -> usize {
        self.rows.tiles
    }

    /// How often each is gone through.
    pub fn passes(&self) -> usize {
        self.passes
    }

    /// The rows of the result that a tile holds.
    pub fn rows(&self, tile: usize) -> Range<usize> {
        self.rows.range(tile)
    }
}

impl Kernel {
    /// The tiles of an `[m, k, n]` product, for so many threads: a multiple of their number.
    pub fn grid(self, [m, k, n]: [usize; 3], packed: bool, threads: usize) -> Grid {
        let passes = Blocking::new(self.set, k, n, packed).passes;
        Grid { rows: Rows::new(self.set, m, threads), passes }
    }

    /// The product that [`multiply`](Self::multiply) computes, to be computed by the turns of its `grid`: to the same bits.
    pub fn tiled<'a>(
        self,
        lhs: Lhs<'a>,
        rhs: Rhs<'a>,
        [m, k, n]: [usize; 3],
        epilogue: Epilogue<'a>,
        grid: &Grid,
    ) -> Tiled<'a> {
        let product = Product { set: self.set, lhs, rhs, m, k, n, epilogue };
        Tiled { cut: product.cut(), product, rows: grid.rows }
    }
}

impl Tiled<'_> {
    /// Takes a turn; `out` is the tile's rows of the result. Of `upcoming`, a part is brought near by each of the tiles
    /// that this one is among.
    ///
    /// # Panics
    /// Where a slice is shorter than its shape says.
    pub fn take(&self, turn: &Turn, upcoming: UpcomingRows<'_>, out: &mut [f32], scratch: &mut Scratch) {
        let pass = self.product.pass(&self.cut, turn.pass);
        let place = TileIndex { index: turn.tile.saturating_sub(turn.among.start), of: turn.among.len() };
        let scratch = (self.product.n >= COPY_LEFT_COLUMNS).then_some(&mut scratch.0[..]);
        let place = (place.of > 0).then_some(place);
        self.product.tile(&pass, self.rows.range(turn.tile), place, upcoming, out, scratch);
    }
}
