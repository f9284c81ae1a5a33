//! Where a training resumes: the newest checkpoint of its folder, if it fits the plan.

use super::{ExecuteError, changes::kept_hash};
use crate::{
    event::SavedState,
    plan::Trial,
    record::{self, MetricColumns, RunDir, RunLock},
    spec::Policy,
    train::EarlyStopper,
    units,
};

/// A checkpoint that a run resumes from.
pub struct Resumed {
    pub state: SavedState,
    /// `step-00000120`
    pub name: String,
    /// Newer checkpoints that are unusable, and why.
    pub damaged: Vec<String>,
    /// The folder's lock, held here until its files are opened.
    lock: Option<RunLock>,
    /// Number of rows of `metrics.csv` to keep.
    metrics_rows: u64,
}

impl Resumed {
    /// Locks the folder, and reads its newest checkpoint.
    pub fn new(trial: &Trial, folder: &RunDir, data_digest: &str) -> Result<Self, ExecuteError> {
        let path = folder.path().display();
        let Some(lock) = RunLock::take(folder.path())? else {
            return Err(ExecuteError::under_way(folder));
        };
        record::remove_remnants(folder.path());
        let found = record::newest(folder.path(), trial)
            .map_err(|why| ExecuteError::NoCheckpoint { folder: path.to_string(), why })?;
        let found = found.ok_or_else(|| {
            let (when, hint) = match trial.spec.checkpoint {
                Some(_) => (": it ended before its first", "run its spec again; `checkpoint` says how often"),
                None => ("", "run its spec again, with a table `[checkpoint]`"),
            };
            ExecuteError::Resume { message: format!("`{path}` has no checkpoint to go on from{when}"), hint }
        })?;
        let record::Found { state, metrics_rows, kept_hash: kept, data_digest: saved, name, damaged } = found;
        let refuse = |message: String, hint| Err(ExecuteError::Resume { message, hint });
        if saved != data_digest {
            let hint = "bring the data back that it was trained on, or begin anew";
            return refuse(format!("the data are not those that `{path}` was trained on"), hint);
        }
        if kept != kept_hash(&trial.spec) {
            let hint = "bring `spec.toml` back as it was, or run the spec anew";
            return refuse(format!("`{path}` was trained with other values than its `spec.toml` has"), hint);
        }
        let (facts, batch) = (&state.facts, trial.programs.train.batch as u64);
        if facts.batch != batch {
            let [was, is] = [facts.batch, batch].map(units::count);
            let hint = "use as many devices as before, or scale `strong`";
            return refuse(format!("a batch of `{path}` has {was} rows; here it would have {is}"), hint);
        }
        if facts.step > trial.steps {
            let [taken, planned] = [facts.step, trial.steps].map(|steps| units::counted(steps, "step"));
            let hint = "name a length, such as `trainer.max_epochs`, that reaches beyond what it has taken";
            return refuse(format!("`{path}` has taken {taken}, and would end after {planned}"), hint);
        }
        if facts.step == trial.steps && folder.has_finished() {
            let steps = units::counted(facts.step, "step");
            let hint = "for more of it, name a larger `trainer.max_epochs`, `max_steps` or `max_time` after it; after early stopping, a larger `trainer.early_stopping.patience`, or another `stopping_threshold`";
            return refuse(format!("`{path}` has taken all its steps: {steps}"), hint);
        }
        let stopped = trial.spec.trainer.early_stopping.clone().and_then(|rule| {
            let mut stopper = EarlyStopper::new(rule);
            stopper.seen = facts.early_stopping;
            let reached = facts.validation.as_ref().and_then(|row| stopper.reached(row));
            let [another, larger] = [
                "for more of it, name another `trainer.early_stopping.stopping_threshold` after it",
                "for more of it, name a larger `trainer.early_stopping.patience` after it",
            ];
            reached.map(|why| (why, another)).or_else(|| Some((stopper.exhausted()?, larger)))
        });
        if let Some((why, hint)) = stopped.filter(|_| folder.has_finished()) {
            return refuse(format!("`{path}` has finished by {why}"), hint);
        }
        // Check this before anything in the folder is changed.
        let is_every_step = matches!(trial.spec.logging.policy, Policy::Immediate | Policy::Buffered);
        let steps = is_every_step.then_some(state.facts.step);
        MetricColumns::from_trial(trial).length_of(&folder.file("metrics.csv"), metrics_rows, steps)?;
        Ok(Self { state, name, damaged, lock: Some(lock), metrics_rows })
    }

    /// The lock and the number of rows to keep, for opening the run's files; `None` after the first call.
    pub fn files(&mut self) -> Option<(RunLock, u64)> {
        Some((self.lock.take()?, self.metrics_rows))
    }
}
