//! What the three products of a Linear layer share: how they are divided among threads, packed, run and
//! launched.

use std::ops::Range;

use super::{
    Access, Activation, Kind, PARTIALS, Record, SLIM, SLIM_ROWS, Size, Slice,
    activation::{activate, activate_backward, activate_in_place},
    run::{Context, NextRows, RowFetch, Slices},
    split::{Draft, Shared, Split, Step},
};
use crate::vector::matmul::{Epilogue, Kernel, Lhs, Lines, Rhs, Source};

/// Threads share a pool of tiles, so that idle ones help, if there are at least this many tiles per thread,
/// ...
const SHARED_TILES: usize = 4;

/// ... at least this many columns (two of the widest tiles), ...
const SHARED_COLUMNS: usize = 64;

/// ... and at least this many multiply-adds. That is about 50 µs of one thread; taking tiles and one more
/// barrier cost 1 µs.
const SHARED_TERMS: usize = 3 << 20;

/// The same limit for bfloat16.
const SHARED_HALF_TERMS: usize = 24 << 20;

/// Adds a product's tasks: a pool of tiles if there are enough of them, else shares in multiples of `unit`
/// rows.
pub(super) fn split(
    split: &mut Split<'_>,
    shape: [usize; 3],
    packed: Packed,
    unit: usize,
    widths: [usize; 2],
    draft: impl Fn(Range<usize>) -> (Job, Access),
) {
    let [m, k, n] = shape;
    let grid = split.kernel.grid(shape, packed != Packed::No, split.threads);
    let (unit, terms) = match split.kernel.strip_rows() {
        Some(strip) => (strip, SHARED_HALF_TERMS),
        None => (unit, SHARED_TERMS),
    };
    let tiles = grid.tiles();
    let shared = split.threads > 1
        && m >= tiles
        && tiles >= SHARED_TILES * split.threads
        && n >= SHARED_COLUMNS
        && m * k * n >= terms
        && fits(tiles, split.threads);
    if shared {
        let (job, access) = draft(0..m);
        let draft = Draft { job: job.into(), access, phase: split.phase };
        split.steps.push(Step::Shared(Box::new(Shared { draft, grid, widths })));
    } else {
        split.units(m, unit, draft);
    }
}

/// Whether this many tiles can be shared by this many threads: each thread's queue must be able to count its
/// tiles.
pub fn fits(tiles: usize, threads: usize) -> bool {
    tiles >= threads && tiles.div_ceil(threads) <= usize::from(u16::MAX)
}

/// Which operands of a product are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packed {
    No,
    Right,
    /// Both operands, in tiles of bfloat16.
    Both,
}

/// The operands of a product, packed or not.
pub(super) struct Placed {
    /// The left one if it is packed, with what is needed to find the part for some rows.
    left: Option<(Slice, Kernel, usize)>,
    pub right: Slice,
    pub packed: Packed,
}

impl Placed {
    /// The part of the packed left operand for some rows, which must begin with a strip; `None` if it is not
    /// packed.
    pub fn left(&self, rows: &Range<usize>) -> Option<Slice> {
        self.left.map(|(left, kernel, k)| left.part(kernel.left_range(k, rows.clone())))
    }
}

