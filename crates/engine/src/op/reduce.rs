//! Sums over a whole buffer into one cell, in double precision and in an order that does not depend on the
//! number of threads.

use super::{
    Access, Cost, Emitter, Encoder, Kind, Operation, PARTIAL_SUMS, PARTIALS, Record, Refused, Size, Slice,
    record::FLAG_SQUARED,
    reference::Memory,
    run::{Context, Slices},
    split::Split,
};
use crate::vector::vectorized;

/// cell = the L2 norm of `of`, or its square.
#[derive(Clone, Debug, PartialEq)]
pub struct Norm {
    pub of: Slice,
    /// A single element.
    pub cell: Slice,
    pub how: NormKind,
}

/// How a norm is summed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormKind {
    /// Square root of sums per chunk. Threads share the chunks; each chunk's sum is rounded to f32.
    Chunked,
    /// Square root of a sum by one thread, without intermediate rounding.
    Exact,
    /// As [`Exact`](Self::Exact), without the square root: tr(M Mᵀ) of a matrix.
    Squared,
}

/// cell = scale times the sum of `of`, in double precision.
#[derive(Clone, Debug, PartialEq)]
pub struct Mean {
    /// `[rows]`.
    pub of: Slice,
    pub cell: Slice,
    /// 1 / rows for a mean over rows, 1 for a sum.
    pub scale: f64,
}

/// Up to this many elements one block of a GPU sums alone (`TEAM_SUM` of kernels/common.cuh).
const ONE_BLOCK: usize = 8192;

fn access(of: Slice, cell: Slice) -> Access {
    let partial = if of.len > ONE_BLOCK { PARTIAL_SUMS } else { Slice::default() };
    Access::new([of], [cell, partial])
}

impl Operation for Norm {
    fn access(&self) -> Access {
        access(self.of, self.cell)
    }

    fn cost(&self) -> Cost {
        Cost::new(2 * self.of.len, self.of.len)
    }

    fn reference(&self, memory: &mut Memory) {
        let square = memory.get(self.of).iter().map(|v| v * v).sum::<f64>();
        memory.set(self.cell, &[if self.how == NormKind::Squared { square } else { square.sqrt() }]);
    }

    fn split(&self, split: &mut Split<'_>) {
        let of = self.of;
        if self.how != NormKind::Chunked {
            let job = Job::SquareSum { root: self.how == NormKind::Exact };
            return split.single(job, Access::new([of], [self.cell]));
        }
        let chunks = of.len.div_ceil(CHUNK);
        let partial = split.scratch(chunks);
        split.units(chunks, 1, |c| {
            let part = of.part(c.start * CHUNK..(c.end * CHUNK).min(of.len));
            (Job::Squares, Access::new([part], [partial.part(c)]))
        });
        split.single(Job::Root, Access::new([partial], [self.cell]));
    }

    fn record(&self, e: &Encoder<'_>) -> Result<Record, Refused> {
        let flags = if self.how == NormKind::Squared { FLAG_SQUARED } else { 0 };
        Ok(Record { flags, ..e.numbered(Kind::Norm, self.of.len, [self.of, self.cell])? })
    }
}

impl Operation for Mean {
    fn access(&self) -> Access {
        access(self.of, self.cell)
    }

    fn cost(&self) -> Cost {
        Cost::new(self.of.len, self.of.len)
    }

    fn reference(&self, memory: &mut Memory) {
        let mean = memory.get(self.of).iter().sum::<f64>() * self.scale;
        memory.set(self.cell, &[mean]);
    }

    fn split(&self, split: &mut Split<'_>) {
        split.single(Job::Mean { scale: self.scale }, Access::new([self.of], [self.cell]));
    }

    fn record(&self, e: &Encoder<'_>) -> Result<Record, Refused> {
        let scale = self.scale;
        Ok(Record { scale, ..e.numbered(Kind::Mean, self.of.len, [self.of, self.cell])? })
    }

    fn emit(&self, r: &Record, e: &Emitter) -> String {
        let [full, last] = e.rows.map(|rows| rows as f64);
        e.call(r, &Record { scale: self.scale * (full / last), ..*r })
    }
}

/// Each block sums 1024 elements, four per thread, before it pays to use another one.
pub(super) fn size(r: &Record, multiprocessors: u32) -> Size {
    Size::new(r.product(r.n, 1).div_ceil(1024), multiprocessors.min(PARTIALS as u32))
}

/// Reads elements and writes one or several sums.
#[derive(Clone, Copy, Debug)]
pub enum Job {
    /// A sum of squares per chunk.
    Squares,
    Root,
    SquareSum {
        root: bool,
    },
    Mean {
        scale: f64,
    },
}

impl Job {
    #[inline]
    pub(super) fn run(&self, ([of, ..], [to, ..]): Slices<'_>, _: &mut Context<'_>) {
        match *self {
            Self::Squares => squares(of, to),
            Self::Root => to[0] = sum(of).sqrt() as f32,
            Self::SquareSum { root } => {
                let total = sum_of_squares(of);
                to[0] = if root { total.sqrt() } else { total } as f32;
            }
            Self::Mean { scale } => to[0] = (sum(of) * scale) as f32,
        }
    }
}

const CHUNK: usize = 4096;

/// Number of partial sums that are added up separately before they are joined, so that the loop vectorizes in
/// a fixed order.
const LANES: usize = 16;

/// The sum in double precision: 16 partial sums, joined in order.
pub(super) fn sum(values: &[f32]) -> f64 {
    vectorized(
        #[inline(always)]
        || lanes(values, |v| v),
    )
}

/// The sum of squares in double precision: 16 partial sums, joined in order.
fn sum_of_squares(values: &[f32]) -> f64 {
    vectorized(
        #[inline(always)]
        || lanes(values, |v| v * v),
    )
}

/// Sums of squares of each chunk of [`CHUNK`] elements.
fn squares(values: &[f32], partial: &mut [f32]) {
    for (chunk, partial) in values.chunks(CHUNK).zip(partial) {
        *partial = sum_of_squares(chunk) as f32;
    }
}

#[inline(always)]
fn lanes(values: &[f32], f: impl Fn(f64) -> f64) -> f64 {
    let (chunks, rest) = values.as_chunks::<LANES>();
    let mut sums = [0.0f64; LANES];
    for chunk in chunks {
        for (s, v) in sums.iter_mut().zip(chunk) {
            *s += f(f64::from(*v));
        }
    }
    for (s, v) in sums.iter_mut().zip(rest) {
        *s += f(f64::from(*v));
    }
    sums.iter().sum()
}
