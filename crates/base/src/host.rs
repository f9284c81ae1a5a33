//! Facts about the host. All are optional: what the system does not report is `None`.

mod atomic;
mod awake_timer;
#[allow(unsafe_code)]
mod byte_locks;
#[allow(unsafe_code)]
mod huge_pages;
mod interruptible;
mod kept_threads;
mod launched;
pub mod load;
mod lock_holder;
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
    fs::{self, File},
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

pub fn cpu_model() -> Option<String> {
    model_in(cpuinfo_head()?)
}

/// The first core's section of `/proc/cpuinfo`: with a hundred cores, reading the whole file takes
/// milliseconds. It is read once, like everything here that does not change while a process runs: a sweep
/// asks for it with every trial.
fn cpuinfo_head() -> Option<&'static str> {
    static HEAD: LazyLock<Option<String>> = LazyLock::new(|| {
        let mut head = vec![0; 4096];
        let length = File::open("/proc/cpuinfo").ok()?.read(&mut head).ok()?;
        Some(String::from_utf8_lossy(head.get(..length)?).into_owned())
    });
    HEAD.as_deref()
}

fn model_in(cpuinfo: &str) -> Option<String> {
    let names = ["model name", "Processor", "cpu model", "uarch"];
    let (_, value) = cpuinfo
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| names.contains(&key.trim()))?;
    Some(value.trim().to_owned())
}

/// The first core's caches from L1 on, as `L1 data 48K`.
pub fn caches() -> Vec<String> {
    static CACHES: LazyLock<Vec<String>> = LazyLock::new(read_caches);
    CACHES.clone()
}

fn read_caches() -> Vec<String> {
    let read = |index: u32, what: &str| {
        let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{what}");
        fs::read_to_string(path).ok().map(|text| text.trim().to_lowercase())
    };
    let cache = |index| {
        let (level, kind, size) = (read(index, "level")?, read(index, "type")?, read(index, "size")?);
        Some(format!("L{level} {kind} {}", size.to_uppercase()))
    };
    (0..).map_while(cache).collect()
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
        let name = read_proc("/proc/sys/kernel/hostname").unwrap_or_default();
        if name.trim().is_empty() { "host".to_owned() } else { name.trim().to_owned() }
    });
    NAME.clone()
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

/// Entries of `/proc/meminfo`, in bytes.
pub fn memory<const N: usize>(what: [&str; N]) -> [Option<u64>; N] {
    let text = read_proc("/proc/meminfo").unwrap_or_default();
    what.map(|what| meminfo(&text, what))
}

fn meminfo(text: &str, what: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(what)?.strip_prefix(':'))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// An entry of this process's `/proc/self/status`, in bytes: `VmRSS` is its resident memory, `VmHWM` the peak
/// of that.
pub fn process_memory(what: &str) -> Option<u64> {
    meminfo(&read_proc("/proc/self/status")?, what)
}

/// The memory limit of this process's cgroup in bytes, as of its start, if it is below `total`.
pub fn memory_limit(total: Option<u64>) -> Option<u64> {
    static LIMIT: LazyLock<Option<u64>> = LazyLock::new(|| {
        let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
        limit_in(&groups, Path::new("/sys/fs/cgroup"))
    });
    LIMIT.filter(|&limit| total.is_none_or(|total| limit < total))
}

/// The lowest limit among the cgroup and its ancestors.
fn limit_in(groups: &str, mount: &Path) -> Option<u64> {
    let folders = cgroup_folders(groups, mount, "memory").into_iter();
    let files =
        folders.flat_map(|folder| ["memory.max", "memory.limit_in_bytes"].map(|file| folder.join(file)));
    files.filter_map(|file| fs::read_to_string(file).ok()?.trim().parse().ok()).min()
}

/// The folders of the cgroup and its ancestors (cgroup v2, or v1's tree of `controller`). In a container the
/// group's own path may not be visible; the root of the tree then stands for it.
fn cgroup_folders(groups: &str, mount: &Path, controller: &str) -> Vec<PathBuf> {
    let folders = groups.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let tree = match parts.next()? {
            "" => mount.to_owned(),
            list if list.split(',').any(|name| name == controller) => mount.join(controller),
            _ => return None,
        };
        let group = tree.join(parts.next()?.trim_start_matches('/'));
        let folders = group.ancestors().take_while(|folder| folder.starts_with(&tree));
        Some(folders.map(Path::to_owned).collect::<Vec<_>>())
    });
    folders.flatten().collect()
}

/// Bytes that this process may still allocate: the minimum of available memory, cgroup limit and address
/// space limit. `u64::MAX` if none is known.
pub fn usable_memory() -> u64 {
    let [available, total] = memory(["MemAvailable", "MemTotal"]);
    let available = available.unwrap_or(u64::MAX);
    let group = memory_limit(total).unwrap_or(u64::MAX);
    let space = fs::read_to_string("/proc/self/limits").ok().and_then(|text| address_space(&text));
    // The address space limit counts reserved memory, used or not.
    let taken = || fs::read_to_string("/proc/self/status").ok().and_then(|text| meminfo(&text, "VmSize"));
    let space = space.map_or(u64::MAX, |limit| limit.saturating_sub(taken().unwrap_or(0)));
    available.min(group).min(space)
}

fn address_space(limits: &str) -> Option<u64> {
    limits
        .lines()
        .find_map(|line| line.strip_prefix("Max address space"))?
        .split_whitespace()
        .next()?
        .parse()
        .ok()
}

/// Bytes of one core's L2 cache.
pub fn second_level_cache() -> Option<u64> {
    size_of_cache(&caches().into_iter().find(|c| c.starts_with("L2"))?)
}

/// Size in bytes of each of the first core's caches.
pub fn cache_sizes() -> Vec<u64> {
    caches().iter().filter_map(|cache| size_of_cache(cache)).collect()
}

fn size_of_cache(cache: &str) -> Option<u64> {
    let size = cache.rsplit(' ').next()?;
    let (number, unit) = match size.strip_suffix('M') {
        Some(number) => (number, 1024),
        None => (size.strip_suffix('K')?, 1),
    };
    Some(number.parse::<u64>().ok()? * unit * 1024)
}

pub fn kernel() -> Option<String> {
    fs::read_to_string("/proc/sys/kernel/osrelease").ok().map(|text| text.trim().to_owned())
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

    #[test]
    fn the_model_is_read_from_cpuinfo() {
        let text = "processor\t: 0\nmodel\t\t: 207\nmodel name\t: INTEL(R) XEON(R)\nflags : a:b\n";
        assert_eq!(model_in(text).as_deref(), Some("INTEL(R) XEON(R)"));
        assert_eq!(model_in("processor\t: 0\n"), None);
    }

    #[test]
    fn memory_is_read_from_meminfo() {
        let text = "MemTotal:        8000 kB\nMemFree:  1 kB\nMemAvailable:    4000 kB\n";
        assert_eq!(meminfo(text, "MemTotal"), Some(8_192_000));
        assert_eq!(meminfo(text, "MemAvailable"), Some(4_096_000));
        assert_eq!(meminfo(text, "Mem"), None);
    }

    #[test]
    fn the_least_limit_above_counts() {
        let mount = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = mount.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("a/memory.max", "3000\n");
        write("a/b/memory.max", "max\n");
        assert_eq!(limit_in("0::/a/b\n", mount.path()), Some(3000));
        write("memory/c/memory.limit_in_bytes", "2000\n");
        assert_eq!(limit_in("5:cpu,memory:/c\n0::/\n", mount.path()), Some(2000));
        assert_eq!(limit_in("3:cpuset:/\n", mount.path()), None);
    }
}
