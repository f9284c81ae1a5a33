//! A backend: a memory, and what is computed in it. Tensors and the lab stand on it; training has programs instead.
//!
//! A [`Backend`] may work asynchronously: an operation is in order behind those before it on the same place, and only
//! [`Backend::read`] and [`Backend::synchronize`] must wait for it. What crosses between memories says how much it moved,
//! so that the caller can count it; nothing crosses by itself. All numbers are f32.

use std::{
    any::Any,
    fmt,
    sync::atomic::{AtomicU64, Ordering},
};

use super::Moved;
use crate::program::Activation;

/// Memory of one place: so many numbers. It means nothing to another place, and nothing after it was freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle {
    /// The place that gave it out.
    pub place: BackendId,
    /// Which of that place's blocks.
    pub block: u64,
    /// Numbers in it.
    pub len: usize,
}

/// One place of this process; no two are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BackendId(u64);

impl BackendId {
    /// One that no other place has.
    pub fn unique() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// A block of numbers as one figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// The Frobenius norm: the root of the sum of squares.
    Frobenius,
    /// tr(M Mᵀ), which is the sum of squares.
    Trace,
    /// The sum.
    Sum,
}

/// What a host's memory is to the copies from and to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostMemory {
    /// As any program has it: a GPU's driver copies it once more on the way.
    Pageable,
    /// Locked in place, so that a GPU fetches it by itself.
    Pinned,
}

impl HostMemory {
    /// The word in `transfer.csv`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pageable => "pageable",
            Self::Pinned => "pinned",
        }
    }
}

/// Host memory to copy from and to.
pub trait Staging: Send {
    /// To read.
    fn values(&self) -> &[f32];
    /// To write.
    fn values_mut(&mut self) -> &mut [f32];
}

impl Staging for Vec<f32> {
    fn values(&self) -> &[f32] {
        self
    }

    fn values_mut(&mut self) -> &mut [f32] {
        self
    }
}

/// A linear layer's operands: `y = x Wᵀ + b`, with the weight in PyTorch's order of axes.
#[derive(Clone, Copy, Debug)]
pub struct Linear {
    /// `[rows, inputs]`.
    pub x: Handle,
    /// `[outputs, inputs]`.
    pub weight: Handle,
    /// `[outputs]`.
    pub bias: Option<Handle>,
    /// `[rows, outputs]`.
    pub y: Handle,
    /// Rows, inputs, outputs.
    pub shape: [usize; 3],
}

/// What a place could not do.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// The memory is not there.
    #[error("`{place}` has no room for {}", crate::units::bytes(*bytes))]
    OutOfMemory {
        /// The place.
        place: String,
        /// What was asked for.
        bytes: u64,
    },
    /// Memory of another place was handed in.
    #[error("memory of another device was handed to `{place}`")]
    Foreign {
        /// The place that was asked.
        place: String,
    },
    /// The memory was given back before.
    #[error("memory of `{place}` was used after it was freed")]
    Freed {
        /// The place.
        place: String,
    },
    /// Operand and shape do not fit together.
    #[error("`{place}` was handed {found} numbers where {expected} are needed")]
    Length {
        /// The place.
        place: String,
        /// What the shape says.
        expected: usize,
        /// What the operand has.
        found: usize,
    },
    /// The result would overwrite an operand.
    #[error("the result of an operation on `{place}` is one of its operands")]
    Overlap {
        /// The place.
        place: String,
    },
    /// There is no such host memory.
    #[error("pinned memory needs a GPU's driver, and `{place}` has none")]
    NoPinned {
        /// The place.
        place: String,
    },
    /// The device's own fault.
    #[error("`{place}` failed: {message}")]
    Device {
        /// The place.
        place: String,
        /// What its driver says.
        message: String,
    },
}

/// A memory and what is computed in it.
pub trait Backend: Send + fmt::Debug {
    /// `cpu`, `gpu:1`, `virtual:0`.
    fn name(&self) -> &str;
    /// Which place.
    fn id(&self) -> BackendId;
    /// Whether its memory is the host's own, so that nothing needs to be moved between them.
    fn is_host(&self) -> bool;

    /// Takes memory. What it holds before it is written is of no use: NaN, where the place can see to it.
    fn alloc(&mut self, len: usize) -> Result<Handle, BackendError>;
    /// Gives memory back; a handle that is none of its own or free already is left alone.
    fn free(&mut self, memory: Handle);
    /// Bytes taken now.
    fn bytes(&self) -> u64;

    /// Host memory to copy from and to, filled with zeros.
    fn staging(&mut self, memory: HostMemory, len: usize) -> Result<Box<dyn Staging>, BackendError>;
    /// Host to place, the whole of it.
    fn write(&mut self, to: Handle, from: &[f32]) -> Result<Moved, BackendError>;
    /// Place to host, from number `first` on; returns when it is there.
    fn read(&mut self, from: Handle, first: usize, to: &mut [f32]) -> Result<Moved, BackendError>;
    /// Copies within the place.
    fn copy(&mut self, to: Handle, from: Handle) -> Result<Moved, BackendError>;
    /// The numbers themselves, where they lie in the host's own memory: what is copied from there needs no staging.
    fn host_values(&self, of: Handle) -> Result<Option<&[f32]>, BackendError> {
        let _ = of;
        Ok(None)
    }
    /// The same, to write.
    fn host_values_mut(&mut self, of: Handle) -> Result<Option<&mut [f32]>, BackendError> {
        let _ = of;
        Ok(None)
    }
    /// Copies from another place straight, where the two can reach each other; `None` where they cannot.
    fn copy_from(
        &mut self,
        to: Handle,
        peer: &mut dyn Backend,
        from: Handle,
    ) -> Result<Option<Moved>, BackendError>;
    /// Itself, for a peer of the same kind.
    fn as_any(&mut self) -> &mut dyn Any;

    /// Every number becomes `value`.
    fn fill(&mut self, to: Handle, value: f32) -> Result<(), BackendError>;
    /// `out = a + b`.
    fn add(&mut self, a: Handle, b: Handle, out: Handle) -> Result<(), BackendError>;
    /// `out[m, n] = a[m, k] b[k, n]`.
    fn product(&mut self, a: Handle, b: Handle, out: Handle, mkn: [usize; 3]) -> Result<(), BackendError>;
    /// A linear layer.
    fn linear(&mut self, linear: Linear) -> Result<(), BackendError>;
    /// `y = f(x)`.
    fn activate(&mut self, activation: Activation, x: Handle, y: Handle) -> Result<(), BackendError>;
    /// `to[at] = reduction(of)`, summed in double precision.
    fn reduce(&mut self, reduction: Reduction, of: Handle, to: Handle, at: usize)
    -> Result<(), BackendError>;

    /// Waits until all that was asked is done.
    fn synchronize(&mut self) -> Result<(), BackendError>;
}
