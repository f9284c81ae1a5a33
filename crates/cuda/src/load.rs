//! Loads a trial: compiles or finds kernels, allocates memory, encodes programs, plans products, captures
//! graphs. Everything that can be refused is refused here, before a run begins.

use std::sync::Arc;

use super::{
    all_reduce::HostAllReduce,
    engines::{Compiled, GpuContext, Loaded, MOST_LAUNCHED, MOST_STEPS, Products, QueuedSums, Steps},
    executor::CudaExecutor,
    ffi::{Context, Gpu, Kind},
    launch::HangTimeout,
    memory::{DeviceLog, Digest, Inputs, Staging},
    progress::Progress,
    proof::Unproven,
};
use crate::{
    collective::Collective,
    device::DeviceError,
    plan::{Engine, summed, validation_engine},
    program::{Bf16Copies, Layout, MemoryPlan, Offsets, Precision, Program, Programs, StepSource},
    units,
};

/// How a device sums gradients with the others of its run.
pub enum RankLink {
    Alone,
    /// Through host memory, with a wait in every step.
    Host(Box<dyn Collective>),
    /// Queued like a GPU's kernels, so that it may be part of a graph.
    Queued(QueuedSums),
}

/// What a GPU executor is made from.
pub struct CudaSetup {
    /// The device's name, for errors.
    pub device: String,
    pub gpu: Gpu,
    pub programs: Programs,
    pub engine: Engine,
    pub precision: Precision,
    pub seed: u64,
    pub link: RankLink,
}

/// What is needed to load programs, one after the other.
struct Loader<'a> {
    gpu: &'a GpuContext,
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
            let (staging, products) = (&mut self.staging, self.products.as_mut());
            Steps::new(program, self.layout, places, self.precision, self.gpu, staging, products)
        };
        let slowest_s = HangTimeout::slowest_s(full.cost(), full.instructions.len() + 1);
        let (full, last) = (encode(full)?, last.map(encode).transpose()?);
        Ok(Loaded {
            loaded_engine: None,
            compiled: None,
            full,
            last,
            engine,
            elements: places.elements,
            slowest_s,
        })
    }

    /// The programs of training and of validation.
    fn load_all(
        &mut self,
        programs: &Programs,
        places: &MemoryPlan,
        engine: Engine,
    ) -> Result<(Loaded, Option<Loaded>), DeviceError> {
        if engine.uses_library() {
            // Compiled here rather than in the first step.
            self.gpu.context.ops()?;
        }
        let mut train = self.load(&programs.train, programs.train_last.as_ref(), &places.train, engine)?;
        let mut validate = match &programs.validate {
            None => None,
            Some(full) => {
                let gpu = &self.gpu.context.gpu;
                let fits = 4 * places.validate.elements as u64 <= gpu.job_shared_bytes();
                let engine = validation_engine(engine, fits, gpu.cooperative);
                Some(self.load(full, programs.validate_last.as_ref(), &places.validate, engine)?)
            }
        };
        if self.products.as_ref().is_some_and(Products::any) {
            // Planning ran the products in the arena, so clear it.
            let arena = &self.gpu.arena;
            self.gpu.stream.fill(arena.at, 0, arena.bytes)?;
        }
        for loaded in [Some(&mut train), validate.as_mut()].into_iter().flatten() {
            if !loaded.full.reduces() || self.gpu.peers().is_some() {
                loaded.load(self.gpu)?;
            }
        }
        Ok((train, validate))
    }
}

