//! Predicts to the byte what a trial will copy between host and devices and read from files, by kind and
//! purpose. It is what the ledger will have counted if the run ends as planned.
//!
//! Nothing is copied to a device that uses the host's memory. A run that ends early copies less. Some counts
//! only the run knows; they come on top: reads ahead of steps that would wait for a disk; copies of the best
//! weights on the device, one for each validation that is better than all before; and blocks of steps beyond
//! the fewest, whose number depends on the steps' time, with 128 bytes of counters for each block on a GPU. Checkpoints by
//! minutes come on top, too; of those by epochs some may be left out while a slow disk writes others.

use super::{
    all_reduce::{AllReduceMethod, sum_of},
    devices::DeviceId,
    run_length::RunLength,
    trial::Trial,
};
use crate::{
    op::{Record, RunRecord},
    program::{Hyper, Op, Program, Role},
    spec::{Every, Policy},
};

/// Bytes of one kind and purpose over all devices, in the terms of `transfers.csv`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Movement {
    /// `h2d`, `d2h`, `d2d`, `all_reduce` or `read`.
    pub kind: &'static str,
    /// `dataset`, `batch`, `parameters`, `log`, `validation`, `best`, `checkpoint` or `gradients`.
    pub purpose: &'static str,
    pub bytes: u64,
    /// Bytes that come on top for each further one of these, whose number only the run knows.
    pub for_each_more: Option<(u64, &'static str)>,
}

const NUMBER: u64 = 4;

const SUM: u64 = 8;

/// Bytes before an epoch's sums on a GPU: the flag for a loss that is not finite, padded to keep it apart
/// from the sums.
pub const FLAG: u64 = 64;

/// Elements or bytes of each copy for a purpose: with the padding that is copied along, and without it. `[1,
/// 1]` if there is no padding.
pub fn padding(trial: &Trial, purpose: &str) -> [u64; 2] {
    let layout = &trial.programs.layout;
    let values = [layout.buffers[layout.values.0].len as u64, layout.parameter_count()];
    let sum = sum_of(&trial.programs.train).map(|sum| [sum.of.len as u64, sum.payload as u64]);
    let epoch = layout.log_width as u64 * SUM;
    match purpose {
        "parameters" | "best" => values.map(|len| len.max(1)),
        "gradients" => sum.unwrap_or([1, 1]),
        "log" if flags(trial) => [FLAG + epoch, SUM + epoch],
        _ => [1, 1],
    }
}

/// Whether the flag for a loss that is not finite is copied before the sums of an epoch.
fn flags(trial: &Trial) -> bool {
    trial.engine.is_gpu() && trial.spec.logging.policy == Policy::PerEpoch
}

/// All copies and reads, in the order of `transfers.csv`; those of zero bytes are left out.
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
    Movement { kind, purpose, bytes, for_each_more: None }
}

fn to_devices(trial: &Trial, length: &RunLength) -> Vec<Movement> {
    // Copies within the host's memory move nothing.
    let is_away = |place: &&DeviceId| !matches!(place, DeviceId::Cpu | DeviceId::Rank(0));
    let devices = trial.devices.used.iter().filter(is_away).count() as u64;
    if devices == 0 {
        return Vec::new();
    }
    // The first device keeps the log, and the final parameters are read from it.
    let first = if matches!(trial.devices.used.first(), Some(DeviceId::Rank(_))) { 0 } else { 1 };
    let each = |bytes: u64| devices.saturating_mul(bytes);
    let row_bytes = (trial.facts.features + trial.facts.target_width()) as u64 * NUMBER;
    let (epochs, passes) = (length.epochs(), length.validations);
    let steps = trial.steps;
    let (train_rows, validation_rows) = (trial.facts.train_rows as u64, trial.facts.validation_rows as u64);
    let validates = if trial.programs.validate.is_some() { 1 } else { 0 };
    let resident = if trial.chunks.is_some() { 0 } else { 1 };
    let streamed = 1 - resident;
    // Every host has its own rows. Each device has all resident rows, but only its share of streamed ones.
    let dataset = first * resident * each((train_rows + validates * validation_rows) * row_bytes);
    let order = if trial.spec.data.shuffle { resident * each(epochs * train_rows * NUMBER) } else { 0 };
    let batches = order + streamed * length.train_rows() * row_bytes;
    let validation_batches = streamed * passes * validation_rows * row_bytes;
    let layout = &trial.programs.layout;
    let values = layout.parameter_count() * NUMBER;
    let constants = steps * size_of::<Hyper>() as u64;
    let prediction = layout.prediction.map_or(0, |row| row.len as u64 * NUMBER);
    // Several devices compare digests of their parameters once per epoch.
    let digests = if trial.world_size() > 1 { epochs * SUM } else { 0 };
    let width = layout.log_width as u64;
    let flag = if flags(trial) { SUM } else { 0 };
    let log = match trial.spec.logging.policy {
        Policy::Immediate | Policy::Buffered => steps * width * NUMBER,
        Policy::PerEpoch => epochs * (flag + width * SUM),
        Policy::Off => 0,
    };
    let sum = sum_of(&trial.programs.train).map_or(0, |sum| sum.payload as u64 * NUMBER);
    let gradients = steps * sum;
    let by_host = trial.sums.as_ref().is_some_and(|sums| sums.by == AllReduceMethod::Host);
    let through_host = if by_host { each(gradients) } else { 0 };
    let (launch, more_blocks) = launches(trial, length);
    let best = first * validates * passes.min(1) * values;
    let (saved, sums, more_saved) = saves(trial, length);
    let more_best = (passes > 1).then_some((best, "validation that is the best so far"));
    vec![
        movement("h2d", "batch", batches),
        movement("h2d", "dataset", dataset),
        movement("h2d", "parameters", each(values)),
        movement("h2d", "constants", each(constants)),
        Movement { for_each_more: more_blocks, ..movement("h2d", "launch", launch) },
        movement("h2d", "gradients", through_host),
        movement("h2d", "validation", validation_batches),
        movement("h2d", "checkpoint", first * sums),
        movement("d2h", "parameters", first * values),
        movement("d2h", "log", first * log),
        movement("d2h", "gradients", through_host),
        // The sums of loss and hits.
        movement("d2h", "validation", each(passes * 2 * SUM) + first * passes * validation_rows * prediction),
        movement("d2h", "best", best),
        Movement { for_each_more: more_saved, ..movement("d2h", "checkpoint", first * (saved + sums)) },
        movement("d2h", "digest", each(digests)),
        // Within the first device's memory.
        Movement { for_each_more: more_best, ..movement("d2d", "best", best) },
        movement("all_reduce", "gradients", (trial.world_size() as u64).saturating_mul(gradients)),
    ]
}

