//! Processor facts, besides the model name, that affect timings, as Linux reports them.

use std::{fs, path::Path, sync::LazyLock};

/// Instruction sets of x86-64 and AArch64 that affect compiled code or libraries.
const FLAGS: &str = "sse4_2 avx f16c fma avx2 avx512f avx512dq avx512bw avx512vl avx512_vnni avx512_bf16 avx512_fp16 \
                     amx_tile amx_bf16 asimd asimddp bf16 i8mm sve sve2";

/// The processor's vector instruction sets, as the kernel names them.
pub fn flags() -> Vec<String> {
    super::model::cpuinfo_head().map(flags_in).unwrap_or_default()
}

fn flags_in(cpuinfo: &str) -> Vec<String> {
    let line = cpuinfo
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| matches!(key.trim(), "flags" | "Features"));
    let there: Vec<&str> = line.map(|(_, flags)| flags.split_whitespace().collect()).unwrap_or_default();
    FLAGS.split_whitespace().filter(|flag| there.contains(flag)).map(str::to_owned).collect()
}

/// The first processor's frequency governor: `performance`, `powersave`, `schedutil`. Unknown in most virtual
/// machines.
pub fn governor() -> Option<String> {
    line(Path::new("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"))
}

/// State of simultaneous multithreading: `on`, `off`, `notsupported`, ...
pub fn simultaneous_threads() -> Option<String> {
    line(Path::new("/sys/devices/system/cpu/smt/control"))
}

pub fn numa_nodes() -> Option<usize> {
    let entries = fs::read_dir("/sys/devices/system/node").ok()?;
    let is_node = |name: &str| name.strip_prefix("node").is_some_and(|n| n.parse::<u32>().is_ok());
    let nodes = entries.flatten().filter(|e| is_node(&e.file_name().to_string_lossy())).count();
    (nodes > 0).then_some(nodes)
}

/// The cgroup's CPU quota in cores as of the start of the process, if there is one.
pub fn quota_cores() -> Option<f64> {
    static QUOTA: LazyLock<Option<f64>> = LazyLock::new(|| {
        let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
        quota_in(&groups, Path::new("/sys/fs/cgroup"))
    });
    *QUOTA
}

/// The lowest quota among the cgroup and its ancestors.
fn quota_in(groups: &str, mount: &Path) -> Option<f64> {
    let folders = super::cgroup::folders(groups, mount, "cpu");
    folders.iter().filter_map(|folder| quota_of(folder)).min_by(f64::total_cmp)
}

fn quota_of(folder: &Path) -> Option<f64> {
    let number = |text: &str| text.trim().parse::<f64>().ok().filter(|n| *n > 0.0);
    if let Some(text) = line(&folder.join("cpu.max")) {
        let (quota, period) = text.split_once(' ')?;
        return Some(number(quota)? / number(period)?);
    }
    let quota = number(&line(&folder.join("cpu.cfs_quota_us"))?)?;
    Some(quota / number(&line(&folder.join("cpu.cfs_period_us"))?)?)
}

fn line(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_flags_that_matter_are_kept_and_in_one_order() {
        let text =
            "processor : 0\nflags\t: fpu avx2 sse4_2 amx_bf16 lm avx512f\nprocessor : 1\nflags : fpu\n";
        assert_eq!(flags_in(text), ["sse4_2", "avx2", "avx512f", "amx_bf16"]);
        assert_eq!(flags_in("Features : fp asimd sve2\n"), ["asimd", "sve2"]);
        assert_eq!(flags_in(""), Vec::<String>::new());
    }

    #[test]
    fn the_least_quota_above_counts() {
        let mount = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = mount.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("a/cpu.max", "150000 100000\n");
        write("a/b/cpu.max", "max 100000\n");
        assert_eq!(quota_in("0::/a/b\n", mount.path()), Some(1.5));
        write("cpu/c/cpu.cfs_quota_us", "50000\n");
        write("cpu/c/cpu.cfs_period_us", "100000\n");
        write("cpu/cpu.cfs_quota_us", "-1\n");
        write("cpu/cpu.cfs_period_us", "100000\n");
        assert_eq!(quota_in("4:cpu,cpuacct:/c\n", mount.path()), Some(0.5));
        assert_eq!(quota_in("3:cpuset:/\n0::/x\n", mount.path()), None);
    }
}
