//! The lab: experiments on the machine itself. Products of matrices and what their log costs, copies between memories,
//! a tour of tensors. It emits events and formats nothing.
//!
//! May use [`crate::device`], [`crate::plan`], [`crate::event`] and [`crate::train`]'s stop flag.

mod device;
mod matmul;
mod show;
mod tensor_file;
mod tensors;
mod transfer;

use std::{collections::BTreeSet, path::Path, time::Duration};

pub use device::Device;
pub use tensor_file::TensorFile;

use crate::{
    device::DeviceError,
    event::{Event, Level, Outcome, Status},
    plan::{
        DeviceId,
        lab::{LabTrial, Work},
    },
    spec::Lab,
    train::{Closed, StopFlag},
};

/// Takes events as they come, from several threads.
pub type Emit<'a> = &'a (dyn Fn(Event) -> Result<(), Closed> + Sync);

/// Why an experiment ended early.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A file of tensors cannot be read or written.
    #[error("{0}")]
    File(String),
    /// A step did not do what it declares.
    #[error("{0}")]
    Step(String),
    /// A device of the plan that was not opened; a defect of this program.
    #[error("`{0}` was not opened")]
    NoDevice(DeviceId),
    /// A thread of the lab ended unexpectedly.
    #[error("the thread that drives `{device}` ended unexpectedly")]
    Lost { device: String },
    #[error("the run can no longer be recorded")]
    Closed,
    #[error("interrupted")]
    Interrupted,
}

impl From<Closed> for LabError {
    fn from(_: Closed) -> Self {
        Self::Closed
    }
}

/// The devices of a trial.
///
/// # Errors
/// Where one cannot be used.
pub fn devices(trial: &LabTrial) -> Result<Vec<Device>, DeviceError> {
    let held = trial.memory.iter().map(|(device, _)| device);
    let all: BTreeSet<DeviceId> = trial.devices.used.iter().chain(held).copied().collect();
    all.into_iter().map(|device| Device::open(device, trial.threads)).collect()
}

/// Runs a trial. Files that steps save go to `folder`.
pub fn run(
    trial: &LabTrial,
    devices: &mut [Device],
    folder: &Path,
    stop: &StopFlag,
    emit: Emit<'_>,
) -> Outcome {
    let mut sums = Sums::default();
    let result = trial
        .notes
        .iter()
        .try_for_each(|note| Ok(emit(Event::Notice(Level::Warning, note.clone()))?))
        .and_then(|()| match &trial.work {
            Work::Matmul { shapes, kept } => {
                matmul::run(trial, shapes, *kept, devices, stop, emit, &mut sums)
            }
            Work::Transfer(copies) => transfer::run(trial, copies, devices, stop, emit, &mut sums),
            Work::Tensors(steps) => tensors::run(trial, steps, devices, folder, stop, emit, &mut sums),
        });
    let (status, reason) = match result {
        Ok(()) => (Status::Finished, None),
        Err(LabError::Interrupted) => {
            let (thing, planned) = planned(trial);
            let reason = format!("{} after {} of {planned} {thing}", stop.name(), sums.done);
            (Status::Interrupted, Some(reason))
        }
        Err(e) => (Status::Failed, Some(e.to_string())),
    };
    let work_s = sums.work.as_secs_f64();
    Outcome {
        status,
        reason,
        steps: sums.done,
        loop_s: work_s,
        train_s: work_s,
        logging_s: sums.logging.as_secs_f64(),
        peak_device_bytes: devices.iter().map(Device::peak_bytes).max().unwrap_or(0),
        transfers: device::transfers(devices),
        ..Outcome::default()
    }
}

/// What a trial does, and how often if nothing ends it early.
pub fn planned(trial: &LabTrial) -> (&'static str, u64) {
    match (&trial.spec.lab, &trial.work) {
        (Lab::Matmul(matmul), Work::Matmul { shapes, .. }) => {
            let kinds = (shapes.len() * trial.devices.used.len()) as u64;
            ("products", matmul.count.saturating_mul(kinds))
        }
        (Lab::Transfer(transfer), Work::Transfer(copies)) => {
            let kinds = (transfer.sizes.len() * copies.len()) as u64;
            ("copies", transfer.count.saturating_mul(kinds))
        }
        (_, Work::Tensors(plan)) => ("steps", plan.steps.len() as u64),
        _ => ("steps", 0),
    }
}

/// What is counted on the way.
#[derive(Default)]
struct Sums {
    /// Products, copies or steps.
    done: u64,
    work: Duration,
    /// Time of the log within.
    logging: Duration,
}

fn go_on(stop: &StopFlag) -> Result<(), LabError> {
    if stop.signal().is_some() { Err(LabError::Interrupted) } else { Ok(()) }
}
