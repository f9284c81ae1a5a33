//! Whether a step may use the batch's rows in place, without copying them.

use super::{Op, Program, SUM_ROWS, Slice};

/// Narrower rows are copied: it costs next to nothing, and short rows are faster to read side by side.
const LEAST_WIDTH: usize = 16;

/// Batches of at most this many rows are copied: the copy stays in the L1 cache, and the weight gradient of
/// so few rows does not support reading in place.
const IN_PLACE_FROM: usize = SUM_ROWS;

impl Program {
    /// The batch's features, if a host that can read the data itself needs no copy of them. That holds if
    /// only layers with one output use them: these read each row from start to end, once forward and, soon
    /// after, once for the gradient.
    pub fn features_in_place(&self) -> Option<Slice> {
        let features = self.instructions.iter().find_map(|i| match &i.op {
            Op::Gather(g) if g.width >= LEAST_WIDTH && g.rows > IN_PLACE_FROM => Some(g.x),
            _ => None,
        })?;
        let touches = |op: &Op| {
            !matches!(op, Op::Gather(_))
                && op.access().touched().any(|s| s.len > 0 && s.buffer == features.buffer)
        };
        let reads = |op: &Op| match op {
            Op::Linear(op) => op.outputs == 1 && op.x == features,
            Op::WeightGradient(op) => op.outputs == 1 && op.x == features,
            _ => false,
        };
        let mut users = self.instructions.iter().map(|i| &i.op).filter(|op| touches(op)).peekable();
        (users.peek().is_some() && users.all(reads)).then_some(features)
    }
}
