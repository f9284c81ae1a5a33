//! A GPU as an executor: blocks of steps are queued and not waited for; what they made is read when it is asked for.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    abi::{PARTIALS, Run, SUMS},
    context::Context,
    encode::Precision,
    engine::{Ground, Runner},
    feed::{Feed, OrderFeed},
    gpu::Gpu,
    kernels::Kernels,
    launch::{Shape, argument, launch},
    mailbox::Mailbox,
    memory::{DeviceMemory, Pinned},
    nccl::Lost,
    product::Products,
    ring::{Done, Queued, Ring},
    steps::{Steps, Work as Part},
    stream::Stream,
    sums::{HostSums, Way},
};
use crate::{
    device::{Block, DeviceError, Executor, Kind, Ledger, Meters, Moved, Purpose, Ran, Work},
    plan::{Engine, WALK_BYTES, summed},
    program::{Arena, BufferId, Hyper, Layout, Op, Phase, Program, Programs, RowSource, Slice, Sums},
};

/// Steps that are queued at once, at most.
const MOST_STEPS: usize = 1 << 14;
/// The same where every instruction is a launch of its own, and its phases are marked.
const MOST_LAUNCHED: usize = 16;

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

/// Programs of one kind and their engine.
struct Loaded {
    /// Made when it is first used: to capture a sum by NCCL each GPU needs a thread of its own, since the library may
    /// connect them then. It goes first: graphs hold what they captured.
    runner: Option<Runner>,
    full: Steps,
    last: Option<Steps>,
    engine: Engine,
    /// Numbers of the arena that its programs use.
    numbers: usize,
}

impl Loaded {
    fn runner(&mut self, ground: &Ground) -> Result<&Runner, DeviceError> {
        match self.runner.take() {
            Some(runner) => Ok(self.runner.insert(runner)),
            None => {
                let made = Runner::new(self.engine, ground, &self.full, self.last.as_ref(), self.numbers)?;
                Ok(self.runner.insert(made))
            }
        }
    }
}

/// A GPU with a trial loaded.
pub struct CudaExecutor {
    train: Loaded,
    validate: Option<Loaded>,
    copies: Stream,
    feeds: [Feed; 4],
    order: OrderFeed,
    mailbox: Mailbox,
    partial: DeviceMemory,
    scratch: Pinned,
    ring: Ring,
    ground: Ground,
    layout: Layout,
    places: Arena,
    sums: Option<HostSums>,
    /// Numbers of a sum over devices; 0 for a device alone.
    reduced: usize,
    engine: Engine,
    streamed: bool,
    seed: u64,
    bytes: u64,
    step_time: Option<Duration>,
    /// How long the host has waited for steps, and has not told so far.
    waited: Duration,
    last_end_s: f64,
}

