//! A GPU as an executor. Blocks of steps are queued without waiting; results are read on demand.

use std::{sync::Arc, time::Duration};

use super::{
    all_reduce::HostAllReduce,
    engines::{GpuContext, Loaded},
    launch::{CallGuard, Stream, Watch},
    memory::{DeviceLog, Digest, Inputs, pinned_numbers},
    progress::Progress,
    proof::Unproven,
};
use crate::{
    device::{
        Block, DETAILED_STEPS, DeviceError, Executor, HostMemory, Kind, LentRows, Meters, Moved, PassKind,
        Purpose, Ran,
    },
    program::{Accumulator, BufferId, Layout, MemoryPlan, Phase, SUMS, Slice},
};

pub struct CudaExecutor {
    pub(super) train: Loaded,
    pub(super) validate: Option<Loaded>,
    pub(super) inputs: Inputs,
    pub(super) device_log: DeviceLog,
    /// A trial on one GPU has it once somebody asks.
    pub(super) digest: Option<Digest>,
    pub(super) progress: Progress,
    pub(super) gpu: GpuContext,
    pub(super) layout: Layout,
    pub(super) places: MemoryPlan,
    /// The all-reduce through the host, if that is used.
    pub(super) sums: Option<HostAllReduce>,
    /// Elements of an all-reduce; 0 for a single device.
    pub(super) reduced: usize,
    pub(super) seed: u64,
    /// Bytes on the device, not counting the inputs.
    pub(super) bytes: u64,
    pub(super) watch: Option<Watch>,
    /// Rows of the log on their way to the host.
    pub(super) fetched: Option<Slice>,
    /// Number of copies and bytes of the programs' instructions, until they are counted in the ledger.
    pub(super) records: (u64, u64),
    /// The test that a compiled step has to pass in its first block, if it is still due.
    pub(super) unproven: Option<Unproven>,
    /// A message for the user, until it is reported.
    pub(super) notice: Option<String>,
    /// See [`Executor::product_gains`].
    pub(super) product_gains: Option<String>,
}

impl CudaExecutor {
    /// Starts a thread that notices a driver call that does not return; `stuck` gets the error, on that thread.
    pub fn watched(mut self, stuck: impl FnOnce(DeviceError) + Send + 'static) -> Result<Self, DeviceError> {
        let context = &self.gpu.context;
        let (name, heartbeat) = (context.name.clone(), Arc::clone(&context.heartbeat));
        self.watch = Some(Watch::start(name, heartbeat, context.least_wait, stuck)?);
        Ok(self)
    }

    /// Makes the GPU current on the calling thread; its driver calls are watched until the guard is dropped.
    fn enter(&self) -> Result<CallGuard, DeviceError> {
        let inside = self.gpu.context.heartbeat.enter();
        self.gpu.context.enter().map(|()| inside)
    }

    fn address(&self, slice: Slice) -> Result<u64, DeviceError> {
        let end = slice.offset.saturating_add(slice.len);
        if slice.buffer == self.layout.log && end <= DeviceLog::log_bytes(&self.layout) / 4 {
            return Ok(self.device_log.log() + 4 * slice.offset as u64);
        }
        let place = self.places.place(slice);
        place
            .map(|place| self.gpu.arena.at + 4 * place)
            .ok_or_else(|| DeviceError::no_place(&self.gpu.context.name, slice))
    }

    /// The proof of a compiled step is judged by the size of the targets.
    fn judge_by(&mut self, buffer: BufferId, rows: &[f32]) {
        if let Some(unproven) = self.unproven.as_mut().filter(|_| buffer == self.layout.train_targets) {
            unproven.judge_by(rows);
        }
    }

    fn ran(&mut self) -> Ran {
        Ran {
            non_finite: self.device_log.non_finite(),
            step_time: self.progress.step_time.take(),
            waited: Duration::ZERO,
            notice: self.notice.take(),
        }
    }
}

/// The programs that do a block's work.
pub(super) fn loaded_for<'a>(work: PassKind, train: &'a Loaded, validate: &'a Option<Loaded>) -> &'a Loaded {
    validate.as_ref().filter(|_| work == PassKind::Validate).unwrap_or(train)
}

/// A copy to the device, with the time waited.
fn moved(bytes: usize, wait: Duration) -> Moved {
    let bytes = bytes as u64;
    if wait.is_zero() { Moved::Bytes(bytes) } else { Moved::AfterWait { bytes, wait } }
}

impl Executor for CudaExecutor {
    fn warm_up(&mut self) -> Result<(), DeviceError> {
        if self.gpu.nccl().is_none() {
            return Ok(());
        }
        let _inside = self.enter()?;
        // NCCL connects the GPUs during the first sums. Run them here, so that no capture and no timed step includes that.
        self.train.sum_zeros(&self.gpu)?;
        self.progress.in_flight.anchor(&self.gpu, "connecting the GPUs")?;
        self.train.load(&self.gpu)?;
        if let Some(validate) = &mut self.validate {
            validate.load(&self.gpu)?;
        }
        Ok(())
    }

