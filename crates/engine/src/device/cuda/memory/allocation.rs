//! Memory on the device, and pinned memory on the host, which the device accesses by itself. Freed when dropped.

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
    /// Takes memory; `what` it is for goes into an error.
    pub fn new(context: &Arc<Context>, bytes: usize, what: &str) -> Result<Self, DeviceError> {
        let mut at = 0;
        // SAFETY: the pointer is to a live local.
        let status = unsafe { (context.driver.cuMemAlloc_v2)(&raw mut at, bytes.max(16)) };
        context.check(status, || format!("taking {bytes} bytes for {what}"))?;
        Ok(Self { context: Arc::clone(context), at, bytes })
    }

    /// False for a GPU that hangs: nothing of it is freed.
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

/// Pinned bytes of the host, aligned to a page. The device accesses them by itself: the host must wait for it before it
/// reads or writes.
pub struct Pinned {
    context: Arc<Context>,
    base: *mut u8,
    bytes: usize,
}

// SAFETY: it is plain memory of the process, owned by this value.
unsafe impl Send for Pinned {}

impl Pinned {
    /// Takes memory; `what` it is for goes into an error.
    pub fn new(context: &Arc<Context>, bytes: usize, what: &str) -> Result<Self, DeviceError> {
        let mut base: *mut c_void = ptr::null_mut();
        // SAFETY: the pointer is to a live local. 0: neither write-combined (slow to read) nor anything else.
        let status = unsafe { (context.driver.cuMemHostAlloc)(&raw mut base, bytes.max(16), 0) };
        context.check(status, || format!("taking {bytes} bytes of pinned host memory for {what}"))?;
        let pinned = Self { context: Arc::clone(context), base: base.cast(), bytes: bytes.max(16) };
        // SAFETY: these bytes have just been allocated.
        unsafe { ptr::write_bytes(pinned.base, 0, pinned.bytes) };
        Ok(pinned)
    }

    /// Its address; with unified addressing (all 64-bit Linux) also the device's.
    pub fn at(&self) -> u64 {
        self.base as u64
    }

    /// A pointer for the driver; `None` if the range is out of bounds.
    pub fn pointer(&self, offset: usize, bytes: usize) -> Option<*mut c_void> {
        let end = offset.checked_add(bytes)?;
        // SAFETY: checked to lie within the allocation.
        (end <= self.bytes).then(|| unsafe { self.base.add(offset) }.cast())
    }

    /// Writes values; those out of bounds are dropped, which no caller lets happen.
    pub fn write<T: NoUninit>(&mut self, offset: usize, from: &[T]) {
        if let Some(to) = self.pointer(offset, size_of_val(from)) {
            // SAFETY: within the allocation, which no reference points into; plain numbers have no invalid bits. An
            // offset needs no alignment for a copy of bytes.
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
            // SAFETY: within the allocation and aligned; volatile, since another party writes it.
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

// SAFETY: twelve times 4 bytes, six times 4, then fields of 8: none is padded.
unsafe impl NoUninit for Record {}
// SAFETY: fields of 8 bytes, then two of 4.
unsafe impl NoUninit for RunRecord {}
// SAFETY: four times 4 bytes.
unsafe impl NoUninit for Hyper {}

const _: () = {
    assert!(std::mem::offset_of!(Record, f) == 48 && std::mem::offset_of!(Record, scale) == 72);
    assert!(std::mem::offset_of!(Record, at) == 80 && std::mem::offset_of!(RunRecord, index) == 120);
};
