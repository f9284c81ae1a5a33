//! Ops: the instructions of a step. An op is one file.
//!
//! The file holds the op's fields and shapes, what it reads and writes, its cost, its reference in f64, its lowering where
//! it stands for a layer, its tasks on the CPU and what they run, and the record that its GPU kernel reads. The kernel
//! stands in `kernels/` under the file's name. The lists of this file are the only ones.
//!
//! Conventions: all numbers are f32 (classes too: a class is its index); matrices are row-major; a weight is held as
//! `[in, out]`, the transpose of PyTorch's, so that the forward product reads it along its rows.

mod access;
mod activation;
mod adam;
mod add;
mod all_reduce;
mod bias_gradient;
mod clip;
mod cost;
mod dropout;
mod emit;
mod gather;
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
mod update;
mod weight_gradient;
mod zero;

pub use access::{Access, NON_FINITE, PARTIAL_SUMS, Window, barriers};
pub use activation::{Activate, ActivateBackward, Activation, activate};
pub use adam::Adam;
pub use add::Add;
pub use all_reduce::AllReduce;
pub use bias_gradient::BiasGradient;
pub use clip::Clip;
pub use cost::{Cost, FUNCTION, LARGE_PRODUCT, is_large};
pub use dropout::{Dropout, DropoutBackward, keeps as dropout_keeps};
pub use emit::{Emitter, Learning, Tiles};
pub use gather::{Gather, RowSource};
pub use input_gradient::InputGradient;
pub use layer_norm::{LayerNorm, LayerNormBackward, LayerNormGradient};
pub use layout::{ALIGN, Buffer, BufferId, Layout, Parameter, Role, Slice, aligned};
pub use linear::Linear;
pub use log::{Accumulator, Log, LogTarget};
pub use loss::{Loss, LossKind};
pub use lowering::{Backward, Lowering};
pub use phase::Phase;
pub use record::{
    Encoder, FLAG_BF16, FLAG_TF32, FLAG_UPDATE, FLAG_VALIDATION, Hyper, MOST_COUNTED, NONE, PARTIALS,
    Precision, Record, Refused, RunRecord, SUMS, Size, counted, encode, header,
};
pub use reduce::{Mean, Norm, NormKind};
pub use rmsprop::Rmsprop;
pub use rows::{FileChange, Reads, RowReader, Store, make_room};
pub use sgd::Sgd;
pub use update::{Update, UpdateRule};
pub use weight_gradient::{SUM_ROWS, WeightGradient};
pub use zero::Zero;

use run::{Context, Slices};
use split::Split;

/// What every op must say of itself.
pub trait Operation {
    /// What it reads and writes; the data, the log and the state of collectives are no part of this.
    fn access(&self) -> Access;

    fn cost(&self) -> Cost;

    /// `[m, k, n]` of a matrix product, which runs at another rate than all else.
    fn product(&self) -> Option<[usize; 3]> {
        None
    }

    /// The op in double precision, by a text of its own.
    fn reference(&self, memory: &mut reference::Memory);

    /// Adds the tasks of each thread of the CPU.
    fn split(&self, split: &mut Split<'_>);

    /// What its GPU kernel reads.
    ///
    /// # Errors
    /// Where sizes are beyond what kernels count.
    fn record(&self, encoder: &Encoder<'_>) -> Result<Record, Refused>;

    /// Its text in a compiled step, from the record that it made.
    fn emit(&self, record: &Record, emitter: &Emitter) -> String {
        emitter.call(record)
    }

    /// Whether it has parameters, so that the backward pass must reach it.
    fn learns(&self) -> bool {
        false
    }

    /// Its own activation and what the derivative is computed from, where the layer behind may fold that in.
    fn folded_activation(&self) -> Option<(Activation, Slice)> {
        None
    }

    /// Adds the ops that lead from the gradient of its output to that of its input and of its parameters. Returns the
    /// gradient of its input, and whether the activation of the layer before is behind it already.
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
    BiasGradient, LayerNorm, LayerNormBackward, LayerNormGradient, AllReduce, Zero, Norm, Clip, Update, Mean, Log,
}

macro_rules! jobs {
    ($($job:ident($($type:tt)*)),* $(,)?) => {
        /// What a task of the CPU does; each is documented where it is run.
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
            /// Runs a task on its slices; a failure is in the context then.
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

            /// How a stand-alone kernel is launched on a GPU of that many multiprocessors: enough threads for its work,
            /// and no more blocks than run at once, since every kernel strides.
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
    Activate, "op_activate", "activate_op", Size::of_quads;
    ActivateBackward, "op_activate_backward", "activate_backward_op", Size::of_quads;
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

/// One op and the phase its time counts under.
#[derive(Clone, Debug, PartialEq)]
pub struct Instruction {
    pub op: Op,
    pub phase: Phase,
}
