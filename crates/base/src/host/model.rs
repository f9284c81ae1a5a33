//! The processor's name and its caches.

use std::{
    fs::{self, File},
    io::Read,
    sync::LazyLock,
};

use super::macos;

/// The first core's name: `AMD EPYC 9654`, `Neoverse-V2`.
pub fn cpu_model() -> Option<String> {
    cpuinfo_head().and_then(model_in).or_else(|| macos::text(c"machdep.cpu.brand_string"))
}

/// The first core's section of `/proc/cpuinfo`: with a hundred cores, reading the whole file takes
/// milliseconds. It is read once, like everything here that does not change while a process runs: a sweep
/// asks for it with every trial.
pub(super) fn cpuinfo_head() -> Option<&'static str> {
    static HEAD: LazyLock<Option<String>> = LazyLock::new(|| {
        let mut head = vec![0; 4096];
        let length = File::open("/proc/cpuinfo").ok()?.read(&mut head).ok()?;
        Some(String::from_utf8_lossy(head.get(..length)?).into_owned())
    });
    HEAD.as_deref()
}

fn model_in(cpuinfo: &str) -> Option<String> {
    let lines = || {
        cpuinfo.lines().filter_map(|line| line.split_once(':')).map(|(key, value)| (key.trim(), value.trim()))
    };
    let names = ["model name", "Processor", "cpu model", "uarch"];
    let numbered = || {
        let number = |wanted| lines().find(|(key, _)| *key == wanted).map(|(_, value)| value);
        Some(arm_core(number("CPU implementer")?, number("CPU part")?))
    };
    lines().find(|(key, _)| names.contains(key)).map(|(_, value)| value.to_owned()).or_else(numbered)
}

/// Linux on AArch64 has numbers in the place of a name: who designed the core, and which of theirs it is. Those of servers and of
/// NVIDIA's machines have names here, spelled like lscpu's; others stay numbers.
fn arm_core(implementer: &str, part: &str) -> String {
    let name = match (implementer, part) {
        ("0x41", "0xd08") => "Cortex-A72",
        ("0x41", "0xd0b") => "Cortex-A76",
        ("0x41", "0xd42") => "Cortex-A78AE",
        ("0x41", "0xd85") => "Cortex-X925",
        ("0x41", "0xd87") => "Cortex-A725",
        ("0x41", "0xd0c") => "Neoverse-N1",
        ("0x41", "0xd49") => "Neoverse-N2",
        ("0x41", "0xd8e") => "Neoverse-N3",
        ("0x41", "0xd40") => "Neoverse-V1",
        ("0x41", "0xd4f") => "Neoverse-V2",
        ("0x41", "0xd84") => "Neoverse-V3",
        ("0xc0", "0xac3") => "Ampere-1",
        ("0xc0", "0xac4") => "Ampere-1A",
        _ => return format!("AArch64, implementer {implementer}, part {part}"),
    };
    name.to_owned()
}

/// The first core's caches from L1 on, as `L1 data 48K`; of one that several cores share on macOS, its share.
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
    let mut caches: Vec<String> = (0..).map_while(cache).collect();
    if caches.is_empty() {
        // Apple's processors have fast and slow cores: `perflevel0` are the fast ones, of which several share an L2.
        let l1 = macos::number(c"hw.perflevel0.l1dcachesize").or_else(|| macos::number(c"hw.l1dcachesize"));
        let shared = macos::number(c"hw.perflevel0.cpusperl2").map_or(1, |cores| cores.max(1));
        let l2 = macos::number(c"hw.perflevel0.l2cachesize").map(|bytes| bytes / shared);
        let l2 = l2.or_else(|| macos::number(c"hw.l2cachesize"));
        caches.extend(l1.map(|bytes| format!("L1 data {}K", bytes / 1024)));
        caches.extend(l2.map(|bytes| format!("L2 unified {}K", bytes / 1024)));
    }
    caches
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_is_read_from_cpuinfo() {
        let text = "processor\t: 0\nmodel\t\t: 207\nmodel name\t: INTEL(R) XEON(R)\nflags : a:b\n";
        assert_eq!(model_in(text).as_deref(), Some("INTEL(R) XEON(R)"));
        assert_eq!(model_in("processor\t: 0\n"), None);
    }

    #[test]
    fn cores_of_arm_have_names_or_numbers() {
        let of_part =
            |part| model_in(&format!("CPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: {part}\n"));
        assert_eq!(of_part("0xd4f").as_deref(), Some("Neoverse-V2"));
        assert_eq!(of_part("0xfff").as_deref(), Some("AArch64, implementer 0x41, part 0xfff"));
        assert_eq!(model_in("CPU implementer\t: 0x41\n"), None);
    }
}