impl CudaExecutor {
    /// Takes the GPU, compiles or finds the kernels, plans memory, captures graphs.
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
        let bytes = 4 * places.numbers();
        let arena = DeviceMemory::new(&context, bytes, "parameters and activations")?;
        stream.fill(arena.at, 0, bytes)?;
        let most = if engine == Engine::Launch { MOST_LAUNCHED } else { MOST_STEPS };
        let run =
            DeviceMemory::new(&context, size_of::<Run>() + most * size_of::<Hyper>(), "learning rates")?;
        let barrier = DeviceMemory::new(&context, 2 * size_of::<u32>(), "the barrier of a grid")?;
        stream.fill(barrier.at, 0, barrier.bytes)?;
        let partial = DeviceMemory::new(&context, (PARTIALS + 1) * size_of::<f64>(), "sums over blocks")?;
        stream.fill(partial.at, 0, partial.bytes)?;
        let mailbox = Mailbox::new(&context, &stream, &programs)?;
        let mut products = match engine {
            Engine::Graph | Engine::Launch => Products::open(&context, arena.at)?,
            _ => None,
        };
        let reduced = summed(&programs.train);
        let (mut others, mut peers, mut sums) = (None, None, None);
        match way {
            Way::Alone => {}
            Way::Peers(ranks) => peers = Some(ranks),
            Way::Nccl(ranks) => others = Some(ranks),
            Way::Host(collective) => sums = Some(HostSums::new(&context, collective, reduced)?),
        }
        let ground =
            Ground { context: Arc::clone(&context), kernels, stream, arena, run, barrier, others, peers };
        let mut encode = |program: &Program, validates: bool| {
            let places = if validates { &places.validate } else { &places.train };
            let products = products.as_mut();
            Steps::new(program, &programs.layout, places, precision, &context, &ground.stream, products)
        };
        let mut load = |full: &Program, last: Option<&Program>, validates: bool| {
            let (full, last) = (encode(full, validates)?, last.map(|p| encode(p, validates)).transpose()?);
            let (numbers, engine) = match validates {
                true => (
                    places.validate.numbers,
                    validation_engine(engine, &context.gpu, places.validate.numbers),
                ),
                false => (places.train.numbers, engine),
            };
            let reduces = full.reduces();
            let mut loaded = Loaded { runner: None, full, last, engine, numbers };
            if !reduces || ground.peers.is_some() {
                loaded.runner(&ground)?;
            }
            Ok::<_, DeviceError>(loaded)
        };
        let train = load(&programs.train, programs.train_last.as_ref(), false)?;
        let validate = programs.validate.as_ref().map(|p| load(p, programs.validate_last.as_ref(), true));
        let validate = validate.transpose()?;
        let marks = if engine == Engine::Launch { MOST_LAUNCHED * Phase::ALL.len() } else { 0 };
        let ring = Ring::new(&context, &ground.stream, most, marks)?;
        let scratch = Pinned::new(&context, size_of::<u64>(), "digests")?;
        let first = programs.train.instructions.first().map(|i| &i.op);
        let streamed = matches!(first, Some(Op::Gather { source: RowSource::Chunk, .. }));
        let bytes = ground.bytes() + partial.bytes + mailbox.bytes();
        let bytes = (bytes + products.as_ref().map_or(0, Products::bytes)) as u64;
        let copies = Stream::new(&context)?;
        Ok(Self {
            train,
            validate,
            copies,
            feeds: Default::default(),
            order: OrderFeed::new(),
            mailbox,
            partial,
            scratch,
            ring,
            ground,
            layout: programs.layout,
            places,
            sums,
            reduced,
            engine,
            streamed,
            seed,
            bytes,
            step_time: None,
            waited: Duration::ZERO,
            last_end_s: 0.0,
        })
    }

    /// The host waits for all that the device was given. Every wait but pacing is here.
    fn wait(&mut self, doing: &str) -> Result<Duration, DeviceError> {
        self.ring.set_anchor(&self.ground.stream)?;
        let start = Instant::now();
        let running = self.ring.unfinished()?.map(Queued::doing);
        let doing = || running.clone().unwrap_or_else(|| doing.to_owned());
        match &self.ground.others {
            None => self.ground.stream.synchronize(doing)?,
            Some(others) => {
                let done = || self.ring.at_anchor(doing).map_err(Fault::Device);
                others.wait(done).map_err(|fault| self.broken(fault, doing()))?;
            }
        }
        self.ring.anchored();
        self.ground.check_peers()?;
        let wait = start.elapsed();
        self.waited += wait;
        Ok(wait)
    }

    fn broken(&self, fault: Fault, doing: String) -> DeviceError {
        match fault {
            Fault::Device(e) => e,
            Fault::Others(Lost(why)) => {
                DeviceError::Broken { device: self.ground.context.name.clone(), doing, why }
            }
        }
    }

    /// The address of a slice.
    fn address(&self, slice: Slice) -> Result<u64, DeviceError> {
        match self.places.place(slice) {
            Some(place) => Ok(self.ground.arena.at + 4 * place),
            None => Err(DeviceError::Unusable {
                device: self.ground.context.name.clone(),
                why: format!("buffer {} has no place in its memory", slice.buffer.0),
            }),
        }
    }

    /// Queues some steps of a block as one unit.
    fn part(
        &mut self,
        block: &Block<'_>,
        first: usize,
        steps: usize,
        meters: &mut Meters<'_>,
    ) -> Result<(), DeviceError> {
        if let Some(done) = self.ring.free()? {
            self.learn(&done, meters);
        }
        let trains = block.work == Work::Train;
        match &mut self.validate {
            Some(validate) if !trains => validate.runner(&self.ground)?,
            _ => self.train.runner(&self.ground)?,
        };
        let loaded = if trains { &self.train } else { self.validate.as_ref().unwrap_or(&self.train) };
        let batch = usize::try_from(loaded.full.rows).unwrap_or(1).max(1);
        let own = u64::try_from(loaded.full.own_rows).unwrap_or(0);
        let position = block.position + first * batch;
        // A chunk holds this device's rows only, and begins with a batch.
        let offset = (block.offset / batch + first) as u64 * own;
        let table = block.hyper.get(first..first + steps).unwrap_or_default();
        let run = Run {
            data: [0, 1, 2, 3].map(|i: usize| self.feeds[i].at()),
            order: self.order.at(),
            log: self.mailbox.log(),
            hyper: if table.is_empty() { 0 } else { self.ground.run.at + size_of::<Run>() as u64 },
            sums: self.mailbox.sums(),
            non_finite: self.mailbox.flag(),
            partial: self.partial.at,
            seed: self.seed,
            step: block.step + if trains { first as u64 } else { 0 },
            position: position as u64,
            offset,
            batch: batch as u64,
            index: 0,
            slot: (block.slot + first) as u32,
        };
        let start = Instant::now();
        let bytes = self.ring.begin(&self.ground.stream, self.ground.run.at, run, table)?;
        meters.ledger.copy(Kind::HostToDevice, Purpose::Parameters, bytes, start.elapsed());
        // Only the last step may have fewer rows.
        let whole = (block.rows.saturating_sub(position) / batch).min(steps);
        let last = loaded.last.as_ref().filter(|_| whole < steps);
        let phases = if self.engine == Engine::Launch && (trains || loaded.full.reduces()) {
            self.launch_marked(block, whole, whole < steps, first, meters.ledger)?
        } else {
            let runner = loaded.runner.as_ref();
            runner.map_or(Ok(()), |runner| runner.queue(&self.ground, &loaded.full, whole, last))?;
            Vec::new()
        };
        if trains && self.ground.queues_sums() {
            // When they end only the device knows.
            let bytes = (steps * 4 * self.reduced) as u64;
            meters.ledger.copies(Kind::AllReduce, Purpose::Gradients, steps as u64, bytes, Duration::ZERO);
        }
        let first = block.step + first as u64 + 1;
        self.ring.end(&self.ground.stream, Queued { trains, first, steps, phases })
    }

    /// Launches instructions one by one, with a mark behind every phase.
    fn launch_marked(
        &mut self,
        block: &Block<'_>,
        whole: usize,
        has_last: bool,
        first: usize,
        ledger: &mut Ledger,
    ) -> Result<Vec<Phase>, DeviceError> {
        let loaded = match (block.work, &self.validate) {
            (Work::Validate, Some(validate)) => validate,
            _ => &self.train,
        };
        let mut phases = Vec::new();
        for step in 0..whole + usize::from(has_last) {
            let steps =
                if step < whole { &loaded.full } else { loaded.last.as_ref().unwrap_or(&loaded.full) };
            for (i, node) in steps.nodes.iter().enumerate() {
                match &node.work {
                    Part::AllReduce { at, len } if self.sums.is_some() => {
                        let number = block.step + (first + step) as u64 + 1;
                        let address = self.ground.arena.at + 4 * at;
                        if let Some(sums) = &mut self.sums {
                            sums.all_reduce(&self.ground.stream, address, *len, number, ledger)?;
                        }
                    }
                    work => self.ground.queue(work)?,
                }
                if steps.nodes.get(i + 1).is_none_or(|next| next.phase != node.phase) {
                    self.ring.mark(phases.len(), &self.ground.stream)?;
                    phases.push(node.phase);
                }
            }
            self.ground.advance(steps)?;
        }
        Ok(phases)
    }

    /// Takes down what is known of a block that is done.
    fn learn(&mut self, done: &Done, meters: &mut Meters<'_>) {
        let Done { queued, end, seconds, phases } = done;
        if !queued.trains {
            return;
        }
        let each = seconds / queued.steps.max(1) as f64;
        self.step_time = Some(Duration::from_secs_f64(each));
        if phases.is_empty() {
            meters.clock.record_device(Phase::Step, Duration::from_secs_f64(*seconds), queued.steps as u64);
        }
        for (phase, seconds) in phases {
            meters.clock.record_device(*phase, Duration::from_secs_f64(*seconds), 1);
        }
        let origin = meters.clock.origin();
        let since = end.saturating_duration_since(origin).as_secs_f64();
        // Anchors are some microseconds off: time does not run backward for that.
        self.last_end_s = since.max(self.last_end_s);
        meters.ends.extend(std::iter::repeat_n(self.last_end_s, queued.steps));
    }

    fn ran(&mut self) -> Ran {
        Ran {
            non_finite: self.mailbox.non_finite(),
            step_time: self.step_time.take(),
            waited: Duration::ZERO,
        }
    }
}

