//! Lowers a spec to the programs of each device. On GPUs the engine is chosen here too, since the programs
//! depend on it.

use super::{
    all_reduce::{self, AllReducePlan, summed},
    chunk_policy::ChunkPolicy,
    dataset_info::DatasetInfo,
    devices::ResolvedDevices,
    engine_choice::{self, Chosen, RunSize},
    machine::Gpu,
    run_length::{RunLength, validation_chunk},
    schedule::update_rule,
    trial::has_large_product,
};
use crate::{
    program::{Options, Programs, Shard, lower},
    spec::{Policy, Problem, Spec, ValidateEvery},
};

/// The most steps that a device's log holds, however long `flush_every` or an epoch is.
const MOST_LOG_SLOTS: u64 = 1 << 20;

/// The programs of each device, and the choices they depend on.
pub(super) struct Lowered {
    pub programs: Programs,
    pub peers: Vec<Programs>,
    /// Whether updates are fused into the products that compute gradients.
    pub fold_update: bool,
    pub chosen: Option<Chosen>,
    pub sums: Option<AllReducePlan>,
}

impl Lowered {
    pub fn new(
        policy: &ChunkPolicy<'_>,
        devices: &ResolvedDevices,
        batch: usize,
        data_bytes: u64,
        steps: u64,
    ) -> Result<Self, Problem> {
        let ChunkPolicy { spec, facts, machine, .. } = *policy;
        let streamed = policy.chunks(batch).is_some();
        let world_size = devices.used.len();
        let lower = |rank, fold_update| {
            programs(spec, facts, batch, streamed, Shard { rank, world_size }, fold_update)
        };
        let mut first = lower(0, true);
        let gpus: Vec<&Gpu> = devices.used.iter().filter_map(|place| place.real_gpu(machine)).collect();
        let (mut chosen, mut sums, mut fold_update) = (None, None, true);
        if gpus.is_empty() {
            engine_choice::refuse_on_cpu(spec, &devices.used, machine)?;
        } else {
            countable(&first, gpus.iter().map(|gpu| gpu.limits.most_elements).min().unwrap_or(0))?;
            sums = all_reduce::among(&devices.used, machine, summed(&first.train));
            let validations = RunLength::new(spec, facts, batch).validations;
            let validated_rows = validations.saturating_mul(facts.validation_rows as u64);
            let run = RunSize { steps, validated_rows };
            let (engine, reason) =
                engine_choice::on_gpus(spec, &first, &gpus, (sums.as_ref(), data_bytes), run)?;
            if engine.uses_library() && has_large_product(&first) {
                fold_update = false;
                first = lower(0, fold_update);
            }
            chosen = Some((engine, reason));
        }
        let early = |programs| all_reduce::start_early(programs, &devices.used, sums.as_ref());
        let peers = (1..world_size).map(|rank| early(lower(rank, fold_update))).collect();
        Ok(Self { programs: early(first), peers, fold_update, chosen, sums })
    }
}

pub(super) fn programs(
    spec: &Spec,
    facts: DatasetInfo,
    batch: usize,
    streamed: bool,
    shard: Shard,
    fold_update: bool,
) -> Programs {
    let remainder = |rows: usize, chunk: usize| Some(rows % chunk).filter(|r| *r > 0);
    let log_slots = match spec.logging.policy {
        // Two halves: the host reads one while steps write the other.
        Policy::Buffered => {
            let length = RunLength::new(spec, facts, batch);
            let at_once = || length.steps_per_epoch.saturating_mul(length.stretch(spec, 0)).min(length.steps);
            2 * spec.logging.flush_every.unwrap_or_else(at_once).min(MOST_LOG_SLOTS) as usize
        }
        _ => 1,
    };
    let chunk = validation_chunk(facts, batch);
    let validates = chunk > 0 && spec.trainer.validate_every != ValidateEvery::NEVER;
    let clip = spec.trainer.gradient_clip_val;
    lower(&Options {
        layers: &spec.model.layers,
        loss: spec.model.loss,
        features: facts.features,
        targets: facts.targets,
        weighted: facts.weighted,
        rule: update_rule(&spec.optimizer, &spec.schedule),
        clip: (clip > 0.0).then_some(clip as f32),
        metrics: &spec.logging.metrics,
        policy: spec.logging.policy,
        log_slots,
        batch,
        last: remainder(facts.train_rows, batch),
        validation: validates.then(|| (chunk, remainder(facts.validation_rows, chunk))),
        keeps_prediction: !spec.scores().is_empty(),
        ordered: spec.data.shuffle && !streamed,
        streamed,
        shard,
        fold_update,
    })
}

/// Refuses programs with an instruction that has more elements than kernels can count.
fn countable(programs: &Programs, limit: usize) -> Result<(), Problem> {
    let all = [Some(&programs.train), programs.validate.as_ref()];
    let mut most = 0;
    for instruction in all.into_iter().flatten().flat_map(|program| &program.instructions) {
        instruction.op.access().touched().for_each(|slice| most = most.max(slice.len));
    }
    if most <= limit {
        return Ok(());
    }
    let message = format!("the kernels of a GPU count to {limit}, and an instruction has {most} numbers");
    Err(if programs.layout.parameter_count() > limit as u64 {
        Problem::at_key("model.layers", message).hint("make the model smaller")
    } else {
        Problem::at_key("data.batch_size", message).hint("lower it")
    })
}
