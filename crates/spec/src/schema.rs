//! The JSON Schema of a spec, for editors, generated from the declarations that the reader uses.
//!
//! It lists the tables of all kinds side by side, so that editors know all of them. Conditions on `kind` then
//! say which tables a spec may and must have.

use serde_json::{Value, json};

use super::{
    Kind, LabSpec, Spec,
    reader::{self, Read},
    suggest,
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

/// The dotted path of key `name`, which is not in `table`. If several tables have it, the one whose table the spec has written; `None` if that is
/// ambiguous. If no key has the name, the shortest path that ends in it, that of one a letter
/// away, or the shortest that begins with it.
pub(super) fn key_named(
    schema: &reader::Json,
    (table, name): (&str, &str),
    is_written: impl Fn(&str) -> bool,
) -> Option<String> {
    type Fits<'a> = &'a dyn Fn(&str) -> bool;
    let within = format!("{table}.");
    let collect_in = |schema: &Value, fits: Fits<'_>, found: &mut Vec<(String, String)>| {
        collect(schema, "", (fits, &within), found);
    };
    /// Leaves out tables that exclude the one that the key is in: for `data.csv.weights` those of the other data sources.
    fn collect(
        schema: &Value,
        above: &str,
        (fits, within): (Fits<'_>, &str),
        found: &mut Vec<(String, String)>,
    ) {
        let rules = schema["allOf"].as_array().into_iter().flatten();
        let one_of = rules.flat_map(|rule| rule["oneOf"].as_array().into_iter().flatten());
        let choices: Vec<&str> = one_of.filter_map(|choice| choice["required"][0].as_str()).collect();
        let is_chosen = |name: &str| within.starts_with(&format!("{above}{name}."));
        let has_chosen = choices.iter().any(|name| is_chosen(name));
        let properties = schema["properties"].as_object().into_iter().flatten();
        let is_excluded = |key: &str| has_chosen && choices.contains(&key) && !is_chosen(key);
        for (key, inner) in properties.filter(|(key, _)| !is_excluded(key)) {
            let path = format!("{above}{key}");
            if fits(key) && !above.is_empty() {
                found.push((above.trim_end_matches('.').to_owned(), path.clone()));
            }
            collect(inner, &format!("{path}."), (fits, within), found);
        }
    }
    let shortest = |found: Vec<(String, String)>| -> Vec<(String, String)> {
        found.into_iter().min_by_key(|(_, path)| path.len()).into_iter().collect()
    };
    let (schema, mut found) = (schema.clone().into(), Vec::new());
    let name = suggest::called_here(name).unwrap_or(name);
    collect_in(&schema, &|key| key == name, &mut found);
    if found.is_empty() {
        collect_in(&schema, &|key| suggest::ends_in(key, name), &mut found);
        found = shortest(found);
    }
    if found.is_empty() {
        let mut all = Vec::new();
        collect_in(&schema, &|_| true, &mut all);
        let last = |(_, path): &(String, String)| path.rsplit('.').next().unwrap_or_default().to_owned();
        let names: Vec<String> = all.iter().map(last).collect();
        // Farther away other words are meant.
        let near = suggest::nearest_within(name, 1, names.iter().map(String::as_str));
        collect_in(&schema, &|key| near == Some(key), &mut found);
    }
    if found.is_empty() {
        collect_in(&schema, &|key| suggest::begins_with(key, name), &mut found);
        found = shortest(found);
    }
    if found.len() > 1 {
        found.retain(|(table, _)| is_written(table));
    }
    found.pop().filter(|_| found.is_empty()).map(|(_, path)| path)
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
