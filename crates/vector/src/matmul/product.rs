//! The loops around the strips of tiles.
//!
//! Columns are divided into groups and k into blocks, so that a piece (block x group) of the right operand
//! stays in the L2 cache while all rows are processed, strip after strip. The result holds the sums between
//! blocks. Large operands come from memory, where the hardware's prefetch is not enough: each strip
//! prefetches the next strip's left operand and part of the next piece of the right one. That gained 5 to 10
//! % at 1024 x 2048 x 2048.

use std::ops::Range;

use super::{Epilogue, Lhs, Rhs, UpcomingRows, pack};
use crate::simd::{Finish, InstructionSet, Order, Strip, TilePrefetch};

/// Maximum terms per block: a strip of the left operand (14 rows: 18 KiB) then stays in the L1 cache while it
/// is multiplied with all panels of the right one.
const MAX_BLOCK: usize = 320;

/// Maximum bytes of a piece of the right operand: it fits an L2 cache of 1 MiB beside the strips. With 2 MiB
/// of L2 the next piece fits too; with 1 MiB it comes from L3. Smaller pieces are slower (by 2 to 3 % at 512
/// KiB), since the left operand is copied for each of them.
const PIECE_BYTES: usize = 7 << 17;

/// From this number of columns on, a strip of the left operand is copied before use. The copy costs as much
/// as about 40 columns of arithmetic, and saves reading rows that are far apart once per panel.
pub(super) const COPY_LEFT_COLUMNS: usize = 512;

/// Elements of the largest copy of a strip.
pub(super) const SCRATCH: usize = pack::LEFT_LANES * MAX_BLOCK;

/// From this number of elements (256 KiB) on, a left operand may not stay in L2 beside the rest.
const FAR: usize = 1 << 16;

/// Blocks of k: their number, and the length of all but the last.
pub(super) fn blocks(k: usize) -> (usize, usize) {
    // Small products skip the divisions, which would take a tenth of their time.
    if k <= MAX_BLOCK {
        return (1, k);
    }
    let count = k.div_ceil(MAX_BLOCK);
    (count, k.div_ceil(count))
}

/// The data from `at` on. Empty if `at` is past the end, as for an operand without terms (k = 0).
pub(super) fn from(data: &[f32], at: usize) -> &[f32] {
    data.get(at..).unwrap_or_default()
}

/// A product; see [`Kernel::multiply`](super::Kernel::multiply) for its parts.
#[derive(Clone, Copy)]
pub(super) struct Product<'a> {
    pub set: InstructionSet,
    pub lhs: Lhs<'a>,
    pub rhs: Rhs<'a>,
    pub m: usize,
    pub k: usize,
    pub n: usize,
    pub epilogue: Epilogue<'a>,
}

/// A block of k combined with a group of columns.
#[derive(Clone, Copy)]
struct Piece {
    first: usize,
    length: usize,
    column: usize,
    columns: usize,
}

/// How a product is divided: k into blocks, columns into groups. A group's blocks are passes over the rows,
/// one after the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blocking {
    blocks: usize,
    size: usize,
    group: usize,
    pub passes: usize,
}

impl Blocking {
    pub fn new(set: InstructionSet, k: usize, n: usize, packed: bool) -> Self {
        let (blocks, size) = blocks(k);
        if !packed || 4 * size * n <= PIECE_BYTES {
            return Self { blocks, size, group: n, passes: blocks };
        }
        // Use groups of nearly equal width: the left operand is copied once per group, even for a narrow last
        // one.
        let groups = (4 * size * n).div_ceil(PIECE_BYTES);
        let group = n.div_ceil(groups).next_multiple_of(2 * set.lanes());
        Self { blocks, size, group, passes: n.div_ceil(group) * blocks }
    }
}

/// Rows divided into tiles of nearly equal height: a low last tile would be slow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rows {
    pub tiles: usize,
    low: usize,
    higher: usize,
    rows: usize,
}

impl Rows {
    /// Uses as few tiles as possible for `rows` rows; if there are several, a multiple of `shares`.
    pub fn new(set: InstructionSet, rows: usize, shares: usize) -> Self {
        // Small products skip the divisions, which would take a tenth of their time.
        if rows <= set.tile_rows() && shares == 1 {
            return Self { tiles: 1, low: rows, higher: 0, rows };
        }
        let least = rows.div_ceil(set.tile_rows()).max(1);
        let tiles = if shares == 1 { least } else { least.next_multiple_of(shares) };
        Self { tiles, low: rows / tiles, higher: rows % tiles, rows }
    }

