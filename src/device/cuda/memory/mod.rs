//! Memory of the device and of the host, and what is copied between them.

pub mod allocation;
pub mod device_log;
pub mod input_buffer;
pub mod staging;
