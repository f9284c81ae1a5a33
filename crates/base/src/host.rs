//! Facts about the host. All are optional: what the system does not report is `None`.

mod atomic;
mod awake_timer;
#[allow(unsafe_code)]
mod byte_locks;
mod cgroup;
#[allow(unsafe_code)]
mod huge_pages;
mod interruptible;
mod kept_threads;
mod launched;
pub mod load;
mod lock_holder;
#[allow(unsafe_code)]
mod macos;
mod memory;
mod model;
pub mod nvml;
#[allow(unsafe_code)]
mod page_faults;
pub mod processor;
mod regular;
mod run_queue;
#[allow(unsafe_code)]
mod signals;
#[allow(unsafe_code)]
mod stream;
mod terminal;
#[allow(unsafe_code)]
mod write_out;

use std::{
    env,
    ffi::OsString,
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::{LazyLock, Mutex, MutexGuard, PoisonError},
};

pub use atomic::{Durability, sync_path, write_atomically, write_until_signal};
pub use awake_timer::AwakeTimer;
pub use byte_locks::ByteLocks;
pub use huge_pages::prefer_huge_pages;
pub use interruptible::{Interruptible, check_interrupted};
pub use kept_threads::{Task, begin_task};
pub use launched::{Launched, Launcher};
pub use lock_holder::lock_holder;
pub use memory::{Memory, memory, memory_limit, peak_resident_bytes, resident_bytes, usable_memory};
pub use model::{cache_sizes, caches, cpu_model, second_level_cache};
pub use page_faults::{page_fault_s, page_faults};
pub use regular::{check_regular, is_replaceable, open_regular, read_regular, read_text};
pub use run_queue::CoreWaits;
pub use signal_hook::consts::SIGUSR1;
pub use signals::{SecondSignal, ViewerSignals, end_with_parent, signal_in_words, stop_on_signals};
pub use stream::{Stream, output_was_closed};
pub use terminal::{escape_controls, escape_line, escape_uncoloured, json_text};
pub use write_out::{start_writing, sync_file_system};

/// This program's build: `release`, or `debug`, which is several times slower.
pub const BUILD: &str = if cfg!(debug_assertions) { "debug" } else { "release" };

/// Locks a mutex. A thread that panicked with it has ended the run with an error of its own; what it guards is whole.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The name of standard input in messages.
pub const STANDARD_INPUT: &str = "<stdin>";

/// Environment variable with the folder for files kept between runs, instead of the user's cache folder.
pub const CACHE_VARIABLE: &str = "RUNNER_CACHE_DIR";

/// An environment variable; `None` if it is unset or empty.
pub fn variable(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

/// The cache folder according to the environment; `None` if it names none.
pub fn cache_folder() -> Option<PathBuf> {
    let user = || {
        variable("XDG_CACHE_HOME")
            .map(PathBuf::from)
            .or_else(|| Some(Path::new(&variable("HOME")?).join(".cache")))
    };
    variable(CACHE_VARIABLE).map(PathBuf::from).or_else(|| Some(user()?.join("runner")))
}

/// Number of logical cores that this process may use, as of its start.
pub fn logical_cores() -> Option<usize> {
    static CORES: LazyLock<Option<usize>> =
        LazyLock::new(|| std::thread::available_parallelism().ok().map(usize::from));
    *CORES
}

/// The name of this host, as of the first call.
pub fn name() -> String {
    static NAME: LazyLock<String> = LazyLock::new(|| {
        let uname = rustix::system::uname();
        let name = uname.nodename().to_string_lossy();
        if name.is_empty() { "host".to_owned() } else { name.into_owned() }
    });
    NAME.clone()
}

/// The release of the operating system's kernel.
pub fn kernel() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

/// The Slurm job that this process runs in: `1234`, or `1234_7` for a task of an array.
pub fn slurm_job() -> Option<String> {
    let variable = |name: &str| std::env::var(name).ok();
    let task = variable("SLURM_ARRAY_JOB_ID").zip(variable("SLURM_ARRAY_TASK_ID"));
    task.map(|(array, task)| format!("{array}_{task}")).or_else(|| variable("SLURM_JOB_ID"))
}

/// Number of this host's processors that Slurm gave to the job of this process.
pub fn slurm_cpus() -> Option<usize> {
    std::env::var("SLURM_CPUS_ON_NODE").ok()?.parse().ok().filter(|cpus| *cpus > 0)
}

/// Reads a file of `/proc` or `/sys`. Such a file reports a size of 0 or one page, so `take` keeps the size from being asked for;
/// reserving enough room lets one call read it instead of many.
fn read_proc(path: &str) -> Option<String> {
    let mut text = Vec::with_capacity(8192);
    File::open(path).ok()?.take(u64::MAX).read_to_end(&mut text).ok()?;
    String::from_utf8(text).ok()
}

/// A system error's text for messages: `permission denied`, not `Permission denied (os error 13)`.
pub fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error ").next().unwrap_or(&text);
    let mut letters = text.chars();
    match letters.next() {
        // An acronym such as `RPC` keeps its capitals.
        Some(first) if letters.clone().next().is_some_and(char::is_lowercase) => {
            first.to_lowercase().chain(letters).collect()
        }
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_in_lower_case_and_without_numbers() {
        let words = [2, 13, 28].map(|code| reason(&io::Error::from_raw_os_error(code)));
        assert_eq!(words, ["no such file or directory", "permission denied", "no space left on device"]);
        assert_eq!(reason(&io::Error::other("RPC failed")), "RPC failed");
    }
}
