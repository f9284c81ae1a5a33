//! Signals that ask a process to end.

use std::{
    ffi::CString,
    io::{self, PipeReader, Read, pipe},
    os::{
        fd::{AsRawFd, RawFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
    process::{Child, Command},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM, SIGTSTP, SIGUSR1, SIGXCPU, SIGXFSZ},
    flag, low_level,
};

use super::{
    interruptible::{end_at_once, interrupt},
    stream::may_take,
};

/// A second signal within this time is taken for the first one again: a terminal and `timeout` signal both a
/// process and its group, so it may get the signal twice.
const ONE_REQUEST: Duration = Duration::from_secs(2);

const AT_ONCE: &[u8] =
    b"runner: ended at once by a second signal; rows are written, except those that were still on a device\n";

const UNWRITTEN: &[u8] =
    b"runner: ended at once by a second signal; rows that were not written yet are lost\n";

const BY_FORCE: &[u8] = b"runner: ended at once by a third signal; rows that were not written yet are lost\n";

const BEFORE_THE_START: &[u8] = b"runner: ended by a signal before training began\n";

/// Installs the signal handlers of a run. Before `is_begun`, SIGINT, SIGTERM, SIGHUP and SIGXCPU end the
/// process at once: planning may read rows for minutes, and there is nothing to save. Afterwards, the first
/// of them stores its number in `stop`, reads end, and the run ends in an orderly way; another one at least
/// two seconds later is the [`SecondSignal`], and one more ends the process at once. SIGUSR1 adds one to
/// `saves`; with `ends_by_usr1` it instead stops the run in an orderly way, also before `is_begun`, and
/// repeats are ignored. When a file exceeds its size limit (SIGXFSZ), the write fails with an error.
///
/// # Errors
/// The system cannot create a pipe.
pub fn stop_on_signals(
    stop: &Arc<AtomicUsize>,
    saves: &Arc<AtomicUsize>,
    is_begun: &Arc<AtomicBool>,
    ends_by_usr1: bool,
) -> io::Result<SecondSignal> {
    let (reader, writer) = pipe()?;
    let writer = Arc::new(writer);
    // If a handler cannot be installed, its signal ends the process, which loses only the last unflushed
    // rows.
    let _ = flag::register(SIGXFSZ, Arc::default());
    if !ends_by_usr1 {
        let saves = Arc::clone(saves);
        // SAFETY: the action only changes an atomic, which is allowed in a signal handler.
        let _ = unsafe {
            low_level::register(SIGUSR1, move || {
                saves.fetch_add(1, Ordering::Relaxed);
            })
        };
    }
    let (begun, asked_at) = (Instant::now(), Arc::new(AtomicU64::new(0)));
    let ending = [SIGINT, SIGTERM, SIGHUP, SIGXCPU, SIGUSR1];
    for signal in ending.into_iter().filter(|signal| ends_by_usr1 || *signal != SIGUSR1) {
        if signal == SIGHUP && is_ignored(signal) {
            continue; // under `nohup`, closing the terminal must not end the process
        }
        let (stop, asked_at, is_begun) = (Arc::clone(stop), Arc::clone(&asked_at), Arc::clone(is_begun));
        let writer = Arc::clone(&writer);
        let action = move || {
            // SIGUSR1 always ends the process in an orderly way, because its caller has more to do
            // afterwards.
            if !is_begun.load(Ordering::Relaxed) && signal != SIGUSR1 {
                end_with(BEFORE_THE_START, signal);
            }
            let now = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX).max(1);
            match asked_at.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => {
                    stop.store(signal as usize, Ordering::SeqCst);
                    interrupt();
                }
                // The system repeats SIGXCPU every second, and a scheduler may repeat SIGUSR1.
                Err(_) if [SIGXCPU, SIGUSR1].contains(&signal) => {}
                Err(first) if now.saturating_sub(first) < ONE_REQUEST.as_millis() as u64 => {}
                Err(_) if end_at_once() => write_now(writer.as_raw_fd(), &[signal as u8]),
                Err(_) => end_with(BY_FORCE, signal),
            }
        };
        // SAFETY: the action reads a clock, changes atomics, writes and exits, all allowed in a signal
        // handler.
        let _ = unsafe { low_level::register(signal, action) };
    }
    Ok(SecondSignal(reader))
}

/// Writes a few bytes, also in a signal handler, unless that would wait; a failure is ignored.
fn write_now(file: RawFd, bytes: &[u8]) {
    if may_take(file, 0) {
        // SAFETY: `write` may be called in a signal handler, and reads no more than the bytes.
        unsafe { libc::write(file, bytes.as_ptr().cast(), bytes.len()) };
    }
}

/// Ends the process, also in a signal handler.
fn end_with(words: &[u8], signal: i32) -> ! {
    write_now(libc::STDERR_FILENO, words);
    low_level::exit(128 + signal)
}

