//! A GPU as an executor: blocks of steps are queued and not waited for; what they made is read when it is asked for.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    abi::{Run, SUMS},
    engine::Ground,
    feed::{Feed, OrderFeed},
    launch::{Shape, argument, launch},
    load::Loaded,
    mailbox::Mailbox,
    memory::{DeviceMemory, Pinned},
    ring::{Done, Queued, Ring},
    staging::Staging,
    steps::Work as Part,
    stream::Stream,
    sums::HostSums,
    timeline::Timeline,
};
use crate::{
    device::{
        Block, DETAILED_STEPS, DeviceError, Executor, Kind, Lane, Ledger, Meters, Moved, Purpose, Ran, Work,
    },
    plan::Engine,
    program::{Arena, BufferId, Layout, Phase, Slice, Sums},
};

/// Steps that are queued at once, at most.
pub(super) const MOST_STEPS: usize = 1 << 14;
/// The same where they are nodes of graphs, 16 in each: see [`MOST_QUEUED`].
pub(super) const MOST_IN_GRAPHS: usize = 1 << 12;
/// The same where every instruction is a launch of its own, and its phases are marked.
pub(super) const MOST_LAUNCHED: usize = 16;
/// Launches and marks of a block at most, where each step has several: two blocks are on the device. A stream takes some
/// thousand launches; then the next one waits within the driver till there is room, and for ever behind one that hangs.
/// (NVIDIA documents no number; users have met 1,024.)
pub(super) const MOST_QUEUED: usize = 400;

/// A GPU with a trial loaded.
pub struct CudaExecutor {
    pub(super) train: Loaded,
    pub(super) validate: Option<Loaded>,
    pub(super) copies: Stream,
    pub(super) feeds: [Feed; 4],
    pub(super) order: OrderFeed,
    pub(super) staging: Staging,
    pub(super) mailbox: Mailbox,
    pub(super) partial: DeviceMemory,
    /// What compares devices: a place there, and one here.
    pub(super) digest: DeviceMemory,
    pub(super) scratch: Pinned,
    pub(super) ring: Ring,
    pub(super) timeline: Timeline,
    pub(super) ground: Ground,
    pub(super) layout: Layout,
    pub(super) places: Arena,
    pub(super) sums: Option<HostSums>,
    /// Numbers of a sum over devices; 0 for a device alone.
    pub(super) reduced: usize,
    pub(super) engine: Engine,
    pub(super) streamed: bool,
    pub(super) seed: u64,
    pub(super) bytes: u64,
    /// Steps that are queued at once, at most.
    pub(super) most_steps: usize,
    /// Seconds of the validation that is under way.
    pub(super) validation_s: Option<f64>,
    pub(super) step_time: Option<Duration>,
    /// How long the host has waited for steps, and has not told so far.
    pub(super) waited: Duration,
    pub(super) last_end_s: f64,
}

impl CudaExecutor {
    /// The host waits for all that the device was given. Every wait but pacing is here.
    fn wait(&mut self, doing: &str) -> Result<Duration, DeviceError> {
        let start = Instant::now();
        self.ring.anchor(&self.ground, doing)?;
        let wait = start.elapsed();
        self.waited += wait;
        Ok(wait)
    }

    /// Marks where a copy to the host begins.
    fn copy_out_begins(&self) -> Result<(), DeviceError> {
        if self.timeline.wanted { self.timeline.around[0].record(&self.ground.stream) } else { Ok(()) }
    }

    /// The host waits for a copy that has just been queued.
    fn wait_for_copy(&mut self, doing: &str, phase: Phase) -> Result<Duration, DeviceError> {
        if self.timeline.wanted {
            self.timeline.around[1].record(&self.ground.stream)?;
        }
        let wait = self.wait(doing)?;
        if self.timeline.wanted {
            let [begin, end] = &self.timeline.around;
            let ends = [self.ring.instant(begin)?, self.ring.instant(end)?];
            self.timeline.copied(Lane::CopyOut, phase, ends);
        }
        Ok(wait)
    }