impl Executor for CudaExecutor {
    fn bind(&mut self, buffer: BufferId, rows: &Arc<Vec<f32>>) -> Result<Moved, DeviceError> {
        let context = Arc::clone(&self.ground.context);
        context.enter()?;
        let l = &self.layout;
        let buffers = [l.train_features, l.train_targets, l.validation_features, l.validation_targets];
        let Some(number) = buffers.iter().position(|b| *b == buffer) else { return Ok(Moved::Nothing) };
        let what =
            ["training features", "training targets", "validation features", "validation targets"][number];
        let feed = &mut self.feeds[number];
        if self.streamed {
            feed.bind_chunk(&context, &self.copies, &self.ground.stream, rows, what)?;
        } else {
            feed.bind_whole(&context, &self.ground.stream, rows, what)?;
        }
        Ok(Moved::Bytes(size_of_val(&rows[..]) as u64))
    }

    fn bind_order(&mut self, order: &Arc<Vec<u32>>) -> Result<Moved, DeviceError> {
        self.ground.context.enter()?;
        self.order.bind(&self.ground.context, &self.ground.stream, order)?;
        Ok(Moved::Bytes(size_of_val(&order[..]) as u64))
    }

    fn write(&mut self, to: Slice, from: &[f32]) -> Result<Moved, DeviceError> {
        self.ground.context.enter()?;
        let from = &from[..from.len().min(to.len)];
        self.ground.stream.upload_staged(self.address(to)?, from)?;
        Ok(Moved::Bytes(size_of_val(from) as u64))
    }

