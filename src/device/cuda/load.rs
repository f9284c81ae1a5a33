//! A trial is loaded: kernels are compiled or found, memory is planned and taken, programs become records, products are
//! planned, graphs are captured. All that can be refused is refused here, before a run begins.

use std::{sync::Arc, time::Duration};

use super::{
    all_reduce::sums::{HostSums, Way},
    engines::{
        ground::Ground,
        loaded::{Loaded, MOST_LAUNCHED, MOST_STEPS},
        product::Products,
        steps::Steps,
    },
    executor::CudaExecutor,
    ffi::{context::Context, gpu::Gpu},
    launch::{kernels::Kernels, patience::Patience, ring::Ring, stream::Stream},
    measure::timeline::Timeline,
    memory::{
        allocation::{DeviceMemory, Pinned},
        feed::OrderFeed,
        mailbox::Mailbox,
        staging::Staging,
    },
};
use crate::{
    device::DeviceError,
    op::{Gather, Hyper, Layout, Op, PARTIALS, Phase, Precision, RowSource, RunRecord},
    plan::{Engine, WALK_BYTES, summed},
    program::{Arena, Places, Program, Programs},
    units,
};

/// What a trial asks of a GPU.
pub struct Job {
    /// Which.
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
    pub way: Way,
}

/// What makes programs loadable, in their order.
struct Loader<'a> {
    ground: &'a Ground,
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
        places: &Places,
        engine: Engine,
    ) -> Result<Loaded, DeviceError> {
        let mut encode = |program: &Program| {
            let (ground, staging, products) = (self.ground, &mut self.staging, self.products.as_mut());
            Steps::new(program, self.layout, places, self.precision, ground, staging, products)
        };
        let slowest_s = Patience::slowest_s(full.cost(), full.instructions.len() + 1);
        let (full, last) = (encode(full)?, last.map(encode).transpose()?);
        Ok(Loaded { runner: None, full, last, engine, numbers: places.numbers, slowest_s })
    }
}

impl CudaExecutor {
    /// Takes the GPU and loads it.
    ///
    /// # Errors
    /// What is missing, or does not fit, and the way out.
    pub fn new(job: Job) -> Result<Self, DeviceError> {
        let Job { gpu, programs, engine, precision, seed, way } = job;
        let context = Context::open(gpu)?;
        let kernels = Kernels::load(&context)?;
        let places = Arena::of(&programs);
        check_room(&context, &places, &programs)?;
        let stream = Stream::new(&context)?;
        let zeros = |bytes: usize, what: &str| {
            let memory = DeviceMemory::new(&context, bytes, what)?;
            stream.fill(memory.at, 0, bytes)?;
            Ok::<_, DeviceError>(memory)
        };
        let arena = zeros(4 * places.numbers(), "parameters and activations")?;
        let most = if engine == Engine::Launch { MOST_LAUNCHED } else { MOST_STEPS };
        let run = zeros(size_of::<RunRecord>() + most * size_of::<Hyper>(), "learning rates")?;
        let barrier = zeros(2 * size_of::<u32>(), "the barrier of a grid")?;
        let partial = zeros((PARTIALS + 1) * size_of::<f64>(), "sums over blocks")?;
        let digest = zeros(size_of::<u64>(), "a digest")?;
        let mailbox = Mailbox::new(&context, &stream, &programs)?;
        let by_library = matches!(engine, Engine::Graph | Engine::Launch);
        let products = by_library.then(|| Products::new(&context, arena.at));
        let reduced = summed(&programs.train);
        let (mut others, mut peers, mut sums) = (None, None, None);
        match way {
            Way::Alone => {}
            Way::Peers(ranks) => peers = Some(ranks),
            Way::Nccl(ranks) => others = Some(ranks),
            Way::Host(collective) => sums = Some(HostSums::new(&context, collective, reduced)?),
        }
        let patience = Patience::new(context.least_wait);
        let ground =
            Ground { others, peers, stream, arena, run, barrier, kernels, context, step: 0, patience };
        let (context, layout) = (Arc::clone(&ground.context), &programs.layout);
        let mut loader = Loader { ground: &ground, layout, precision, staging: Staging::default(), products };
        let mut train = loader.load(&programs.train, programs.train_last.as_ref(), &places.train, engine)?;
        let mut validate = match &programs.validate {
            None => None,
            Some(full) => {
                let engine = validation_engine(engine, &context.gpu, places.validate.numbers);
                Some(loader.load(full, programs.validate_last.as_ref(), &places.validate, engine)?)
            }
        };
        let Loader { staging, products, .. } = loader;
        if products.as_ref().is_some_and(Products::any) {
            // Products were tried where their results lie.
            ground.stream.fill(ground.arena.at, 0, ground.arena.bytes)?;
        }
        for loaded in [Some(&mut train), validate.as_mut()].into_iter().flatten() {
            if !loaded.full.reduces() || ground.peers.is_some() {
                loaded.runner(&ground)?;
            }
        }
        let marks = if engine == Engine::Launch { MOST_LAUNCHED * Phase::ALL.len() } else { 0 };
        let ring = Ring::new(&ground, most, marks)?;
        let most_steps = [Some(&train), validate.as_ref()].into_iter().flatten().map(Loaded::most_steps);
        let most_steps = most_steps.min().unwrap_or(1);
        let scratch = Pinned::new(&context, size_of::<u64>(), "digests")?;
        let first = programs.train.instructions.first().map(|i| &i.op);
        let streamed = matches!(first, Some(Op::Gather(Gather { source: RowSource::Chunk, .. })));
        let bytes = ground.bytes() + partial.bytes + mailbox.bytes();
        let bytes = (bytes + products.as_ref().map_or(0, Products::bytes)) as u64;
        let copies = Stream::new(&context)?;
        let timeline = Timeline::new(&context)?;
        Ok(Self {
            train,
            validate,
            copies,
            feeds: Default::default(),
            order: OrderFeed::new(),
            staging,
            mailbox,
            partial,
            digest,
            scratch,
            ring,
            timeline,
            ground,
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
fn validation_engine(engine: Engine, gpu: &Gpu, numbers: usize) -> Engine {
    let fits = 4 * numbers as u64 + WALK_BYTES <= u64::from(gpu.shared_bytes);
    match engine {
        Engine::Persistent if !fits && gpu.cooperative => Engine::Cooperative,
        Engine::Persistent if !fits => Engine::Launch,
        engine => engine,
    }
}

/// Refuses what the plan could not know to be too large: memory that others have taken since.
fn check_room(context: &Context, places: &Arena, programs: &Programs) -> Result<(), DeviceError> {
    let (free, _) = context.memory()?;
    let needed = 4 * places.numbers() as u64 + Mailbox::log_bytes(&programs.layout) as u64;
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
