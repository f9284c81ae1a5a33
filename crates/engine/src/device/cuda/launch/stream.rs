//! Streams and events.

use std::{ffi::c_void, ptr, sync::Arc};

use cudarc::driver::sys::{CUevent, CUstream};

use crate::device::{
    DeviceError,
    cuda::{
        ffi::{Context, NOT_READY},
        memory::Pinned,
    },
};

/// `CU_STREAM_NON_BLOCKING`: no implicit order with the default stream.
const NON_BLOCKING: u32 = 1;
/// The driver's `CU_EVENT_DISABLE_TIMING`.
const WITHOUT_TIME: u32 = 2;

pub struct Stream {
    context: Arc<Context>,
    pub handle: CUstream,
}

// SAFETY: the handle is a token that the driver takes from any thread.
unsafe impl Send for Stream {}

impl Stream {
    /// Takes one that an earlier trial left, or makes one.
    pub fn new(context: &Arc<Context>) -> Result<Self, DeviceError> {
        let handle = match context.primary.take_stream() {
            Some(left) => left,
            None => {
                let mut handle = ptr::null_mut();
                // SAFETY: the pointer is to a live local.
                let status = unsafe { (context.driver.cuStreamCreate)(&raw mut handle, NON_BLOCKING) };
                context.check(status, || "making a stream".into()).map(|()| handle)?
            }
        };
        Ok(Self { context: Arc::clone(context), handle })
    }

    /// Whether all its work is complete; errors of that work show here. To wait, use [`super::wait`].
    pub fn is_done(&self, doing: impl FnOnce() -> String) -> Result<bool, DeviceError> {
        // SAFETY: the handle is alive.
        match unsafe { (self.context.driver.cuStreamQuery)(self.handle) } {
            NOT_READY => Ok(false),
            status => self.context.check(status, doing).map(|()| true),
        }
    }

    /// Makes later work of this stream wait for `event`.
    pub fn follow(&self, event: &Event) -> Result<(), DeviceError> {
        self.follow_handle(event.handle)
    }

    /// The same for an event that no trial owns.
    pub fn follow_handle(&self, event: CUevent) -> Result<(), DeviceError> {
        // SAFETY: both handles are alive.
        let status = unsafe { (self.context.driver.cuStreamWaitEvent)(self.handle, event, 0) };
        self.context.check(status, || "ordering streams".into())
    }

    /// Copies pinned memory to the device; the memory must not change until the copy is complete.
    pub fn upload(&self, to: u64, from: &Pinned, offset: usize, bytes: usize) -> Result<(), DeviceError> {
        let Some(from) = from.pointer(offset, bytes) else { return Ok(()) };
        // SAFETY: the range lies within the allocation.
        unsafe { self.copy_in(to, from, bytes) }
    }

    /// Copies any memory to the device. Memory that is not pinned is staged by the driver, which may wait for
    /// that.
    ///
    /// # Safety
    /// `from` must not change or be freed until the stream has been waited for.
    pub unsafe fn upload_from<T: Copy>(&self, to: u64, from: &[T]) -> Result<(), DeviceError> {
        // SAFETY: the caller keeps the slice alive.
        unsafe { self.copy_in(to, from.as_ptr().cast(), size_of_val(from)) }
    }

    /// # Safety
    /// The bytes at `from` must not change until the stream has been waited for; the caller must own as many
    /// bytes at `to`.
    unsafe fn copy_in(&self, to: u64, from: *const c_void, bytes: usize) -> Result<(), DeviceError> {
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: guaranteed by the caller.
        let status = unsafe { (self.context.driver.cuMemcpyHtoDAsync_v2)(to, from, bytes, self.handle) };
        self.context.check(status, || format!("copying {bytes} bytes to it"))
    }

    /// Copies from the device to pinned memory.
    pub fn download(&self, to: &Pinned, offset: usize, from: u64, bytes: usize) -> Result<(), DeviceError> {
        let Some(to) = to.pointer(offset, bytes).filter(|_| bytes > 0) else { return Ok(()) };
        // SAFETY: the range lies within the allocation.
        unsafe { self.copy_out(to, from, bytes) }
    }

    /// Copies from the device to any memory; the caller must wait before it reads.
    ///
    /// # Safety
    /// `to` must not be used or freed until the stream has been waited for.
    pub unsafe fn download_into(&self, to: &mut [f32], from: u64) -> Result<(), DeviceError> {
        // SAFETY: the caller keeps the slice alive.
        unsafe { self.copy_out(to.as_mut_ptr().cast(), from, size_of_val(to)) }
    }

