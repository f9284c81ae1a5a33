//! How the devices of a run sum their gradients (all-reduce), and why.

use super::{
    devices::DeviceId,
    machine::{Gpu, Machine},
};
use crate::program::{AllReduce, Op, Program, Programs};

/// How devices sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllReduceMethod {
    /// A kernel of this project, on each GPU, reads the buffers of all other GPUs.
    PeerKernel,
    /// NCCL, queued in the stream like a kernel.
    Nccl,
    /// Through the host's memory, with a wait in every step.
    Host,
}

impl AllReduceMethod {
    /// Whether a sum is queued like a kernel, so that the host does not wait for it.
    pub fn is_queued(self) -> bool {
        self != Self::Host
    }
}

/// Whether the peer kernel can sum, or what prevents it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerAccess {
    /// Every GPU reads the memory of all others, and the sum is small enough.
    Fits {
        bytes: u64,
        /// The most bytes that the peer kernel sums.
        most: u64,
    },
    TooLarge {
        bytes: u64,
        /// The most bytes that the peer kernel sums.
        most: u64,
    },
    Mixed,
    /// Each GPU is of another process, which none of ours maps.
    OtherProcesses,
    TooManyGpus(usize),
    /// The first GPU cannot access the memory of the second.
    Unreached(DeviceId, DeviceId),
    NotCooperative(DeviceId),
    Failed(String),
}

/// Why NCCL cannot sum either, where the peer kernel cannot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NcclFailure {
    /// NCCL is not there; with the reason, if a run has tried to load it.
    Missing(Option<String>),
    Failed(String),
}

/// The fewest elements whose sum over processes starts before all gradients are there: 1 MiB. A smaller sum
/// takes about as long as starting it.
const LEAST_EARLY_SUM: usize = 1 << 18;

/// A method and the reasons for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllReducePlan {
    pub by: AllReduceMethod,
    pub peers: PeerAccess,
    pub nccl: Option<NcclFailure>,
}

/// The instruction of a step that sums over devices, if there is one.
pub fn sum_of(program: &Program) -> Option<&AllReduce> {
    program.instructions.iter().find_map(|i| match &i.op {
        Op::AllReduce(op) => Some(op),
        _ => None,
    })
}

/// The number of elements that a step sums over devices.
pub fn summed(program: &Program) -> usize {
    sum_of(program).map_or(0, |sum| sum.of.len)
}

/// How devices sum `elements` numbers; `None` for a single device, and if no device is a GPU.
pub fn among(used: &[DeviceId], machine: &Machine, elements: usize) -> Option<AllReducePlan> {
    let gpus: Vec<_> = used.iter().filter_map(|place| Some((*place, place.real_gpu(machine)?))).collect();
    if used.len() < 2 || gpus.is_empty() {
        return None;
    }
    let peers = match used[0] {
        DeviceId::RankGpu { .. } => PeerAccess::OtherProcesses,
        _ if gpus.len() < used.len() => PeerAccess::Mixed,
        _ => peers(&gpus, 4 * elements as u64),
    };
    let queued = gpus.iter().all(|(_, gpu)| gpu.limits.queued_sums);
    let (by, nccl) = match peers {
        PeerAccess::Fits { .. } => (AllReduceMethod::PeerKernel, None),
        PeerAccess::Mixed => (AllReduceMethod::Host, None),
        _ if queued => (AllReduceMethod::Nccl, None),
        _ => (AllReduceMethod::Host, Some(NcclFailure::Missing(None))),
    };
    Some(AllReducePlan { by, peers, nccl })
}

/// These programs, with sums that start during the backward pass if the devices are those of several processes and
/// no host waits for the sums: processors sum copies, GPUs with NCCL the gradients themselves.
pub(super) fn start_early(programs: Programs, used: &[DeviceId], sums: Option<&AllReducePlan>) -> Programs {
    let is_queued = sums.is_some_and(|sums| sums.by.is_queued());
    match used.first() {
        Some(DeviceId::Rank(_)) => programs.with_early_sums(LEAST_EARLY_SUM, false),
        Some(DeviceId::RankGpu { .. }) if is_queued => programs.with_early_sums(LEAST_EARLY_SUM, true),
        _ => programs,
    }
}

