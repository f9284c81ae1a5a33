//! The protobuf messages of <https://github.com/onnx/onnx/blob/main/onnx/onnx.proto>, as far as they are
//! needed here.

use prost::Message;

/// Element types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    Float = 1,
    String = 8,
    Double = 11,
}

#[derive(Clone, PartialEq, Message)]
pub struct Model {
    #[prost(int64, tag = "1")]
    pub ir_version: i64,
    #[prost(string, tag = "2")]
    pub producer_name: String,
    #[prost(string, tag = "3")]
    pub producer_version: String,
    #[prost(string, tag = "6")]
    pub doc_string: String,
    #[prost(message, optional, tag = "7")]
    pub graph: Option<Graph>,
    #[prost(message, repeated, tag = "8")]
    pub opset_import: Vec<OperatorSet>,
    #[prost(message, repeated, tag = "14")]
    pub metadata_props: Vec<Entry>,
}

#[derive(Clone, PartialEq, Message)]
pub struct OperatorSet {
    #[prost(string, tag = "1")]
    pub domain: String,
    #[prost(int64, tag = "2")]
    pub version: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Entry {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(string, tag = "2")]
    pub value: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct Graph {
    #[prost(message, repeated, tag = "1")]
    pub node: Vec<Node>,
    #[prost(string, tag = "2")]
    pub name: String,
    #[prost(message, repeated, tag = "5")]
    pub initializer: Vec<Tensor>,
    #[prost(message, repeated, tag = "11")]
    pub input: Vec<Value>,
    #[prost(message, repeated, tag = "12")]
    pub output: Vec<Value>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Node {
    #[prost(string, repeated, tag = "1")]
    pub input: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    pub output: Vec<String>,
    #[prost(string, tag = "4")]
    pub op_type: String,
    #[prost(message, repeated, tag = "5")]
    pub attribute: Vec<Attribute>,
    #[prost(string, tag = "7")]
    pub domain: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct Attribute {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(float, optional, tag = "2")]
    pub f: Option<f32>,
    #[prost(int64, optional, tag = "3")]
    pub i: Option<i64>,
    #[prost(int64, repeated, tag = "8")]
    pub ints: Vec<i64>,
    #[prost(bytes = "vec", repeated, tag = "9")]
    pub strings: Vec<Vec<u8>>,
    #[prost(int32, tag = "20")]
    pub kind: i32,
}

#[derive(Clone, PartialEq, Message)]
pub struct Tensor {
    #[prost(int64, repeated, tag = "1")]
    pub dims: Vec<i64>,
    #[prost(int32, tag = "2")]
    pub data_type: i32,
    #[prost(string, tag = "8")]
    pub name: String,
    /// Little-endian.
    #[prost(bytes = "vec", tag = "9")]
    pub raw_data: Vec<u8>,
}

/// An input or output of the graph.
#[derive(Clone, PartialEq, Message)]
pub struct Value {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(message, optional, tag = "2")]
    pub kind: Option<Type>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Type {
    #[prost(message, optional, tag = "1")]
    pub tensor: Option<TensorType>,
}

#[derive(Clone, PartialEq, Message)]
pub struct TensorType {
    #[prost(int32, tag = "1")]
    pub element: i32,
    #[prost(message, optional, tag = "2")]
    pub shape: Option<Shape>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Shape {
    #[prost(message, repeated, tag = "1")]
    pub dims: Vec<Dimension>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Dimension {
    #[prost(int64, optional, tag = "1")]
    pub value: Option<i64>,
    /// The name of a size that is known only once there are rows.
    #[prost(string, optional, tag = "2")]
    pub name: Option<String>,
}

impl Attribute {
    pub fn float(name: &str, f: f32) -> Self {
        Self { name: name.to_owned(), f: Some(f), kind: 1, ..Self::default() }
    }

    pub fn int(name: &str, i: i64) -> Self {
        Self { name: name.to_owned(), i: Some(i), kind: 2, ..Self::default() }
    }

    pub fn ints(name: &str, ints: Vec<i64>) -> Self {
        Self { name: name.to_owned(), ints, kind: 7, ..Self::default() }
    }

    pub fn strings(name: &str, strings: impl Iterator<Item = String>) -> Self {
        let strings = strings.map(String::into_bytes).collect();
        Self { name: name.to_owned(), strings, kind: 8, ..Self::default() }
    }
}

impl Value {
    /// A tensor with `width` elements per row; one-dimensional if that is `None`.
    pub fn rows(name: &str, element: Element, width: Option<usize>) -> Self {
        let rows = Dimension { name: Some("rows".to_owned()), value: None };
        let width = width.map(|width| Dimension { value: Some(width as i64), name: None });
        let shape = Some(Shape { dims: [rows].into_iter().chain(width).collect() });
        let tensor = Some(TensorType { element: element as i32, shape });
        Self { name: name.to_owned(), kind: Some(Type { tensor }) }
    }
}
