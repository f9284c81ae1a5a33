//! Memory of the device and of the host, and what is copied between them.

mod allocation;
mod device_log;
mod input_buffer;
mod staging;

pub use allocation::{DeviceMemory, Pinned, Plain};
pub use device_log::DeviceLog;
pub use input_buffer::{InputBuffer, OrderBuffer};
pub use staging::Staging;
