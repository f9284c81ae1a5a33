//! The state that the threads of a trial share, and how a thread runs through a block of steps.

use std::sync::Mutex;

use super::{
    arena::Arena,
    pool::TileQueue,
    stage::{Share, Task, split, tasks},
    team::{Lost, WorkerToken},
    watch::Watcher,
};
use crate::{
    device::{DeviceError, PassKind},
    host::lock,
    op::{
        Hyper, Job, product,
        run::{BoundData, Context, Cursor, Failure, WorkerState},
        split::{Scratch, Step},
    },
    program::{BufferId, MemoryPlan, Program, Programs},
    vector::matmul::{Kernel, Scratch as TileScratch, UpcomingRows},
};

/// A program's tasks for each thread.
struct Compiled {
    batch: usize,
    rows: usize,
    tasks: Vec<Vec<Task>>,
}

/// All programs of a trial, compiled for one number of threads. Indexed by pass kind, then full or last
/// batch.
pub struct Set([[Option<Compiled>; 2]; 2]);

/// The part of a block that threads need. It is copied, so that threads do not borrow from the host's block.
pub struct Assignment {
    pub work: PassKind,
    /// The position of its first step.
    pub at: Cursor,
    /// Rows of the epoch.
    pub rows: usize,
    pub steps: usize,
    /// One per step.
    pub hyper: Vec<Hyper>,
}

/// Why a block ended early; if several members failed, the reason of the first one.
pub struct Fault {
    /// The step within the assignment, from 0.
    pub step: usize,
    member: usize,
    pub failure: Failure,
}

/// What the team shares. Threads read it while a block runs; the host writes it between blocks.
pub struct State {
    /// The kernel for matrix products.
    pub kernel: Kernel,
    /// All memory except the data.
    pub arena: Arena,
    pub bound: BoundData,
    /// The programs for one thread.
    pub alone: Set,
    /// The programs for the team.
    pub together: Option<Set>,
    pub assignment: Assignment,
    pub fault: Mutex<Option<Fault>>,
}

impl State {
    /// Allocates memory and compiles the programs for one thread and for `threads`. Both give the same
    /// results, bit for bit.
    pub fn new(
        device: &str,
        programs: &Programs,
        kernel: Kernel,
        threads: usize,
        seed: u64,
    ) -> Result<Self, DeviceError> {
        let layout = &programs.layout;
        let mut scratch = Scratch::default();
        let Programs { train, train_last, validate, validate_last, .. } = programs;
        let all = [[Some(train), train_last.as_ref()], [validate.as_ref(), validate_last.as_ref()]];
        let mut compile = |threads| {
            let mut compile =
                |program| Some((program?, split(program?, layout, threads, kernel, &mut scratch)));
            all.map(|pair| pair.map(&mut compile))
        };
        let (alone, together) = (compile(1), compile(threads));
        let mut plan = MemoryPlan::new(programs).with_best(layout);
        plan.add(layout.log, layout.buffers.get(layout.log.0).map_or(0, |log| log.len));
        (layout.buffers.len()..).zip(scratch.lens).for_each(|(id, len)| plan.add(BufferId(id), len));
        let bytes = 4 * plan.elements() as u64;
        let arena =
            Arena::new(plan).ok_or_else(|| DeviceError::OutOfMemory { device: device.to_owned(), bytes })?;
        let alone = Set::new(alone, 1, &arena)?;
        let together = if threads > 1 { Some(Set::new(together, threads, &arena)?) } else { None };
        let at = Cursor { seed, ..Cursor::default() };
        let assignment = Assignment { work: PassKind::Train, at, rows: 0, steps: 0, hyper: Vec::new() };
        let (bound, fault) = (BoundData::default(), Mutex::default());
        Ok(Self { kernel, arena, bound, alone, together, assignment, fault })
    }

    /// Runs a whole block on one thread, with exclusive access to the state.
    pub fn run_alone(&mut self, worker: &mut WorkerState, watcher: &mut impl Watcher) -> Result<(), Lost> {
        let set = &self.alone;
        // SAFETY: `&mut self` excludes every other thread, and the set's tasks were verified by this arena.
        unsafe { self.run_tasks(set, None, worker, watcher) }
    }

    /// Runs one member's share of a block.
    pub fn run_on_team(
        &self,
        token: WorkerToken<'_>,
        worker: &mut WorkerState,
        watcher: &mut impl Watcher,
    ) -> Result<(), Lost> {
        let Some(set) = &self.together else { return Ok(()) };
        // SAFETY: this arena verified the set for as many members as the team has. The token, which is
        // consumed here, is the only one of its member in this run of the team. A state has only one team,
        // which shares it behind a lock, so nobody has exclusive access while a member reads it.
        unsafe { self.run_tasks(set, Some(&token), worker, watcher) }
    }

