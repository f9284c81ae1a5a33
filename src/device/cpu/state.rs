//! What the threads of a trial share, and one thread's way through a block of steps.

use std::{
    io,
    sync::{Mutex, PoisonError},
};

use super::{
    arena::Arena,
    compile::Compiler,
    pool::TileQueue,
    stage::{Share, Stages, Task},
    team::{Lost, WorkerToken},
    watch::Watcher,
};
use crate::{
    device::{DeviceError, PassKind},
    op::{
        Hyper, Job, product,
        run::{BoundData, Context, Cursor, WorkerState},
        split::Scratch,
    },
    program::{Program, Programs},
    vector::matmul::{Kernel, Scratch as TileScratch, UpcomingRows},
};

struct Compiled {
    batch: usize,
    rows: usize,
    tasks: Vec<Vec<Task>>,
}

/// All programs of a trial, compiled for one number of threads: full and last of each kind of work.
pub struct Set {
    train: [Option<Compiled>; 2],
    validate: [Option<Compiled>; 2],
}

/// The part of a block that threads need; a copy, so that they need not borrow the host's.
#[derive(Clone)]
pub struct Assignment {
    pub work: PassKind,
    pub step: u64,
    /// First row within the epoch.
    pub position: usize,
    /// First row within a streamed chunk.
    pub offset: usize,
    pub rows: usize,
    pub steps: usize,
    pub slot: usize,
    pub hyper: Vec<Hyper>,
}

/// Rows that could not be read; of several members' the first one's.
pub struct Fault {
    /// In which step of the assignment, from 0.
    pub step: usize,
    member: usize,
    pub source: io::Error,
}

/// What the team shares. Threads read it while a block runs; the host writes it in between.
pub struct State {
    pub kernel: Kernel,
    pub seed: u64,
    /// All memory but the data.
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
    /// Plans memory and compiles the programs for one thread and for `threads`. Both have the same results to the bit.
    pub fn new(programs: &Programs, threads: usize, seed: u64) -> Result<Self, DeviceError> {
        let kernel = Kernel::detect();
        let layout = &programs.layout;
        let mut scratch = Scratch::default();
        let [alone, together] = [1, threads].map(|threads| {
            let compiler = Compiler { layout, threads, kernel };
            all(programs).map(|program| Some((program?, compiler.stages(program?, &mut scratch))))
        });
        let arena = Arena::new(layout, &scratch.lens)
            .ok_or_else(|| DeviceError::OutOfMemory { device: "cpu".into(), bytes: layout.arena_bytes() })?;
        let alone = Set::new(alone, &arena)?;
        let together = if threads > 1 { Some(Set::new(together, &arena)?) } else { None };
        let assignment = Assignment {
            work: PassKind::Train,
            step: 0,
            position: 0,
            offset: 0,
            rows: 0,
            steps: 0,
            slot: 0,
            hyper: Vec::new(),
        };
        Ok(Self {
            kernel,
            seed,
            arena,
            bound: BoundData::default(),
            alone,
            together,
            assignment,
            fault: Mutex::default(),
        })
    }
    /// One thread's way through the whole of a block, with the state to itself.
    pub fn walk_alone(&mut self, tally: &mut WorkerState, watcher: &mut impl Watcher) -> Result<(), Lost> {
        let set = &self.alone;
        // SAFETY: `&mut self` excludes every other thread, and the set's tasks were verified by this arena.
        unsafe { self.run_tasks(set, None, tally, watcher) }
    }

    /// One member's way through its share of a block.
    pub fn walk_together(
        &self,
        seat: WorkerToken<'_>,
        tally: &mut WorkerState,
        watcher: &mut impl Watcher,
    ) -> Result<(), Lost> {
        let Some(set) = &self.together else { return Ok(()) };
        // SAFETY: the set was verified by this arena for as many members as the team has, and the seat, which is spent
        // here, is the only one of its member in this run of the team. A state has one team, which shares it behind a
        // lock: while a member reads it nobody has it alone.
        unsafe { self.run_tasks(set, Some(&seat), tally, watcher) }
    }

