//! Pinned memory as numbers, which readers fill and tests of copies take.

use std::{
    ops::{Deref, DerefMut},
    sync::Arc,
};

use super::allocation::Pinned;
use crate::{
    device::{DeviceError, HostMemory},
    ffi::Context,
};

struct PinnedNumbers {
    memory: Pinned,
    len: usize,
}

/// Pinned memory for this many elements, all zero; `what` names its purpose in an error. Who drops it has waited for all copies
/// from and to it.
pub fn pinned_numbers(
    context: &Arc<Context>,
    elements: usize,
    what: &str,
) -> Result<HostMemory, DeviceError> {
    let memory = Pinned::new(context, elements.saturating_mul(4), what)?;
    Ok(Box::new(PinnedNumbers { memory, len: elements }))
}

impl Deref for PinnedNumbers {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        // SAFETY: `len` elements were allocated, page-aligned and zeroed. The device writes them only while the host waits.
        unsafe { std::slice::from_raw_parts(self.memory.at() as *const f32, self.len) }
    }
}

impl DerefMut for PinnedNumbers {
    fn deref_mut(&mut self) -> &mut [f32] {
        // SAFETY: as above, and `&mut self` is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.memory.at() as *mut f32, self.len) }
    }
}

impl Drop for PinnedNumbers {
    fn drop(&mut self) {
        self.memory.own.leave();
    }
}
