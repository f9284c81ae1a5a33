//! The four engines, all over the same records: one persistent block, one cooperative grid, a captured graph, single
//! launches.

use std::ffi::c_void;

use cudarc::driver::sys::CUfunction;

use super::{
    gpu_context::GpuContext,
    steps::{Launch, LaunchKind, Steps},
};
use crate::{
    device::{
        DeviceError,
        cuda::launch::{Graph, Shape, argument, launch},
    },
    op::{Record, RunRecord},
    plan,
};

/// The driver's `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`.
const MOST_DYNAMIC_SHARED: i32 = 8;
/// Blocks that `interpret_grid` may have at most.
const MOST_BLOCKS: u64 = 1024;
const GRID_THREADS: u32 = 256;
/// Steps per graph, so that the cost of its launch is shared by many.
const GRAPH_STEPS: usize = 16;

impl GpuContext {
    /// Queues one instruction. A sum through the host is not queued.
    pub fn queue(&self, work: &LaunchKind) -> Result<(), DeviceError> {
        match work {
            LaunchKind::Kernel { record, shape } => self.kernel(*record, *shape),
            LaunchKind::Product(product) => {
                product.queue(&self.context, &self.stream)?;
                match product.follow {
                    Some((record, shape)) => self.kernel(record, shape),
                    None => Ok(()),
                }
            }
            LaunchKind::AllReduce { at, len } => {
                let at = self.arena.at + 4 * at;
                if let Some(peers) = &self.peers {
                    return peers.all_reduce(&self.stream, at, *len, self.run.at);
                }
                let Some(others) = &self.others else { return Ok(()) };
                let queued = others.all_reduce(&self.stream, at, *len);
                queued.map_err(|lost| self.lost(lost, "queuing a sum over GPUs".into()))
            }
        }
    }

    fn kernel(&self, record: Record, shape: Shape) -> Result<(), DeviceError> {
        let (kind, mut record, mut arena, mut run) = (record.kind(), record, self.arena.at, self.run.at);
        let mut arguments = [argument(&mut record), argument(&mut arena), argument(&mut run)];
        // SAFETY: (Op, float*, Run*); the record's offsets lie within the arena.
        unsafe { self.launch(self.kernels.get(kind), shape, &mut arguments, kind.kernel()) }
    }

    pub fn advance(&self, steps: &Steps) -> Result<(), DeviceError> {
        let (mut run, mut rows, mut own_rows) = (self.run.at, steps.rows, steps.own_rows);
        let mut arguments = [argument(&mut run), argument(&mut rows), argument(&mut own_rows)];
        // SAFETY: (Run*, int, int).
        unsafe { self.launch(self.kernels.advance, Shape::WARP, &mut arguments, "advance") }
    }

    /// Runs `count` steps in one block, which keeps `elements` of the arena in shared memory.
    fn interpret(
        &self,
        steps: &Steps,
        count: usize,
        threads: u32,
        elements: usize,
    ) -> Result<(), DeviceError> {
        let shape = Shape { threads, shared_bytes: 4 * elements as u32, ..Shape::WARP };
        let (mut records, mut ops, mut arena) = (steps.records.at, steps.count, self.arena.at);
        let (mut elements, mut run, mut count) = (elements as i32, self.run.at, count as i32);
        let (mut rows, mut own) = (steps.rows, steps.own_rows);
        let mut arguments = [
            argument(&mut records),
            argument(&mut ops),
            argument(&mut arena),
            argument(&mut elements),
            argument(&mut run),
            argument(&mut count),
            argument(&mut rows),
            argument(&mut own),
        ];
        // SAFETY: (const Op*, int, float*, int, Run*, int, int, int).
        unsafe { self.launch(self.kernels.interpret, shape, &mut arguments, "interpret") }
    }

    /// Runs `count` steps in a cooperative grid.
    fn interpret_grid(&self, steps: &Steps, count: usize, blocks: u32) -> Result<(), DeviceError> {
        let shape = Shape { blocks, threads: GRID_THREADS, shared_bytes: 0, together: true };
        let (mut records, mut ops, mut arena) = (steps.records.at, steps.count, self.arena.at);
        let (mut run, mut barrier, mut count) = (self.run.at, self.barrier.at, count as i32);
        let (mut rows, mut own) = (steps.rows, steps.own_rows);
        let mut arguments = [
            argument(&mut records),
            argument(&mut ops),
            argument(&mut arena),
            argument(&mut run),
            argument(&mut barrier),
            argument(&mut count),
            argument(&mut rows),
            argument(&mut own),
        ];
        // SAFETY: (const Op*, int, float*, Run*, unsigned*, int, int, int).
        unsafe { self.launch(self.kernels.interpret_grid, shape, &mut arguments, "interpret_grid") }
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
        // SAFETY: the caller's.
        unsafe { launch(&self.context, &self.stream, function, shape, arguments, name) }
    }

    fn step(&self, steps: &Steps) -> Result<(), DeviceError> {
        steps.launches.iter().try_for_each(|Launch { work, .. }| self.queue(work))?;
        self.advance(steps)
    }
}

