//! How a device that fails lets go of those that wait for it.

use std::sync::Arc;

/// Ends every wait of a group, now and from now on.
#[derive(Clone)]
pub struct Abort(Arc<dyn Fn() + Send + Sync>);

/// Aborts when it is dropped, unless it was defused: however a rank's thread ends, nobody waits for it.
pub struct Guard<'a>(Option<&'a Abort>);

impl Abort {
    /// Calls this to abort.
    pub fn new(abort: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Arc::new(abort))
    }

    /// For a device that waits for nobody.
    pub fn nothing() -> Self {
        Self::new(|| {})
    }

    /// Aborts.
    pub fn now(&self) {
        (self.0)();
    }

    /// Aborts unless defused.
    pub fn guard(&self) -> Guard<'_> {
        Guard(Some(self))
    }
}

impl Guard<'_> {
    /// All went well.
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
