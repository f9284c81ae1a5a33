//! Ops: the instructions of a step, one file per op.
//!
//! The file holds the op's fields and shapes, what it reads and writes, its cost, its reference in f64, the
//! lowering if it stands for a layer, its CPU tasks and their code, and the record that its GPU kernel reads.
//! The kernel is in `kernels/` under the same file name. Nothing else lists the ops but the macros in this
//! file.
//!
//! Conventions: all numbers are f32 (classes too: a class is its index); matrices are row-major; a weight is
//! held as `[in, out]`, the transpose of PyTorch's, so that the forward product reads it along its rows.

mod access;
mod activation;
mod adam;
mod add;
mod all_reduce;
mod bias_gradient;
#[allow(unsafe_code)]
mod bytes;
mod clip;
mod cost;
mod dropout;
mod emit;
mod gather;
mod grid_tiles;
mod input_gradient;
mod layer_norm;
mod layout;
mod linear;
mod log;
mod loss;
mod lowering;
mod phase;
pub mod product;
mod record;
mod reduce;
pub mod reference;
mod rmsprop;
mod rows;
pub mod run;
mod sgd;
pub mod split;
mod stationary;
mod update;
mod weight_gradient;
mod zero;

pub use access::{Access, NON_FINITE, PARTIAL_SUMS, Window, barriers};
pub use activation::{Activate, ActivateBackward, Activation, activate};
pub use adam::Adam;
pub use add::Add;
pub use all_reduce::{AllReduce, StartAllReduce};
pub use bias_gradient::BiasGradient;
pub use clip::Clip;
pub use cost::{Cost, FUNCTION, LARGE_PRODUCT, is_large};
pub use dropout::{Dropout, DropoutBackward, keeps as dropout_keeps};
pub use emit::{Emitter, Kept, Learning, Operand, Spaced, Tiles, WorkSplit};
pub use gather::{Gather, RowSource};
pub use grid_tiles::{GRID_THREADS, GridTiles, MOST_SHARED};
pub use input_gradient::InputGradient;
pub use layer_norm::{LayerNorm, LayerNormBackward, LayerNormGradient};
pub use layout::{ALIGN, Buffer, BufferId, Layout, Parameter, Role, Slice, aligned};
pub use linear::Linear;
pub use log::{Accumulator, Log, LogTarget};
pub use loss::{Loss, LossKind};
pub use lowering::{Backward, Lowering};
pub use phase::Phase;
pub use record::{
    Encoder, FLAG_BF16, FLAG_CHUNK, FLAG_COPY_ONLY, FLAG_ENDS_STEP, FLAG_ORDERED, FLAG_RELU_INPUT, FLAG_TF32,
    FLAG_UPDATE, FLAG_VALIDATION, Hyper, MOST_COUNTED, NONE, PARTIAL_BYTES, PARTIALS, Precision, Record,
    Refused, RunRecord, SLIM, SLIM_ROWS, SUMS, Size, counted, encode, header,
};
pub use reduce::{Mean, Norm, NormKind};
pub use rmsprop::Rmsprop;
pub use rows::{FileChange, Reads, RowReader, Store, make_room};
pub use sgd::Sgd;
pub use stationary::Stationary;
pub use update::{Update, UpdateRule};
pub use weight_gradient::{SUM_ROWS, WeightGradient};
pub use zero::Zero;

use std::ops::Range;

use run::{Context, Slices};
use split::Split;

/// What every op has to define.
pub trait Operation {
    /// What it reads and writes, apart from the data, the log and the state of collectives.
    fn access(&self) -> Access;

    fn cost(&self) -> Cost;

    /// `[m, k, n]` if it is a matrix product, which runs at a different rate than other ops.
    fn product(&self) -> Option<[usize; 3]> {
        None
    }

    /// The op in double precision, implemented independently.
    fn reference(&self, memory: &mut reference::Memory);

