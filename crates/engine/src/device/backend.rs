//! A backend: a device's memory for tensors, copies between memories, and single ops. Tensors and the lab use
//! it; training runs whole programs through an executor instead.
//!
//! A [`Backend`] may work asynchronously: operations on one device run in order, and only [`Backend::read`] and
//! [`Backend::synchronize`] must wait for them. A copy returns how much it moved, so that the caller can count it.

use std::any::Any;

use super::{DeviceError, HostMemory, Moved};
use crate::{
    op::{BufferId, Op},
    spec::lab::Memory,
};

pub fn misfit(device: &str, what: impl Into<String>) -> DeviceError {
    DeviceError::Operand { device: device.to_owned(), what: what.into() }
}

/// The fault of a time between marks of which one was not made.
pub const NO_MARK: &str = "a mark that was not made";

/// The error for memory that belongs to another device or was freed.
pub fn unknown(device: &str) -> DeviceError {
    misfit(device, "memory that it does not hold")
}

/// A device's memory, in numbered blocks, and the ops that run on it.
pub trait Backend: Send {
    /// Allocates a block of `len` elements, all set to `value`.
    fn alloc(&mut self, block: BufferId, len: usize, value: f32) -> Result<(), DeviceError>;
    /// Frees all blocks.
    fn clear(&mut self);
    /// Bytes of all blocks.
    fn bytes(&self) -> u64;

    /// Host memory to copy from and to, filled with zeros.
    fn staging(&mut self, memory: Memory, len: usize) -> Result<HostMemory, DeviceError>;
    /// Copies to the device; fills the whole block.
    fn write(&mut self, to: BufferId, from: &[f32]) -> Result<Moved, DeviceError>;
    /// Copies the block's first elements to the host; returns when they have arrived.
    fn read(&mut self, from: BufferId, to: &mut [f32]) -> Result<Moved, DeviceError>;
    /// Copies one block of the device to another.
    fn copy(&mut self, to: BufferId, from: BufferId) -> Result<Moved, DeviceError>;
    /// Copies a block from another device of the same kind.
    fn copy_from(
        &mut self,
        to: BufferId,
        peer: &mut dyn Backend,
        from: BufferId,
    ) -> Result<Moved, DeviceError>;
    /// For downcasting: `copy_from` needs the peer's concrete type.
    fn as_any(&mut self) -> &mut dyn Any;

    /// Runs an op over blocks.
    fn run(&mut self, op: &Op) -> Result<(), DeviceError>;
    /// Runs an op that will be timed, so that its first time is not, and finds out how many threads of the host it
    /// is to have from then on; `None` on a GPU.
    fn prepare(&mut self, op: &Op) -> Result<Option<usize>, DeviceError> {
        self.run(op).map(|()| None)
    }
    /// Waits until all operations so far are complete.
    fn synchronize(&mut self) -> Result<(), DeviceError>;

    /// Takes the time between the operations so far and those that follow. The same number again replaces it.
    fn mark(&mut self, number: usize) -> Result<(), DeviceError>;
    /// Seconds from one mark to a later one; all operations before them must be complete.
    fn seconds_between(&self, marks: [usize; 2]) -> Result<f64, DeviceError>;
}
