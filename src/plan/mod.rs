//! What will happen: a [`Spec`] with every choice made and every number counted, before anything runs.
//!
//! Planning is pure: it takes what the data are ([`DatasetInfo`]) and what the machine is ([`Machine`]), and touches neither
//! hardware nor disk. May use [`crate::spec`] and [`crate::program`].

mod all_reduce;
mod bound;
mod chunk_policy;
mod chunks;
mod dataset_info;
mod devices;
mod engine;
mod footprint;
mod gpu;
mod gpu_rates;
pub mod lab;
mod lower_bound;
mod memory;
mod rates;
mod read_cost;
mod remarks;
mod run_length;
mod scaling;
mod schedule;
mod shapes;
mod transfers;
mod trial;

pub use all_reduce::{AllReduceMethod, AllReducePlan, MOST_PEERS, NO_NCCL, peer_bytes, summed};
pub use bound::{Bottleneck, FewerReads, Measured, TimeAccount, TimeShare};
pub use chunks::Chunks;
pub use dataset_info::DatasetInfo;
pub use devices::{DeviceId, ResolvedDevices};
pub use engine::Engine;
pub use footprint::Footprint;
pub use gpu::{Gpu, GpuLimits};
pub use gpu_rates::{AllReduceRates, GpuRates};
pub use lower_bound::{LowerBound, Machine, Speed, StepWork, TimeBreakdown};
pub use rates::{MachineRates, Origin, Processor};
pub use read_cost::{BLOCK_BYTES, GAP_BYTES, READERS_AHEAD, ReadCost};
pub use scaling::global_batch;
pub use schedule::update_rule;
pub use shapes::LayerRow;
pub(crate) use transfers::FLAG;
pub use transfers::{Movement, transfers};
pub use trial::Trial;

use self::{read_cost::ReadPlan, run_length::RunLength};
use crate::{
    program::{Options, Programs, Shard, lower},
    spec::{Policy, Problem, Spec},
};

/// Steps that a device's log holds at most, however long `flush_every` or an epoch is.
const MOST_LOG_SLOTS: u64 = 1 << 20;

/// Minimum rows of a validation chunk, if the data have as many.
const VALIDATION_ROWS: usize = 256;

/// And at most: up to here f32 counts every row.
const MOST_VALIDATION_ROWS: usize = 1 << 24;

/// The most threads that read a chunk of rows.
const MOST_READERS: usize = 8;

/// Numbers that a step may hold at the same time, far more than any memory: sizes made of them stay within 64 bits.
const MOST_NUMBERS: u64 = 1 << 48;

/// A team must promise at least this much, since it suffers from every other process on the machine.
const TEAM_MARGIN: f64 = 0.75;

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq)]
pub enum PlanError {
    /// The spec and its data do not fit together.
    Problems(Vec<Problem>),
    /// A declared device is not there and `on_missing = "error"`.
    Missing(Problem),
}

