//! The CPU as an executor: one thread that walks a program, or a team that walks it together.

use std::{
    sync::{Arc, PoisonError, RwLock},
    time::{Duration, Instant},
};

use super::{
    arena::Arena,
    compile::{Compiler, Scratch},
    matmul::Kernel,
    simd,
    task::{Bound, Context, Cursor, Tally, Task},
    team::{Barrier, Lost, Team},
};
use crate::{
    device::{Block, Clock, DeviceError, Executor, Grain, Moved, Ran, Work},
    program::{BufferId, Hyper, Layout, Phase, Program, Programs, Slice, Sums},
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
}

/// A program's tasks by thread.
struct Compiled {
    rows: usize,
    tasks: Vec<Vec<Task>>,
}

/// The part of a block that threads need; a copy, so that they need not borrow the host's.
#[derive(Clone)]
struct Assignment {
    work: Work,
    step: u64,
    position: usize,
    offset: usize,
    rows: usize,
    steps: usize,
    slot: usize,
    hyper: Vec<Hyper>,
}

/// What the team shares. Threads read it while a block runs; the host writes it in between.
struct State {
    kernel: Kernel,
    seed: u64,
    arena: Arena,
    bound: Bound,
    /// Full and last program of each kind of work.
    train: [Option<Compiled>; 2],
    validate: [Option<Compiled>; 2],
    assignment: Assignment,
}

/// The CPU with a trial loaded.
pub struct CpuExecutor {
    state: Arc<RwLock<State>>,
    team: Option<Team>,
    tally: Tally,
    layout: Layout,
    bytes: u64,
}

impl CpuExecutor {
    /// Plans memory, compiles the programs, starts the threads.
    pub fn new(job: &Job) -> Result<Self, DeviceError> {
        let programs = &job.programs;
        let layout = &programs.layout;
        let kernel = Kernel::detect();
        let compiler = Compiler { layout, threads: job.threads, kernel };
        let all = [
            &Some(programs.train.clone()),
            &programs.train_last,
            &programs.validate,
            &programs.validate_last,
        ];
        let mut scratch = Scratch::default();
        all.iter().copied().flatten().for_each(|p| compiler.measure(p, &mut scratch));
        let arena = Arena::new(layout, &scratch.lens)
            .ok_or_else(|| DeviceError::OutOfMemory { device: "cpu".into(), bytes: layout.arena_bytes() })?;
        let mut compile = |program: &Option<Program>| match program {
            None => Ok(None),
            Some(program) => match compiler.compile(program, &arena, &mut scratch) {
                Ok(tasks) => Ok(Some(Compiled { rows: program.rows, tasks })),
                Err(conflict) => Err(DeviceError::Schedule { conflict: conflict.to_string() }),
            },
        };
        let [train, train_last, validate, validate_last] = all.map(&mut compile);
        let (train, validate) = ([train?, train_last?], [validate?, validate_last?]);
        let bytes = arena.bytes();
        let assignment = Assignment {
            work: Work::Train,
            step: 0,
            position: 0,
            offset: 0,
            rows: 0,
            steps: 0,
            slot: 0,
            hyper: Vec::new(),
        };
        let bound = Bound::default();
        let state = State { kernel, seed: job.seed, arena, bound, train, validate, assignment };
        let state = Arc::new(RwLock::new(state));
        let team = if job.threads > 1 {
            let state = Arc::clone(&state);
            let work = move |member: usize, barrier: &Barrier| {
                simd::flush_denormals();
                let state = state.read().unwrap_or_else(PoisonError::into_inner);
                state.walk(member, &mut Tally::default(), Some(barrier), &mut Unwatched)
            };
            let team = Team::new(job.threads, work);
            Some(team.map_err(|source| DeviceError::Thread { device: "cpu".into(), source })?)
        } else {
            None
        };
        Ok(Self { state, team, tally: Tally::default(), layout: layout.clone(), bytes })
    }

