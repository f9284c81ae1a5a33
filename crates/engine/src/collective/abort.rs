//! Lets a failed rank release the ranks that wait for it.

use std::sync::Arc;

/// Ends all current and later waits of a group.
#[derive(Clone)]
pub struct Abort(Arc<dyn Fn() + Send + Sync>);

/// Aborts when dropped unless it was defused, so that a rank's thread cannot end and leave the others
/// waiting.
pub struct Guard<'a>(Option<&'a Abort>);

impl Abort {
    /// `abort` may be called from any thread, more than once.
    pub fn new(abort: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Arc::new(abort))
    }

    /// For a device that works alone: does nothing.
    pub fn nothing() -> Self {
        Self::new(|| {})
    }

    pub fn now(&self) {
        (self.0)();
    }

    pub fn guard(&self) -> Guard<'_> {
        Guard(Some(self))
    }
}

impl Guard<'_> {
    pub fn defuse(mut self) {
        self.0 = None;
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if let Some(abort) = self.0 {
            abort.now();
        }
    }
}
