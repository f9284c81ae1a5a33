//! The functions of `nvml.h` that are called here, and their structs.
//!
//! A function is looked up when it is called. What it cannot report is `None`: an older driver lacks some
//! functions, and a GPU some properties.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_ulonglong, c_void};

use libloading::{Library, Symbol};

const SUCCESS: c_int = 0;
const NO_PERMISSION: c_int = 4;
const INSUFFICIENT_SIZE: c_int = 7;
const DRIVER_NOT_LOADED: c_int = 9;

/// Memory that a process uses, if it is not known.
const NOT_AVAILABLE: u64 = u64::MAX;

/// Calls a function whose last argument points to the value that it writes; the others follow with their C types.
macro_rules! read {
    ($nvml:expr, $function:ident($($argument:expr => $type:ty),*) -> $value:ty) => {{
        type Function = unsafe extern "C" fn($($type,)* *mut $value) -> c_int;
        let mut value = <$value>::default();
        // SAFETY: the type is the header's; what the arguments point to outlives the call.
        let status = unsafe {
            let function = $nvml.function::<Function>(stringify!($function));
            function.map(|function| function($($argument,)* &raw mut value))
        };
        (status == Some(SUCCESS)).then_some(value)
    }};
}

/// The library, opened and initialized; usable from any thread.
#[derive(Debug)]
pub struct Nvml {
    library: Library,
}

impl Drop for Nvml {
    fn drop(&mut self) {
        // SAFETY: the type is the header's; nothing outlives the library.
        unsafe {
            self.function::<unsafe extern "C" fn() -> c_int>("nvmlShutdown").map(|shutdown| shutdown())
        };
    }
}

impl Nvml {
    /// # Errors
    /// One sentence on why NVML is not available.
    pub fn open() -> Result<Self, String> {
        // SAFETY: the library only initializes itself when it is loaded.
        let library = unsafe { Library::new("libnvidia-ml.so.1") };
        let library = library
            .map_err(|_| "libnvidia-ml.so.1, which comes with the NVIDIA driver, is not there".to_owned())?;
        let nvml = Self { library };
        // SAFETY: the type is the header's.
        let status = unsafe {
            nvml.function::<unsafe extern "C" fn() -> c_int>("nvmlInit_v2").map(|initialize| initialize())
        };
        match status {
            Some(SUCCESS) => Ok(nvml),
            Some(DRIVER_NOT_LOADED) => Err("the NVIDIA driver is installed but not loaded".to_owned()),
            Some(NO_PERMISSION) => Err("the NVIDIA driver may not be asked by this user".to_owned()),
            Some(status) => Err(format!("libnvidia-ml.so.1 fails with status {status} of nvml.h")),
            None => Err("libnvidia-ml.so.1 has no function nvmlInit_v2".to_owned()),
        }
    }

    /// # Safety
    /// `F` must be the function's type in `nvml.h`.
    unsafe fn function<F>(&self, name: &str) -> Option<Symbol<'_, F>> {
        // SAFETY: see the contract.
        unsafe { self.library.get(name) }.ok()
    }

    pub fn driver_version(&self) -> Option<String> {
        type Function = unsafe extern "C" fn(*mut c_char, c_uint) -> c_int;
        // SAFETY: the type is the header's.
        let function = unsafe { self.function::<Function>("nvmlSystemGetDriverVersion") }?;
        // SAFETY: as many bytes can be written.
        text(|to, length| unsafe { function(to, length) })
    }

    /// As 12080 for 12.8.
    pub fn cuda_version(&self) -> Option<c_int> {
        read!(self, nvmlSystemGetCudaDriverVersion_v2() -> c_int)
    }

    pub fn process_name(&self, pid: u32) -> Option<String> {
        type Function = unsafe extern "C" fn(c_uint, *mut c_char, c_uint) -> c_int;
        // SAFETY: the type is the header's.
        let function = unsafe { self.function::<Function>("nvmlSystemGetProcessName") }?;
        // SAFETY: as many bytes can be written.
        text(|to, length| unsafe { function(pid, to, length) })
    }

    /// All GPUs, with their indices in `nvidia-smi`.
    pub fn devices(&self) -> impl Iterator<Item = (u32, Device<'_>)> {
        let count = read!(self, nvmlDeviceGetCount_v2() -> c_uint).unwrap_or(0);
        (0..count).filter_map(|index| {
            let handle = read!(self, nvmlDeviceGetHandleByIndex_v2(index => c_uint) -> Handle)?;
            Some((index, Device { nvml: self, handle }))
        })
    }

    pub fn device_by_uuid(&self, uuid: &str) -> Option<Device<'_>> {
        let uuid = CString::new(uuid).ok()?;
        let handle = read!(self, nvmlDeviceGetHandleByUUID(uuid.as_ptr() => *const c_char) -> Handle)?;
        Some(Device { nvml: self, handle })
    }
}

