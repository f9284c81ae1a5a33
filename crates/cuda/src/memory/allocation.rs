//! Device memory, and pinned host memory, which the device accesses directly. Freed when dropped.

use std::{ffi::c_void, ptr, sync::Arc};

use bytemuck::{AnyBitPattern, NoUninit};

use crate::{
    device::DeviceError,
    ffi::{Context, Kind, Owned},
};

pub struct DeviceMemory {
    pub own: Owned,
    pub at: u64,
    pub bytes: usize,
}

impl DeviceMemory {
    /// Takes what an earlier trial left, or allocates; `what` names its purpose in an error. The contents are not known.
    pub fn new(context: &Arc<Context>, bytes: usize, what: &str) -> Result<Self, DeviceError> {
        Self::with_room(context, bytes, what, || context.free_unused(Kind::Device))
    }

    /// The same; `make_room` frees memory if there is too little, and is false if it has none to free.
    pub fn with_room(
        context: &Arc<Context>,
        bytes: usize,
        what: &str,
        make_room: impl FnMut() -> bool,
    ) -> Result<Self, DeviceError> {
        let doing = || format!("taking {bytes} bytes for {what}");
        let own = Owned::with_room(context, Kind::Device, bytes.max(16), doing, make_room)?;
        Ok(Self { at: own.at(), own, bytes })
    }
}

/// Pinned, page-aligned bytes of host memory. The device accesses them directly, so the host must wait for
/// the device before it reads or writes.
pub struct Pinned {
    pub own: Owned,
    base: *mut u8,
    bytes: usize,
}

// SAFETY: it is plain memory of the process, owned by this value.
unsafe impl Send for Pinned {}
// SAFETY: as above; what has a shared reference only reads.
unsafe impl Sync for Pinned {}

impl Pinned {
    /// Takes what an earlier trial left, or allocates; `what` names its purpose in an error. All bytes are zero.
    pub fn new(context: &Arc<Context>, bytes: usize, what: &str) -> Result<Self, DeviceError> {
        let bytes = bytes.max(16);
        let doing = || format!("taking {bytes} bytes of pinned host memory for {what}");
        let own = Owned::new(context, Kind::Pinned, bytes, doing)?;
        let base = own.at() as *mut u8;
        // SAFETY: as many bytes were allocated, and nobody else uses them.
        unsafe { ptr::write_bytes(base, 0, bytes) };
        Ok(Self { own, base, bytes })
    }

    /// Its address. With unified addressing (on all 64-bit Linux) it is also the device's address.
    pub fn at(&self) -> u64 {
        self.base as u64
    }

    /// A pointer for the driver; `None` if the range is out of bounds.
    pub fn pointer(&self, offset: usize, bytes: usize) -> Option<*mut c_void> {
        let end = offset.checked_add(bytes)?;
        // SAFETY: checked to lie within the allocation.
        (end <= self.bytes).then(|| unsafe { self.base.add(offset) }.cast())
    }

    /// Writes values; values out of bounds are dropped, but no caller writes any.
    pub fn write<T: NoUninit>(&mut self, offset: usize, from: &[T]) {
        if let Some(to) = self.pointer(offset, size_of_val(from)) {
            // SAFETY: within the allocation, into which no reference points; plain numbers have no invalid
            // bit patterns. A copy of bytes needs no alignment.
            unsafe { ptr::copy_nonoverlapping(from.as_ptr().cast::<u8>(), to.cast(), size_of_val(from)) };
        }
    }

    pub fn read<T: AnyBitPattern>(&self, offset: usize, to: &mut [T]) {
        if let Some(from) = self.pointer(offset, size_of_val(to)) {
            // SAFETY: as in `write`.
            unsafe { ptr::copy_nonoverlapping(from.cast::<u8>(), to.as_mut_ptr().cast(), size_of_val(to)) };
        }
    }

    /// Reads a word that the device may write at any time.
    pub fn watch(&self, offset: usize) -> u64 {
        debug_assert_eq!(offset % 8, 0);
        match self.pointer(offset, 8) {
            // SAFETY: within the allocation and aligned; volatile, since the device writes it.
            Some(from) => unsafe { ptr::read_volatile(from.cast::<u64>()) },
            None => 0,
        }
    }
}
