//! The devices of a trial, each loaded with its programs, and what connects them.

use std::{sync::Arc, time::Duration};

use super::{nccl_ranks, print_error};
use crate::{
    collective::{self, Abort, HEARTBEAT_TIMEOUT, ProcessGroup, RankSum},
    cuda::RankLink,
    device::{
        Device, DeviceError, Executor,
        cpu::{CpuExecutor, CpuSetup, KnownTimes, Memory, ThreadMode},
        remote::RemoteExecutor,
    },
    plan::{AllReduceMethod, AllReducePlan, DeviceId, Engine, Gpu, NcclFailure, Trial},
    program::Programs,
    record::all_reduce,
    spec::{EngineChoice, Precision},
    train::DeviceGroup,
    vector::matmul::Kernel,
};

/// Minimum wait of one device for another before the run fails; long steps extend it.
const LEAST_TIMEOUT: Duration = Duration::from_secs(10);

/// How long to wait for the other devices once a process is gone; its launcher will soon end the rest.
const GRACE_OVER_HOSTS: Duration = Duration::from_millis(100);

/// Takes the error of a GPU whose driver does not return from a call, on a thread of its own.
pub type Stuck = Box<dyn FnOnce(DeviceError) + Send>;

/// One link per device, the abort handle that releases all waits, and how gradients are summed.
type Links = (Vec<RankLink>, Abort, Option<AllReducePlan>);

/// Loads and warms up all devices of a trial; also returns how gradients are summed.
pub fn device_group(
    trial: &Trial,
    world: Option<&Arc<ProcessGroup>>,
) -> Result<(DeviceGroup, Option<AllReducePlan>), DeviceError> {
    let limit = limit(trial);
    if let Some(world) = world.filter(|_| trial.devices.over_hosts()) {
        return Ok((over_hosts(trial, world, limit)?, trial.sums.clone()));
    }
    let (links, abort, sums) = links(trial, limit);
    if let Some(sums) = sums.as_ref().filter(|sums| !sums.by.is_queued() && trial.engine == Engine::Graph) {
        // The method that the plan chose is not available here.
        let device = trial.devices.used.first().map_or_else(String::new, DeviceId::to_string);
        let way = all_reduce(sums);
        let why = format!(
            "gradients would be summed {way}; that cannot be part of the engine `graph`: set `devices.engine = \"launch\"`"
        );
        return Err(DeviceError::Unusable { device, why });
    }
    let mut devices = Vec::new();
    for ((place, programs), link) in trial.devices.used.iter().zip(trial.ranks()).zip(links) {
        let executor = executor(trial, *place, programs.clone(), link)?;
        devices.push(Device::new(place.to_string(), executor));
    }
    let mut group = DeviceGroup::new(devices, abort, 2 * limit)?;
    group.warm_up()?;
    Ok((group, sums))
}

/// How long one device of the trial waits for another before the run fails.
pub fn limit(trial: &Trial) -> Duration {
    // Assume that copying the rows runs at 100 MB/s or faster.
    let slow_copy_s = trial.data_bytes as f64 / 100e6;
    let longest_s = (100.0 * trial.lower_bound.serial_s()).min(3600.0) + slow_copy_s;
    let set = if trial.engine.is_gpu() { crate::cuda::least_wait_set() } else { Ok(None) };
    // A malformed setting is reported when the GPU is opened.
    set.ok().flatten().unwrap_or(LEAST_TIMEOUT) + Duration::from_secs_f64(longest_s)
}

/// How long a rank of the trial may go without a sign of life.
pub fn host_timeout(trial: &Trial) -> Duration {
    trial.spec.devices.host_timeout.unwrap_or(HEARTBEAT_TIMEOUT)
}

/// Like [`limit`], for a sum over hosts: a rank that may be silent for [`host_timeout`] may also arrive that
/// much later.
pub fn sum_limit(trial: &Trial) -> Duration {
    limit(trial) + host_timeout(trial)
}

