//! The monitor over `libnvidia-ml.so.1`, which comes with the driver and is opened at first use.

use nvml_wrapper::{
    Device, Nvml,
    enum_wrappers::device::{Clock, ComputeMode, TemperatureSensor},
    enums::device::UsedGpuMemory,
    error::NvmlError,
};

use super::{Driver, Gpu, GpuLink, GpuProcess, GpuSample, Throttle, links};

/// The opened library; usable from any thread.
#[derive(Debug)]
pub struct Monitor {
    nvml: Nvml,
}

impl Monitor {
    /// # Errors
    /// One sentence on why NVML is not available.
    pub fn open() -> Result<Self, String> {
        let nvml = Nvml::init().map_err(|error| match error {
            NvmlError::LibloadingError(_) => {
                "libnvidia-ml.so.1, which comes with the NVIDIA driver, is not there".to_owned()
            }
            NvmlError::DriverNotLoaded => "the NVIDIA driver is installed but not loaded".to_owned(),
            NvmlError::NoPermission => "the NVIDIA driver may not be asked by this user".to_owned(),
            other => format!("libnvidia-ml.so.1 says: {other}"),
        })?;
        Ok(Self { nvml })
    }

    pub fn driver(&self) -> Driver {
        let cuda = self.nvml.sys_cuda_driver_version().ok();
        Driver {
            version: self.nvml.sys_driver_version().ok(),
            cuda: cuda.map(|v| format!("{}.{}", v / 1000, v % 1000 / 10)),
        }
    }

    /// All GPUs in the order of `nvidia-smi`; MIG instances follow their GPU.
    pub fn gpus(&self) -> Vec<Gpu> {
        let mut all = Vec::new();
        for index in 0..self.nvml.device_count().unwrap_or(0) {
            let Ok(device) = self.nvml.device_by_index(index) else { continue };
            let whole = gpu(index, &device);
            let parts = if whole.mig == Some(true) { device.mig_device_count().unwrap_or(0) } else { 0 };
            all.push(whole);
            let parts = (0..parts).filter_map(|part| device.mig_device_by_index(part).ok());
            // NVML does not report that an instance is a MIG instance.
            all.extend(parts.map(|part| Gpu { mig: Some(true), ..gpu(index, &part) }));
        }
        all.retain(|gpu| !gpu.uuid.is_empty());
        all
    }

    /// `None` if no GPU has this UUID.
    pub fn sample(&self, uuid: &str) -> Option<GpuSample> {
        let device = self.nvml.device_by_uuid(uuid).ok()?;
        let utilization = device.utilization_rates().ok();
        let memory = device.memory_info().ok();
        let from_milli = |value: u32| f64::from(value) / 1000.0;
        // MIG instances do not report throttling; their GPU does.
        let whole = if uuid.starts_with("MIG-") { device.mig_parent_device().ok() } else { None };
        let reasons = whole.as_ref().unwrap_or(&device).current_throttle_reasons();
        Some(GpuSample {
            utilization_percent: utilization.as_ref().map(|u| u.gpu),
            memory_utilization_percent: utilization.as_ref().map(|u| u.memory),
            memory_used_bytes: memory.as_ref().map(|m| m.used),
            memory_total_bytes: memory.as_ref().map(|m| m.total),
            temperature_c: device.temperature(TemperatureSensor::Gpu).ok(),
            fan_percent: device.fan_speed(0).ok(),
            power_w: device.power_usage().ok().map(from_milli),
            power_limit_w: device.enforced_power_limit().ok().map(from_milli),
            energy_j: device.total_energy_consumption().ok().map(|mj| mj as f64 / 1000.0),
            sm_clock_mhz: device.clock_info(Clock::SM).ok(),
            memory_clock_mhz: device.clock_info(Clock::Memory).ok(),
            performance_state: device.performance_state().ok().map(|state| state.as_c()).filter(|p| *p < 16),
            throttle: reasons.ok().map(|reasons| Throttle(reasons.bits())),
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
        let whole = self.nvml.device_by_uuid(uuid).ok().filter(|_| !uuid.starts_with("MIG-"));
        let Some(device) = whole else { return Vec::new() };
        let all = [("C", device.running_compute_processes()), ("G", device.running_graphics_processes())];
        let all = all.into_iter().flat_map(|(kind, some)| some.into_iter().flatten().map(move |p| (kind, p)));
        let process = all.map(|(kind, process)| GpuProcess {
            pid: process.pid,
            kind,
            name: self.nvml.sys_process_name(process.pid, 256).ok(),
            memory_used_bytes: match process.used_gpu_memory {
                UsedGpuMemory::Used(bytes) => Some(bytes),
                UsedGpuMemory::Unavailable => None,
            },
        });
        process.collect()
    }

    /// Every pair of GPUs (not MIG instances).
    pub fn links(&self) -> Vec<GpuLink> {
        let count = self.nvml.device_count().unwrap_or(0);
        let devices: Vec<_> =
            (0..count).filter_map(|i| Some((i, self.nvml.device_by_index(i).ok()?))).collect();
        let mut found = Vec::new();
        for (i, (a, first)) in devices.iter().enumerate() {
            for (b, second) in devices.iter().skip(i + 1) {
                found.push(links::between((*a, first), (*b, second), &self.nvml));
            }
        }
        found
    }
}

fn gpu(index: u32, device: &Device<'_>) -> Gpu {
    let capability = device.cuda_compute_capability().ok();
    let generation = device.current_pcie_link_gen().ok();
    Gpu {
        index,
        uuid: device.uuid().unwrap_or_default(),
        name: device.name().ok(),
        bus_id: device.pci_info().ok().map(|pci| pci.bus_id),
        persistence: device.is_in_persistent_mode().ok(),
        compute_mode: device.compute_mode().ok().map(|mode| match mode {
            ComputeMode::Default => "Default",
            ComputeMode::ExclusiveThread | ComputeMode::ExclusiveProcess => "Exclusive",
            ComputeMode::Prohibited => "Prohibited",
        }),
        mig: device.mig_mode().ok().map(|mode| mode.current == 1),
        pcie: generation.zip(device.current_pcie_link_width().ok()),
        pcie_most: device.max_pcie_link_gen().ok().zip(device.max_pcie_link_width().ok()),
        ecc: device.is_ecc_enabled().ok().map(|mode| mode.currently_enabled),
        power_limit_default_w: device.power_management_limit_default().ok().map(|mw| f64::from(mw) / 1000.0),
        clocks_most_mhz: [Clock::SM, Clock::Memory].map(|clock| device.max_clock_info(clock).ok()),
        capability: capability.map(|c| (c.major, c.minor)),
    }
}
