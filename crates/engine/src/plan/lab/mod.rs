//! Plans an experiment of the lab before it runs: resolves devices, checks shapes, counts memory.

mod net;
mod outlook;
mod step;
mod tensors;
mod transfer;

use std::collections::BTreeMap;

use super::{
    DeviceId, Lack, Machine, PlanError, ResolvedDevices,
    devices::{choose_here, gpus_in_words},
};
use crate::{
    spec::{
        DeviceName, Lab, LabSpec, Policy, Problem, Request,
        lab::{Matmul, Norm, Operands, Tensors},
    },
    units,
};

pub use step::{Action, NetParameter, Outlook, StepPlan, TensorsPlan, Value};
pub use tensors::{FindShape, product};
pub use transfer::CopyPlan;

/// The most norms that a device keeps before they are moved, however long `flush_every` is.
const MOST_KEPT: u64 = 1 << 20;

/// One trial of the lab, ready to run.
#[derive(Clone, Debug)]
pub struct LabTrial {
    /// The spec with everything filled in.
    pub spec: LabSpec,
    /// The devices that were requested and those that are used.
    pub devices: ResolvedDevices,
    /// What the trial does.
    pub work: Work,
    /// Threads of the CPU.
    pub threads: usize,
    /// The most bytes that each device holds.
    pub memory: Vec<(DeviceId, u64)>,
    /// What cannot be done on this machine, and why.
    pub notes: Vec<String>,
}

/// The work of a trial, by the kind of experiment.
#[derive(Clone, Debug, PartialEq)]
pub enum Work {
    /// Products of these shapes (m, k, n) on every device.
    Matmul {
        /// m, k, n.
        shapes: Vec<[usize; 3]>,
        /// Norms that a device keeps before they are moved to the host.
        kept: usize,
    },
    /// Copies.
    Transfer(Vec<CopyPlan>),
    /// Tensors, step by step.
    Tensors(TensorsPlan),
}

/// Plans one trial. The host may use `threads`; `find_shape` looks into files that steps load.
///
/// # Errors
/// If the spec is wrong for this machine, or a device is missing.
pub fn plan(
    spec: &LabSpec,
    machine: &Machine,
    threads: usize,
    find_shape: FindShape<'_>,
) -> Result<LabTrial, PlanError> {
    let mut spec = spec.clone();
    let mut devices =
        choose_here(&spec.devices.request, spec.devices.on_missing, machine).map_err(PlanError::Missing)?;
    let mut notes: Vec<String> = devices.lack.iter().map(Lack::to_string).collect();
    let (work, memory, key) = match &spec.lab {
        Lab::Matmul(matmul) => {
            let policy = spec.logging.as_ref().map_or(Policy::Off, |logging| logging.policy);
            let flush = spec.logging.as_ref().and_then(|logging| logging.flush_every);
            let kept = match policy {
                Policy::Immediate => 1,
                Policy::Buffered => flush.unwrap_or(matmul.count).min(matmul.count).min(MOST_KEPT),
                Policy::PerEpoch => matmul.count.min(MOST_KEPT),
                Policy::Off => 1,
            };
            if let (Policy::Buffered, Some(logging)) = (policy, &mut spec.logging) {
                logging.flush_every = Some(kept);
            }
            let shapes = matmul.operands.shapes();
            let bytes = matmul_bytes(matmul, &shapes, kept);
            let memory = devices.used.iter().map(|place| (*place, bytes)).collect();
            let largest = largest(shapes.iter().map(numbers));
            let key = match matmul.operands {
                Operands::Sizes(_) => format!("matmul.sizes.{largest}"),
                Operands::Shapes(_) => format!("matmul.shapes.{largest}"),
            };
            (Work::Matmul { shapes, kept: kept as usize }, memory, key)
        }
        Lab::Transfer(transfer) => {
            let copies = transfer::copies(transfer, &devices.used, machine, &mut notes);
            let most = transfer.sizes.iter().copied().max().unwrap_or(0);
            let key = format!("transfer.sizes.{}", largest(transfer.sizes.iter().copied()));
            let mut memory: BTreeMap<DeviceId, u64> = BTreeMap::new();
            for place in copies.iter().flat_map(|copy| [copy.from, copy.to]) {
                memory.entry(place).or_insert(most.saturating_mul(2));
            }
            (Work::Transfer(copies), memory.into_iter().collect(), key)
        }
        Lab::Tensors(tensors) => {
            check_named(tensors, &spec.devices.request)?;
            let planned = tensors::steps(tensors, &spec.devices, &devices, machine, find_shape)?;
            notes.extend(planned.note);
            devices = ResolvedDevices::new(planned.requested, planned.used, devices.lack, machine);
            (Work::Tensors(planned.plan), planned.memory, planned.largest)
        }
    };
    check_memory(&memory, machine, &key).map_err(|problem| PlanError::Problems(vec![problem]))?;
    Ok(LabTrial { spec, devices, work, threads, memory, notes })
}

