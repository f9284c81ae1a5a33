//! Steps as a CUDA graph, captured once and replayed unchanged: everything that changes between steps is in device memory.

use std::{ptr, sync::Arc};

use cudarc::driver::sys::CUgraphExec;

use super::stream::Stream;
use crate::{device::DeviceError, ffi::Context};

/// `CU_STREAM_CAPTURE_MODE_THREAD_LOCAL`: calls from other threads do not disturb the capture.
const THREAD_LOCAL: i32 = 1;

pub struct Graph {
    context: Arc<Context>,
    handle: CUgraphExec,
}

// SAFETY: the handle is a token; a graph is launched by one thread at a time, that of its executor.
unsafe impl Send for Graph {}

impl Graph {
    /// Captures what `queue` puts into the stream, without running it.
    pub fn capture(
        context: &Arc<Context>,
        stream: &Stream,
        queue: impl FnOnce() -> Result<(), DeviceError>,
    ) -> Result<Self, DeviceError> {
        let driver = context.driver;
        let doing = || "capturing its steps as a graph".to_owned();
        // SAFETY: the stream is alive.
        context.check(unsafe { (driver.cuStreamBeginCapture_v2)(stream.handle(), THREAD_LOCAL) }, doing)?;
        let queued = queue();
        let mut graph = ptr::null_mut();
        // SAFETY: as above; the pointer is to a live local. Called even after an error, so that the capture ends.
        let ended = unsafe { (driver.cuStreamEndCapture)(stream.handle(), &raw mut graph) };
        if queued.is_err() && !graph.is_null() {
            // SAFETY: the capture created it, and it is not needed.
            unsafe { (driver.cuGraphDestroy)(graph) };
        }
        queued?;
        context.check(ended, doing)?;
        let mut handle = ptr::null_mut();
        // SAFETY: the graph has just been made.
        let made = unsafe { (driver.cuGraphInstantiateWithFlags)(&raw mut handle, graph, 0) };
        // SAFETY: the instance no longer needs it.
        unsafe { (driver.cuGraphDestroy)(graph) };
        context.check(made, || "making a graph of its steps".into())?;
        let graph = Self { context: Arc::clone(context), handle };
        // SAFETY: both handles are alive. Uploading now spares the first launch from doing it.
        context.check(unsafe { (driver.cuGraphUpload)(handle, stream.handle()) }, || {
            "loading a graph of its steps".into()
        })?;
        Ok(graph)
    }

    pub fn launch(&self, stream: &Stream) -> Result<(), DeviceError> {
        // SAFETY: both handles are alive.
        let status = unsafe { (self.context.driver.cuGraphLaunch)(self.handle, stream.handle()) };
        self.context.check(status, || "launching a graph of its steps".into())
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        if self.context.enter_to_free() {
            // SAFETY: created by `capture`, destroyed once.
            unsafe { (self.context.driver.cuGraphExecDestroy)(self.handle) };
        }
    }
}
