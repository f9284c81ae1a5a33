//! Keys of which a spec has one: one that is set takes the place of the other. A key within one of them, such as `optimizer.adam.lr`
//! as an override, does not: a word would drop all settings of `[optimizer.sgd]`.

use super::{
    Init, Optimizer, Rule, Source,
    checkpoint::Every,
    data::OWN_SPLIT,
    devices::Request,
    key::{self, Key, dotted},
    lab::Operands,
    reader::Choices,
    swept_keys::Given,
    trainer::ValidateEvery,
    tree::{Table, Value},
};

/// The alternatives in a table of the spec.
fn names_in(table: &str) -> Vec<&'static str> {
    fn names<T: Choices>() -> Vec<&'static str> {
        T::choices().iter().map(|choice| choice.name).collect()
    }
    match table {
        "checkpoint" => names::<Every>(),
        "data" => names::<Source>(),
        "devices" => names::<Request>(),
        "matmul" => names::<Operands>(),
        "model.init" => names::<Init>(),
        "optimizer" => names::<Optimizer>(),
        "schedule" => names::<Rule>(),
        "trainer" => names::<ValidateEvery>(),
        _ => Vec::new(),
    }
}

/// The other ways to say which rows validate, within `[data]`. Folds go with what else a split says.
fn other_splits(name: &str) -> Vec<&'static str> {
    let rest = match name {
        "split.validation" => vec!["folds", "fold"],
        "folds" | "fold" => vec!["split.validation"],
        own if OWN_SPLIT.contains(&own) => {
            // Files of their own exclude a fraction of the same source.
            let is_fraction = |key: &str| key.ends_with(".validation_fraction");
            let source = |key: &str| key.split('.').next().map(str::to_owned);
            let excludes =
                |other: &&str| source(other) == source(own) && is_fraction(other) != is_fraction(own);
            return OWN_SPLIT.into_iter().filter(excludes).chain(["split", "folds", "fold"]).collect();
        }
        _ => return Vec::new(),
    };
    OWN_SPLIT.into_iter().chain(rest).collect()
}

/// The other keys of which a spec has one, as `key` is one of them.
pub(super) fn alternatives(key: &Key) -> Vec<Key> {
    let (Some((name, table)), Some(span)) = (key.parts.split_last(), key.span()) else { return Vec::new() };
    let table = dotted(table.iter().map(|part| part.text.as_str()));
    let names = names_in(&table);
    let (table, others) = match key.dotted().strip_prefix("data.").map(other_splits) {
        Some(others) if !others.is_empty() => ("data", others),
        _ if !names.contains(&name.text.as_str()) => return Vec::new(),
        _ => (&*table, names.into_iter().filter(|other| *other != name.text).collect()),
    };
    others.into_iter().filter_map(|other| Key::parse_at(&format!("{table}.{other}"), span).ok()).collect()
}

/// The part of `data.split` that validates, if that table is set or swept as a whole and has it.
pub(super) fn split_that_validates(root: &Table, given: &[Given]) -> Option<Key> {
    let own = given.iter().find(|own| own.key.dotted() == "data.split")?;
    let has_part = |value: &Value| value.as_table().is_some_and(|split| split.get("validation").is_some());
    let written = match own.axes {
        None => key::find(root, ["data", "split"].into_iter()),
        Some(table) => key::find(root, ["sweep", table, "data.split"].into_iter()),
    };
    let validates = match &written.filter(|(_, is_whole)| *is_whole)?.0.value {
        Value::Array(splits) => splits.iter().all(|split| has_part(&split.value)),
        value => has_part(value),
    };
    Key::parse_at("data.split.validation", own.key.span()?).ok().filter(|_| validates)
}

/// Whether this is the split of a spec that has test rows: they would be among those that train and validate.
pub(super) fn sets_test_rows_apart(root: &Table, name: &str) -> bool {
    name == "data.split" && key::is_written(root, "data.split.test")
}
