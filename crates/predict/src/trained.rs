//! Reads a trained model from a run folder.

use std::path::{Path, PathBuf};

use super::PredictError;
use crate::{
    data::{
        self, Dataset, ParsedTables, Part, Task, TrainedData, Weights, digest_of_files, read_metadata,
        read_weights_of_run,
    },
    host::check_regular,
    record::{CheckpointWeights, checkpoint_weights},
    report::{ReportError, has_best, run_digest, run_status},
    spec::{self, Loaded, Placement, Problem, Source, Spec},
};

/// Which of a run's weights are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhichWeights {
    /// Those of the best validation, or the last ones if there was no validation.
    Best,
    Last,
}

/// The model that a run produced.
pub struct Trained {
    pub folder: PathBuf,
    pub spec: Spec,
    /// The file of its weights, in the run's folder.
    pub file: String,
    /// The optimizer step and the epoch after which the weights were taken.
    pub step: String,
    pub epoch: String,
    pub data: TrainedData,
    pub features: usize,
    pub outputs: usize,
    pub weights: Weights,
    /// A note about weights from a checkpoint.
    note: Option<String>,
}

/// Rows that a run did not train on, preprocessed for its model.
pub struct HeldRows {
    pub part: Part,
    /// Their numbers in the file, ascending; none if they have a file of their own.
    pub numbers: Vec<u32>,
    /// The group of each row, numbered from 0.
    pub groups: Option<Vec<u32>>,
    /// The number of rows that the run trained on.
    pub trained_on: usize,
    /// That of the run's data.
    pub digest: String,
}

/// Statuses of runs whose weights may come from a checkpoint.
const ENDED_EARLY: [&str; 6] = ["running", "unfinished", "interrupted", "waiting", "stopped", "failed"];

const LAST: &str = "model.safetensors";

/// A file of weights; with that of a checkpoint, what it has and a note.
type Chosen = (String, Option<(CheckpointWeights, String)>);

/// How often a run's newest checkpoint is looked for.
const MOST_TRIES: u32 = 100;

impl Trained {
    /// Reads the model in a run's folder.
    pub fn read(folder: PathBuf, which: WhichWeights) -> Result<Self, PredictError> {
        let spec = match spec::read(&folder.join("spec.toml"), &[])? {
            Loaded::Train(experiment) => experiment.trials.into_iter().next().map(|trial| trial.spec),
            Loaded::Lab(_) => None,
        };
        let Some(spec) = spec else { return Err(PredictError::NoTraining { folder }) };
        let mut tries = 1;
        loop {
            let (file, saved) = Self::choose(&folder, which)?;
            let path = folder.join(&file);
            let read = Self::of_file(folder.clone(), spec.clone(), file, saved);
            // A run at work removes a checkpoint once there is a newer one.
            if read.is_ok() || tries == MOST_TRIES || path.exists() {
                return read;
            }
            tries += 1;
        }
    }

    /// The file of the weights, and what is known of them if it is a checkpoint.
    fn choose(folder: &Path, which: WhichWeights) -> Result<Chosen, PredictError> {
        let has = |file: &&'static str| folder.join(file).exists();
        let wanted = if which == WhichWeights::Last { &[LAST][..] } else { &["best.safetensors", LAST] };
        if let Some(file) = wanted.iter().copied().find(has) {
            return Ok((file.to_owned(), None));
        }
        let status = run_status(folder);
        let saved = ENDED_EARLY.contains(&&*status).then(|| {
            let saved = checkpoint_weights(folder, which == WhichWeights::Best)?;
            let which = if saved.prefix.is_empty() { "the newest" } else { "the best so far" };
            let note = format!("{which}, since the run has not finished: it is `{status}`");
            Some((saved.file.clone(), Some((saved, note))))
        });
        let file = if which == WhichWeights::Last { LAST } else { "weights" };
        saved.flatten().ok_or(PredictError::NoWeights { file, status, folder: folder.to_owned() })
    }

    fn of_file(
        folder: PathBuf,
        spec: Spec,
        file: String,
        saved: Option<(CheckpointWeights, String)>,
    ) -> Result<Self, PredictError> {
        let path = folder.join(&file);
        check_regular(&path).map_err(|e| ReportError::read(&path, e))?;
        let metadata = read_metadata(&path)?;
        let unusable = |why: String| PredictError::NoPreprocessing { file: path.clone(), why };
        let no_width = || unusable("it has no linear layer".to_owned());
        let outputs = spec.model.layers.iter().fold(0, |width, layer| layer.outputs(width));
        if outputs == 0 {
            return Err(no_width());
        }
        let stored = metadata.get("preprocessing").map(String::as_str);
        let data = TrainedData::new(&spec, stored, outputs).map_err(unusable)?;
        let features = data.features().ok_or_else(no_width)?;
        let wanted = wanted_tensors(&spec, features);
        let (weights, step, epoch) = match &saved {
            Some((saved, _)) => {
                let weights = read_weights_of_run(&path, Some(saved.prefix), &wanted)?;
                (weights, saved.step.to_string(), saved.epoch.to_string())
            }
            None => {
                let text = |key: &str| metadata.get(key).cloned().unwrap_or_default();
                (read_weights_of_run(&path, None, &wanted)?, text("step"), text("epoch"))
            }
        };
        let note = saved.map(|(_, note)| note);
        Ok(Self { folder, spec, file, step, epoch, data, features, outputs, weights, note })
    }