    /// Tiles of `height` rows; the last may be lower.
    pub fn of_height(height: usize, rows: usize) -> Self {
        Self { tiles: rows.div_ceil(height).max(1), low: height, higher: 0, rows }
    }

    pub fn range(&self, tile: usize) -> Range<usize> {
        let start = |tile: usize| (tile * self.low + tile.min(self.higher)).min(self.rows);
        start(tile)..start(tile + 1)
    }
}

/// One pass: all rows times a piece of the right operand.
#[derive(Clone, Copy)]
pub(super) struct Pass<'a> {
    piece: Piece,
    next: Piece,
    last: bool,
    /// The piece: data, stride of k, stride of panels.
    right: (&'a [f32], usize, usize),
}

/// A tile's index among those that one thread computes in a pass; it determines what the tile prefetches.
#[derive(Clone, Copy)]
pub(super) struct TileIndex {
    pub index: usize,
    pub of: usize,
}

impl<'a> UpcomingRows<'a> {
    /// The part of the rows that one tile prefetches, in two halves.
    fn part(self, place: TileIndex) -> [TilePrefetch<'a>; 2] {
        let Self { data, width, .. } = self;
        let own = self.share(place);
        let (first, second) = own.split_at(own.len() / 2);
        [first, second].map(|order| TilePrefetch {
            data,
            stride: width,
            rows: order.len(),
            columns: width,
            order,
        })
    }

    /// The part of the rows' indices that belongs to one tile.
    pub(super) fn share(self, place: TileIndex) -> &'a [u32] {
        let bound = |index: usize| self.order.len() * index / place.of.max(1);
        if place.of == 0 { &[] } else { &self.order[bound(place.index)..bound(place.index + 1)] }
    }
}

impl<'a> Product<'a> {
    #[inline(never)]
    pub fn run_with_copies(&self, out: &mut [f32]) {
        let mut scratch = [0.0; SCRATCH];
        self.run(out, Some(&mut scratch));
    }

    /// Computes the product; `scratch` holds copies of the left operand's strips if copying them pays.
    pub fn run(&self, out: &mut [f32], mut scratch: Option<&mut [f32]>) {
        let cut = self.cut();
        let rows = Rows::new(self.set, self.m, 1);
        for pass in 0..cut.passes {
            let pass = self.pass(&cut, pass);
            for index in 0..rows.tiles {
                let range = rows.range(index);
                let out = &mut out[range.start * self.n..range.end * self.n];
                let place = TileIndex { index, of: rows.tiles };
                self.tile(&pass, range, Some(place), UpcomingRows::default(), out, scratch.as_deref_mut());
            }
        }
    }

    pub fn cut(&self) -> Blocking {
        Blocking::new(self.set, self.k, self.n, matches!(self.rhs, Rhs::Packed(_)))
    }