    fn read(&mut self, from: Slice, to: &mut [f32]) -> Result<Moved, DeviceError> {
        self.ground.context.enter()?;
        let len = to.len().min(from.len);
        let to = &mut to[..len];
        let bytes = size_of_val(to) as u64;
        if from.buffer == self.layout.log {
            self.mailbox.fetch_log(&self.ground.stream, from.offset, len)?;
            let wait = self.wait("reading the log")?;
            self.mailbox.read_log(from.offset, to);
            return Ok(Moved::AfterWait { bytes, wait });
        }
        let address = self.address(from)?;
        // SAFETY: the next statement waits for the stream; should that fail, the device writes no more.
        unsafe { self.ground.stream.download_into(to, address)? };
        let wait = self.wait("reading its memory")?;
        Ok(Moved::AfterWait { bytes, wait })
    }

    fn take_sums(&mut self, sums: Sums, to: &mut [f64]) -> Result<Moved, DeviceError> {
        self.ground.context.enter()?;
        let bytes = self.mailbox.fetch_sums(&self.ground.stream, sums, to.len().min(SUMS))? as u64;
        let wait = self.wait("reading sums")?;
        self.mailbox.read_sums(sums, to);
        Ok(Moved::AfterWait { bytes, wait })
    }

    fn digest(&mut self, of: Slice) -> Result<(u64, Moved), DeviceError> {
        let ground = &self.ground;
        ground.context.enter()?;
        let (mut at, mut count) = (self.address(of)?, of.len as u64);
        let out = DeviceMemory::new(&ground.context, size_of::<u64>(), "a digest")?;
        let mut to = out.at;
        ground.stream.fill(to, 0, out.bytes)?;
        let mut arguments = [argument(&mut at), argument(&mut count), argument(&mut to)];
        let blocks = (of.len.div_ceil(1024) as u32).clamp(1, 4 * ground.context.gpu.multiprocessors.max(1));
        let shape = Shape { blocks, threads: 256, shared_bytes: 0 };
        // SAFETY: (const float*, u64, u64*); the slice lies within the arena.
        unsafe {
            launch(&ground.context, &ground.stream, ground.kernels.digest, shape, &mut arguments, "digest")?;
        }
        ground.stream.download(&self.scratch, 0, out.at, size_of::<u64>())?;
        let wait = self.wait("comparing its parameters")?;
        let mut digest = [0u64];
        self.scratch.read(0, &mut digest);
        Ok((digest[0], Moved::AfterWait { bytes: 8, wait }))
    }

