//! Arrays of numbers written out in a spec: nested arrays of equal lengths, with precise errors.

use serde::{Serialize, Serializer};
use serde_json::json;

use super::dtype::{DType, Scalar};
use crate::{
    reader::{Fault, Item, Read},
    tree::{Node, Value},
};

/// Maximum number of axes of a tensor; more are taken for a typo.
pub(super) const MOST_AXES: usize = 8;

/// Maximum count of numbers that a spec may write out.
const MOST_NUMBERS: usize = 1 << 20;

/// Numbers from nested arrays, as written.
#[derive(Clone, Debug, PartialEq)]
pub struct Numbers {
    /// Lengths of the axes.
    pub shape: Vec<usize>,
    /// Row-major: the last axis is contiguous.
    pub values: Vec<Scalar>,
}

impl Numbers {
    /// All numbers encoded in this format.
    ///
    /// # Errors
    /// The first number that the format cannot represent.
    pub fn words(&self, dtype: DType) -> Result<Vec<f32>, Scalar> {
        let all: Result<Vec<_>, _> =
            self.values.iter().map(|number| dtype.encode(*number).ok_or(*number)).collect();
        Ok(all?.concat())
    }
}

impl Serialize for Numbers {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        fn nested(values: &[Scalar], shape: &[usize]) -> serde_json::Value {
            match shape {
                [] => match values.first() {
                    Some(Scalar::Float(x)) => (*x).into(),
                    Some(Scalar::Integer(i)) => (*i).into(),
                    None => 0.into(),
                },
                [_, inner @ ..] => {
                    let size = inner.iter().product::<usize>().max(1);
                    values.chunks(size).map(|part| nested(part, inner)).collect()
                }
            }
        }
        nested(&self.values, &self.shape).serialize(s)
    }
}

impl Read for Numbers {
    fn read(v: Item<'_>) -> Self {
        let schema = json!({ "type": ["array", "number"] });
        let none = Numbers { shape: Vec::new(), values: vec![Scalar::Integer(0)] };
        v.judged(schema, none, |node| {
            let (mut shape, mut first) = (Vec::new(), node);
            while let Value::Array(items) = &first.value {
                shape.push(items.len());
                let Some(inner) = items.first() else { break };
                first = inner;
            }
            let fault = |words: String| Fault { at: Vec::new(), span: node.span, words };
            if shape.len() > MOST_AXES {
                return Err(fault(format!(
                    " has {} axes, more than the {MOST_AXES} that a tensor can have",
                    shape.len()
                )));
            }
            let mut nest = Nest { shape, values: Vec::new(), at: Vec::new() };
            nest.take(node)?;
            if nest.values.is_empty() {
                return Err(fault(" holds no number: write one, as in `[[1, 2], [3, 4]]`".to_owned()));
            }
            Ok(Numbers { shape: nest.shape, values: nest.values })
        })
    }
}

/// Collects nested arrays. On each level, every array must be as long as the first one on that level.
struct Nest {
    shape: Vec<usize>,
    values: Vec<Scalar>,
    /// The indexes of the current position.
    at: Vec<usize>,
}

impl Nest {
    fn take(&mut self, node: &Node) -> Result<(), Fault> {
        let length = self.shape.get(self.at.len()).copied();
        let number = match (&node.value, length) {
            (Value::Array(items), Some(length)) if items.len() == length => {
                for (i, item) in items.iter().enumerate() {
                    self.at.push(i);
                    self.take(item)?;
                    self.at.pop();
                }
                return Ok(());
            }
            (Value::Array(items), Some(length)) => {
                let count =
                    if items.len() == 1 { "1 entry".to_owned() } else { format!("{} entries", items.len()) };
                return Err(
                    self.fault(node, format!(" has {count}, and the first one beside it has {length}"))
                );
            }
            (Value::Array(_), None) => {
                return Err(
                    self.fault(node, " is an array, and the first one beside it is a number".to_owned())
                );
            }
            (_, Some(length)) => {
                let found = node.value.found();
                let words = format!(" is {found}, and the first one beside it is an array of {length}");
                return Err(self.fault(node, words));
            }
            (Value::Integer(i), None) => Scalar::Integer(*i),
            (Value::Float(x), None) => Scalar::Float(*x),
            (other, None) => {
                return Err(self.fault(node, format!(": expected a number, found {}", other.found())));
            }
        };
        if matches!(number, Scalar::Float(x) if !(x as f32).is_finite()) {
            return Err(self.fault(node, format!(": expected a finite f32, found {}", node.value.found())));
        }
        if self.values.len() >= MOST_NUMBERS {
            return Err(
                self.fault(node, format!(" is one number more than the {MOST_NUMBERS} that a spec may hold"))
            );
        }
        self.values.push(number);
        Ok(())
    }

    fn fault(&self, node: &Node, words: String) -> Fault {
        Fault { at: self.at.clone(), span: node.span, words }
    }
}
