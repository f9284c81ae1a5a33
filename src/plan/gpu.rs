//! What planning knows of GPUs: which engine runs the steps there, and whether the job fits.

use super::{AllReducePlan, DeviceId, Engine, GpuRates, LowerBound, Speed};
use crate::{
    program::{MOST_COUNTED, MemoryPlan, Programs, Role, is_large},
    spec::{EngineChoice, Precision, Problem, Spec},
    units,
};

/// A GPU, as planning must know it.
#[derive(Clone, Debug, PartialEq)]
pub struct Gpu {
    /// Whether the host only poses as it.
    pub is_virtual: bool,
    /// Its model.
    pub model: String,
    /// As `nvidia-smi` prints it, with `GPU-` or `MIG-` before it, where it is a real one.
    pub uuid: Option<String>,
    /// Bytes of its memory that are free.
    pub memory_free: u64,
    /// Ordinals of the GPUs whose memory it can access.
    pub reaches: Vec<u32>,
    /// What its engines need; all 0 for a virtual one.
    pub limits: GpuLimits,
    /// Its speeds, where they were measured; else nothing is said of what bounds a run on it.
    pub speed: Option<GpuRates>,
}

impl Gpu {
    /// One that the host poses as, in so much of its own memory.
    pub fn virtual_of(memory_free: u64) -> Self {
        let (model, limits) = ("virtual GPU".to_owned(), GpuLimits::default());
        Self { is_virtual: true, model, uuid: None, memory_free, reaches: Vec::new(), limits, speed: None }
    }
}

/// What a device reports of a GPU. Arrays are of the engines `persistent`, `cooperative` and `graph`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GpuLimits {
    /// Compute capability: (9, 0).
    pub capability: (i32, i32),
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Shared memory of a block that a job may fill.
    pub shared_bytes: u64,
    /// Second-level cache.
    pub l2_bytes: u64,
    /// Whether a kernel may have a barrier over its whole grid.
    pub cooperative: bool,
    /// Whether a sum over GPUs can be queued like a kernel: NCCL is there.
    pub queued_sums: bool,
    /// Peak rate of one multiprocessor in f32.
    pub multiprocessor_flops_per_s: f64,
    /// Typical seconds of an instruction beside its work.
    pub instruction_s: [f64; 3],
    /// Share of the peak that small products reach.
    pub product_shares: [f64; 3],
}

/// Bytes that a job takes on a GPU whatever it is: tables of counters and rates, and up to 32 MiB that cuBLASLt works in.
const FIXED_BYTES: u64 = 40 << 20;

/// What was chosen.
pub struct Chosen {
    /// What runs the steps.
    pub engine: Engine,
    /// Why, in words.
    pub reason: String,
}

/// Picks the engine of GPUs that share a run; `queued`: whether their sums are queued like kernels.
fn among_several(choice: EngineChoice, queued: bool) -> Result<Chosen, Problem> {
    let (engine, reason) = match choice {
        EngineChoice::Auto if queued => (Engine::Graph, "sums over GPUs are queued among the kernels"),
        EngineChoice::Auto => (Engine::Launch, "gradients are summed over devices between launches"),
        EngineChoice::Launch => (Engine::Launch, "the spec asks for it"),
        EngineChoice::Graph if queued => (Engine::Graph, "the spec asks for it"),
        other => {
            let message = format!("the engine `{}` cannot sum over several devices", other.name());
            let hint = match other {
                EngineChoice::Graph => {
                    "it needs NCCL, which is not there; `runner devices` says what was looked for"
                }
                _ => "leave `devices.engine` out: the plan picks one that fits",
            };
            return Err(Problem::at_key("devices.engine", message).hint(hint));
        }
    };
    Ok(Chosen { engine, reason: reason.into() })
}

