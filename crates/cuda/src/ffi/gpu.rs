//! The GPUs that CUDA shows to this process. `CUDA_VISIBLE_DEVICES` selects and orders them, so their
//! ordinals may differ from those of `nvidia-smi`.

use std::{ffi::c_char, fmt::Write, sync::OnceLock};

use cudarc::driver::sys::{CUdevice_attribute as Attribute, CUuuid};

use super::driver::{Driver, Status};
use crate::device::DeviceError;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    pub ordinal: u32,
    /// Such as `NVIDIA H100 80GB HBM3`.
    pub name: String,
    /// Without the prefix `GPU-` or `MIG-`.
    pub uuid: String,
    /// Compute capability, as (9, 0).
    pub capability: (i32, i32),
    pub memory_bytes: u64,
    pub multiprocessors: u32,
    /// The most shared memory that a block can request (opt-in).
    pub shared_bytes: u32,
    /// Whether a kernel may use a barrier over its whole grid.
    pub cooperative: bool,
    /// Highest clock rate of the multiprocessors.
    pub clock_khz: u32,
    /// Bytes of its L2 cache.
    pub cache_bytes: u32,
}

impl Gpu {
    /// The number of its machine code: 90 for sm_90.
    pub fn architecture(&self) -> i32 {
        self.capability.0 * 10 + self.capability.1
    }
}

/// All GPUs, in CUDA's order. They are asked once: some answers, such as the clock, take the driver a millisecond.
pub fn gpus() -> Result<Vec<Gpu>, String> {
    static KNOWN: OnceLock<Vec<Gpu>> = OnceLock::new();
    match KNOWN.get() {
        Some(known) => Ok(known.clone()),
        None => ask().map(|gpus| KNOWN.get_or_init(|| gpus).clone()),
    }
}

fn ask() -> Result<Vec<Gpu>, String> {
    let driver = Driver::get()?;
    let failed =
        |status: Status| format!("the NVIDIA driver cannot list its GPUs: {} ({})", status.name, status.text);
    let mut count = 0;
    // SAFETY: the pointer is to a live local.
    driver.check(unsafe { (driver.cuDeviceGetCount)(&raw mut count) }).map_err(failed)?;
    if count == 0 {
        return Err("the NVIDIA driver is there, but no GPU that it can use".into());
    }
    (0..count).map(|ordinal| facts(driver, ordinal).map_err(failed)).collect()
}

/// The GPU with this ordinal.
pub fn gpu(ordinal: u32) -> Result<Gpu, DeviceError> {
    let unusable = |why: String| DeviceError::unusable(&format!("gpu:{ordinal}"), why);
    let found = gpus().map_err(unusable)?.into_iter().find(|gpu| gpu.ordinal == ordinal);
    found.ok_or_else(|| unusable("it is no longer there".into()))
}

/// Where the driver was searched for, if it is missing.
pub fn driver_looked_for() -> Option<&'static str> {
    Driver::looked_for()
}

fn facts(driver: &Driver, ordinal: i32) -> Result<Gpu, Status> {
    let mut device = 0;
    // SAFETY: the pointer is to a live local, here and below, and lengths are those of the buffers.
    driver.check(unsafe { (driver.cuDeviceGet)(&raw mut device, ordinal) })?;
    let mut name = [0 as c_char; 256];
    // SAFETY: see above.
    driver.check(unsafe { (driver.cuDeviceGetName)(name.as_mut_ptr(), name.len() as i32, device) })?;
    let name: Vec<u8> = name.iter().map(|c| *c as u8).take_while(|c| *c != 0).collect();
    let mut uuid = CUuuid { bytes: [0; 16] };
    // SAFETY: see above.
    driver.check(unsafe { (driver.cuDeviceGetUuid_v2)(&raw mut uuid, device) })?;
    let mut memory_bytes = 0;
    // SAFETY: see above.
    driver.check(unsafe { (driver.cuDeviceTotalMem_v2)(&raw mut memory_bytes, device) })?;
    let attribute = |attribute: Attribute| {
        let mut value = 0;
        // SAFETY: see above.
        driver.check(unsafe { (driver.cuDeviceGetAttribute)(&raw mut value, attribute as i32, device) })?;
        Ok(value)
    };
    let counted = |a: Attribute| attribute(a).map(|value| u32::try_from(value).unwrap_or(0));
    Ok(Gpu {
        ordinal: u32::try_from(ordinal).unwrap_or(0),
        name: String::from_utf8_lossy(&name).into_owned(),
        uuid: uuid_text(&uuid.bytes.map(|c| c as u8)),
        capability: (
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ),
        memory_bytes: memory_bytes as u64,
        multiprocessors: counted(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        shared_bytes: counted(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
        cooperative: attribute(Attribute::CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH)? != 0,
        clock_khz: counted(Attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE)?,
        cache_bytes: counted(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?,
    })
}

fn uuid_text(bytes: &[u8; 16]) -> String {
    let mut text = String::new();
    for (i, byte) in bytes.iter().enumerate() {
        if matches!(i, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        let _ = write!(text, "{byte:02x}");
    }
    text
}