/// Packs the operands of a product `[m, k, n]`. The right operand, `[k, n]` or transposed, is packed if that
/// pays for `m` rows of the left one. In bfloat16 both are always packed.
pub(super) fn pack(
    split: &mut Split<'_>,
    (left, columns): (Slice, bool),
    (right, transposed): (Slice, bool),
    [m, k, n]: [usize; 3],
) -> Placed {
    let kernel = split.kernel;
    let left = kernel.strip_rows().map(|strip| {
        let packed = split.scratch(kernel.left_len(m, k));
        split.units(m.div_ceil(strip), 1, |strips| {
            let rows = strips.start * strip..m.min(strips.end * strip);
            let to = packed.part(kernel.left_range(k, rows.clone()));
            // If the operand is stored by rows, each share reads only its own rows.
            let (from, strips) =
                if columns { (left, strips) } else { (left.rows(&rows, k), 0..strips.len()) };
            let (from_side, lines) =
                if columns { (Side::LeftColumns, m) } else { (Side::LeftRows, rows.len()) };
            let units = (strips.start, strips.end);
            (Pack { side: from_side, shape: [lines, k], units }, Access::new([from], [to]))
        });
        (packed, kernel, k)
    });
    if left.is_none() && !transposed && !kernel.worth_packing(m, n) {
        return Placed { left, right, packed: Packed::No };
    }
    let packed = split.scratch(kernel.packed_len(k, n));
    let side = if transposed { Side::Transposed } else { Side::Right };
    split.units(kernel.units(k, n), 1, |units| {
        let to = packed.part(kernel.unit_range(k, n, units.clone()));
        (Pack { side, shape: [k, n], units: (units.start, units.end) }, Access::new([right], [to]))
    });
    let form = if left.is_some() { Packed::Both } else { Packed::Right };
    Placed { left, right: packed, packed: form }
}

/// The launch of the stand-alone kernel of a product `[m, k, n]`.
pub(super) fn size(r: &Record, [m, k, n]: [i32; 3], multiprocessors: u32) -> Size {
    let blocks = |rows: i32, of: u64| u64::try_from(rows).unwrap_or(0).div_ceil(of);
    if n > SLIM {
        Size::new(blocks(m, 32) * blocks(n, 32), multiprocessors.saturating_mul(2))
    } else if k >= 64 {
        // As many warps per row as there are to spare (`slim_rows` of kernels/product.cu).
        let most = multiprocessors.saturating_mul(4);
        let fits = |warps: &u64| 64 * warps <= k as u64 && blocks(m, 1) * warps <= 8 * u64::from(most);
        let warps = [8, 4, 2].into_iter().find(fits).unwrap_or(1);
        Size::new((blocks(m, 1) * warps).div_ceil(8), most)
    } else {
        Size::of_threads(r.product(m, n), multiprocessors)
    }
}

/// Whether a product of this kind and of [rows, inputs, outputs] is one pass over its wide matrix, which this project's
/// kernel reads faster than the library (kernels/linear.cu, kernels/input_gradient.cu).
pub fn is_slim(kind: Kind, [rows, inputs, outputs]: [i32; 3]) -> bool {
    match kind {
        Kind::InputGradient => outputs <= SLIM,
        // Few rows make too few blocks to read long ones.
        Kind::Linear => {
            outputs <= 12 && rows >= SLIM_ROWS && rows / 2 >= inputs && inputs >= 64 && inputs % 4 == 0
        }
        _ => false,
    }
}

/// The launch of a kernel that sums columns over many rows (`Strips` of kernels/lanes.cuh).
pub(super) struct Strips {
    pub columns: i32,
    /// Columns that a block sums at a time.
    pub width: u64,
    /// Fewer rows are not worth a block of their own.
    pub least_rows: u64,
    pub blocks_per_multiprocessor: u32,
}

impl Strips {
    /// Blocks share the rows of a strip if there are blocks to spare.
    pub(super) fn size(self, rows: i32, multiprocessors: u32) -> Size {
        let most = multiprocessors.saturating_mul(self.blocks_per_multiprocessor).min(PARTIALS as u32);
        let [columns, rows] = [self.columns, rows].map(|n| u64::try_from(n).unwrap_or(0));
        let strips = columns.div_ceil(self.width).max(1);
        let parts = (u64::from(most) / strips).min(rows / self.least_rows).max(1);
        Size::new(strips * parts, most)
    }
}

/// Which operand is packed, and how it is stored.
#[derive(Clone, Copy, Debug)]
enum Side {
    /// The right one, `[k, n]`.
    Right,
    /// The right one, stored transposed.
    Transposed,
    /// The left one, `[m, k]`.
    LeftRows,
    /// The left one, stored transposed.
    LeftColumns,
}

