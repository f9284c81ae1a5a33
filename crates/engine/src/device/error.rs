//! What a device could not do, and what the user can do about it.

use std::time::Duration;

use crate::{collective::CollectiveError, op::Slice};

#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    #[error("`{device}` has no room for {}", crate::units::bytes(*bytes))]
    OutOfMemory { device: String, bytes: u64 },
    /// The device was given memory that it cannot use, which is a bug of this program.
    #[error("`{device}` was handed {what}")]
    Operand { device: String, what: String },
    /// The device only fetches rows from its own memory.
    #[error("rows that stay in a file cannot be fetched by this device: they must be brought to it")]
    RowsInFile,
    /// Rows that a step fetches from a file could not be read.
    #[error("cannot read the next rows: {source}")]
    Rows {
        /// Steps of the block that were complete before.
        done: usize,
        source: std::io::Error,
    },
    /// A thread of the device could not be started.
    #[error("`{device}` cannot start a thread: {source}")]
    Thread { device: String, source: std::io::Error },
    /// A schedule of tasks that would race, which is a bug of this program. It is found before anything runs.
    #[error("a schedule of the CPU is not free of conflicts: {conflict}")]
    Schedule { conflict: String },
    /// A collective operation of the run's devices failed.
    #[error("`{device}`, step {}: {source}", crate::units::count(*step))]
    Collective { device: String, step: u64, source: CollectiveError },
    /// It is there, and cannot be used.
    #[error("the rates of `{device}` are not kept: {why}")]
    Rates { device: String, why: String },
    #[error("`{device}` cannot be used: {why}")]
    Unusable { device: String, why: String },
    #[error("`{device}` failed while {doing}: {name} ({text}); {way_out}")]
    Cuda {
        device: String,
        doing: String,
        /// As `CUDA_ERROR_OUT_OF_MEMORY`.
        name: String,
        /// As `out of memory`.
        text: String,
        /// What a user can do about it.
        way_out: &'static str,
    },
    /// The connection to the other devices is broken.
    #[error("`{device}`, {doing}: {why}")]
    Broken { device: String, doing: String, why: String },
    /// The devices' parameters should be equal but are not.
    #[error("after step {}, `{device}` no longer holds the parameters of `{first}`", crate::units::count(*step))]
    Replicas { device: String, first: String, step: u64 },
    #[error("`{device}` did not answer within {}, at {doing}", crate::units::seconds(waited.as_secs_f64()))]
    Stalled {
        device: String,
        /// What it was doing, such as `steps 3 to 9`.
        doing: String,
        waited: Duration,
    },
    /// A GPU does not complete its queued work.
    #[error(
        "`{device}` hangs while {doing}: it has not ended within {}{}; look at `dmesg` and `nvidia-smi -q`; where it is \
         only slow, `RUNNER_GPU_WAIT_S` sets for how many seconds it is waited for at least",
        crate::units::seconds(waited.as_secs_f64()),
        given(*step)
    )]
    Hangs {
        device: String,
        /// The last step that was queued, from 1; 0 if there was none.
        step: u64,
        /// What was being done, such as `running steps 3 to 9`.
        doing: String,
        waited: Duration,
    },
    /// The thread of a device panicked, which is a bug of this program.
    #[error("`{device}` panicked at {doing}: {reason}")]
    Panicked {
        device: String,
        /// What it was doing, such as `steps 3 to 9`.
        doing: String,
        reason: String,
    },
    /// The device of another process failed; its message names it.
    #[error("{0}")]
    Remote(String),
    #[error("the thread of `{device}` ended unexpectedly")]
    Ended { device: String },
    /// A worker thread of the device ended before its work was complete.
    #[error("a thread of `{device}` ended unexpectedly at step {}", crate::units::count(*step))]
    Lost { device: String, step: u64 },
}

/// The last step that was queued, in words.
fn given(step: u64) -> String {
    match step {
        0 => String::new(),
        step => format!(", and the last step that it was given is {}", crate::units::count(step)),
    }
}

impl DeviceError {
    /// It is there, and cannot be used.
    pub fn unusable(device: &str, why: impl Into<String>) -> Self {
        Self::Unusable { device: device.to_owned(), why: why.into() }
    }

    /// The error for a slice that the device has not loaded, which is a bug of this program.
    pub fn no_place(device: &str, slice: Slice) -> Self {
        let why = format!("buffer {} has no place in its memory", slice.buffer.0);
        Self::unusable(device, why)
    }
}