/// A signal that comes two seconds or more after one that asked the process to end.
#[derive(Debug)]
pub struct SecondSignal(PipeReader);

impl SecondSignal {
    /// Waits for it, for as long as the process runs; then calls `close`, which returns whether all rows are
    /// written, and ends the process.
    pub fn wait(mut self, close: impl FnOnce() -> bool) {
        let mut signal = [0];
        if self.0.read_exact(&mut signal).is_ok() {
            end_with(if close() { AT_ONCE } else { UNWRITTEN }, signal[0].into());
        }
    }
}

/// Where a signal ends the process, it removes this file first.
pub(super) fn remove_on_signals(path: &Path) {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return };
    for signal in [SIGINT, SIGTERM, SIGHUP, SIGXCPU] {
        if is_ignored(signal) {
            continue;
        }
        let path = path.clone();
        let action = move || {
            // SAFETY: `unlink` may be called in a signal handler, and the action owns the path.
            unsafe { libc::unlink(path.as_ptr()) };
            let _ = low_level::emulate_default_handler(signal);
        };
        // SAFETY: the action makes system calls that a signal handler may make.
        let _ = unsafe { low_level::register(signal, action) };
    }
}

/// Signals to a viewer: none of them ends it before it has restored the terminal.
#[derive(Debug, Default)]
pub struct ViewerSignals {
    /// The process that signals are forwarded to; 0 if there is none.
    child: AtomicI32,
    count: AtomicUsize,
    last: AtomicI32,
    is_pause: AtomicBool,
}

impl ViewerSignals {
    /// From now on each SIGINT, SIGTERM, SIGHUP and SIGXCPU is counted, and Ctrl-Z takes effect in `pause`.
    pub fn listen() -> Arc<Self> {
        let signals = Arc::<Self>::default();
        for signal in [SIGINT, SIGTERM, SIGHUP, SIGXCPU, SIGTSTP] {
            if [SIGHUP, SIGTSTP].contains(&signal) && is_ignored(signal) {
                continue;
            }
            let own = Arc::clone(&signals);
            let action = move || {
                if signal == SIGTSTP {
                    own.is_pause.store(true, Ordering::Relaxed);
                } else {
                    own.last.store(signal, Ordering::Relaxed);
                    own.count.fetch_add(1, Ordering::Relaxed);
                    own.pass_on();
                }
            };
            // SAFETY: the action changes atomics and sends a signal, both allowed in a signal handler.
            let _ = unsafe { low_level::register(signal, action) };
        }
        signals
    }

    /// From now on each signal is forwarded to this process at once, however busy the viewer is. If the
    /// terminal has signalled that process too, it takes the two for one. `None` ends the forwarding.
    pub fn pass_on_to(&self, child: Option<&Child>) {
        let pid = child.and_then(|child| libc::pid_t::try_from(child.id()).ok());
        self.child.store(pid.unwrap_or(0), Ordering::SeqCst);
        if self.count() > 0 {
            self.pass_on(); // the signal came before there was a process
        }
    }

    fn pass_on(&self) {
        let child = self.child.load(Ordering::SeqCst);
        if child > 0 {
            // SAFETY: `kill` accesses no memory, and the child was not waited for, so its number is still its
            // own.
            unsafe { libc::kill(child, self.last.load(Ordering::Relaxed)) };
        }
    }

    /// The number of requests to end.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// If Ctrl-Z was pressed, calls `leave` and stops the process until it is continued.
    pub fn pause(&self, leave: impl FnOnce()) {
        if self.is_pause.swap(false, Ordering::Relaxed) {
            leave();
            let _ = low_level::emulate_default_handler(SIGTSTP);
        }
    }
}

/// `9 (SIGKILL)`.
pub fn signal_in_words(signal: i32) -> String {
    low_level::signal_name(signal).map_or_else(|| signal.to_string(), |name| format!("{signal} ({name})"))
}

/// Makes the system send SIGTERM to a child if this process is killed.
#[cfg(not(target_os = "macos"))]
pub fn end_with_parent(child: &mut Command) {
    use std::os::unix::process::CommandExt;
    // SAFETY: between fork and exec the child makes one system call, which accesses no memory.
    unsafe {
        child.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, SIGTERM);
            Ok(())
        });
    }
}

/// macOS has no such service.
#[cfg(target_os = "macos")]
pub fn end_with_parent(_: &mut Command) {}

fn is_ignored(signal: i32) -> bool {
    let mut current = std::mem::MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: sigaction gets no new action, and stores the current one in memory of its type, which is read
    // only if the call succeeded.
    unsafe {
        libc::sigaction(signal, std::ptr::null(), current.as_mut_ptr()) == 0
            && current.assume_init().sa_sigaction == libc::SIG_IGN
    }
}
