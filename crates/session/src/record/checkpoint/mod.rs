//! `checkpoints/`: saved states of a training, each a `.safetensors` file with the arrays and a `.toml` file
//! with the rest.
//!
//! The arrays are synced to disk before the `.toml` gets its name, and the rows of `metrics.csv` before both.
//! So a checkpoint with a `.toml` is complete, even after a power loss; a digest verifies it when a run
//! resumes. Older checkpoints are removed only after that. Checkpoints that a sweep makes at its rungs
//! without `[checkpoint]` do not wait for the disk: a trial whose checkpoint was lost simply runs again.

mod file;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    thread::{self, JoinHandle},
    time::Instant,
};

use self::file::{BEST, Description};
use super::{RecordError, Sink, durable::sync_files};
use crate::{
    event::{Checkpoint, Event, SavedState},
    host::{Durability, lock, sync_path},
    plan::Trial,
    program::Parameter,
    spec,
};

/// What a run's checkpoints contain besides its state.
#[derive(Clone, Debug)]
pub struct CheckpointIdentity {
    pub spec_hash: String,
    /// That of the keys which stay as they are when a run goes on.
    pub kept_hash: String,
    pub data_digest: String,
    /// The preprocessing, as in the model's metadata.
    pub preprocessing: Option<String>,
}

/// The newest intact checkpoint of a run.
#[derive(Debug)]
pub struct Found {
    pub state: SavedState,
    /// Number of rows of `metrics.csv` before it.
    pub metrics_rows: u64,
    pub kept_hash: String,
    pub data_digest: String,
    /// `step-00000120`
    pub name: String,
    /// Newer checkpoints that cannot be used, and why.
    pub damaged: Vec<String>,
}

/// The newest intact checkpoint in a run's folder; `None` if there are no checkpoints.
///
/// # Errors
/// There are checkpoints, but none is intact; says why the newest is not.
pub fn newest(run: &Path, trial: &Trial) -> Result<Option<Found>, String> {
    let folder = run.join(FOLDER);
    let mut described = described(&folder);
    let known = described.iter().filter_map(|(_, description)| description.as_ref().ok());
    let costs: Vec<_> = known.filter_map(|known| cost(known, trial.spec.trainer.monitor)).collect();
    let mut damaged = Vec::new();
    while let Some((name, description)) = described.pop() {
        let read = description.and_then(|description| {
            let arrays = file::read_arrays(&folder, &name, &description, &trial.programs.layout)?;
            Ok((description, arrays))
        });
        match read {
            Ok((Description { state: facts, metrics_rows, kept_hash, data_digest, .. }, arrays)) => {
                let state = SavedState { facts, arrays, costs };
                return Ok(Some(Found { state, metrics_rows, kept_hash, data_digest, name, damaged }));
            }
            Err(why) => damaged.push(format!("`{}`: {why}", folder.join(&name).display())),
        }
    }
    match damaged.into_iter().next() {
        Some(why) => Err(why),
        None => Ok(None),
    }
}

pub struct CheckpointWeights {
    /// Its file in the run's folder.
    pub file: String,
    /// Prefix of the names of their tensors.
    pub prefix: &'static str,
    /// The step and the epoch after which they were taken.
    pub step: u64,
    pub epoch: u64,
}

/// The weights in the newest checkpoint of a run: those of the best validation if they are wanted and
/// present.
pub fn checkpoint_weights(run: &Path, is_best_wanted: bool) -> Option<CheckpointWeights> {
    described(&run.join(FOLDER)).into_iter().rev().find_map(|(name, description)| {
        let state = description.ok()?.state;
        let file = format!("{FOLDER}/{name}.safetensors");
        Some(match state.best.filter(|_| is_best_wanted) {
            Some(best) => CheckpointWeights { file, prefix: BEST, step: best.step, epoch: best.epoch },
            None => CheckpointWeights { file, prefix: "", step: state.step, epoch: state.epoch },
        })
    })
}