    fn product_gains(&self) -> Option<String> {
        self.product_gains.clone()
    }

    fn bind(&mut self, buffer: BufferId, rows: &Arc<Vec<f32>>) -> Result<Moved, DeviceError> {
        let _inside = self.enter()?;
        self.judge_by(buffer, rows);
        let Some(number) = self.layout.data_number(buffer) else { return Ok(Moved::Nothing) };
        let waited = self.inputs.bind(&self.gpu, number, rows)?;
        Ok(waited.map_or(Moved::Nothing, |waited| moved(size_of_val(&rows[..]), waited)))
    }

    fn lend(&mut self, elements: usize) -> Result<Option<HostMemory>, DeviceError> {
        let _inside = self.enter()?;
        pinned_numbers(&self.gpu.context, elements, "rows on their way").map(Some)
    }

    fn bind_lent(&mut self, buffer: BufferId, rows: &Arc<LentRows>) -> Result<Moved, DeviceError> {
        let _inside = self.enter()?;
        self.judge_by(buffer, rows);
        let Some(number) = self.layout.data_number(buffer) else { return Ok(Moved::Nothing) };
        let uploaded = self.inputs.bind_chunk(&self.gpu, &self.progress.in_flight, number, rows)?;
        self.progress.uploaded(uploaded);
        Ok(Moved::Bytes(size_of_val(&rows[..]) as u64))
    }

    fn bind_order(&mut self, order: &Arc<Vec<u32>>) -> Result<Moved, DeviceError> {
        let _inside = self.enter()?;
        self.inputs.bind_order(&self.gpu, order)?;
        Ok(Moved::Bytes(size_of_val(&order[..]) as u64))
    }

    fn write(&mut self, to: Slice, from: &[f32]) -> Result<Moved, DeviceError> {
        let _inside = self.enter()?;
        let from = &from[..from.len().min(to.len)];
        let address = self.address(to)?;
        let waited = self.inputs.staging.upload(&self.gpu, address, from)?;
        Ok(moved(size_of_val(from), waited))
    }

    fn read(&mut self, from: Slice, to: &mut [f32]) -> Result<Moved, DeviceError> {
        let _inside = self.enter()?;
        let len = to.len().min(from.len);
        let to = &mut to[..len];
        let bytes = size_of_val(to) as u64;
        if from.buffer == self.layout.log && self.gpu.context.is_given_up() {
            // Finished blocks have written their losses. Copies use another stream than the one that hangs.
            self.device_log.fetch_log(&self.inputs.copies, from.offset, len)?;
            self.gpu.rescued(&self.inputs.copies, "reading the log")?;
            self.device_log.read_log(from.offset, to);
            return Ok(Moved::Bytes(bytes));
        }
        if from.buffer == self.layout.log {
            if self.fetched.take() != Some(from) {
                let copy = |stream: &Stream| self.device_log.fetch_log(stream, from.offset, len);
                self.progress.begin_download(&self.gpu, copy)?;
            }
            let wait = self.progress.end_download(&self.gpu, ("reading the log", Phase::Log))?;
            self.device_log.read_log(from.offset, to);
            return Ok(Moved::AfterWait { bytes, wait });
        }
        let address = self.address(from)?;
        // A copy to pageable memory blocks inside the driver until all earlier work is done, so wait for the steps here.
        let mut wait = self.progress.wait(&self.gpu, "reading its memory")?;
        // SAFETY: the next statement waits for the stream; if that fails, the device no longer writes.
        unsafe { self.gpu.stream.download_into(to, address)? };
        wait += self.progress.wait(&self.gpu, "reading its memory")?;
        Ok(Moved::AfterWait { bytes, wait })
    }

    fn fetch(&mut self, from: Slice) -> Result<(), DeviceError> {
        let _inside = self.enter()?;
        let copy = |stream: &Stream| self.device_log.fetch_log(stream, from.offset, from.len);
        self.progress.begin_download(&self.gpu, copy)?;
        self.fetched = Some(from);
        Ok(())
    }

    fn is_fetched(&self) -> Result<bool, DeviceError> {
        let _inside = self.enter()?;
        if self.fetched.is_some() { self.progress.has_downloaded() } else { Ok(true) }
    }

    fn copy(&mut self, from: Slice, to: Slice) -> Result<Moved, DeviceError> {
        let _inside = self.enter()?;
        let (context, bytes) = (&self.gpu.context, 4 * from.len.min(to.len));
        let [from, to] = [self.address(from)?, self.address(to)?];
        self.gpu.stream.copy_between(to, context, from, context, bytes)?;
        Ok(Moved::Bytes(bytes as u64))
    }

