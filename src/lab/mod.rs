//! The lab: experiments on the machine itself. Products of matrices and what their log costs, copies between memories,
//! a tour of tensors. It emits events and formats nothing.
//!
//! May use [`crate::tensor`], [`crate::plan`], [`crate::event`] and [`crate::train`]'s stop flag.

mod matmul;
mod tensors;
mod transfer;

use std::{path::Path, time::Duration};

use crate::{
    device::{DeviceError, Route, backend::Backend, cpu::HostBackend},
    event::{Event, Level, Outcome, Status, Transfer},
    plan::{
        DeviceId,
        lab::{LabTrial, Work},
    },
    spec::Lab,
    tensor::{Devices, TensorError},
    train::{Closed, StopFlag},
};

/// Takes events as they come, from several threads.
pub type Emit<'a> = &'a (dyn Fn(Event) -> Result<(), Closed> + Sync);

/// Why an experiment ended early.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    #[error(transparent)]
    Tensor(#[from] TensorError),
    /// A step did not do what it declares.
    #[error("{0}")]
    Step(String),
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
pub fn devices(trial: &LabTrial) -> Result<Devices, DeviceError> {
    // The host takes part in every copy, whether or not it computes.
    let mut places = vec![DeviceId::Cpu];
    let others = trial.devices.used.iter().chain(trial.memory.iter().map(|(place, _)| place));
    for place in others {
        if !places.contains(place) {
            places.push(*place);
        }
    }
    let backend = |place: DeviceId| -> Result<Box<dyn Backend>, DeviceError> {
        match place {
            DeviceId::Cpu => Ok(Box::new(HostBackend::cpu(trial.threads))),
            DeviceId::Virtual(i) => Ok(Box::new(HostBackend::virtual_gpu(i))),
            DeviceId::Gpu(ordinal) => gpu(ordinal),
        }
    };
    Ok(Devices::new(places.into_iter().map(backend).collect::<Result<_, _>>()?))
}

#[cfg(feature = "cuda")]
fn gpu(ordinal: u32) -> Result<Box<dyn Backend>, DeviceError> {
    use crate::device::cuda;

    let unusable = |why| DeviceError::Unusable { device: format!("gpu:{ordinal}"), why };
    let found = cuda::gpus().map_err(unusable)?.into_iter().find(|gpu| gpu.ordinal == ordinal);
    let gpu = found.ok_or_else(|| unusable("it is no longer there".into()))?;
    Ok(Box::new(cuda::CudaBackend::open(gpu)?))
}

#[cfg(not(feature = "cuda"))]
fn gpu(ordinal: u32) -> Result<Box<dyn Backend>, DeviceError> {
    let why = "this program was built without its feature `cuda`".into();
    Err(DeviceError::Unusable { device: format!("gpu:{ordinal}"), why })
}

/// Runs a trial. Files that steps save go to `folder`.
pub fn run(trial: &LabTrial, devices: &Devices, folder: &Path, stop: &StopFlag, emit: Emit<'_>) -> Outcome {
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
    let transfer = |(kind, purpose, route, line): (_, _, Route, _)| {
        Transfer::new(kind, purpose, route.from, route.to, line)
    };
    let work_s = sums.work.as_secs_f64();
    Outcome {
        status,
        reason,
        steps: sums.done,
        loop_s: work_s,
        train_s: work_s,
        logging_s: sums.logging.as_secs_f64(),
        peak_device_bytes: devices.iter().map(|device| device.peak_bytes()).max().unwrap_or(0),
        transfers: devices.traffic().lines().into_iter().map(transfer).collect(),
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
        (_, Work::Tensors(steps)) => ("steps", steps.len() as u64),
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
