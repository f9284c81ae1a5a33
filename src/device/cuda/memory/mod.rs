//! Memory of the device and of the host, and what is copied between them.

pub mod allocation;
pub mod feed;
pub mod mailbox;
pub mod staging;
