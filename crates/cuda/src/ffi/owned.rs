//! What a trial has of a context.

use std::sync::Arc;

use super::{
    context::Context,
    driver::OUT_OF_MEMORY,
    resource::{Kind, Resource},
};
use crate::{device::DeviceError, launch::wait};

/// When it is dropped it is left for the next trial, if all work of this one is complete, else freed.
pub struct Owned {
    pub context: Arc<Context>,
    of: Resource,
    /// Whether it was neither left nor given away.
    is_held: bool,
}

impl Owned {
    /// Takes what an earlier trial left, or what the driver gives; `doing` is for an error. Where memory is short, what no trial
    /// uses is freed.
    pub fn new(
        context: &Arc<Context>,
        kind: Kind,
        bytes: usize,
        doing: impl FnOnce() -> String,
    ) -> Result<Self, DeviceError> {
        Self::with_room(context, kind, bytes, doing, || context.free_unused(kind))
    }

    /// The same; `make_room` frees something, and is false if there is nothing to free.
    pub fn with_room(
        context: &Arc<Context>,
        kind: Kind,
        bytes: usize,
        doing: impl FnOnce() -> String,
        mut make_room: impl FnMut() -> bool,
    ) -> Result<Self, DeviceError> {
        let primary = &context.primary;
        let own = |of| Self { context: Arc::clone(context), of, is_held: true };
        if let Some(left) = primary.take(kind, bytes) {
            let own = own(left);
            let status = if cfg!(debug_assertions) { primary.poison(left) } else { 0 };
            return context.check(status, doing).map(|()| own);
        }
        loop {
            match primary.make(kind, bytes) {
                Ok(made) => return Ok(own(made)),
                Err(OUT_OF_MEMORY) if make_room() => {}
                Err(status) => return Err(context.error(status, doing())),
            }
        }
    }

    /// Its address or handle.
    pub fn at(&self) -> u64 {
        self.of.at
    }

    /// Leaves it for the next trial before this one ends. All work that uses it must be complete.
    pub fn leave(&mut self) {
        self.is_held = self.is_held && !self.context.primary.leave(self.of);
    }

    /// Gives it to the caller, who frees it.
    pub fn give(mut self) -> Resource {
        self.is_held = false;
        self.of
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        if self.context.is_idle() {
            self.leave();
        }
        if self.is_held && self.context.enter_to_free() {
            self.context.primary.free(self.of);
        }
    }
}

impl Context {
    /// Frees memory of this kind that no trial uses, since an allocation needs it: first what trials left, then rows. Returns
    /// whether there was any.
    pub fn free_unused(&self, kind: Kind) -> bool {
        let primary = &self.primary;
        let is_device = kind == Kind::Device;
        primary.free_left(kind) || is_device && wait::lock(self, &primary.rows).free_unused(primary)
    }
}
