//! A GPU as an executor: blocks of steps are queued and not waited for; what they made is read when it is asked for.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    all_reduce::HostAllReduce,
    engines::{GpuContext, Loaded},
    launch::{CallGuard, InFlightQueue, Stream, Watch, argument, launch},
    measure::timeline::Timeline,
    memory::{DeviceLog, DeviceMemory, InputBuffer, OrderBuffer, Pinned, Staging},
};
use crate::{
    device::{Block, DETAILED_STEPS, DeviceError, Executor, Lane, Meters, Moved, Purpose, Ran},
    op::{Accumulator, BufferId, Layout, Phase, SUMS, Size, Slice},
    plan::Engine,
    program::MemoryPlan,
};

/// A GPU with a loaded trial.
pub struct CudaExecutor {
    pub(super) train: Loaded,
    pub(super) validate: Option<Loaded>,
    pub(super) copies: Stream,
    pub(super) feeds: [InputBuffer; 4],
    pub(super) order: OrderBuffer,
    pub(super) staging: Staging,
    pub(super) device_log: DeviceLog,
    pub(super) partial: DeviceMemory,
    /// What compares devices: a place there, and one here.
    pub(super) digest: DeviceMemory,
    pub(super) scratch: Pinned,
    pub(super) in_flight: InFlightQueue,
    pub(super) timeline: Timeline,
    pub(super) gpu_context: GpuContext,
    pub(super) layout: Layout,
    pub(super) places: MemoryPlan,
    pub(super) sums: Option<HostAllReduce>,
    /// Numbers of a sum over devices; 0 for a device alone.
    pub(super) reduced: usize,
    pub(super) engine: Engine,
    pub(super) streamed: bool,
    pub(super) seed: u64,
    pub(super) bytes: u64,
    pub(super) most_steps: usize,
    /// Seconds of the validation that is under way.
    pub(super) validation_s: Option<f64>,
    pub(super) step_time: Option<Duration>,
    pub(super) watch: Option<Watch>,
    /// How long the host has waited for steps, and has not told so far.
    pub(super) waited: Duration,
    pub(super) last_end_s: f64,
}

impl CudaExecutor {
    /// The same, with somebody who looks whether calls of the driver come back; of one that does not, `stuck` is told, on a
    /// thread of its own.
    ///
    /// # Errors
    /// Where the system gives no thread.
    pub fn watched(mut self, stuck: impl FnOnce(DeviceError) + Send + 'static) -> Result<Self, DeviceError> {
        let context = &self.gpu_context.context;
        let (name, heartbeat) = (context.name.clone(), Arc::clone(&context.heartbeat));
        self.watch = Some(Watch::start(name, heartbeat, context.least_wait, stuck)?);
        Ok(self)
    }

    /// Makes the GPU the calling thread's, whose calls are counted from now on.
    fn enter(&self) -> Result<CallGuard, DeviceError> {
        let inside = self.gpu_context.context.heartbeat.enter();
        self.gpu_context.context.enter().map(|()| inside)
    }

    /// The host waits for all that the device was given. Every wait but pacing is here.
    fn wait(&mut self, doing: &str) -> Result<Duration, DeviceError> {
        let start = Instant::now();
        self.in_flight.anchor(&self.gpu_context, doing)?;
        let wait = start.elapsed();
        self.waited += wait;
        Ok(wait)
    }

    fn copy_out_begins(&self) -> Result<(), DeviceError> {
        if self.timeline.wanted { self.timeline.around[0].record(&self.gpu_context.stream) } else { Ok(()) }
    }

    /// The host waits for a copy that has just been queued.
    fn wait_for_copy(&mut self, doing: &str, phase: Phase) -> Result<Duration, DeviceError> {
        if self.timeline.wanted {
            self.timeline.around[1].record(&self.gpu_context.stream)?;
        }
        let wait = self.wait(doing)?;
        if self.timeline.wanted {
            let [begin, end] = &self.timeline.around;
            let ends = [self.in_flight.instant(begin)?, self.in_flight.instant(end)?];
            self.timeline.copied(Lane::CopyOut, phase, ends);
        }
        Ok(wait)
    }

