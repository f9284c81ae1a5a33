//! What a trial will move between host and devices, and read from files, to the byte, by kind and purpose: what the ledger
//! will have counted when the run has come to its planned end.
//!
//! To a device whose memory is the host's nothing moves. A run that ends early moves less. What is read ahead of steps that
//! would wait for a disk comes on top: whether they would, only the run knows. A GPU's counters, 128 bytes for
//! each block of steps, come on top: how many blocks there are depends on the time that steps take. So do copies of the best
//! weights on the device: how often a validation is better, only the run knows.

use super::{devices::DeviceId, run_length::RunLength, trial::Trial};
use crate::{
    program::{Hyper, Op},
    spec::Policy,
};

/// Bytes of one kind and purpose, over all devices, by the words of `transfers.csv`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Movement {
    /// `h2d`, `d2h`, `all_reduce` or `read`.
    pub kind: &'static str,
    /// `dataset`, `batch`, `parameters`, `log`, `validation`, `best` or `gradients`.
    pub purpose: &'static str,
    pub bytes: u64,
}

const NUMBER: u64 = 4;

const SUM: u64 = 8;

/// Bytes before the sums of an epoch on a GPU: whether a loss was not finite, apart from the sums.
pub(crate) const FLAG: u64 = 64;

/// All that moves, in the order of `transfers.csv`; what would be zero is left out.
pub fn transfers(trial: &Trial) -> Vec<Movement> {
    let length = RunLength::new(&trial.spec, trial.facts, trial.programs.train.batch);
    let mut all = to_devices(trial, &length);
    let row_bytes = trial.facts.file_row_bytes.unwrap_or(0);
    let validation_rows = length.validations * trial.facts.validation_rows as u64;
    all.push(movement("read", "batch", length.train_rows().saturating_mul(row_bytes)));
    all.push(movement("read", "validation", validation_rows.saturating_mul(row_bytes)));
    all.retain(|movement| movement.bytes > 0);
    all
}

fn movement(kind: &'static str, purpose: &'static str, bytes: u64) -> Movement {
    Movement { kind, purpose, bytes }
}

fn to_devices(trial: &Trial, length: &RunLength) -> Vec<Movement> {
    let devices = trial.devices.used.iter().filter(|place| **place != DeviceId::Cpu).count() as u64;
    if devices == 0 {
        return Vec::new();
    }
    // The first device keeps the log, and the final parameters are read from it.
    let each = |bytes: u64| devices.saturating_mul(bytes);
    let row_bytes = (trial.facts.features + trial.facts.targets) as u64 * NUMBER;
    let (epochs, passes) = (length.epochs(), length.validations);
    let steps = trial.steps;
    let (train_rows, validation_rows) = (trial.facts.train_rows as u64, trial.facts.validation_rows as u64);
    let validates = if trial.programs.validate.is_some() { 1 } else { 0 };
    let resident = if trial.chunks.is_some() { 0 } else { 1 };
    let streamed = 1 - resident;
    // Each device has all resident rows, but only its share of streamed ones.
    let dataset = resident * each((train_rows + validates * validation_rows) * row_bytes);
    let order = if trial.spec.data.shuffle { resident * each(epochs * train_rows * NUMBER) } else { 0 };
    let batches = order + streamed * length.train_rows() * row_bytes;
    let validation_batches = streamed * passes * validation_rows * row_bytes;
    let layout = &trial.programs.layout;
    let values = layout.buffers[layout.values.0].len as u64 * NUMBER;
    let rates = steps * size_of::<Hyper>() as u64;
    // Several devices compare what they hold once per epoch.
    let digests = if devices > 1 { each(epochs * SUM) } else { 0 };
    let width = layout.log_width as u64;
    let log = match trial.spec.logging.policy {
        Policy::Immediate | Policy::Buffered => steps * width * NUMBER,
        Policy::PerEpoch if trial.engine.is_gpu() => epochs * (FLAG + width * SUM),
        Policy::PerEpoch => epochs * width * SUM,
        Policy::Off => 0,
    };
    let summed = trial.programs.train.instructions.iter().map(|i| match &i.op {
        Op::AllReduce(op) => op.of.len as u64 * NUMBER,
        _ => 0,
    });
    vec![
        movement("h2d", "batch", batches),
        movement("h2d", "dataset", dataset),
        movement("h2d", "parameters", each(values + rates)),
        movement("h2d", "validation", validation_batches),
        movement("d2h", "parameters", values + digests),
        movement("d2h", "log", log),
        // Loss and hits.
        movement("d2h", "validation", each(passes * 2 * SUM)),
        movement("d2h", "best", validates * passes.min(1) * values),
        movement("all_reduce", "gradients", each(steps * summed.sum::<u64>())),
    ]
}