/// Picks the engine of real GPUs. Of several, their sums decide.
pub fn engine(
    spec: &Spec,
    programs: &Programs,
    gpus: &[&Gpu],
    (sums, data_bytes): (Option<&AllReducePlan>, u64),
) -> Result<Chosen, Problem> {
    let choice = spec.devices.engine;
    let at = |message: String| Problem::at_key("devices.engine", message);
    let leave = "leave `devices.engine` out: the plan picks one that fits";
    if let Some(sums) = sums {
        return among_several(choice, sums.by.is_queued());
    }
    let limits = gpus.first().map(|gpu| gpu.limits).unwrap_or_default();
    let needed = 4 * MemoryPlan::new(programs).train.elements as u64;
    let room = limits.shared_bytes;
    let fits = needed <= room;
    let given = |engine| Ok(Chosen { engine, reason: "the spec asks for it".into() });
    match choice {
        EngineChoice::Serial | EngineChoice::Team => {
            Err(at(format!("the engine `{}` runs on the CPU, and this run uses a GPU", choice.name()))
                .hint(leave))
        }
        EngineChoice::Persistent if !fits => Err(at(format!(
            "the engine `persistent` keeps {} of this job in shared memory, and a block of this GPU has {}",
            units::bytes(needed),
            units::bytes(room)
        ))
        .hint(leave)),
        EngineChoice::Cooperative if !limits.cooperative => {
            Err(at("this GPU has no cooperative launches".into()).hint(leave))
        }
        EngineChoice::Persistent => given(Engine::Persistent),
        EngineChoice::Cooperative => given(Engine::Cooperative),
        EngineChoice::Graph => given(Engine::Graph),
        EngineChoice::Launch => given(Engine::Launch),
        EngineChoice::Auto => {
            let speed = gpus.first().and_then(|gpu| gpu.speed);
            let measured = speed.map(|speed| floors(programs, &speed, spec.devices.precision, data_bytes));
            let by = if measured.is_some() { "by measured rates" } else { "as estimated" };
            Ok(pick(measured.unwrap_or_else(|| estimates(programs, limits)), by, limits, fits))
        }
    }
}

/// The least time among the engines that can.
fn pick([persistent, cooperative, graph]: [f64; 3], by: &str, limits: GpuLimits, fits: bool) -> Chosen {
    let mut all = vec![(Engine::Graph, graph)];
    if limits.cooperative {
        all.push((Engine::Cooperative, cooperative));
    }
    if fits {
        all.push((Engine::Persistent, persistent));
    }
    all.sort_by(|a, b| a.1.total_cmp(&b.1));
    let words: Vec<_> = all.iter().map(|(e, s)| format!("`{}` {}", e.name(), units::seconds(*s))).collect();
    let engine = all.first().map_or(Engine::Graph, |(engine, _)| *engine);
    Chosen { engine, reason: format!("a step may take, {by}: {}", words.join(", ")) }
}

/// The floors of a step: persistent, cooperative, graph.
fn floors(programs: &Programs, speed: &GpuRates, precision: Precision, data_bytes: u64) -> [f64; 3] {
    [Engine::Persistent, Engine::Cooperative, Engine::Graph].map(|engine| {
        // Rows that are streamed come as quickly to any of them.
        let by = Speed { upload_bytes_per_s: None, ..speed.speed(engine, precision) };
        LowerBound::new(programs, by, data_bytes).serial_s()
    })
}

/// Seconds of a step, as estimated: persistent, cooperative, graph.
fn estimates(programs: &Programs, limits: GpuLimits) -> [f64; 3] {
    let instructions = programs.train.instructions.len() as f64;
    let flops = programs.train.cost().flops;
    let one = limits.multiprocessor_flops_per_s;
    let all = one * f64::from(limits.multiprocessors.max(1));
    let peaks = [one, all, all];
    let seconds =
        |i: usize| instructions * limits.instruction_s[i] + flops / (peaks[i] * limits.product_shares[i]);
    [0, 1, 2].map(seconds)
}

