//! Short display names for values of a swept key that are tables.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::LazyLock,
};

use toml::{Table, Value};

use super::{
    key::short_keys,
    model::Layer,
    reader::{Json, Read, describe},
};

/// The leaf values within a value, by dotted key.
type Leaves = BTreeMap<String, String>;

/// Values with one key alone, or without: their texts, what they hold, and how a list is called.
type Group<'a> = Vec<(&'a str, Leaves, Option<String>)>;

/// Short names for the values of one axis that are tables or lists of tables, by their texts: `sgd` for
/// `{ sgd = { lr = 0.1 } }`; where several have that key, what they differ in is added: `sgd(lr 0.1)`. Lists that differ in
/// more than one figure are called by all that they hold: `linear32+relu+linear10`.
pub fn short_values<'a>(values: impl Iterator<Item = &'a str>) -> HashMap<String, String> {
    let texts: BTreeSet<&str> = values.filter(|text| !text.is_empty()).collect();
    let mut by_key: BTreeMap<String, Group<'_>> = BTreeMap::new();
    for &text in texts.iter().filter(|text| text.contains('{')) {
        let parsed = toml::from_str::<Table>(&format!("value = {text}")).ok();
        let Some(value) = parsed.and_then(|mut table| table.remove("value")) else { continue };
        let only = value.as_table().filter(|table| table.len() == 1).and_then(|table| table.iter().next());
        let (key, inner) = only.map_or((String::new(), &value), |(key, inner)| (key.clone(), inner));
        let mut leaves = Leaves::new();
        add_leaves(String::new(), inner, &mut leaves);
        by_key.entry(key).or_default().push((text, leaves, joined(&value)));
    }
    let names = by_key.iter().flat_map(|(key, group)| {
        let all: BTreeSet<&str> =
            group.iter().flat_map(|(_, leaves, _)| leaves.keys().map(String::as_str)).collect();
        let differs =
            |leaf: &&str| group.iter().any(|(_, leaves, _)| leaves.get(*leaf) != group[0].1.get(*leaf));
        let differing: Vec<&str> = all.into_iter().filter(differs).collect();
        let titles = short_keys(&differing);
        let are_lists = differing.len() > 1 && group.iter().all(|(.., list)| list.is_some());
        let named = |(text, leaves, list): &(&str, Leaves, Option<String>)| {
            if let Some(list) = list.as_ref().filter(|_| are_lists) {
                return ((*text).to_owned(), list.clone());
            }
            let known =
                differing.iter().zip(&titles).filter_map(|(leaf, title)| Some((title, leaves.get(*leaf)?)));
            let inner = known.map(|(title, value)| format!("{title} {value}")).collect::<Vec<_>>().join(" ");
            let name = if key.is_empty() || inner.is_empty() {
                format!("{key}{inner}")
            } else {
                format!("{key}({inner})")
            };
            ((*text).to_owned(), name)
        };
        group.iter().map(named).collect::<Vec<_>>()
    });
    let names: HashMap<String, String> = names.collect();
    let mut taken: HashSet<&str> = texts.iter().copied().filter(|text| !names.contains_key(*text)).collect();
    let is_clear = names.values().all(|name| !name.is_empty() && taken.insert(name));
    if is_clear { names } else { HashMap::new() }
}

/// The elements of a list, one after the other: `linear32+relu+linear10`.
fn joined(value: &Value) -> Option<String> {
    let element = |value: &Value| match value {
        Value::Table(table) => table.iter().map(|(key, inner)| key.clone() + &held(inner)).collect(),
        Value::String(word) => word.clone(),
        other => other.to_string(),
    };
    Some(value.as_array()?.iter().map(element).collect::<Vec<String>>().join("+"))
}

/// The one figure that a table holds, or all of them with their names.
fn held(value: &Value) -> String {
    let mut leaves = Leaves::new();
    add_leaves(String::new(), value, &mut leaves);
    held_in(leaves)
}

fn held_in(leaves: Leaves) -> String {
    if leaves.len() <= 1 {
        return leaves.into_values().collect();
    }
    let named: Vec<String> = leaves.iter().map(|(key, value)| format!("{key} {value}")).collect();
    format!("({})", named.join(" "))
}

