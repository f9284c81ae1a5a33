//! A graph that grows node by node.

use std::collections::BTreeSet;

use super::messages::{Attribute, Element, Graph, Node, Tensor, Value};

/// Every name in it is given once.
#[derive(Default)]
pub struct GraphBuilder {
    graph: Graph,
    taken: BTreeSet<String>,
}

impl GraphBuilder {
    /// Adds an input, whose name is kept.
    pub fn input(&mut self, name: &str, element: Element, width: usize) -> String {
        self.taken.insert(name.to_owned());
        self.graph.input.push(Value::rows(name, element, Some(width)));
        name.to_owned()
    }

    /// A name that nothing has: `name`, with `_` behind it as long as it is taken.
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

    /// Adds an operation; returns the name of its output, which `output` is where that is unused. Operations of
    /// `ai.onnx.ml` have that before their name.
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
