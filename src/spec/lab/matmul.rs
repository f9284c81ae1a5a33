//! `kind = "matmul"`: products of random matrices, their norms, and when those leave the device.

use serde::Serialize;

use crate::spec::{
    Policy,
    reader::{Choice, Fields, Item, Word},
};

/// Shapes in one spec at most.
const MOST_SHAPES: usize = 1000;

/// The table `[matmul]`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Matmul {
    /// What is multiplied.
    #[serde(flatten)]
    pub operands: Operands,
    /// Products per shape and device.
    pub count: u64,
    /// What is computed of each product.
    pub norm: Norm,
    /// Whether devices work one after the other.
    pub order: Order,
}

/// Shapes of the factors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Operands {
    /// Square matrices.
    Sizes(Vec<usize>),
    /// `[m, k]` times `[k, n]`.
    Shapes(Vec<[usize; 3]>),
}

impl Operands {
    /// As m, k, n.
    pub fn shapes(&self) -> Vec<[usize; 3]> {
        match self {
            Self::Sizes(sizes) => sizes.iter().map(|n| [*n; 3]).collect(),
            Self::Shapes(shapes) => shapes.clone(),
        }
    }
}

/// A figure of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Norm {
    /// The Frobenius norm.
    Frobenius,
    /// tr(M Mᵀ).
    Trace,
    /// None.
    None,
}

/// How several devices share the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// One after the other.
    Sequential,
    /// All at once.
    Concurrent,
}

impl Order {
    /// The word in `matmul.csv`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sequential => "sequential",
            Self::Concurrent => "concurrent",
        }
    }
}

impl Matmul {
    pub(super) fn read(t: &mut Fields<'_>) -> Self {
        let square = Operands::Sizes(vec![100]);
        let operands = t.one_of(
            Some(square.clone()),
            &[
                Choice {
                    name: "sizes",
                    doc: "n of the n x n matrices ([100])",
                    read: |v| Operands::Sizes(v.list(1..=MOST_SHAPES, |v| v.size(1))),
                },
                Choice {
                    name: "shapes",
                    doc: "instead of `sizes`, a list of [m, k, n]: [m, k] times [k, n]",
                    read: |v| Operands::Shapes(v.list(1..=MOST_SHAPES, read_shape)),
                },
            ],
        );
        Self {
            operands: operands.unwrap_or(square),
            count: t
                .default("count", "products per shape and device", 1000, |v| v.integer(1..=1_000_000_000)),
            norm: t.default("norm", "what is computed of each product", Norm::Frobenius, |v| {
                v.word(
                    &[
                        Word { name: "frobenius", value: Norm::Frobenius, doc: "the Frobenius norm" },
                        Word { name: "trace", value: Norm::Trace, doc: "tr(M Mᵀ), the sum of squares" },
                        Word { name: "none", value: Norm::None, doc: "nothing" },
                    ],
                    &[],
                )
            }),
            order: t.default("order", "how several devices share the time", Order::Sequential, |v| {
                v.word(
                    &[
                        Word { name: "sequential", value: Order::Sequential, doc: "one after the other" },
                        Word { name: "concurrent", value: Order::Concurrent, doc: "all at once" },
                    ],
                    &[],
                )
            }),
        }
    }
}

fn read_shape(v: Item<'_>) -> [usize; 3] {
    v.array("three numbers, [m, k, n]", [1; 3], |v| v.size(1))
}

/// The table `[logging]` of a lab.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LabLogging {
    /// When norms leave the device.
    pub policy: Policy,
    /// Norms in a block of `buffered`; absent: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flush_every: Option<u64>,
}

impl LabLogging {
    pub(super) fn read(t: &mut Fields<'_>) -> Self {
        let doc = "when norms leave the device";
        Self {
            policy: t.default("policy", doc, Policy::Buffered, |v| {
                v.word(
                    &[
                        Word { name: "immediate", value: Policy::Immediate, doc: "each as it is computed" },
                        Word { name: "buffered", value: Policy::Buffered, doc: "in blocks of `flush_every`" },
                        Word { name: "per_epoch", value: Policy::PerEpoch, doc: "their mean, once" },
                        Word { name: "off", value: Policy::Off, doc: "never" },
                    ],
                    &[],
                )
            }),
            flush_every: t.optional("flush_every", "norms in a block of `buffered` (all)", |v| {
                v.integer(1..=i64::MAX as u64)
            }),
        }
    }
}
