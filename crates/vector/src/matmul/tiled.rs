//! A product that several threads compute tile by tile, in any order, as long as each tile's passes stay in
//! order.

use std::ops::Range;

use super::bf16::{self, Bf16Product};
use super::product::{Blocking, COPY_LEFT_COLUMNS, Product, Rows, SCRATCH, TileIndex};
use super::{Epilogue, Kernel, Lhs, Rhs};

/// The tiles of a product (rows by passes); independent of its operands.
#[derive(Clone, Copy, Debug)]
pub struct Grid {
    rows: Rows,
    passes: usize,
}

/// One tile in one pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// A tile's passes run in order: each continues the sums of the previous one.
    pub pass: usize,
    /// The tile's index in the [`Grid`].
    pub tile: usize,
    /// The tiles that this thread computes in sequence, including this one; empty if this is the only one.
    pub among: Range<usize>,
}

/// Rows to prefetch while a product computes: rows `order[0]`, `order[1]`, ... of `data`.
#[derive(Clone, Copy, Debug, Default)]
pub struct UpcomingRows<'a> {
    /// All rows, contiguous.
    pub data: &'a [f32],
    /// Elements per row.
    pub width: usize,
    /// Indices of the upcoming rows.
    pub order: &'a [u32],
}

/// A thread's scratch memory for copies of the left operand.
pub struct Scratch([f32; SCRATCH]);

impl Default for Scratch {
    fn default() -> Self {
        Self([0.0; SCRATCH])
    }
}

/// A product with its operands.
pub struct Tiled<'a> {
    form: Form<'a>,
    rows: Rows,
}

enum Form<'a> {
    Single(Product<'a>, Blocking),
    Bf16(Bf16Product<'a>, bf16::Bf16Blocking),
}

impl Grid {
    /// Number of tiles of the result.
    pub fn tiles(&self) -> usize {
        self.rows.tiles
    }

    /// Number of passes over each tile.
    pub fn passes(&self) -> usize {
        self.passes
    }

    /// The rows of the result in a tile.
    pub fn rows(&self, tile: usize) -> Range<usize> {
        self.rows.range(tile)
    }
}

impl Kernel {
    /// The tiles of an `[m, k, n]` product; in f32, their number is a multiple of `threads`.
    pub fn grid(self, [m, k, n]: [usize; 3], packed: bool, threads: usize) -> Grid {
        match self.strip_rows() {
            Some(height) => {
                Grid { rows: Rows::of_height(height, m), passes: bf16::Bf16Blocking::new(k, n).passes }
            }
            None => {
                let passes = Blocking::new(self.set, k, n, packed).passes;
                Grid { rows: Rows::new(self.set, m, threads), passes }
            }
        }
    }

    /// The same as [`multiply`](Self::multiply), computed turn by turn over its `grid`, with equal bits.
    pub fn tiled<'a>(
        self,
        lhs: Lhs<'a>,
        rhs: Rhs<'a>,
        [m, k, n]: [usize; 3],
        epilogue: Epilogue<'a>,
        grid: &Grid,
    ) -> Tiled<'a> {
        let form = match self.bf16_product(lhs, rhs, [k, n], epilogue) {
            Some(product) => Form::Bf16(product, bf16::Bf16Blocking::new(k, n)),
            None => {
                let product = Product { set: self.set, lhs, rhs, m, k, n, epilogue };
                Form::Single(product, product.cut())
            }
        };
        Tiled { form, rows: grid.rows }
    }
}

impl Tiled<'_> {
    /// Computes a turn; `out` is the tile's rows of the result. Each tile of the sequence prefetches a part
    /// of `upcoming`.
    ///
    /// # Panics
    /// If a slice is shorter than its shape.
    pub fn take(&self, turn: &Turn, upcoming: UpcomingRows<'_>, out: &mut [f32], scratch: &mut Scratch) {
        let place = TileIndex { index: turn.tile.saturating_sub(turn.among.start), of: turn.among.len() };
        let rows = self.rows.range(turn.tile);
        match &self.form {
            Form::Bf16(product, cut) => product.take(cut, turn.pass, rows, (upcoming, place), out),
            Form::Single(product, cut) => {
                let pass = product.pass(cut, turn.pass);
                let scratch = (product.n >= COPY_LEFT_COLUMNS).then_some(&mut scratch.0[..]);
                let place = (place.of > 0).then_some(place);
                product.tile(&pass, rows, place, upcoming, out, scratch);
            }
        }
    }
}
