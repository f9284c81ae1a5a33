//! Each row predicted by the models that did not train on it, as scikit-learn's `cross_val_predict` does: those that validated with
//! it. Where several did, such as one for each seed, their mean.

use std::collections::{BTreeSet, HashMap};

use super::{
    PredictError, Predictor, Trained,
    forward::{Chunk, forward},
    mean::{MeanOutputs, rescaled, shortest},
    trained::HeldRows,
};
use crate::{
    data::{NewRows, ParsedTables},
    units,
};

/// The rows that a fold validated with, in the order of the file.
pub struct OutOfFold {
    /// Their numbers in the file, from 0.
    pub numbers: Vec<u32>,
    /// `[rows, outputs]` of the first model.
    outputs: Vec<f32>,
    /// `[rows, targets]`, each row with its weight if it has one.
    targets: Vec<f32>,
    /// The group of each row, numbered from 0.
    pub groups: Option<Vec<u32>>,
}

/// What a model makes of the rows that it validated with.
struct OfModel {
    /// The number of rows that the run trained on.
    trained_on: usize,
    numbers: Vec<u32>,
    groups: Option<Vec<u32>>,
    outputs: Vec<f32>,
    /// In the scale of the model.
    targets: Vec<f32>,
}

impl OfModel {
    /// Reads the data of the run again, unless they are among `tables`.
    fn new(model: &Trained, tables: &mut ParsedTables) -> Result<Self, PredictError> {
        let HeldRows { part, numbers, groups, trained_on, .. } = model.validation_rows(tables)?;
        let (mut outputs, mut targets) = (Vec::new(), Vec::new());
        let mut take = |chunk: &Chunk<'_>| {
            outputs.extend_from_slice(chunk.outputs);
            targets.extend_from_slice(chunk.targets);
            Ok(())
        };
        let models = std::slice::from_ref(model);
        forward(models, &mut [NewRows::from_part(part)], &mut |_| {}, &mut |_| {}, &mut take)?;
        Ok(Self { trained_on, numbers, groups, outputs, targets })
    }
}

impl OutOfFold {
    /// Reads the data again.
    pub fn new(predictor: &Predictor, warn: &mut dyn FnMut(String)) -> Result<Self, PredictError> {
        let first = predictor.first();
        let (scales, width) = (first.data.target_scales(), first.data.target_width());
        let mut tables = predictor.tables();
        let of_models = predictor.models.iter().map(|model| OfModel::new(model, &mut tables));
        let of_models = of_models.collect::<Result<Vec<_>, _>>()?;
        let all: BTreeSet<u32> = of_models.iter().flat_map(|own| own.numbers.iter().copied()).collect();
        let numbers: Vec<u32> = all.into_iter().collect();
        let (mut mean, mut targets) =
            (MeanOutputs::new(first, numbers.len()), vec![0.0; numbers.len() * width]);
        let mut groups = Groups::new(numbers.len());
        for (model, own) in predictor.models.iter().zip(&of_models) {
            let places = own.numbers.iter().filter_map(|number| numbers.binary_search(number).ok());
            let places: Vec<usize> = places.collect();
            groups.add(&places, own.groups.as_deref());
            let own_scales = model.data.target_scales();
            let actual = rescaled(&own.targets, width, (&own_scales, &scales), shortest);
            let rows = own.outputs.chunks_exact(model.outputs).zip(actual.chunks_exact(width));
            for ((outputs, actual), place) in rows.zip(places) {
                mean.add(place, outputs, &own_scales);
                targets[place * width..][..width].copy_from_slice(actual);
            }
        }
        let outputs = mean.outputs();
        warn_of_lacking(predictor, &of_models[0], numbers.len(), warn);
        let rows = outputs.chunks_exact(first.outputs);
        let not_finite = rows.filter(|row| !row.iter().all(|y| y.is_finite())).count();
        if not_finite > 0 {
            warn(format!("rows with an output that is not a finite number: {not_finite}"));
        }
        Ok(Self { outputs, numbers, targets, groups: groups.numbered() })
    }

    /// All rows.
    pub fn chunk(&self) -> Chunk<'_> {
        Chunk { outputs: &self.outputs, targets: &self.targets, kept: &[], of_models: &[] }
    }
}

/// Rows that no model validated with.
fn warn_of_lacking(predictor: &Predictor, first: &OfModel, found: usize, warn: &mut dyn FnMut(String)) {
    let data = &predictor.first().spec.data;
    let own: BTreeSet<u32> = predictor.models.iter().filter_map(|model| model.spec.data.fold).collect();
    let folds: BTreeSet<u32> = (0..data.folds.unwrap_or(0)).collect();
    let missing: Vec<String> = folds.difference(&own).map(u32::to_string).collect();
    let rows = first.numbers.len();
    // In the order of rows all folds have as many, and the rows before the first are in none.
    let lacking = match data.has_folds_in_order() {
        true => missing.len() * rows,
        false => (rows + first.trained_on).saturating_sub(found),
    };
    if lacking > 0 && !missing.is_empty() {
        let of = units::counted((found + lacking) as u64, "row");
        let folds = if missing.len() == 1 { "fold" } else { "folds" };
        warn(format!(
            "{} of {of} are left out: {folds} {} {} no model",
            units::count(lacking as u64),
            missing.join(", "),
            if missing.len() == 1 { "has" } else { "have" }
        ));
    }
}

/// Numbers of groups, which each model numbers by itself: all rows of a group are in one fold.
struct Groups {
    /// For each row.
    of_rows: Vec<Option<u32>>,
    count: u32,
}

impl Groups {
    fn new(rows: usize) -> Self {
        Self { of_rows: vec![None; rows], count: 0 }
    }

    /// The groups of the rows at these places.
    fn add(&mut self, places: &[usize], groups: Option<&[u32]>) {
        let mut known: HashMap<u32, u32> = HashMap::new();
        for (&place, own) in places.iter().zip(groups.unwrap_or_default()) {
            let number = self.of_rows[place].or_else(|| known.get(own).copied());
            let number = number.unwrap_or_else(|| {
                self.count += 1;
                self.count - 1
            });
            known.insert(*own, number);
            self.of_rows[place] = Some(number);
        }
    }

    /// The group of each row; `None` where rows have no groups.
    fn numbered(self) -> Option<Vec<u32>> {
        self.of_rows.into_iter().collect::<Option<Vec<u32>>>().filter(|_| self.count > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of two seeds whose folds have other rows: the groups are {0, 2}, {1} and {3}.
    #[test]
    fn groups_have_one_number_in_all_folds() {
        let mut groups = Groups::new(4);
        groups.add(&[0, 1, 2], Some(&[0, 1, 0]));
        groups.add(&[3], Some(&[0]));
        groups.add(&[1, 3], Some(&[0, 1]));
        groups.add(&[0, 2], Some(&[0, 0]));
        assert_eq!(groups.numbered(), Some(vec![0, 1, 0, 2]));
        let mut none = Groups::new(1);
        none.add(&[0], None);
        assert_eq!(none.numbered(), None);
    }
}