fn peers(gpus: &[(DeviceId, &Gpu)], bytes: u64) -> PeerAccess {
    let table = gpus.iter().map(|(_, gpu)| gpu.limits.peer_bytes).min_by_key(|t| t.len()).unwrap_or_default();
    let Some(&most) = table.get(gpus.len()) else {
        return PeerAccess::TooManyGpus(table.len().saturating_sub(1));
    };
    if bytes > most {
        return PeerAccess::TooLarge { bytes, most };
    }
    let reaches = |gpu: &Gpu, other| matches!(other, DeviceId::Gpu(i) if gpu.reaches.contains(&i));
    let pairs = gpus.iter().flat_map(|from| gpus.iter().map(move |to| (from, to)));
    let mut others = pairs.filter(|((place, _), (other, _))| place != other);
    if let Some(((from, _), (to, _))) = others.find(|((_, gpu), (other, _))| !reaches(gpu, *other)) {
        return PeerAccess::Unreached(*from, *to);
    }
    match gpus.iter().find(|(_, gpu)| !gpu.limits.cooperative) {
        Some((place, _)) => PeerAccess::NotCooperative(*place),
        None => PeerAccess::Fits { bytes, most },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{
        GpuLimits,
        testing::{self, WIDE, facts},
    };

    /// GPUs that can all access each other's memory.
    fn machine(count: u32, nccl: bool) -> Machine {
        let gpu = |i: u32| {
            let reaches = (0..count).filter(|other| *other != i).collect();
            let peer_bytes = &[0, 0, 512, 512, 256];
            let limits =
                GpuLimits { cooperative: true, queued_sums: nccl, peer_bytes, ..GpuLimits::default() };
            Gpu { is_virtual: false, reaches, limits, ..Gpu::virtual_of(1 << 30) }
        };
        Machine::typical((0..count).map(gpu).collect(), 1 << 30)
    }

    fn planned(machine: &Machine, elements: usize) -> Option<AllReducePlan> {
        let used: Vec<_> = (0..machine.gpus.len() as u32).map(DeviceId::Gpu).collect();
        among(&used, machine, elements)
    }

    #[test]
    fn a_peer_kernel_sums_what_it_can() {
        use AllReduceMethod::{Host, Nccl, PeerKernel};
        let mut unreached = machine(3, true);
        unreached.gpus[2].reaches = vec![0];
        let mut alone = machine(2, false);
        alone.gpus[0].limits.cooperative = false;
        for (machine, elements, by, peers) in [
            (machine(3, true), 128, PeerKernel, PeerAccess::Fits { bytes: 512, most: 512 }),
            (machine(3, true), 129, Nccl, PeerAccess::TooLarge { bytes: 516, most: 512 }),
            (machine(4, true), 65, Nccl, PeerAccess::TooLarge { bytes: 260, most: 256 }),
            (machine(5, true), 1, Nccl, PeerAccess::TooManyGpus(4)),
            (unreached, 1, Nccl, PeerAccess::Unreached(DeviceId::Gpu(2), DeviceId::Gpu(1))),
            (alone.clone(), 1, Host, PeerAccess::NotCooperative(DeviceId::Gpu(0))),
        ] {
            let nccl = (by == Host).then_some(NcclFailure::Missing(None));
            assert_eq!(planned(&machine, elements), Some(AllReducePlan { by, peers, nccl }));
        }
        assert_eq!(planned(&machine(1, true), 1), None);
        let mixed = among(&[DeviceId::Cpu, DeviceId::Gpu(0)], &alone, 1).map(|plan| (plan.by, plan.peers));
        assert_eq!(mixed, Some((Host, PeerAccess::Mixed)));
        assert_eq!(among(&[DeviceId::Virtual(0), DeviceId::Virtual(1)], &alone, 1), None);
        let ranks = [Some(0), None].map(|ordinal| DeviceId::RankGpu { rank: 0, ordinal });
        for (machine, by) in [(machine(1, true), Nccl), (machine(1, false), Host)] {
            let nccl = (by == Host).then_some(NcclFailure::Missing(None));
            let peers = PeerAccess::OtherProcesses;
            assert_eq!(among(&ranks, &machine, 1), Some(AllReducePlan { by, peers, nccl }));
        }
    }
    /// GPUs of several processes sum the gradients themselves, so they need neither more memory nor more copies than if
    /// they summed at the end, as they do through the host's memory, and as GPUs of one process do.
    #[test]
    fn only_sums_of_several_processes_start_early() {
        let layers = format!("model.layers=[{WIDE}]");
        let trial = |machine: &Machine, devices: &[&str]| {
            let overrides = [&[&layers, "devices.engine=launch"], devices].concat();
            let trial = testing::planned(&overrides, facts(1000, 8, false), machine).expect("a plan");
            let early: Vec<_> = trial.programs.train.early_sums().map(|part| part.len).collect();
            (trial, early)
        };
        let over_hosts = |nccl| {
            let mut machine = machine(2, nccl);
            machine.gpus.iter_mut().for_each(|gpu| gpu.limits.most_elements = usize::MAX);
            Machine { ranks: Some(vec!["a".to_owned(); 2]), memory_available: 1 << 40, ..machine }
        };
        let ranks = ["devices.hosts=2", "devices.num_gpus=1"];
        let (early, parts) = trial(&over_hosts(true), &ranks);
        // A layer of 2,048 inputs and outputs, and one of a single output.
        assert_eq!(parts, [2048 * 2048 + 2048 + 2048 + 16 + 16]);
        let (late, none) = trial(&over_hosts(false), &ranks);
        assert_eq!(none, [0; 0]);
        assert_eq!(early.footprint, late.footprint);
        assert_eq!(early.lower_bound.cost, late.lower_bound.cost);
        let of = |trial, purpose| {
            let mut all = crate::plan::transfers(trial).into_iter();
            all.find(|movement| movement.purpose == purpose).map(|movement| (movement.count, movement.bytes))
        };
        assert_eq!(of(&early, "launch"), of(&late, "launch"));
        let alone = Machine { ranks: None, ..over_hosts(true) };
        assert_eq!(trial(&alone, &["devices.num_gpus=2"]).1, [0; 0]);
    }
}
