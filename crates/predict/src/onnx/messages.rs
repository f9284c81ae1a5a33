//! The protobuf messages of <https://github.com/onnx/onnx/blob/main/onnx/onnx.proto>, as far as they are
//! needed here.

use crate::record::protobuf::Message;

/// Element types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    Float = 1,
    Int64 = 7,
    String = 8,
    Double = 11,
}

/// `StringStringEntryProto`
pub fn entry(key: &str, value: &str) -> Message {
    Message::default().with_text(1, key).with_text(2, value)
}

/// `OperatorSetIdProto`
pub fn operator_set(domain: &str, version: i64) -> Message {
    Message::default().with_text(1, domain).with_integer(2, version)
}

/// `NodeProto`; the operation is in the domain before its last dot.
pub fn node(op: &str, inputs: &[&str], attributes: &[Message], output: &str) -> Message {
    let (domain, op) = op.rsplit_once('.').unwrap_or(("", op));
    let inputs = inputs.iter().fold(Message::default(), |node, input| node.with_bytes(1, input.as_bytes()));
    inputs.with_text(2, output).with_text(4, op).with_messages(5, attributes).with_text(7, domain)
}

/// `TensorProto`; elements are little-endian.
pub fn tensor(name: &str, element: Element, dims: &[usize], elements: &[u8]) -> Message {
    let dims = Message::default().with_integers(1, dims.iter().map(|&n| n as i64));
    dims.with_integer(2, element as i64).with_text(8, name).with_bytes(9, elements)
}

/// `ValueInfoProto` of a tensor with `width` elements per row; one-dimensional if that is `None`. The number of rows is
/// a variable.
pub fn rows(name: &str, element: Element, width: Option<usize>) -> Message {
    let shape = Message::default().with_message(1, &Message::default().with_text(2, "rows"));
    let width = width.map(|width| Message::default().with_integer(1, width as i64));
    let shape = shape.with_messages(1, &width);
    let tensor = Message::default().with_integer(1, element as i64).with_message(2, &shape);
    Message::default().with_text(1, name).with_message(2, &Message::default().with_message(1, &tensor))
}

/// `AttributeProto`
pub mod attribute {
    use super::Message;

    /// The field with the attribute's type.
    const TYPE: u8 = 20;

    pub fn float(name: &str, value: f32) -> Message {
        named(name).with_float(2, value).with_integer(TYPE, 1)
    }

    pub fn int(name: &str, value: i64) -> Message {
        named(name).with_integer(3, value).with_integer(TYPE, 2)
    }

    pub fn ints(name: &str, values: impl IntoIterator<Item = i64>) -> Message {
        named(name).with_integers(8, values).with_integer(TYPE, 7)
    }

    pub fn strings(name: &str, values: impl IntoIterator<Item = String>) -> Message {
        let values = values.into_iter().fold(named(name), |own, value| own.with_bytes(9, value.as_bytes()));
        values.with_integer(TYPE, 8)
    }

    fn named(name: &str) -> Message {
        Message::default().with_text(1, name)
    }
}