    /// The state between blocks, when no thread reads it. A poisoned lock only says that a worker panicked, which the
    /// team reports.
    fn exclusive<R>(&mut self, f: impl FnOnce(&mut State) -> R) -> R {
        f(&mut self.state.write().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Sees the first thread through its steps.
trait Watcher {
    fn begin_step(&mut self);
    fn enter(&mut self, phase: Phase);
    fn end_step(&mut self);
}

/// For all other threads, and for steps that are too short to be timed.
struct Unwatched;

impl Watcher for Unwatched {
    #[inline(always)]
    fn begin_step(&mut self) {}
    #[inline(always)]
    fn enter(&mut self, _: Phase) {}
    #[inline(always)]
    fn end_step(&mut self) {}
}

/// Adds up each phase's time within a step, so that a phase has one sample per step.
struct PhaseWatch<'a> {
    clock: &'a mut Clock,
    ends: &'a mut Vec<f64>,
    since: Instant,
    phase: Phase,
    times: [Duration; Phase::ALL.len()],
}

impl PhaseWatch<'_> {
    fn take(&mut self) {
        let now = Instant::now();
        self.times[self.phase as usize] += now - self.since;
        self.since = now;
    }
}

impl Watcher for PhaseWatch<'_> {
    fn begin_step(&mut self) {
        self.times = Default::default();
    }

    fn enter(&mut self, phase: Phase) {
        if phase != self.phase {
            self.take();
            self.phase = phase;
        }
    }

    fn end_step(&mut self) {
        self.take();
        for phase in Phase::ALL {
            let time = self.times[phase as usize];
            if !time.is_zero() {
                self.clock.record(phase, time);
            }
        }
        self.ends.push((self.since - self.clock.origin()).as_secs_f64());
    }
}

impl State {
    /// One thread's way through a block.
    fn walk(
        &self,
        member: usize,
        tally: &mut Tally,
        barrier: Option<&Barrier>,
        watcher: &mut impl Watcher,
    ) -> Result<(), Lost> {
        let a = &self.assignment;
        let [full, last] = match a.work {
            Work::Train => &self.train,
            Work::Validate => &self.validate,
        };
        let Some(full) = full else { return Ok(()) };
        let context = Context { kernel: self.kernel, bound: &self.bound };
        let mut at = Cursor {
            seed: self.seed,
            step: a.step,
            position: a.position,
            offset: a.offset,
            slot: a.slot,
            hyper: Hyper::default(),
        };
        for step in 0..a.steps {
            let left = a.rows - at.position;
            let program = if left >= full.rows { full } else { last.as_ref().unwrap_or(full) };
            if let Some(hyper) = a.hyper.get(step) {
                at.hyper = *hyper;
            }
            watcher.begin_step();
            for task in &program.tasks[member] {
                watcher.enter(task.phase);
                if let Some(barrier) = barrier
                    && task.barrier
                {
                    barrier.wait()?;
                }
                task.run(&self.arena, &context, &at, tally);
            }
            watcher.end_step();
            at.position += program.rows;
            at.offset += program.rows;
            at.step += 1;
            at.slot += 1;
        }
        Ok(())
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
        simd::flush_denormals();
        self.exclusive(|state| {
            let a = &mut state.assignment;
            (a.work, a.step, a.position, a.offset) = (block.work, block.step, block.position, block.offset);
            (a.rows, a.steps, a.slot) = (block.rows, block.steps, block.slot);
            a.hyper.clear();
            a.hyper.extend_from_slice(block.hyper);
        });
        let start = Instant::now();
        let timed = block.work == Work::Train && clock.grain == Grain::Phases;
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        let tally = &mut self.tally;
        let mut own = |barrier: Option<&Barrier>| {
            if !timed {
                return state.walk(0, tally, barrier, &mut Unwatched);
            }
            let times = Default::default();
            let mut watch = PhaseWatch { clock, ends, since: start, phase: Phase::Data, times };
            state.walk(0, tally, barrier, &mut watch)
        };
        let result = match &self.team {
            None => own(None),
            Some(team) => team.run(|barrier| own(Some(barrier))),
        };
        result.map_err(|Lost| DeviceError::Lost { device: "cpu".into(), step: block.step + 1 })?;
        if block.work == Work::Train && clock.grain == Grain::Blocks {
            let time = start.elapsed();
            clock.record_many(Phase::Step, time, block.steps as u64);
            let end = (start + time - clock.origin()).as_secs_f64();
            ends.extend(std::iter::repeat_n(end, block.steps));
        }
        Ok(Ran { non_finite: self.tally.non_finite })
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }
}
