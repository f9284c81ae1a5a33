//! Four engines that use the same records: one persistent block, a cooperative grid, a captured graph, single launches.

use std::ffi::c_void;

use cudarc::driver::sys::CUfunction;

use super::{
    copies::Conversion,
    gpu_context::{GpuContext, QueuedSums},
    loaded::{GRAPH_STEPS, Loaded, LoadedEngine},
    step_sequence::StepSequence,
    steps::{Launch, LaunchKind, Steps},
};
use crate::{
    all_reduce::Communicator,
    device::DeviceError,
    launch::{Graph, Shape, Stream, arguments, blocks_at_once, launch},
    op::{GRID_THREADS, Record, RunRecord},
    plan,
};

/// The most blocks of `interpret_grid`.
const MOST_BLOCKS: u64 = 1024;

impl GpuContext {
    /// Queues one instruction. A sum through the host cannot be queued.
    pub fn queue(&self, work: &LaunchKind) -> Result<(), DeviceError> {
        match work {
            LaunchKind::Kernel { record, shape } => self.kernel(*record, *shape),
            LaunchKind::Product(product) => {
                product.before.iter().try_for_each(|conversion| self.convert(*conversion))?;
                product.queue(self)?;
                match product.follow {
                    Some((record, shape)) => self.kernel(record, shape),
                    None => Ok(()),
                }
            }
            LaunchKind::AllReduce { at, len, rest } => match (&self.sums, &self.side) {
                (Some(QueuedSums::Peers(peers)), _) => {
                    peers.all_reduce(&self.stream, self.arena.at + 4 * at, *len, self.run.at)
                }
                (Some(QueuedSums::Nccl(nccl)), None) => self.sum(nccl, &self.stream, *at, *len),
                (Some(QueuedSums::Nccl(nccl)), Some(side)) => {
                    self.sum(nccl, side.fork(&self.stream)?, *at, *rest)?;
                    side.join(&self.stream)
                }
                (None, _) => Ok(()),
            },
            LaunchKind::StartAllReduce { at, len } => match (self.nccl(), &self.side) {
                (Some(nccl), Some(side)) => self.sum(nccl, side.fork(&self.stream)?, *at, *len),
                // The sum of all gradients has this part, too.
                _ => Ok(()),
            },
        }
    }

    /// Queues a bfloat16 copy.
    pub fn convert(&self, Conversion { from, to, n }: Conversion) -> Result<(), DeviceError> {
        let [from, to] = [from, to].map(|place| self.arena.at + 4 * place);
        let shape = Shape::new(n.div_ceil(1024), self.context.gpu.multiprocessors.saturating_mul(4));
        // SAFETY: (const float*, u16*, u64); both lie within the arena.
        unsafe { self.launch(self.context.ops()?.copy_bf16, shape, arguments![from, to, n], "copy_bf16") }
    }

    fn sum(&self, nccl: &Communicator, stream: &Stream, at: u64, len: usize) -> Result<(), DeviceError> {
        let sum = nccl.all_reduce(stream, self.arena.at + 4 * at, len);
        sum.map_err(|lost| self.lost(lost, "queuing a sum over GPUs".into()))
    }

    fn kernel(&self, record: Record, shape: Shape) -> Result<(), DeviceError> {
        let (kind, arena, run) = (record.kind(), self.arena.at, self.run.at);
        let function = self.context.ops()?.get(kind);
        // SAFETY: (Op, float*, Run*); the record's offsets lie within the arena.
        unsafe { self.launch(function, shape, arguments![record, arena, run], kind.kernel()) }
    }

    /// Ends a step, unless its last launch does.
    pub fn advance(&self, steps: &Steps) -> Result<(), DeviceError> {
        if steps.ends_itself {
            return Ok(());
        }
        let arguments = arguments![self.run.at, steps.rows, steps.own_rows];
        // SAFETY: (Run*, int, int).
        unsafe { self.launch(self.context.ops()?.advance, Shape::WARP, arguments, "advance") }
    }

    /// Runs `count` steps in one block, which keeps `elements` of the arena in shared memory.
    pub fn interpret(
        &self,
        [arena, run]: [u64; 2],
        steps: &Steps,
        count: usize,
        threads: u32,
        elements: usize,
    ) -> Result<(), DeviceError> {
        let shape = Shape { threads, shared_bytes: 4 * elements as u32, ..Shape::WARP };
        let Steps { records, count: ops, rows, own_rows, .. } = steps;
        let count = count as i32;
        let arguments = arguments![records.at, *ops, arena, elements as i32, run, count, *rows, *own_rows];
        // SAFETY: (const Op*, int, float*, int, Run*, int, int, int).
        unsafe { self.launch(self.context.interpret()?, shape, arguments, "interpret") }
    }

    /// Runs `count` steps in a cooperative grid.
    fn interpret_grid(
        &self,
        [arena, run]: [u64; 2],
        steps: &Steps,
        count: usize,
        blocks: u32,
    ) -> Result<(), DeviceError> {
        let shape = Shape { blocks, threads: GRID_THREADS, shared_bytes: 0, together: true };
        let Steps { records, count: ops, rows, own_rows, .. } = steps;
        let barrier = self.barrier.at;
        let arguments = arguments![records.at, *ops, arena, run, barrier, count as i32, *rows, *own_rows];
        // SAFETY: (const Op*, int, float*, Run*, unsigned*, int, int, int).
        unsafe { self.launch(self.context.interpret_grid()?, shape, arguments, "interpret_grid") }
    }

