//! Device memory, and pinned host memory, which the device accesses directly. Freed when dropped.

use std::{ffi::c_void, ptr, sync::Arc};

use bytemuck::{AnyBitPattern, NoUninit};

use crate::{
    device::{
        DeviceError,
        cuda::ffi::{Allocated, Context, NOT_READY, OUT_OF_MEMORY},
    },
    op::{Hyper, Record, RunRecord},
};

pub struct DeviceMemory {
    context: Arc<Context>,
    pub at: u64,
    pub bytes: usize,
    /// Bytes that the driver allocated; 0 for memory that was given away.
    room: usize,
}

impl DeviceMemory {
    /// Takes what an earlier trial left, or allocates; `what` names its purpose in an error. The contents are not known.
    pub fn new(context: &Arc<Context>, bytes: usize, what: &str) -> Result<Self, DeviceError> {
        let own = |at, room| Self { context: Arc::clone(context), at, bytes, room };
        if let Some(left) = context.primary.take_device(bytes) {
            let own = own(left.at, left.bytes);
            return if cfg!(debug_assertions) { own.poisoned() } else { Ok(own) };
        }
        let (mut at, room) = (0, bytes.max(16));
        // SAFETY: the pointer is to a live local.
        let mut allocate = || unsafe { (context.driver.cuMemAlloc_v2)(&raw mut at, room) };
        let mut status = allocate();
        if status == OUT_OF_MEMORY && context.primary.free_unused() {
            status = allocate();
        }
        context.check(status, || format!("taking {bytes} bytes for {what}"))?;
        Ok(own(at, room))
    }

    /// Makes what an earlier trial wrote NaN, so that tests notice who reads it.
    fn poisoned(self) -> Result<Self, DeviceError> {
        let (driver, stream) = (self.context.driver, ptr::null_mut());
        // SAFETY: this value owns the block, and nothing is queued that uses it.
        let status = unsafe { (driver.cuMemsetD8Async)(self.at, 0xff, self.room, stream) };
        self.context.check(status, || "taking memory that was left".into())?;
        // SAFETY: the default stream is always there.
        while unsafe { (driver.cuStreamQuery)(stream) } == NOT_READY {
            std::thread::yield_now();
        }
        Ok(self)
    }

    /// Leaves it for the next trial before this one ends. All work that uses it must be complete.
    pub fn leave(mut self) {
        if self.context.primary.leave_device(Allocated { at: self.at, bytes: self.room }) {
            self.room = 0;
        }
    }

    /// The memory, which the caller will free.
    pub fn into_allocated(mut self) -> Allocated {
        Allocated { at: self.at, bytes: std::mem::take(&mut self.room) }
    }

    /// False for a GPU that hangs, none of whose memory is freed.
    pub fn may_be_freed(&self) -> bool {
        self.context.enter_to_free()
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        let (primary, memory) = (&self.context.primary, Allocated { at: self.at, bytes: self.room });
        let is_left = self.room == 0 || self.context.is_idle() && primary.leave_device(memory);
        if !is_left && self.context.enter_to_free() {
            primary.free(self.at);
        }
    }
}

/// Pinned, page-aligned bytes of host memory. The device accesses them directly, so the host must wait for
/// the device before it reads or writes.
pub struct Pinned {
    context: Arc<Context>,
    base: *mut u8,
    bytes: usize,
    /// Bytes that the driver allocated; 0 for memory that was given away.
    room: usize,
}

// SAFETY: it is plain memory of the process, owned by this value.
unsafe impl Send for Pinned {}
// SAFETY: as above; what has a shared reference only reads.
unsafe impl Sync for Pinned {}

impl Pinned {
    /// Takes what an earlier trial left, or allocates; `what` names its purpose in an error. All bytes are zero.
    pub fn new(context: &Arc<Context>, bytes: usize, what: &str) -> Result<Self, DeviceError> {
        let bytes = bytes.max(16);
        let (mut base, mut room): (*mut c_void, _) = (ptr::null_mut(), bytes);
        match context.primary.take_pinned(bytes) {
            Some(left) => (base, room) = (left.at as *mut c_void, left.bytes),
            None => {
                // SAFETY: the pointer is to a live local. Flags 0: ordinary memory (write-combined memory is slow to
                // read).
                let mut allocate = || unsafe { (context.driver.cuMemHostAlloc)(&raw mut base, bytes, 0) };
                let mut status = allocate();
                if status == OUT_OF_MEMORY && context.primary.free_unused_pinned() {
                    status = allocate();
                }
                context.check(status, || format!("taking {bytes} bytes of pinned host memory for {what}"))?;
            }
        }
        let pinned = Self { context: Arc::clone(context), base: base.cast(), bytes, room };
        // SAFETY: as many bytes were allocated, and nobody else uses them.
        unsafe { ptr::write_bytes(pinned.base, 0, bytes) };
        Ok(pinned)
    }

    /// Leaves it for the next trial before this one ends. All work that uses it must be complete.
    pub fn leave(&mut self) {
        if self.context.primary.leave_pinned(Allocated { at: self.at(), bytes: self.room }) {
            self.room = 0;
        }
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
        let (primary, memory) = (&self.context.primary, Allocated { at: self.at(), bytes: self.room });
        let is_left = self.room == 0 || self.context.is_idle() && primary.leave_pinned(memory);
        if !is_left && self.context.enter_to_free() {
            primary.free_pinned(memory.at);
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
