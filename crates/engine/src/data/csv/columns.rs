//! The purpose of each column, from the names in the spec and in the file.

use std::{
    collections::{HashMap, HashSet},
    path::Path,
};

use super::{
    stored::{ColumnKind, StoredColumn},
    text::{MAX_PROBLEMS, Text, unclosed},
};
use crate::{
    data::file,
    spec::{Csv, Problem},
};

/// Indices of the used columns, by purpose.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Columns {
    /// All names in the file, in order.
    pub(super) names: Vec<String>,
    /// Empty if the rows have no targets because they are only predicted.
    pub(super) targets: Vec<usize>,
    pub(super) numeric: Vec<usize>,
    pub(super) categorical: Vec<usize>,
    /// The column that says which rows stay together.
    pub(super) group: Option<usize>,
    /// The column that says how much each row counts.
    pub(super) weight: Option<usize>,
    /// Columns whose cells are kept as they are.
    pub(super) kept: Vec<usize>,
    /// Whether the rows are for a trained model, so messages must not suggest changing the spec.
    pub(super) is_trained: bool,
}

impl Columns {
    /// Finds the columns of the training file.
    pub(super) fn resolve(spec: &Csv, text: &Text) -> Result<Self, Vec<Problem>> {
        let names = names(spec, text)?;
        let mut search = Search {
            text,
            names: &names,
            places: places(&names),
            used: vec![None; names.len()],
            problems: Vec::new(),
        };
        if spec.header {
            search.check_duplicates(&spec.ignore);
        }
        let mut list = |names: &[String], key: &str| -> Vec<usize> {
            let is_one = matches!(key, "group" | "weight") || (key == "target" && names.len() == 1);
            let keyed =
                |index| if is_one { format!("data.csv.{key}") } else { format!("data.csv.{key}.{index}") };
            let keys = (0..).map(keyed);
            names.iter().zip(keys).filter_map(|(name, key)| search.find(name, key)).collect()
        };
        let targets = list(&spec.target, "target");
        let categorical = list(&spec.categorical, "categorical");
        list(&spec.ignore, "ignore");
        let group = list(spec.group.as_slice(), "group").first().copied();
        let weight = list(spec.weight.as_slice(), "weight").first().copied();
        let numeric = match &spec.features {
            Some(features) => list(features, "features"),
            None => (0..names.len()).filter(|&column| search.used[column].is_none()).collect(),
        };
        search.check_named(&numeric);
        let mut problems = search.problems;
        problems.truncate(MAX_PROBLEMS);
        if problems.is_empty() && numeric.is_empty() && categorical.is_empty() {
            let message = format!("`{}` has no feature column beside the target", file_name(text));
            problems.push(Problem::at_key("data.csv.target", message).hint(separator_hint(text, &names)));
        }
        if problems.is_empty() {
            let (kept, is_trained) = (Vec::new(), false);
            Ok(Self { names, targets, numeric, categorical, group, weight, kept, is_trained })
        } else {
            Err(problems)
        }
    }

    /// The columns that a model was trained on, and that of the rows' weights.
    pub(super) fn from_stored(features: &[StoredColumn], targets: &[&str], weight: Option<&str>) -> Self {
        let of_kind = |kind| (0..features.len()).filter(|&column| features[column].kind == kind).collect();
        let names = features.iter().map(|feature| feature.name.as_str()).chain(targets.iter().copied());
        let names = names.chain(weight);
        Self {
            names: names.map(str::to_owned).collect(),
            targets: (features.len()..features.len() + targets.len()).collect(),
            numeric: of_kind(ColumnKind::Numeric),
            categorical: of_kind(ColumnKind::Categorical),
            group: None,
            weight: weight.map(|_| features.len() + targets.len()),
            kept: Vec::new(),
            is_trained: true,
        }
    }

