//! `model.class_weights`: how much the rows of each class count in the loss.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};
use serde_json::json;

use super::{
    reader::{Item, Read},
    tree::{Node, Value},
};

const BALANCED: &str = "balanced";

/// The most classes that weights are written out for.
const MOST_CLASSES: usize = 100_000;

/// The weights of `CrossEntropyLoss(weight=...)`.
#[derive(Clone, Debug, PartialEq)]
pub enum ClassWeights {
    /// As in scikit-learn: rows / (classes * rows of the class), of the rows to train on.
    Balanced,
    /// By the class as the data have it.
    ByClass(BTreeMap<String, f64>),
    /// In the order of the classes.
    InOrder(Vec<f64>),
}

impl Serialize for ClassWeights {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Balanced => BALANCED.serialize(s),
            Self::ByClass(weights) => weights.serialize(s),
            Self::InOrder(weights) => weights.serialize(s),
        }
    }
}

impl Read for ClassWeights {
    fn read(v: Item<'_>) -> Self {
        let number = json!({ "type": "number", "exclusiveMinimum": 0 });
        let schema = json!({ "oneOf": [
            { "const": BALANCED },
            { "type": "object", "additionalProperties": number, "minProperties": 1 },
            { "type": "array", "items": number, "minItems": 1, "maxItems": MOST_CLASSES },
        ] });
        let expected = "`\"balanced\"`, or a number above 0 for each class, as in `{ yes = 5.0, no = 1.0 }` or `[1.0, 5.0]`";
        v.custom(expected, schema, Self::Balanced, |value| match value {
            Value::String(word) if word == BALANCED => Some(Self::Balanced),
            Value::Table(table) if !table.entries.is_empty() => {
                let each = table.entries.iter().map(|entry| Some((entry.key.clone(), weight(&entry.node)?)));
                each.collect::<Option<_>>().map(Self::ByClass)
            }
            Value::Array(items) if (1..=MOST_CLASSES).contains(&items.len()) => {
                items.iter().map(weight).collect::<Option<_>>().map(Self::InOrder)
            }
            _ => None,
        })
    }
}

/// A weight that stays above 0 and finite as f32.
fn weight(node: &Node) -> Option<f64> {
    let number = match node.value {
        Value::Float(x) => x,
        Value::Integer(i) => i as f64,
        _ => return None,
    };
    let single = number as f32;
    (single >= f32::MIN_POSITIVE && single.is_finite()).then_some(number)
}