    pub fn pass(&self, cut: &Blocking, pass: usize) -> Pass<'a> {
        let piece = |pass: usize| {
            let (group, block) =
                if cut.blocks == 1 { (pass, 0) } else { (pass / cut.blocks, pass % cut.blocks) };
            let (first, column) = (block * cut.size, group * cut.group);
            let (length, columns) =
                ((self.k - first).min(cut.size), self.n.saturating_sub(column).min(cut.group));
            (block, Piece { first, length, column, columns })
        };
        let ((block, piece), (_, next)) = (piece(pass), piece(pass + 1));
        Pass { piece, next, last: block + 1 == cut.blocks, right: self.right(piece) }
    }

    /// Computes one tile in one pass; `out` holds the tile's rows. With `place`, prefetches what comes next:
    /// the next operands if they are large, otherwise `upcoming`.
    #[inline]
    pub fn tile(
        &self,
        pass: &Pass<'a>,
        range: Range<usize>,
        place: Option<TileIndex>,
        upcoming: UpcomingRows<'_>,
        out: &mut [f32],
        scratch: Option<&mut [f32]>,
    ) {
        let Self { set, n, .. } = *self;
        let piece = pass.piece;
        let (row, rows) = (range.start, range.len());
        let (rhs, rhs_stride, rhs_panel_stride) = pass.right;
        let (data, order, stride) = self.left(row, piece.first);
        let mut strip = Strip {
            lhs: data,
            lhs_order: order,
            lhs_stride: stride,
            rows,
            k: piece.length,
            rhs,
            rhs_stride,
            rhs_panel_stride,
            columns: piece.columns,
            out: &mut out[piece.column..],
            out_stride: n,
            resume: piece.first > 0 && !matches!(self.epilogue, Epilogue::Update { .. }),
            finish: self.finish(pass.last, row * n + piece.column, piece.column),
            ahead: [TilePrefetch::default(); 2],
        };
        if let Some(scratch) = scratch {
            strip.lhs_stride = pack::left(set, data, order, stride, rows, piece.length, scratch);
            strip.lhs = scratch;
            if let Some(place) = place {
                strip.ahead = [self.left_ahead(row, rows, piece, place), self.right_ahead(pass.next, place)];
            }
        } else if let Some(place) = place {
            match order {
                Order::Rows if self.is_left_far() => {
                    strip.ahead[0] = self.left_ahead(row, rows, piece, place)
                }
                Order::Rows => {}
                Order::Columns if pass.last => strip.ahead = upcoming.part(place),
                Order::Columns => {}
            }
        }
        set.strip(&mut strip);
    }

    /// Whether the left operand may lie outside the caches.
    pub fn is_left_far(&self) -> bool {
        self.m * self.k >= FAR
    }

    fn width(&self) -> usize {
        2 * self.set.lanes()
    }

    /// The left operand from (`row`, `first`) on: data, order, stride.
    fn left(&self, row: usize, first: usize) -> (&'a [f32], Order, usize) {
        match self.lhs {
            Lhs::Rows { data, stride } => (from(data, row * stride + first), Order::Rows, stride),
            Lhs::Columns { data, stride } => (from(data, first * stride + row), Order::Columns, stride),
            Lhs::Packed(_) => unreachable!("products of f32 read their left operand as it lies"),
        }
    }

    /// A piece of the right operand: data, stride of k, stride of panels.
    fn right(&self, piece: Piece) -> (&'a [f32], usize, usize) {
        let width = self.width();
        match self.rhs {
            Rhs::Rows(data) => (from(data, piece.first * self.n + piece.column), self.n, width),
            Rhs::Packed(data) => {
                let start = piece.first * self.n.next_multiple_of(width) + piece.column * piece.length;
                (from(data, start), width, piece.length * width)
            }
        }
    }

    /// The left operand's next strip, of equal height.
    fn left_ahead(&self, row: usize, rows: usize, piece: Piece, place: TileIndex) -> TilePrefetch<'a> {
        if place.index + 1 == place.of || row + rows >= self.m {
            return TilePrefetch::default();
        }
        let (data, order, stride) = self.left(row + rows, piece.first);
        match order {
            Order::Rows => TilePrefetch { data, stride, rows, columns: piece.length, order: &[] },
            // The data for one k is shorter than a cache line, and this strip has already loaded its
            // beginning.
            Order::Columns => TilePrefetch {
                data: from(data, rows - 1),
                stride,
                rows: piece.length,
                columns: 1,
                order: &[],
            },
        }
    }

    /// This strip's part of the next piece of the right operand; there are as many parts as strips.
    fn right_ahead(&self, next: Piece, place: TileIndex) -> TilePrefetch<'a> {
        if let Rhs::Rows(_) = self.rhs {
            return TilePrefetch::default();
        }
        let columns = (next.length * next.columns).div_ceil(place.of);
        TilePrefetch {
            data: from(self.right(next).0, place.index * columns),
            stride: 0,
            rows: 1,
            columns,
            order: &[],
        }
    }

    fn finish(&self, last: bool, at: usize, column: usize) -> Finish<'a> {
        match self.epilogue {
            Epilogue::Update { rate } => Finish::Update { rate },
            _ if !last => Finish::Store,
            Epilogue::Store => Finish::Store,
            Epilogue::Bias { bias, relu } => Finish::Affine {
                bias: bias.map(|b| &b[column..]),
                floor: if relu { 0.0 } else { f32::NEG_INFINITY },
            },
            Epilogue::WherePositive { saved } => Finish::WherePositive { saved: &saved[at..] },
        }
    }
}
