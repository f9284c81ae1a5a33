//! The CPU executor: one thread or a team runs a trial's programs.

use std::{
    sync::{Arc, PoisonError, RwLock},
    time::{Duration, Instant},
};

use super::{
    state::{Fault, State},
    team::{Lost, Team, WorkerToken},
    thread_tuner::{KnownTimes, ThreadMode, ThreadTuner},
    watch::{PhaseWatch, Unwatched, Watcher},
};
use crate::{
    collective::Collective,
    device::{
        Block, Clock, DeviceError, Executor, Grain, Kind, Lane, Ledger, Meters, Moved, PassKind, Purpose,
        Ran, RowReader, Store, digest,
    },
    op::{
        Accumulator, BufferId, Layout, Phase, Slice,
        run::{BoundData, Cursor, Failure, WorkerState},
    },
    program::Programs,
    vector::{self, matmul::Kernel},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// In the host's memory: copies move no bytes.
    Host,
    /// In simulated device memory: copies move bytes, and fresh memory is undefined (NaN).
    Separate,
}

/// The parts of a trial that the CPU executor needs.
pub struct CpuSetup {
    pub device: String,
    pub programs: Programs,
    /// The kernel for matrix products, in f32 or bfloat16.
    pub kernel: Kernel,
    pub threads: usize,
    pub seed: u64,
    /// The handle for all-reduce with the run's other devices, if there are any.
    pub collective: Option<Box<dyn Collective>>,
    pub memory: Memory,
    /// Whether single steps may run on one thread while that is faster than the team.
    pub sharing: ThreadMode,
    pub known: KnownTimes,
}

impl CpuSetup {
    /// The host CPU as the only device, in f32.
    pub fn cpu(programs: Programs, threads: usize, seed: u64, sharing: ThreadMode) -> Self {
        let (device, kernel) = ("cpu".to_owned(), Kernel::detect());
        let (collective, memory, known) = (None, Memory::Host, KnownTimes::default());
        Self { device, programs, kernel, threads, seed, collective, memory, sharing, known }
    }
}

/// The CPU with the programs of one trial.
pub struct CpuExecutor {
    device: String,
    memory: Memory,
    state: Arc<RwLock<State>>,
    /// Started when it is first needed: where others use the cores, a thread takes milliseconds to start and to end.
    team: Option<Team>,
    tuner: ThreadTuner,
    worker: WorkerState,
    layout: Layout,
    /// Rows of a step and of a validation chunk, each for the global batch and for this device.
    batch: [[usize; 2]; 2],
    bytes: u64,
    /// Peak bytes of each buffer of rows, and of the order of rows.
    rows_bytes: [u64; 5],
}

impl CpuExecutor {
    /// Allocates memory, compiles the programs and starts the threads that the first steps need.
    ///
    /// # Errors
    /// Out of memory, or a thread could not be started.
    pub fn new(job: CpuSetup) -> Result<Self, DeviceError> {
        let mut state = State::new(&job.device, &job.programs, job.kernel, job.threads, job.seed)?;
        if job.memory == Memory::Separate {
            state.arena.poison(&job.programs.layout);
        }
        let bytes = state.arena.bytes();
        let state = Arc::new(RwLock::new(state));
        let tuner = ThreadTuner::new(job.threads, job.sharing, job.known);
        let Programs { layout, train, validate, .. } = job.programs;
        let batch = [[train.batch, train.rows], validate.map_or([1, 0], |p| [p.batch, p.rows])];
        let worker = WorkerState { collective: job.collective, ..WorkerState::default() };
        let (device, memory, team) = (job.device, job.memory, None);
        let mut executor =
            Self { device, memory, state, team, tuner, worker, layout, batch, bytes, rows_bytes: [0; 5] };
        if executor.tuner.begins_together() {
            executor.start_team()?;
        }
        Ok(executor)
    }