    /// # Safety
    /// Nobody else may use the bytes at `to` until the stream has been waited for; `from` must have as many
    /// bytes.
    unsafe fn copy_out(&self, to: *mut c_void, from: u64, bytes: usize) -> Result<(), DeviceError> {
        // SAFETY: guaranteed by the caller.
        let status = unsafe { (self.context.driver.cuMemcpyDtoHAsync_v2)(to, from, bytes, self.handle) };
        self.context.check(status, || format!("copying {bytes} bytes from it"))
    }

    /// Copies from another GPU's memory: directly if the GPUs can access each other, else the driver goes
    /// through the host.
    pub fn copy_between(
        &self,
        to: u64,
        here: &Context,
        from: u64,
        there: &Context,
        bytes: usize,
    ) -> Result<(), DeviceError> {
        if bytes == 0 {
            return Ok(());
        }
        let (here, there) = (here.handle(), there.handle());
        // SAFETY: the caller owns as many bytes at both addresses, in these contexts.
        let status =
            unsafe { (self.context.driver.cuMemcpyPeerAsync)(to, here, from, there, bytes, self.handle) };
        self.context.check(status, || format!("copying {bytes} bytes from another GPU"))
    }

    pub fn fill(&self, at: u64, value: u8, bytes: usize) -> Result<(), DeviceError> {
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: the caller owns these bytes.
        let status = unsafe { (self.context.driver.cuMemsetD8Async)(at, value, bytes, self.handle) };
        self.context.check(status, || format!("setting {bytes} bytes"))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let primary = &self.context.primary;
        let is_left = self.context.is_idle() && primary.leave_stream(self.handle);
        if !is_left && self.context.enter_to_free() {
            primary.destroy_stream(self.handle);
        }
    }
}

pub struct Event {
    context: Arc<Context>,
    /// Null once [`Self::into_handle`] has given it away.
    handle: CUevent,
    is_timed: bool,
}

// SAFETY: the handle is a token that the driver takes from any thread.
unsafe impl Send for Event {}

impl Event {
    pub fn timed(context: &Arc<Context>) -> Result<Self, DeviceError> {
        Self::new(context, true)
    }

    /// An event without timing, which only orders work.
    pub fn plain(context: &Arc<Context>) -> Result<Self, DeviceError> {
        Self::new(context, false)
    }

    /// Takes one that an earlier trial left, or makes one.
    fn new(context: &Arc<Context>, is_timed: bool) -> Result<Self, DeviceError> {
        let handle = match context.primary.take_event(is_timed) {
            Some(left) => left,
            None => {
                let (mut handle, flags) = (ptr::null_mut(), if is_timed { 0 } else { WITHOUT_TIME });
                // SAFETY: the pointer is to a live local.
                let status = unsafe { (context.driver.cuEventCreate)(&raw mut handle, flags) };
                context.check(status, || "making an event".into()).map(|()| handle)?
            }
        };
        Ok(Self { context: Arc::clone(context), handle, is_timed })
    }

    /// Leaves it for the next trial before this one ends. It must have happened.
    pub fn leave(mut self) {
        if self.context.primary.leave_event(self.handle, self.is_timed) {
            self.handle = ptr::null_mut();
        }
    }

    /// The event, which the caller will destroy.
    pub fn into_handle(mut self) -> CUevent {
        std::mem::replace(&mut self.handle, ptr::null_mut())
    }

    /// Records the event after everything that is in the stream now.
    pub fn record(&self, stream: &Stream) -> Result<(), DeviceError> {
        // SAFETY: both handles are alive.
        let status = unsafe { (self.context.driver.cuEventRecord)(self.handle, stream.handle) };
        self.context.check(status, || "marking a stream".into())
    }

    /// Whether the device has reached the event; errors of earlier work show here. To wait, use
    /// [`super::wait`].
    pub fn happened(&self, doing: impl FnOnce() -> String) -> Result<bool, DeviceError> {
        // SAFETY: the handle is alive.
        match unsafe { (self.context.driver.cuEventQuery)(self.handle) } {
            NOT_READY => Ok(false),
            status => self.context.check(status, doing).map(|()| true),
        }
    }

    /// Seconds since an earlier event; both must have happened.
    pub fn seconds_after(&self, earlier: &Self) -> Result<f64, DeviceError> {
        let mut ms = 0.0;
        // SAFETY: both handles are alive, the pointer is to a live local.
        let status =
            unsafe { (self.context.driver.cuEventElapsedTime)(&raw mut ms, earlier.handle, self.handle) };
        self.context.check(status, || "reading the time of an event".into())?;
        Ok(f64::from(ms).max(0.0) / 1000.0)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let primary = &self.context.primary;
        let is_left = self.handle.is_null()
            || self.context.is_idle() && primary.leave_event(self.handle, self.is_timed);
        if !is_left && self.context.enter_to_free() {
            primary.destroy_event(self.handle);
        }
    }
}
