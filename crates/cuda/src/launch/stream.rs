//! Streams and events.

use std::{ffi::c_void, sync::Arc};

use cudarc::driver::sys::{CUevent, CUstream};

use crate::{
    device::DeviceError,
    ffi::{Context, Kind, NOT_READY, Owned},
    memory::Pinned,
};

pub struct Stream(Owned);

impl Stream {
    /// Takes one that an earlier trial left, or makes one.
    pub fn new(context: &Arc<Context>) -> Result<Self, DeviceError> {
        Owned::new(context, Kind::Stream, 0, || "making a stream".into()).map(Self)
    }

    pub fn handle(&self) -> CUstream {
        self.0.at() as CUstream
    }

    /// Whether all its work is complete; errors of that work show here. To wait, use [`super::wait`].
    pub fn is_done(&self, doing: impl FnOnce() -> String) -> Result<bool, DeviceError> {
        // SAFETY: the handle is alive.
        match unsafe { (self.0.context.driver.cuStreamQuery)(self.handle()) } {
            NOT_READY => Ok(false),
            status => self.0.context.check(status, doing).map(|()| true),
        }
    }

    /// Makes later work of this stream wait for `event`.
    pub fn follow(&self, event: &Event) -> Result<(), DeviceError> {
        self.follow_handle(event.0.at())
    }

    /// The same for an event that no trial owns.
    pub fn follow_handle(&self, event: u64) -> Result<(), DeviceError> {
        // SAFETY: both handles are alive.
        let status = unsafe { (self.0.context.driver.cuStreamWaitEvent)(self.handle(), event as CUevent, 0) };
        self.0.context.check(status, || "ordering streams".into())
    }

    /// Copies pinned memory to the device; the memory must not change until the copy is complete.
    pub fn upload(&self, to: u64, from: &Pinned, offset: usize, bytes: usize) -> Result<(), DeviceError> {
        let Some(from) = from.pointer(offset, bytes) else { return Ok(()) };
        // SAFETY: the range lies within the allocation.
        unsafe { self.copy_in(to, from, bytes) }
    }

    /// Copies any memory to the device. Memory that is not pinned is staged by the driver, which may wait for that.
    ///
    /// # Safety
    /// `from` must not change or be freed until the stream has been waited for.
    pub unsafe fn upload_from<T: Copy>(&self, to: u64, from: &[T]) -> Result<(), DeviceError> {
        // SAFETY: the caller keeps the slice alive.
        unsafe { self.copy_in(to, from.as_ptr().cast(), size_of_val(from)) }
    }

    /// # Safety
    /// The bytes at `from` must not change until the stream has been waited for; the caller must own as many bytes at `to`.
    unsafe fn copy_in(&self, to: u64, from: *const c_void, bytes: usize) -> Result<(), DeviceError> {
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: guaranteed by the caller.
        let status = unsafe { (self.0.context.driver.cuMemcpyHtoDAsync_v2)(to, from, bytes, self.handle()) };
        self.0.context.check(status, || format!("copying {bytes} bytes to it"))
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
    /// Nobody else may use the bytes at `to` until the stream has been waited for; `from` must have as many bytes.
    unsafe fn copy_out(&self, to: *mut c_void, from: u64, bytes: usize) -> Result<(), DeviceError> {
        // SAFETY: guaranteed by the caller.
        let status = unsafe { (self.0.context.driver.cuMemcpyDtoHAsync_v2)(to, from, bytes, self.handle()) };
        self.0.context.check(status, || format!("copying {bytes} bytes from it"))
    }

    /// Copies from another GPU's memory: directly if the GPUs can access each other, else the driver goes through the host.
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
            unsafe { (self.0.context.driver.cuMemcpyPeerAsync)(to, here, from, there, bytes, self.handle()) };
        self.0.context.check(status, || format!("copying {bytes} bytes from another GPU"))
    }

    pub fn fill(&self, at: u64, value: u8, bytes: usize) -> Result<(), DeviceError> {
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: the caller owns these bytes.
        let status = unsafe { (self.0.context.driver.cuMemsetD8Async)(at, value, bytes, self.handle()) };
        self.0.context.check(status, || format!("setting {bytes} bytes"))
    }
}

pub struct Event(pub Owned);

impl Event {
    pub fn timed(context: &Arc<Context>) -> Result<Self, DeviceError> {
        Owned::new(context, Kind::Timed, 0, || "making an event".into()).map(Self)
    }

    /// An event without timing, which only orders work.
    pub fn plain(context: &Arc<Context>) -> Result<Self, DeviceError> {
        Owned::new(context, Kind::Plain, 0, || "making an event".into()).map(Self)
    }

    fn handle(&self) -> CUevent {
        self.0.at() as CUevent
    }

    /// Records the event after everything that is in the stream now.
    pub fn record(&self, stream: &Stream) -> Result<(), DeviceError> {
        // SAFETY: both handles are alive.
        let status = unsafe { (self.0.context.driver.cuEventRecord)(self.handle(), stream.handle()) };
        self.0.context.check(status, || "marking a stream".into())
    }

    /// Whether the device has reached the event; errors of earlier work show here. To wait, use [`super::wait`].
    pub fn happened(&self, doing: impl FnOnce() -> String) -> Result<bool, DeviceError> {
        // SAFETY: the handle is alive.
        match unsafe { (self.0.context.driver.cuEventQuery)(self.handle()) } {
            NOT_READY => Ok(false),
            status => self.0.context.check(status, doing).map(|()| true),
        }
    }

    /// Seconds since an earlier event; both must have happened.
    pub fn seconds_after(&self, earlier: &Self) -> Result<f64, DeviceError> {
        let mut ms = 0.0;
        // SAFETY: both handles are alive, the pointer is to a live local.
        let status = unsafe {
            (self.0.context.driver.cuEventElapsedTime)(&raw mut ms, earlier.handle(), self.handle())
        };
        self.0.context.check(status, || "reading the time of an event".into())?;
        Ok(f64::from(ms).max(0.0) / 1000.0)
    }
}