    fn address(&self, slice: Slice) -> Result<u64, DeviceError> {
        let end = slice.offset.saturating_add(slice.len);
        if slice.buffer == self.layout.log && end <= DeviceLog::log_bytes(&self.layout) / 4 {
            return Ok(self.device_log.log() + 4 * slice.offset as u64);
        }
        match self.places.place(slice) {
            Some(place) => Ok(self.gpu_context.arena.at + 4 * place),
            None => Err(DeviceError::Unusable {
                device: self.gpu_context.context.name.clone(),
                why: format!("buffer {} has no place in its memory", slice.buffer.0),
            }),
        }
    }

    fn ran(&mut self) -> Ran {
        Ran {
            non_finite: self.device_log.non_finite(),
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
        if self.gpu_context.others.is_none() {
            return Ok(());
        }
        let _inside = self.enter()?;
        // The library connects the GPUs at their first sums, which are these: nothing of that within a capture, or in the
        // time of a step.
        self.train.sum_zeros(&self.gpu_context)?;
        self.in_flight.anchor(&self.gpu_context, "connecting the GPUs")?;
        self.train.loaded_engine(&self.gpu_context)?;
        if let Some(validate) = &mut self.validate {
            validate.loaded_engine(&self.gpu_context)?;
        }
        Ok(())
    }

    fn bind(&mut self, buffer: BufferId, rows: &Arc<Vec<f32>>) -> Result<Moved, DeviceError> {
        let _inside = self.enter()?;
        let l = &self.layout;
        let buffers = [l.train_features, l.train_targets, l.validation_features, l.validation_targets];
        let Some(number) = buffers.iter().position(|b| *b == buffer) else { return Ok(Moved::Nothing) };
        let what =
            ["training features", "training targets", "validation features", "validation targets"][number];
        let (gpu_context, feed) = (&self.gpu_context, &mut self.feeds[number]);
        let waited = if self.streamed {
            let reported = feed.bind_chunk(gpu_context, (&self.copies, &self.in_flight), rows, what)?;
            reported.into_iter().for_each(|ends| self.timeline.copied(Lane::CopyIn, Phase::Upload, ends));
            Duration::ZERO
        } else {
            feed.bind_whole(gpu_context, &mut self.staging, rows, what)?
        };
        Ok(moved(size_of_val(&rows[..]), waited))
    }

    fn bind_order(&mut self, order: &Arc<Vec<u32>>) -> Result<Moved, DeviceError> {
        let _inside = self.enter()?;
        self.order.bind(&self.gpu_context, order)?;
        Ok(Moved::Bytes(size_of_val(&order[..]) as u64))
    }

    fn write(&mut self, to: Slice, from: &[f32]) -> Result<Moved, DeviceError> {
        let _inside = self.enter()?;
        let from = &from[..from.len().min(to.len)];
        let address = self.address(to)?;
        let waited = self.staging.upload(&self.gpu_context, address, from)?;
        Ok(moved(size_of_val(from), waited))
    }

    fn read(&mut self, from: Slice, to: &mut [f32]) -> Result<Moved, DeviceError> {
        let _inside = self.enter()?;
        let len = to.len().min(from.len);
        let to = &mut to[..len];
        let bytes = size_of_val(to) as u64;
        if from.buffer == self.layout.log && self.gpu_context.context.is_given_up() {
            // The blocks that are done have left their losses there, and copies go another way than what hangs.
            self.device_log.fetch_log(&self.copies, from.offset, len)?;
            self.gpu_context.rescued(&self.copies, "reading the log")?;
            self.device_log.read_log(from.offset, to);
            return Ok(Moved::Bytes(bytes));
        }
        if from.buffer == self.layout.log {
            self.copy_out_begins()?;
            self.device_log.fetch_log(&self.gpu_context.stream, from.offset, len)?;
            let wait = self.wait_for_copy("reading the log", Phase::Log)?;
            self.device_log.read_log(from.offset, to);
            return Ok(Moved::AfterWait { bytes, wait });
        }
        let address = self.address(from)?;
        // A copy to pageable memory blocks within the driver till all before it is done: the steps are waited for here.
        let mut wait = self.wait("reading its memory")?;
        // SAFETY: the next statement waits for the stream; should that fail, the device writes no more.
        unsafe { self.gpu_context.stream.download_into(to, address)? };
        wait += self.wait("reading its memory")?;
        Ok(Moved::AfterWait { bytes, wait })
    }

    fn take_sums(&mut self, sums: Accumulator, to: &mut [f64]) -> Result<Moved, DeviceError> {
        let _inside = self.enter()?;
        self.copy_out_begins()?;
        let bytes = self.device_log.fetch_sums(&self.gpu_context.stream, sums, to.len().min(SUMS))? as u64;
        let phase = if sums == Accumulator::Validation { Phase::Validation } else { Phase::Log };
        let wait = self.wait_for_copy("reading sums", phase)?;
        self.device_log.read_sums(sums, to);
        Ok(Moved::AfterWait { bytes, wait })
    }

    fn digest(&mut self, of: Slice) -> Result<(u64, Moved), DeviceError> {
        let _inside = self.enter()?;
        let (gpu_context, out) = (&self.gpu_context, &self.digest);
        let (mut at, mut count, mut to) = (self.address(of)?, of.len as u64, out.at);
        gpu_context.stream.fill(to, 0, out.bytes)?;
        let mut arguments = [argument(&mut at), argument(&mut count), argument(&mut to)];
        let most = 4 * gpu_context.context.gpu.multiprocessors;
        let shape = Size::new(of.len.div_ceil(1024) as u64, most).into();
        // SAFETY: (const float*, u64, u64*); the slice lies within the arena.
        unsafe {
            launch(
                &gpu_context.context,
                &gpu_context.stream,
                gpu_context.kernels.digest,
                shape,
                &mut arguments,
                "digest",
            )?;
        }
        gpu_context.stream.download(&self.scratch, 0, out.at, size_of::<u64>())?;
        let wait = self.wait("comparing its parameters")?;
        let mut digest = [0u64];
        self.scratch.read(0, &mut digest);
        Ok((digest[0], Moved::AfterWait { bytes: 8, wait }))
    }

    fn run(&mut self, block: &Block<'_>, meters: &mut Meters<'_>) -> Result<Ran, DeviceError> {
        let _inside = self.enter()?;
        self.timeline.wanted = meters.clock.trace.is_some();
        let mut first = 0;
        while first < block.steps {
            let detailed = block.step + (first as u64) < DETAILED_STEPS && self.timeline.has_long_steps();
            let most = if detailed { 1 } else { self.most_steps };
            let steps = (block.steps - first).min(most);
            self.part(block, first, steps, meters)?;
            first += steps;
        }
        self.gpu_context.check_peers()?;
        Ok(self.ran())
    }

    fn settle(&mut self, purpose: Purpose, meters: &mut Meters<'_>) -> Result<Ran, DeviceError> {
        let _inside = self.enter()?;
        if self.gpu_context.context.is_given_up() {
            for done in self.in_flight.finished()? {
                self.learn(&done, meters);
            }
            return Ok(self.ran());
        }
        // Where nothing was read, as under `off`, steps may still run.
        if self.in_flight.unfinished()?.is_some() {
            let start = Instant::now();
            self.in_flight.wait(&self.gpu_context)?;
            let wait = start.elapsed();
            meters.ledger.sync(purpose, wait);
            self.waited += wait;
        }
        for done in self.in_flight.all()? {
            self.learn(&done, meters);
        }
        // All of a validation, whose sums the host has just read: one sample, as by the host's clock.
        if let Some(seconds) = self.validation_s.take() {
            meters.clock.record_device(Phase::Validation, Duration::from_secs_f64(seconds), 1);
        }
        for feed in &mut self.feeds {
            let reported = feed.reported(&self.in_flight)?;
            reported.into_iter().for_each(|ends| self.timeline.copied(Lane::CopyIn, Phase::Upload, ends));
        }
        self.timeline.report(meters.clock);
        Ok(Ran { waited: std::mem::take(&mut self.waited), ..self.ran() })
    }

    fn bytes(&self) -> u64 {
        let rows = self.feeds.iter().map(InputBuffer::bytes).sum::<usize>() + self.order.bytes();
        self.bytes + rows as u64
    }
}

impl Drop for CudaExecutor {
    fn drop(&mut self) {
        let _inside = self.gpu_context.context.heartbeat.enter();
        // What is queued reads memory that is about to go.
        self.gpu_context.drain(&self.copies);
        // Graphs hold sums.
        self.train.loaded_engine = None;
        if let Some(validate) = &mut self.validate {
            validate.loaded_engine = None;
        }
        self.gpu_context.leave_others();
    }
}