    /// Adds its tasks for each thread of the CPU.
    fn split(&self, split: &mut Split<'_>);

    /// The record that its GPU kernel reads.
    ///
    /// # Errors
    /// If sizes exceed what kernels can count.
    fn record(&self, encoder: &Encoder<'_>) -> Result<Record, Refused>;

    /// Its source text in a compiled step, given its record.
    fn emit(&self, record: &Record, emitter: &Emitter) -> String {
        emitter.call(record, record)
    }

    /// How the operands of its product are stored, if it is one.
    fn operands(&self) -> Option<[Operand; 2]> {
        None
    }

    /// The op for some of its rows, if no row needs another one.
    fn of_rows(&self, _: &Range<usize>) -> Option<Op> {
        None
    }

    /// Whether it has parameters, so that the backward pass must reach it.
    fn learns(&self) -> bool {
        false
    }

    /// Its own activation and the values from which the derivative is computed, if the following layer may
    /// fuse the derivative.
    fn folded_activation(&self) -> Option<(Activation, Slice)> {
        None
    }

    /// Adds the ops that compute the gradients of its input and of its parameters from the gradient of its
    /// output. Returns the gradient of its input, and whether that already includes the derivative of the
    /// preceding layer's activation.
    fn backward(&self, _: &mut Lowering, backward: Backward<'_>) -> (Slice, bool) {
        (backward.dy, false)
    }
}

macro_rules! ops {
    ($($op:ident),* $(,)?) => {
        /// An op. Shapes: `x` is `[rows, inputs]`, `y` is `[rows, outputs]`, a weight `[inputs, outputs]`.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Op {
            $($op($op),)*
        }

        $(impl From<$op> for Op {
            fn from(op: $op) -> Self {
                Self::$op(op)
            }
        })*

        impl std::ops::Deref for Op {
            type Target = dyn Operation;

            fn deref(&self) -> &Self::Target {
                match self {
                    $(Self::$op(op) => op,)*
                }
            }
        }
    };
}

ops! {
    Gather, Linear, Activate, Add, Dropout, Loss, InputGradient, ActivateBackward, DropoutBackward, WeightGradient,
    BiasGradient, LayerNorm, LayerNormBackward, LayerNormGradient, StartAllReduce, AllReduce, Zero, Norm, Clip, Update,
    Mean, Log,
}

macro_rules! jobs {
    ($($job:ident($($type:tt)*)),* $(,)?) => {
        /// What a CPU task does; each variant is documented where it is defined.
        #[derive(Clone, Copy, Debug)]
        pub enum Job {
            $($job($($type)*),)*
        }

        $(impl From<$($type)*> for Job {
            fn from(job: $($type)*) -> Self {
                Self::$job(job)
            }
        })*

        impl Job {
            /// Runs a task on its slices; a failure is stored in the context.
            #[inline]
            pub fn run(&self, slices: Slices<'_>, context: &mut Context<'_>) {
                match self {
                    $(Self::$job(job) => job.run(slices, context),)*
                }
            }
        }
    };
}

jobs! {
    Gather(gather::Job), Pack(product::Pack), Product(product::Job), PartialSums(weight_gradient::PartialSums),
    Columns(bias_gradient::Columns), Activation(activation::Job), Dropout(dropout::Job), LayerNorm(layer_norm::Job),
    Loss(loss::Job), Add(add::Job),
    AllReduce(all_reduce::Job), Zero(zero::Job), Reduce(reduce::Job), Clip(clip::Job), Update(UpdateRule),
    Log(LogTarget),
}

macro_rules! kinds {
    ($($kind:ident, $kernel:literal, $function:literal, $size:path;)*) => {
        /// The GPU kernels of ops; the discriminants are those of `kernels/abi.cuh`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(i32)]
        pub enum Kind {
            $($kind,)*
        }

        impl Kind {
            pub const ALL: &[Self] = &[$(Self::$kind,)*];

            pub fn kernel(self) -> &'static str {
                match self {
                    $(Self::$kind => $kernel,)*
                }
            }

            /// The function that interpreters call.
            fn function(self) -> &'static str {
                match self {
                    $(Self::$kind => $function,)*
                }
            }

            /// The launch of a stand-alone kernel on a GPU with this many multiprocessors: enough threads for
            /// the work, but no more blocks than run at once, since every kernel loops with a stride.
            pub fn size(self, record: &Record, multiprocessors: u32) -> Size {
                match self {
                    $(Self::$kind => $size(record, multiprocessors),)*
                }
            }
        }
    };
}

kinds! {
    Gather, "op_gather", "gather_op", gather::size;
    Linear, "op_linear", "product_op", linear::size;
    InputGradient, "op_input_gradient", "product_op", input_gradient::size;
    WeightGradient, "op_weight_gradient", "product_op", weight_gradient::size;
    BiasGradient, "op_bias_gradient", "bias_gradient_op", bias_gradient::size;
    Activate, "op_activate", "activate_op", activation::size;
    ActivateBackward, "op_activate_backward", "activate_backward_op", activation::backward_size;
    Dropout, "op_dropout", "dropout_op", dropout::size;
    DropoutBackward, "op_dropout_backward", "dropout_backward_op", dropout::size;
    Loss, "op_loss", "loss_op", loss::size;
    Norm, "op_norm", "norm_op", reduce::size;
    Mean, "op_mean", "mean_op", reduce::size;
    Clip, "op_clip", "clip_op", Size::of_numbers;
    Sgd, "op_sgd", "sgd_op", Size::of_quads;
    Adam, "op_adam", "adam_op", Size::of_quads;
    Rmsprop, "op_rmsprop", "rmsprop_op", Size::of_quads;
    LogAppend, "op_log_append", "log_append_op", Size::of_a_warp;
    Accumulate, "op_accumulate", "accumulate_op", Size::of_a_warp;
    Watch, "op_watch", "watch_op", Size::of_a_warp;
    Zero, "op_zero", "zero_op", Size::of_numbers;
    Add, "op_add", "add_op", Size::of_numbers;
    LayerNorm, "op_layer_norm", "layer_norm_op", layer_norm::size;
    LayerNormBackward, "op_layer_norm_backward", "layer_norm_backward_op", layer_norm::size;
    LayerNormGradient, "op_layer_norm_gradient", "layer_norm_gradient_op", layer_norm::gradient_size;
}

/// An op and the phase under which its time is counted.
#[derive(Clone, Debug, PartialEq)]
pub struct Instruction {
    pub op: Op,
    pub phase: Phase,
}
