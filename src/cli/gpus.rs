//! The GPUs in `runner devices`: a table in `nvidia-smi`'s terms, links, libraries, and what is missing.

use std::fmt::Write;

use crate::{
    host::nvml::{Gpu, GpuSample, Monitor},
    record::text_table,
    units,
};

/// A GPU as CUDA lists it.
struct Usable {
    device: String,
    uuid: String,
    name: String,
    capability: (i32, i32),
    memory_bytes: u64,
}

/// What CUDA lets this process use, and the lines on its libraries.
struct Cuda {
    usable: Result<Vec<Usable>, String>,
    /// Where the driver was looked for, if it was not found.
    looked_for: Option<&'static str>,
    /// Name and state.
    libraries: Vec<(&'static str, String)>,
}

#[cfg(feature = "cuda")]
fn cuda() -> Cuda {
    use crate::device::cuda;

    let gpus = cuda::gpus();
    let libraries = gpus.as_ref().ok().and_then(|gpus| gpus.first()).map(cuda::libraries).unwrap_or_default();
    let usable = gpus.map(|gpus| {
        let usable = gpus.into_iter().map(|gpu| Usable {
            device: format!("gpu:{}", gpu.ordinal),
            uuid: gpu.uuid,
            name: gpu.name,
            capability: gpu.capability,
            memory_bytes: gpu.memory_bytes,
        });
        usable.collect()
    });
    let libraries = libraries.into_iter().map(|row| (row.name, row.state)).collect();
    Cuda { usable, looked_for: cuda::driver_looked_for(), libraries }
}

#[cfg(not(feature = "cuda"))]
fn cuda() -> Cuda {
    let usable = Err("this program was built without its feature `cuda`".into());
    Cuda { usable, looked_for: None, libraries: Vec::new() }
}

/// The section `gpu`.
pub fn describe() -> String {
    let cuda = cuda();
    let monitor = Monitor::open();
    let mut text = "gpu\n".to_owned();
    let listed = monitor.as_ref().map(|m| rows(m, &cuda.usable)).unwrap_or_default();
    let rows = match (&cuda.usable, listed) {
        (Err(why), listed) if listed.is_empty() => {
            let _ = writeln!(text, "  none: {why}"); // a String takes every write
            text.extend(cuda.looked_for.map(|places| format!("  {places}\n")));
            return text;
        }
        (Err(why), listed) => {
            let _ = writeln!(text, "  none can be used: {why}");
            text.extend(cuda.looked_for.map(|places| format!("  {places}\n")));
            listed
        }
        (Ok(usable), listed) if listed.is_empty() => usable.iter().map(plain_row).collect(),
        (Ok(_), listed) => listed,
    };
    text.push_str(&text_table::text(&HEADER, &rows, |_| false));
    match &monitor {
        Ok(monitor) => text.push_str(&links(monitor, &cuda.usable)),
        Err(why) => {
            let _ = writeln!(text, "\n  load, temperature and power are unknown: {why}");
        }
    }
    if !cuda.libraries.is_empty() {
        text.push_str("\nlibraries\n");
    }
    let driver = monitor.as_ref().ok().and_then(|m| m.driver().version);
    for (name, state) in &cuda.libraries {
        let release = driver.as_ref().filter(|_| *name == "driver").map(|v| format!("{v}, CUDA "));
        let _ = writeln!(text, "  {name:<12} {}{state}", release.unwrap_or_default());
    }
    text
}

/// The section for `count` virtual GPUs.
pub fn describe_virtual(count: u32, memory_available: u64, measured: bool) -> String {
    if count == 0 {
        return "gpu\n  none: `--virtual-gpus 0` hides every one\n".to_owned();
    }
    let memory = units::bytes(memory_available);
    let row = |i: u32| {
        vec![
            format!("virtual:{i}"),
            format!("gpu:{i}"),
            format!("separate, from the host's {memory} of usable memory"),
        ]
    };
    let header = ["device", "in a spec", "memory"];
    let mut text =
        format!("gpu\n{}", text_table::text(&header, &(0..count).map(row).collect::<Vec<_>>(), |_| false));
    text.push_str("\n  virtual: the CPU simulates exactly these GPUs; real ones are hidden\n");
    text.push_str(if measured {
        "  not measured: they share the CPU, so their times do not predict real GPUs\n"
    } else {
        "  they share the CPU: their times do not predict real GPUs\n"
    });
    text
}

const HEADER: [&str; 10] =
    ["device", "GPU", "name", "bus id", "temp", "perf", "power", "memory", "GPU-util", "compute"];

fn rows(monitor: &Monitor, usable: &Result<Vec<Usable>, String>) -> Vec<Vec<String>> {
    let gpus = monitor.gpus();
    gpus.iter()
        .map(|gpu| row(gpu, &monitor.sample(&gpu.uuid).unwrap_or_default(), &device(gpu, usable)))
        .collect()
}

/// A GPU's name in specs; `-` if CUDA does not let this process use it.
fn device(gpu: &Gpu, usable: &Result<Vec<Usable>, String>) -> String {
    let uuid = gpu.uuid.trim_start_matches("GPU-").trim_start_matches("MIG-");
    let own = usable.iter().flatten().find(|u| u.uuid == uuid);
    own.map_or_else(|| "-".into(), |u| u.device.clone())
}

fn row(gpu: &Gpu, sample: &GpuSample, device: &str) -> Vec<String> {
    let unknown = || "N/A".to_owned();
    let mib = |bytes: u64| format!("{}MiB", bytes >> 20);
    let memory = sample.memory_used_bytes.zip(sample.memory_total_bytes);
    let power = sample.power_w.zip(sample.power_limit_w);
    let number =
        if gpu.uuid.starts_with("MIG-") { format!("{} MIG", gpu.index) } else { gpu.index.to_string() };
    vec![
        device.to_owned(),
        number,
        gpu.name.clone().unwrap_or_else(unknown),
        gpu.bus_id.clone().unwrap_or_else(unknown),
        sample.temperature_c.map_or_else(unknown, |t| format!("{t}C")),
        sample.performance_state.map_or_else(unknown, |p| format!("P{p}")),
        power.map_or_else(unknown, |(now, most)| format!("{now:.0}W / {most:.0}W")),
        memory.map_or_else(unknown, |(used, total)| format!("{} / {}", mib(used), mib(total))),
        sample.utilization_percent.map_or_else(unknown, |u| format!("{u}%")),
        gpu.capability.map_or_else(unknown, |(major, minor)| format!("{major}.{minor}")),
    ]
}

/// A row without NVML: only what CUDA reports.
fn plain_row(gpu: &Usable) -> Vec<String> {
    let unknown = || "N/A".to_owned();
    let mut cells = vec![gpu.device.clone(), unknown(), gpu.name.clone()];
    cells.extend(std::iter::repeat_with(unknown).take(4));
    cells.push(format!("{}MiB", gpu.memory_bytes >> 20));
    cells.extend([unknown(), format!("{}.{}", gpu.capability.0, gpu.capability.1)]);
    cells
}

fn links(monitor: &Monitor, usable: &Result<Vec<Usable>, String>) -> String {
    let links = monitor.links();
    if links.is_empty() {
        return String::new();
    }
    let gpus = monitor.gpus();
    let name = |index: u32| {
        let gpu = gpus.iter().find(|gpu| gpu.index == index);
        match gpu.map(|gpu| device(gpu, usable)) {
            Some(device) if device != "-" => device,
            _ => format!("GPU {index}"),
        }
    };
    let mut text = "\nlinks\n".to_owned();
    for link in links {
        let (a, b) = link.between;
        let access = match link.peer_access {
            Some(true) => "each reads the other's memory",
            Some(false) => "no access to each other's memory",
            None => "access to each other's memory unknown",
        };
        let _ = writeln!(text, "  {:<14} {:<5} {access}", format!("{} - {}", name(a), name(b)), link.kind);
    }
    text
}
