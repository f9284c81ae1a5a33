//! What predicts rows: the model of a run, or several models of the best setting of a sweep.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use serde_json::{Map, Value, json};

use super::{PredictError, Trained, WhichWeights, trained::HeldRows};
use crate::{
    data::ParsedTables,
    host::escape_line,
    report::{BestRun, find_best_run, find_final_models},
};

/// A larger table is read again for each model.
const MOST_TABLE_BYTES: u64 = 1 << 32;

/// Which models predict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Models {
    /// That of the run, or of the best trial of a sweep.
    One,
    /// The mean of all those of the best setting, which differ in seeds and folds.
    Ensemble,
    /// For each row those of the best setting that validated with it, so did not train on it.
    OutOfFold,
}

/// One model or more; several predict the same classes or targets.
pub struct Predictor {
    pub(super) models: Vec<Trained>,
    pub(super) which: Models,
    /// The setting, if they are of a sweep: `#3 lr 0.03, validation loss 0.0615`.
    setting: Option<String>,
}

impl Predictor {
    /// Reads the models of the only run or sweep that `path` names.
    ///
    /// # Errors
    /// One cannot be read, or they are not what `models` says.
    pub fn open(path: &str, which: WhichWeights, models: Models) -> Result<Self, PredictError> {
        let found = find_best_run(path).or_else(|e| match models {
            Models::Ensemble => find_final_models(path).ok_or(e),
            _ => Err(e),
        });
        let BestRun { folder, setting, ranked, folders } = found?;
        let folders = match models {
            Models::One => vec![folder],
            Models::Ensemble if folders.len() < 2 => {
                return Err(PredictError::NoEnsemble { path: path.to_owned(), has_more: ranked.len() > 1 });
            }
            Models::Ensemble => folders,
            Models::OutOfFold => ranked,
        };
        let read = |folder: PathBuf| Trained::read(folder, which);
        let mut trained = folders.into_iter().map(read).collect::<Result<Vec<_>, _>>()?;
        if models == Models::OutOfFold && (setting.is_none() || trained[0].spec.data.folds.is_none()) {
            return Err(PredictError::NoFolds { path: path.to_owned() });
        }
        trained.sort_by_key(|model| (seeds(model), model.spec.data.fold));
        let predictor = Self { models: trained, which: models, setting };
        predictor.check_targets()?;
        Ok(predictor)
    }

    /// Those of other data may predict others.
    fn check_targets(&self) -> Result<(), PredictError> {
        let targets = |model: &Trained| (model.data.class_names(), model.data.target_names(), model.outputs);
        let first = self.first();
        match self.models.iter().find(|model| targets(model) != targets(first)) {
            Some(other) => {
                Err(PredictError::OtherTargets { folders: [first, other].map(|model| model.folder.clone()) })
            }
            None => Ok(()),
        }
    }

    /// The model whose preprocessing names the classes and scales the targets of all.
    pub fn first(&self) -> &Trained {
        &self.models[0]
    }

    pub(super) fn is_several(&self) -> bool {
        self.which != Models::One
    }

    /// The folder of the run, or of the sweep.
    pub(super) fn folder(&self) -> &Path {
        let first = &self.first().folder;
        if self.is_several() { first.parent().unwrap_or(first) } else { first }
    }

    /// Where several models find the table that the first has read.
    pub(super) fn tables(&self) -> ParsedTables {
        let mut tables = ParsedTables::default();
        tables.begin(if self.models.len() > 1 { MOST_TABLE_BYTES } else { 0 });
        tables
    }

    /// The rows that each model did not train on, if these are the same.
    ///
    /// # Errors
    /// There are none, or other ones for each model.
    pub(super) fn held_rows(
        &self,
        of: impl Fn(&Trained, &mut ParsedTables) -> Result<HeldRows, PredictError>,
        part: &'static str,
    ) -> Result<Vec<HeldRows>, PredictError> {
        let mut tables = self.tables();
        let held = self.models.iter().map(|model| of(model, &mut tables));
        let held = held.collect::<Result<Vec<_>, _>>()?;
        let is_same = |own: &HeldRows| own.numbers == held[0].numbers && own.digest == held[0].digest;
        match held.iter().all(is_same) {
            true => Ok(held),
            false => Err(PredictError::OtherRows {
                folder: self.folder().to_owned(),
                part,
                has_folds: self.first().spec.data.folds.is_some(),
            }),
        }
    }

