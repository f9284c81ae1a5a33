//! Warnings about classes that too few rows have.

use super::{Dataset, Part};

/// A class with fewer rows is hardly learned, or hardly validated.
const FEWEST: usize = 5;

/// Classes that are named in a warning.
const SHOWN: usize = 10;

/// Sentences on rare classes, and on classes that a part of the rows lacks. `may_stratify` says whether
/// `data.split.stratify` would give each part its share.
pub(super) fn warnings(dataset: &Dataset, may_stratify: bool) -> Vec<String> {
    let Some(classes) = dataset.classes else { return Vec::new() };
    let in_train = counts(&dataset.train, classes);
    let in_validation = dataset.validation.as_ref().map(|part| counts(part, classes));
    let rows = |class: usize| in_train[class] + in_validation.as_ref().map_or(0, |counts| counts[class]);
    let rare = listed((0..classes).filter(|&class| (1..FEWEST).contains(&rows(class))), |class| {
        format!("`{}` ({})", name(dataset, class), rows(class))
    });
    let rare = rare.map(|list| {
        format!("classes with fewer than {FEWEST} rows to train and validate on are hardly learned: {list}")
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

fn counts(part: &Part, classes: usize) -> Vec<usize> {
    let mut counts = vec![0; classes];
    for class in part.targets.iter() {
        if let Some(count) = counts.get_mut(*class as usize) {
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