    /// # Safety
    /// Threads that run tasks of this state at the same time must each hold a different token of the team for
    /// which the set was compiled. Without a token the caller must be the only thread, and the set must be
    /// compiled for one thread.
    unsafe fn run_tasks(
        &self,
        set: &Set,
        token: Option<&WorkerToken<'_>>,
        worker: &mut WorkerState,
        watcher: &mut impl Watcher,
    ) -> Result<(), Lost> {
        let member = token.map_or(0, WorkerToken::member);
        let Assignment { work, at, rows, steps, ref hyper } = self.assignment;
        let [Some(full), last] = &set.0[work as usize] else { return Ok(()) };
        let mut context = Context { kernel: self.kernel, bound: &self.bound, at, worker };
        for step in 0..steps {
            if context.at.position >= rows {
                context.at = Cursor { position: 0, order: context.at.order + rows, ..context.at };
            }
            let left = rows - context.at.position;
            let program = if left >= full.batch { full } else { last.as_ref().unwrap_or(full) };
            if let Some(hyper) = hyper.get(step) {
                context.at.hyper = *hyper;
            }
            watcher.begin_step();
            for task in &program.tasks[member] {
                watcher.enter(task.phase);
                if let Some(token) = token.filter(|_| task.barrier) {
                    token.wait()?;
                }
                let (access, job) = match (&task.share, &task.job) {
                    (_, None) => continue,
                    (Share::Own(access), Some(job)) => (access, job),
                    (Share::Shared(pool), Some(job)) => {
                        // A set for one thread has no shared tasks, so there is a token.
                        let token = token.ok_or(Lost)?;
                        // SAFETY: as below; in addition, every member reaches this point once between the
                        // same two barriers.
                        let mut turns = unsafe { pool.enter(&self.arena, member) };
                        take_turns(&context, job, &mut turns, || token.is_lost())?;
                        continue;
                    }
                };
                // SAFETY: this arena verified the task for this member. The member has waited for the others
                // before the task if necessary, and drops the slices in this statement. Steps are separated
                // by barriers too: each begins with one.
                job.run(unsafe { access.borrow(&self.arena) }, &mut context);
                if let Some(failure) = context.worker.failure.take() {
                    // Fetching is the first part of a step, and the others wait for it before they change a
                    // parameter.
                    let mut fault = lock(&self.fault);
                    if fault.as_ref().is_none_or(|other| member < other.member) {
                        *fault = Some(Fault { step, member, failure });
                    }
                    return Err(Lost);
                }
            }
            watcher.end_step();
            context.at.position += program.batch;
            context.at.offset += program.rows;
            context.at.step += 1;
            context.at.slot += 1;
        }
        Ok(())
    }
}

type Steps<'a> = (&'a Program, Vec<Step>);

impl Set {
    fn new(
        programs: [[Option<Steps<'_>>; 2]; 2],
        threads: usize,
        arena: &Arena,
    ) -> Result<Self, DeviceError> {
        let mut set = Self([[None, None], [None, None]]);
        for (pass, (compiled, programs)) in set.0.iter_mut().zip(programs).enumerate() {
            for (compiled, program) in compiled.iter_mut().zip(programs) {
                let Some((program, steps)) = program else { continue };
                let tasks = tasks(steps, threads, arena, pass == PassKind::Validate as usize)
                    .map_err(|conflict| DeviceError::Schedule { conflict })?;
                *compiled = Some(Compiled { batch: program.batch, rows: program.rows, tasks });
            }
        }
        Ok(set)
    }
}

/// Takes a member's share of tiles of a product that the team shares. During the first layer's gradient, the
/// last op of a step, it also prefetches the rows that it will fetch next.
fn take_turns(
    context: &Context<'_>,
    job: &Job,
    turns: &mut TileQueue<'_>,
    lost: impl Fn() -> bool,
) -> Result<(), Lost> {
    let Job::Product(job) = job else { return Ok(()) };
    let reads = turns.reads();
    let product::Operands { lhs, rhs, shape, epilogue } = job.operands(reads, context.at.hyper.rate);
    let upcoming = match *job {
        product::Job::WeightGradient { upcoming: Some(next), .. } => {
            context.bound.upcoming(next, turns.share(next.rows), &context.at)
        }
        _ => UpcomingRows::default(),
    };
    let tiled = context.kernel.tiled(lhs, rhs, shape, epilogue, turns.grid());
    let mut scratch = TileScratch::default();
    while let Some(mut taken) = turns.next(&lost)? {
        let (turn, rows, last, width) = (taken.turn().clone(), taken.rows(), taken.is_last(), shape[2]);
        let [w0, w1] = taken.out();
        tiled.take(&turn, upcoming, if job.keeps() { &mut *w1 } else { &mut *w0 }, &mut scratch);
        if last {
            let saved = match job {
                product::Job::InputGradient { derivative: Some(_), .. } => {
                    &reads[2][rows.start * width..rows.end * width]
                }
                _ => &[],
            };
            job.finish(saved, w0, w1);
        }
        taken.finish();
    }
    Ok(())
}
