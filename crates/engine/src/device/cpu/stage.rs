//! Compiles a program to tasks for each thread, verified to be free of conflicts.
//!
//! Each op splits itself. A barrier is inserted only where a thread would touch what another one writes. In
//! small networks each row's work stays with one thread, so the forward and the backward pass run without
//! barriers.

use std::sync::Arc;

use super::{
    arena::{Arena, Prover, Verified},
    pool::Pool,
};
use crate::{
    op::{
        Access, Job, Layout, Op, Phase, RowSource,
        run::{NextRows, RowFetch},
        split::{Draft, Scratch, Shared, Split, Step},
    },
    program::Program,
    vector::matmul::Kernel,
};

pub struct Task {
    /// `None` where the thread only waits at the barrier.
    pub job: Option<Job>,
    pub share: Share,
    /// Whether the thread waits for the team before this task.
    pub barrier: bool,
    pub phase: Phase,
}

pub enum Share {
    /// One thread's slices.
    Own(Verified),
    /// The tiles of a product, shared by all threads of the team.
    Shared(Arc<Pool>),
}

/// Splits a program's work for a team of `threads`; records the scratch memory that it needs.
pub fn split(
    program: &Program,
    layout: &Layout,
    threads: usize,
    kernel: Kernel,
    scratch: &mut Scratch,
) -> Vec<Step> {
    let mut split = Split::new(layout, threads, kernel, scratch);
    let gather = program.instructions.iter().find_map(|i| match &i.op {
        Op::Gather(gather) => Some(gather),
        _ => None,
    });
    if let Some(gather) = gather {
        // Kernels with strips (bfloat16) work on packed copies, so they never read in place.
        let in_place = program.features_in_place().filter(|_| kernel.strip_rows().is_none());
        split.features = in_place.map(|x| (x, RowFetch::new(gather, layout)));
        let first = program.batch + gather.first;
        let next = NextRows { first, rows: gather.rows, width: gather.width };
        split.fetched = matches!(gather.source, RowSource::Order(_)).then_some((gather.x, next));
    }
    for instruction in &program.instructions {
        split.phase = instruction.phase;
        instruction.op.split(&mut split);
    }
    split.steps
}

/// Each thread's tasks.
///
/// # Errors
/// Which tasks would race, which is a bug in an op's split.
pub fn tasks(
    steps: Vec<Step>,
    threads: usize,
    arena: &Arena,
    is_validation: bool,
) -> Result<Vec<Vec<Task>>, String> {
    let mut prover = Prover::new(arena, is_validation);
    let mut tasks: Vec<Vec<Task>> = (0..threads).map(|_| Vec::new()).collect();
    // Which threads have not waited at the latest barrier yet. A step starts with a barrier, which separates
    // it from the previous step. A single thread needs none.
    let mut due = vec![threads > 1; threads];
    for (number, step) in steps.into_iter().enumerate() {
        let shared_party = threads + number;
        if threads > 1 && !prover.admits(&parties(&step, shared_party)) {
            prover.barrier();
            wait(&mut tasks, &due);
            due.fill(true);
        }
        match step {
            Step::Each(drafts) => {
                for (thread, draft) in drafts.into_iter().enumerate() {
                    let Some(Draft { job, access, phase }) = draft else { continue };
                    let share = Share::Own(prover.verify(thread, &access)?);
                    let barrier = std::mem::take(&mut due[thread]);
                    tasks[thread].push(Task { job: Some(job), share, barrier, phase });
                }
            }
            Step::Shared(shared) => {
                let Shared { draft: Draft { job, phase, access }, grid, widths } = *shared;
                let access = prover.verify(shared_party, &access)?;
                let pool = Arc::new(Pool::new(access, grid, widths, threads));
                for (own, due) in tasks.iter_mut().zip(&mut due) {
                    let share = Share::Shared(Arc::clone(&pool));
                    own.push(Task { job: Some(job), share, barrier: std::mem::take(due), phase });
                }
            }
        }
    }
    wait(&mut tasks, &due);
    Ok(tasks)
}

/// The accesses by thread; a shared step counts as a party of its own.
fn parties(step: &Step, shared: usize) -> Vec<(usize, Access)> {
    match step {
        Step::Each(drafts) => {
            drafts.iter().enumerate().filter_map(|(t, draft)| Some((t, draft.as_ref()?.access))).collect()
        }
        Step::Shared(step) => vec![(shared, step.draft.access)],
    }
}

/// Adds a wait for each thread that had no work since the latest barrier.
fn wait(tasks: &mut [Vec<Task>], due: &[bool]) {
    for (own, _) in tasks.iter_mut().zip(due).filter(|(_, due)| **due) {
        let share = Share::Own(Verified::nothing());
        own.push(Task { job: None, share, barrier: true, phase: Phase::Other });
    }
}
