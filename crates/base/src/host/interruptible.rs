//! What signals ask for: long reads end soon, and nothing is waited for any more.

use std::{
    io::{self, Read},
    sync::atomic::{AtomicBool, Ordering},
};

/// Whether a signal has asked the process to end.
static IS_INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Whether a second signal has.
static IS_AT_ONCE: AtomicBool = AtomicBool::new(false);

/// Makes reads end. May be called from a signal handler.
pub(super) fn interrupt() {
    IS_INTERRUPTED.store(true, Ordering::SeqCst);
}

/// From now on nothing is to be waited for; false where that is so already. A signal handler may call it.
pub(super) fn end_at_once() -> bool {
    !IS_AT_ONCE.swap(true, Ordering::SeqCst)
}

/// Whether nothing is to be waited for any more.
pub(super) fn ends_at_once() -> bool {
    IS_AT_ONCE.load(Ordering::SeqCst)
}

/// To be called between two pieces of a long read.
///
/// # Errors
/// A signal has asked the process to end.
pub fn check_interrupted() -> io::Result<()> {
    check(&IS_INTERRUPTED)
}

fn check(is_interrupted: &AtomicBool) -> io::Result<()> {
    // Not `ErrorKind::Interrupted`: readers retry on that.
    if is_interrupted.load(Ordering::SeqCst) { Err(io::Error::other("ended by a signal")) } else { Ok(()) }
}

/// A reader that checks for a signal before every read.
pub struct Interruptible<R> {
    reader: R,
    is_interrupted: &'static AtomicBool,
}

impl<R> Interruptible<R> {
    pub fn new(reader: R) -> Self {
        Self { reader, is_interrupted: &IS_INTERRUPTED }
    }
}

impl<R: Read> Read for Interruptible<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        check(self.is_interrupted)?;
        self.reader.read(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A separate flag: the process's own would affect other tests that read.
    static OWN: AtomicBool = AtomicBool::new(false);

    /// Endless zeros; a signal arrives with the third piece.
    struct Endless(u32);

    impl Read for Endless {
        fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
            self.0 += 1;
            if self.0 == 3 {
                OWN.store(true, Ordering::SeqCst);
            }
            io::repeat(0).read(bytes)
        }
    }

    #[test]
    fn a_signal_ends_what_has_no_end() {
        let error = (Interruptible { reader: Endless(0), is_interrupted: &OWN })
            .read_to_end(&mut Vec::new())
            .unwrap_err();
        assert_eq!(error.to_string(), "ended by a signal");
    }
}