    /// Queues a kernel.
    ///
    /// # Safety
    /// See [`launch`].
    pub unsafe fn launch(
        &self,
        function: CUfunction,
        shape: Shape,
        arguments: &mut [*mut c_void],
        name: &'static str,
    ) -> Result<(), DeviceError> {
        // SAFETY: guaranteed by the caller.
        unsafe { launch(&self.context, &self.stream, function, shape, arguments, name) }
    }

    fn step(&self, steps: &Steps) -> Result<(), DeviceError> {
        steps.launches.iter().try_for_each(|Launch { work, .. }| self.queue(work))?;
        self.advance(steps)
    }
}

impl Loaded {
    /// Prepares the engine.
    pub(super) fn load_engine(&self, gpu: &GpuContext) -> Result<LoadedEngine, DeviceError> {
        let (context, engine, full) = (&gpu.context, self.interpreter(gpu), &self.full);
        let queued = gpu.sums.is_some() && engine == plan::Engine::Graph;
        if full.reduces() && engine != plan::Engine::Launch && !queued {
            let way = if gpu.sums.is_some() { "" } else { " through the host" };
            return Err(context.unusable(format!(
                "sums over devices{way} cannot be part of the engine `{}`; set `devices.engine = \"launch\"`",
                engine.name()
            )));
        }
        match engine {
            plan::Engine::Persistent => {
                let (bytes, room) = (4 * self.elements as u64, context.gpu.job_shared_bytes());
                if bytes > room {
                    return Err(context.unusable(format!(
                        "the engine `persistent` keeps {bytes} bytes of this job in shared memory, and a block has \
                         {room}; leave `devices.engine` to the plan"
                    )));
                }
                gpu.context.interpret()?; // loaded here, and not with the first launch
                Ok(LoadedEngine::Persistent { threads: interpreter_threads(full.widest) })
            }
            plan::Engine::Cooperative => {
                if !context.gpu.cooperative {
                    let why = "it has no cooperative launches; leave `devices.engine` to the plan";
                    return Err(context.unusable(why));
                }
                let at_once = blocks_at_once(context, gpu.context.interpret_grid()?, GRID_THREADS, 0)?;
                // Blocks without work would only slow down the barrier.
                let useful = full.widest.div_ceil(u64::from(GRID_THREADS));
                let blocks = useful.min(at_once).clamp(1, MOST_BLOCKS) as u32;
                Ok(LoadedEngine::Cooperative { blocks })
            }
            plan::Engine::Graph => {
                // A capture must not load kernels.
                gpu.context.ops()?;
                let capture = |steps: &Steps, count: usize| {
                    Graph::capture(context, &gpu.stream, || (0..count).try_for_each(|_| gpu.step(steps)))
                };
                let (many, one) = (capture(full, GRAPH_STEPS)?, capture(full, 1)?);
                let last = self.last.as_ref().map(|last| capture(last, 1)).transpose()?;
                Ok(LoadedEngine::Graph { many, one, last })
            }
            _ => gpu.context.ops().map(|_| LoadedEngine::Launch),
        }
    }

    /// Queues steps.
    ///
    /// # Errors
    /// The engine is not loaded, or a launch fails.
    pub fn queue(&self, gpu: &GpuContext, steps: &StepSequence) -> Result<(), DeviceError> {
        let unloaded = || gpu.context.unusable("its engine is not loaded");
        let engine = self.loaded_engine.as_ref().ok_or_else(unloaded)?;
        if let Some(compiled) = &self.compiled {
            return compiled.queue(gpu, steps.steps);
        }
        let places = [gpu.arena.at, gpu.run.at];
        steps.runs().try_for_each(|(count, is_last)| match engine {
            LoadedEngine::Graph { last: Some(last), .. } if is_last => last.launch(&gpu.stream),
            LoadedEngine::Graph { many, one, .. } => {
                (0..count / GRAPH_STEPS).try_for_each(|_| many.launch(&gpu.stream))?;
                (0..count % GRAPH_STEPS).try_for_each(|_| one.launch(&gpu.stream))
            }
            engine => engine.interpret(gpu, places, self.of_step(is_last), count, self.elements),
        })
    }

    /// The step on a full batch, or on the last one of an epoch.
    pub fn of_step(&self, is_last: bool) -> &Steps {
        self.last.as_ref().filter(|_| is_last).unwrap_or(&self.full)
    }

    /// The engine that runs these programs where no compiled step does.
    pub fn interpreter(&self, gpu: &GpuContext) -> plan::Engine {
        match self.engine {
            plan::Engine::Compiled if 4 * self.elements as u64 <= gpu.context.gpu.job_shared_bytes() => {
                plan::Engine::Persistent
            }
            plan::Engine::Compiled => plan::Engine::Cooperative,
            engine => engine,
        }
    }
}

impl LoadedEngine {
    /// Queues `count` steps by the interpreter, or launch by launch if the engine has none.
    pub fn interpret(
        &self,
        gpu: &GpuContext,
        places: [u64; 2],
        steps: &Steps,
        count: usize,
        elements: usize,
    ) -> Result<(), DeviceError> {
        match self {
            Self::Persistent { threads } => gpu.interpret(places, steps, count, *threads, elements),
            Self::Cooperative { blocks } => gpu.interpret_grid(places, steps, count, *blocks),
            Self::Graph { .. } | Self::Launch => (0..count).try_for_each(|_| gpu.step(steps)),
        }
    }
}

/// Threads of the persistent block: about four elements of the widest instruction per thread, since more
/// threads make every barrier slower.
fn interpreter_threads(widest: u64) -> u32 {
    widest.div_ceil(4).next_power_of_two().clamp(64, 512) as u32
}

const _: () = assert!(size_of::<RunRecord>().is_multiple_of(16), "learning rates follow the counters");
