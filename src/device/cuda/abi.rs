//! The records that kernels read, as C lays them out. Their twins stand in kernels/common.cuh.

use crate::program::Hyper;

/// No place.
pub const NONE: u64 = u64::MAX;

/// The gradient goes into the weight.
pub const FLAG_UPDATE: i32 = 1;
/// Rows are fetched by the epoch's order.
pub const FLAG_ORDERED: i32 = 2;
/// The validation's data and sums.
pub const FLAG_VALIDATION: i32 = 4;
/// Operands of products rounded to tf32.
pub const FLAG_TF32: i32 = 8;
/// Operands of products rounded to bfloat16.
pub const FLAG_BF16: i32 = 16;
/// Rows come from a streamed chunk.
pub const FLAG_CHUNK: i32 = 32;

/// What an instruction does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Kind {
    /// Fetches a batch.
    Gather,
    /// y = f(x W + b).
    Linear,
    /// An activation by itself.
    Activate,
    /// Dropout.
    Dropout,
    /// The loss and its gradient.
    Loss,
    /// dx.
    InputGradient,
    /// dy f'.
    ActivateBackward,
    /// dy m.
    DropoutBackward,
    /// dW.
    WeightGradient,
    /// db.
    BiasGradient,
    /// An L2 norm.
    Norm,
    /// Clipping.
    Clip,
    /// The optimizer's step.
    Update,
    /// A mean.
    Mean,
    /// A row of the log.
    LogAppend,
    /// Running sums.
    Accumulate,
    /// The flag of a loss that is not finite.
    Watch,
    /// Zeros.
    Zero,
}

impl Kind {
    /// All, by number.
    pub const ALL: [Self; 18] = [
        Self::Gather,
        Self::Linear,
        Self::Activate,
        Self::Dropout,
        Self::Loss,
        Self::InputGradient,
        Self::ActivateBackward,
        Self::DropoutBackward,
        Self::WeightGradient,
        Self::BiasGradient,
        Self::Norm,
        Self::Clip,
        Self::Update,
        Self::Mean,
        Self::LogAppend,
        Self::Accumulate,
        Self::Watch,
        Self::Zero,
    ];

    /// The stand-alone kernel that does it.
    pub fn kernel(self) -> &'static str {
        match self {
            Self::Gather => "op_gather",
            Self::Linear => "op_linear",
            Self::Activate => "op_activate",
            Self::Dropout => "op_dropout",
            Self::Loss => "op_loss",
            Self::InputGradient => "op_input_gradient",
            Self::ActivateBackward => "op_activate_backward",
            Self::DropoutBackward => "op_dropout_backward",
            Self::WeightGradient => "op_weight_gradient",
            Self::BiasGradient => "op_bias_gradient",
            Self::Norm => "op_norm",
            Self::Clip => "op_clip",
            Self::Update => "op_update",
            Self::Mean => "op_mean",
            Self::LogAppend => "op_log_append",
            Self::Accumulate => "op_accumulate",
            Self::Watch => "op_watch",
            Self::Zero => "op_zero",
        }
    }
}

/// An instruction.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub struct Op {
    /// See [`Kind`].
    pub kind: i32,
    /// Rows of this device.
    pub rows: i32,
    /// Width of the input.
    pub inputs: i32,
    /// Width of the output.
    pub outputs: i32,
    /// 0 none, then in the order of [`crate::program::Activation`].
    pub activation: i32,
    /// In the order of [`crate::program::LossKind`].
    pub loss: i32,
    /// 0 SGD, 1 with momentum, 2 with Nesterov's, 3 Adam, 4 AdamW.
    pub rule: i32,
    /// `FLAG_*`.
    pub flags: i32,
    /// Of dropout.
    pub layer: i32,
    /// This device's first row within the global batch.
    pub first: i32,
    /// Rows of the global batch.
    pub total_rows: i32,
    /// Numbers.
    pub n: i32,
    /// Constants of the kind.
    pub f: [f32; 6],
    /// Of a mean.
    pub scale: f64,
    /// Places, in numbers from the arena's base.
    pub at: [u64; 8],
}

impl Op {
    /// One with nothing but its kind.
    pub fn new(kind: Kind) -> Self {
        Self {
            kind: kind as i32,
            rows: 0,
            inputs: 0,
            outputs: 0,
            activation: 0,
            loss: 0,
            rule: 0,
            flags: 0,
            layer: 0,
            first: 0,
            total_rows: 0,
            n: 0,
            f: [0.0; 6],
            scale: 0.0,
            at: [NONE; 8],
        }
    }
}

/// Where a run is. Addresses are the device's.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
pub struct Run {
    /// Features and targets of training, then of validation.
    pub data: [u64; 4],
    /// Rows by position.
    pub order: u64,
    /// The log.
    pub log: u64,
    /// A [`Hyper`] per step of the block.
    pub hyper: u64,
    /// Running sums.
    pub sums: u64,
    /// The first step whose loss was not finite.
    pub non_finite: u64,
    /// Room for sums over blocks.
    pub partial: u64,
    /// Of the run.
    pub seed: u64,
    /// Optimizer steps done.
    pub step: u64,
    /// First row of the global batch within the epoch.
    pub position: u64,
    /// This device's first row within the streamed chunk.
    pub offset: u64,
    /// Unused.
    pub batch: u64,
    /// Next of the hypers.
    pub index: u32,
    /// Next row of the log.
    pub slot: u32,
}

/// Doubles per set of running sums.
pub const SUMS: usize = 16;

/// Blocks that a launch with a sum may have at most.
pub const PARTIALS: usize = 1024;

/// The flat bytes of records.
pub fn bytes_of<T: Record>(records: &[T]) -> &[u8] {
    // SAFETY: records have no padding and no pointers; their bytes may be read for as long as they are borrowed.
    unsafe { std::slice::from_raw_parts(records.as_ptr().cast(), size_of_val(records)) }
}

/// Types of plain numbers without padding.
///
/// # Safety
/// There must be no padding between or behind the fields.
pub unsafe trait Record: Copy {}
// SAFETY: twelve times 4 bytes, six times 4, then fields of 8: none is padded (the test holds the sizes).
unsafe impl Record for Op {}
// SAFETY: fields of 8 bytes, then two of 4.
unsafe impl Record for Run {}
// SAFETY: four times 4 bytes, each any number.
unsafe impl Record for Hyper {}

const _: () = {
    assert!(size_of::<Op>() == 144 && std::mem::offset_of!(Op, f) == 48);
    assert!(std::mem::offset_of!(Op, scale) == 72 && std::mem::offset_of!(Op, at) == 80);
    assert!(size_of::<Run>() == 128 && std::mem::offset_of!(Run, index) == 120);
    assert!(std::mem::offset_of!(Run, step) == 88 && std::mem::offset_of!(Run, order) == 32);
    assert!(size_of::<Hyper>() == 16);
};

#[cfg(test)]
mod tests {
    use super::Kind;

    #[test]
    fn kinds_are_numbered_in_their_order() {
        for (number, kind) in Kind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, number, "{kind:?}");
        }
    }
}
