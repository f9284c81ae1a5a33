//! Rows of which a step needs no copy.

use super::{Op, Program, Slice};

/// Narrower rows are copied: it costs next to nothing, and short rows side by side are quicker to read.
const LEAST_WIDTH: usize = 16;

/// Batches of no more rows are copied: the copy stays in the nearest cache.
pub const IN_PLACE_FROM: usize = 64;

impl Program {
    /// The batch's features, where a host that can read the data itself needs no copy of them: all who use them are layers
    /// with one output, which read a row from its first number to its last, once forward and, soon after, once for the
    /// gradient.
    pub fn features_in_place(&self) -> Option<Slice> {
        let features = self.instructions.iter().find_map(|i| match i.op {
            Op::Gather { x, rows, width, .. } if width >= LEAST_WIDTH && rows > IN_PLACE_FROM => Some(x),
            _ => None,
        })?;
        let touches = |op: &Op| {
            let mut touches = false;
            op.each_slice(|slice| touches |= slice.buffer == features.buffer);
            touches && !matches!(op, Op::Gather { .. })
        };
        let reads = |op: &Op| match *op {
            Op::Linear { x, outputs: 1, .. } | Op::WeightGradient { x, outputs: 1, .. } => x == features,
            _ => false,
        };
        let mut users = self.instructions.iter().map(|i| &i.op).filter(|op| touches(op)).peekable();
        (users.peek().is_some() && users.all(reads)).then_some(features)
    }
}
