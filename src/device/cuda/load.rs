//! A trial is loaded: kernels are compiled or found, memory is planned and taken, programs become records, products are
//! planned, graphs are captured. All that can be refused is refused here, before a run begins.

use std::{sync::Arc, time::Duration};

use super::{
    all_reduce::{GradientReducer, HostAllReduce},
    engines::{GpuContext, Loaded, MOST_LAUNCHED, MOST_STEPS, Products, Steps},
    executor::CudaExecutor,
    ffi::{Context, Gpu},
    launch::{HangTimeout, InFlightQueue, Kernels, Stream},
    measure::timeline::Timeline,
    memory::{DeviceLog, DeviceMemory, OrderBuffer, Pinned, Staging},
};
use crate::{
    device::DeviceError,
    op::{Gather, Hyper, Layout, Op, PARTIALS, Phase, Precision, RowSource, RunRecord},
    plan::{Engine, INTERPRETER_BYTES, summed},
    program::{MemoryPlan, Offsets, Program, Programs},
    units,
};

/// What a trial asks of a GPU.
pub struct CudaSetup {
    /// Where it runs.
    pub gpu: Gpu,
    /// Its programs.
    pub programs: Programs,
    /// What runs the steps.
    pub engine: Engine,
    /// Number format of products.
    pub precision: Precision,
    /// The run's seed, for dropout.
    pub seed: u64,
    /// The way to the other devices of the run.
    pub way: GradientReducer,
}

/// What makes programs loadable, in their order.
struct Loader<'a> {
    gpu_context: &'a GpuContext,
    layout: &'a Layout,
    precision: Precision,
    staging: Staging,
    products: Option<Products>,
}

impl Loader<'_> {
    fn load(
        &mut self,
        full: &Program,
        last: Option<&Program>,
        places: &Offsets,
        engine: Engine,
    ) -> Result<Loaded, DeviceError> {
        let mut encode = |program: &Program| {
            let (gpu_context, staging, products) =
                (self.gpu_context, &mut self.staging, self.products.as_mut());
            Steps::new(program, self.layout, places, self.precision, gpu_context, staging, products)
        };
        let slowest_s = HangTimeout::slowest_s(full.cost(), full.instructions.len() + 1);
        let (full, last) = (encode(full)?, last.map(encode).transpose()?);
        Ok(Loaded { loaded_engine: None, full, last, engine, elements: places.elements, slowest_s })
    }
}

