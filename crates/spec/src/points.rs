//! Reads the spec of one point of a sweep: the file's tree with the values of that point.

use std::{
    path::{Path, PathBuf},
    sync::OnceLock,
};

use runner_base::host::STANDARD_INPUT;

use super::{
    Kind,
    folders::Folders,
    key,
    problem::{Location, Problem},
    reader::{self, Item, Reading},
    schema, suggest,
    sweep::Sweep,
    tree::{Node, Span, Table, Value},
};

/// Command-line options that people also look for in the spec.
const OPTIONS: [&str; 4] = ["threads", "jobs", "virtual_gpus", "runs_dir"];

/// Everything needed to read the spec of any point.
#[derive(Clone, Debug)]
pub(super) struct Points<S> {
    /// The reader of this kind of spec. A spec without a `name` gets the file's.
    pub read: fn(Item<'_>, Kind, &Path) -> S,
    pub kind: Kind,
    pub path: PathBuf,
    pub folders: Folders,
    /// The spec as written, with all overrides applied.
    pub written: Table,
    /// The same without `[sweep]` and `[launcher]`.
    pub base: Table,
    pub sweep: Sweep,
    /// The schema of this kind of spec, built on first use.
    pub schema: OnceLock<reader::Json>,
}

impl<S> Points<S> {
    /// Reads the spec with these values of the swept keys; `None` keeps what the file says.
    pub fn read(&self, values: &[Option<&Node>]) -> Result<S, Vec<Problem>> {
        let (tree, mut problems) = self.sweep.apply(&self.base, values);
        let read = |v: Item<'_>| (self.read)(v, self.kind, &self.path);
        let mut reading = Reading::new(&self.folders);
        let root = node(tree);
        let spec = reader::read(&root, &mut reading, read);
        reading.hint_elsewhere(|path| {
            let (table, name) = path.rsplit_once('.').unwrap_or(("", path));
            let called = |here: &str| OPTIONS.into_iter().find(|option| *option == here);
            let option = called(name).or_else(|| suggest::called_here(name).find_map(|here| called(&here)));
            if let Some(option) = option {
                return Some(format!("it is an option of the command: `--{}`", option.replace('_', "-")));
            }
            let schema = self.schema.get_or_init(|| reader::describe(read));
            let Value::Table(tree) = &root.value else { return None };
            schema::hint_at_key(schema, (table, name), |table| is_chosen(tree, table))
        });
        problems.extend(reading.into_problems());
        if problems.is_empty() {
            return Ok(spec);
        }
        let Value::Table(tree) = &root.value else { return Err(problems) };
        Err(problems.into_iter().map(|p| locate(p, tree, &self.path)).collect())
    }
}

/// Whether the spec has a table, or the one above names it, as in other programs: `name = "adam"` for `optimizer.adam`.
pub(super) fn is_chosen(tree: &Table, table: &str) -> bool {
    let is_named = |(above, choice): (&str, &str)| {
        suggest::NAMES_A_CHOICE.iter().any(|name| {
            let found = key::find(tree, above.split('.').chain([*name]));
            let word = found.filter(|(_, is_whole)| *is_whole).and_then(|(node, _)| node.value.as_str());
            word.is_some_and(|word| word.eq_ignore_ascii_case(choice))
        })
    };
    key::is_written(tree, table) || table.rsplit_once('.').is_some_and(is_named)
}

pub(super) fn node(table: Table) -> Node {
    Node { span: Span { source: 0, start: 0, end: 0 }, value: Value::Table(table) }
}

/// The folder against which relative paths are resolved.
pub(super) fn folder_of(path: &Path) -> PathBuf {
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::path::absolute(parent).unwrap_or_else(|_| parent.to_owned())
}

/// Resolves dotted keys to locations in the tree. A key with no existing table above it resolves to the whole
/// file.
pub(super) fn locate(mut problem: Problem, tree: &Table, path: &Path) -> Problem {
    let find = |place: Location| match place {
        Location::Key(key) => match key::nearest(tree, &key) {
            Some(span) => span.place(),
            None => Location::File { path: path.to_owned(), line: None, column: None, text: None },
        },
        other => other,
    };
    problem.place = find(problem.place);
    if path == Path::new(STANDARD_INPUT) {
        let here = "the current folder, since the spec is standard input";
        problem.hint = problem.hint.map(|hint| hint.replace("the folder of the spec", here));
    }
    problem.related = problem.related.into_iter().map(|(place, words)| (find(place), words)).collect();
    problem
}