    /// The address of a slice.
    fn address(&self, slice: Slice) -> Result<u64, DeviceError> {
        let end = slice.offset.saturating_add(slice.len);
        if slice.buffer == self.layout.log && end <= Mailbox::log_bytes(&self.layout) / 4 {
            return Ok(self.mailbox.log() + 4 * slice.offset as u64);
        }
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
        self.ground.together(|| "queuing steps".into())?;
        if let Some(done) = self.ring.free(&self.ground)? {
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
        // Known before it is queued: where sums go through the host, that waits for steps.
        let slowest_s = steps as f64 * loaded.slowest_s;
        self.ground.patience.give(slowest_s);
        if trains {
            self.ground.step = block.step + (first + steps) as u64;
        }
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
            meters.ledger.queued(Kind::AllReduce, Purpose::Gradients, steps as u64, bytes);
        }
        let first = block.step + first as u64 + 1;
        self.ring.end(&self.ground.stream, Queued { trains, first, steps, phases, slowest_s })
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
                            sums.all_reduce(&self.ground, address, *len, number, ledger)?;
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
        self.timeline.tell(meters.clock);
        self.timeline.block(done, meters.clock);
        let Done { queued, end, seconds, phases, .. } = done;
        self.ground.patience.learn(queued.slowest_s, *seconds);
        if !queued.trains {
            *self.validation_s.get_or_insert_default() += seconds;
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

/// What a copy to the device was.
fn moved(bytes: usize, wait: Duration) -> Moved {
    let bytes = bytes as u64;
    if wait.is_zero() { Moved::Bytes(bytes) } else { Moved::AfterWait { bytes, wait } }
}

impl Executor for CudaExecutor {
    fn warm_up(&mut self) -> Result<(), DeviceError> {
        if self.ground.others.is_none() {
            return Ok(());
        }
        self.ground.context.enter()?;
        // The library connects the GPUs at their first sums, which are these: nothing of that within a capture, or in the
        // time of a step.
        self.train.sum_zeros(&self.ground)?;
        self.ring.anchor(&self.ground, "connecting the GPUs")?;
        self.train.runner(&self.ground)?;
        if let Some(validate) = &mut self.validate {
            validate.runner(&self.ground)?;
        }
        Ok(())
    }

    fn bind(&mut self, buffer: BufferId, rows: &Arc<Vec<f32>>) -> Result<Moved, DeviceError> {
        self.ground.context.enter()?;
        let l = &self.layout;
        let buffers = [l.train_features, l.train_targets, l.validation_features, l.validation_targets];
        let Some(number) = buffers.iter().position(|b| *b == buffer) else { return Ok(Moved::Nothing) };
        let what =
            ["training features", "training targets", "validation features", "validation targets"][number];
        let (ground, feed) = (&self.ground, &mut self.feeds[number]);
        let waited = if self.streamed {
            let told = feed.bind_chunk(ground, (&self.copies, &self.ring), rows, what)?;
            told.into_iter().for_each(|ends| self.timeline.copied(Lane::CopyIn, Phase::Upload, ends));
            Duration::ZERO
        } else {
            feed.bind_whole(ground, &mut self.staging, rows, what)?
        };
        Ok(moved(size_of_val(&rows[..]), waited))
    }

    fn bind_order(&mut self, order: &Arc<Vec<u32>>) -> Result<Moved, DeviceError> {
        self.ground.context.enter()?;
        self.order.bind(&self.ground, order)?;
        Ok(Moved::Bytes(size_of_val(&order[..]) as u64))
    }

    fn write(&mut self, to: Slice, from: &[f32]) -> Result<Moved, DeviceError> {
        self.ground.context.enter()?;
        let from = &from[..from.len().min(to.len)];
        let address = self.address(to)?;
        let waited = self.staging.upload(&self.ground, address, from)?;
        Ok(moved(size_of_val(from), waited))
    }

    fn read(&mut self, from: Slice, to: &mut [f32]) -> Result<Moved, DeviceError> {
        self.ground.context.enter()?;
        let len = to.len().min(from.len);
        let to = &mut to[..len];
        let bytes = size_of_val(to) as u64;
        if from.buffer == self.layout.log {
            self.copy_out_begins()?;
            self.mailbox.fetch_log(&self.ground.stream, from.offset, len)?;
            let wait = self.wait_for_copy("reading the log", Phase::Log)?;
            self.mailbox.read_log(from.offset, to);
            return Ok(Moved::AfterWait { bytes, wait });
        }
        let address = self.address(from)?;
        // A copy to pageable memory blocks within the driver till all before it is done: the steps are waited for here.
        let mut wait = self.wait("reading its memory")?;
        // SAFETY: the next statement waits for the stream; should that fail, the device writes no more.
        unsafe { self.ground.stream.download_into(to, address)? };
        wait += self.wait("reading its memory")?;
        Ok(Moved::AfterWait { bytes, wait })
    }

    fn take_sums(&mut self, sums: Sums, to: &mut [f64]) -> Result<Moved, DeviceError> {
        self.ground.context.enter()?;
        self.copy_out_begins()?;
        let bytes = self.mailbox.fetch_sums(&self.ground.stream, sums, to.len().min(SUMS))? as u64;
        let phase = if sums == Sums::Validation { Phase::Validation } else { Phase::Log };
        let wait = self.wait_for_copy("reading sums", phase)?;
        self.mailbox.read_sums(sums, to);
        Ok(Moved::AfterWait { bytes, wait })
    }

    fn digest(&mut self, of: Slice) -> Result<(u64, Moved), DeviceError> {
        let (ground, out) = (&self.ground, &self.digest);
        ground.context.enter()?;
        let (mut at, mut count, mut to) = (self.address(of)?, of.len as u64, out.at);
        ground.stream.fill(to, 0, out.bytes)?;
        let mut arguments = [argument(&mut at), argument(&mut count), argument(&mut to)];
        let most = 4 * ground.context.gpu.multiprocessors;
        let shape = Shape::of(of.len.div_ceil(1024) as u64, most);
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
        self.timeline.wanted = meters.clock.trace.is_some();
        let mut first = 0;
        while first < block.steps {
            let detailed = block.step + (first as u64) < DETAILED_STEPS && self.timeline.has_long_steps();
            let most = if detailed { 1 } else { self.most_steps };
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
            self.ring.wait(&self.ground)?;
            let wait = start.elapsed();
            meters.ledger.sync(purpose, wait);
            self.waited += wait;
        }
        for done in self.ring.all()? {
            self.learn(&done, meters);
        }
        // All of a validation, whose sums the host has just read: one sample, as by the host's clock.
        if let Some(seconds) = self.validation_s.take() {
            meters.clock.record_device(Phase::Validation, Duration::from_secs_f64(seconds), 1);
        }
        for feed in &mut self.feeds {
            let told = feed.told(&self.ring)?;
            told.into_iter().for_each(|ends| self.timeline.copied(Lane::CopyIn, Phase::Upload, ends));
        }
        self.timeline.tell(meters.clock);
        Ok(Ran { waited: std::mem::take(&mut self.waited), ..self.ran() })
    }

    fn bytes(&self) -> u64 {
        let rows = self.feeds.iter().map(Feed::bytes).sum::<usize>() + self.order.bytes();
        self.bytes + rows as u64
    }
}

impl Drop for CudaExecutor {
    fn drop(&mut self) {
        // What is queued reads memory that is about to go.
        self.ground.drain(&self.copies);
        // Graphs hold sums.
        self.train.runner = None;
        if let Some(validate) = &mut self.validate {
            validate.runner = None;
        }
        self.ground.leave_others();
    }
}
