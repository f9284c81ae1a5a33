//! Keys in the documentation: fragments of specs, and defaults in tables.

use std::fs;

use serde_json::Value;

use super::all_pages;

/// A block ```` ```toml ```` without a name is a fragment of a spec. It must parse, and each of its keys must
/// be in the schema.
#[test]
fn fragments_have_keys_of_the_schema() {
    let schema = runner::spec::schema();
    let mut wrong = Vec::new();
    for page in all_pages() {
        let text = fs::read_to_string(&page).unwrap();
        for block in text.split("\n```toml\n").skip(1) {
            let block = block.split("\n```").next().unwrap_or_default();
            match block.parse::<toml::Table>() {
                Ok(table) => unknown(&schema, &toml::Value::Table(table), "", &mut wrong),
                Err(error) => wrong.push(format!("{}: {error}", page.display())),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn unknown(schema: &Value, value: &toml::Value, path: &str, wrong: &mut Vec<String>) {
    match value {
        // Keys of a grid are keys of the spec.
        toml::Value::Table(_) if ["sweep.grid", "sweep.when"].contains(&path) => {}
        toml::Value::Table(table) => {
            for (key, value) in table {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                match property(schema, key) {
                    Some(schema) => unknown(schema, value, &path, wrong),
                    None => wrong.push(format!("unknown key `{path}`")),
                }
            }
        }
        toml::Value::Array(items) => {
            items.iter().for_each(|item| unknown(&schema["items"], item, path, wrong));
        }
        _ => {}
    }
}

/// The schema of a key, also if it is in one of several alternatives.
fn property<'a>(schema: &'a Value, key: &str) -> Option<&'a Value> {
    let choices = ["oneOf", "anyOf"].into_iter().filter_map(|of| schema[of].as_array()).flatten();
    std::iter::once(schema).chain(choices).find_map(|s| s["properties"].get(key))
}

/// If a table's head is a key, such as `on_missing`, the table marks the default among the values below.
#[test]
fn defaults_in_tables_are_those_of_the_schema() {
    let schema = runner::spec::schema();
    let first_cell = |line: &str| line.strip_prefix("| ")?.split(" |").next().map(str::to_owned);
    let mut checked = Vec::new();
    for page in all_pages() {
        let mut key = String::new();
        for line in fs::read_to_string(page).unwrap().lines() {
            let Some(cell) = first_cell(line) else {
                key.clear();
                continue;
            };
            if key.is_empty() {
                key = cell.trim_matches('`').rsplit('.').next().unwrap_or_default().to_owned();
            } else if let Some(value) = cell.strip_suffix(" (default)") {
                let value = value.trim_matches(['`', '"']);
                let defaults = defaults(&schema, &key);
                assert!(
                    defaults.iter().any(|d| d.as_str() == Some(value)),
                    "`{key}`: {defaults:?}, not {value}"
                );
                checked.push(key.clone());
            }
        }
    }
    assert!(checked.contains(&"on_missing".to_owned()), "{checked:?}");
}

/// Every default of properties with this name.
fn defaults(schema: &Value, key: &str) -> Vec<Value> {
    let inner: Vec<&Value> = match schema {
        Value::Object(map) => map.values().collect(),
        Value::Array(list) => list.iter().collect(),
        _ => Vec::new(),
    };
    let own = schema.get("properties").and_then(|p| p.get(key)?.get("default")).cloned();
    own.into_iter().chain(inner.into_iter().flat_map(|v| defaults(v, key))).collect()
}
