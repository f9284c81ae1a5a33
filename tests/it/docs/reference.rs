//! Writes `docs/spec.md`, the reference of the spec, from the JSON Schema.

use std::fmt::Write;

use serde_json::Value;

const HEAD: &str = "\
# Spec reference

<!-- Written from `runner schema` by `DOCS_REFRESH=1 cargo test --test it docs`. Do not edit. -->

A spec is a TOML file. It needs a data source, `[model]` and an optimizer; every other key has a default. An unknown key
is an error that names its place and suggests the nearest key. `runner schema` prints the JSON Schema, which editors use for
completion and checks; `runner new` prints commented starters.

A file that [`extends`](sweeps.md#one-spec-on-top-of-another) another replaces some of its keys. [`runner check SPEC
--spec`](sweeps.md#overrides) prints a spec with all its values, and where each comes from.

`layers[].linear` is the key `linear` of a table in the list `layers`. Parentheses at the end of a meaning give the default
where the default column is empty.
";

/// The whole page.
pub fn page(schema: &Value) -> String {
    let mut page = Page { text: HEAD.to_owned(), seen: Vec::new() };
    page.section("Top level", "", "", schema);
    for (name, value) in tables(schema) {
        page.table(name, value);
    }
    page.text
}

struct Page<'a> {
    text: String,
    /// Tables on the page so far, and where: a repeated table refers to the first.
    seen: Vec<(&'a Value, String)>,
}

impl<'a> Page<'a> {
    /// Writes `[path]`, then the tables within it.
    fn table(&mut self, path: &str, value: &'a Value) {
        self.seen.push((value, format!("[{path}]")));
        self.section(&format!("`[{path}]`"), path, description(value), value);
        for (key, value) in tables(value) {
            match value.get("items") {
                Some(items) => {
                    self.section(&format!("`[[{path}.{key}]]`"), "", description(value), items);
                }
                None => self.table(&format!("{path}.{key}"), value),
            }
        }
    }

    /// Writes a heading and the keys of one table, except tables that get a heading of their own.
    fn section(&mut self, title: &str, path: &str, text: &str, table: &'a Value) {
        let _ = write!(self.text, "\n## {title}\n");
        if !text.is_empty() {
            let _ = write!(self.text, "\n{}.\n", sentence(text));
        }
        let is_list = title.contains("[[");
        let own: Vec<Row<'a>> = properties(table)
            .filter(|(_, value)| is_list || !is_table(value))
            .map(|(key, value)| Row { key: key.clone(), value, is_required: is_required(table, key) })
            .collect();
        if own.is_empty() {
            return;
        }
        self.text += "\n| key | value | default | meaning |\n| --- | --- | --- | --- |\n";
        own.into_iter().for_each(|row| self.row(path, row));
    }

    /// Writes a key, then the keys of tables that it may contain.
    fn row(&mut self, path: &str, Row { key, value, is_required }: Row<'a>) {
        let default = match value.get("default") {
            Some(default) => format!("`{default}`"),
            None if is_required => "**required**".to_owned(),
            None => String::new(),
        };
        let nested = nested(&key, value);
        let same = |seen: &(&Value, String)| {
            seen.0 == value || seen.0.get("items").is_some_and(|items| items == &value["items"])
        };
        let earlier =
            self.seen.iter().find(|seen| !nested.is_empty() && same(seen)).map(|seen| seen.1.clone());
        let kind = earlier.as_ref().map_or_else(|| kind(value), |path| format!("as `{path}`"));
        let meaning = if earlier.is_some() { description(value).to_owned() } else { meaning(value) };
        let _ = writeln!(self.text, "| `{key}` | {kind} | {default} | {} |", escaped(meaning));
        if earlier.is_none() {
            self.seen.push((value, format!("{path}.{key}")));
            nested.into_iter().for_each(|row| self.row(path, row));
        }
    }
}

struct Row<'a> {
    key: String,
    value: &'a Value,
    is_required: bool,
}

fn properties(table: &Value) -> impl Iterator<Item = (&String, &Value)> {
    table["properties"].as_object().into_iter().flatten()
}

/// Whether a key gets its own heading: it is a table, or a list of tables.
fn is_table(value: &Value) -> bool {
    value.get("properties").is_some() || value["items"].get("properties").is_some()
}

fn tables(table: &Value) -> impl Iterator<Item = (&String, &Value)> {
    properties(table).filter(|(_, value)| is_table(value))
}

/// The keys of tables that a key may contain, directly or in a list.
fn nested<'a>(key: &str, value: &'a Value) -> Vec<Row<'a>> {
    let lists = value.get("items").map(|items| (format!("{key}[]"), items));
    let mut found = Vec::new();
    for (key, value) in std::iter::once((key.to_owned(), value)).chain(lists) {
        let row = |(inner, inner_value): (&String, &'a Value), is_required| Row {
            key: format!("{key}.{inner}"),
            value: inner_value,
            is_required,
        };
        found.extend(properties(value).map(|p| row(p, is_required(value, p.0))));
        // The user picks one of the alternatives, so none of their keys is required.
        found.extend(choices(value).flat_map(properties).map(|p| row(p, false)));
    }
    found
}

fn choices(value: &Value) -> impl Iterator<Item = &Value> {
    ["oneOf", "anyOf"].into_iter().filter_map(|of| value[of].as_array()).flatten()
}

fn is_required(table: &Value, key: &str) -> bool {
    table["required"].as_array().is_some_and(|keys| keys.iter().any(|k| k == key))
}

/// The values that a key accepts.
fn kind(value: &Value) -> String {
    let name = |name: &str| match name {
        "object" => "table".to_owned(),
        "array" => "list".to_owned(),
        "number" => format!("number{}", range(value)),
        "integer" => format!("integer{}", range(value)),
        other => other.to_owned(),
    };
    let mut choices: Vec<String> = choices(value)
        .filter(|choice| ["type", "const", "enum"].iter().any(|key| choice.get(key).is_some()))
        .map(kind)
        .collect();
    choices.dedup();
    if let Some(values) = value["enum"].as_array() {
        return values.iter().map(|v| format!("`{v}`")).collect::<Vec<_>>().join(", ");
    }
    if let Some(constant) = value.get("const") {
        return format!("`{constant}`");
    }
    if !choices.is_empty() {
        return choices.join(" or ");
    }
    match &value["type"] {
        Value::String(kind) if kind == "array" => match value.get("items") {
            Some(items) => format!("list of {}", kind_of_items(items)),
            None => "list".to_owned(),
        },
        Value::String(kind) => name(kind),
        Value::Array(kinds) => {
            kinds.iter().filter_map(Value::as_str).map(name).collect::<Vec<_>>().join(" or ")
        }
        _ => String::new(),
    }
}

fn kind_of_items(items: &Value) -> String {
    match kind(items).as_str() {
        "" => "values".to_owned(),
        kind => kind.to_owned(),
    }
}

/// The range of a number, unless it only says that the number is positive.
fn range(value: &Value) -> String {
    let bound = |key: &str, sign: &str| value.get(key).map(|bound| format!("{sign} {bound}"));
    let least = bound("minimum", "≥").or_else(|| bound("exclusiveMinimum", ">"));
    let most = bound("maximum", "≤").or_else(|| bound("exclusiveMaximum", "<")).filter(|most| most.len() < 8);
    let bounds: Vec<String> = least.into_iter().chain(most).collect();
    if bounds.is_empty() { String::new() } else { format!(" {}", bounds.join(", ")) }
}

fn description(value: &Value) -> &str {
    value["description"].as_str().unwrap_or_default()
}

/// A key's description, then those of its choices.
fn meaning(value: &Value) -> String {
    let list = value.get("items").unwrap_or(value);
    let described = choices(list).filter(|choice| !description(choice).is_empty());
    let described: Vec<String> = described.map(|c| format!("{}: {}", kind(c), description(c))).collect();
    let items = value.get("items").map(description).unwrap_or_default();
    let parts = [description(value).to_owned(), items.to_owned(), described.join("; ")];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(". ")
}

/// Capitalizes the first word, unless it is a formula or a name.
fn sentence(text: &str) -> String {
    let is_word = text.split(' ').next().is_some_and(|word| word.len() > 1 && !word.contains('.'));
    let mut chars = text.chars();
    match chars.next() {
        Some(first) if is_word => first.to_uppercase().chain(chars).collect(),
        _ => text.to_owned(),
    }
}

/// Escapes text for a table cell.
fn escaped(text: String) -> String {
    text.replace('|', "\\|").replace('<', "&lt;")
}
