//! The plan: a [`Spec`] with every choice made and every number computed, before anything runs.
//!
//! Planning is pure: it takes a description of the data ([`DatasetInfo`]) and of the machine ([`Machine`])
//! and touches neither hardware nor disk. It may use [`crate::spec`] and [`crate::program`].

pub mod agreement;
mod all_reduce;
mod chunk_policy;
mod chunks;
mod dataset_info;
mod devices;
mod engine;
mod engine_choice;
mod engine_seconds;
mod expected;
mod footprint;
mod gpu_rates;
pub mod lab;
mod lack;
mod link;
mod lower;
mod lower_bound;
mod machine;
mod memory;
mod rates;
mod read_cost;
mod run_length;
mod schedule;
mod shapes;
mod stops;
#[cfg(test)]
mod testing;
mod time_account;
mod transfers;
mod trial;

pub use all_reduce::{AllReduceMethod, AllReducePlan, NcclFailure, PeerAccess, sum_of, summed};
pub use chunks::Chunks;
pub use dataset_info::{DatasetInfo, TargetSpread};
pub use devices::{DeviceId, ResolvedDevices, choose};
pub use engine::{Engine, EngineReason, Tried};
pub use engine_choice::{COMPILE_S, compiled_step_s, validation_engine};
pub use expected::ExpectedTime;
pub use footprint::{Footprint, MOST_RANKED};
pub use gpu_rates::{GpuRates, SHARED_BYTES_PER_CLOCK};
pub use lack::Lack;
pub use link::{Link, StepTime, exposed_s};
pub use lower_bound::{Bottleneck, LowerBound, StepWork, TimeBreakdown};
pub use machine::{Described, Gpu, GpuLimits, Machine};
pub use rates::{AllReduceRates, MachineRates, Origin, Processor, Speed, are_sane};
pub use read_cost::{BLOCK_BYTES, GAP_BYTES, READERS_AHEAD, ReadCost};
pub use run_length::{global_batch, validation_rows};
pub use schedule::update_rule;
pub use shapes::LayerRow;
pub use time_account::{FewerReads, Measured, TimeAccount, TimeShare};
pub use transfers::FLAG;
pub use transfers::{Movement, padding, transfers};
pub use trial::{Plan, Trial};

use std::sync::Arc;

use self::{
    chunk_policy::ChunkPolicy,
    lower::Lowered,
    run_length::{RunLength, validation_chunk},
};
use crate::{
    program::{MemoryPlan, Programs},
    spec::{EngineChoice, Placement, Problem, Spec, ValidateEvery},
    units,
};

/// More threads read rows no faster: 12 copy 50 GB/s within an H200's host, and get 14 GB/s from a file in its cache.
const MOST_READERS: usize = 12;

/// The most numbers that a step may hold at one time. It is far more than any memory, and low enough that
/// sizes computed from it fit into 64 bits.
const MOST_NUMBERS: u64 = 1 << 48;

#[derive(Clone, Debug, PartialEq)]
pub enum PlanError {
    /// The spec does not fit its data or the machine.
    Problems(Vec<Problem>),
    /// A requested device is missing and `on_missing = "error"`.
    Missing(Problem),
}

/// Plans one trial. The host may use `threads`. With `data.placement = "auto"`, rows that do not fit on the devices are brought
/// there in chunks.
pub fn plan(spec: &Spec, facts: DatasetInfo, machine: &Machine, threads: usize) -> Result<Trial, PlanError> {
    let with = |streams| plan_with(spec, facts, machine, (threads, streams));
    match with(spec.data.placement == Placement::Streamed) {
        Err(PlanError::Problems(why)) if spec.data.placement == Placement::Auto => {
            with(true).map_err(|_| PlanError::Problems(why))
        }
        planned => planned,
    }
}

