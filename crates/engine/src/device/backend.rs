//! A backend: a device's memory for tensors, copies between memories, and single ops over them. Tensors and the lab stand
//! on it; training runs whole programs instead.
//!
//! A [`Backend`] may work asynchronously: operations on one device run in order, and only [`Backend::read`] and
//! [`Backend::synchronize`] must wait for them. A copy returns how much it moved, so that the caller can count it.

use std::{any::Any, ops::DerefMut};

use super::{DeviceError, Moved};
use crate::{
    op::{BufferId, Op},
    spec::lab::Memory,
};

pub(super) fn misfit(device: &str, what: impl Into<String>) -> DeviceError {
    DeviceError::Operand { device: device.to_owned(), what: what.into() }
}

/// Memory of another device, or memory that was freed.
pub(super) fn unknown(device: &str) -> DeviceError {
    misfit(device, "memory that it does not hold")
}

/// Host memory to copy from and to.
pub type Staging = Box<dyn DerefMut<Target = [f32]> + Send>;

/// A device's memory, in blocks by number, and the ops that run on it.
pub trait Backend: Send {
    /// Makes a block of `len` numbers that all are `value`.
    fn alloc(&mut self, block: BufferId, len: usize, value: f32) -> Result<(), DeviceError>;
    /// Frees all blocks.
    fn clear(&mut self);
    /// Bytes of all blocks.
    fn bytes(&self) -> u64;

    /// Host memory to copy from and to, filled with zeros.
    fn staging(&mut self, memory: Memory, len: usize) -> Result<Staging, DeviceError>;
    /// Host to device, the whole block.
    fn write(&mut self, to: BufferId, from: &[f32]) -> Result<Moved, DeviceError>;
    /// Device to host, the block's first numbers; returns when they are there.
    fn read(&mut self, from: BufferId, to: &mut [f32]) -> Result<Moved, DeviceError>;
    /// Copies a block to another one of the device.
    fn copy(&mut self, to: BufferId, from: BufferId) -> Result<Moved, DeviceError>;
    /// Copies a block of another device of this kind.
    fn copy_from(
        &mut self,
        to: BufferId,
        peer: &mut dyn Backend,
        from: BufferId,
    ) -> Result<Moved, DeviceError>;
    /// Itself, for a peer of its kind.
    fn as_any(&mut self) -> &mut dyn Any;

    /// Runs an op over blocks.
    fn run(&mut self, op: &Op) -> Result<(), DeviceError>;
    /// Waits until everything so far is done.
    fn synchronize(&mut self) -> Result<(), DeviceError>;
}