/// Reads an operand and writes units of its packed form. `shape` is the operand's.
#[derive(Clone, Copy, Debug)]
pub struct Pack {
    side: Side,
    shape: [usize; 2],
    units: (usize, usize),
}

impl Pack {
    #[inline]
    pub(super) fn run(&self, ([from, ..], [to, ..]): Slices<'_>, context: &mut Context<'_>) {
        let (kernel, shape @ [m, k], units) = (context.kernel, self.shape, self.units.0..self.units.1);
        match self.side {
            Side::Right => kernel.pack(Source::Rows(from), shape, units, to),
            Side::Transposed => kernel.pack(Source::Transposed(from), shape, units, to),
            Side::LeftRows => kernel.pack_left(Lhs::Rows { data: from, stride: k }, shape, units, to),
            Side::LeftColumns => kernel.pack_left(Lhs::Columns { data: from, stride: m }, shape, units, to),
        }
    }
}

/// A product, or some of its rows. `shape` is `[m, k, n]`.
#[derive(Clone, Copy, Debug)]
pub enum Job {
    /// Reads x, weight (either may be packed), bias; writes y and, with `keep`, z (the value before the
    /// activation). With one output, x may be read in place from the data.
    Linear {
        shape: [usize; 3],
        packed: Packed,
        bias: bool,
        activation: Option<Activation>,
        keep: bool,
        in_place: Option<RowFetch>,
    },
    /// Reads dy (which may be packed), packed Wᵀ, saved; writes dx.
    InputGradient { shape: [usize; 3], packed: Packed, derivative: Option<Activation> },
    /// Reads x, dy (either may be packed); writes rows of the gradient or, with `update`, of the weight.
    /// Meanwhile the next step's rows may be prefetched.
    WeightGradient {
        shape: [usize; 3],
        first: usize,
        stride: usize,
        packed: Packed,
        update: bool,
        upcoming: Option<NextRows>,
    },
}

/// A product's operands and shape, and what to do with its sums.
pub struct Operands<'a> {
    pub lhs: Lhs<'a>,
    pub rhs: Rhs<'a>,
    pub shape: [usize; 3],
    pub epilogue: Epilogue<'a>,
}

impl Job {
    /// Runs one thread's share, which consists of whole rows.
    #[inline]
    pub(super) fn run(&self, (reads, [w0, w1, ..]): Slices<'_>, context: &mut Context<'_>) {
        let (kernel, at) = (context.kernel, &context.at);
        // A layer with one output consists of dot products, which need no tiles.
        match *self {
            _ if self.packed() == Packed::Both => self.multiply(reads, w0, w1, context),
            Job::Linear { shape: [rows, inputs, 1], bias, activation, keep, in_place, .. } => {
                let [x, weight, add, _] = reads;
                let z = if keep { &mut *w1 } else { &mut *w0 };
                let x = context.bound.lines(in_place, x, [rows, inputs], at);
                let relu = activation == Some(Activation::Relu);
                kernel.dot_rows(x, weight, if bias { add[0] } else { 0.0 }, relu, z);
            }
            Job::WeightGradient { shape: [_, _, 1], first, stride, update, .. } => {
                let rate = update.then_some(at.hyper.rate);
                kernel.weigh_rows(Lines::new(&reads[0][first..], stride), reads[1], rate, w0);
                return;
            }
            _ => self.multiply(reads, w0, w1, context),
        }
        self.finish(reads[2], w0, w1);
    }

    #[inline]
    fn multiply(&self, reads: [&[f32]; 4], w0: &mut [f32], w1: &mut [f32], context: &Context<'_>) {
        let Operands { lhs, rhs, shape, epilogue } = self.operands(reads, context.at.hyper.rate);
        context.kernel.multiply(lhs, rhs, shape, if self.keeps() { w1 } else { w0 }, epilogue);
    }

    fn packed(&self) -> Packed {
        let (Job::Linear { packed, .. }
        | Job::InputGradient { packed, .. }
        | Job::WeightGradient { packed, .. }) = *self;
        packed
    }

