//! The monitor over `libnvidia-ml.so.1`, which comes with the driver and is opened at first use.

use std::{
    collections::BTreeMap,
    sync::{Mutex, OnceLock, PoisonError},
    time::{Duration, Instant},
};

use super::{
    Driver, Gpu, GpuLink, GpuProcess, GpuSample, Throttle,
    device::{Device, Nvml},
    links,
};

/// `NVML_CLOCK_SM` and `NVML_CLOCK_MEM`.
const CLOCKS: [u32; 2] = [1, 2];

/// The opened library; usable from any thread.
#[derive(Debug)]
pub struct Monitor {
    nvml: Nvml,
    gpus: OnceLock<Vec<Gpu>>,
    samples: Recent<Option<GpuSample>>,
    beside: Recent<Vec<GpuProcess>>,
}

/// Answers by UUID, and when they were given.
type Recent<T> = Mutex<BTreeMap<String, (Instant, T)>>;

/// The answer, or an earlier one that is no older than `age`.
fn recent<T: Clone>(known: &Recent<T>, uuid: &str, age: Duration, ask: impl FnOnce() -> T) -> T {
    // Locked while it is asked: trials that begin together ask once.
    let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, answer)) = known.get(uuid).filter(|(at, _)| at.elapsed() < age) {
        return answer.clone();
    }
    let answer = ask();
    known.insert(uuid.to_owned(), (Instant::now(), answer.clone()));
    answer
}

impl Monitor {
    /// # Errors
    /// One sentence on why NVML is not available.
    pub fn open() -> Result<Self, String> {
        let (gpus, samples, beside) = Default::default();
        Ok(Self { nvml: Nvml::open()?, gpus, samples, beside })
    }

