//! Predicts what a trial will copy between host and devices and read from files, by kind and purpose: bytes, copies, and how often
//! the host waits for a device. It is what the ledger will have counted if the run ends as planned.
//!
//! Nothing is copied to a device that uses the host's memory. A run that ends early copies less. Some counts
//! only the run knows; they come on top ([`Movement::for_each_more`]): copies of the best weights on the device, one for each
//! validation that is better than all before; stretches of epochs and blocks of steps beyond the fewest, whose number depends on the
//! steps' time, with 128 bytes of counters for each block on a GPU; reads of a log that waited for `flush_every_s`; checkpoints by
//! minutes; waits for queued steps of a GPU. Waits for earlier uploads, and reads ahead of steps that would wait for a disk, are not predicted.
//! Of checkpoints by epochs some may be left out while a slow disk writes others. Counts beyond `u64` saturate.

use super::{
    all_reduce::{AllReduceMethod, sum_of},
    devices::DeviceId,
    run_length::RunLength,
    stops::{Stops, checkpoint_interval, lcm},
    trial::Trial,
};
use crate::{
    op::{Record, RunRecord},
    program::{Hyper, Op, Program, Role},
    spec::{Every, Policy},
};

/// What one kind and purpose come to over all devices, in the terms of `transfers.csv`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Movement {
    /// `h2d`, `d2h`, `d2d`, `all_reduce`, `sync` or `read`.
    pub kind: &'static str,
    /// `dataset`, `batch`, `parameters`, `constants`, `launch`, `log`, `validation`, `best`, `checkpoint`, `digest` or `gradients`.
    pub purpose: &'static str,
    /// Copies or waits; `None` for reads from a file, whose calls depend on where the rows lie.
    pub count: Option<u64>,
    pub bytes: u64,
    /// Set if these are the fewest: the name of what adds a copy or a wait, and its bytes.
    pub for_each_more: Option<(&'static str, u64)>,
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

/// All copies, waits and reads, in the order of `transfers.csv`; those that do not occur are left out.
pub fn transfers(trial: &Trial) -> Vec<Movement> {
    let length = RunLength::new(&trial.spec, trial.facts, trial.programs.train.batch);
    let mut all = to_devices(trial, &length);
    all.retain(|movement| movement.count != Some(0));
    // Each copy to the host is a wait. A GPU may be waited for besides: before validations and comparisons of parameters, which
    // follow queued steps.
    let wait = |read: &Movement| {
        let is_queued = trial.engine.is_gpu() && matches!(read.purpose, "parameters" | "validation");
        let more = read.for_each_more.map(|(what, _)| what).or(is_queued.then_some("wait for queued steps"));
        Movement { kind: "sync", bytes: 0, for_each_more: more.map(|what| (what, 0)), ..*read }
    };
    let waits: Vec<Movement> = all.iter().filter(|movement| movement.kind == "d2h").map(wait).collect();
    all.extend(waits);
    let row_bytes = trial.facts.file_row_bytes.unwrap_or(0);
    let rows = [
        ("batch", length.train_rows()),
        ("validation", length.validations.saturating_mul(trial.facts.validation_rows as u64)),
    ];
    let reads = rows.map(|(purpose, rows)| {
        let bytes = rows.saturating_mul(row_bytes);
        Movement { kind: "read", purpose, count: None, bytes, for_each_more: None }
    });
    all.extend(reads.into_iter().filter(|read| read.bytes > 0));
    all
}

fn movement(kind: &'static str, purpose: &'static str, [count, bytes]: [u64; 2]) -> Movement {
    Movement { kind, purpose, count: Some(count), bytes, for_each_more: None }
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
    let each = |of| times(of, devices);
    let (epochs, passes, steps) = (length.epochs(), length.validations, trial.steps);
    let stops = Stops::new(trial, length);
    let [batches, dataset, validation] = rows(trial, length, (devices, first, stops.stretches));
    let layout = &trial.programs.layout;
    let values = layout.parameter_count() * NUMBER;
    let constants = [stops.blocks, steps.saturating_mul(size_of::<Hyper>() as u64)];
    // Several devices compare digests of their parameters once per epoch.
    let digests = if trial.world_size() > 1 { times([1, SUM], epochs) } else { [0, 0] };
    let policy = trial.spec.logging.policy;
    let width = layout.log_width as u64;
    let flag = if flags(trial) { SUM } else { 0 };
    let log = match policy {
        Policy::Immediate | Policy::Buffered => steps.saturating_mul(width * NUMBER),
        Policy::PerEpoch => epochs.saturating_mul(flag + width * SUM),
        Policy::Off => 0,
    };
    let sum = sum_of(&trial.programs.train).map_or([0, 0], |sum| [1, sum.payload as u64 * NUMBER]);
    let gradients = times(sum, steps);
    let by_host = trial.sums.as_ref().is_some_and(|sums| sums.by == AllReduceMethod::Host);
    let through_host = if by_host { each(gradients) } else { [0, 0] };
    let validates = u64::from(trial.programs.validate.is_some());
    let best = times([1, values], first * validates * passes.min(1));
    let Saves { states, sums, more: more_saved } = saves(trial, length);
    let (launch, more_launches) = launches(trial, length, stops.blocks);
    let moved = |kind, purpose, of, for_each_more| Movement { for_each_more, ..movement(kind, purpose, of) };
    let if_any = |is_any: bool, what| is_any.then_some((what, 0));
    let more_stretches = if_any(trial.stretch(0) > 1, "stretch of epochs");
    let more_blocks = if_any(policy != Policy::Immediate, "block of steps");
    let more_reads = if_any(policy == Policy::Buffered, "read of the log");
    let more_best = (passes > 1).then_some(("validation that is the best so far", best[1]));
    vec![
        moved("h2d", "batch", batches, more_stretches),
        movement("h2d", "dataset", dataset),
        movement("h2d", "parameters", each([1, values])),
        moved("h2d", "constants", each(constants), more_blocks),
        moved("h2d", "launch", launch, more_launches),
        movement("h2d", "gradients", through_host),
        movement("h2d", "validation", validation),
        movement("h2d", "checkpoint", times(sums, first)),
        movement("d2h", "parameters", times([1, values], first)),
        moved("d2h", "log", times([stops.log_reads, log], first), more_reads),
        movement("d2h", "gradients", through_host),
        // The sums of loss and hits.
        movement(
            "d2h",
            "validation",
            plus(each(times([1, 2 * SUM], passes)), predictions(trial, passes, first)),
        ),
        movement("d2h", "best", best),
        moved("d2h", "checkpoint", times(plus(states, sums), first), more_saved),
        movement("d2h", "digest", each(digests)),
        // Within the first device's memory.
        moved("d2d", "best", best, more_best),
        movement("all_reduce", "gradients", times(gradients, trial.world_size() as u64)),
    ]
}

fn times([count, bytes]: [u64; 2], n: u64) -> [u64; 2] {
    [count.saturating_mul(n), bytes.saturating_mul(n)]
}

fn plus([count, bytes]: [u64; 2], [more, more_bytes]: [u64; 2]) -> [u64; 2] {
    [count.saturating_add(more), bytes.saturating_add(more_bytes)]
}

/// Copies and bytes of rows to the devices, and of the orders that select them: for steps, all at once, for validations. The
/// features of a chunk and its targets are two copies; an order is one, and serves a stretch of epochs.
fn rows(trial: &Trial, length: &RunLength, (devices, first, stretches): (u64, u64, u64)) -> [[u64; 2]; 3] {
    let facts = trial.facts;
    let (train_rows, validation_rows) = (facts.train_rows as u64, facts.validation_rows as u64);
    let row_bytes = (facts.features + facts.target_width()) as u64 * NUMBER;
    let Some(chunks) = trial.chunks else {
        let orders = [stretches, length.epochs().saturating_mul(train_rows * NUMBER)];
        let orders = if trial.spec.data.shuffle { times(orders, devices) } else { [0, 0] };
        let validates = u64::from(trial.programs.validate.is_some());
        // Every host has its own rows; of one host, each device has them all.
        let dataset = [2 + 2 * validates, (train_rows + validates * validation_rows) * row_bytes];
        return [orders, times(dataset, first * devices), [0, 0]];
    };
    let passes = length.validations;
    let of_pass = validation_rows.div_ceil(chunks.validation.max(1) as u64);
    let copies = |chunks: u64| chunks.saturating_mul(2 * devices);
    let batches = [copies(length.train_chunks(chunks.train)), length.train_rows().saturating_mul(row_bytes)];
    [batches, [0, 0], times([copies(of_pass), validation_rows * row_bytes], passes)]
}

/// Copies and bytes of what the model predicts in validations, if a metric needs it: those of each chunk, from each device that has
/// rows of it.
fn predictions(trial: &Trial, passes: u64, first: u64) -> [u64; 2] {
    let (Some(row), Some(validate)) = (trial.programs.layout.prediction, &trial.programs.validate) else {
        return [0, 0];
    };
    let (rows, chunk, devices) = (trial.facts.validation_rows, validate.batch.max(1), trial.world_size());
    let copies = rows / chunk * chunk.min(devices) + (rows % chunk).min(devices);
    times([copies as u64, rows as u64 * row.len as u64 * NUMBER], first.saturating_mul(passes))
}

struct Saves {
    /// Copies and bytes of the numbers of all checkpoints.
    states: [u64; 2],
    /// Copies and bytes of an unfinished epoch's sums, which are written back.
    sums: [u64; 2],
    more: Option<(&'static str, u64)>,
}

fn saves(trial: &Trial, length: &RunLength) -> Saves {
    let Some(rule) = &trial.spec.checkpoint else {
        return Saves { states: [0, 0], sums: [0, 0], more: None };
    };
    let layout = &trial.programs.layout;
    let array = |role| layout.of_role(role).map_or([0, 0], |slice| [1, slice.len as u64 * NUMBER]);
    let (state, best) = (plus(array(Role::Values), array(Role::State)), array(Role::Best));
    let epoch = length.steps_per_epoch.max(1);
    // By minutes, the one at the end.
    let every = checkpoint_interval(&rule.every, epoch).unwrap_or(u64::MAX);
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
        Policy::PerEpoch => times([1, layout.log_width as u64 * SUM], count - whole),
        _ => [0, 0],
    };
    let more = matches!(rule.every, Every::Minutes(_)).then_some(("checkpoint", state[1] + best[1]));
    Saves { states: plus(times(state, count), times(best, with_best)), sums, more }
}

/// What is passed to kernel launches on GPUs, as copies and bytes: the instructions of each program once, and the counters of each
/// block of steps. The second value is what one more block takes, if more blocks may be needed.
fn launches(trial: &Trial, length: &RunLength, blocks: u64) -> ([u64; 2], Option<(&'static str, u64)>) {
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
        let each = |program| [1, is_record(program) * size_of::<Record>() as u64];
        all.into_iter().flatten().map(each).fold([0, 0], plus)
    };
    let gpus = || trial.devices.used.iter().zip(trial.ranks()).filter(|(id, _)| id.is_real_gpu());
    let records = gpus().map(|(_, rank)| records(rank)).fold([0, 0], plus);
    let of_block = size_of::<RunRecord>() as u64;
    let all = times([1, of_block], gpus().count() as u64);
    let chunk = trial.programs.validate.as_ref().map_or(usize::MAX, |validate| validate.batch);
    let each_step = trial.spec.logging.policy == Policy::Immediate;
    let is_least = each_step && trial.facts.validation_rows <= chunk && trial.chunks.is_none();
    let more = (!is_least).then_some(("block of steps", all[1]));
    (plus(records, times(all, blocks.saturating_add(length.validations))), more)
}
