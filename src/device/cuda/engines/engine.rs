//! The four ways to run steps, all over the same records: one persistent block, one cooperative grid, a captured graph,
//! single launches.

use std::ffi::c_void;

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
    plan::{self, INTERPRETER_BYTES},
};

/// The driver's `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`.
const MOST_DYNAMIC_SHARED: i32 = 8;
/// Blocks that `interpret_grid` may have at most.
const MOST_BLOCKS: u64 = 1024;
const GRID_THREADS: u32 = 256;
/// Steps per graph, so that the cost of its launch is shared by many.
const GRAPH_STEPS: usize = 16;

impl GpuContext {
    /// Queues one instruction; a sum over devices only where it is queued at all.
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
        // SAFETY: (Op, float*, Run*); all places of the record lie within the arena, whose extent they made.
        unsafe {
            launch(&self.context, &self.stream, self.kernels.get(kind), shape, &mut arguments, kind.kernel())
        }
    }

    pub fn advance(&self, steps: &Steps) -> Result<(), DeviceError> {
        let (mut run, mut rows, mut own_rows) = (self.run.at, steps.rows, steps.own_rows);
        let mut arguments = [argument(&mut run), argument(&mut rows), argument(&mut own_rows)];
        // SAFETY: (Run*, int, int).
        unsafe {
            launch(&self.context, &self.stream, self.kernels.advance, Shape::WARP, &mut arguments, "advance")
        }
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
    /// Prepares an engine for a full program and a last one, over an arena of so many numbers.
    pub fn new(
        engine: plan::Engine,
        gpu_context: &GpuContext,
        full: &Steps,
        last: Option<&Steps>,
        elements: usize,
    ) -> Result<Self, DeviceError> {
        let context = &gpu_context.context;
        let unusable = |why: String| DeviceError::Unusable { device: context.name.clone(), why };
        let queued = gpu_context.queues_sums() && engine == plan::Engine::Graph;
        if full.reduces() && engine != plan::Engine::Launch && !queued {
            let way = if gpu_context.queues_sums() { "" } else { " through the host" };
            return Err(unusable(format!(
                "sums over devices{way} cannot be part of the engine `{}`; set `devices.engine = \"launch\"`",
                engine.name()
            )));
        }
        match engine {
            plan::Engine::Persistent => {
                let bytes = 4 * elements as u64;
                let room = u64::from(context.gpu.shared_bytes).saturating_sub(INTERPRETER_BYTES);
                if bytes > room {
                    return Err(unusable(format!(
                        "the engine `persistent` keeps {bytes} bytes of this job in shared memory, and a block has \
                         {room}; leave `devices.engine` to the plan"
                    )));
                }
                let set = context.driver.cuFuncSetAttribute;
                // SAFETY: the kernel is loaded.
                // All there is: the limit is the kernel's, and training and validation share it.
                let status = unsafe { set(gpu_context.kernels.interpret, MOST_DYNAMIC_SHARED, room as i32) };
                context.check(status, || format!("giving `interpret` {room} bytes of shared memory"))?;
                Ok(Self::Persistent { threads: interpreter_threads(full.widest), elements })
            }
            plan::Engine::Cooperative => {
                if !context.gpu.cooperative {
                    return Err(unusable(
                        "it has no cooperative launches; leave `devices.engine` to the plan".into(),
                    ));
                }
                let at_once =
                    gpu_context.kernels.at_once(gpu_context.kernels.interpret_grid, GRID_THREADS)?;
                // More blocks than have work only make the barrier slower.
                let useful = full.widest.div_ceil(u64::from(GRID_THREADS));
                let blocks = useful.min(at_once).clamp(1, MOST_BLOCKS) as u32;
                Ok(Self::Cooperative { blocks })
            }
            plan::Engine::Graph => {
                let capture = |steps: &Steps, count: usize| {
                    Graph::capture(context, &gpu_context.stream, || {
                        (0..count).try_for_each(|_| gpu_context.step(steps))
                    })
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
        gpu_context: &GpuContext,
        full: &Steps,
        full_steps: usize,
        last: Option<&Steps>,
    ) -> Result<(), DeviceError> {
        match self {
            Self::Persistent { threads, elements } => {
                let shared_bytes = 4 * *elements as u32;
                let shape = Shape { threads: *threads, shared_bytes, ..Shape::WARP };
                parts(full, full_steps, last).try_for_each(|(steps, count)| {
                    let (mut arena, mut run) = (gpu_context.arena.at, gpu_context.run.at);
                    let (mut records, mut ops, mut elements) =
                        (steps.records.at, steps.count, *elements as i32);
                    let (mut count, mut rows, mut own) = (count as i32, steps.rows, steps.own_rows);
                    let mut arguments: [*mut c_void; 8] = [
                        argument(&mut records),
                        argument(&mut ops),
                        argument(&mut arena),
                        argument(&mut elements),
                        argument(&mut run),
                        argument(&mut count),
                        argument(&mut rows),
                        argument(&mut own),
                    ];
                    let interpret = gpu_context.kernels.interpret;
                    // SAFETY: (const Op*, int, float*, int, Run*, int, int, int).
                    unsafe {
                        launch(
                            &gpu_context.context,
                            &gpu_context.stream,
                            interpret,
                            shape,
                            &mut arguments,
                            "interpret",
                        )
                    }
                })
            }
            Self::Cooperative { blocks } => {
                let shape = Shape { blocks: *blocks, threads: GRID_THREADS, shared_bytes: 0, together: true };
                parts(full, full_steps, last).try_for_each(|(steps, count)| {
                    let (mut arena, mut run) = (gpu_context.arena.at, gpu_context.run.at);
                    let (mut records, mut ops, mut barrier) =
                        (steps.records.at, steps.count, gpu_context.barrier.at);
                    let (mut count, mut rows, mut own) = (count as i32, steps.rows, steps.own_rows);
                    let mut arguments: [*mut c_void; 8] = [
                        argument(&mut records),
                        argument(&mut ops),
                        argument(&mut arena),
                        argument(&mut run),
                        argument(&mut barrier),
                        argument(&mut count),
                        argument(&mut rows),
                        argument(&mut own),
                    ];
                    let (grid, name) = (gpu_context.kernels.interpret_grid, "interpret_grid");
                    // SAFETY: (const Op*, int, float*, Run*, unsigned*, int, int, int).
                    unsafe {
                        launch(&gpu_context.context, &gpu_context.stream, grid, shape, &mut arguments, name)
                    }
                })
            }
            Self::Graph { many, one, last: end } => {
                (0..full_steps / GRAPH_STEPS).try_for_each(|_| many.launch(&gpu_context.stream))?;
                (0..full_steps % GRAPH_STEPS).try_for_each(|_| one.launch(&gpu_context.stream))?;
                match (last, end) {
                    (Some(_), Some(end)) => end.launch(&gpu_context.stream),
                    _ => Ok(()),
                }
            }
            Self::Launch => parts(full, full_steps, last)
                .try_for_each(|(steps, count)| (0..count).try_for_each(|_| gpu_context.step(steps))),
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

/// Threads of the persistent block: enough for a thread to make some four numbers of the widest instruction, since more
/// of them make every meeting slower.
fn interpreter_threads(widest: u64) -> u32 {
    widest.div_ceil(4).next_power_of_two().clamp(64, 512) as u32
}

const _: () = assert!(size_of::<RunRecord>().is_multiple_of(16), "learning rates follow the counters");
