//! Why a model cannot be used.

use std::{io, path::PathBuf};

use crate::{
    device::DeviceError,
    host::reason,
    report::ReportError,
    spec::{Failure, Problem},
};

#[derive(Debug, thiserror::Error)]
pub enum PredictError {
    #[error(transparent)]
    Report(#[from] ReportError),
    /// A problem with the run's spec, its weights or the rows.
    #[error(transparent)]
    Input(#[from] Failure),
    #[error("`{}` is a run of the lab: it trains no model", folder.display())]
    NoTraining { folder: PathBuf },
    #[error("`{}` has no {file}: the run is `{status}`", folder.display())]
    NoWeights { folder: PathBuf, file: &'static str, status: String },
    #[error("`{}` cannot be used on new rows: {why}", file.display())]
    NoPreprocessing { file: PathBuf, why: String },
    #[error("`{}` lies in the run's folder", file.display())]
    IsOfRun { file: PathBuf },
    #[error("`{}` is a file that is read", file.display())]
    IsInput { file: PathBuf },
    #[error("`{}` set no rows aside for a test", folder.display())]
    NoTestRows { folder: PathBuf, has_folds: bool, are_made: bool },
    #[error("`{}` has no rows to validate on", folder.display())]
    NoValidationRows { folder: PathBuf },
    #[error("`{}` would hold plain text, and its name says gzip", file.display())]
    IsPlain { file: PathBuf },
    #[error("`{path}` has one model{}, and an ensemble is the mean of several", if *has_more { " of the last fold" } else { "" })]
    NoEnsemble { path: String, has_more: bool },
    #[error("`--out-of-fold` is for a sweep over folds, and `{path}` is none")]
    NoFolds { path: String },
    #[error("the models `{}` and `{}` predict other classes or targets", folders[0].display(), folders[1].display())]
    OtherTargets { folders: [PathBuf; 2] },
    #[error("the models of `{}` have other {part} rows each, so that none are new to all", folder.display())]
    OtherRows { folder: PathBuf, part: &'static str, has_folds: bool },
    #[error("the models found other rows in the file")]
    RowsApart,
    #[error("`{option}` is for models of two classes: this one {}", of_what(*classes))]
    NotTwoClasses { option: &'static str, classes: Option<usize> },
    #[error("`{name}` is no class of this model: its classes are {classes}")]
    NoSuchClass { name: String, classes: String },
    #[error("the weights of all rows, in the column `{column}`, are 0")]
    NoWeight { column: String },
    #[error("the data of `{}` are not what the run was trained on: their digest is {found}, and was {recorded}", folder.display())]
    OtherData { folder: PathBuf, found: String, recorded: String },
    #[error("`{}` holds something else than {what}", file.display())]
    IsOther { file: PathBuf, what: &'static str },
    #[error("`{}` holds something else than predictions of this model", file.display())]
    IsNoPrediction { file: PathBuf },
    #[error("`{}` has predictions with the columns `{found}`: these would be `{wanted}`", file.display())]
    KeepsOthers { file: PathBuf, found: String, wanted: String },
    #[error("the predictions have a column `{name}` of their own: a kept one cannot have the same name")]
    KeepsOwnName { name: String },
    #[error("the model is too large for `{}`: ONNX holds at most 2 GiB", file.display())]
    TooLarge { file: PathBuf },
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error("cannot write {to}: {}", reason(source))]
    Write { to: String, source: io::Error },
}

impl From<Vec<Problem>> for PredictError {
    fn from(problems: Vec<Problem>) -> Self {
        Self::Input(Failure::new(problems))
    }
}

impl From<Problem> for PredictError {
    fn from(problem: Problem) -> Self {
        Self::from(vec![problem])
    }
}

/// What a model predicts that has not two classes.
fn of_what(classes: Option<usize>) -> String {
    classes.map_or_else(|| "predicts numbers".to_owned(), |classes| format!("has {classes}"))
}

impl PredictError {
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::Report(e) => e.hint(),
            Self::NoWeights { folder, file: "model.safetensors", .. }
                if folder.join("best.safetensors").is_file() =>
            {
                Some("a run that diverged has only its best weights: leave out `--last`")
            }
            Self::NoWeights { status, .. } if ["running", "unfinished"].contains(&status.as_str()) => Some(
                "a run keeps its weights at its end, and before it only with a table `[checkpoint]`: run its spec again with one",
            ),
            Self::NoWeights { status, .. } if status == "finished" => Some(
                "bring the file back, or train again; a sweep is read without the folders of its trials that are removed",
            ),
            Self::NoPreprocessing { .. } => Some("train again"),
            Self::IsOfRun { .. } | Self::IsInput { .. } | Self::IsOther { .. } => {
                Some("write to another file")
            }
            Self::IsNoPrediction { .. } | Self::KeepsOthers { .. } => {
                Some("write to another file; `--force` replaces it")
            }
            Self::KeepsOwnName { .. } => Some(
                "keep a column that tells the rows apart, and join by it; or rename this one in the file",
            ),
            Self::NoTestRows { has_folds: true, .. } => Some(
                "`--out-of-fold` takes the rows of a sweep's folds, each by the models that did not train on it; or give rows that have the target, or train with `data.split.test=0.1`",
            ),
            Self::NoTestRows { are_made: true, .. } => {
                Some("rows that are made have no test part: give rows that have the target")
            }
            Self::NoTestRows { has_folds: false, .. } => {
                Some("give rows that have the target, or train with `data.split.test=0.1`")
            }
            Self::NoValidationRows { .. } => Some(
                "name a run that validates (a final model is trained on all rows), or give other rows that have the target",
            ),
            Self::IsPlain { .. } => {
                Some("leave `-o` out, and pipe: `runner predict ... | gzip > out.csv.gz`")
            }
            Self::NotTwoClasses { classes: Some(_), .. } => Some(
                "leave it out: the class of the highest probability is predicted; `runner predict` prints those of all classes",
            ),
            Self::NotTwoClasses { classes: None, .. } => Some("leave it out: the predictions are numbers"),
            Self::NoSuchClass { .. } => Some("write the name as the training file does"),
            Self::OtherData { .. } => Some("its test rows may have been trained on: train again"),
            _ => self.hint_on_several(),
        }
    }

    /// On what several models lack.
    fn hint_on_several(&self) -> Option<&str> {
        match self {
            Self::NoEnsemble { has_more: true, .. } => Some(
                "of folds in the order of rows only the last counts, which trains on most rows: `sweep.repeats=5` trains several models of it",
            ),
            Self::NoEnsemble { has_more: false, .. } => Some(
                "name a sweep whose settings were trained several times: over seeds, with `sweep.repeats=5`, or over folds, with `data.folds=5 data.fold=0..5`",
            ),
            Self::NoFolds { .. } => Some(
                "name a sweep with `data.folds=5 data.fold=0..5`: each row is then predicted by the models that did not train on it",
            ),
            Self::OtherTargets { .. } => {
                Some("train all on the same file, with the same columns and classes")
            }
            Self::OtherRows { has_folds: true, .. } => Some(
                "`--out-of-fold` takes, for each row, the models that did not train on it; or give rows that have the target",
            ),
            Self::OtherRows { has_folds: false, .. } => Some(
                "give rows that have the target, or train with `data.split.seed=0`, which is one split for all seeds",
            ),
            Self::RowsApart => Some("it changed while it was read: try again"),
            _ => None,
        }
    }
}