impl CudaExecutor {
    /// Takes the GPU and loads it.
    ///
    /// # Errors
    /// What is missing, or does not fit, and the way out.
    pub fn new(job: CudaSetup) -> Result<Self, DeviceError> {
        let CudaSetup { gpu, programs, engine, precision, seed, way } = job;
        let context = Context::open(gpu)?;
        let kernels = Kernels::load(&context)?;
        let places = MemoryPlan::new(&programs);
        check_room(&context, &places, &programs)?;
        let stream = Stream::new(&context)?;
        let zeros = |bytes: usize, what: &str| {
            let memory = DeviceMemory::new(&context, bytes, what)?;
            stream.fill(memory.at, 0, bytes)?;
            Ok::<_, DeviceError>(memory)
        };
        let arena = zeros(4 * places.elements(), "parameters and activations")?;
        let most = if engine == Engine::Launch { MOST_LAUNCHED } else { MOST_STEPS };
        let run = zeros(size_of::<RunRecord>() + most * size_of::<Hyper>(), "learning rates")?;
        let barrier = zeros(2 * size_of::<u32>(), "the barrier of a grid")?;
        let partial = zeros((PARTIALS + 1) * size_of::<f64>(), "sums over blocks")?;
        let digest = zeros(size_of::<u64>(), "a digest")?;
        let device_log = DeviceLog::new(&context, &stream, &programs)?;
        let by_library = matches!(engine, Engine::Graph | Engine::Launch);
        let products = by_library.then(|| Products::new(&context, arena.at));
        let reduced = summed(&programs.train);
        let (mut others, mut peers, mut sums) = (None, None, None);
        match way {
            GradientReducer::Alone => {}
            GradientReducer::Peers(ranks) => peers = Some(ranks),
            GradientReducer::Nccl(ranks) => others = Some(ranks),
            GradientReducer::Host(collective) => {
                sums = Some(HostAllReduce::new(&context, collective, reduced)?)
            }
        }
        let hang_timeout = HangTimeout::new(context.least_wait);
        let gpu_context = GpuContext {
            others,
            peers,
            stream,
            arena,
            run,
            barrier,
            kernels,
            context,
            step: 0,
            hang_timeout,
        };
        let (context, layout) = (Arc::clone(&gpu_context.context), &programs.layout);
        let mut loader =
            Loader { gpu_context: &gpu_context, layout, precision, staging: Staging::default(), products };
        let mut train = loader.load(&programs.train, programs.train_last.as_ref(), &places.train, engine)?;
        let mut validate = match &programs.validate {
            None => None,
            Some(full) => {
                let engine = validation_engine(engine, &context.gpu, places.validate.elements);
                Some(loader.load(full, programs.validate_last.as_ref(), &places.validate, engine)?)
            }
        };
        let Loader { staging, products, .. } = loader;
        if products.as_ref().is_some_and(Products::any) {
            // Products were tried where their results lie.
            gpu_context.stream.fill(gpu_context.arena.at, 0, gpu_context.arena.bytes)?;
        }
        for loaded in [Some(&mut train), validate.as_mut()].into_iter().flatten() {
            if !loaded.full.reduces() || gpu_context.peers.is_some() {
                loaded.loaded_engine(&gpu_context)?;
            }
        }
        let marks = if engine == Engine::Launch { MOST_LAUNCHED * Phase::ALL.len() } else { 0 };
        let in_flight = InFlightQueue::new(&gpu_context, most, marks)?;
        let most_steps = [Some(&train), validate.as_ref()].into_iter().flatten().map(Loaded::most_steps);
        let most_steps = most_steps.min().unwrap_or(1);
        let scratch = Pinned::new(&context, size_of::<u64>(), "digests")?;
        let first = programs.train.instructions.first().map(|i| &i.op);
        let streamed = matches!(first, Some(Op::Gather(Gather { source: RowSource::Chunk, .. })));
        let bytes = gpu_context.bytes() + partial.bytes + device_log.bytes();
        let bytes = (bytes + products.as_ref().map_or(0, Products::bytes)) as u64;
        let copies = Stream::new(&context)?;
        let timeline = Timeline::new(&context)?;
        Ok(Self {
            train,
            validate,
            copies,
            feeds: Default::default(),
            order: OrderBuffer::new(),
            staging,
            device_log,
            partial,
            digest,
            scratch,
            in_flight,
            timeline,
            gpu_context,
            layout: programs.layout,
            places,
            sums,
            reduced,
            engine,
            streamed,
            seed,
            bytes,
            most_steps,
            validation_s: None,
            step_time: None,
            watch: None,
            waited: Duration::ZERO,
            last_end_s: 0.0,
        })
    }
}

/// Validation chunks are larger than batches: where they do not fit, the grid takes them, or single launches.
fn validation_engine(engine: Engine, gpu: &Gpu, elements: usize) -> Engine {
    let fits = 4 * elements as u64 + INTERPRETER_BYTES <= u64::from(gpu.shared_bytes);
    match engine {
        Engine::Persistent if !fits && gpu.cooperative => Engine::Cooperative,
        Engine::Persistent if !fits => Engine::Launch,
        engine => engine,
    }
}

/// Refuses what the plan could not know to be too large: memory that others have taken since.
fn check_room(context: &Context, places: &MemoryPlan, programs: &Programs) -> Result<(), DeviceError> {
    let (free, _) = context.memory()?;
    let needed = 4 * places.elements() as u64 + DeviceLog::log_bytes(&programs.layout) as u64;
    if needed <= free {
        return Ok(());
    }
    Err(DeviceError::Unusable {
        device: context.name.clone(),
        why: format!(
            "the job needs {} of its memory, and {} are free; lower `data.batch_size`, or end what else uses the GPU",
            units::bytes(needed),
            units::bytes(free)
        ),
    })
}