/// Checks that no step is on a GPU that `devices.use` leaves out.
fn check_named(tensors: &Tensors, request: &Request) -> Result<(), PlanError> {
    let Request::Use(named) = request else { return Ok(()) };
    let is_other = |device: &DeviceName| *device != DeviceName::Cpu && !named.contains(device);
    let mut others = tensors.step.iter().map(|step| step.device.filter(is_other)).enumerate();
    let Some((index, device)) = others.find_map(|(index, device)| Some((index, device?))) else {
        return Ok(());
    };
    let message = format!("`devices.use` leaves out `{device}`, which this step is on");
    let problem = Problem::at_key(format!("tensors.step.{index}.device"), message);
    let hint = "name it there, too, or leave `devices.use` out: each step has the device that it names";
    Err(PlanError::Problems(vec![problem.hint(hint)]))
}

/// The index of the largest size; the first of equal ones.
fn largest(sizes: impl Iterator<Item = u64>) -> usize {
    let places = sizes.enumerate().map(|(place, size)| (size, std::cmp::Reverse(place)));
    places.max().map_or(0, |(_, std::cmp::Reverse(place))| place)
}

/// Elements of both factors and of the product.
fn numbers([m, k, n]: &[usize; 3]) -> u64 {
    let area = |a: usize, b: usize| (a as u64).saturating_mul(b as u64);
    area(*m, *k).saturating_add(area(*k, *n)).saturating_add(area(*m, *n))
}

/// Bytes of factors, product and norms of the largest shape.
fn matmul_bytes(matmul: &Matmul, shapes: &[[usize; 3]], kept: u64) -> u64 {
    let kept = if matmul.norm == Norm::None { 0 } else { kept };
    let elements = |[m, k, n]: &[usize; 3]| {
        let area = |a: usize, b: usize| (a as u64).saturating_mul(b as u64);
        let factors = area(*m, *k).saturating_add(area(*k, *n)).saturating_mul(matmul.matrices);
        factors.saturating_add(area(*m, *n))
    };
    let most = shapes.iter().map(elements).max().unwrap_or(0);
    most.saturating_add(kept + 1).saturating_mul(4)
}

/// Checks each memory. The CPU and virtual GPUs share the host's.
fn check_memory(memory: &[(DeviceId, u64)], machine: &Machine, key: &str) -> Result<(), Problem> {
    let on_host = memory.iter().filter(|(place, _)| !matches!(place, DeviceId::Gpu(_)));
    let host = on_host.map(|(_, bytes)| *bytes).fold(0u64, u64::saturating_add);
    let mut rooms = vec![(host, machine.memory_available, "the host".to_owned())];
    for (place, bytes) in memory {
        if let DeviceId::Gpu(i) = place {
            let free = machine.gpus.get(*i as usize).map_or(0, |gpu| gpu.memory_free);
            rooms.push((*bytes, free, place.to_string()));
        }
    }
    match rooms.into_iter().find(|(needed, free, _)| needed > free) {
        Some((needed, free, place)) => {
            let [needed, free] = units::two_sizes(needed, free);
            let message = format!("this needs {needed} of memory on {place}, and {free} are available");
            Err(Problem::at_key(key, message).hint("make it smaller"))
        }
        None => Ok(()),
    }
}