/// The layers of a resolved spec, given as its leaves below `model.layers`, as a sweep over them is named: without defaults, and
/// without what follows from other keys.
pub fn layers_in_words<'a>(leaves: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let mut layers: BTreeMap<usize, (&str, Leaves)> = BTreeMap::new();
    for (key, value) in leaves {
        let (number, of_layer) = key.split_once('.').unwrap_or((key, value));
        let Ok(number) = number.parse() else { continue };
        let (kind, inner) = of_layer.split_once('.').unwrap_or((of_layer, ""));
        let (_, own) = layers.entry(number).or_insert_with(|| (kind, Leaves::new()));
        if !inner.is_empty() && inner != "in_features" && !is_default(kind, inner, value) {
            own.insert(inner.to_owned(), value.to_owned());
        }
    }
    let words = layers.into_values().map(|(kind, own)| kind.to_owned() + &held_in(own));
    words.collect::<Vec<_>>().join("+")
}

/// Tables that hold one kind each, such as optimizers, given as their leaves (`sgd.lr`, or a key beside the kind): the kind with
/// what those of it differ in, as a sweep over such tables names them, and the kind with all that it holds. `none` is the kind of an
/// empty table.
pub fn kinds_in_words(tables: &[&Vec<(String, String)>], none: &str) -> Vec<[String; 2]> {
    let parsed = |table: &&Vec<(String, String)>| {
        let kind = table.iter().find_map(|(key, _)| Some(key.split_once('.')?.0)).unwrap_or(none).to_owned();
        let inner = |key: &String| match key.split_once('.') {
            Some((own, inner)) if own == kind => inner.to_owned(),
            _ => key.clone(),
        };
        let leaves: Leaves = table.iter().map(|(key, value)| (inner(key), value.clone())).collect();
        (kind, leaves)
    };
    let parsed: Vec<(String, Leaves)> = tables.iter().map(parsed).collect();
    let mut of_kinds: HashMap<&str, (&Leaves, BTreeSet<&str>)> = HashMap::new();
    for (kind, own) in &parsed {
        let (first, differing) = of_kinds.entry(kind).or_insert_with(|| (own, BTreeSet::new()));
        let keys = first.keys().chain(own.keys());
        differing.extend(keys.filter(|key| first.get(*key) != own.get(*key)).map(String::as_str));
    }
    let named = |kind: &String, leaves: &[(&str, &String)]| {
        let keys: Vec<&str> = leaves.iter().map(|(key, _)| *key).collect();
        let titles = short_keys(&keys);
        let words: Vec<String> =
            titles.iter().zip(leaves).map(|(title, (_, value))| format!("{title} {value}")).collect();
        if words.is_empty() { kind.clone() } else { format!("{kind}({})", words.join(" ")) }
    };
    let names = |(kind, own): &(String, Leaves)| {
        let all: Vec<_> = own.iter().map(|(key, value)| (key.as_str(), value)).collect();
        let differs = |leaf: &&(&str, &String)| of_kinds[kind.as_str()].1.contains(leaf.0);
        let differing: Vec<_> = all.iter().filter(differs).copied().collect();
        [named(kind, &differing), named(kind, &all)]
    };
    parsed.iter().map(names).collect()
}

/// Whether a layer has this value where its key is not given.
fn is_default(kind: &str, key: &str, value: &str) -> bool {
    static LAYER: LazyLock<Json> = LazyLock::new(|| describe(Layer::read));
    let kinds = LAYER.get("oneOf").and_then(|kinds| kinds.as_array());
    let mut defaults =
        kinds.into_iter().flatten().map(|own| &own["properties"][kind]["properties"][key]["default"]);
    let value: Option<serde_json::Value> = serde_json::from_str(value).ok();
    defaults.any(|own| !own.is_null() && value.as_ref() == Some(own))
}