    /// Finds the same columns in another file, in any order. Rows for a trained model may have no weights.
    pub(super) fn in_other(&self, spec: &Csv, text: &Text) -> Result<Self, Vec<Problem>> {
        let names = names(spec, text)?;
        if let Some(other) = other_separator(text, &names).filter(|_| self.names.len() > 1) {
            let message = format!("cells seem to be separated by {other:?}");
            let own = text.delimiter();
            let hint = match self.is_trained {
                true => {
                    format!("`--delimiter {}` reads them; the training file has {own:?}", shell_word(other))
                }
                false => format!("separate them by {own:?}, as `data.csv.delimiter` says of both files"),
            };
            return Err(file::problem(&text.path, message).hint(hint).into());
        }
        let places = places(&names);
        let mut missing: Vec<&str> = Vec::new();
        let mut find = |column: usize| {
            let name = self.names[column].as_str();
            places.get(name).map_or_else(
                || {
                    missing.push(name);
                    0
                },
                |places| places[0],
            )
        };
        let targets: Vec<_> = self.targets.iter().map(|&column| find(column)).collect();
        let numeric: Vec<_> = self.numeric.iter().map(|&column| find(column)).collect();
        let categorical: Vec<_> = self.categorical.iter().map(|&column| find(column)).collect();
        let is_wanted = |&column: &usize| !self.is_trained || places.contains_key(&*self.names[column]);
        let weight = self.weight.filter(is_wanted).map(&mut find);
        let mut problems = without(text, &missing, &names);
        if self.is_trained {
            let used = targets.iter().chain(&numeric).chain(&categorical).chain(&weight);
            let twice =
                used.filter_map(|&column| Some((column, *places.get(names[column].as_str())?.get(1)?)));
            problems.extend(
                twice.take(MAX_PROBLEMS).map(|(first, again)| named_twice(text, &names, first, again)),
            );
        }
        match problems.is_empty() {
            true => Ok(Self {
                names,
                targets,
                numeric,
                categorical,
                group: None,
                weight,
                kept: Vec::new(),
                is_trained: self.is_trained,
            }),
            false => Err(problems),
        }
    }

    /// Keeps the cells of the columns with these names.
    pub(super) fn keep(&mut self, names: &[String], text: &Text) -> Result<(), Problem> {
        for name in names {
            let missing = || {
                let message = format!("no column `{name}` to keep");
                file::problem(&text.path, message).hint(name_hint(text, name, &self.names))
            };
            self.kept.push(self.place(name).ok_or_else(missing)?);
        }
        Ok(())
    }

    /// The column of this name.
    pub(super) fn place(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|own| own == name)
    }

    /// Names of the columns without a purpose, except `known`.
    pub(super) fn unused(&self, known: &[&str]) -> Vec<String> {
        let used: HashSet<usize> = self.used().collect();
        let unused = (0..self.names.len()).filter(|column| !used.contains(column));
        unused.filter(|&column| !known.contains(&self.names[column].as_str())).map(|c| self.name(c)).collect()
    }

    /// A column's name for a message.
    pub(super) fn name(&self, column: usize) -> String {
        file::printable(&self.names[column])
    }

    /// A column as it appears in a sentence.
    pub(super) fn described(&self, column: usize) -> String {
        let role = match column {
            _ if self.targets.contains(&column) => "the target ",
            _ if self.group == Some(column) => "the group ",
            _ if self.weight == Some(column) => "the weight ",
            _ => "",
        };
        format!("{role}column `{}`", self.name(column))
    }

    /// All columns that are read.
    pub(super) fn used(&self) -> impl Iterator<Item = usize> + '_ {
        let features = self.numeric.iter().chain(&self.categorical);
        features.chain(&self.targets).chain(&self.group).chain(&self.weight).copied()
    }
}

/// Names from the header, or indices from 0.
fn names(spec: &Csv, text: &Text) -> Result<Vec<String>, Problem> {
    let first = text.first_record().ok_or_else(|| empty(spec, &text.path))?;
    // Otherwise the whole file would be read as the header.
    if let Some(place) = text.unclosed_quote(0) {
        return Err(unclosed(place));
    }
    Ok(if spec.header { first } else { (0..first.len()).map(|column| column.to_string()).collect() })
}

pub(super) fn empty(spec: &Csv, path: &Path) -> Problem {
    let expected = if spec.header { "a line of column names" } else { "rows" };
    file::problem(path, format!("an empty file: expected {expected}"))
}

/// The positions of each name in order; every name has at least one.
fn places(names: &[String]) -> HashMap<&str, Vec<usize>> {
    let mut places: HashMap<&str, Vec<usize>> = HashMap::with_capacity(names.len());
    for (column, name) in names.iter().enumerate() {
        places.entry(name).or_default().push(column);
    }
    places
}

/// Looks up the spec's names in the file; each column may have only one purpose.
struct Search<'a> {
    text: &'a Text,
    names: &'a [String],
    places: HashMap<&'a str, Vec<usize>>,
    /// The key that uses a column.
    used: Vec<Option<String>>,
    problems: Vec<Problem>,
}