    fn take_sums(&mut self, sums: Accumulator, to: &mut [f64]) -> Result<Moved, DeviceError> {
        let _inside = self.enter()?;
        let copy = |stream: &Stream| self.device_log.fetch_sums(stream, sums, to.len().min(SUMS));
        let phase = if sums == Accumulator::Validation { Phase::Validation } else { Phase::Log };
        let bytes = self.progress.begin_download(&self.gpu, copy)?;
        let wait = self.progress.end_download(&self.gpu, ("reading sums", phase))?;
        self.device_log.read_sums(sums, to);
        Ok(Moved::AfterWait { bytes: bytes as u64, wait })
    }

    fn write_sums(&mut self, sums: Accumulator, from: &[f64]) -> Result<Moved, DeviceError> {
        let _inside = self.enter()?;
        let from = &from[..from.len().min(SUMS)];
        let waited = self.inputs.staging.upload(&self.gpu, self.device_log.sums_of(sums), from)?;
        Ok(moved(size_of_val(from), waited))
    }

    fn digest(&mut self, of: Slice) -> Result<(u64, Moved), DeviceError> {
        let _inside = self.enter()?;
        let address = self.address(of)?;
        let made = self.digest.take().map_or_else(|| Digest::new(&self.gpu), Ok)?;
        let digest = self.digest.insert(made);
        digest.queue(&self.gpu, address, of.len)?;
        let wait = self.progress.wait(&self.gpu, "comparing its parameters")?;
        Ok((digest.get(), Moved::AfterWait { bytes: 8, wait }))
    }

    fn run(&mut self, block: &Block<'_>, meters: &mut Meters<'_>) -> Result<Ran, DeviceError> {
        let _inside = self.enter()?;
        self.progress.timeline.wanted = meters.clock.trace.is_some();
        let (copies, bytes) = std::mem::take(&mut self.records);
        meters.ledger.copies(Kind::HostToDevice, Purpose::Launch, copies, bytes, Duration::ZERO);
        let loaded = loaded_for(block.work, &self.train, &self.validate);
        let most = loaded.most_steps(block.rows.div_ceil(loaded.batch()));
        let mut first = 0;
        while first < block.steps {
            let detailed =
                block.step + (first as u64) < DETAILED_STEPS && self.progress.timeline.has_long_steps();
            let most = if detailed { 1 } else { most };
            let steps = (block.steps - first).min(most);
            self.part(block, first, steps, meters)?;
            first += steps;
        }
        self.gpu.check_peers()?;
        Ok(self.ran())
    }

    fn settle(&mut self, purpose: Purpose, meters: &mut Meters<'_>) -> Result<Ran, DeviceError> {
        let _inside = self.enter()?;
        self.progress.settle(&mut self.gpu, purpose, meters)?;
        if self.gpu.context.is_given_up() {
            return Ok(self.ran());
        }
        self.progress.uploaded(self.inputs.uploaded(&self.progress.in_flight)?);
        self.progress.timeline.report(meters.clock);
        Ok(Ran { waited: std::mem::take(&mut self.progress.waited), ..self.ran() })
    }

    fn finished(&mut self, meters: &mut Meters<'_>) -> Result<Ran, DeviceError> {
        let _inside = self.enter()?;
        self.progress.finished(&mut self.gpu, meters)?;
        Ok(Ran { waited: std::mem::take(&mut self.progress.waited), ..self.ran() })
    }

    fn bytes(&self) -> u64 {
        self.bytes + self.inputs.bytes() as u64
    }

    /// Lets go of the other GPUs, all of which do so now: to end a communicator of NCCL takes all of its ranks.
    fn close(&mut self, _: &mut Meters<'_>) -> Result<(), DeviceError> {
        if self.gpu.nccl().is_some() {
            let _inside = self.enter()?;
            self.leave_others();
            self.gpu.sums = None;
        }
        Ok(())
    }
}

impl CudaExecutor {
    /// Returns whether all its work is complete.
    fn leave_others(&mut self) -> bool {
        // Queued work reads memory that is about to be freed.
        let is_idle = self.gpu.drain(&self.inputs.copies);
        // Graphs contain sums, so drop them before the communicator.
        self.train.loaded_engine = None;
        if let Some(validate) = &mut self.validate {
            validate.loaded_engine = None;
        }
        self.gpu.leave_others();
        is_idle
    }
}

impl Drop for CudaExecutor {
    fn drop(&mut self) {
        let _inside = self.gpu.context.heartbeat.enter();
        let is_idle = self.leave_others();
        // What a trial on several devices had is freed, since the others may access it.
        if is_idle && self.reduced == 0 {
            self.gpu.context.set_idle();
        }
    }
}