    /// Whether the sums are stored in addition to the activation's results.
    pub fn keeps(&self) -> bool {
        matches!(self, Job::Linear { keep: true, .. })
    }

    /// The product's operands. `rate` is the learning rate, for a fused update.
    #[inline]
    pub fn operands<'a>(&self, [r0, r1, r2, _]: [&'a [f32]; 4], rate: f32) -> Operands<'a> {
        let packed = self.packed();
        let rhs = if packed == Packed::No { Rhs::Rows(r1) } else { Rhs::Packed(r1) };
        let left = |lhs| if packed == Packed::Both { Lhs::Packed(r0) } else { lhs };
        match *self {
            Job::Linear { shape, bias, activation, .. } => Operands {
                lhs: left(Lhs::Rows { data: r0, stride: shape[1] }),
                rhs,
                shape,
                epilogue: Epilogue::Bias {
                    bias: bias.then_some(r2),
                    relu: activation == Some(Activation::Relu),
                },
            },
            Job::InputGradient { shape, derivative, .. } => Operands {
                lhs: left(Lhs::Rows { data: r0, stride: shape[1] }),
                rhs,
                shape,
                epilogue: match derivative {
                    Some(Activation::Relu) => Epilogue::WherePositive { saved: r2 },
                    _ => Epilogue::Store,
                },
            },
            Job::WeightGradient { shape, first, stride, update, .. } => Operands {
                lhs: left(Lhs::Columns { data: r0.get(first..).unwrap_or_default(), stride }),
                rhs,
                shape,
                epilogue: if update { Epilogue::Update { rate } } else { Epilogue::Store },
            },
        }
    }

    /// What follows a product on the rows that it computed: an activation that cannot be fused into its
    /// epilogue, or the derivative of one; `saved` are the values from which the derivative is computed.
    #[inline]
    pub fn finish(&self, saved: &[f32], w0: &mut [f32], w1: &[f32]) {
        match *self {
            Job::Linear { activation: Some(f), keep: true, .. } => activate(f, w1, w0),
            Job::Linear { activation: Some(f), .. } if f != Activation::Relu => activate_in_place(f, w0),
            Job::InputGradient { derivative: Some(f), .. } if f != Activation::Relu => {
                activate_backward(f, saved, w0);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Layout;

    /// Whether a team of this many threads shares the tiles of a product.
    fn shares_of(kernel: Kernel, threads: usize, shape: [usize; 3]) -> bool {
        let (layout, mut scratch) = (Layout::bare(Vec::new()), Default::default());
        let mut s = Split::new(&layout, threads, kernel, &mut scratch);
        let job = Job::InputGradient { shape, packed: Packed::Right, derivative: None };
        split(&mut s, shape, Packed::Right, 1, [0, 0], |_| (job, Access::default()));
        matches!(s.steps[..], [Step::Shared(_)])
    }

    #[test]
    fn a_team_shares_products_of_many_tiles() {
        let shares = |threads, shape| shares_of(Kernel::detect(), threads, shape);
        assert!(shares(2, [256, 784, 256]) && shares(2, [784, 256, 256]) && shares(2, [1024, 2048, 2048]));
        // Not shared: with one thread, few terms, few columns, or fewer tiles than each thread needs.
        for (threads, shape) in
            [(1, [1024, 2048, 2048]), (2, [32, 64, 32]), (2, [1024, 2048, 10]), (64, [256, 784, 256])]
        {
            assert!(!shares(threads, shape), "{threads} {shape:?}");
        }
        // In bfloat16 strips have 32 rows, and more terms are needed.
        let bf16 = Kernel::bf16_named("portable").expect("it is everywhere");
        assert!(shares_of(bf16, 2, [257, 400, 260]) && shares_of(bf16, 2, [1024, 2048, 2048]));
        assert!(!shares_of(bf16, 2, [255, 784, 256].map(|n| n / 2)) && !shares_of(bf16, 3, [257, 400, 260]));
    }
}
