//! A sweep as a file of its own: `sweep.toml` in its folder, from which the sweep goes on or is run again.

use std::path::{Path, PathBuf};

use toml::{Table, Value};

use super::{experiment::Experiment, tree};

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
        let grid = self.sweep.axes.iter().map(|axis| {
            let key = axis.key.dotted();
            let values = axis.values.iter().map(|node| {
                // As under the key that it is given to.
                let last = key.rsplit('.').next().unwrap_or_default().to_owned();
                let mut value = Value::Table(Table::from_iter([(last, node.value.to_toml())]));
                if ["data", "model"].contains(&key.split('.').next().unwrap_or_default()) {
                    make_absolute(&mut value, &folder);
                }
                let Value::Table(table) = value else { return Value::Table(Table::new()) };
                table.into_iter().map(|(_, value)| value).next().unwrap_or(Value::Table(Table::new()))
            });
            (key.clone(), Value::Array(values.collect()))
        });
        let sweep = Table::from_iter([
            ("grid".to_owned(), Value::Table(grid.collect())),
            ("repeats".to_owned(), Value::Integer(self.sweep.repeats.into())),
            ("repeat_seeds".to_owned(), Value::Boolean(self.sweep.repeat_seeds)),
        ]);
        // `name` leads, also where the spec has none and is called as its file.
        let mut all = Table::from_iter([("name".to_owned(), Value::String(name.to_owned()))]);
        for (key, value) in spec {
            all.entry(key).or_insert(value);
        }
        all.insert("sweep".to_owned(), Value::Table(sweep));
        all.to_string()
    }
}

/// Paths are taken from the folder of a spec's file.
fn make_absolute(value: &mut Value, folder: &Path) {
    match value {
        Value::Table(table) => {
            for (key, value) in table.iter_mut() {
                match value {
                    Value::String(path) if PATHS.contains(&key.as_str()) => {
                        let absolute: PathBuf = folder.join(&*path);
                        *path = absolute.to_string_lossy().into_owned();
                    }
                    value => make_absolute(value, folder),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| make_absolute(item, folder)),
        _ => {}
    }
}
