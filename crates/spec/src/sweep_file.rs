//! A sweep as a file of its own: `sweep.toml` in its folder, from which the sweep goes on or is run again.

use std::path::Path;

use toml::{Table, Value};

use super::{experiment::Experiment, sweep::GridAxis, tree};

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
    /// The spec as it was written, with all overrides, under `name`. It gives the same trials from any folder: paths are
    /// absolute.
    pub fn to_sweep_toml(&self, name: &str) -> String {
        let folder = self.path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
        let mut base = self.base.clone();
        base.close_gaps();
        let mut spec = match tree::Value::Table(base).to_toml() {
            Value::Table(table) => table,
            _ => Table::new(),
        };
        for key in ["data", "model"] {
            spec.get_mut(key).into_iter().for_each(|value| make_absolute(value, &folder));
        }
        // `name` leads, also where the spec has none and is called as its file.
        let mut all = Table::from_iter([("name".to_owned(), Value::String(name.to_owned()))]);
        for (key, value) in spec {
            all.entry(key).or_insert(value);
        }
        let repeats = format!("repeats = {}\nrepeat_seeds = {}", self.sweep.repeats, self.sweep.repeat_seeds);
        // A line for each axis keeps their order, whatever their values are.
        let axes: String = self.sweep.axes.iter().map(|axis| axis_line(axis, &folder)).collect();
        format!("{all}\n[sweep]\n{repeats}\n\n[sweep.grid]\n{axes}")
    }
}

fn axis_line(axis: &GridAxis, folder: &Path) -> String {
    let key = axis.key.dotted();
    let mut parts = key.split('.');
    let holds_paths = parts.next().is_some_and(|first| ["data", "model"].contains(&first));
    let last = parts.next_back().unwrap_or_default();
    let values = axis.values.iter().map(|node| {
        let mut value = node.value.to_toml();
        if holds_paths {
            value_absolute(last, &mut value, folder);
        }
        value
    });
    format!("{} = {}\n", Value::String(key.clone()), Value::Array(values.collect()))
}

/// Paths are taken from the folder of a spec's file.
fn make_absolute(value: &mut Value, folder: &Path) {
    match value {
        Value::Table(table) => table.iter_mut().for_each(|(key, value)| value_absolute(key, value, folder)),
        Value::Array(items) => items.iter_mut().for_each(|item| make_absolute(item, folder)),
        _ => {}
    }
}

/// The value of a key within `[data]` or `[model]`.
fn value_absolute(key: &str, value: &mut Value, folder: &Path) {
    match value {
        Value::String(path) if PATHS.contains(&key) => {
            *path = folder.join(&*path).to_string_lossy().into_owned()
        }
        value => make_absolute(value, folder),
    }
}
