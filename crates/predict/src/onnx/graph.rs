//! Builds a graph node by node.

use std::collections::BTreeSet;

use super::messages::{self, Element};
use crate::record::protobuf::Message;

/// Every name in the graph is unique.
#[derive(Default)]
pub struct GraphBuilder {
    nodes: Vec<Message>,
    tensors: Vec<Message>,
    inputs: Vec<(String, Message)>,
    taken: BTreeSet<String>,
}

/// A `GraphProto` with the names of its inputs and outputs.
pub struct Graph {
    pub message: Message,
    pub inputs: Vec<String>,
    pub outputs: Vec<String>,
}

impl GraphBuilder {
    /// Adds an input under exactly this name.
    pub fn input(&mut self, name: &str, element: Element, width: usize) -> String {
        self.taken.insert(name.to_owned());
        self.inputs.push((name.to_owned(), messages::rows(name, element, Some(width))));
        name.to_owned()
    }

    /// An unused name: `name`, followed by as many `_` as needed.
    fn unused(&mut self, name: &str) -> String {
        let mut name = name.to_owned();
        while !self.taken.insert(name.clone()) {
            name.push('_');
        }
        name
    }

    pub fn floats(&mut self, name: &str, dims: &[usize], values: &[f32]) -> String {
        let elements: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
        self.tensor(name, Element::Float, dims, &elements)
    }

    pub fn doubles(&mut self, name: &str, values: &[f64]) -> String {
        let elements: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
        self.tensor(name, Element::Double, &[values.len()], &elements)
    }

    pub fn integers(&mut self, name: &str, values: &[i64]) -> String {
        let elements: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
        self.tensor(name, Element::Int64, &[values.len()], &elements)
    }

    fn tensor(&mut self, name: &str, element: Element, dims: &[usize], elements: &[u8]) -> String {
        let name = self.unused(name);
        self.tensors.push(messages::tensor(&name, element, dims, elements));
        name
    }

    /// Adds an operation and returns the name of its output: `output`, or a variant of it if that is taken.
    /// The names of operations in the domain `ai.onnx.ml` start with that domain.
    pub fn node(&mut self, op: &str, inputs: &[&str], attributes: &[Message], output: &str) -> String {
        let output = self.unused(output);
        self.nodes.push(messages::node(op, inputs, attributes, &output));
        output
    }

    /// Declares the outputs: name, element type, width.
    pub fn finish(self, name: &str, outputs: &[(&str, Element, Option<usize>)]) -> Graph {
        let declared: Vec<Message> =
            outputs.iter().map(|&(name, element, width)| messages::rows(name, element, width)).collect();
        let graph = Message::default().with_messages(1, &self.nodes).with_text(2, name);
        let graph = graph.with_messages(5, &self.tensors);
        let graph = graph.with_messages(11, self.inputs.iter().map(|(_, input)| input));
        Graph {
            message: graph.with_messages(12, &declared),
            inputs: self.inputs.into_iter().map(|(name, _)| name).collect(),
            outputs: outputs.iter().map(|(name, ..)| (*name).to_owned()).collect(),
        }
    }
}
