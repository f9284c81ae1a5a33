//! The lab: experiments on the machine itself. Matrix products and what their log costs, copies between
//! memories, and a tour of tensors. It emits events and formats nothing.
//!
//! May use [`crate::device`], [`crate::plan`], [`crate::event`] and [`crate::train`]'s stop flag.

mod counter;
mod device;
mod laps;
mod matmul;
mod show;
mod tensor_file;
mod tensors;
mod transfer;

use std::{path::Path, time::Duration};

use counter::Counter;
pub use device::Device;
pub use tensor_file::{Tensor, TensorFile};

use crate::{
    device::DeviceError,
    event::{Closed, Event, Level, Outcome, Status},
    plan::{
        DeviceId,
        lab::{LabTrial, Work},
    },
    spec::Lab,
    train::StopFlag,
    units,
};

/// Receives events as they occur, from several threads.
pub type Emit<'a> = &'a (dyn Fn(Event) -> Result<(), Closed> + Sync);

/// Why an experiment ended early.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A file of tensors cannot be read or written.
    #[error("{0}")]
    File(String),
    /// The result of a step is not what the step declares.
    #[error("{0}")]
    Step(String),
    /// A device of the plan was not opened; this is a bug in this program.
    #[error("`{0}` was not opened")]
    NoDevice(DeviceId),
    /// A thread of the lab ended unexpectedly.
    #[error("the thread that drives `{device}` ended unexpectedly")]
    Lost { device: String },
    #[error(transparent)]
    Closed(#[from] Closed),
    #[error("interrupted")]
    Interrupted,
}

/// Opens the devices of a trial.
pub fn devices(trial: &LabTrial) -> Result<Vec<Device>, DeviceError> {
    let mut all = trial.devices.used.clone();
    all.extend(
        trial.memory.iter().map(|(device, _)| device).filter(|device| !trial.devices.used.contains(device)),
    );
    all.into_iter().map(|device| Device::open(device, trial.threads)).collect()
}

/// What an experiment runs on, and its progress.
struct Bench<'a> {
    trial: &'a LabTrial,
    /// First those that the spec names, in its order, then others.
    devices: &'a mut [Device],
    stop: &'a StopFlag,
    emit: Emit<'a>,
    /// Number of products, copies or steps done so far.
    done: u64,
    /// The same while they are measured.
    counter: Counter<'a>,
    work: Duration,
    /// Time spent on logging so far.
    logging: Duration,
}

impl Bench<'_> {
    /// Fails after a signal.
    fn go_on(&self) -> Result<(), LabError> {
        go_on(self.stop)
    }

    fn clear(&mut self) {
        self.devices.iter_mut().for_each(Device::clear);
    }
}

/// Runs a trial. Files saved by steps go to `folder`.
pub fn run(
    trial: &LabTrial,
    devices: &mut [Device],
    folder: &Path,
    stop: &StopFlag,
    emit: Emit<'_>,
) -> Outcome {
    let (done, zero) = (0, Duration::ZERO);
    let counter = Counter::new(emit);
    let mut bench = Bench { trial, devices, stop, emit, done, counter, work: zero, logging: zero };
    let mut notes = trial.notes.iter().map(|note| Event::Notice(Level::Warning, note.clone()));
    let result = notes.try_for_each(emit).map_err(LabError::from).and_then(|()| {
        match (&trial.spec.lab, &trial.work) {
            (Lab::Matmul(spec), Work::Matmul { shapes, kept }) => bench.multiply(spec, shapes, *kept),
            (Lab::Transfer(spec), Work::Transfer(copies)) => bench.copy(spec, copies),
            (Lab::Tensors(spec), Work::Tensors(plan)) => bench.tour(spec, plan, folder),
            _ => Ok(()),
        }
    });
    let (status, reason) = match result {
        Ok(()) => (Status::Finished, None),
        Err(LabError::Interrupted) => {
            let (thing, planned) = planned(trial);
            let reason = format!(
                "{} after {} of {} {thing}",
                stop.name(),
                units::count(bench.done),
                units::count(planned)
            );
            (Status::Interrupted, Some(reason))
        }
        Err(e) => (Status::Failed, Some(e.to_string())),
    };
    let work_s = bench.work.as_secs_f64();
    Outcome {
        status,
        reason,
        steps: bench.done,
        loop_s: work_s,
        train_s: work_s,
        logging_s: bench.logging.as_secs_f64(),
        peak_device_bytes: bench.devices.iter().map(Device::peak_bytes).max().unwrap_or(0),
        transfers: device::transfers(bench.devices),
        ..Outcome::default()
    }
}

/// The unit of a trial's work, and the number of units if nothing ends it early.
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

fn go_on(stop: &StopFlag) -> Result<(), LabError> {
    if stop.signal().is_some() { Err(LabError::Interrupted) } else { Ok(()) }
}
