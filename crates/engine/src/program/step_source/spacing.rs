//! Which matrices of a block's step lie in shared memory with gaps between their rows. Where rows are a
//! multiple of 16 elements long, the lanes of a warp that read one column would meet in a few banks.

use super::{Access, Gather, Learning, Op, Slice, Spaced, Step, aligned};

/// Elements of a gap. Lanes read eight rows of a matrix beside each other in pairs, or four rows of it eight elements
/// wide; of a weight, every other row.
const GAP: usize = 8;
const WEIGHT_GAP: usize = 4;

/// A matrix that an op touches, and the length of its rows.
type Matrix = (Slice, usize);

/// Where a slice lies, if it does.
type OffsetOf<'a> = &'a dyn Fn(Slice) -> Option<u64>;

/// Places from `first` on for the matrices that only products touch: these know the length of stored rows. Also
/// returns the place behind them.
pub fn spaced(
    step: &Step<'_>,
    (place, is_value): (OffsetOf<'_>, &dyn Fn(Slice) -> bool),
    first: usize,
    fetches_ahead: bool,
) -> (Vec<Spaced>, usize) {
    let mut all: Vec<Matrix> = Vec::new();
    let ops: Vec<_> = step.program.instructions.iter().map(|i| &i.op).collect();
    let ops = ops.into_iter().filter(|op| !(step.learning.is_some() && matches!(op, Op::Update(_))));
    let touched: Vec<(Access, Vec<Matrix>)> =
        ops.map(|op| (op.access(), matrices(op, fetches_ahead, step.learning.as_ref()))).collect();
    for matrix in touched.iter().flat_map(|(_, own)| own) {
        if matrix.1.is_multiple_of(16) && matrix.0.len > matrix.1 && !all.contains(matrix) {
            all.push(*matrix);
        }
    }
    // A matrix stays dense if something else touches a part of it, or if another result of its op is dense.
    loop {
        let before = all.len();
        let known = all.clone();
        all.retain(|matrix| {
            touched.iter().all(|(access, own)| {
                let whole = |slice: Slice| own.iter().any(|(known, _)| *known == slice);
                let alien = access.touched().any(|slice| slice.overlaps(matrix.0) && !whole(slice));
                let other = own.iter().any(|other| other.0.overlaps(matrix.0) && other != matrix);
                let results = own.iter().skip(2).filter(|_| own.iter().skip(2).any(|own| own == matrix));
                !alien && !other && results.into_iter().all(|result| known.contains(result))
            })
        });
        if all.len() == before {
            break;
        }
    }
    let mut at = first;
    let spaced = all.into_iter().filter_map(|(slice, width)| {
        let (rows, line) = (slice.len / width, width + if is_value(slice) { WEIGHT_GAP } else { GAP });
        let own = Spaced { slice, from: place(slice)?, at: at as u64, rows, width, line };
        at += aligned(rows * line);
        Some(own)
    });
    (spaced.collect(), at)
}

/// The matrices of a product: two operands, then results (with those that are read where results are written).
fn matrices(op: &Op, fetches_ahead: bool, learning: Option<&Learning>) -> Vec<Matrix> {
    match op {
        Op::Gather(Gather { x, width, .. }) if fetches_ahead => vec![(*x, *width)],
        Op::Linear(op) => {
            let results = op.pre.into_iter().chain([op.y]).map(|slice| (slice, op.outputs));
            [(op.x, op.inputs), (op.weight, op.outputs)].into_iter().chain(results).collect()
        }
        Op::InputGradient(op) => {
            let saved = op.derivative.map(|(_, saved)| saved);
            let results = saved.into_iter().chain([op.dx]).map(|slice| (slice, op.inputs));
            [(op.dy, op.outputs), (op.weight, op.outputs)].into_iter().chain(results).collect()
        }
        Op::WeightGradient(op) => {
            // A gradient that is used at once is not stored.
            let to = if learning.is_some() { (Slice::default(), 0) } else { (op.to, op.outputs) };
            vec![(op.x, op.inputs), (op.dy, op.outputs), to]
        }
        Op::BiasGradient(op) => vec![(op.dy, op.outputs)],
        _ => Vec::new(),
    }
}
