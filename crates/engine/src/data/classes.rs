//! Classes: warnings about those that too few rows have, and their weights in the loss.

use std::sync::Arc;

use super::{Dataset, Part};
use crate::{
    spec::{ClassWeights, Problem},
    units,
};

const KEY: &str = "model.class_weights";

/// The way out for classes that few rows have, as long as they have no weights.
const WEIGHTS: &str = "; `model.class_weights=balanced` lets each of their rows count for more";

/// A class with fewer rows is hardly learned, or hardly validated.
const FEWEST: usize = 5;

/// Classes that are named in a warning.
const SHOWN: usize = 10;

/// Sentences on rare classes, and on classes that a part of the rows lacks. `may_stratify` says whether
/// `data.split.stratify` would give each part its share.
pub(super) fn warnings(dataset: &Dataset, may_stratify: bool) -> Vec<String> {
    let Some(classes) = dataset.classes else { return Vec::new() };
    let in_train = counts(dataset, &dataset.train, classes);
    let in_validation = dataset.validation.as_ref().map(|part| counts(dataset, part, classes));
    let rows = |class: usize| in_train[class] + in_validation.as_ref().map_or(0, |counts| counts[class]);
    let rare = listed((0..classes).filter(|&class| (1..FEWEST).contains(&rows(class))), |class| {
        format!("`{}` ({})", name(dataset, class), rows(class))
    });
    let rare = rare.map(|list| {
        format!("classes with fewer than {FEWEST} rows to train and validate on are hardly learned: {list}{WEIGHTS}")
    });
    let parts = [("train on", Some(&in_train)), ("validate on", in_validation.as_ref())];
    let absent = parts.into_iter().filter_map(|(purpose, counts)| {
        let absent = (0..classes).filter(|&class| counts.is_some_and(|counts| counts[class] == 0));
        let list = listed(absent, |class| format!("`{}`", name(dataset, class)))?;
        let way = if may_stratify {
            "; `data.split.stratify=true` gives each part its share of a class with enough rows"
        } else {
            ""
        };
        Some(format!("classes without a row to {purpose}: {list}{way}"))
    });
    rare.into_iter().chain(absent).collect()
}

/// Of two classes `average_precision` is that of the second, as scikit-learn's of the labels 0 and 1. That says little if nearly all
/// rows are of it: a warning, from two thirds of the rows on.
pub(super) fn warning_of_average_precision(dataset: &Dataset) -> Option<String> {
    dataset.classes.filter(|classes| *classes == 2)?;
    let counts = counts(dataset, &dataset.train, 2);
    let [rare, frequent] = [0, 1].map(|class| name(dataset, class));
    (counts[1] >= 2 * counts[0]).then(|| {
        format!(
            "`average_precision` is that of `{frequent}`, the second class, which {} of {} rows to train on are: for the rarer `{rare}` \
             choose by `auc`, which is the same for both; `runner evaluate` prints the average precision of each",
            units::count(counts[1] as u64),
            units::count(dataset.train.rows as u64),
        )
    })
}

impl Dataset {
    /// Gives each class a weight, which then follows the class in every target, times the row's own if it has one. The weights
    /// are those of PyTorch's `CrossEntropyLoss(weight=...)`.
    ///
    /// # Errors
    /// A class without a weight, or a weight without a class.
    pub fn add_class_weights(&mut self, wanted: &ClassWeights) -> Result<(), Problem> {
        let Some(classes) = self.classes else { return Ok(()) };
        let weights = weights(self, classes, wanted)?;
        let all =
            (0..classes).map(|class| format!("`{}` {}", name(self, class), units::number(weights[class])));
        let shown: Vec<String> = all.take(SHOWN).collect();
        let more = units::and_more(classes - shown.len());
        self.notes.push(format!("class weights: {}{more}", shown.join(", ")));
        let width = self.target_width();
        let weighted = |row: &[f32]| {
            let of_class = weights.get(row[0] as usize).map_or(1.0, |weight| *weight as f32);
            [row[0], row.get(1).map_or(of_class, |own| own * of_class)]
        };
        for part in std::iter::once(&mut self.train).chain(&mut self.validation) {
            part.targets = Arc::new(part.targets.chunks_exact(width).flat_map(weighted).collect());
        }
        self.weighted = true;
        for warning in Arc::make_mut(&mut self.warnings) {
            warning.truncate(warning.strip_suffix(WEIGHTS).unwrap_or(warning).len());
        }
        Ok(())
    }
}

fn weights(dataset: &Dataset, classes: usize, wanted: &ClassWeights) -> Result<Vec<f64>, Problem> {
    let named = |chosen: &mut dyn Iterator<Item = usize>| {
        listed(chosen, |class| format!("`{}`", name(dataset, class)))
    };
    let known = || format!("the classes are {}", named(&mut (0..classes)).unwrap_or_default());
    match wanted {
        ClassWeights::Balanced => {
            let counts = counts(dataset, &dataset.train, classes);
            if let Some(list) = named(&mut (0..classes).filter(|class| counts[*class] == 0)) {
                let message = format!(
                    "`balanced` divides by the rows of each class to train on, and none are of {list}"
                );
                let hint = "write a number for each class, or hold out fewer rows";
                return Err(Problem::at_key(KEY, message).hint(hint));
            }
            let all = counts.iter().sum::<usize>() as f64;
            Ok(counts.into_iter().map(|count| all / (classes * count) as f64).collect())
        }
        ClassWeights::InOrder(weights) if weights.len() == classes => Ok(weights.clone()),
        ClassWeights::InOrder(weights) => {
            let message = format!("{} for {classes} classes", units::counted(weights.len() as u64, "weight"));
            Err(Problem::at_key(KEY, message).hint(known()))
        }
        ClassWeights::ByClass(weights) => {
            let of = |class: usize| weights.get(&name(dataset, class)).copied();
            if let Some(list) = named(&mut (0..classes).filter(|class| of(*class).is_none())) {
                return Err(
                    Problem::at_key(KEY, format!("these classes have no weight: {list}")).hint(known())
                );
            }
            let is_known = |label: &&String| (0..classes).any(|class| name(dataset, class) == **label);
            if let Some(label) = weights.keys().find(|label| !is_known(label)) {
                return Err(Problem::at_key(KEY, format!("`{label}` is no class of the data")).hint(known()));
            }
            Ok((0..classes).filter_map(of).collect())
        }
    }
}

fn counts(dataset: &Dataset, part: &Part, classes: usize) -> Vec<usize> {
    let mut counts = vec![0; classes];
    for class in dataset.targets_of(part) {
        if let Some(count) = counts.get_mut(class as usize) {
            *count += 1;
        }
    }
    counts
}

/// The class as the training file has it; its number where it is no table.
fn name(dataset: &Dataset, class: usize) -> String {
    let names = &dataset.preprocessing["target"]["classes"];
    names[class].as_str().map_or_else(|| class.to_string(), str::to_owned)
}

/// The first of them; `None` if there are none.
fn listed(classes: impl Iterator<Item = usize>, word: impl Fn(usize) -> String) -> Option<String> {
    let mut words: Vec<String> = classes.take(SHOWN + 1).map(word).collect();
    if words.len() > SHOWN {
        words[SHOWN] = "...".to_owned();
    }
    (!words.is_empty()).then(|| words.join(", "))
}
