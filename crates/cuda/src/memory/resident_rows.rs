//! Rows in a GPU's memory. They are uploaded by the first trial that needs them; all trials of the process that train on the
//! same rows read them there.

use std::{
    ptr,
    sync::{Arc, Weak},
    time::Duration,
};

use super::{allocation::DeviceMemory, staging::Staging};
use crate::{
    device::DeviceError,
    engines::GpuContext,
    ffi::{Kind, Primary, Resource},
    launch::{Event, wait},
};

/// The most bytes of rows that no trial uses when others are uploaded: other folds or splits of the data.
const MOST_UNUSED: usize = 1 << 30;

/// Rows as a trial uses them. Dropped when its work is complete.
pub struct Rows {
    pub at: u64,
    pub bytes: usize,
    _user: Arc<()>,
}

struct Resident {
    /// The rows on the host. An address belongs to them as long as they can be named here, even if they are gone.
    of: Weak<Vec<f32>>,
    memory: Resource,
    /// Their upload.
    uploaded: Resource,
    users: Arc<()>,
}

/// All rows in a context, which frees them.
#[derive(Default)]
pub struct ResidentRows(Vec<Resident>);

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
        let mut all = wait::lock(&gpu.context, &primary.rows);
        all.leave_gone(primary);
        if let Some(found) = all.0.iter().find(|own| ptr::eq(own.of.as_ptr(), Arc::as_ptr(rows))) {
            gpu.stream.follow_handle(found.uploaded.at)?;
            return Ok((found.rows(bytes), None));
        }
        all.free_oldest(primary);
        let make_room = || primary.free_left(Kind::Device) || all.free_unused(primary);
        let memory = DeviceMemory::with_room(&gpu.context, bytes, what, make_room)?;
        let waited = staging.upload(gpu, memory.at, rows)?;
        let uploaded = Event::plain(&gpu.context)?;
        uploaded.record(&gpu.stream)?;
        let (of, users) = (Arc::downgrade(rows), Arc::default());
        let own = Resident { of, memory: memory.own.give(), uploaded: uploaded.0.give(), users };
        let bound = own.rows(bytes);
        all.0.push(own);
        Ok((bound, Some(waited)))
    }
}

/// Which blocks, of these bytes and the oldest first, exceed [`MOST_UNUSED`].
fn excess(bytes: Vec<usize>) -> Vec<bool> {
    let mut all: usize = bytes.iter().sum();
    let is_freed = |bytes| {
        let is_freed = bytes > 0 && all > MOST_UNUSED;
        all -= if is_freed { bytes } else { 0 };
        is_freed
    };
    bytes.into_iter().map(is_freed).collect()
}

impl ResidentRows {
    /// Frees rows that no trial uses, if they are too many.
    fn free_oldest(&mut self, primary: &Primary) {
        let unused = self.0.iter().map(|own| if own.is_used() { 0 } else { own.memory.bytes });
        let mut is_freed = excess(unused.collect()).into_iter();
        let freed = self.0.extract_if(.., |_| is_freed.next().unwrap_or(false));
        freed.for_each(|own| own.end(primary, false));
    }

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
        if !(is_left && primary.leave(self.memory)) {
            primary.free(self.memory);
        }
        if !primary.leave(self.uploaded) {
            primary.free(self.uploaded);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_rows_that_no_trial_uses_are_freed() {
        let of = |parts: &[usize]| excess(parts.iter().map(|part| part * MOST_UNUSED / 10).collect());
        assert_eq!(of(&[3, 0, 7]), [false; 3]);
        // Those of 0 bytes are in use.
        assert_eq!(of(&[0, 3, 5, 0, 4]), [false, true, false, false, false]);
        assert_eq!(of(&[3, 5, 0, 20]), [true, true, false, true]);
    }
}
