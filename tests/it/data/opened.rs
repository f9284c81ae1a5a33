//! A source of rows as `runner::data::open` reads it, and what is wrong with it as text.

use std::path::{Path, PathBuf};

use runner::{
    data::{Dataset, Part, Store, Task, open},
    spec::{Csv, Data, Location, Missing, Placement, Problem, Source},
};

/// A memory limit that no test here reaches.
pub const MUCH: u64 = 1 << 40;

pub fn data(source: Source) -> Data {
    let (split, folds, fold) = (None, None, None);
    Data {
        batch_size: 32,
        shuffle: true,
        shuffle_seed: None,
        placement: Placement::Auto,
        split,
        folds,
        fold,
        source,
    }
}

pub fn read(source: Source, task: Task) -> Result<Dataset, Vec<Problem>> {
    open(&data(source), task, 0, MUCH)
}

pub fn read_ok(source: Source, task: Task) -> Dataset {
    read(source, task).unwrap_or_else(|problems| panic!("{}", reported(&problems, Path::new(""))))
}

/// The problems as text, with `folder` removed.
pub fn problems(source: Source, task: Task, folder: &Path) -> String {
    reported(&read(source, task).expect_err("problems"), folder)
}

pub fn reported(problems: &[Problem], folder: &Path) -> String {
    let mut text = String::new();
    for problem in problems {
        text += &format!("{}\n", problem.message);
        match &problem.place {
            Location::Key(key) => text += &format!("  --> {key}\n"),
            Location::File { path, line, column, text: shown } => {
                text += &format!("  --> {}", path.display());
                text += &line.map(|line| format!(":{line}")).unwrap_or_default();
                text += &column.map(|column| format!(":{column}")).unwrap_or_default();
                text += &shown.as_ref().map(|line| format!(" | {line}")).unwrap_or_default();
                text += "\n";
            }
            Location::Row { path, row } => text += &format!("  --> {}, row {row}\n", path.display()),
            place => text += &format!("  --> {place:?}\n"),
        }
        text += &problem.label.as_ref().map(|label| format!("  label: {label}\n")).unwrap_or_default();
        text += &problem.hint.as_ref().map(|hint| format!("  hint: {hint}\n")).unwrap_or_default();
    }
    text.replace(&format!("{}/", folder.display()), "")
}

pub fn memory(part: &Part) -> &[f32] {
    match &part.features {
        Store::Memory(values) => values,
        Store::File(_) => panic!("not in memory"),
    }
}

pub fn csv_of(path: PathBuf, target: &str) -> Csv {
    Csv {
        path,
        target: vec![target.into()],
        features: None,
        categorical: Vec::new(),
        ignore: Vec::new(),
        group: None,
        weight: None,
        missing: Missing::Error,
        missing_values: None,
        missing_indicators: false,
        standardize: false,
        standardize_target: false,
        delimiter: ',',
        decimal: '.',
        header: true,
        validation_path: None,
        validation_fraction: Some(0.0),
    }
}
