//! Chooses which copies to measure, given the devices of the machine.

use super::{DeviceId, Machine, gpus_in_words};
use crate::spec::lab::{Direction, Memory, Transfer};

/// A copy from one memory to another, with one kind of host memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyPlan {
    /// The source device.
    pub from: DeviceId,
    /// The destination device.
    pub to: DeviceId,
    /// Whether the host's memory is pinned or pageable, if it takes part.
    pub memory: Option<Memory>,
}

/// All copies, in the order of `transfer.directions`. What cannot be measured is added to `notes`.
pub(super) fn copies(
    transfer: &Transfer,
    used: &[DeviceId],
    machine: &Machine,
    notes: &mut Vec<String>,
) -> Vec<CopyPlan> {
    let gpus: Vec<DeviceId> = used.iter().copied().filter(|place| *place != DeviceId::Cpu).collect();
    let mut copies = Vec::new();
    for direction in &transfer.directions {
        let host = |from, to| {
            let memory = transfer.memory.iter().filter(|memory| is_there(**memory, from, to));
            memory.map(|memory| CopyPlan { from, to, memory: Some(*memory) }).collect::<Vec<_>>()
        };
        let between = |from, to| CopyPlan { from, to, memory: None };
        match direction {
            Direction::HostToDevice => copies.extend(gpus.iter().flat_map(|gpu| host(DeviceId::Cpu, *gpu))),
            Direction::DeviceToHost => copies.extend(gpus.iter().flat_map(|gpu| host(*gpu, DeviceId::Cpu))),
            // A single device copies within its own memory.
            Direction::DeviceToDevice => match &gpus[..] {
                [] => copies.push(between(DeviceId::Cpu, DeviceId::Cpu)),
                [one] => copies.push(between(*one, *one)),
                _ => {
                    let pairs = gpus.iter().flat_map(|a| gpus.iter().map(move |b| (*a, *b)));
                    copies.extend(pairs.filter(|(a, b)| a != b).map(|(a, b)| between(a, b)));
                }
            },
        }
    }
    let crosses = transfer.directions.iter().any(|direction| *direction != Direction::DeviceToDevice);
    if gpus.is_empty() && crosses {
        let names: Vec<_> = transfer.directions.iter().filter(|d| **d != Direction::DeviceToDevice).collect();
        let names: Vec<_> = names.iter().map(|d| format!("`{}`", d.name())).collect();
        let verb = if names.len() == 1 { "needs" } else { "need" };
        let mut why = "the CPU's memory is the host's, so nothing is moved".to_owned();
        if machine.gpus.is_empty() {
            why = format!("{why}; {}", gpus_in_words(machine));
        }
        notes.push(format!("{} {verb} a GPU: {why}; `--virtual-gpus 1` poses as one", names.join(" and ")));
    }
    let without = gpus.iter().any(|gpu| matches!(gpu, DeviceId::Virtual(_)));
    if crosses && without && transfer.memory.contains(&Memory::Pinned) {
        notes.push("`pinned` needs a GPU's driver, and virtual GPUs have none: it is left out".to_owned());
    }
    copies
}

/// Pinned memory needs a GPU's driver, so it needs a real GPU on one side.
fn is_there(memory: Memory, from: DeviceId, to: DeviceId) -> bool {
    memory == Memory::Pageable || [from, to].iter().any(|place| matches!(place, DeviceId::Gpu(_)))
}
