//! A backend: a device's memory for tensors, copies between memories, and single ops over them. Tensors and the lab stand
//! on it; training runs whole programs instead.
//!
//! A [`Backend`] may work asynchronously: operations on one device run in order, and only [`Backend::read`] and
//! [`Backend::synchronize`] must wait for them. A copy returns how much it moved, so that the caller can count it.

use std::{
    any::Any,
    ops::DerefMut,
    sync::atomic::{AtomicU64, Ordering},
};

use super::{DeviceError, Moved};
use crate::{op::Op, spec::lab::Memory};

/// A block of a device's memory, until that is cleared. Other devices do not know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle {
    /// Unique within the process.
    pub block: u64,
    /// Numbers in it.
    pub len: usize,
}

impl Handle {
    pub(super) fn unique(len: usize) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self { block: NEXT.fetch_add(1, Ordering::Relaxed), len }
    }

    /// Fails unless the block holds exactly `expected` numbers.
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

/// Host memory to copy from and to.
pub type Staging = Box<dyn DerefMut<Target = [f32]> + Send>;

/// A device's memory, and the ops that run on it.
pub trait Backend: Send {
    /// `cpu`, `gpu:1`, `virtual:0`.
    fn name(&self) -> &str;
    /// Whether its memory is the host's own, so that copies between them move nothing.
    fn is_host(&self) -> bool;

    /// A block of `len` numbers that all are `value`.
    fn alloc(&mut self, len: usize, value: f32) -> Result<Handle, DeviceError>;
    /// Frees all blocks.
    fn clear(&mut self);
    /// Bytes of all blocks.
    fn bytes(&self) -> u64;

    /// Host memory to copy from and to, filled with zeros.
    fn staging(&mut self, memory: Memory, len: usize) -> Result<Staging, DeviceError>;
    /// Host to device, the whole block.
    fn write(&mut self, to: Handle, from: &[f32]) -> Result<Moved, DeviceError>;
    /// Device to host, the block's first numbers; returns when they are there.
    fn read(&mut self, from: Handle, to: &mut [f32]) -> Result<Moved, DeviceError>;
    /// Copies a block to another one of the device.
    fn copy(&mut self, to: Handle, from: Handle) -> Result<Moved, DeviceError>;
    /// Copies a block of another device of this kind.
    fn copy_from(&mut self, to: Handle, peer: &mut dyn Backend, from: Handle) -> Result<Moved, DeviceError>;
    /// Itself, for a peer of its kind.
    fn as_any(&mut self) -> &mut dyn Any;

    /// Runs an op whose buffers are these blocks, by number.
    fn run(&mut self, op: &Op, blocks: &[Handle]) -> Result<(), DeviceError>;
    /// Waits until everything so far is done.
    fn synchronize(&mut self) -> Result<(), DeviceError>;
}