impl Search<'_> {
    fn find(&mut self, name: &str, key: String) -> Option<usize> {
        let Some(places) = self.places.get(name) else {
            if self.problems.len() >= MAX_PROBLEMS {
                return None;
            }
            let message = format!("no column `{name}` in `{}`", file_name(self.text));
            let hint = match separator_hint(self.text, self.names) {
                hint if self.names.len() == 1 => hint,
                _ => name_hint(self.text, name, self.names),
            };
            self.problems.push(Problem::at_key(key, message).hint(hint));
            return None;
        };
        let column = places[0];
        if let Some(other) = &self.used[column] {
            let message = format!("column `{name}` is named twice, here and in `{other}`");
            self.problems.push(Problem::at_key(key, message).hint("a column has one purpose"));
            return None;
        }
        // Columns with the same name can only be excluded all together.
        for &place in places {
            self.used[place] = Some(key.clone());
        }
        Some(column)
    }

    /// Columns with equal names are an error, unless all are excluded.
    fn check_duplicates(&mut self, ignore: &[String]) {
        let ignore: HashSet<&str> = ignore.iter().map(String::as_str).collect();
        let twice = self.names.iter().enumerate().filter_map(|(column, name)| {
            let earlier = self.places[name.as_str()][0];
            (earlier < column && !name.is_empty() && !ignore.contains(name.as_str()))
                .then_some((earlier, column))
        });
        for (earlier, column) in twice.take(MAX_PROBLEMS) {
            self.problems.push(named_twice(self.text, self.names, earlier, column));
        }
    }

    /// A column without a name is usually an accidental row number, not a feature.
    fn check_named(&mut self, numeric: &[usize]) {
        if let Some(&column) = numeric.iter().find(|&&column| self.names[column].is_empty()) {
            let problem =
                Problem::new(self.text.cell(0, column), format!("column {} has no name", column + 1));
            self.problems.push(problem.hint("name it, or leave it out with `data.csv.ignore = [\"\"]`"));
        }
    }
}

/// The problems of columns that the training file has and this one lacks: one for each that has a similar name here, after one for
/// all others.
fn without(text: &Text, missing: &[&str], names: &[String]) -> Vec<Problem> {
    // Each takes a look at all names.
    let (tried, rest) = missing.split_at(missing.len().min(MAX_PROBLEMS));
    let (near, mut others): (Vec<&str>, Vec<&str>) =
        tried.iter().partition(|name| nearest(name, names).is_some());
    others.extend(rest);
    let others = (!others.is_empty()).then_some(&others[..]);
    let groups = others.into_iter().chain(near.chunks(1));
    let problem = |group: &[&str]| {
        let shown = listed(group.iter().map(|name| (*name).to_owned()));
        let columns = if group.len() == 1 { "column" } else { "columns" };
        let message = format!("no {columns} {shown}, which the training file has");
        file::problem(&text.path, message).hint(name_hint(text, group[0], names))
    };
    groups.map(problem).collect()
}

fn named_twice(text: &Text, names: &[String], earlier: usize, column: usize) -> Problem {
    let name = file::printable(&names[column]);
    let message = format!("columns {} and {} are both named `{name}`", earlier + 1, column + 1);
    Problem::new(text.cell(0, column), message).hint("rename one of them")
}

fn file_name(text: &Text) -> String {
    text.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The separator of a file that seems to have only one column.
fn other_separator(text: &Text, names: &[String]) -> Option<char> {
    let [name] = names else { return None };
    [';', '\t', ',', '|'].into_iter().find(|other| *other != text.delimiter() && name.contains(*other))
}

/// A separator as an argument of a shell.
fn shell_word(separator: char) -> String {
    match separator {
        '\t' => "'\\t'".to_owned(),
        ';' | '|' => format!("'{separator}'"),
        other => other.to_string(),
    }
}

/// A hint if the file seems to have only one column.
fn separator_hint(text: &Text, names: &[String]) -> String {
    match other_separator(text, names) {
        Some(other) => format!("cells seem to be separated otherwise: `data.csv.delimiter = {other:?}`"),
        None => "add a column to learn from".into(),
    }
}

/// Suggests the most similar name, or lists all names.
fn name_hint(text: &Text, name: &str, names: &[String]) -> String {
    if let Some(other) = nearest(name, names) {
        return format!("did you mean `{}`?", file::printable(other));
    }
    if names.iter().all(|name| name.parse::<f64>().is_ok()) && names[0] != "0" && !text.is_parquet() {
        return "the first line holds only numbers: if it is no header, `data.csv.header = false`".into();
    }
    format!("the columns are {}", listed(names.iter().cloned()))
}

/// A similar name.
fn nearest<'a>(name: &str, names: &'a [String]) -> Option<&'a String> {
    let name = name.to_lowercase();
    let likeness = |other: &str| strsim::normalized_damerau_levenshtein(&name, &other.to_lowercase());
    let nearest = names.iter().map(|other| (likeness(other), other)).max_by(|a, b| a.0.total_cmp(&b.0));
    nearest.filter(|(likeness, _)| *likeness >= 0.6).map(|(_, other)| other)
}

/// The first of the names, quoted.
fn listed(names: impl ExactSizeIterator<Item = String>) -> String {
    const SHOWN: usize = 20;
    let more = if names.len() > SHOWN { ", ..." } else { "" };
    let shown: Vec<String> = names.take(SHOWN).map(|name| format!("`{}`", file::printable(&name))).collect();
    format!("{}{more}", shown.join(", "))
}
