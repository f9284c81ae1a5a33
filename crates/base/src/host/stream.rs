//! Standard output and standard error, which may lead to a pipe that nobody reads or to a terminal that is halted.

use std::{
    fmt,
    io::{self, Write},
    os::fd::{AsFd, AsRawFd, RawFd},
    sync::atomic::{AtomicBool, Ordering},
};

use super::interruptible::ends_at_once;

/// A pipe that takes anything takes this much at once (pipe(7): `PIPE_BUF`), and what a line buffer still holds.
const PIECE: usize = 2048;

/// How soon a second signal is noticed.
const INTERVAL_MS: i32 = 50;

/// Whether standard output was closed when the process began.
static WAS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Called before `main`: the standard library then opens `/dev/null` in the place of what is closed.
#[used]
#[cfg_attr(target_os = "macos", unsafe(link_section = "__DATA,__mod_init_func"))]
#[cfg_attr(not(target_os = "macos"), unsafe(link_section = ".init_array"))]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    // SAFETY: it asks for the flags of a descriptor, which may be closed.
    let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) };
    WAS_CLOSED.store(flags < 0, Ordering::Relaxed);
}

/// Whether standard output was closed when the process began, so that nothing that is printed arrives.
pub fn output_was_closed() -> bool {
    WAS_CLOSED.load(Ordering::Relaxed)
}

/// A stream that waits like any other until a second signal comes. Then what it does not take is dropped, so that its writer
/// goes on.
#[derive(Clone, Copy, Debug)]
pub enum Stream {
    Output,
    Error,
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Output => write_pieces(&mut io::stdout().lock(), bytes)?,
            Self::Error => write_pieces(&mut io::stderr().lock(), bytes)?,
        }
        Ok(bytes.len())
    }

    /// Nothing is held back.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// In one piece, also beside other threads.
    fn write_fmt(&mut self, words: fmt::Arguments<'_>) -> io::Result<()> {
        self.write_all(words.to_string().as_bytes())
    }
}

fn write_pieces(stream: &mut (impl Write + AsFd), bytes: &[u8]) -> io::Result<()> {
    for piece in bytes.chunks(PIECE) {
        while !may_take(stream.as_fd().as_raw_fd(), if ends_at_once() { 0 } else { INTERVAL_MS }) {
            if ends_at_once() {
                return Ok(());
            }
        }
        stream.write_all(piece)?;
    }
    stream.flush()
}

/// Whether a file takes bytes, or fails, without a wait; waits for that for `most_ms`. A signal handler may call it.
pub(super) fn may_take(file: RawFd, most_ms: i32) -> bool {
    let mut entry = libc::pollfd { fd: file, events: libc::POLLOUT, revents: 0 };
    // SAFETY: the list is of one entry, which outlives the call.
    unsafe { libc::poll(&raw mut entry, 1, most_ms) != 0 }
}