    /// The rows that `data.split.test` held out. A table that is among `tables` is not read again.
    ///
    /// # Errors
    /// There are none, or the data has changed since the run.
    pub fn test_rows(&self, tables: &mut ParsedTables) -> Result<HeldRows, PredictError> {
        let none = || PredictError::NoTestRows {
            folder: self.folder.clone(),
            has_folds: self.spec.data.folds.is_some(),
            are_made: self.spec.data.source.synthetic().is_some(),
        };
        if !self.has_test_rows() {
            return Err(none());
        }
        let open = |data: &spec::Data, task, seed| data::open_test(tables, data, task, seed);
        held(self.dataset(open)?).ok_or_else(none)
    }

    /// The rows that the run validated with. A table that is among `tables` is not read again.
    ///
    /// # Errors
    /// There are none, or the data has changed since the run.
    pub fn validation_rows(&self, tables: &mut ParsedTables) -> Result<HeldRows, PredictError> {
        held(self.rows(tables)?).ok_or_else(|| PredictError::NoValidationRows { folder: self.folder.clone() })
    }

    /// Whether the run kept rows for a test.
    pub fn has_test_rows(&self) -> bool {
        self.spec.data.split.as_ref().is_some_and(|split| split.test > 0.0)
    }

    /// The rows that the run was trained on and validated with.
    pub fn rows(&self, tables: &mut ParsedTables) -> Result<Dataset, PredictError> {
        self.dataset(|data, task, seed| data::open_among(tables, data, task, seed, u64::MAX))
    }

    /// Where the run's data are, though the project was moved.
    pub fn source(&self) -> Source {
        let source = &self.spec.data.source;
        moved_source(source, &self.folder, run_digest(&self.folder).as_deref())
            .unwrap_or_else(|| source.clone())
    }

    fn dataset(
        &self,
        open: impl FnOnce(&spec::Data, Task, u64) -> Result<Dataset, Vec<Problem>>,
    ) -> Result<Dataset, PredictError> {
        let own = spec::Data::clone(&self.spec.data);
        let data = spec::Data { placement: Placement::Auto, source: self.source(), ..own };
        let recorded = run_digest(&self.folder);
        let classifies = self.spec.model.loss.classifies();
        let task = if classifies { Task::Classification } else { Task::Regression };
        let opened = open(&data, task, self.spec.seed);
        if opened.is_err()
            && let Some(recorded) = &recorded
            && let Some(found) = digest_of_files(&data.source, data.source.files())
            && found != *recorded
        {
            // What is wrong with other data is beside the point.
            let (folder, recorded) = (self.folder.clone(), recorded.clone());
            return Err(PredictError::OtherData { folder, found, recorded });
        }
        let dataset = opened.map_err(|problems| {
            let is_gone = data.source.files().iter().any(|file| !file.exists());
            let with_way_out = |problem: Problem| if is_gone { problem.hint(GONE) } else { problem };
            problems.into_iter().map(with_way_out).collect::<Vec<_>>()
        })?;
        match recorded.filter(|recorded| *recorded != dataset.digest) {
            Some(recorded) => {
                let folder = self.folder.clone();
                Err(PredictError::OtherData { folder, found: dataset.digest, recorded })
            }
            None => Ok(dataset),
        }
    }

    /// A description of which weights these are.
    pub fn described(&self) -> String {
        let Self { file, step, epoch, .. } = self;
        let note = self.note.as_ref().map(|note| format!("; {note}"));
        format!("{file}, of epoch {epoch}, step {step}{}", note.as_deref().unwrap_or(self.kept()))
    }

    /// That the last weights are the best: early stopping restores these.
    pub fn kept(&self) -> &'static str {
        let restores = self.spec.trainer.restore_best == Some(true);
        let is_best = self.file == LAST && restores && has_best(&self.folder);
        if is_best { "; the best: `trainer.restore_best=false` keeps the last" } else { "" }
    }
}

/// The rows that a data set holds out; `None` if there are none.
fn held(dataset: Dataset) -> Option<HeldRows> {
    let Dataset { train, validation, apart, groups, digest, .. } = dataset;
    Some(HeldRows { part: validation?, numbers: apart[0].clone(), groups, trained_on: train.rows, digest })
}

/// The way out if the run's data cannot be found.
const GONE: &str = "bring it back there, or, if the project was moved, to where it was within the project: it is looked for \
                    below the folders above the run, too, and known by its digest";

/// Where a project was moved with its runs: the source with files that are not at their old paths below one of the folders above
/// the run, at the end of their paths. `None` if no file is missing, or no others have the digest that the run recorded.
pub fn moved_source(source: &Source, run: &Path, digest: Option<&str>) -> Option<Source> {
    let digest = digest.filter(|_| source.files().iter().any(|file| !file.exists()))?;
    let run = run.canonicalize().ok()?;
    let first = source.files().into_iter().find(|file| !file.exists())?.to_owned();
    let moves = run.ancestors().skip(1).flat_map(|to| first.ancestors().skip(1).map(move |from| (from, to)));
    let moved = moves.map(|(from, to)| {
        source.with_files(|file| match file.strip_prefix(from) {
            Ok(end) if !file.exists() => to.join(end),
            _ => file.to_owned(),
        })
    });
    moved.filter(|moved| moved.files().iter().all(|file| file.is_file())).find(|moved| {
        let files = moved.files();
        digest_of_files(moved, files).as_deref() == Some(digest)
    })
}

/// Names and shapes of the model's parameters, with PyTorch's order of axes.
fn wanted_tensors(spec: &Spec, features: usize) -> Vec<(String, Vec<usize>)> {
    let (mut wanted, mut width) = (Vec::new(), features);
    for (i, layer) in spec.model.layers.iter().enumerate() {
        let parameters = layer.parameters(width).into_iter();
        wanted.extend(parameters.map(|p| (format!("{i}.{}", p.name), p.shape.into_iter().rev().collect())));
        width = layer.outputs(width);
    }
    wanted
}