/// Plans one trial. `threads` is what the host may use.
pub fn plan(spec: &Spec, facts: DatasetInfo, machine: &Machine, threads: usize) -> Result<Trial, PlanError> {
    let devices = devices::choose(&spec.devices, machine).map_err(PlanError::Missing)?;
    let Resolved { spec, layers, length } = Resolved::new(spec, facts, devices.used.len(), machine)?;
    let batch = length.batch;
    let on_cpu = devices.used == [DeviceId::Cpu];
    let policy = chunk_policy::ChunkPolicy { spec: &spec, facts, on_cpu, threads, machine };
    let chunks = policy.chunks(batch);
    let streamed = chunks.is_some();
    let data_bytes = if streamed { 0 } else { facts.resident_bytes() };
    let refused = |problem| PlanError::Problems(vec![problem]);
    let lowered = Lowered::new(&policy, &devices, length.batch, data_bytes).map_err(refused)?;
    let Lowered { programs, peers, fold_update, chosen, sums } = lowered;
    let need = memory::Need { cut: policy, fold_update, devices: &devices, data_bytes };
    need.check(peers.last().unwrap_or(&programs), batch).map_err(refused)?;
    let all = || devices.used.iter().zip(std::iter::once(&programs).chain(&peers));
    let footprint = Footprint::new(&policy.rows(&programs, chunks), all());
    let resident = Footprint::new(&policy.resident().rows(&programs, None), all());
    let resident = footprint.exceeds(&resident, &devices.used).then_some(resident);
    // Devices that share a run, or that have a memory of their own, have one thread each. Beside a GPU the host's cores have
    // nothing to do; virtual ones compute on them.
    let (threads, readers) = match (on_cpu, &chosen) {
        (true, _) => (threads, 1),
        (false, Some(_)) => (1, threads.min(MOST_READERS)),
        (false, None) => (1, 1),
    };
    let read_plan = ReadPlan { shuffle: spec.data.shuffle, chunks };
    let fetch = ReadCost::compute(facts, &length, read_plan, &machine.speed());
    let queued = sums.as_ref().is_some_and(|sums| sums.by.is_queued());
    let by = chosen.as_ref().map(|chosen| (chosen.engine, spec.devices.precision, queued));
    let lower_bound = by.and_then(|by| machine.gpu_floor(all(), by, (data_bytes, fetch)));
    let lower_bound = lower_bound
        .unwrap_or_else(|| LowerBound::new(&programs, Speed { fetch, ..machine.speed() }, data_bytes));
    let (engine, engine_reason) = match chosen {
        Some(gpu::Chosen { engine, reason }) => (engine, reason),
        None if on_cpu => engine::on_the_cpu(spec.devices.engine, &lower_bound, threads),
        None => (Engine::Serial, "each device has one thread".into()),
    };
    Ok(Trial {
        gpus: devices.gpus(machine),
        devices,
        engine,
        engine_reason,
        sums,
        threads: if engine == Engine::Team { threads } else { 1 },
        instruction_set: machine.instruction_set.clone(),
        layers,
        facts,
        programs,
        peers,
        steps_per_epoch: length.steps_per_epoch,
        steps: length.steps,
        chunks,
        readers,
        lower_bound,
        data_bytes,
        footprint,
        resident,
        spec,
    })
}

/// A spec that fits its data, with shapes and length filled in.
struct Resolved {
    spec: Spec,
    layers: Vec<LayerRow>,
    length: RunLength,
}

impl Resolved {
    fn new(spec: &Spec, facts: DatasetInfo, devices: usize, machine: &Machine) -> Result<Self, PlanError> {
        let mut spec = spec.clone();
        let mut problems = Vec::new();
        let layers = shapes::infer(&mut spec.model, facts, &mut problems);
        let batch = scaling::global_batch(&spec, devices).min(facts.train_rows);
        let length = RunLength::new(&spec, facts, batch);
        schedule::resolve(&mut spec, length.steps, length.steps_per_epoch, &mut problems);
        if spec.trainer.early_stopping.is_some()
            && (facts.validation_rows == 0 || spec.trainer.validate_every_epochs == 0)
        {
            let message = "early stopping watches the validation, and there is none";
            let problem = Problem::at_key("trainer.early_stopping", message);
            problems.push(problem.hint("give the data validation rows, and validate every epoch"));
        }
        if !problems.is_empty() {
            return Err(PlanError::Problems(problems));
        }
        if spec.logging.policy == Policy::Buffered {
            spec.logging.flush_every.get_or_insert(length.steps_per_epoch);
        }
        let least = least_numbers(&layers, facts, batch);
        if least > MOST_NUMBERS {
            let needed = least.saturating_mul(4);
            let parameter_bytes = 4 * layers.iter().map(|layer| layer.parameters).sum::<u64>();
            let problem = memory::too_large(&spec, needed, parameter_bytes, machine);
            return Err(PlanError::Problems(vec![problem]));
        }
        Ok(Self { spec, layers, length })
    }
}

/// What each device runs, and the engine of GPUs, on which it depends.
struct Lowered {
    programs: Programs,
    peers: Vec<Programs>,
    /// Whether updates are folded into products.
    fold_update: bool,
    /// The engine, where GPUs compute.
    chosen: Option<gpu::Chosen>,
    /// How they sum, where they are several.
    sums: Option<AllReducePlan>,
}

