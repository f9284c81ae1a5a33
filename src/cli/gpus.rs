//! The GPUs in `runner devices`: a table in the terms of `nvidia-smi`, processes, links, libraries, and what
//! is missing. The text and the JSON show the same facts.

use std::fmt::Write;

use serde::Serialize;

use crate::{
    host::nvml::{Gpu, GpuProcess, Monitor},
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

/// The GPUs that CUDA lets this process use, and the lines on its libraries.
struct Cuda {
    usable: Result<Vec<Usable>, String>,
    /// Where the driver was searched, if it was not found.
    looked_for: Option<&'static str>,
    libraries: Vec<Library>,
}

fn cuda() -> Cuda {
    use crate::cuda;

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
    let libraries = libraries.into_iter().map(|row| Library { name: row.name, state: row.state }).collect();
    Cuda { usable, looked_for: cuda::driver_looked_for(), libraries }
}

/// A library, with its path or the reason why it was not found.
#[derive(Serialize)]
struct Library {
    name: &'static str,
    state: String,
}

/// All facts about the GPUs. Unknown ones are `null` in the JSON.
#[derive(Default, Serialize)]
pub struct GpuList {
    /// Number of GPUs that specs can name.
    count: usize,
    is_virtual: bool,
    /// Why no GPU can be used, if so.
    none: Option<String>,
    gpus: Vec<Row>,
    links: Vec<Link>,
    libraries: Vec<Library>,
    driver: Option<String>,
    #[serde(skip)]
    looked_for: Option<&'static str>,
    /// Why load, temperature and power are unknown, if so.
    unmonitored: Option<String>,
}

/// A GPU, or a MIG instance.
#[derive(Default, Serialize)]
struct Row {
    /// Its name in specs, if CUDA lets this process use it.
    device: Option<String>,
    /// As in `nvidia-smi`.
    index: Option<u32>,
    is_mig_instance: bool,
    uuid: Option<String>,
    name: Option<String>,
    bus_id: Option<String>,
    temperature_c: Option<u32>,
    performance_state: Option<u32>,
    power_w: Option<f64>,
    power_limit_w: Option<f64>,
    memory_used_bytes: Option<u64>,
    memory_total_bytes: Option<u64>,
    utilization_percent: Option<u32>,
    compute_capability: Option<String>,
    processes: Vec<GpuProcess>,
}

#[derive(Serialize)]
struct Link {
    between: [String; 2],
    kind: String,
    peer_access: Option<bool>,
}

impl GpuList {
    /// The GPUs of this machine.
    pub fn find() -> Self {
        let Cuda { usable, looked_for, libraries } = cuda();
        let monitor = Monitor::open();
        let found = monitor.as_ref().map(Monitor::gpus).unwrap_or_default();
        let monitored = monitor.as_ref().ok().into_iter();
        let mut gpus: Vec<Row> =
            monitored.flat_map(|monitor| found.iter().map(|gpu| Row::new(gpu, monitor, &usable))).collect();
        if gpus.is_empty() {
            gpus = usable.iter().flatten().map(Row::from_cuda).collect();
        }
        let name = |index: u32| {
            let gpu = found.iter().find(|gpu| gpu.index == index);
            gpu.and_then(|gpu| device(gpu, &usable)).unwrap_or_else(|| format!("GPU {index}"))
        };
        let links = monitor.as_ref().map(Monitor::links).unwrap_or_default().into_iter().map(|link| Link {
            between: [link.between.0, link.between.1].map(name),
            kind: link.kind,
            peer_access: link.peer_access,
        });
        Self {
            count: usable.as_ref().map_or(0, Vec::len),
            is_virtual: false,
            links: links.collect(),
            none: usable.err(),
            gpus,
            libraries,
            driver: monitor.as_ref().ok().and_then(|monitor| monitor.driver().version),
            looked_for,
            unmonitored: monitor.err(),
        }
    }

    /// `count` virtual GPUs.
    pub fn of_virtual(count: u32, memory_available: u64) -> Self {
        let row = |i: u32| Row {
            device: Some(format!("gpu:{i}")),
            name: Some(format!("virtual:{i}")),
            memory_total_bytes: Some(memory_available),
            ..Row::default()
        };
        let none = (count == 0).then(|| "`--virtual-gpus 0` hides every one".to_owned());
        let gpus = (0..count).map(row).collect();
        Self { count: count as usize, is_virtual: true, none, gpus, ..Self::default() }
    }

    /// The section `gpu` and the sections that follow it.
    pub fn text(&self, measured: bool) -> String {
        let looked_for = self.looked_for.map(|places| format!("  {places}\n")).unwrap_or_default();
        let mut text = match &self.none {
            Some(why) if self.gpus.is_empty() => return format!("gpu\n  none: {why}\n{looked_for}"),
            Some(why) => format!("gpu\n  none can be used: {why}\n{looked_for}"),
            None if self.is_virtual => return self.virtual_text(measured),
            None => format!("gpu: {}\n", units::counted(self.count as u64, "GPU")),
        };
        let rows: Vec<_> = self.gpus.iter().map(Row::cells).collect();
        text.push_str(&text_table::text(&HEADER, &rows, |_| false));
        match &self.unmonitored {
            None => text.push_str(&(self.processes() + &self.links())),
            Some(why) => {
                let _ = writeln!(text, "\n  load, temperature and power are unknown: {why}"); // cannot fail
            }
        }
        if !self.libraries.is_empty() {
            text.push_str("\nlibraries\n");
        }
        for Library { name, state } in &self.libraries {
            let release = self.driver.as_ref().filter(|_| *name == "driver").map(|v| format!("{v}, CUDA "));
            let _ = writeln!(text, "  {name:<12} {}{state}", release.unwrap_or_default());
        }
        text
    }

    fn virtual_text(&self, measured: bool) -> String {
        let row = |row: &Row| {
            let memory = units::bytes(row.memory_total_bytes.unwrap_or(0));
            let memory = format!("separate, from the host's {memory} of usable memory");
            vec![row.name.clone().unwrap_or_default(), row.device.clone().unwrap_or_default(), memory]
        };
        let table = text_table::text(
            &["device", "in a spec", "memory"],
            &self.gpus.iter().map(row).collect::<Vec<_>>(),
            |_| false,
        );
        let times = if measured {
            "not measured: they share the CPU, so their times do not predict real GPUs"
        } else {
            "they share the CPU: their times do not predict real GPUs"
        };
        format!(
            "gpu: {}\n{table}\n  virtual: the CPU simulates exactly these GPUs; real ones are hidden\n  {times}\n",
            units::counted(self.count as u64, "virtual GPU")
        )
    }

    fn processes(&self) -> String {
        let rows = self.gpus.iter().flat_map(|gpu| {
            let [device, number, ..] = gpu.names();
            gpu.processes.iter().map(move |process| {
                let GpuProcess { pid, kind, name, memory_used_bytes } = process;
                vec![
                    device.clone(),
                    number.clone(),
                    pid.to_string(),
                    (*kind).to_owned(),
                    name.clone().unwrap_or_else(unknown),
                    memory_used_bytes.map_or_else(unknown, mib),
                ]
            })
        });
        let rows: Vec<_> = rows.collect();
        if rows.is_empty() {
            return "\nprocesses\n  none\n".to_owned();
        }
        let header = ["device", "GPU", "PID", "type", "name", "memory"];
        format!("\nprocesses\n{}", text_table::text(&header, &rows, |_| false))
    }

    fn links(&self) -> String {
        if self.links.is_empty() {
            return String::new();
        }
        let mut text = "\nlinks\n".to_owned();
        for Link { between: [a, b], kind, peer_access } in &self.links {
            let access = match peer_access {
                Some(true) => "each reads the other's memory",
                Some(false) => "no access to each other's memory",
                None => "access to each other's memory unknown",
            };
            let _ = writeln!(text, "  {:<14} {kind:<5} {access}", format!("{a} - {b}"));
        }
        text
    }
}

const HEADER: [&str; 10] =
    ["device", "GPU", "name", "bus id", "temp", "perf", "power", "memory", "GPU-util", "compute"];

fn unknown() -> String {
    "N/A".to_owned()
}

fn mib(bytes: u64) -> String {
    format!("{}MiB", bytes >> 20)
}

/// A GPU's name in specs; `None` if CUDA does not let this process use it.
fn device(gpu: &Gpu, usable: &Result<Vec<Usable>, String>) -> Option<String> {
    let uuid = gpu.uuid.trim_start_matches("GPU-").trim_start_matches("MIG-");
    usable.iter().flatten().find(|usable| usable.uuid == uuid).map(|usable| usable.device.clone())
}

impl Row {
    /// A row with the facts from NVML.
    fn new(gpu: &Gpu, monitor: &Monitor, usable: &Result<Vec<Usable>, String>) -> Self {
        let sample = monitor.sample(&gpu.uuid).unwrap_or_default();
        Self {
            device: device(gpu, usable),
            index: Some(gpu.index),
            is_mig_instance: gpu.uuid.starts_with("MIG-"),
            uuid: Some(gpu.uuid.clone()),
            name: gpu.name.clone(),
            bus_id: gpu.bus_id.clone(),
            temperature_c: sample.temperature_c,
            performance_state: sample.performance_state,
            power_w: sample.power_w,
            power_limit_w: sample.power_limit_w,
            memory_used_bytes: sample.memory_used_bytes,
            memory_total_bytes: sample.memory_total_bytes,
            utilization_percent: sample.utilization_percent,
            compute_capability: gpu.capability.map(|(major, minor)| format!("{major}.{minor}")),
            processes: monitor.processes(&gpu.uuid),
        }
    }

    /// Without NVML: only what CUDA reports.
    fn from_cuda(gpu: &Usable) -> Self {
        Self {
            device: Some(gpu.device.clone()),
            uuid: Some(gpu.uuid.clone()),
            name: Some(gpu.name.clone()),
            memory_total_bytes: Some(gpu.memory_bytes),
            compute_capability: Some(format!("{}.{}", gpu.capability.0, gpu.capability.1)),
            ..Self::default()
        }
    }

    /// Its name in specs and its index.
    fn names(&self) -> [String; 2] {
        let mig = if self.is_mig_instance { " MIG" } else { "" };
        let number = self.index.map_or_else(unknown, |index| format!("{index}{mig}"));
        [self.device.clone().unwrap_or_else(|| "-".to_owned()), number]
    }

    fn cells(&self) -> Vec<String> {
        let text = |text: &Option<String>| text.clone().unwrap_or_else(unknown);
        let power = self.power_w.zip(self.power_limit_w);
        let [device, number] = self.names();
        vec![
            device,
            number,
            text(&self.name),
            text(&self.bus_id),
            self.temperature_c.map_or_else(unknown, |t| format!("{t}C")),
            self.performance_state.map_or_else(unknown, |p| format!("P{p}")),
            power.map_or_else(unknown, |(now, most)| format!("{now:.0}W / {most:.0}W")),
            match (self.memory_used_bytes, self.memory_total_bytes) {
                (Some(used), Some(total)) => format!("{} / {}", mib(used), mib(total)),
                (_, total) => total.map_or_else(unknown, mib),
            },
            self.utilization_percent.map_or_else(unknown, |u| format!("{u}%")),
            text(&self.compute_capability),
        ]
    }
}