/// The device of this process and those of the other ranks. A remote device counts as present as long as its
/// rank gives signs of life, so the timeout of a command is longer than any of those of a rank.
fn over_hosts(trial: &Trial, world: &Arc<ProcessGroup>, limit: Duration) -> Result<DeviceGroup, DeviceError> {
    let mut devices = Vec::new();
    for ((rank, place), programs) in trial.devices.used.iter().enumerate().zip(trial.ranks()) {
        let executor: Box<dyn Executor> = if rank == 0 {
            let load = |link| executor(trial, *place, programs.clone(), link);
            match nccl_ranks::is_planned(trial) {
                true => nccl_ranks::connect_all(trial, world, sum_limit(trial), load)?,
                false => load(RankLink::Host(Box::new(RankSum::new(world, sum_limit(trial)))))?,
            }
        } else {
            Box::new(RemoteExecutor::new(world, rank, trial.engine.is_gpu()))
        };
        devices.push(Device::new(world.name_of(rank), executor));
    }
    let group = DeviceGroup::new(devices, world.abort(), 2 * (limit + world.limit()))?;
    let mut group = group.with_grace(GRACE_OVER_HOSTS);
    if trial.engine.is_gpu() {
        group.warm_up()?;
    }
    Ok(group)
}

pub fn gpu_model(ordinal: u32) -> String {
    crate::cuda::gpu(ordinal).map_or_else(|e| e.to_string(), |gpu| gpu.name)
}

/// Warnings about anything that makes GPUs start or compute slower than they could.
pub fn slow_devices(trial: &Trial) -> Vec<String> {
    let cache = crate::cuda::cache_trouble();
    let cache = cache.map(|why| format!("every run compiles the kernels, which takes seconds: {why}"));
    own_products(trial).into_iter().chain(cache).collect()
}

/// Warns that our own kernels replace a faster library that is missing.
fn own_products(trial: &Trial) -> Option<String> {
    let wanted = trial.engine.uses_library()
        && trial.has_large_product()
        && trial.devices.used.iter().any(|place| place.is_real_gpu());
    let missing = wanted.then(crate::cuda::products_library)?.err()?;
    Some(format!(
        "large products are done by kernels of our own, which are slower: cuBLASLt is not there: {missing}"
    ))
}

/// Connects the devices; each waits at most `limit` for the others.
fn links(trial: &Trial, limit: Duration) -> Links {
    let used = &trial.devices.used;
    if used.len() == 1 {
        return (vec![RankLink::Alone], Abort::nothing(), None);
    }
    let ordinals: Vec<u32> =
        used.iter().filter_map(|p| if let DeviceId::Gpu(i) = p { Some(*i) } else { None }).collect();
    let mut sums = trial.sums.clone();
    if let (Some(planned), true) = (&trial.sums, ordinals.len() == used.len()) {
        match among_gpus(trial, planned, &ordinals, limit) {
            Ok((links, abort, sums)) => return (links, abort, Some(sums)),
            Err(failed) => sums = Some(failed),
        }
    }
    let (ranks, abort) = collective::shared(trial.devices.used_names(), limit);
    (ranks.into_iter().map(|rank| RankLink::Host(Box::new(rank))).collect(), abort, sums)
}

/// Connects GPUs as planned, or else by NCCL; if that fails, returns the plan to sum through the host.
fn among_gpus(
    trial: &Trial,
    planned: &AllReducePlan,
    ordinals: &[u32],
    limit: Duration,
) -> Result<(Vec<RankLink>, Abort, AllReducePlan), AllReducePlan> {
    use crate::{
        cuda::{self, Nccl, QueuedSums},
        plan::{PeerAccess, summed},
    };

    let mut plan = AllReducePlan { nccl: None, ..planned.clone() };
    let through_host = |plan: &AllReducePlan, failure| AllReducePlan {
        by: AllReduceMethod::Host,
        nccl: Some(failure),
        ..plan.clone()
    };
    let gpus = cuda::gpus().map_err(|why| through_host(&plan, NcclFailure::Failed(why)))?;
    let used = ordinals.iter().filter_map(|i| gpus.iter().find(|gpu| gpu.ordinal == *i).cloned());
    let used: Vec<_> = used.collect();
    if planned.by == AllReduceMethod::PeerKernel {
        match cuda::connect(&used, summed(&trial.programs.train), limit) {
            Ok((ranks, abort)) => {
                let links = ranks.into_iter().map(|rank| RankLink::Queued(QueuedSums::Peers(Box::new(rank))));
                return Ok((links.collect(), abort, plan));
            }
            Err(refused) => plan.peers = PeerAccess::Failed(refused),
        }
    }
    let nccl = Nccl::open().map_err(|why| through_host(&plan, NcclFailure::Missing(Some(why))))?;
    let connected = nccl.communicators(&used, limit);
    let (ranks, abort) = connected.map_err(|why| through_host(&plan, NcclFailure::Failed(why)))?;
    plan.by = AllReduceMethod::Nccl;
    let links = ranks.into_iter().map(|rank| RankLink::Queued(QueuedSums::Nccl(rank)));
    Ok((links.collect(), abort, plan))
}