/// An engine over the programs of one kind: training or validation.
pub enum LoadedEngine {
    Persistent {
        threads: u32,
        elements: usize,
    },
    Cooperative {
        blocks: u32,
    },
    /// See [`plan::Engine::Graph`]: of many full steps, of one, and of the last.
    Graph {
        many: Graph,
        one: Graph,
        last: Option<Graph>,
    },
    Launch,
}

impl LoadedEngine {
    /// Prepares an engine for a full program and a last one, over an arena of `elements`.
    pub fn new(
        engine: plan::Engine,
        gpu: &GpuContext,
        full: &Steps,
        last: Option<&Steps>,
        elements: usize,
    ) -> Result<Self, DeviceError> {
        let context = &gpu.context;
        let unusable = |why: String| DeviceError::Unusable { device: context.name.clone(), why };
        let queued = gpu.queues_sums() && engine == plan::Engine::Graph;
        if full.reduces() && engine != plan::Engine::Launch && !queued {
            let way = if gpu.queues_sums() { "" } else { " through the host" };
            return Err(unusable(format!(
                "sums over devices{way} cannot be part of the engine `{}`; set `devices.engine = \"launch\"`",
                engine.name()
            )));
        }
        match engine {
            plan::Engine::Persistent => {
                let bytes = 4 * elements as u64;
                let room = context.gpu.job_shared_bytes();
                if bytes > room {
                    return Err(unusable(format!(
                        "the engine `persistent` keeps {bytes} bytes of this job in shared memory, and a block has \
                         {room}; leave `devices.engine` to the plan"
                    )));
                }
                let set = context.driver.cuFuncSetAttribute;
                // The largest possible: the limit belongs to the kernel, which training and validation share.
                let status = unsafe { set(gpu.kernels.interpret, MOST_DYNAMIC_SHARED, room as i32) };
                context.check(status, || format!("giving `interpret` {room} bytes of shared memory"))?;
                Ok(Self::Persistent { threads: interpreter_threads(full.widest), elements })
            }
            plan::Engine::Cooperative => {
                if !context.gpu.cooperative {
                    return Err(unusable(
                        "it has no cooperative launches; leave `devices.engine` to the plan".into(),
                    ));
                }
                let at_once = gpu.kernels.at_once(gpu.kernels.interpret_grid, GRID_THREADS)?;
                // Blocks without work only make the barrier slower.
                let useful = full.widest.div_ceil(u64::from(GRID_THREADS));
                let blocks = useful.min(at_once).clamp(1, MOST_BLOCKS) as u32;
                Ok(Self::Cooperative { blocks })
            }
            plan::Engine::Graph => {
                let capture = |steps: &Steps, count: usize| {
                    Graph::capture(context, &gpu.stream, || (0..count).try_for_each(|_| gpu.step(steps)))
                };
                Ok(Self::Graph {
                    many: capture(full, GRAPH_STEPS)?,
                    one: capture(full, 1)?,
                    last: last.map(|last| capture(last, 1)).transpose()?,
                })
            }
            _ => Ok(Self::Launch),
        }
    }

    /// Queues `full_steps` full steps and then, perhaps, the last one.
    pub fn queue(
        &self,
        gpu: &GpuContext,
        full: &Steps,
        full_steps: usize,
        last: Option<&Steps>,
    ) -> Result<(), DeviceError> {
        match self {
            Self::Persistent { threads, elements } => parts(full, full_steps, last)
                .try_for_each(|(steps, count)| gpu.interpret(steps, count, *threads, *elements)),
            Self::Cooperative { blocks } => parts(full, full_steps, last)
                .try_for_each(|(steps, count)| gpu.interpret_grid(steps, count, *blocks)),
            Self::Graph { many, one, last: end } => {
                (0..full_steps / GRAPH_STEPS).try_for_each(|_| many.launch(&gpu.stream))?;
                (0..full_steps % GRAPH_STEPS).try_for_each(|_| one.launch(&gpu.stream))?;
                match (last, end) {
                    (Some(_), Some(end)) => end.launch(&gpu.stream),
                    _ => Ok(()),
                }
            }
            Self::Launch => parts(full, full_steps, last)
                .try_for_each(|(steps, count)| (0..count).try_for_each(|_| gpu.step(steps))),
        }
    }
}

/// A program and how often it runs.
fn parts<'a>(
    full: &'a Steps,
    full_steps: usize,
    last: Option<&'a Steps>,
) -> impl Iterator<Item = (&'a Steps, usize)> {
    let full = (full_steps > 0).then_some((full, full_steps));
    full.into_iter().chain(last.map(|last| (last, 1)))
}

/// Threads of the persistent block: about four elements of the widest instruction per thread, since more threads make
/// every barrier slower.
fn interpreter_threads(widest: u64) -> u32 {
    widest.div_ceil(4).next_power_of_two().clamp(64, 512) as u32
}

const _: () = assert!(size_of::<RunRecord>().is_multiple_of(16), "learning rates follow the counters");
