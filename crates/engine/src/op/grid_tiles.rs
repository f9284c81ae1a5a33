//! Products in tiles over the blocks of a grid: the shape of a tile, and its text in a compiled step.

use std::fmt::Write;

use super::{Record, Tiles, emit::Operand};

/// Threads of each block of a grid.
pub const GRID_THREADS: u32 = 256;

/// The most elements of shared memory that tiles use: 48 KiB, which every GPU gives a block.
pub const MOST_SHARED: i32 = 12 << 10;

/// Slices of the operands in shared memory (`SLICES` of kernels/grid.cuh).
const SLICES: i32 = 3;

/// Columns of a thread's tile.
const THREAD_COLUMNS: i32 = 4;

/// Rows and columns of tiles, and rows of a thread's part of them.
const TILES: [[i32; 3]; 11] = [
    [16, 16, 4],
    [32, 16, 4],
    [16, 32, 4],
    [32, 32, 4],
    [32, 16, 8],
    [32, 32, 8],
    [64, 16, 8],
    [64, 32, 8],
    [32, 64, 8],
    [64, 64, 8],
    [128, 64, 8],
];

/// Terms of a slice.
const DEPTHS: [i32; 4] = [64, 32, 16, 8];

/// Estimated cycles of a slice besides its work: a barrier of the block, and each quad that a thread copies. These and
/// the cycles of an element at the end agree with an H200, where 784-256-10 took 24.5 us.
const SLICE_CYCLES: f64 = 300.0;
const QUAD_CYCLES: f64 = 110.0;

/// Estimated cycles of each element that a thread finishes: its sums, the weight from the L2 cache, and the update.
const FINISH_CYCLES: f64 = 250.0;

/// Estimated cycles until a tile's first slices are there.
const BEGIN_CYCLES: f64 = 700.0;

/// Bytes per cycle that a multiprocessor gets from the L2 cache while all of them read.
const BYTES_PER_CYCLE: f64 = 32.0;

/// How the blocks of a grid share a product.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GridTiles {
    /// Rows of a block's tile.
    pub rows: i32,
    pub columns: i32,
    /// Rows of a thread's part of a tile.
    pub thread_rows: i32,
    /// Terms of a slice.
    pub depth: i32,
    /// Blocks that have work.
    pub blocks: u32,
    /// Elements of shared memory.
    pub elements: usize,
    /// Estimated cycles.
    pub cycles: f64,
}

impl GridTiles {
    /// The fastest tiles by this estimate: a multiprocessor does 128 multiply-adds per cycle, of which threads
    /// reach the more, the fewer elements they load for each; it waits for the L2 cache, for the first slices,
    /// and for the sums that are added and stored at the end.
    pub fn best([m, k, n]: [i32; 3], [a, b]: [Operand; 2], blocks: u32) -> Option<Self> {
        let tiles = TILES.into_iter().flat_map(|tile| DEPTHS.map(|depth| (tile, depth)));
        let tiles = tiles.filter_map(|([rows, columns, thread_rows], depth)| {
            let shares = GRID_THREADS as i32 / (rows / thread_rows * (columns / THREAD_COLUMNS));
            let elements = SLICES * (a.slab(rows, depth) + b.slab(columns, depth));
            if depth < 4 * shares || elements > MOST_SHARED {
                return None;
            }
            let sums = GRID_THREADS as i32 * thread_rows * THREAD_COLUMNS;
            let count = f64::from(Tiles::up(m, rows)) * f64::from(Tiles::up(n, columns));
            let busy = count.min(f64::from(blocks));
            let [area, slices] = [rows * columns, Tiles::up(k, depth)].map(f64::from);
            let terms = slices * f64::from(depth);
            let peak_share = if thread_rows == 8 { 0.7 } else { 0.5 };
            let quads = ((rows + columns) * depth / 4 + GRID_THREADS as i32 - 1) / GRID_THREADS as i32;
            let slice = SLICE_CYCLES + f64::from(quads) * QUAD_CYCLES;
            let work = area * terms / (128.0 * peak_share) + slices * slice;
            let loads = f64::from(rows + columns) * terms * 4.0 / BYTES_PER_CYCLE;
            let ends = area / f64::from(GRID_THREADS) * (FINISH_CYCLES + 4.0 * f64::from(shares));
            let cycles = (count / f64::from(blocks)).ceil() * (BEGIN_CYCLES + work.max(loads) + ends);
            let elements = elements.max(sums) as usize;
            Some(Self { rows, columns, thread_rows, depth, blocks: busy as u32, elements, cycles })
        });
        tiles.min_by(|a, b| a.cycles.total_cmp(&b.cycles))
    }

    /// Writes the call for `c`, whose operands begin at the record's first two places.
    pub(super) fn write(
        self,
        text: &mut String,
        r: &Record,
        [m, k, n]: [i32; 3],
        [a, b]: [Operand; 2],
        finish: &str,
    ) {
        let Self { rows, columns, thread_rows, depth, .. } = self;
        let quads = |at: u64, line: i32| at.is_multiple_of(4) && line % 4 == 0;
        let [quads_a, quads_b] = [quads(r.at[0], a.line(k, m)), quads(r.at[1], b.line(k, n))];
        let (a, b) = (a.name(), b.name());
        let _ = write!(
            text,
            "grid_product<THREADS, BLOCKS, {m}, {n}, {k}, {rows}, {columns}, {thread_rows}, {depth}, {a}, {b}, {quads_a}, \
             {quads_b}>(c.a, c.b, shared + TILES, [&](int i, int j, float z) {{ {finish} }});"
        );
    }
}

impl Operand {
    /// Elements of its part of a slice, as `Slab` of kernels/grid.cuh lays it out.
    fn slab(self, edge: i32, depth: i32) -> i32 {
        if matches!(self, Self::AlongK) { edge * (depth + 4) } else { edge * depth }
    }

    /// The length of its stored lines.
    pub(super) fn line(self, k: i32, side: i32) -> i32 {
        if matches!(self, Self::AlongK) { k } else { side }
    }
}