impl Lowered {
    fn new(
        policy: &chunk_policy::ChunkPolicy<'_>,
        devices: &ResolvedDevices,
        batch: usize,
        data_bytes: u64,
    ) -> Result<Self, Problem> {
        let chunk_policy::ChunkPolicy { spec, facts, machine, .. } = *policy;
        let streamed = policy.chunks(batch).is_some();
        let world_size = devices.used.len();
        let lower = |rank, fold_update| {
            programs(spec, facts, batch, streamed, Shard { rank, world_size }, fold_update)
        };
        let mut first = lower(0, true);
        let gpus: Vec<&Gpu> = devices.used.iter().filter_map(|place| place.real_gpu(machine)).collect();
        let (mut chosen, mut sums, mut fold_update) = (None, None, true);
        if gpus.is_empty() {
            gpu::refuse_on_cpu(spec, &devices.used)?;
        } else {
            gpu::countable(&first)?;
            sums = all_reduce::among(&devices.used, machine, summed(&first.train));
            let gpu = gpu::engine(spec, &first, &gpus, (sums.as_ref(), data_bytes))?;
            if matches!(gpu.engine, Engine::Graph | Engine::Launch) && gpu::has_large_product(&first) {
                fold_update = false;
                first = lower(0, fold_update);
            }
            chosen = Some(gpu);
        }
        let peers = (1..world_size).map(|rank| lower(rank, fold_update)).collect();
        Ok(Self { programs: first, peers, fold_update, chosen, sums })
    }
}

fn programs(
    spec: &Spec,
    facts: DatasetInfo,
    batch: usize,
    streamed: bool,
    shard: Shard,
    fold_update: bool,
) -> Programs {
    let remainder = |rows: usize, chunk: usize| Some(rows % chunk).filter(|r| *r > 0);
    let log_slots = match spec.logging.policy {
        Policy::Buffered => spec.logging.flush_every.unwrap_or(1).min(MOST_LOG_SLOTS) as usize,
        _ => 1,
    };
    let chunk = validation_chunk(facts, batch);
    let validates = chunk > 0 && spec.trainer.validate_every_epochs > 0;
    let clip = spec.trainer.gradient_clip_val;
    lower(&Options {
        layers: &spec.model.layers,
        loss: spec.model.loss,
        features: facts.features,
        targets: facts.targets,
        rule: update_rule(&spec.optimizer, &spec.schedule),
        clip: (clip > 0.0).then_some(clip as f32),
        metrics: &spec.logging.metrics,
        policy: spec.logging.policy,
        log_slots,
        batch,
        last: remainder(facts.train_rows, batch),
        validation: validates.then(|| (chunk, remainder(facts.validation_rows, chunk))),
        ordered: spec.data.shuffle && !streamed,
        streamed,
        shard,
        fold_update,
    })
}

/// Rows that are validated at once.
fn validation_chunk(facts: DatasetInfo, batch: usize) -> usize {
    batch.clamp(VALIDATION_ROWS, MOST_VALIDATION_ROWS).min(facts.validation_rows)
}

/// The numbers that a step holds at the same time at least; saturates where none could count them.
fn least_numbers(layers: &[LayerRow], facts: DatasetInfo, batch: usize) -> u64 {
    let rows = batch.max(validation_chunk(facts, batch)) as u64;
    let widths = layers.iter().map(|layer| layer.outputs as u64);
    widths
        .fold((facts.features as u64).saturating_add(facts.targets as u64), u64::saturating_add)
        .saturating_mul(rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::load;

    #[test]
    fn sizes_beyond_counting_are_refused() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/parity/sgd/spec.toml");
        let overrides = [
            "model.layers=[{ linear = { out_features = 4294967295 } }, \"relu\"]",
            "data.batch_size=4294967295",
        ]
        .map(str::to_owned);
        let experiment = load(path.as_ref(), &overrides).expect("a spec");
        let rows = u32::MAX as usize;
        let facts = DatasetInfo {
            train_rows: rows,
            validation_rows: rows,
            features: 1,
            targets: rows,
            classes: None,
            file_row_bytes: Some(4),
        };
        let machine = Machine {
            gpus: Vec::new(),
            no_gpu: String::new(),
            memory_available: 8_000_000_000,
            cache_bytes: 1 << 20,
            instruction_set: "avx2".into(),
            rates: MachineRates::typical("avx2"),
            sum_rates: None,
        };
        let refused = plan(&experiment.trials[0].spec, facts, &machine, 2).err();
        let message = "the job needs at least 16 EiB of memory for parameters, activations and data, and 7.5 GiB are \
                       available";
        let problem =
            Problem::at_key("model.layers.0.linear.out_features", message).hint("make the model smaller");
        assert_eq!(refused, Some(PlanError::Problems(vec![problem])));
    }
}