/// Whether a run's folder has checkpoints.
pub fn has_checkpoints(run: &Path) -> bool {
    !described(&run.join(FOLDER)).is_empty()
}

/// The step of a run's newest checkpoint; 0 if it has none.
pub fn newest_step(run: &Path) -> u64 {
    let all = described(&run.join(FOLDER));
    all.iter().filter_map(|(_, description)| Some(description.as_ref().ok()?.state.step)).max().unwrap_or(0)
}

const FOLDER: &str = "checkpoints";

/// All checkpoints with a description, newest last. A description that cannot be read counts as the newest.
fn described(folder: &Path) -> Vec<(String, Result<Description, String>)> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let names = entries.filter_map(|entry| {
        let name = entry.ok()?.file_name().into_string().ok()?;
        name.strip_suffix(".toml").filter(|name| !name.starts_with('.')).map(str::to_owned)
    });
    let mut all: Vec<_> = names.map(|name| (name.clone(), Description::read(folder, &name))).collect();
    all.sort_by_cached_key(|(name, description)| {
        let age = description.as_ref().map_or((u64::MAX, true), |d| (d.state.step, !d.state.in_epoch));
        (age, name.clone())
    });
    all
}

/// A checkpoint on the disk.
struct Kept {
    name: String,
    /// The value of `trainer.monitor` if the checkpoint follows a validation; smaller is better.
    cost: Option<f64>,
}

/// The sink of `checkpoints/`. A thread writes each checkpoint, so that rows of later steps do not wait for it.
pub(super) struct Checkpoints {
    writer: Arc<Mutex<Writer>>,
    under_way: Option<JoinHandle<Result<(), RecordError>>>,
    /// Rows of `metrics.csv`, which another sink writes.
    rows: u64,
}

struct Writer {
    run: PathBuf,
    parameters: Vec<Parameter>,
    identity: CheckpointIdentity,
    monitor: spec::Monitor,
    /// How many to keep: of the latest, and of the best.
    keep: [usize; 2],
    kept: Vec<Kept>,
    durability: Durability,
    /// Whether the files written at the start of the run are synced to disk.
    is_synced: bool,
}

impl Checkpoints {
    /// `rows` is the number of rows already in `metrics.csv`.
    pub fn new(run: &Path, trial: &Trial, identity: CheckpointIdentity, rows: u64, is_alone: bool) -> Self {
        let waits = is_alone || trial.spec.checkpoint.is_some();
        let keep = trial.spec.checkpoint.as_ref().map_or([1, 0], |rule| [rule.keep_last, rule.keep_best]);
        let monitor = trial.spec.trainer.monitor;
        let found = described(&run.join(FOLDER)).into_iter();
        let kept = found.map(|(name, description)| {
            let cost = description.ok().and_then(|d| cost(&d, monitor));
            Kept { name, cost }
        });
        let writer = Writer {
            run: run.to_owned(),
            parameters: trial.programs.layout.parameters.clone(),
            identity,
            monitor,
            keep: keep.map(|count| usize::try_from(count).unwrap_or(usize::MAX)),
            kept: kept.collect(),
            durability: if waits { Durability::Power } else { Durability::Process },
            is_synced: !waits,
        };
        Self { writer: Arc::new(Mutex::new(writer)), under_way: None, rows }
    }

    fn save(&mut self, checkpoint: &Checkpoint) -> Result<(), RecordError> {
        self.wait()?;
        let (writer, checkpoint, rows) = (Arc::clone(&self.writer), checkpoint.clone(), self.rows);
        let save = move || lock(&writer).save(&checkpoint, rows);
        let thread = thread::Builder::new().name("checkpoint".to_owned()).spawn(save.clone());
        match thread {
            Ok(thread) => self.under_way = Some(thread),
            Err(_) => save()?, // the recorder writes it itself
        }
        Ok(())
    }

    /// Waits until the last checkpoint is written.
    fn wait(&mut self) -> Result<(), RecordError> {
        self.under_way.take().map_or(Ok(()), |thread| thread.join().unwrap_or(Err(RecordError::Gone)))
    }
}

