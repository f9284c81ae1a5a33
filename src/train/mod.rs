//! The trainer: epochs of blocks of steps, validation, stopping. It emits events and formats nothing.
//!
//! A block of steps runs on the device without the host. It ends at the next flush of the log, the end of an epoch,
//! `max_steps`, and after some 50 ms, so that a signal or `max_time` is noticed.

mod ahead;
mod blocks;
mod feed;
mod files;
mod init;
mod logbook;
mod outcome;
mod schedule;
mod session;
mod stop;
mod telling;
mod validation;
mod world;

pub use crate::program::exported;
pub use init::initial_values;
pub use session::{Closed, Job, Trained, grain, train};
pub use stop::StopFlag;
pub use world::World;
