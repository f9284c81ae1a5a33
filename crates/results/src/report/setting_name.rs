//! The name of a setting: its keys and values in one line, cut where it would be long.

use super::key::short;
use crate::host::escape_line;

/// Maximum values in a setting's name, its characters, and those of a value; its number identifies it anyway.
const MOST_NAMED: usize = 6;
const MOST_CHARACTERS: usize = 96;
const MOST_OF_VALUE: usize = 72;

/// ` lr 0.03 width 32`.
pub(super) fn named<'a>(keys: &[String], values: impl Iterator<Item = &'a str>) -> String {
    let values = short(keys).into_iter().zip(values);
    // A key that varies only where others have given values has none elsewhere, and a table that only some have no key.
    let values = values.filter(|(_, value)| !["", "-"].contains(value));
    let mut name = String::new();
    for (place, (key, value)) in values.enumerate() {
        let word = format!(" {key} {}", cut_within(&escape_line(value)));
        let is_long = place > 0 && name.chars().count() + word.chars().count() > MOST_CHARACTERS;
        if place == MOST_NAMED || is_long {
            return name + " \u{2026}";
        }
        name += &word;
    }
    name
}

/// A long value, such as the layers of a deep model, without its middle.
fn cut_within(value: &str) -> String {
    let all: Vec<char> = value.chars().collect();
    if all.len() <= MOST_OF_VALUE {
        return value.to_owned();
    }
    let tail = MOST_OF_VALUE / 3;
    let head = all[..MOST_OF_VALUE - tail - 1].iter();
    head.chain(&['\u{2026}']).chain(&all[all.len() - tail..]).collect()
}