fn plan_with(
    spec: &Spec,
    facts: DatasetInfo,
    machine: &Machine,
    (threads, streams): (usize, bool),
) -> Result<Trial, PlanError> {
    let devices = devices::choose(&spec.devices, machine).map_err(PlanError::Missing)?;
    let Resolved { spec, layers, length } = Resolved::new(spec, facts, devices.used.len(), machine)?;
    let batch = length.batch;
    let (on_cpu, over_hosts) = (devices.on_cpu(), devices.over_hosts());
    let by_library = false;
    let policy =
        ChunkPolicy { spec: &spec, facts, on_cpu, streams, over_hosts, threads, machine, by_library };
    let refused = |problem| PlanError::Problems(vec![problem]);
    policy.check().map_err(refused)?;
    let chunks = policy.chunks(batch);
    let streamed = chunks.is_some();
    let data_bytes = if streamed { 0 } else { facts.resident_bytes() };
    let lowered = Lowered::new(&policy, &devices, length.batch, data_bytes, length.steps).map_err(refused)?;
    let Lowered { programs, peers, fold_update, chosen, sums } = lowered;
    let by_library = chosen.as_ref().is_some_and(|(engine, _)| engine.uses_library());
    let policy = ChunkPolicy { by_library, ..policy };
    let need = memory::Need { policy, fold_update, devices: &devices, data_bytes };
    need.check(peers.last().unwrap_or(&programs), batch).map_err(refused)?;
    let all = || devices.used.iter().zip(std::iter::once(&programs).chain(&peers));
    let footprint = Footprint::new(&policy.rows(&programs, chunks), all());
    let resident = Footprint::new(&policy.resident().rows(&programs, None), all());
    let resident = footprint.exceeds(&resident, &devices.used).then_some(resident);
    let (threads, readers) = host_threads(on_cpu, chosen.is_some(), threads);
    let fetch = ReadCost::new(facts, &length, (spec.data.shuffle, chunks), &machine.rates);
    // Measured sums are those within one process.
    let queued = !over_hosts && sums.as_ref().is_some_and(|sums| sums.by.is_queued());
    let by = chosen.as_ref().map(|(engine, _)| (*engine, spec.devices.precision, queued));
    let lower_bound = by.and_then(|by| LowerBound::of_gpus(machine, all(), by, (data_bytes, fetch)));
    let lower_bound = lower_bound.unwrap_or_else(|| {
        LowerBound::new(&programs, machine.speed(spec.devices.precision), (data_bytes, fetch))
    });
    let (engine, engine_reason) = match chosen {
        Some(chosen) => chosen,
        None if on_cpu => engine_choice::on_the_cpu(spec.devices.engine, &lower_bound, threads),
        None if spec.devices.engine == EngineChoice::Team => return Err(refused(engine_choice::no_team())),
        None => (Engine::Serial, EngineReason::ThreadPerDevice),
    };
    let plan = Plan {
        is_one_block: is_one_block(engine, &devices.used, &programs, machine),
        devices,
        engine,
        engine_reason,
        sums,
        threads: if engine == Engine::Team { threads } else { 1 },
        layers,
        programs: Arc::new(programs),
        peers: peers.into_iter().map(Arc::new).collect(),
        steps_per_epoch: length.steps_per_epoch,
        steps: length.steps,
        chunks,
        readers,
        lower_bound,
        data_bytes,
        footprint,
        resident,
    };
    Ok(Trial { spec, facts, plan: plan.into(), data_warnings: Arc::default() })
}

/// Threads of the host that compute, and that read rows.
fn host_threads(on_cpu: bool, on_gpus: bool, threads: usize) -> (usize, usize) {
    // Several devices, and devices with their own memory, get one thread each. Cores that GPUs leave idle
    // read rows; virtual GPUs compute on the cores themselves.
    match (on_cpu, on_gpus) {
        (true, _) => (threads, 1),
        (false, true) => (1, (threads - threads / 4).min(MOST_READERS)),
        (false, false) => (1, 1),
    }
}

/// Whether a trial's steps take one block of its GPU.
fn is_one_block(engine: Engine, used: &[DeviceId], programs: &Programs, machine: &Machine) -> bool {
    let fits = |gpu: &Gpu| 4 * MemoryPlan::new(programs).train.elements as u64 <= gpu.limits.shared_bytes;
    let gpu = if let [one] = used { one.real_gpu(machine) } else { None };
    matches!(engine, Engine::Persistent | Engine::Compiled) && gpu.is_some_and(fits)
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
        let batch = global_batch(&spec, devices).min(facts.train_rows);
        let length = RunLength::new(&spec, facts, batch);
        schedule::resolve(&mut spec, length.steps, length.steps_per_epoch, &mut problems);
        let has_validation = facts.validation_rows > 0 && spec.trainer.validate_every != ValidateEvery::NEVER;
        if let Some(key) = spec.needing_validation().next().filter(|_| !has_validation) {
            let what =
                if spec.trainer.early_stopping.is_some() { "early stopping watches" } else { "it needs" };
            let problem = Problem::at_key(key, format!("{what} the validation, and there is none"));
            problems.push(problem.hint("give the data validation rows, and validate every epoch"));
        }
        let targets = trial::target_names(&spec, facts);
        let unknown = spec.monitors().find_map(|(key, own)| Some((key, own.check_target(&targets).err()?)));
        if let Some((key, [message, hint])) = unknown {
            problems.push(Problem::at_key(key, message).hint(hint));
        }
        let outputs = layers.last().map_or(0, |layer| layer.outputs).saturating_mul(facts.validation_rows);
        let ranks = spec.scores().into_iter().find(|metric| metric.ranks_outputs());
        if let Some(metric) = ranks.filter(|_| outputs > MOST_RANKED) {
            let (most, rows) = (units::count(MOST_RANKED as u64), units::count(facts.validation_rows as u64));
            let message =
                format!("`{metric}` ranks at most {most} outputs, and {rows} validation rows have more");
            let problem = Problem::at_key("logging.metrics", message);
            problems.push(problem.hint("watch `f1`, or validate on fewer rows (`data.split`)"));
        }
        if !problems.is_empty() {
            return Err(PlanError::Problems(problems));
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

/// A lower limit of the numbers that a step holds at one time; saturates.
fn least_numbers(layers: &[LayerRow], facts: DatasetInfo, batch: usize) -> u64 {
    let rows = batch.max(validation_chunk(facts, batch)) as u64;
    let widths = layers.iter().map(|layer| layer.outputs as u64);
    widths
        .fold((facts.features as u64).saturating_add(facts.target_width() as u64), u64::saturating_add)
        .saturating_mul(rows)
}
