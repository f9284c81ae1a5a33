//! GPUs of several processes, connected by NCCL once all of them are there.

use std::{sync::Arc, time::Duration};

use crate::{
    collective::{CollectiveError, ProcessGroup},
    cuda::RankLink,
    device::{Device, DeviceError, Executor, remote},
    plan::{AllReduceMethod, Trial},
};

/// Whether the GPUs of a trial over hosts sum by NCCL.
pub fn is_planned(trial: &Trial) -> bool {
    trial.devices.over_hosts() && trial.sums.as_ref().is_some_and(|sums| sums.by == AllReduceMethod::Nccl)
}

/// Rank 0: has all processes connect their GPUs, and `load`s its own device. If one cannot, none goes on. A sum waits for the
/// others at most `limit`.
pub fn connect_all(
    trial: &Trial,
    world: &Arc<ProcessGroup>,
    limit: Duration,
    load: impl FnOnce(RankLink) -> Result<Box<dyn Executor>, DeviceError>,
) -> Result<Box<dyn Executor>, DeviceError> {
    let id = identifier()?;
    let gone = |source| DeviceError::Collective { device: world.name_of(0), step: 0, source };
    remote::ask_to_connect(world, &id).map_err(gone)?;
    let own = link(trial, world, &id, limit).and_then(load);
    if own.is_err() {
        world.abort().now();
    }
    let others = remote::wait_for_connections(world);
    if others.is_err() {
        // Before the own one ends: it must not wait for the others then.
        world.abort().now();
    }
    match (own, others) {
        (Err(DeviceError::Collective { source: CollectiveError::Poisoned, .. }), Err(cause)) => Err(cause),
        (Ok(_), Err(cause)) => Err(cause),
        (own, _) => own,
    }
}

/// Another rank: the device that it `load`s, connected. `None` where the job is over instead.
pub fn connect(
    trial: &Trial,
    world: &Arc<ProcessGroup>,
    limit: Duration,
    load: impl FnOnce(RankLink) -> Result<Device, DeviceError>,
) -> Result<Option<Device>, CollectiveError> {
    let Some(id) = remote::wait_for_identifier(world)? else { return Ok(None) };
    let own = link(trial, world, &id, limit).and_then(load);
    if own.is_err() {
        world.abort().now();
    }
    remote::report_connection(world, own.as_ref().map(drop))?;
    match own {
        Ok(own) => Ok(Some(own)),
        Err(_) => remote::wait_for_end(world).map(|()| None),
    }
}

/// As `NCCL 2.27`.
pub fn version(trial: &Trial) -> String {
    let nccl = is_planned(trial).then(|| crate::cuda::Nccl::open().ok()).flatten();
    nccl.map_or_else(
        || "without NCCL".to_owned(),
        |nccl| {
            let (major, minor) = nccl.version();
            format!("NCCL {major}.{minor}")
        },
    )
}

fn identifier() -> Result<Vec<u8>, DeviceError> {
    let id = crate::cuda::Nccl::open().and_then(|nccl| nccl.unique_id());
    id.map(|id| id.0.to_vec()).map_err(DeviceError::Remote)
}

fn link(
    trial: &Trial,
    world: &Arc<ProcessGroup>,
    id: &[u8],
    limit: Duration,
) -> Result<RankLink, DeviceError> {
    use crate::cuda::{self, Nccl, NcclId, QueuedSums};

    let device = world.name_of(world.rank());
    let unusable = |why: String| DeviceError::Unusable { device: device.clone(), why };
    let foreign = |_| unusable("NCCL's identifier has another length".to_owned());
    let id = NcclId(id.try_into().map_err(foreign)?);
    let own = trial.devices.used.iter().find_map(|place| place.own_gpu());
    let gpu = cuda::gpu(own.ok_or_else(|| unusable("it has no GPU".to_owned()))?)?;
    let nccl = Nccl::open().map_err(unusable)?;
    let communicator = nccl.communicator(gpu, &id, world, limit)?;
    Ok(RankLink::Queued(QueuedSums::Nccl(communicator)))
}