impl Writer {
    fn save(&mut self, checkpoint: &Checkpoint, rows: u64) -> Result<(), RecordError> {
        let begun = Instant::now();
        if self.durability == Durability::Power {
            let metrics = self.run.join("metrics.csv");
            sync_path(&metrics).map_err(|e| RecordError::write(&metrics, e))?;
        }
        let folder = self.run.join(FOLDER);
        if !folder.is_dir() {
            fs::create_dir(&folder).map_err(|e| RecordError::make_folder(&folder, e))?;
        }
        if !std::mem::replace(&mut self.is_synced, true) {
            // Without its spec a run cannot be resumed.
            sync_files(&self.run)?;
        }
        let name = self.free_name(checkpoint.facts.step);
        let files = file::Files { folder: &folder, name: &name, durability: self.durability };
        let description = file::write(files, checkpoint, &self.parameters, &self.identity, rows)?;
        self.kept.push(Kept { name, cost: cost(&description, self.monitor) });
        self.remove_old(&folder);
        let _ = checkpoint.written.send(begun.elapsed()); // the training may be over
        Ok(())
    }

    /// Two checkpoints may follow the same step: one before its validation, one after.
    fn free_name(&self, step: u64) -> String {
        let first = format!("step-{step:08}");
        let is_free = |name: &String| self.kept.iter().all(|kept| kept.name != *name);
        let later = (2..).map(|n: u64| format!("{first}-{n}"));
        std::iter::once(first.clone()).chain(later).find(is_free).unwrap_or(first)
    }

    fn remove_old(&mut self, folder: &Path) {
        let [last, best] = self.keep;
        // Of equal values, keep the older one.
        let mut by_cost: Vec<_> =
            self.kept.iter().enumerate().filter_map(|(place, kept)| Some((kept.cost?, place))).collect();
        by_cost.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        by_cost.truncate(best);
        let (mut place, count) = (0, self.kept.len());
        self.kept.retain(|kept| {
            place += 1;
            let stays = place + last > count || by_cost.iter().any(|(_, best)| best + 1 == place);
            if !stays {
                // Failing to remove one only costs space. Without its description it no longer counts as a
                // checkpoint.
                let _ = fs::remove_file(folder.join(format!("{}.toml", kept.name)));
                let _ = fs::remove_file(folder.join(format!("{}.safetensors", kept.name)));
            }
            stays
        });
    }
}

/// The monitored value if the checkpoint follows a validation.
fn cost(description: &Description, monitor: spec::Monitor) -> Option<f64> {
    let state = &description.state;
    state.validation.as_ref()?.cost_at(state.step, monitor)
}

impl Sink for Checkpoints {
    fn event(&mut self, event: &Event) -> Result<(), RecordError> {
        match event {
            Event::Train(block) => self.rows += block.len() as u64,
            Event::Validation(_) => self.rows += 1,
            Event::Checkpoint(checkpoint) => self.save(checkpoint)?,
            Event::Finished(_) => self.wait()?,
            _ => {}
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), RecordError> {
        if self.under_way.as_ref().is_some_and(JoinHandle::is_finished) { self.wait() } else { Ok(()) }
    }
}

impl Drop for Checkpoints {
    fn drop(&mut self) {
        let _ = self.wait(); // a run that fails has said why
    }
}

/// Removes unfinished files that a killed process left behind.
pub fn remove_remnants(run: &Path) {
    let folders = [run.to_owned(), run.join(FOLDER)];
    let entries = folders.iter().flat_map(fs::read_dir).flatten().flatten();
    for path in entries.map(|entry| entry.path()) {
        let is_named = |end: &str| path.extension().is_some_and(|own| own == end);
        let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        let is_array = is_named("safetensors") && path.parent() != Some(run);
        if hidden && is_named("tmp") || is_array && !path.with_extension("toml").is_file() {
            let _ = fs::remove_file(path); // a leftover file does no harm
        }
    }
}
