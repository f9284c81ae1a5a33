//! Memory of the machine, and what this process has of it.

use std::{fs, path::Path, sync::LazyLock};

use super::{cgroup, macos, read_proc};

/// Bytes of the machine's memory, as far as the system tells.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memory {
    pub total: Option<u64>,
    pub available: Option<u64>,
}

/// The machine's memory as it is now.
pub fn memory() -> Memory {
    let text = read_proc("/proc/meminfo").unwrap_or_default();
    Memory {
        total: meminfo(&text, "MemTotal").or_else(|| macos::number(c"hw.memsize")),
        available: meminfo(&text, "MemAvailable"),
    }
}

/// Bytes of memory that this process occupies now.
pub fn resident_bytes() -> Option<u64> {
    meminfo(&read_proc("/proc/self/status")?, "VmRSS")
}

/// The most bytes of memory that this process has occupied.
pub fn peak_resident_bytes() -> Option<u64> {
    let status = read_proc("/proc/self/status");
    status.and_then(|text| meminfo(&text, "VmHWM")).or_else(macos::peak_resident_bytes)
}

fn meminfo(text: &str, what: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(what)?.strip_prefix(':'))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
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
    let folders = cgroup::folders(groups, mount, "memory").into_iter();
    let files =
        folders.flat_map(|folder| ["memory.max", "memory.limit_in_bytes"].map(|file| folder.join(file)));
    files.filter_map(|file| fs::read_to_string(file).ok()?.trim().parse().ok()).min()
}

/// Bytes that this process may still allocate: the minimum of available memory (all memory, where the system does not tell how
/// much is available), cgroup limit and address space limit. `u64::MAX` if none is known.
pub fn usable_memory() -> u64 {
    let Memory { total, available } = memory();
    let available = available.or(total).unwrap_or(u64::MAX);
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

#[cfg(test)]
mod tests {
    use super::*;

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
