//! The minimum cost of an op: floating-point operations, and bytes, each read or written once.

use std::{iter::Sum, ops::Add};

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// A multiply-add counts as two.
    pub flops: f64,
    /// Bytes moved between memory and the op if no cache keeps anything between ops.
    pub bytes: f64,
    /// Operations that belong to functions (an exponential, random bits, a square root with a division),
    /// which take a vector unit longer than an addition.
    pub functions: f64,
}

impl Cost {
    /// `numbers`: how many f32 elements are read or written.
    pub fn new(flops: usize, numbers: usize) -> Self {
        Self { flops: flops as f64, bytes: numbers as f64 * 4.0, functions: 0.0 }
    }

    /// All operations are functions.
    pub fn with_functions(functions: usize, numbers: usize) -> Self {
        Self { functions: functions as f64, ..Self::new(functions, numbers) }
    }

    /// A matrix product `[m, k, n]`; `numbers` as for [`new`](Self::new).
    pub fn product([m, k, n]: [usize; 3], numbers: usize) -> Self {
        Self { flops: 2.0 * m as f64 * k as f64 * n as f64, ..Self::new(0, numbers) }
    }
}

impl Add for Cost {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self {
            flops: self.flops + other.flops,
            bytes: self.bytes + other.bytes,
            functions: self.functions + other.functions,
        }
    }
}

impl Sum for Cost {
    fn sum<I: Iterator<Item = Self>>(costs: I) -> Self {
        costs.fold(Self::default(), Add::add)
    }
}

/// From this number of multiply-adds on, a GPU's products are computed by the library: its tuned tiles and
/// tensor cores then repay a separate call. An estimate.
pub const LARGE_PRODUCT: f64 = 2e7;

/// Whether a product of this shape is large enough for the library.
pub fn is_large(shape: [usize; 3]) -> bool {
    shape.iter().map(|n| *n as f64).product::<f64>() >= LARGE_PRODUCT
}

/// Operations of an exponential: range reduction and a polynomial.
pub const FUNCTION: usize = 20;
