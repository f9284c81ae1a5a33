//! Keys of which a spec has one: one that is set takes the place of the other. A key within one of them, such as `optimizer.adam.lr`
//! as an override, does not: a word would drop all settings of `[optimizer.sgd]`.

use super::{
    Init, Optimizer, Rule, Source,
    checkpoint::Every,
    devices::Request,
    key::{Key, dotted},
    lab::Operands,
    reader::Choices,
    trainer::ValidateEvery,
};

/// The alternatives in a table of the spec.
fn names_in(table: &str) -> Vec<&'static str> {
    fn names<T: Choices>() -> Vec<&'static str> {
        T::choices().iter().map(|choice| choice.name).collect()
    }
    match table {
        "checkpoint" => names::<Every>(),
        "data" => names::<Source>(),
        "data.synthetic_regression" => vec!["weights", "features"],
        "devices" => names::<Request>(),
        "matmul" => names::<Operands>(),
        "model.init" => names::<Init>(),
        "optimizer" => names::<Optimizer>(),
        "schedule" => names::<Rule>(),
        "trainer" => names::<ValidateEvery>(),
        _ => Vec::new(),
    }
}

/// The other keys of which a spec has one, as `key` is one of them.
pub(super) fn alternatives(key: &Key) -> Vec<Key> {
    let (Some((name, table)), Some(span)) = (key.parts.split_last(), key.span()) else { return Vec::new() };
    let table = dotted(table.iter().map(|part| part.text.as_str()));
    let names = names_in(&table);
    if !names.contains(&name.text.as_str()) {
        return Vec::new();
    }
    let others = names.into_iter().filter(|other| *other != name.text);
    others.filter_map(|other| Key::parse_at(&format!("{table}.{other}"), span).ok()).collect()
}