    /// The monitor of this process, opened at its first use and kept: that takes longer than a short trial. `None` if NVML is
    /// not available.
    pub fn of_process() -> Option<&'static Self> {
        static OPENED: OnceLock<Option<Monitor>> = OnceLock::new();
        OPENED.get_or_init(|| Self::open().ok()).as_ref()
    }

    /// As [`Self::gpus`] was when it was first asked.
    pub fn known_gpus(&self) -> &[Gpu] {
        self.gpus.get_or_init(|| self.gpus())
    }

    /// As [`Self::sample`], no older than `age`.
    pub fn recent_sample(&self, uuid: &str, age: Duration) -> Option<GpuSample> {
        recent(&self.samples, uuid, age, || self.sample(uuid))
    }

    /// As [`Self::computing_beside`], no older than `age`.
    pub fn recently_beside(&self, uuid: &str, age: Duration) -> Vec<GpuProcess> {
        recent(&self.beside, uuid, age, || self.computing_beside(uuid))
    }

    pub fn driver(&self) -> Driver {
        let cuda = self.nvml.cuda_version();
        Driver {
            version: self.nvml.driver_version(),
            cuda: cuda.map(|v| format!("{}.{}", v / 1000, v % 1000 / 10)),
        }
    }

    /// All GPUs in the order of `nvidia-smi`; MIG instances follow their GPU.
    pub fn gpus(&self) -> Vec<Gpu> {
        let mut all = Vec::new();
        for (index, device) in self.nvml.devices() {
            let whole = gpu(index, device);
            let parts = if whole.mig == Some(true) { device.mig_count().unwrap_or(0) } else { 0 };
            all.push(whole);
            let parts = (0..parts).filter_map(|part| Some(device.with_handle(device.mig_instance(part)?)));
            // NVML does not report that an instance is a MIG instance.
            all.extend(parts.map(|part| Gpu { mig: Some(true), ..gpu(index, part) }));
        }
        all.retain(|gpu| !gpu.uuid.is_empty());
        all
    }

    /// `None` if no GPU has this UUID.
    pub fn sample(&self, uuid: &str) -> Option<GpuSample> {
        let device = self.nvml.device_by_uuid(uuid)?;
        let utilization = device.utilization();
        let memory = device.memory();
        let from_milli = |value: u32| f64::from(value) / 1000.0;
        // MIG instances do not report throttling; their GPU does.
        let whole = if uuid.starts_with("MIG-") { device.mig_parent() } else { None };
        let reasons = whole.map_or(device, |whole| device.with_handle(whole)).throttle_reasons();
        let [sm, memory_clock] = CLOCKS.map(|clock| device.clock(clock));
        Some(GpuSample {
            utilization_percent: utilization.as_ref().map(|u| u.gpu),
            memory_utilization_percent: utilization.as_ref().map(|u| u.memory),
            memory_used_bytes: memory.as_ref().map(|m| m.used),
            memory_total_bytes: memory.as_ref().map(|m| m.total),
            temperature_c: device.temperature(0),
            fan_percent: device.fan_speed(0),
            power_w: device.power_usage().map(from_milli),
            power_limit_w: device.enforced_power_limit().map(from_milli),
            energy_j: device.total_energy().map(|mj| mj as f64 / 1000.0),
            sm_clock_mhz: sm,
            memory_clock_mhz: memory_clock,
            performance_state: device.performance_state().filter(|p| *p < 16),
            throttle: reasons.map(Throttle),
        })
    }

    /// The processes on a whole GPU, except this one; those of a MIG instance are listed with its GPU.
    pub fn processes(&self, uuid: &str) -> Vec<GpuProcess> {
        let all = self.all_processes(uuid);
        all.into_iter().filter(|process| process.pid != std::process::id()).collect()
    }

    /// The processes that compute on a whole GPU beside this one, which uses it.
    pub fn computing_beside(&self, uuid: &str) -> Vec<GpuProcess> {
        let mut all = self.all_processes(uuid);
        all.retain(|process| process.kind == "C");
        // In a container this process has a number of the host, to which no name belongs.
        let own = all.iter().position(|process| process.pid == std::process::id());
        if let Some(own) = own.or_else(|| all.iter().position(|process| process.name.is_none())) {
            all.remove(own);
        }
        all
    }

    fn all_processes(&self, uuid: &str) -> Vec<GpuProcess> {
        let whole = self.nvml.device_by_uuid(uuid).filter(|_| !uuid.starts_with("MIG-"));
        let Some(device) = whole else { return Vec::new() };
        let all = [("C", device.compute_processes()), ("G", device.graphics_processes())];
        let all = all.into_iter().flat_map(|(kind, some)| some.into_iter().map(move |p| (kind, p)));
        let process = all.map(|(kind, process)| GpuProcess {
            pid: process.pid,
            kind,
            name: self.nvml.process_name(process.pid),
            memory_used_bytes: process.memory_bytes(),
        });
        process.collect()
    }

    /// Every pair of GPUs (not MIG instances).
    pub fn links(&self) -> Vec<GpuLink> {
        let devices: Vec<_> = self.nvml.devices().collect();
        let mut found = Vec::new();
        for (i, (a, first)) in devices.iter().enumerate() {
            for (b, second) in devices.iter().skip(i + 1) {
                found.push(links::between((*a, *first), (*b, *second)));
            }
        }
        found
    }
}

fn gpu(index: u32, device: Device<'_>) -> Gpu {
    Gpu {
        index,
        uuid: device.uuid().unwrap_or_default(),
        name: device.name(),
        bus_id: device.pci_info().and_then(|pci| pci.bus_id()),
        persistence: device.persistence_mode().map(|mode| mode == 1),
        // `nvmlComputeMode_t`
        compute_mode: device.compute_mode().and_then(|mode| match mode {
            0 => Some("Default"),
            1 | 3 => Some("Exclusive"),
            2 => Some("Prohibited"),
            _ => None,
        }),
        mig: device.is_mig(),
        pcie: device.pcie_generation().zip(device.pcie_width()),
        pcie_most: device.max_pcie_generation().zip(device.max_pcie_width()),
        ecc: device.has_ecc(),
        power_limit_default_w: device.power_limit_default().map(|mw| f64::from(mw) / 1000.0),
        clocks_most_mhz: CLOCKS.map(|clock| device.max_clock(clock)),
        capability: device.capability(),
    }
}
