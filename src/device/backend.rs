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

use super::{DeviceError, Moved};
use crate::{program::Activation, spec::lab::Memory};

/// Memory of a device. It means nothing to another one, and nothing after it was freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle {
    /// Which block; no two of the process have one number.
    pub block: u64,
    pub len: usize,
}

impl Handle {
    /// A block that no device has yet.
    pub(super) fn unique(len: usize) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self { block: NEXT.fetch_add(1, Ordering::Relaxed), len }
    }

    pub(super) fn check(self, device: &str, expected: usize) -> Result<(), DeviceError> {
        if self.len == expected {
            return Ok(());
        }
        Err(misfit(device, format!("{} numbers where {expected} are needed", self.len)))
    }
}

pub(super) fn misfit(device: &str, what: impl Into<String>) -> DeviceError {
    DeviceError::Operand { device: device.to_owned(), what: what.into() }
}

/// Memory of another device, or memory that was freed.
pub(super) fn unknown(device: &str) -> DeviceError {
    misfit(device, "memory that it does not hold")
}

/// An operation reads its operands while it writes its result.
pub(super) fn check_overlap(device: &str, out: Handle, operands: &[Handle]) -> Result<(), DeviceError> {
    if operands.contains(&out) {
        return Err(misfit(device, "a result that is one of its operands"));
    }
    Ok(())
}

/// A block of numbers as one figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// The Frobenius norm: the root of the sum of squares.
    Frobenius,
    /// tr(M Mᵀ), which is the sum of squares.
    Trace,
    Sum,
}

/// Host memory to copy from and to.
pub trait Staging: Send {
    fn values(&self) -> &[f32];
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

/// A memory and what is computed in it.
pub trait Backend: Send + fmt::Debug {
    /// `cpu`, `gpu:1`, `virtual:0`.
    fn name(&self) -> &str;
    /// Whether its memory is the host's own, so that nothing needs to be moved between them.
    fn is_host(&self) -> bool;

    /// Takes memory. What it holds before it is written is of no use: NaN, where the place can see to it.
    fn alloc(&mut self, len: usize) -> Result<Handle, DeviceError>;
    /// Gives memory back; a handle that is none of its own or free already is left alone.
    fn free(&mut self, memory: Handle);
    fn bytes(&self) -> u64;

    /// Host memory to copy from and to, filled with zeros.
    fn staging(&mut self, memory: Memory, len: usize) -> Result<Box<dyn Staging>, DeviceError>;
    /// Host to place, the whole of it.
    fn write(&mut self, to: Handle, from: &[f32]) -> Result<Moved, DeviceError>;
    /// Place to host, from number `first` on; returns when it is there.
    fn read(&mut self, from: Handle, first: usize, to: &mut [f32]) -> Result<Moved, DeviceError>;
    fn copy(&mut self, to: Handle, from: Handle) -> Result<Moved, DeviceError>;
    /// The numbers themselves, where they lie in the host's own memory: what is copied from there needs no staging.
    fn host_values(&self, of: Handle) -> Result<Option<&[f32]>, DeviceError> {
        let _ = of;
        Ok(None)
    }
    /// The same, to write.
    fn host_values_mut(&mut self, of: Handle) -> Result<Option<&mut [f32]>, DeviceError> {
        let _ = of;
        Ok(None)
    }
    /// Copies from another place straight, where the two can reach each other; `None` where they cannot.
    fn copy_from(
        &mut self,
        to: Handle,
        peer: &mut dyn Backend,
        from: Handle,
    ) -> Result<Option<Moved>, DeviceError>;
    /// Itself, for a peer of the same kind.
    fn as_any(&mut self) -> &mut dyn Any;

    /// Every number becomes `value`.
    fn fill(&mut self, to: Handle, value: f32) -> Result<(), DeviceError>;
    fn add(&mut self, a: Handle, b: Handle, out: Handle) -> Result<(), DeviceError>;
    /// `out[m, n] = a[m, k] b[k, n]`.
    fn product(&mut self, a: Handle, b: Handle, out: Handle, mkn: [usize; 3]) -> Result<(), DeviceError>;
    fn linear(&mut self, linear: Linear) -> Result<(), DeviceError>;
    fn activate(&mut self, activation: Activation, x: Handle, y: Handle) -> Result<(), DeviceError>;
    /// `to[at] = reduction(of)`, summed in double precision.
    fn reduce(&mut self, reduction: Reduction, of: Handle, to: Handle, at: usize) -> Result<(), DeviceError>;

    /// Waits until all that was asked is done.
    fn synchronize(&mut self) -> Result<(), DeviceError>;
}
