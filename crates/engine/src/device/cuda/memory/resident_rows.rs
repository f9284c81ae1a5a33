//! Rows in a GPU's memory. They are uploaded by the first trial that needs them; all trials of the process that train on the
//! same rows read them there.

use std::{
    ptr,
    sync::{Arc, PoisonError, Weak},
    time::Duration,
};

use cudarc::driver::sys::CUevent;

use super::{allocation::DeviceMemory, staging::Staging};
use crate::device::{
    DeviceError,
    cuda::{
        engines::GpuContext,
        ffi::{Allocated, Primary},
        launch::Event,
    },
};

/// Rows as a trial uses them. Dropped when its work is complete.
pub struct Rows {
    pub at: u64,
    pub bytes: usize,
    _user: Arc<()>,
}

struct Resident {
    /// The rows on the host. An address belongs to them as long as they can be named here, even if they are gone.
    of: Weak<Vec<f32>>,
    memory: Allocated,
    /// Their upload.
    uploaded: CUevent,
    users: Arc<()>,
}

/// All rows in a context, which frees them.
#[derive(Default)]
pub struct ResidentRows(Vec<Resident>);

// SAFETY: the events are tokens that the driver accepts from any thread.
unsafe impl Send for ResidentRows {}

impl Resident {
    fn is_used(&self) -> bool {
        Arc::strong_count(&self.users) > 1
    }

    fn rows(&self, bytes: usize) -> Rows {
        Rows { at: self.memory.at, bytes, _user: Arc::clone(&self.users) }
    }
}

impl Rows {
    /// Makes later work of the stream of steps read these rows. Returns how long the host waited to upload them; `None` if they
    /// were there.
    pub fn bind(
        gpu: &GpuContext,
        staging: &mut Staging,
        rows: &Arc<Vec<f32>>,
        what: &str,
    ) -> Result<(Self, Option<Duration>), DeviceError> {
        let (primary, bytes) = (&gpu.context.primary, size_of_val(&rows[..]));
        // Locked until the upload is queued: a trial that begins at the same time then finds the rows.
        let mut all = primary.rows.lock().unwrap_or_else(PoisonError::into_inner);
        all.leave_gone(primary);
        if let Some(found) = all.0.iter().find(|own| ptr::eq(own.of.as_ptr(), Arc::as_ptr(rows))) {
            gpu.stream.follow_handle(found.uploaded)?;
            return Ok((found.rows(bytes), None));
        }
        let memory = match DeviceMemory::new(&gpu.context, bytes, what) {
            Err(_) if all.free_unused(primary) => DeviceMemory::new(&gpu.context, bytes, what)?,
            memory => memory?,
        };
        let waited = staging.upload(gpu, memory.at, rows)?;
        let uploaded = Event::plain(&gpu.context)?;
        uploaded.record(&gpu.stream)?;
        let (memory, uploaded) = (memory.into_allocated(), uploaded.into_handle());
        let own = Resident { of: Arc::downgrade(rows), memory, uploaded, users: Arc::new(()) };
        let bound = own.rows(bytes);
        all.0.push(own);
        Ok((bound, Some(waited)))
    }
}

impl ResidentRows {
    /// Leaves the memory of rows that the host no longer has, and that no trial uses, for the next ones.
    fn leave_gone(&mut self, primary: &Primary) {
        for own in self.0.extract_if(.., |own| own.of.strong_count() == 0 && !own.is_used()) {
            own.end(primary, true);
        }
    }

    /// Frees all rows that no trial uses; returns whether there were any.
    pub fn free_unused(&mut self, primary: &Primary) -> bool {
        let before = self.0.len();
        for own in self.0.extract_if(.., |own| !own.is_used()) {
            own.end(primary, false);
        }
        self.0.len() < before
    }
}

impl Resident {
    fn end(self, primary: &Primary, is_left: bool) {
        if !(is_left && primary.leave_device(self.memory)) {
            primary.free(self.memory.at);
        }
        if !primary.leave_event(self.uploaded, false) {
            primary.destroy_event(self.uploaded);
        }
    }
}