/// Refuses an instruction with more numbers than kernels count.
pub fn countable(programs: &Programs) -> Result<(), Problem> {
    let all = [Some(&programs.train), programs.validate.as_ref()];
    let mut most = 0;
    for instruction in all.into_iter().flatten().flat_map(|program| &program.instructions) {
        instruction.op.access().touched().for_each(|slice| most = most.max(slice.len));
    }
    if most <= MOST_COUNTED {
        return Ok(());
    }
    let message =
        format!("the kernels of a GPU count to {MOST_COUNTED}, and an instruction has {most} numbers");
    Err(if programs.layout.parameter_count() > MOST_COUNTED as u64 {
        Problem::at_key("model.layers", message).hint("make the model smaller")
    } else {
        Problem::at_key("data.batch_size", message).hint("lower it")
    })
}

/// Whether a program has a product that the library does, so that its update must stand apart from it.
pub fn has_large_product(programs: &Programs) -> bool {
    programs.train.instructions.iter().any(|i| i.op.product().is_some_and(is_large))
}

/// An explicit choice that only GPUs have is refused on the CPU, which virtual GPUs compute on: nothing is changed
/// silently.
pub fn refuse_on_cpu(spec: &Spec, used: &[DeviceId]) -> Result<(), Problem> {
    let devices = &spec.devices;
    let is_virtual = used.iter().any(|place| matches!(place, DeviceId::Virtual(_)));
    let (real, why) = match is_virtual {
        true => ("real ", "virtual GPUs compute on the CPU"),
        false => ("", "this run uses the CPU"),
    };
    if devices.precision != Precision::F32 {
        let precision = devices.precision.name();
        let message = format!("`precision = \"{precision}\"` needs a {real}GPU, and {why}");
        return Err(
            Problem::at_key("devices.precision", message).hint("leave it out: the CPU computes in f32")
        );
    }
    match devices.engine {
        EngineChoice::Auto | EngineChoice::Serial | EngineChoice::Team => Ok(()),
        other => {
            let message = format!("the engine `{}` runs on a {real}GPU, and {why}", other.name());
            Err(Problem::at_key("devices.engine", message)
                .hint("leave it out: the plan picks one of the CPU's"))
        }
    }
}

/// Bytes of a job on one GPU.
pub fn bytes(programs: &Programs, data_bytes: u64, chunk_bytes: u64) -> u64 {
    let layout = &programs.layout;
    let of = |role: Role| {
        let buffers = layout.buffers.iter().filter(|b| b.role == role);
        buffers.fold(0u64, |sum, b| sum.saturating_add((b.len as u64).saturating_mul(4)))
    };
    let arena = 4 * MemoryPlan::new(programs).elements() as u64;
    let own = arena.saturating_add(of(Role::Log)).saturating_add(FIXED_BYTES);
    own.saturating_add(data_bytes).saturating_add(chunk_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        program::{LossKind, Options, Sgd, Shard, UpdateRule, lower},
        spec::{Layer, Linear, Metric, Policy},
    };

    fn programs(batch: usize, width: usize) -> Programs {
        let linear = |out_features| Layer::Linear(Linear { out_features, in_features: None, bias: true });
        lower(&Options {
            layers: &[linear(width), Layer::Relu, linear(1)],
            loss: LossKind::Mse,
            features: 1000,
            targets: 1,
            rule: UpdateRule::Sgd(Sgd { momentum: false, nesterov: false, weight_decay: 0.0 }),
            clip: None,
            metrics: &[Metric::Loss],
            policy: Policy::Buffered,
            log_slots: 1,
            batch,
            last: None,
            validation: None,
            ordered: true,
            streamed: false,
            shard: Shard::WHOLE,
            fold_update: false,
        })
    }

    #[test]
    fn what_kernels_cannot_count_is_refused() {
        assert_eq!(countable(&programs(1 << 20, 2047)), Ok(()));
        // Eight and a half gigabytes of activations; weights of that size.
        let message = "the kernels of a GPU count to 2147000000, and an instruction has 2147483648 numbers";
        let want = Problem::at_key("data.batch_size", message).hint("lower it");
        assert_eq!(countable(&programs(1 << 20, 2048)), Err(want));
        let refused = countable(&programs(1, 2_147_483)).expect_err("too large");
        assert_eq!(refused.hint.as_deref(), Some("make the model smaller"));
    }
}
