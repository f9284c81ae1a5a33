//! The CPU as an executor: one thread that walks a program, or a team that walks it together.

use std::{
    sync::{Arc, PoisonError, RwLock},
    time::Instant,
};

use super::{
    pace::{Pace, Sharing},
    simd,
    state::State,
    task::Tally,
    team::{Lost, Seat, Team},
    watch::{PhaseWatch, Unwatched, Watcher},
};
use crate::{
    device::{Block, Clock, DeviceError, Executor, Grain, Moved, Ran, Work},
    program::{BufferId, Layout, Programs, Slice, Sums},
};

/// What a trial asks of the CPU.
#[derive(Clone, Debug)]
pub struct Job {
    /// Its programs.
    pub programs: Programs,
    /// Threads that walk them.
    pub threads: usize,
    /// The run's seed, for dropout.
    pub seed: u64,
    /// Whether steps are left to one thread while a team of them is slower, as it is when other processes take its
    /// cores.
    pub sharing: Sharing,
}

/// The CPU with a trial loaded.
pub struct CpuExecutor {
    state: Arc<RwLock<State>>,
    team: Option<Team>,
    pace: Pace,
    tally: Tally,
    layout: Layout,
    /// Rows of a step and of a chunk of validation.
    batch: [usize; 2],
    bytes: u64,
}

impl CpuExecutor {
    /// Plans memory, compiles the programs, starts the threads.
    pub fn new(job: &Job) -> Result<Self, DeviceError> {
        let state = State::new(&job.programs, job.threads, job.seed)?;
        let bytes = state.arena.bytes();
        let state = Arc::new(RwLock::new(state));
        let team = if job.threads > 1 {
            let state = Arc::clone(&state);
            let work = move |seat: Seat<'_>| {
                simd::flush_denormals();
                let state = state.read().unwrap_or_else(PoisonError::into_inner);
                state.walk_together(seat, &mut Tally::default(), &mut Unwatched)
            };
            let team = Team::new(job.threads, work);
            Some(team.map_err(|source| DeviceError::Thread { device: "cpu".into(), source })?)
        } else {
            None
        };
        let pace = Pace::new(team.is_some(), job.sharing);
        let batch = [job.programs.train.rows, job.programs.validate.as_ref().map_or(0, |p| p.rows)];
        let layout = job.programs.layout.clone();
        Ok(Self { state, team, pace, tally: Tally::default(), layout, batch, bytes })
    }

    /// The state between blocks, when no thread reads it. A poisoned lock only says that a worker panicked, which the
    /// team reports.
    fn exclusive<R>(&mut self, f: impl FnOnce(&mut State) -> R) -> R {
        f(&mut self.state.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// Runs steps `first..first + steps` of a block, by the team or alone.
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
        let rows = first * self.rows_per_step(block.work);
        self.exclusive(|state| {
            let a = &mut state.assignment;
            (a.work, a.step) = (block.work, block.step + first as u64);
            (a.position, a.offset, a.rows) = (block.position + rows, block.offset + rows, block.rows);
            (a.steps, a.slot) = (steps, block.slot + first);
            a.hyper.clear();
            a.hyper.extend_from_slice(block.hyper.get(first..first + steps).unwrap_or_default());
        });
        let timed = block.work == Work::Train && clock.grain == Grain::Phases;
        if timed {
            let mut watch = PhaseWatch::new(clock, ends, begun);
            let walked = self.walk(together, &mut watch);
            watch.finish();
            walked
        } else {
            self.walk(together, &mut Unwatched)
        }
    }

    fn walk(&mut self, together: bool, watcher: &mut impl Watcher) -> Result<(), Lost> {
        let tally = &mut self.tally;
        match self.team.as_mut().filter(|_| together) {
            None => {
                let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
                state.walk_alone(tally, watcher);
                Ok(())
            }
            Some(team) => {
                let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
                team.run(|seat| state.walk_together(seat, tally, watcher))
            }
        }
    }

    fn rows_per_step(&self, work: Work) -> usize {
        self.batch[usize::from(work == Work::Validate)]
    }
}

impl Executor for CpuExecutor {
    fn bind(&mut self, buffer: BufferId, rows: &Arc<Vec<f32>>) -> Result<Moved, DeviceError> {
        let l = &self.layout;
        let places = [l.train_features, l.train_targets, l.validation_features, l.validation_targets];
        let place = places.iter().position(|p| *p == buffer);
        let rows = Arc::clone(rows);
        self.exclusive(|state| {
            let bound = &mut state.bound;
            match place {
                Some(i @ 0..2) => bound.train[i] = rows,
                Some(i) => bound.validation[i - 2] = rows,
                None => {}
            }
        });
        Ok(Moved::Nothing)
    }

    fn bind_order(&mut self, order: &Arc<Vec<u32>>) -> Result<Moved, DeviceError> {
        let order = Arc::clone(order);
        self.exclusive(|state| state.bound.order = order);
        Ok(Moved::Nothing)
    }

    fn write(&mut self, to: Slice, from: &[f32]) -> Result<Moved, DeviceError> {
        self.exclusive(|state| {
            let span = state.arena.span(to);
            state.arena.get_mut(span).copy_from_slice(from);
        });
        Ok(Moved::Nothing)
    }

    fn read(&mut self, from: Slice, to: &mut [f32]) -> Result<Moved, DeviceError> {
        self.exclusive(|state| {
            let span = state.arena.span(from);
            to.copy_from_slice(state.arena.get_mut(span));
        });
        Ok(Moved::Nothing)
    }

    fn take_sums(&mut self, sums: Sums, to: &mut [f64]) -> Result<Moved, DeviceError> {
        let own = &mut self.tally.sums[usize::from(sums == Sums::Validation)];
        to.fill(0.0);
        to.iter_mut().zip(own.iter_mut()).for_each(|(to, own)| *to = std::mem::take(own));
        Ok(Moved::Nothing)
    }

    fn run(&mut self, block: &Block<'_>, clock: &mut Clock, ends: &mut Vec<f64>) -> Result<Ran, DeviceError> {
        let _flushed = simd::Flushed::new();
        let start = Instant::now();
        let mut first = 0;
        while first < block.steps {
            let (together, steps) = self.pace.next(block.work, block.steps - first);
            let begun = Instant::now();
            let result = self.part(block, first, steps, together, clock, ends);
            result.map_err(|Lost| DeviceError::Lost { device: "cpu".into(), step: block.step + 1 })?;
            self.pace.took(block.work, together, steps, begun.elapsed());
            first += steps;
        }
        if block.work == Work::Train && clock.grain == Grain::Blocks {
            let time = start.elapsed();
            let end = (start + time - clock.origin()).as_secs_f64();
            ends.extend(std::iter::repeat_n(end, block.steps));
        }
        Ok(Ran { non_finite: self.tally.non_finite })
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }
}
