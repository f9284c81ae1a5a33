//! The JSON Schema of a spec, for editors, generated from the declarations that the reader uses.
//!
//! It lists the tables of all kinds side by side, so that editors know all of them. Conditions on `kind` then
//! say which tables a spec may and must have.

use std::{fs, path::Path};

use serde_json::{Value, json};

use super::{
    Kind, LabSpec, Spec, key,
    reader::{self, Read},
    suggest, tree,
};

/// JSON Schema 2020-12 of a spec file.
pub fn schema() -> Value {
    let mut schema = reader::Json::new();
    schema.insert("$schema".into(), json!("https://json-schema.org/draft/2020-12/schema"));
    schema.insert("title".into(), json!("runner experiment"));
    schema.insert(
        "description".into(),
        json!("A declarative experiment: data, model, optimizer, devices, sweep; or a lab experiment"),
    );
    let train = reader::describe(Spec::read);
    let labs = Kind::LABS.map(|kind| (kind, reader::describe(|v| v.table(|t| LabSpec::read(t, kind)))));
    let mut all = properties(&train);
    for (_, lab) in &labs {
        for (name, property) in properties(lab) {
            all.entry(name).or_insert(property);
        }
    }
    let is = |kind: Kind| json!({ "properties": { "kind": { "const": kind.name() } }, "required": ["kind"] });
    let is_lab: Vec<Value> = Kind::LABS.map(is).into();
    let mut rules = vec![json!({ "if": { "not": { "anyOf": is_lab } }, "then": rule(&train, &all) })];
    rules.extend(labs.iter().map(|(kind, lab)| json!({ "if": is(*kind), "then": rule(lab, &all) })));
    schema.extend(train);
    schema.remove("required");
    schema.insert("properties".into(), all.into());
    schema.insert("allOf".into(), rules.into());
    schema.into()
}

/// The dotted paths of key `name`, which is not in `table`: that of a key of this name below the table, or else anywhere, of one that
/// another program calls so, the shortest that ends in it, that of one a letter away, or the shortest that begins with it. If several
/// tables have the key, the root's, or the one whose table the spec has written; none if more than two may be meant, unless all are below
/// `table`.
pub(super) fn keys_named(
    schema: &reader::Json,
    (table, name): (&str, &str),
    is_written: impl Fn(&str) -> bool,
) -> Vec<String> {
    let within = format!("{table}.");
    let mut all = Vec::new();
    collect(&schema.clone().into(), "", &within, &mut all);
    // A cluster's tasks have keys of the same names: `gpus`, `time`.
    let (of_tasks, all): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|path| path.starts_with("launcher.") && !within.starts_with("launcher."));
    let [of_tasks, all] = [&of_tasks, &all];
    let last = |path: &str| path.rsplit('.').next().unwrap_or_default().to_owned();
    let called = |paths: &[String], name: &str| -> Vec<String> {
        paths.iter().filter(|path| last(path) == name).cloned().collect()
    };
    let below = called(all, name).into_iter().filter(|path| path.starts_with(&within)).collect();
    let shortest = |fits: fn(&str, &str) -> bool| -> Vec<String> {
        let longer = all.iter().filter(|path| fits(&last(path), name));
        longer.min_by_key(|path| path.len()).into_iter().cloned().collect()
    };
    let near = |paths: &[String]| -> Vec<String> {
        let names: Vec<String> = paths.iter().map(|path| last(path)).collect();
        // Farther away other words are meant.
        let near = suggest::nearest_within(name, 1, names.iter().map(String::as_str));
        near.map(|near| called(paths, near)).unwrap_or_default()
    };
    let synonyms = suggest::called_here(name).map(|here| called(all, &here)).find(|found| !found.is_empty());
    let groups = [
        below,
        called(all, name),
        synonyms.unwrap_or_default(),
        shortest(suggest::ends_in),
        near(all),
        shortest(suggest::begins_with),
        near(of_tasks),
    ];
    let found = groups.into_iter().find(|found| !found.is_empty()).unwrap_or_default();
    if let Some(of_root) = found.iter().find(|path| !path.contains('.')) {
        return vec![of_root.clone()];
    }
    let of_written = |path: &&String| path.rsplit_once('.').is_some_and(|(table, _)| is_written(table));
    let written: Vec<_> = found.iter().filter(of_written).cloned().collect();
    let found = if written.is_empty() { found } else { written };
    let are_below = found.iter().all(|path| path.starts_with(&within));
    if found.len() > 2 && !are_below { Vec::new() } else { found }
}

/// Asks whether the key called `name`, which is not in `table`, is one that there is.
pub(super) fn hint_at_key(
    schema: &reader::Json,
    named: (&str, &str),
    is_written: impl Fn(&str) -> bool,
) -> Option<String> {
    let keys = keys_named(schema, named, is_written);
    let listed = suggest::listing(keys.iter().map(String::as_str), "or");
    (!keys.is_empty()).then(|| format!("did you mean {listed}?"))
}

/// The paths of all keys of a schema, less the tables that exclude the one that the key is in: for `data.csv.weights` those of the other
/// data sources.
fn collect(schema: &Value, above: &str, within: &str, found: &mut Vec<String>) {
    let rules = schema["allOf"].as_array().into_iter().flatten();
    let one_of = rules.flat_map(|rule| rule["oneOf"].as_array().into_iter().flatten());
    let choices: Vec<&str> = one_of.filter_map(|choice| choice["required"][0].as_str()).collect();
    let is_chosen = |name: &str| within.starts_with(&format!("{above}{name}."));
    let has_chosen = choices.iter().any(|name| is_chosen(name));
    let properties = schema["properties"].as_object().into_iter().flatten();
    let is_excluded = |key: &str| has_chosen && choices.contains(&key) && !is_chosen(key);
    for (key, inner) in properties.filter(|(key, _)| !is_excluded(key)) {
        let path = format!("{above}{key}");
        collect(inner, &format!("{path}."), within, found);
        found.push(path);
    }
}

/// The key that is meant by the option `--NAME`: `trainer.max_epochs` for `max-epochs` and `epochs`, and for `lr` that of the optimizer
/// that the spec has.
pub fn key_of_option(name: &str, spec: Option<&Path>) -> Option<String> {
    let train = reader::describe(Spec::read);
    let name = name.replace('-', "_");
    if let Some((table, _)) = name.split_once('.') {
        return properties(&train).contains_key(table).then_some(name);
    }
    let text = spec.and_then(|path| fs::read_to_string(path).ok());
    let tree = text.and_then(|text| tree::parse_document(&text, 0).ok());
    let is_written = |table: &str| tree.as_ref().is_some_and(|tree| key::is_written(tree, table));
    let mut keys = keys_named(&train, ("", &name), is_written);
    keys.pop().filter(|_| keys.is_empty())
}

fn properties(schema: &reader::Json) -> reader::Json {
    schema.get("properties").and_then(Value::as_object).cloned().unwrap_or_default()
}

/// The extra conditions of one kind: required keys, keys with another meaning, forbidden keys.
fn rule(kind: &reader::Json, all: &reader::Json) -> Value {
    let own = properties(kind);
    let mut different = reader::Json::new();
    for (name, general) in all {
        match own.get(name) {
            None => {
                different.insert(name.clone(), false.into());
            }
            Some(property) if property != general => {
                different.insert(name.clone(), property.clone());
            }
            Some(_) => {}
        }
    }
    let required = kind.get("required").cloned().unwrap_or_else(|| json!([]));
    json!({ "required": required, "properties": different })
}
