//! `kind = "matmul"`: products of random matrices, their norms, and when the norms leave the device.

// Doc comments also become schema text, where brackets mean arrays, not links.
#![allow(rustdoc::broken_intra_doc_links)]

use std::time::Duration;

use crate::{
    Policy,
    duration::{read_time, seconds},
    reader::{Item, choices, count, size, some, table, words},
};

/// Maximum number of shapes in one spec.
const MOST_SHAPES: usize = 1000;

/// So many products of a shape are done, whatever the time: a median of fewer says little.
pub const FEWEST_PRODUCTS: u64 = 3;

table! {
    /// The table `[matmul]`.
    pub struct Matmul {
        /// What is multiplied.
        pub operands: Operands [flatten] = Operands::Sizes(vec![100]),
        /// Left factors of a shape, and as many right ones; each product takes the next of their pairs, which are the square of
        /// this.
        pub matrices: u64 = 1 => |v| v.integer(1..=1000),
        /// Products per shape and device.
        pub count: u64 = 1000 => |v| v.integer(1..=1_000_000_000),
        /// Time after which a device begins no further product of a shape, such as `"1s"`; the first three are always done.
        pub max_time: Option<Duration> [serialize_with = "seconds"] = None => some(read_time),
        /// What is computed of each product.
        pub norm: Norm = Norm::Frobenius,
        /// How several devices share the time.
        pub order: Order = Order::Sequential,
    }
}

choices! {
    /// Shapes of the factors.
    pub enum Operands {
        /// N of the n x n matrices ([100]).
        Sizes(Vec<usize>) = "sizes" => |v: Item<'_>| v.list(1..=MOST_SHAPES, size),
        /// Instead of `sizes`, a list of [m, k, n]: [m, k] times [k, n].
        Shapes(Vec<[usize; 3]>) = "shapes" => |v: Item<'_>| v.list(1..=MOST_SHAPES, read_shape),
    }
}

impl Operands {
    /// All shapes as `[m, k, n]`.
    pub fn shapes(&self) -> Vec<[usize; 3]> {
        match self {
            Self::Sizes(sizes) => sizes.iter().map(|n| [*n; 3]).collect(),
            Self::Shapes(shapes) => shapes.clone(),
        }
    }
}

words! {
    /// A norm of a product.
    pub enum Norm {
        /// The Frobenius norm.
        Frobenius = "frobenius",
        /// Tr(M Mᵀ), the sum of squares.
        Trace = "trace",
        /// Nothing.
        None = "none",
    }
}

words! {
    /// In which order several devices work.
    pub enum Order {
        /// One after the other.
        Sequential = "sequential",
        /// All at once.
        Concurrent = "concurrent",
    }
}

fn read_shape(v: Item<'_>) -> [usize; 3] {
    v.array("three numbers, [m, k, n]", [1; 3], |v| v.size(1))
}

table! {
    /// The table `[logging]` of a lab.
    pub struct LabLogging {
        /// When norms leave the device.
        pub policy: Policy = Policy::Buffered,
        /// Norms in a block of `buffered` (all).
        pub flush_every: Option<u64> = None => some(count),
    }
}