/// Bytes of all checkpoints: of their numbers, and of an unfinished epoch's sums, which are written back. The third value is the
/// bytes of one more checkpoint, where only the run knows how many there are.
fn saves(trial: &Trial, length: &RunLength) -> (u64, u64, Option<(u64, &'static str)>) {
    let Some(rule) = &trial.spec.checkpoint else { return (0, 0, None) };
    let layout = &trial.programs.layout;
    let bytes = |role| layout.of_role(role).map_or(0, |slice| slice.len as u64 * NUMBER);
    let (state, best) = (bytes(Role::Values) + bytes(Role::State), bytes(Role::Best));
    let epoch = length.steps_per_epoch.max(1);
    let every = match rule.every {
        Every::Steps(steps) => steps,
        Every::Epochs(epochs) => epochs.saturating_mul(epoch),
        // That at the end.
        Every::Minutes(_) => u64::MAX,
    };
    let at_end = !length.steps.is_multiple_of(every);
    let up_to = |steps: u64| steps / every;
    let count = up_to(length.steps) + u64::from(at_end);
    // The best weights are known after the first validation.
    let validated = trial.spec.trainer.validate_every.steps(epoch);
    let with_best = match validated {
        1.. if validated <= length.steps => count - up_to(validated - 1),
        _ => 0,
    };
    // Without sums of the epoch, at its end.
    let whole = length.steps / lcm(every, epoch) + u64::from(at_end && length.steps.is_multiple_of(epoch));
    let sums = match trial.spec.logging.policy {
        Policy::PerEpoch => (count - whole) * layout.log_width as u64 * SUM,
        _ => 0,
    };
    let more = matches!(rule.every, Every::Minutes(_)).then_some((state + best, "checkpoint"));
    (count * state + with_best * best, sums, more)
}

fn lcm(one: u64, other: u64) -> u64 {
    let (mut a, mut b) = (one, other);
    while b > 0 {
        (a, b) = (b, a % b);
    }
    (one / a).saturating_mul(other)
}

/// Bytes passed to kernel launches on GPUs: the instructions once, and the counters of each block of steps.
/// The second value is the bytes of one more block, if more blocks may be needed.
fn launches(trial: &Trial, length: &RunLength) -> (u64, Option<(u64, &'static str)>) {
    let is_record = |program: &Program| {
        let is_sum = |op: &Op| matches!(op, Op::AllReduce(_) | Op::StartAllReduce(_));
        program.instructions.iter().filter(|i| !is_sum(&i.op)).count() as u64
    };
    let records = |rank: &crate::program::Programs| {
        let all = [
            Some(&rank.train),
            rank.train_last.as_ref(),
            rank.validate.as_ref(),
            rank.validate_last.as_ref(),
        ];
        all.into_iter().flatten().map(is_record).sum::<u64>()
    };
    let gpus = || trial.devices.used.iter().zip(trial.ranks()).filter(|(id, _)| id.is_real_gpu());
    let records: u64 = gpus().map(|(_, rank)| records(rank)).sum();
    let each_step = trial.spec.logging.policy == Policy::Immediate;
    let stretches = length.epochs().div_ceil(trial.stretch(0));
    let blocks = if each_step { length.steps } else { stretches } + length.validations;
    let of_block = gpus().count() as u64 * size_of::<RunRecord>() as u64;
    let chunk = trial.programs.validate.as_ref().map_or(usize::MAX, |validate| validate.batch);
    let is_least = each_step && trial.facts.validation_rows <= chunk && trial.chunks.is_none();
    (
        records * size_of::<Record>() as u64 + blocks * of_block,
        (!is_least).then_some((of_block, "block of steps")),
    )
}
