//! The table of a list, narrowed to the width of the terminal.

use std::path::Path;

use super::{Entry, SEVERAL, best_of};
use crate::{
    host::escape_line,
    report::{
        grid::{self, Column, Columns},
        grouping::{distinct, grouped},
        key::{BEST, Key},
    },
    units,
};

/// What a list that is too wide for the terminal goes without, in this order: when it began (its folder says that, too), the
/// metric in the title, the states of single trials, tags, metrics, the folder that all are in, and the times in their names.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
enum Without {
    Nothing,
    Started,
    Title,
    States,
    Tags,
    Metrics,
    Folder,
    Times,
}

const NARROWER: [Without; 8] = [
    Without::Nothing,
    Without::Started,
    Without::Title,
    Without::States,
    Without::Tags,
    Without::Metrics,
    Without::Folder,
    Without::Times,
];

/// What has a column of its own anyway.
const SHOWN: [&str; 7] = ["started", "run", "name", "status", BEST, "best_value", "tag"];

/// A line for each, for `width` columns. Below it stands what it goes without; beyond that the terminal wraps it.
pub(super) fn table(entries: &[Entry], sorted_by: Option<&Key>, width: usize) -> String {
    let sorted_by = sorted_by.filter(|key| !SHOWN.contains(&key.name()));
    let columns_without = |entries: &[Entry], without| columns_without(entries, sorted_by, without);
    let mut drawn = NARROWER.iter().map(|without| columns_without(entries, *without));
    let fits = |(columns, _): &(Vec<Column>, _)| grid::width(columns) <= width;
    let narrowest = || columns_without(entries, Without::Times);
    let (columns, notes) = drawn.find(fits).unwrap_or_else(narrowest);
    let table = grid::table(&columns, 0, u16::MAX);
    let caveats = entries.iter().flat_map(|entry| entry.caveats.iter().map(move |words| (words, entry)));
    let of = |(words, of): (&String, Vec<&Entry>)| match &of[..] {
        all if all.len() == entries.len() => words.clone(),
        [first, more @ ..] => format!("{}{}: {words}", first.folder.display(), units::and_more(more.len())),
        [] => words.clone(),
    };
    let mut below: Vec<String> = grouped(caveats).into_iter().map(of).collect();
    if !notes.is_empty() {
        below.push(format!("{}; `-v` shows all", notes.join("; ")));
    }
    let below: String = below.iter().map(|words| format!(" {}\n", escape_line(words))).collect();
    if below.is_empty() { table } else { format!("{table}\n{below}") }
}

/// The columns, with that of a key by which they are sorted, and sentences on what is left out.
fn columns_without(
    entries: &[Entry],
    sorted_by: Option<&Key>,
    without: Without,
) -> (Vec<Column>, Vec<String>) {
    let of = best_of(entries);
    let metrics = distinct(entries.iter().map(&of).filter(|metric| !metric.is_empty()));
    let common = metrics.first().filter(|metric| metrics.len() == 1 && *metric != SEVERAL);
    let folder = common_folder(entries).filter(|_| without >= Without::Folder);
    let mut notes = Vec::new();
    let best = match common {
        Some(metric) if without < Without::Title => format!("best {metric}"),
        Some(metric) => {
            notes.push(format!("best is that of {metric}"));
            "best".to_owned()
        }
        None => "best".to_owned(),
    };
    let mut columns = Columns::new(entries);
    columns.words("started", |entry| entry.started().get(..16).unwrap_or_default().replace('T', " "));
    let path = |entry: &Entry| {
        let own = folder.and_then(|folder| entry.folder.strip_prefix(folder).ok());
        own.unwrap_or(&entry.folder).display().to_string()
    };
    let paths: Vec<String> = entries.iter().map(&path).collect();
    let patterns: Vec<String> = paths.iter().map(|path| without_time(path)).collect();
    let names =
        if without >= Without::Times && distinct(&patterns).len() == paths.len() { patterns } else { paths };
    columns.extend([Column::of_words("run", names)]);
    columns.words("status", |entry| {
        let status = match without >= Without::States {
            true => entry.status_in_short(),
            false => entry.status(),
        };
        entry.with_kind(status)
    });
    columns.numbers(&best, |entry| match (entry.value().map(units::number), entry.folds) {
        (Some(value), Some([finished, all])) => format!("{value} ({finished} of {all} folds)"),
        (value, _) => value.unwrap_or_default(),
    });
    let number = |text: &str| text.parse().ok();
    let value_of = |key: &Key, entry: &Entry| key.value(entry.best()).unwrap_or_default().to_owned();
    let is_best = |key: &Key| {
        let is_it = |entry: &Entry| entry.value().is_some() && number(&value_of(key, entry)) == entry.value();
        entries.iter().all(is_it)
    };
    if let Some(key) = sorted_by.filter(|key| !is_best(key)) {
        columns.numbers(key.name(), |entry| {
            let value = value_of(key, entry);
            number(&value).map_or(value, units::number)
        });
    }
    if common.is_none() {
        columns.words("of", &of);
    }
    columns.words("tags", |entry| entry.tags().join(" "));
    let mut columns = columns.known();
    let left_out = [("started", Without::Started), ("tags", Without::Tags), ("of", Without::Metrics)];
    let is_out = |title: &str| left_out.iter().any(|(own, from)| *own == title && without >= *from);
    let out: Vec<&str> =
        columns.iter().map(|column| column.title.as_str()).filter(|title| is_out(title)).collect();
    notes.extend((!out.is_empty()).then(|| format!("not shown: {}", out.join(", "))));
    notes.extend(folder.map(|folder| format!("runs are in `{}`", folder.display())));
    columns.retain(|column| !is_out(&column.title));
    (columns, notes)
}

/// `penguins/*Z-bd2de869`: a pattern that commands take in place of the path.
fn without_time(path: &str) -> String {
    let start = path.rfind('/').map_or(0, |slash| slash + 1);
    let is_time =
        |time: &str| time.len() == 15 && time.bytes().all(|byte| byte.is_ascii_digit() || byte == b'T');
    match path[start..].split_once("Z-") {
        Some((time, rest)) if is_time(time) => format!("{}*Z-{rest}", &path[..start]),
        _ => path.to_owned(),
    }
}

fn common_folder(entries: &[Entry]) -> Option<&Path> {
    let first = entries.first()?.folder.parent()?;
    let has_all = |folder: &&Path| entries.iter().all(|entry| entry.folder.starts_with(folder));
    first.ancestors().find(has_all).filter(|folder| !folder.as_os_str().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_leaves_out_the_time_alone() {
        let of =
            ["multi/20261127T210439Z-bd2de869", "20261127T210439Z-sweep-bd2de869-2", "a/Z-b", "old/mine"];
        let patterns = of.map(without_time);
        assert_eq!(patterns, ["multi/*Z-bd2de869", "*Z-sweep-bd2de869-2", "a/Z-b", "old/mine"]);
    }
}
