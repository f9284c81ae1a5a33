//! The three products of a Linear layer, as tasks: forward, gradient of the input, gradient of the weight.

use super::{
    matmul::{Epilogue, Lhs, Lines, Rhs, Scratch, Tiled, UpcomingRows},
    ops::activation,
    pool::TileQueue,
    task::{Context, Cursor, TaskKind},
    team::Lost,
};
use crate::program::Activation;

/// A product's operands, its shape and what becomes of its sums.
struct Operands<'a> {
    lhs: Lhs<'a>,
    rhs: Rhs<'a>,
    shape: [usize; 3],
    epilogue: Epilogue<'a>,
}

/// One thread's share, of whole rows.
#[inline]
pub fn multiply(
    Context { kernel, bound }: &Context<'_>,
    job: &TaskKind,
    reads: [&[f32]; 4],
    [w0, w1]: [&mut [f32]; 2],
    at: &Cursor,
) {
    // One output: a layer of dot products, where nothing is to be laid out for tiles.
    match *job {
        TaskKind::Linear { shape: [rows, inputs, 1], bias, activation, keep, in_place, .. } => {
            let [x, weight, add, _] = reads;
            let z = if keep { &mut *w1 } else { &mut *w0 };
            let x = bound.lines(in_place, x, [rows, inputs], at);
            let relu = activation == Some(Activation::Relu);
            kernel.dot_rows(x, weight, if bias { add[0] } else { 0.0 }, relu, z);
        }
        TaskKind::WeightGradient { shape: [_, _, 1], first, stride, update, .. } => {
            let rate = update.then_some(at.hyper.rate);
            return kernel.weigh_rows(Lines::new(&reads[0][first..], stride), reads[1], rate, w0);
        }
        _ => {
            let Some(Operands { lhs, rhs, shape, epilogue }) = operands(job, reads, at) else { return };
            kernel.multiply(lhs, rhs, shape, if keeps(job) { &mut *w1 } else { &mut *w0 }, epilogue);
        }
    }
    finish(job, reads[2], w0, w1);
}

/// A member's turns at a product that the team shares; while it computes the first layer's gradient, the last in a step, it
/// has the rows brought near that it will fetch next.
pub fn take_turns(
    Context { kernel, bound }: &Context<'_>,
    job: &TaskKind,
    turns: &mut TileQueue<'_>,
    at: &Cursor,
    lost: impl Fn() -> bool,
) -> Result<(), Lost> {
    let reads = turns.reads();
    let Some(Operands { lhs, rhs, shape, epilogue }) = operands(job, reads, at) else { return Ok(()) };
    let upcoming = match *job {
        TaskKind::WeightGradient { upcoming: Some(next), .. } => {
            bound.upcoming(next, turns.share(next.rows), at)
        }
        _ => UpcomingRows::default(),
    };
    let tiled: Tiled<'_> = kernel.tiled(lhs, rhs, shape, epilogue, turns.grid());
    let mut scratch = Scratch::default();
    while let Some(mut taken) = turns.next(&lost)? {
        let (turn, rows, last, width) = (taken.turn().clone(), taken.rows(), taken.is_last(), shape[2]);
        let [w0, w1] = taken.out();
        tiled.take(&turn, upcoming, if keeps(job) { &mut *w1 } else { &mut *w0 }, &mut scratch);
        if last {
            let saved = match job {
                TaskKind::InputGradient { derivative: Some(_), .. } => {
                    &reads[2][rows.start * width..rows.end * width]
                }
                _ => &[],
            };
            finish(job, saved, w0, w1);
        }
        taken.finish();
    }
    Ok(())
}

/// Whether the sums are kept beside what the activation makes of them.
fn keeps(job: &TaskKind) -> bool {
    matches!(job, TaskKind::Linear { keep: true, .. })
}

#[inline]
fn operands<'a>(job: &TaskKind, [r0, r1, r2, _]: [&'a [f32]; 4], at: &Cursor) -> Option<Operands<'a>> {
    let right = |packed| if packed { Rhs::Packed(r1) } else { Rhs::Rows(r1) };
    Some(match *job {
        TaskKind::Linear { shape, packed, bias, activation, .. } => Operands {
            lhs: Lhs::Rows { data: r0, stride: shape[1] },
            rhs: right(packed),
            shape,
            epilogue: Epilogue::Bias { bias: bias.then_some(r2), relu: activation == Some(Activation::Relu) },
        },
        TaskKind::InputGradient { shape, derivative } => Operands {
            lhs: Lhs::Rows { data: r0, stride: shape[1] },
            rhs: Rhs::Packed(r1),
            shape,
            epilogue: match derivative {
                Some(Activation::Relu) => Epilogue::WherePositive { saved: r2 },
                _ => Epilogue::Store,
            },
        },
        TaskKind::WeightGradient { shape, first, stride, packed, update, .. } => Operands {
            lhs: Lhs::Columns { data: &r0[first..], stride },
            rhs: right(packed),
            shape,
            epilogue: match update {
                true => Epilogue::Update { rate: at.hyper.rate },
                false => Epilogue::Store,
            },
        },
        _ => return None,
    })
}

/// What follows a product on the rows that it made: an activation that does not fit its epilogue, or the way back through
/// one; `saved` are the rows' outputs of it.
#[inline]
fn finish(job: &TaskKind, saved: &[f32], w0: &mut [f32], w1: &[f32]) {
    match *job {
        TaskKind::Linear { activation: Some(f), keep: true, .. } => activation::activate(f, w1, w0),
        TaskKind::Linear { activation: Some(f), .. } if f != Activation::Relu => {
            activation::activate_in_place(f, w0)
        }
        TaskKind::InputGradient { derivative: Some(f), .. } if f != Activation::Relu => {
            activation::activate_backward(f, saved, w0);
        }
        _ => {}
    }
}
