//! Device memory, and pinned host memory, which the device accesses directly. Freed when dropped.

use std::{ffi::c_void, ptr, sync::Arc};

use bytemuck::{AnyBitPattern, NoUninit};

use crate::{
    device::{DeviceError, cuda::ffi::Context},
    op::{Hyper, Record, RunRecord},
};

pub struct DeviceMemory {
    context: Arc<Context>,
    pub at: u64,
    pub bytes: usize,
}

impl DeviceMemory {
    /// Allocates memory; `what` names its purpose in an error.
    pub fn new(context: &Arc<Context>, bytes: usize, what: &str) -> Result<Self, DeviceError> {
        let mut at = 0;
        // SAFETY: the pointer is to a live local.
        let status = unsafe { (context.driver.cuMemAlloc_v2)(&raw mut at, bytes.max(16)) };
        context.check(status, || format!("taking {bytes} bytes for {what}"))?;
        Ok(Self { context: Arc::clone(context), at, bytes })
    }

    /// False for a GPU that hangs, none of whose memory is freed.
    pub fn may_be_freed(&self) -> bool {
        self.context.enter_to_free()
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        if self.context.enter_to_free() {
            // SAFETY: allocated by `new`, freed once; the driver itself waits for kernels that use it.
            unsafe { (self.context.driver.cuMemFree_v2)(self.at) };
        }
    }
}

/// Pinned, page-aligned bytes of host memory. The device accesses them directly, so the host must wait for
/// the device before it reads or writes.
pub struct Pinned {
    context: Arc<Context>,
    base: *mut u8,
    bytes: usize,
}

// SAFETY: it is plain memory of the process, owned by this value.
unsafe impl Send for Pinned {}

impl Pinned {
    /// Allocates memory; `what` names its purpose in an error.
    pub fn new(context: &Arc<Context>, bytes: usize, what: &str) -> Result<Self, DeviceError> {
        let mut base: *mut c_void = ptr::null_mut();
        // SAFETY: the pointer is to a live local. Flags 0: ordinary memory (write-combined memory is slow to
        // read).
        let status = unsafe { (context.driver.cuMemHostAlloc)(&raw mut base, bytes.max(16), 0) };
        context.check(status, || format!("taking {bytes} bytes of pinned host memory for {what}"))?;
        let pinned = Self { context: Arc::clone(context), base: base.cast(), bytes: bytes.max(16) };
        // SAFETY: these bytes have just been allocated.
        unsafe { ptr::write_bytes(pinned.base, 0, pinned.bytes) };
        Ok(pinned)
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

impl Drop for Pinned {
    fn drop(&mut self) {
        if self.context.enter_to_free() {
            // SAFETY: allocated by `new`, freed once.
            unsafe { (self.context.driver.cuMemFreeHost)(self.base.cast()) };
        }
    }
}

// SAFETY: twelve fields of 4 bytes, then six of 4, then fields of 8: there is no padding.
unsafe impl NoUninit for Record {}
// SAFETY: fields of 8 bytes, then two of 4: no padding.
unsafe impl NoUninit for RunRecord {}
// SAFETY: four fields of 4 bytes: no padding.
unsafe impl NoUninit for Hyper {}

const _: () = {
    assert!(std::mem::offset_of!(Record, f) == 48 && std::mem::offset_of!(Record, scale) == 72);
    assert!(std::mem::offset_of!(Record, at) == 80 && std::mem::offset_of!(RunRecord, index) == 120);
};
