//! Finds out which GPUs can access each other's memory, and enables that access.

use std::sync::Arc;

use crate::ffi::{Context, Driver, Gpu, Status};

/// The driver's `CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED`.
const ALREADY_ENABLED: i32 = 704;

/// For each GPU, the ordinals of the GPUs whose memory it can access.
pub fn reaches(gpus: &[Gpu]) -> Vec<Vec<u32>> {
    let Ok(driver) = Driver::get() else { return vec![Vec::new(); gpus.len()] };
    let reach = |from: &Gpu, to: &Gpu| from.ordinal != to.ordinal && can_access(driver, from, to);
    let of = |from: &Gpu| gpus.iter().filter(|to| reach(from, to)).map(|to| to.ordinal).collect();
    gpus.iter().map(of).collect()
}

/// False if the driver cannot tell.
fn can_access(driver: &Driver, from: &Gpu, to: &Gpu) -> bool {
    let device = |gpu: &Gpu| {
        let mut device = 0;
        // SAFETY: the pointer is to a live local.
        let status = unsafe { (driver.cuDeviceGet)(&raw mut device, gpu.ordinal as i32) };
        driver.check(status).ok().map(|()| device)
    };
    let (Some(from), Some(to)) = (device(from), device(to)) else { return false };
    let mut can = 0;
    // SAFETY: as above.
    let status = unsafe { (driver.cuDeviceCanAccessPeer)(&raw mut can, from, to) };
    driver.check(status).is_ok() && can != 0
}

/// Lets each of these GPUs access all memory of the others, present and future.
pub fn enable(contexts: &[Arc<Context>]) -> Result<(), String> {
    for from in contexts {
        for to in contexts.iter().filter(|to| to.gpu.ordinal != from.gpu.ordinal) {
            let refused =
                |why: String| format!("`{}` cannot access the memory of `{}`{why}", from.name, to.name);
            if !can_access(from.driver, &from.gpu, &to.gpu) {
                return Err(refused(String::new()));
            }
            from.enter().map_err(|e| e.to_string())?;
            // SAFETY: both contexts are alive. 0: there are no flags.
            let status = unsafe { (from.driver.cuCtxEnablePeerAccess)(to.handle(), 0) };
            if status != ALREADY_ENABLED {
                let named = |s: Status| refused(format!(": {} ({})", s.name, s.text));
                from.driver.check(status).map_err(named)?;
            }
        }
    }
    Ok(())
}
