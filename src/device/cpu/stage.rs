//! From steps to stages: which steps may run between the same two barriers, and each thread's verified tasks.

use std::sync::Arc;

use super::{
    arena::{Arena, Conflict, Verified},
    pool::Pool,
};
use crate::op::{
    Access, Job, Phase, Window,
    split::{Draft, Shared, Step},
};

pub struct Task {
    /// What is done; `None` where the thread only waits at the barrier.
    pub job: Option<Job>,
    pub share: Share,
    /// Whether the team meets before it.
    pub barrier: bool,
    pub phase: Phase,
}

pub enum Share {
    Own(Verified),
    /// A product's tiles, of which all threads of the team take some.
    Shared(Arc<Pool>),
}

enum Part {
    Own(Box<Draft>),
    /// Index of one of the stage's shared steps.
    Shared(usize),
}

#[derive(Default)]
struct Stage {
    threads: Vec<Vec<Part>>,
    shared: Vec<Shared>,
    window: Window,
}

/// A program's stages for a number of threads.
pub struct Stages {
    threads: usize,
    stages: Vec<Stage>,
}

impl Stages {
    pub fn new(threads: usize) -> Self {
        Self { threads, stages: vec![Stage::new(threads)] }
    }

    /// Adds a step to the last stage, or to a new one if it conflicts with another thread's work.
    pub fn push(&mut self, step: Step) {
        // One thread needs no barriers.
        let alone = self.threads == 1;
        if !alone && !self.stages.last().is_some_and(|stage| stage.admits(&step)) {
            self.stages.push(Stage::new(self.threads));
        }
        if let Some(stage) = self.stages.last_mut() {
            if !alone {
                stage.mark(&step);
            }
            stage.push(step);
        }
    }

    /// Each thread's tasks, verified free of conflicts.
    pub fn tasks(self, arena: &Arena) -> Result<Vec<Vec<Task>>, Conflict> {
        let accesses: Vec<_> = self.stages.iter().map(Stage::accesses).collect();
        let proven = arena.verify(&accesses)?;
        let mut tasks: Vec<Vec<Task>> = (0..self.threads).map(|_| Vec::new()).collect();
        for (stage, mut proven) in self.stages.into_iter().zip(proven) {
            let shared = proven.split_off(self.threads).into_iter().flatten().zip(stage.shared);
            let pools: Vec<(Job, Phase, Arc<Pool>)> = shared
                .map(|(access, shared)| {
                    let Shared { draft: Draft { job, phase, .. }, grid, widths } = shared;
                    (job, phase, Arc::new(Pool::new(access, grid, widths, self.threads)))
                })
                .collect();
            for ((thread, parts), proven) in tasks.iter_mut().zip(stage.threads).zip(proven) {
                let mut proven = proven.into_iter();
                // The first stage, too: it separates this step from the one before.
                let mut barrier = self.threads > 1;
                // A thread without work in a stage still waits at its barrier.
                if parts.is_empty() && barrier {
                    let share = Share::Own(Verified::nothing());
                    thread.push(Task { job: None, share, barrier, phase: Phase::Other });
                }
                for part in parts {
                    let (job, phase, share) = match part {
                        Part::Own(draft) => match proven.next() {
                            Some(access) => (draft.job, draft.phase, Share::Own(access)),
                            None => unreachable!("as many proofs as drafts"),
                        },
                        Part::Shared(number) => {
                            let (job, phase, pool) = &pools[number];
                            (*job, *phase, Share::Shared(Arc::clone(pool)))
                        }
                    };
                    thread.push(Task { job: Some(job), share, barrier, phase });
                    barrier = false;
                }
            }
        }
        Ok(tasks)
    }
}

impl Stage {
    fn new(threads: usize) -> Self {
        Self { threads: (0..threads).map(|_| Vec::new()).collect(), ..Self::default() }
    }

    fn push(&mut self, step: Step) {
        match step {
            Step::Each(drafts) => self
                .threads
                .iter_mut()
                .zip(drafts)
                .for_each(|(t, draft)| t.extend(draft.map(|d| Part::Own(Box::new(d))))),
            Step::Shared(shared) => {
                let number = self.shared.len();
                self.shared.push(*shared);
                self.threads.iter_mut().for_each(|t| t.push(Part::Shared(number)));
            }
        }
    }

    /// Whether a step fits this stage: no thread accesses what another writes.
    fn admits(&self, step: &Step) -> bool {
        self.parties(step).into_iter().all(|(party, access)| self.window.admits(party, &access))
    }

    fn mark(&mut self, step: &Step) {
        for (party, access) in self.parties(step) {
            self.window.add(party, &access);
        }
    }

    /// The accesses by thread; a shared step counts as a further thread of its own.
    fn parties(&self, step: &Step) -> Vec<(usize, Access)> {
        match step {
            Step::Each(drafts) => {
                drafts.iter().enumerate().filter_map(|(t, d)| Some((t, d.as_ref()?.access))).collect()
            }
            Step::Shared(shared) => vec![(self.threads.len() + self.shared.len(), shared.draft.access)],
        }
    }

    /// Each thread's own accesses, then those of each shared step.
    fn accesses(&self) -> Vec<Vec<Access>> {
        let own = |parts: &Vec<Part>| parts.iter().filter_map(Part::access).collect();
        let shared = self.shared.iter().map(|shared| vec![shared.draft.access]);
        self.threads.iter().map(own).chain(shared).collect()
    }
}

impl Part {
    fn access(&self) -> Option<Access> {
        match self {
            Part::Own(draft) => Some(draft.access),
            Part::Shared(_) => None,
        }
    }
}
