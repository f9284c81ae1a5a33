//! How the devices of a run sum their gradients, and why.

use super::{DeviceId, Machine};
use crate::{
    program::{Op, Program},
    units,
};

/// How.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllReduceMethod {
    /// A kernel of ours on each GPU reads what all have laid down in their own memories.
    PeerKernel,
    /// NCCL, queued among the kernels.
    Nccl,
    /// Through the host's memory, with a wait in every step.
    Host,
}

impl AllReduceMethod {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Self::PeerKernel => "a peer kernel",
            Self::Nccl => "NCCL",
            Self::Host => "the host's memory, with a wait in every step",
        }
    }

    /// Whether a sum is queued like a kernel, so that the host does not wait for it.
    pub fn is_queued(self) -> bool {
        self != Self::Host
    }
}

/// What is said where it is missing.
pub const NO_NCCL: &str = "NCCL is not there";

/// A way, and why that one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllReducePlan {
    /// The way.
    pub by: AllReduceMethod,
    /// Why.
    pub reason: String,
}

impl AllReducePlan {
    /// A way for a reason.
    pub fn new(by: AllReduceMethod, reason: impl Into<String>) -> Self {
        Self { by, reason: reason.into() }
    }

    /// The reason but for that.
    pub fn without_nccl(&self) -> &str {
        let rest = self.reason.strip_prefix(NO_NCCL).and_then(|rest| rest.strip_prefix("; "));
        rest.unwrap_or(&self.reason)
    }

    /// `by NCCL: ...`.
    pub fn in_words(&self) -> String {
        let through = if self.by == AllReduceMethod::Host { "through" } else { "by" };
        format!("{through} {}: {}", self.by.name(), self.reason)
    }
}

/// GPUs that a peer kernel serves at most.
pub const MOST_PEERS: usize = 8;

/// Bytes up to which the peer kernel sums over so many GPUs: every GPU reads all that the others have, so that large sums
/// go better by parts. These are the sizes below which vLLM (csrc/custom_all_reduce.cuh) takes its one-stage kernel.
pub fn peer_bytes(gpus: usize) -> u64 {
    if gpus <= 4 { 512 << 10 } else { 256 << 10 }
}

/// Numbers that a step sums over devices.
pub fn summed(program: &Program) -> usize {
    let sums = program.instructions.iter().map(|i| match &i.op {
        Op::AllReduce(op) => op.of.len,
        _ => 0,
    });
    sums.max().unwrap_or(0)
}

/// How devices sum so many numbers; `None` where no GPU is among them, or nobody else.
pub fn among(used: &[DeviceId], machine: &Machine, numbers: usize) -> Option<AllReducePlan> {
    let gpus: Vec<_> = used.iter().filter_map(|place| Some((*place, place.real_gpu(machine)?))).collect();
    if used.len() < 2 || gpus.is_empty() {
        return None;
    }
    if gpus.len() < used.len() {
        return Some(AllReducePlan::new(AllReduceMethod::Host, "not all of the devices are GPUs"));
    }
    let (bytes, most) = (4 * numbers as u64, peer_bytes(gpus.len()));
    let [size, room] = units::two_sizes(bytes, most);
    let unreached = gpus.iter().find_map(|(place, gpu)| {
        let other = gpus
            .iter()
            .map(|(other, _)| other)
            .find(|other| *other != place && !matches!(other, DeviceId::Gpu(i) if gpu.reaches.contains(i)))?;
        Some(format!("`{place}` cannot access the memory of `{other}`"))
    });
    let alone = gpus.iter().find(|(_, gpu)| !gpu.limits.cooperative);
    let alone =
        alone.map(|(place, _)| format!("`{place}` has no cooperative launches, which a peer kernel is"));
    let refused = (gpus.len() > MOST_PEERS)
        .then(|| format!("a peer kernel is for {MOST_PEERS} GPUs at most"))
        .or_else(|| (bytes > most).then(|| format!("{size} is more than the {room} of a peer kernel")))
        .or(unreached)
        .or(alone);
    let queued = gpus.iter().all(|(_, gpu)| gpu.limits.queued_sums);
    Some(match refused {
        None => {
            let reason = format!("each GPU reads the others' memory, and {size} is no more than {room}");
            AllReducePlan::new(AllReduceMethod::PeerKernel, reason)
        }
        Some(why) if queued => AllReducePlan::new(AllReduceMethod::Nccl, why),
        Some(why) => AllReducePlan::new(AllReduceMethod::Host, format!("{NO_NCCL}; {why}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Gpu, GpuLimits, MachineRates};

    /// So many GPUs that all reach each other.
    fn machine(count: u32, nccl: bool) -> Machine {
        let gpu = |i: u32| {
            let reaches = (0..count).filter(|other| *other != i).collect();
            let limits = GpuLimits { cooperative: true, queued_sums: nccl, ..GpuLimits::default() };
            Gpu { is_virtual: false, reaches, limits, ..Gpu::virtual_of(1 << 30) }
        };
        Machine {
            gpus: (0..count).map(gpu).collect(),
            no_gpu: String::new(),
            memory_available: 1 << 30,
            cache_bytes: 1 << 20,
            rates: MachineRates::typical("avx2"),
            sum_rates: None,
            instruction_set: "avx2".into(),
        }
    }

    fn words(machine: &Machine, numbers: usize) -> String {
        let used: Vec<_> = (0..machine.gpus.len() as u32).map(DeviceId::Gpu).collect();
        among(&used, machine, numbers).map_or_else(|| "none".into(), |sums| sums.in_words())
    }

    #[test]
    fn small_sums_go_from_memory_to_memory_and_large_ones_by_nccl() {
        let four = machine(4, true);
        assert_eq!(
            words(&four, 131_072),
            "by a peer kernel: each GPU reads the others' memory, and 512 KiB is no more than 512 KiB"
        );
        assert_eq!(words(&four, 131_073), "by NCCL: 524,292 B is more than the 524,288 B of a peer kernel");
        assert_eq!(
            words(&machine(8, true), 65_537),
            "by NCCL: 262,148 B is more than the 262,144 B of a peer kernel"
        );
        assert_eq!(words(&machine(9, true), 1), "by NCCL: a peer kernel is for 8 GPUs at most");
        assert_eq!(words(&machine(1, true), 1), "none");
    }

    #[test]
    fn one_pair_that_cannot_is_enough_to_be_refused() {
        let mut three = machine(3, true);
        three.gpus[2].reaches = vec![0];
        assert_eq!(words(&three, 1), "by NCCL: `gpu:2` cannot access the memory of `gpu:1`");
        let mut two = machine(2, false);
        two.gpus[0].limits.cooperative = false;
        assert_eq!(
            words(&two, 1),
            "through the host's memory, with a wait in every step: NCCL is not there; `gpu:0` has no cooperative \
             launches, which a peer kernel is"
        );
        let mixed = among(&[DeviceId::Cpu, DeviceId::Gpu(0)], &two, 1);
        assert_eq!(mixed, Some(AllReducePlan::new(AllReduceMethod::Host, "not all of the devices are GPUs")));
        assert_eq!(among(&[DeviceId::Virtual(0), DeviceId::Virtual(1)], &two, 1), None);
    }
}