    /// # Safety
    /// Of all that walk this state at the same time, each has another seat of the team for which the set was compiled; it
    /// has none where it walks alone, a set for one.
    unsafe fn run_tasks(
        &self,
        set: &Set,
        seat: Option<&WorkerToken<'_>>,
        tally: &mut WorkerState,
        watcher: &mut impl Watcher,
    ) -> Result<(), Lost> {
        let member = seat.map_or(0, WorkerToken::member);
        let a = &self.assignment;
        let [full, last] = match a.work {
            PassKind::Train => &set.train,
            PassKind::Validate => &set.validate,
        };
        let Some(full) = full else { return Ok(()) };
        let at = Cursor {
            seed: self.seed,
            step: a.step,
            position: a.position,
            offset: a.offset,
            slot: a.slot,
            hyper: Hyper::default(),
        };
        let mut context = Context { kernel: self.kernel, bound: &self.bound, at };
        for step in 0..a.steps {
            let left = a.rows - context.at.position;
            let program = if left >= full.batch { full } else { last.as_ref().unwrap_or(full) };
            if let Some(hyper) = a.hyper.get(step) {
                context.at.hyper = *hyper;
            }
            watcher.begin_step();
            for task in &program.tasks[member] {
                watcher.enter(task.phase);
                if let Some(seat) = seat.filter(|_| task.barrier) {
                    seat.wait()?;
                }
                let (access, job) = match (&task.share, &task.job) {
                    (_, None) => continue,
                    (Share::Own(access), Some(job)) => (access, job),
                    (Share::Shared(pool), Some(job)) => {
                        // A set for one thread has none of these: its compiler shares nothing.
                        let seat = seat.ok_or(Lost)?;
                        // SAFETY: as below; and every member comes by here once between the same two barriers.
                        let mut turns = unsafe { pool.enter(&self.arena, member) };
                        take_turns(&context, job, &mut turns, || seat.is_lost())?;
                        continue;
                    }
                };
                // SAFETY: the task was verified by this arena for this member, which has just met the others before its
                // stage if it has to, and drops the slices with the next line. Steps are parted by barriers, too: each
                // begins with one.
                let slices = unsafe { access.borrow(&self.arena) };
                if let Err(e) = job.run(slices, &context, tally) {
                    // Fetching is the first that a step does, and the others wait for it before they change a parameter.
                    let mut fault = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
                    if fault.as_ref().is_none_or(|other| member < other.member) {
                        *fault = Some(Fault { step, member, source: e });
                    }
                    return Err(Lost);
                }
                if matches!(job, Job::AllReduce(_)) && tally.fault.is_some() {
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

fn all(programs: &Programs) -> [Option<&Program>; 4] {
    let Programs { train, train_last, validate, validate_last, .. } = programs;
    [Some(train), train_last.as_ref(), validate.as_ref(), validate_last.as_ref()]
}

impl Set {
    fn new(programs: [Option<(&Program, Stages)>; 4], arena: &Arena) -> Result<Self, DeviceError> {
        let prove = |program: Option<(&Program, Stages)>| {
            let Some((program, stages)) = program else { return Ok(None) };
            let tasks = stages.tasks(arena);
            let tasks = tasks.map_err(|conflict| DeviceError::Schedule { conflict: conflict.to_string() })?;
            Ok(Some(Compiled { batch: program.batch, rows: program.rows, tasks }))
        };
        let [train, train_last, validate, validate_last] = programs.map(prove);
        Ok(Self { train: [train?, train_last?], validate: [validate?, validate_last?] })
    }
}

/// A member's turns at a product that the team shares; while it computes the first layer's gradient, the last in a step, it
/// prefetches the rows that it will fetch next.
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
