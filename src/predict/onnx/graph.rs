//! Builds a graph node by node.

use std::collections::BTreeSet;

use super::messages::{Attribute, Element, Graph, Node, Tensor, Value};

/// Every name in the graph is unique.
#[derive(Default)]
pub struct GraphBuilder {
    graph: Graph,
    taken: BTreeSet<String>,
}

impl GraphBuilder {
    /// Adds an input under exactly this name.
    pub fn input(&mut self, name: &str, element: Element, width: usize) -> String {
        self.taken.insert(name.to_owned());
        self.graph.input.push(Value::rows(name, element, Some(width)));
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

    pub fn tensor(&mut self, name: &str, element: Element, dims: &[usize], raw_data: Vec<u8>) -> String {
        let name = self.unused(name);
        let dims = dims.iter().map(|&n| n as i64).collect();
        let tensor = Tensor { dims, data_type: element as i32, name: name.clone(), raw_data };
        self.graph.initializer.push(tensor);
        name
    }

    pub fn floats(&mut self, name: &str, dims: &[usize], values: &[f32]) -> String {
        self.tensor(name, Element::Float, dims, values.iter().flat_map(|x| x.to_le_bytes()).collect())
    }

    pub fn doubles(&mut self, name: &str, values: &[f64]) -> String {
        let raw_data = values.iter().flat_map(|x| x.to_le_bytes()).collect();
        self.tensor(name, Element::Double, &[values.len()], raw_data)
    }

    /// Adds an operation and returns the name of its output: `output`, or a variant of it if that is taken.
    /// The names of operations in the domain `ai.onnx.ml` start with that domain.
    pub fn node(&mut self, op: &str, inputs: &[&str], attribute: Vec<Attribute>, output: &str) -> String {
        let output = self.unused(output);
        let (domain, op_type) = op.rsplit_once('.').unwrap_or(("", op));
        self.graph.node.push(Node {
            input: inputs.iter().map(|&name| name.to_owned()).collect(),
            output: vec![output.clone()],
            op_type: op_type.to_owned(),
            attribute,
            domain: domain.to_owned(),
        });
        output
    }

    /// Declares the outputs: name, element type, width.
    pub fn finish(mut self, name: &str, outputs: &[(&str, Element, Option<usize>)]) -> Graph {
        self.graph.name = name.to_owned();
        let outputs = outputs.iter().map(|&(name, element, width)| Value::rows(name, element, width));
        self.graph.output = outputs.collect();
        self.graph
    }
}