    fn run(&mut self, block: &Block<'_>, meters: &mut Meters<'_>) -> Result<Ran, DeviceError> {
        self.ground.context.enter()?;
        let most = if self.engine == Engine::Launch { MOST_LAUNCHED } else { MOST_STEPS };
        let mut first = 0;
        while first < block.steps {
            let steps = (block.steps - first).min(most);
            self.part(block, first, steps, meters)?;
            first += steps;
        }
        self.ground.check_peers()?;
        Ok(self.ran())
    }

    fn settle(&mut self, purpose: Purpose, meters: &mut Meters<'_>) -> Result<Ran, DeviceError> {
        self.ground.context.enter()?;
        // Where nothing was read, as under `off`, steps may still run.
        if self.ring.unfinished()?.is_some() {
            let start = Instant::now();
            self.ring.wait()?;
            let wait = start.elapsed();
            meters.ledger.sync(purpose, wait);
            self.waited += wait;
        }
        for done in self.ring.all()? {
            self.learn(&done, meters);
        }
        Ok(Ran { waited: std::mem::take(&mut self.waited), ..self.ran() })
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for CudaExecutor {
    fn drop(&mut self) {
        // What is queued reads memory that is about to go.
        if self.ground.context.enter().is_ok() {
            let _ = self.ground.stream.synchronize(|| "ending".into());
            let _ = self.copies.synchronize(|| "ending".into());
        }
    }
}

/// What ends a wait for GPUs that sum together.
enum Fault {
    Device(DeviceError),
    Others(Lost),
}

impl From<Lost> for Fault {
    fn from(lost: Lost) -> Self {
        Self::Others(lost)
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
    let gb = |bytes: u64| bytes as f64 / 1e9;
    Err(DeviceError::Unusable {
        device: context.name.clone(),
        why: format!(
            "the job needs {:.3} GB of its memory, and {:.3} GB are free; lower `data.batch_size`, or end what else \
             uses the GPU",
            gb(needed),
            gb(free)
        ),
    })
}
