//! What an op costs at least: floating-point operations, and bytes read and written once each.

use std::{iter::Sum, ops::Add};

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// A multiply-add counts as two.
    pub flops: f64,
    /// Bytes that pass between an op and memory if nothing stays in a cache between ops.
    pub bytes: f64,
    /// Those of the operations that are functions (an exponential, random bits, a root with a division) and take a vector
    /// unit longer than an addition.
    pub functions: f64,
}

impl Cost {
    /// `numbers`: f32 elements read or written.
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

/// Multiply-adds from which a GPU's products are left to a library, whose tuned tiles and tensor cores then pay for a call
/// of its own: an estimate.
pub const LARGE_PRODUCT: f64 = 2e7;

/// Whether a product of that shape is one of these.
pub fn is_large(shape: [usize; 3]) -> bool {
    shape.iter().map(|n| *n as f64).product::<f64>() >= LARGE_PRODUCT
}

/// Operations of an exponential: range reduction and a polynomial.
pub const FUNCTION: usize = 20;
