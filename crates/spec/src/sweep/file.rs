//! Writes `sweep.toml` into the sweep's folder: the sweep can be resumed or repeated from it.

use toml::{Table, Value};

use super::{
    super::{experiment::Experiment, folders::Folders, key::Key, tree},
    Space,
};

/// Keys of `[data]` and `[model]` whose values are paths.
const PATHS: [&str; 9] = [
    "path",
    "validation_path",
    "images",
    "labels",
    "validation_images",
    "validation_labels",
    "features",
    "validation_features",
    "file",
];

impl<S> Experiment<S> {
    /// The spec as written, with all overrides applied, under `name`. It gives the same trials from any
    /// folder, because paths are absolute.
    pub fn to_sweep_toml(&self, name: &str) -> String {
        // `name` comes first, also if the spec sets none and takes its file's.
        let mut all = Table::from_iter([("name".to_owned(), Value::String(name.to_owned()))]);
        for (key, value) in self.base_as_written() {
            all.entry(key).or_insert(value);
        }
        all.extend(self.launcher_table());
        format!("{all}\n[sweep]\n{}", self.sweep_as_written(&|_| String::new()))
    }

    /// The spec as written, with all overrides applied and absolute paths, without `[sweep]` and `[launcher]`.
    pub(in super::super) fn base_as_written(&self) -> Table {
        let mut base = self.points.base.clone();
        for key in ["data", "model"] {
            if let Some(entry) = base.get_mut(key) {
                make_absolute(&mut entry.node.value, &self.points.folders);
            }
        }
        match tree::Value::Table(base).to_toml() {
            Value::Table(table) => table,
            _ => Table::new(),
        }
    }

    /// `[launcher]`, if it has a key.
    pub(in super::super) fn launcher_table(&self) -> Option<(String, Value)> {
        let table = Table::try_from(&self.launcher).ok()?;
        let has_keys = table.values().any(|own| own.as_table().is_some_and(|own| !own.is_empty()));
        has_keys.then(|| ("launcher".to_owned(), Value::Table(table)))
    }

    /// The lines of `[sweep]`; `note` is what stands at the end of one by where its value is written.
    pub(in super::super) fn sweep_as_written(&self, note: Note<'_>) -> String {
        sweep(&self.points.sweep.written, &self.points.folders, note)
    }
}

type Note<'a> = &'a dyn Fn(tree::Span) -> String;

/// The keys of the table, then the axes of `grid` and `zip`. Each axis is written as a line of its
/// own, which keeps their order whatever their values are.
fn sweep(written: &tree::Table, folders: &Folders, note: Note<'_>) -> String {
    let (mut fields, mut tables) = (String::new(), String::new());
    for entry in &written.entries {
        match &entry.node.value {
            tree::Value::Table(axes) => {
                let lines = axes.entries.iter().map(|axis| {
                    let line = match &axis.node.value {
                        tree::Value::Table(keys) => {
                            format!("{} = {}", Value::String(axis.key.clone()), inline(keys, folders))
                        }
                        _ => pair(axis, folders),
                    };
                    format!("{line}{}\n", note(axis.node.span))
                });
                tables.push_str(&format!("\n[sweep.{}]\n{}", entry.key, lines.collect::<String>()));
            }
            tree::Value::Array(points) => {
                let point = |point: &tree::Node| match &point.value {
                    tree::Value::Table(keys) => format!("    {},\n", inline(keys, folders)),
                    other => format!("    {},\n", other.to_toml()),
                };
                fields.push_str(&format!(
                    "{} = [{}\n{}]\n",
                    entry.key,
                    note(entry.node.span),
                    points.iter().map(point).collect::<String>()
                ));
            }
            value => {
                let note = note(entry.node.span);
                fields.push_str(&format!("{} = {}{note}\n", entry.key, value.to_toml()));
            }
        }
    }
    fields + &tables
}

/// Swept keys on one line, as in a point or a condition.
fn inline(keys: &tree::Table, folders: &Folders) -> String {
    let pairs: Vec<String> = keys.entries.iter().map(|key| pair(key, folders)).collect();
    format!("{{ {} }}", pairs.join(", "))
}

/// A swept key with its values, or with its value in one point.
fn pair(entry: &tree::Entry, folders: &Folders) -> String {
    let mut node = entry.node.clone();
    if let Some(last) = last_of_paths(&entry.key) {
        // Paths within `choice(...)` are made absolute, like those of an array.
        if let tree::Value::String(text) = &node.value
            && let Ok(Space::Values(values)) = Space::parse(text)
        {
            let span = node.span;
            let nodes = values.into_iter().map(|value| tree::Node { span, value });
            node.value = tree::Value::Array(nodes.collect());
        }
        match &mut node.value {
            tree::Value::Array(items) => items.iter_mut().for_each(|item| node_absolute(last, item, folders)),
            _ => node_absolute(last, &mut node, folders),
        }
    }
    format!("{} = {}", Value::String(entry.key.clone()), node.value.to_toml())
}

/// A value of a swept key in TOML, with absolute paths, so that it is the same text in every process.
pub(super) fn literal(key: &Key, value: &tree::Value, folders: &Folders) -> String {
    match (last_of_paths(&key.dotted()), key.span()) {
        (Some(last), Some(span)) if !matches!(value, tree::Value::Float(_)) => {
            let mut node = tree::Node { span, value: value.clone() };
            node_absolute(last, &mut node, folders);
            node.value.to_toml().to_string()
        }
        _ => value.literal(),
    }
}

/// The last part of a dotted key whose value may hold paths.
fn last_of_paths(key: &str) -> Option<&str> {
    let mut parts = key.split('.');
    ["data", "model"].contains(&parts.next()?).then(|| parts.next_back().unwrap_or_default())
}

/// Resolves paths against the folder of the file that has them.
fn make_absolute(value: &mut tree::Value, folders: &Folders) {
    match value {
        tree::Value::Table(table) => {
            table.entries.iter_mut().for_each(|entry| node_absolute(&entry.key, &mut entry.node, folders));
        }
        tree::Value::Array(items) => {
            items.iter_mut().for_each(|item| make_absolute(&mut item.value, folders))
        }
        _ => {}
    }
}

/// Resolves the path that a key within `[data]` or `[model]` holds.
fn node_absolute(key: &str, node: &mut tree::Node, folders: &Folders) {
    match &mut node.value {
        tree::Value::String(path) if PATHS.contains(&key) => {
            *path = folders.absolute(node.span, path).to_string_lossy().into_owned();
        }
        value => make_absolute(value, folders),
    }
}
