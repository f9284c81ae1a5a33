//! Memory of the device and of the host, and what is copied between them.

mod allocation;
mod feed;
mod mailbox;
mod staging;

pub use allocation::{DeviceMemory, Pinned, Plain};
pub use feed::{Feed, OrderFeed};
pub use mailbox::Mailbox;
pub use staging::Staging;
