//! Memory of the device and of the host, and the copies between them.

mod allocation;
mod device_log;
mod digest;
mod host_memory;
mod input_buffer;
mod inputs;
mod resident_rows;
mod staging;

pub use allocation::{DeviceMemory, Pinned};
pub use device_log::DeviceLog;
pub use digest::Digest;
pub use host_memory::pinned_numbers;
pub use inputs::Inputs;
pub use resident_rows::ResidentRows;
pub use staging::Staging;