    /// Lines on which models and weights these are.
    pub fn described(&self) -> String {
        let first = self.first();
        let Some(setting) = &self.setting else { return format!("weights: {}\n", first.described()) };
        if !self.is_several() {
            let data = &first.spec.data;
            let rows = if data.has_folds_in_order() { "on the rows before" } else { "without the rows of" };
            let fold = data.fold.map(|fold| format!("; trained {rows} fold {fold}")).unwrap_or_default();
            let run = format!("{}, the best trial: {setting}{fold}", first.folder.display());
            return format!("run: {}\nweights: {}\n", escape_line(&run), first.described());
        }
        let files: BTreeSet<&str> = self.models.iter().map(|model| &*model.file).collect();
        let files: Vec<&str> = files.into_iter().collect();
        let epochs = self.models.iter().map(|model| model.epoch.parse().ok());
        let epochs = epochs.collect::<Option<BTreeSet<u64>>>().and_then(|epochs| {
            let (first, last) = (epochs.first()?, epochs.last()?);
            Some(if first == last {
                format!(", of epoch {first}")
            } else {
                format!(", of epochs {first} to {last}")
            })
        });
        format!(
            "models: {} of the best setting{}: {}\nweights: {}{}{}\n",
            self.models.len(),
            self.members(),
            escape_line(setting),
            files.join(" and "),
            epochs.unwrap_or_default(),
            self.models.iter().map(Trained::kept).max().unwrap_or_default()
        )
    }

    /// `, folds 0 to 4, seeds 0, 2`: their folds, and in what else the models differ.
    fn members(&self) -> String {
        let split_seed = |model: &Trained| model.spec.data.split.as_ref().and_then(|split| split.seed);
        let all = |of: &dyn Fn(&Trained) -> Option<u64>| self.models.iter().filter_map(of).collect();
        let axes: [(&str, BTreeSet<u64>); 3] = [
            ("fold", all(&|model| model.spec.data.fold.map(u64::from))),
            ("split seed", all(&split_seed)),
            ("seed", all(&|model| Some(model.spec.seed))),
        ];
        let named = axes.iter().filter(|(name, values)| values.len() > usize::from(*name != "fold"));
        named
            .map(|(name, values)| match values.len() {
                1 => format!(", {name} {}", listed(values)),
                _ => format!(", {name}s {}", listed(values)),
            })
            .collect()
    }

    /// A sentence on the folds and seeds that have no model, if some lack.
    pub fn lacks(&self) -> Option<String> {
        let data = &self.first().spec.data;
        let folds = self.models.iter().map(|model| model.spec.data.fold).collect::<BTreeSet<_>>();
        let all_folds = match data.folds {
            Some(all) if self.is_several() && !data.has_folds_in_order() => all as usize,
            _ => folds.len(),
        };
        let wanted = self.models.iter().map(seeds).collect::<BTreeSet<_>>().len() * all_folds;
        let found = self.models.iter().map(|model| (seeds(model), model.spec.data.fold));
        let found = found.collect::<BTreeSet<_>>().len();
        (self.is_several() && found < wanted).then(|| {
            format!(
                "{} of {wanted} models are missing, one for each fold and seed: they did not finish, or `compare` cannot rank them",
                wanted - found
            )
        })
    }

    /// The models, as the first keys of a JSON object.
    pub(super) fn json(&self) -> Map<String, Value> {
        let number = |text: &str| text.parse::<u64>().map_or(Value::Null, Value::from);
        let of_model = |model: &Trained| {
            let mut object = Map::new();
            object.insert("run".to_owned(), json!(model.folder));
            object.insert("weights".to_owned(), json!(model.file));
            object.insert("epoch".to_owned(), number(&model.epoch));
            object.insert("step".to_owned(), number(&model.step));
            object
        };
        if !self.is_several() {
            return of_model(self.first());
        }
        let mut object = Map::new();
        object.insert("run".to_owned(), json!(self.folder()));
        object.insert("setting".to_owned(), json!(self.setting));
        object.insert("models".to_owned(), self.models.iter().map(of_model).collect());
        object
    }
}

/// What drew a model's rows and weights.
fn seeds(model: &Trained) -> (Option<u64>, u64) {
    (model.spec.data.split.as_ref().and_then(|split| split.seed), model.spec.seed)
}

/// `0 to 4`, or `0, 2, 3`.
fn listed(values: &BTreeSet<u64>) -> String {
    match (values.first(), values.last()) {
        (Some(first), Some(last)) if values.len() > 2 && last - first == values.len() as u64 - 1 => {
            format!("{first} to {last}")
        }
        _ => values.iter().map(u64::to_string).collect::<Vec<_>>().join(", "),
    }
}