/// The text that a call writes into a buffer of some length.
fn text(call: impl FnOnce(*mut c_char, c_uint) -> c_int) -> Option<String> {
    let mut buffer = [0_u8; 256];
    let status = call(buffer.as_mut_ptr().cast(), buffer.len() as c_uint);
    let text = CStr::from_bytes_until_nul(&buffer).ok()?.to_str().ok()?;
    (status == SUCCESS).then(|| text.to_owned())
}

#[derive(Clone, Copy, Debug, Default)]
#[repr(transparent)]
pub struct Handle(*mut c_void);

/// A GPU or a MIG instance.
#[derive(Clone, Copy, Debug)]
pub struct Device<'n> {
    nvml: &'n Nvml,
    pub handle: Handle,
}

/// Declares methods of [`Device`], each with the function that it calls.
macro_rules! getters {
    ($($getter:ident($($argument:ident: $type:ty),*) -> $value:ty = $function:ident;)*) => {
        impl Device<'_> {
            $(
                pub fn $getter(self, $($argument: $type),*) -> Option<$value> {
                    read!(self.nvml, $function(self.handle => Handle $(, $argument => $type)*) -> $value)
                }
            )*
        }
    };
}

getters! {
    clock(kind: c_uint) -> c_uint = nvmlDeviceGetClockInfo;
    compute_mode() -> c_uint = nvmlDeviceGetComputeMode;
    enforced_power_limit() -> c_uint = nvmlDeviceGetEnforcedPowerLimit;
    fan_speed(fan: c_uint) -> c_uint = nvmlDeviceGetFanSpeed_v2;
    max_clock(kind: c_uint) -> c_uint = nvmlDeviceGetMaxClockInfo;
    max_pcie_generation() -> c_uint = nvmlDeviceGetMaxPcieLinkGeneration;
    max_pcie_width() -> c_uint = nvmlDeviceGetMaxPcieLinkWidth;
    memory() -> Memory = nvmlDeviceGetMemoryInfo_v2;
    mig_count() -> c_uint = nvmlDeviceGetMaxMigDeviceCount;
    mig_instance(index: c_uint) -> Handle = nvmlDeviceGetMigDeviceHandleByIndex;
    mig_parent() -> Handle = nvmlDeviceGetDeviceHandleFromMigDeviceHandle;
    nvlink_end(link: c_uint) -> PciInfo = nvmlDeviceGetNvLinkRemotePciInfo_v2;
    nvlink_state(link: c_uint) -> c_uint = nvmlDeviceGetNvLinkState;
    p2p_status(other: Handle, capability: c_uint) -> c_uint = nvmlDeviceGetP2PStatus;
    pci_info() -> PciInfo = nvmlDeviceGetPciInfo_v3;
    pcie_generation() -> c_uint = nvmlDeviceGetCurrPcieLinkGeneration;
    pcie_width() -> c_uint = nvmlDeviceGetCurrPcieLinkWidth;
    performance_state() -> c_uint = nvmlDeviceGetPerformanceState;
    persistence_mode() -> c_uint = nvmlDeviceGetPersistenceMode;
    power_limit_default() -> c_uint = nvmlDeviceGetPowerManagementDefaultLimit;
    power_usage() -> c_uint = nvmlDeviceGetPowerUsage;
    temperature(sensor: c_uint) -> c_uint = nvmlDeviceGetTemperature;
    throttle_reasons() -> c_ulonglong = nvmlDeviceGetCurrentClocksThrottleReasons;
    topology(other: Handle) -> c_uint = nvmlDeviceGetTopologyCommonAncestor;
    total_energy() -> c_ulonglong = nvmlDeviceGetTotalEnergyConsumption;
    utilization() -> Utilization = nvmlDeviceGetUtilizationRates;
}

impl<'n> Device<'n> {
    /// Another device, by a handle that this library gave.
    pub fn with_handle(self, handle: Handle) -> Self {
        Self { handle, ..self }
    }

