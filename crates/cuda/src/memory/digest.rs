//! A digest of values on the device, used to compare the parameters of devices.

use super::allocation::{DeviceMemory, Pinned};
use crate::{
    device::DeviceError,
    engines::GpuContext,
    launch::{Shape, arguments},
};

pub struct Digest {
    device: DeviceMemory,
    host: Pinned,
}

impl Digest {
    pub fn new(gpu: &GpuContext) -> Result<Self, DeviceError> {
        let device = DeviceMemory::new(&gpu.context, size_of::<u64>(), "a digest")?;
        Ok(Self { device, host: Pinned::new(&gpu.context, size_of::<u64>(), "digests")? })
    }

    /// Queues the digest of `len` values at `at` and its copy to the host.
    pub fn queue(&self, gpu: &GpuContext, at: u64, len: usize) -> Result<(), DeviceError> {
        let GpuContext { context, stream, .. } = gpu;
        let to = self.device.at;
        stream.fill(to, 0, self.device.bytes)?;
        let shape = Shape::new(len.div_ceil(1024) as u64, 4 * context.gpu.multiprocessors);
        // SAFETY: (const float*, u64, u64*); the values are within the arena, as the caller guarantees.
        unsafe { gpu.launch(context.ops()?.digest, shape, arguments![at, len as u64, to], "digest")? };
        stream.download(&self.host, 0, to, size_of::<u64>())
    }

    /// The queued digest; the host must have waited.
    pub fn get(&self) -> u64 {
        let mut digest = [0u64];
        self.host.read(0, &mut digest);
        digest[0]
    }
}
