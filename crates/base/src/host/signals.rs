//! Signals that ask a process to end.

use std::{
    io,
    os::unix::process::CommandExt,
    process::{self, Command},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGXCPU, SIGXFSZ},
    flag, low_level,
};

use super::interruptible::interrupt;

/// A second signal that comes sooner is taken for the first one: a terminal and `timeout` send theirs to a process and to
/// its group, which may reach it as two.
const ONE_REQUEST: Duration = Duration::from_secs(2);

const AT_ONCE: &[u8] =
    b"runner: ended at once by a second signal; rows that were still on a device are lost\n";

const BEFORE_THE_START: &[u8] = b"runner: ended by a signal before training began\n";

/// Before `is_begun`, SIGINT, SIGTERM, SIGHUP and SIGXCPU end the process at once: planning may read rows for minutes, and
/// there is nothing to save. After it the first of them stores its number in `stop`, readings end, and the run ends in
/// order; one that comes two seconds later or more ends the process at once. SIGUSR1 adds one to `saves`. A file that may
/// not grow further (SIGXFSZ) is an error of its write.
pub fn stop_on_signals(stop: &Arc<AtomicUsize>, saves: &Arc<AtomicUsize>, is_begun: &Arc<AtomicBool>) {
    // Where a handler is refused, its signal ends the process, which loses nothing but the last unflushed rows.
    let _ = flag::register(SIGXFSZ, Arc::default());
    let saves = Arc::clone(saves);
    // SAFETY: the action changes an atomic, which a signal handler may do.
    let _ = unsafe {
        low_level::register(SIGUSR1, move || {
            saves.fetch_add(1, Ordering::Relaxed);
        })
    };
    let (begun, asked_at) = (Instant::now(), Arc::new(AtomicU64::new(0)));
    for signal in [SIGINT, SIGTERM, SIGHUP, SIGXCPU] {
        if signal == SIGHUP && is_ignored(signal) {
            continue; // `nohup` asks that a closed terminal ends nothing
        }
        let (stop, asked_at, is_begun) = (Arc::clone(stop), Arc::clone(&asked_at), Arc::clone(is_begun));
        let action = move || {
            let end_with = |words: &[u8]| {
                // SAFETY: `write` may be called in a signal handler, and the bytes live as long as the program.
                unsafe { libc::write(libc::STDERR_FILENO, words.as_ptr().cast(), words.len()) };
                low_level::exit(128 + signal);
            };
            if !is_begun.load(Ordering::Relaxed) {
                end_with(BEFORE_THE_START);
            }
            let now = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX).max(1);
            match asked_at.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => {
                    stop.store(signal as usize, Ordering::SeqCst);
                    interrupt();
                }
                // The system repeats this one every second.
                Err(_) if signal == SIGXCPU => {}
                Err(first) if now - first < ONE_REQUEST.as_millis() as u64 => {}
                Err(_) => end_with(AT_ONCE),
            }
        };
        // SAFETY: the action reads a clock, changes atomics, writes and exits, all of which a signal handler may do.
        let _ = unsafe { low_level::register(signal, action) };
    }
}

/// Ends a child process with the thread that starts it, however that ends.
pub fn end_with_thread(command: &mut Command) {
    let own = process::id();
    let ask = move || {
        // SAFETY: both only ask the kernel.
        let (asked, parent) =
            unsafe { (libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong), libc::getppid()) };
        if asked == 0 && parent as u32 == own {
            Ok(())
        } else {
            Err(io::Error::from_raw_os_error(libc::ESRCH))
        }
    };
    // SAFETY: between `fork` and `exec` it makes system calls and takes no memory.
    unsafe { command.pre_exec(ask) };
}

fn is_ignored(signal: i32) -> bool {
    let mut current = std::mem::MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: no action is set, and the current one is written to room of its type, which is read only where it was.
    unsafe {
        libc::sigaction(signal, std::ptr::null(), current.as_mut_ptr()) == 0
            && current.assume_init().sa_sigaction == libc::SIG_IGN
    }
}