/// Returns a device with the trial loaded.
pub fn executor(
    trial: &Trial,
    place: DeviceId,
    programs: Programs,
    link: RankLink,
) -> Result<Box<dyn Executor>, DeviceError> {
    // With several devices each has its own thread, whose wait is limited anyway.
    let stuck = matches!(link, RankLink::Alone).then(|| Box::new(end_at_once) as Stuck);
    watched_executor(trial, place, programs, link, stuck)
}

/// The same; `stuck` gets the error of a GPU whose driver does not return from a call.
pub fn watched_executor(
    trial: &Trial,
    place: DeviceId,
    programs: Programs,
    link: RankLink,
    stuck: Option<Stuck>,
) -> Result<Box<dyn Executor>, DeviceError> {
    let memory = match place {
        DeviceId::Gpu(_) | DeviceId::RankGpu { .. } => {
            return gpu_executor(trial, place, programs, link, stuck);
        }
        DeviceId::Virtual(_) => Memory::Separate,
        DeviceId::Cpu | DeviceId::Rank(_) => Memory::Host,
    };
    let setup = CpuSetup {
        device: trial.devices.name_of(place),
        programs,
        kernel: kernel(trial, place)?,
        threads: trial.threads,
        seed: trial.spec.seed,
        collective: if let RankLink::Host(ranks) = link { Some(ranks) } else { None },
        memory,
        sharing: sharing(trial),
        known: KnownTimes {
            estimate_s: Some(trial.lower_bound.settled_s(1)),
            tried_s: trial.engine_reason.tried_s(trial.threads),
        },
    };
    Ok(Box::new(CpuExecutor::new(setup)?))
}

/// The CPU unit that multiplies bfloat16, if the trial does that on the CPU.
pub fn bf16_unit(trial: &Trial) -> Option<&'static str> {
    let computes = trial.spec.devices.precision == Precision::Bf16 && !trial.engine.is_gpu();
    computes.then(Kernel::bf16).flatten().and_then(Kernel::bf16_name)
}

/// The CPU kernel for matrix products, which the plan has already found to be available.
fn kernel(trial: &Trial, place: DeviceId) -> Result<Kernel, DeviceError> {
    match trial.spec.devices.precision {
        Precision::F32 => Ok(Kernel::detect()),
        Precision::Tf32 => Err("the CPU has no tf32".to_owned()),
        Precision::Bf16 => Kernel::bf16().ok_or_else(|| "this processor has no bf16".to_owned()),
    }
    .map_err(|why| DeviceError::Unusable { device: place.to_string(), why })
}

fn gpu_executor(
    trial: &Trial,
    place: DeviceId,
    programs: Programs,
    link: RankLink,
    stuck: Option<Stuck>,
) -> Result<Box<dyn Executor>, DeviceError> {
    use crate::cuda;

    let device = trial.devices.name_of(place);
    let not_here =
        || DeviceError::Unusable { device: device.clone(), why: "it is another process's".to_owned() };
    let ordinal = place.own_gpu().ok_or_else(not_here)?;
    let executor = cuda::CudaExecutor::new(cuda::CudaSetup {
        device,
        gpu: cuda::gpu(ordinal)?,
        programs,
        engine: trial.engine,
        precision: trial.spec.devices.precision,
        seed: trial.spec.seed,
        link,
    })?;
    Ok(Box::new(match stuck {
        Some(stuck) => executor.watched(stuck)?,
        None => executor,
    }))
}

/// Whether this process has stopped using a GPU because it hangs.
pub fn is_given_up(gpu: &Gpu) -> bool {
    gpu.uuid.as_deref().is_some_and(crate::cuda::is_given_up)
}

/// Ends the process when a driver call does not return. Everything recorded so far is in the files.
fn end_at_once(why: DeviceError) {
    print_error(why, None);
    // Skip the exit handlers of libraries: they would wait for that call too.
    signal_hook::low_level::exit(1)
}

/// Chooses the thread mode. A team that the spec asks for is always used.
pub fn sharing(trial: &Trial) -> ThreadMode {
    if trial.spec.devices.engine == EngineChoice::Auto { ThreadMode::Adaptive } else { ThreadMode::Team }
}