impl CudaExecutor {
    pub fn new(setup: CudaSetup) -> Result<Self, DeviceError> {
        let CudaSetup { device, gpu, programs, engine, precision, seed, link } = setup;
        let context = Context::open_as(gpu, device)?;
        let places = MemoryPlan::new(&programs);
        let most = if engine == Engine::Launch { MOST_LAUNCHED } else { MOST_STEPS };
        let with_best = places.clone().with_best(&programs.layout);
        let copies = (engine.uses_library() && precision == Precision::Bf16).then_some(with_best.elements());
        let elements = with_best.elements() + copies.map_or(0, |_| Bf16Copies::elements(&programs));
        check_room(&context, 4 * elements as u64, &programs)?;
        let mut gpu = GpuContext::new(Arc::clone(&context), 4 * elements, most)?;
        let device_log = DeviceLog::new(&context, &gpu.stream, &programs)?;
        let reduced = summed(&programs.train);
        // Taken before the first sum: an allocation may wait for a GPU that is inside one.
        let digest = (reduced > 0).then(|| Digest::new(&gpu)).transpose()?;
        let mut sums = None;
        match link {
            RankLink::Alone => {}
            RankLink::Queued(queued) => gpu.sum_by(queued, programs.train.early_sums().next().is_some())?,
            RankLink::Host(collective) => sums = Some(HostAllReduce::new(&context, collective, reduced)?),
        }
        let products = engine.uses_library().then(|| Products::new(copies.map(|at| at as u64)));
        let (layout, staging) = (&programs.layout, Staging::default());
        let mut loader = Loader { gpu: &gpu, layout, precision, staging, products };
        let (mut train, validate) = loader.load_all(&programs, &places, engine)?;
        let Loader { staging, products, .. } = loader;
        let mut unproven = None;
        if engine == Engine::Compiled {
            unproven = Some(compile(&mut train, &gpu, &programs, precision)?);
        }
        let all = [Some(&train), validate.as_ref()].into_iter().flatten();
        let marks = all.clone().map(Loaded::marks).max().unwrap_or(0);
        let records = all.flat_map(|loaded| [Some(&loaded.full), loaded.last.as_ref()]).flatten();
        let records = records.fold((0, 0), |(n, bytes), steps| (n + 1, bytes + steps.records.bytes as u64));
        let compiled = train.compiled.as_ref().map_or(0, Compiled::bytes);
        let bytes =
            gpu.bytes() + compiled + device_log.bytes() + products.as_ref().map_or(0, Products::bytes);
        Ok(Self {
            train,
            validate,
            inputs: Inputs::new(&gpu, staging)?,
            device_log,
            digest,
            progress: Progress::new(&gpu, most, marks)?,
            gpu,
            layout: programs.layout,
            places: with_best,
            sums,
            reduced,
            seed,
            bytes: bytes as u64,
            watch: None,
            fetched: None,
            unproven,
            notice: None,
            product_gains: products.as_ref().and_then(Products::gains),
            records,
        })
    }
}

/// Compiles the trial's own steps; returns what they have to prove.
fn compile(
    train: &mut Loaded,
    gpu: &GpuContext,
    programs: &Programs,
    precision: Precision,
) -> Result<Unproven, DeviceError> {
    let context = &gpu.context;
    let source = StepSource::get(programs, precision, context.gpu.limits(false).step_room());
    let source = source.map_err(|why| context.unusable(why))?;
    train.compiled = Some(Compiled::load(context, &source)?);
    Ok(Unproven::new(programs, precision, train.interpreter(gpu)))
}

/// Refuses a job that no longer fits, because others have allocated memory since it was planned.
fn check_room(context: &Context, arena_bytes: u64, programs: &Programs) -> Result<(), DeviceError> {
    let needed = arena_bytes + DeviceLog::log_bytes(&programs.layout) as u64;
    // The driver takes a while to answer.
    if usize::try_from(arena_bytes).is_ok_and(|bytes| context.primary.has_memory(bytes)) {
        return Ok(());
    }
    let mut free = context.memory()?.0;
    while needed > free && context.free_unused(Kind::Device) {
        free = context.memory()?.0;
    }
    if needed <= free {
        return Ok(());
    }
    let [needed, free] = [needed, free].map(units::bytes);
    Err(context.unusable(format!(
        "the job needs {needed} of its memory, and {free} are free; lower `data.batch_size`, or end what else uses the GPU"
    )))
}