    fn start_team(&mut self) -> Result<(), DeviceError> {
        let state = Arc::clone(&self.state);
        let work = move |token: WorkerToken<'_>| {
            vector::flush_denormals();
            let state = state.read().unwrap_or_else(PoisonError::into_inner);
            state.run_on_team(token, &mut WorkerState::default(), &mut Unwatched)
        };
        let team = Team::new(self.tuner.threads(), work);
        self.team = Some(team.map_err(|source| DeviceError::Thread { device: self.device.clone(), source })?);
        Ok(())
    }

    /// Access to the state between blocks, when no thread reads it. A poisoned lock only means that a worker
    /// panicked, which the team reports.
    fn exclusive<R>(&mut self, f: impl FnOnce(&mut State) -> R) -> R {
        f(&mut self.state.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// Runs steps `first..first + steps` of a block, on the team or on one thread.
    fn part(
        &mut self,
        block: &Block<'_>,
        first: usize,
        steps: usize,
        together: bool,
        clock: &mut Clock,
        ends: &mut Vec<f64>,
    ) -> Result<(), Lost> {
        let begun = Instant::now();
        let [batch, own] = self.batch[usize::from(block.work == PassKind::Validate)];
        let [position, order] = block.place(first, batch);
        // A chunk holds only this device's rows, and starts at the beginning of a batch.
        let offset = (block.offset / batch + first) * own;
        let hyper = block.hyper.get(first..first + steps).unwrap_or_default();
        self.exclusive(|state| {
            let a = &mut state.assignment;
            let (step, slot) = (block.step + first as u64, block.slot + first);
            a.at = Cursor { step, position, order, offset, slot, ..a.at };
            (a.work, a.rows, a.steps) = (block.work, block.rows, steps);
            a.hyper.clear();
            a.hyper.extend_from_slice(hyper);
        });
        let timed = block.work == PassKind::Train && clock.grain == Grain::Phases;
        if timed {
            let mut watch = PhaseWatch::new(clock, ends, begun);
            self.run_tasks(together, &mut watch)?;
            watch.finish();
            Ok(())
        } else {
            self.run_tasks(together, &mut Unwatched)
        }
    }

    fn memory_of<R>(&mut self, slice: Slice, f: impl FnOnce(&mut [f32]) -> R) -> Result<R, DeviceError> {
        let done = self.exclusive(|state| state.arena.get_mut(slice).map(f));
        done.ok_or_else(|| DeviceError::no_place(&self.device, slice))
    }

    fn run_tasks(&mut self, together: bool, watcher: &mut impl Watcher) -> Result<(), Lost> {
        let worker = &mut self.worker;
        match self.team.as_mut().filter(|_| together) {
            None => {
                let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
                state.run_alone(worker, watcher)
            }
            Some(team) => {
                let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
                team.run(|token| state.run_on_team(token, worker, watcher))
            }
        }
    }

    /// A copy to this device.
    fn moved(&self, bytes: usize) -> Moved {
        match self.memory {
            Memory::Host => Moved::Nothing,
            Memory::Separate => Moved::Bytes(bytes as u64),
        }
    }

    /// A copy to the host, which has to wait for the device; here all work is complete already.
    fn was_read(&self, bytes: usize) -> Moved {
        match self.memory {
            Memory::Host => Moved::Nothing,
            Memory::Separate => Moved::AfterWait { bytes: bytes as u64, wait: Duration::ZERO },
        }
    }

    /// Records the end times of steps that were timed as a group.
    fn report_ends(&self, work: PassKind, steps: usize, [start, end]: [Instant; 2], meters: &mut Meters<'_>) {
        if steps > 0 && work == PassKind::Train && meters.clock.grain == Grain::Blocks {
            meters.clock.span(Lane::Device, Phase::Step, [start, end], steps as u64);
            let end = (end - meters.clock.origin()).as_secs_f64();
            meters.ends.extend(std::iter::repeat_n(end, steps));
        }
    }

    /// Why the tasks ended early; they started at step `first` of their block.
    fn lost(&mut self, block: &Block<'_>, first: usize) -> DeviceError {
        let fault =
            self.exclusive(|state| state.fault.get_mut().unwrap_or_else(PoisonError::into_inner).take());
        let device = self.device.clone();
        let Some(Fault { step, failure, .. }) = fault else {
            return DeviceError::Lost { device, step: block.step + 1 };
        };
        let done = first + step;
        match failure {
            Failure::Rows(source) => DeviceError::Rows { done, source },
            Failure::Sum(source) => {
                DeviceError::Collective { device, step: block.step + done as u64 + 1, source }
            }
        }
    }

    /// Replaces bound rows; a device with separate memory keeps its own copy. `place` is the index in
    /// `rows_bytes`.
    fn hold<T: Copy>(
        &mut self,
        place: usize,
        rows: &Arc<Vec<T>>,
        slot: impl FnOnce(&mut BoundData) -> &mut Arc<Vec<T>>,
    ) -> Result<Moved, DeviceError> {
        let (memory, bytes) = (self.memory, size_of_val(&rows[..]));
        let held = self.exclusive(|state| {
            let held = slot(&mut state.bound);
            if memory == Memory::Host {
                *held = Arc::clone(rows);
                return Ok(());
            }
            // This device's own copy is not shared, so its memory can be reused.
            let mut own = Arc::try_unwrap(std::mem::take(held)).unwrap_or_default();
            own.clear();
            own.try_reserve_exact(rows.len())?;
            own.extend_from_slice(rows);
            *held = Arc::new(own);
            Ok::<_, std::collections::TryReserveError>(())
        });
        let device = || self.device.clone();
        held.map_err(|_| DeviceError::OutOfMemory { device: device(), bytes: bytes as u64 })?;
        self.rows_bytes[place] = self.rows_bytes[place].max(bytes as u64);
        Ok(self.moved(bytes))
    }

    fn count_sums(&mut self, ledger: &mut Ledger) {
        let (count, time) = std::mem::take(&mut self.worker.all_reduces);
        let bytes = count * self.worker.all_reduce_bytes;
        ledger.copies(Kind::AllReduce, Purpose::Gradients, count, bytes, time);
    }
}

impl Executor for CpuExecutor {
    fn bind(&mut self, buffer: BufferId, rows: &Arc<Vec<f32>>) -> Result<Moved, DeviceError> {
        let Some(place) = self.layout.data_number(buffer) else { return Ok(Moved::Nothing) };
        self.hold(place, rows, |bound| {
            let part = &mut bound.parts[place / 2];
            if place % 2 == 0 { part.features.in_memory() } else { &mut part.targets }
        })
    }

    fn bind_file(&mut self, buffer: BufferId, rows: &Arc<dyn RowReader>) -> Result<(), DeviceError> {
        if self.memory == Memory::Separate {
            return Err(DeviceError::RowsInFile);
        }
        let validation = buffer != self.layout.train_features;
        let rows = Store::File(Arc::clone(rows));
        self.exclusive(|state| state.bound.parts[usize::from(validation)].features = rows);
        Ok(())
    }

    fn bind_order(&mut self, order: &Arc<Vec<u32>>) -> Result<Moved, DeviceError> {
        self.hold(4, order, |bound| &mut bound.order)
    }

    fn write(&mut self, to: Slice, from: &[f32]) -> Result<Moved, DeviceError> {
        self.memory_of(to, |to| to.copy_from_slice(from))?;
        Ok(self.moved(4 * from.len()))
    }

    fn read(&mut self, from: Slice, to: &mut [f32]) -> Result<Moved, DeviceError> {
        self.memory_of(from, |from| to.copy_from_slice(from))?;
        Ok(self.was_read(4 * to.len()))
    }

    fn copy(&mut self, from: Slice, to: Slice) -> Result<Moved, DeviceError> {
        let done = self.exclusive(|state| state.arena.copy(from, to));
        done.ok_or_else(|| DeviceError::no_place(&self.device, to))?;
        Ok(Moved::Bytes(4 * from.len as u64))
    }

    fn take_sums(&mut self, sums: Accumulator, to: &mut [f64]) -> Result<Moved, DeviceError> {
        let own = &mut self.worker.sums[sums as usize];
        to.fill(0.0);
        to.iter_mut().zip(own.iter_mut()).for_each(|(to, own)| *to = std::mem::take(own));
        Ok(self.was_read(8 * to.len()))
    }

    fn write_sums(&mut self, sums: Accumulator, from: &[f64]) -> Result<Moved, DeviceError> {
        let own = &mut self.worker.sums[sums as usize];
        own.clear();
        own.extend_from_slice(from);
        Ok(self.moved(8 * from.len()))
    }

    fn digest(&mut self, of: Slice) -> Result<(u64, Moved), DeviceError> {
        Ok((self.memory_of(of, |numbers| digest(numbers))?, self.was_read(8)))
    }

    fn run(&mut self, block: &Block<'_>, meters: &mut Meters<'_>) -> Result<Ran, DeviceError> {
        let _flushed = vector::Flushed::new();
        let start = Instant::now();
        if self.memory == Memory::Separate && !block.hyper.is_empty() {
            let bytes = size_of_val(block.hyper) as u64;
            meters.ledger.queued(Kind::HostToDevice, Purpose::Constants, 1, bytes);
        }
        let mut first = 0;
        while first < block.steps {
            let (together, steps) = self.tuner.next(block.work, block.steps - first);
            if together && self.team.is_none() {
                self.start_team()?;
            }
            let begun = Instant::now();
            let result = self.part(block, first, steps, together, meters.clock, meters.ends);
            if let Err(Lost) = result {
                self.count_sums(meters.ledger);
                let error = self.lost(block, first);
                if let DeviceError::Rows { done, .. } = error {
                    self.report_ends(block.work, done, [start, Instant::now()], meters);
                }
                return Err(error);
            }
            let batch = self.batch[usize::from(block.work == PassKind::Validate)][0];
            let rows = block.row(first + steps, batch) - block.row(first, batch);
            self.tuner.took(block.work, together, rows as f64 / batch as f64, begun.elapsed());
            first += steps;
        }
        self.count_sums(meters.ledger);
        let end = Instant::now();
        self.report_ends(block.work, block.steps, [start, end], meters);
        let time = end - start;
        let step_time = Some(time / block.steps.max(1) as u32);
        Ok(Ran { non_finite: self.worker.non_finite, step_time, ..Ran::default() })
    }

    fn settle(&mut self, _: Purpose, _: &mut Meters<'_>) -> Result<Ran, DeviceError> {
        Ok(Ran { non_finite: self.worker.non_finite, ..Ran::default() })
    }

    fn bytes(&self) -> u64 {
        self.bytes + self.rows_bytes.iter().sum::<u64>()
    }
}
