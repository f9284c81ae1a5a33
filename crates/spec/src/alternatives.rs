//! Keys of which a spec has one, each a plain value: an override of one takes the place of the file's other one. Tables that
//! exclude each other, such as `[optimizer.sgd]` and `[optimizer.adam]`, stay: a word for one would drop all settings of the other.

use super::{
    checkpoint::Every, devices::Request, key::Key, lab::Operands, reader::Choices, trainer::ValidateEvery,
};

/// The alternatives in a table of the spec.
fn names_in(table: &str) -> Vec<&'static str> {
    fn names<T: Choices>() -> Vec<&'static str> {
        T::choices().iter().map(|choice| choice.name).collect()
    }
    match table {
        "checkpoint" => names::<Every>(),
        "devices" => names::<Request>(),
        "matmul" => names::<Operands>(),
        "trainer" => names::<ValidateEvery>(),
        _ => Vec::new(),
    }
}

/// The other keys of which a spec has one, as `key` is one of them.
pub(super) fn alternatives(key: &Key) -> Vec<Key> {
    let ([table, name], Some(span)) = (&key.parts[..], key.span()) else { return Vec::new() };
    let names = names_in(&table.text);
    if !names.contains(&name.text.as_str()) {
        return Vec::new();
    }
    let others = names.into_iter().filter(|other| *other != name.text);
    others.filter_map(|other| Key::parse_at(&format!("{}.{other}", table.text), span).ok()).collect()
}