/// Adds what a value holds by dotted keys; indices are keys of lists that hold tables.
pub fn add_leaves(key: String, value: &Value, leaves: &mut Leaves) {
    let below = |inner: &str| if key.is_empty() { inner.to_owned() } else { format!("{key}.{inner}") };
    match value {
        Value::Table(table) => {
            table.iter().for_each(|(inner, value)| add_leaves(below(inner), value, leaves));
        }
        Value::Array(values) if values.iter().any(Value::is_table) => {
            let numbered = values.iter().enumerate();
            numbered.for_each(|(place, value)| add_leaves(below(&place.to_string()), value, leaves));
        }
        leaf => {
            let text = match leaf {
                Value::String(text) => text.clone(),
                // `{:?}` writes very small or large values with an exponent, which TOML allows.
                Value::Float(number) => format!("{number:?}"),
                other => other.to_string(),
            };
            leaves.insert(key, text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(values: &[&str]) -> Vec<String> {
        let short = short_values(values.iter().copied());
        values.iter().map(|&value| short.get(value).map_or(value, String::as_str).to_owned()).collect()
    }

    #[test]
    fn a_table_is_called_by_its_key_and_what_sets_it_apart() {
        let sgd = ["{ sgd = { lr = 0.1, momentum = 0.9 } }", "{ sgd = { lr = 0.01, momentum = 0.9 } }"];
        let adam = "{ adam = { lr = 0.001 } }";
        assert_eq!(shown(&[sgd[0], adam]), ["sgd", "adam"]);
        assert_eq!(shown(&[sgd[0], sgd[1], adam]), ["sgd(lr 0.1)", "sgd(lr 0.01)", "adam"]);
        assert_eq!(shown(&["{ sgd = { lr = 0.1 } }", sgd[0]]), ["sgd", "sgd(momentum 0.9)"]);
        assert_eq!(shown(&["relu", "{ dropout = { p = 0.1 } }", ""]), ["relu", "dropout", ""]);
        let wide = |n: u32| format!("[{{ linear = {{ out_features = {n} }} }}, \"relu\"]");
        assert_eq!(shown(&[&wide(8), &wide(16)]), ["out_features 8", "out_features 16"]);
        let deep = "[{ linear = { out_features = 32 } }, { dropout = { p = 0.1 } }, { linear = { bias = false, out_features = 1 } }]";
        assert_eq!(
            shown(&[&wide(8), deep, "[{ linear = { out_features = 1 } }]"]),
            ["linear8+relu", "linear32+dropout0.1+linear(bias false out_features 1)", "linear1"]
        );
        let csv = |path: &str| format!("{{ path = \"{path}\", target = \"y\" }}");
        assert_eq!(shown(&[&csv("a"), &csv("b")]), ["path a", "path b"]);
    }

    /// As a sweep over the same layers is named, though a run's spec has all defaults, and its layers are sorted as text.
    #[test]
    fn layers_are_named_without_their_defaults() {
        let written = "[{ linear = { out_features = 32 } }, { dropout = { p = 0.1 } }, \"layer_norm\", { linear = { bias = false, out_features = 1 } }]";
        let resolved = "[{ linear = { out_features = 32, in_features = 4, bias = true } }, { dropout = { p = 0.1 } }, \
                        { layer_norm = { eps = 0.00001 } }, { linear = { out_features = 1, in_features = 32, bias = false } }]";
        let table: Table = toml::from_str(&format!("value = {resolved}")).unwrap();
        let mut leaves = Leaves::new();
        add_leaves(String::new(), &table["value"], &mut leaves);
        let named = |leaves: &Leaves| {
            layers_in_words(leaves.iter().map(|(key, value)| (key.as_str(), value.as_str())))
        };
        let name = "linear32+dropout0.1+layer_norm+linear(bias false out_features 1)";
        assert_eq!(
            (named(&leaves).as_str(), shown(&[written, "[{ linear = { out_features = 1 } }]"])[0].as_str()),
            (name, name)
        );
        leaves.insert("2.layer_norm.eps".to_owned(), "0.001".to_owned());
        leaves.insert("10".to_owned(), "relu".to_owned());
        assert_eq!(named(&leaves), name.replace("norm", "norm0.001") + "+relu");
    }

    #[test]
    fn what_stays_unclear_is_written_out() {
        for values in
            [["{ x = \"1\" }", "{ x = 1 }"], ["adam", "{ adam = { lr = 0.1 } }"], ["[1, 2]", "a { b"]]
        {
            assert_eq!(shown(&values), values);
        }
        let one = "{ path = \"a\", target = \"y\" }";
        assert_eq!(shown(&[one]), [one]);
    }
}