    pub fn uuid(self) -> Option<String> {
        self.text("nvmlDeviceGetUUID")
    }

    pub fn name(self) -> Option<String> {
        self.text("nvmlDeviceGetName")
    }

    fn text(self, function: &str) -> Option<String> {
        type Function = unsafe extern "C" fn(Handle, *mut c_char, c_uint) -> c_int;
        // SAFETY: both functions have this type.
        let function = unsafe { self.nvml.function::<Function>(function) }?;
        // SAFETY: as many bytes can be written.
        text(|to, length| unsafe { function(self.handle, to, length) })
    }

    /// Compute capability: major, minor.
    pub fn capability(self) -> Option<(c_int, c_int)> {
        self.pair("nvmlDeviceGetCudaComputeCapability")
    }

    pub fn is_mig(self) -> Option<bool> {
        self.pair("nvmlDeviceGetMigMode").map(|(now, _)| now == 1)
    }

    pub fn has_ecc(self) -> Option<bool> {
        self.pair("nvmlDeviceGetEccMode").map(|(now, _)| now == 1)
    }

    fn pair(self, function: &str) -> Option<(c_int, c_int)> {
        type Function = unsafe extern "C" fn(Handle, *mut c_int, *mut c_int) -> c_int;
        let (mut first, mut second) = (0, 0);
        // SAFETY: all three functions have this type; the numbers outlive the call.
        let status = unsafe {
            let function = self.nvml.function::<Function>(function)?;
            function(self.handle, &raw mut first, &raw mut second)
        };
        (status == SUCCESS).then_some((first, second))
    }

    pub fn compute_processes(self) -> Vec<Process> {
        self.processes("nvmlDeviceGetComputeRunningProcesses_v3").unwrap_or_default()
    }

    pub fn graphics_processes(self) -> Vec<Process> {
        self.processes("nvmlDeviceGetGraphicsRunningProcesses_v3").unwrap_or_default()
    }

    fn processes(self, function: &str) -> Option<Vec<Process>> {
        type Function = unsafe extern "C" fn(Handle, *mut c_uint, *mut Process) -> c_int;
        // SAFETY: both functions have this type.
        let function = unsafe { self.nvml.function::<Function>(function) }?;
        let mut found = Vec::new();
        for _ in 0..8 {
            let mut count = found.len() as c_uint;
            // SAFETY: as many processes can be written.
            match unsafe { function(self.handle, &raw mut count, found.as_mut_ptr()) } {
                SUCCESS => {
                    found.truncate(count as usize);
                    return Some(found);
                }
                // More may start between two calls.
                INSUFFICIENT_SIZE => found.resize(count as usize + 5, Process::default()),
                _ => return None,
            }
        }
        None
    }
}

/// Percent of the last sample period.
#[derive(Default)]
#[repr(C)]
pub struct Utilization {
    pub gpu: c_uint,
    pub memory: c_uint,
}

#[repr(C)]
pub struct Memory {
    version: c_uint,
    pub total: c_ulonglong,
    reserved: c_ulonglong,
    free: c_ulonglong,
    pub used: c_ulonglong,
}

impl Default for Memory {
    /// With the version that the library expects: the struct's size, and a 2 in the upper byte.
    fn default() -> Self {
        let version = size_of::<Self>() as c_uint | 2 << 24;
        Self { version, total: 0, reserved: 0, free: 0, used: 0 }
    }
}

#[derive(Default)]
#[repr(C)]
pub struct PciInfo {
    legacy_bus_id: [c_char; 16],
    domain: c_uint,
    bus: c_uint,
    device: c_uint,
    ids: [c_uint; 2],
    bus_id: [u8; 32],
}

impl PciInfo {
    pub fn is_same_slot(&self, other: &Self) -> bool {
        (self.domain, self.bus, self.device) == (other.domain, other.bus, other.device)
    }

    /// As `00000000:01:00.0`.
    pub fn bus_id(&self) -> Option<String> {
        CStr::from_bytes_until_nul(&self.bus_id).ok()?.to_str().ok().map(str::to_owned)
    }
}

#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct Process {
    pub pid: c_uint,
    memory: c_ulonglong,
    instances: [c_uint; 2],
}

impl Process {
    pub fn memory_bytes(&self) -> Option<u64> {
        Some(self.memory).filter(|bytes| *bytes != NOT_AVAILABLE)
    }
}
