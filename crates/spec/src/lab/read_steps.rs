//! Readers for the names, shapes, ranges and files of a step.

use serde_json::json;

use super::numbers::MOST_AXES;
use crate::reader::{Item, finite};

/// A name without dots; names with dots are a net's parameters, such as `Y.0.weight`.
pub(super) fn read_name(v: Item<'_>) -> String {
    let schema = json!({ "type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$" });
    v.custom("a name of letters, digits and `_`", schema, String::new(), |v| {
        let s = v.as_str()?;
        let fits = s.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        (fits && s.len() <= 100 && s.starts_with(|c: char| !c.is_ascii_digit())).then(|| s.to_owned())
    })
}

pub(super) fn read_operand(v: Item<'_>) -> String {
    let schema = json!({ "type": "string", "minLength": 1 });
    v.custom("the name of a tensor", schema, String::new(), |v| {
        v.as_str().filter(|s| !s.is_empty()).map(str::to_owned)
    })
}

pub(super) fn read_pair(v: Item<'_>) -> [String; 2] {
    v.array(
        "the names of two tensors, such as `[\"X\", \"Y\"]`",
        [String::new(), String::new()],
        read_operand,
    )
}

pub(super) fn read_shape(v: Item<'_>) -> Vec<usize> {
    v.list(0..=MOST_AXES, |v| v.size(0))
}

/// `[low, high]`: random numbers are drawn from low (included) to high (excluded).
pub(super) fn read_range(v: Item<'_>) -> [f64; 2] {
    v.array("two numbers, such as `[-1, 1]`", [0.0, 1.0], finite)
}

/// The name of a file that the run writes.
pub(super) fn new_file(v: Item<'_>) -> String {
    let schema = json!({ "type": "string", "pattern": r"^[^/\\.][^/\\]*\.safetensors$" });
    v.custom("a file's name, such as `net.safetensors`", schema, String::new(), |v| {
        let s = v.as_str()?;
        let plain = s.chars().all(|c| c.is_ascii_alphanumeric() || "._=+-".contains(c));
        (plain && !s.starts_with('.') && s.ends_with(".safetensors")).then(|| s.to_owned())
    })
}
