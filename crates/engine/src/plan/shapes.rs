//! Shapes: each layer's input width is the output width of the layer before; the last output must fit the
//! targets.

use super::dataset_info::DatasetInfo;
use crate::{
    spec::{Layer, Model, Problem},
    units,
};

/// The most parameters of a model: more than fit into any memory this runs on.
const MOST_PARAMETERS: u64 = 1 << 38;

/// A layer as `runner check` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerRow {
    pub index: usize,
    /// `Linear`, `ReLU`, ... as PyTorch names it.
    pub name: &'static str,
    pub inputs: usize,
    pub outputs: usize,
    /// Number of its learned parameters.
    pub parameters: u64,
}

/// Fills in every `in_features`; errors are added to `problems`.
pub fn infer(model: &mut Model, facts: DatasetInfo, problems: &mut Vec<Problem>) -> Vec<LayerRow> {
    let mut rows = Vec::with_capacity(model.layers.len());
    let (mut width, mut last, mut total) = (facts.features, None, 0u64);
    for (index, layer) in model.layers.iter_mut().enumerate() {
        let (name, inputs) = (layer.torch_name(), width);
        // The product of the axes may exceed a usize.
        let elements = |shape: &[usize]| shape.iter().fold(1u64, |n, axis| n.saturating_mul(*axis as u64));
        let own = layer.parameters(width);
        let parameters = own.iter().fold(0u64, |sum, p| sum.saturating_add(elements(&p.shape)));
        total = total.saturating_add(parameters);
        if let Layer::Linear(linear) = layer {
            let key = format!("model.layers.{index}.linear");
            if let Some(given) = linear.in_features.filter(|given| *given != width) {
                let before = match last {
                    None => format!("the data have {width} features"),
                    Some(i) => format!("layer {i} puts out {width}"),
                };
                let problem = Problem::at_key(
                    format!("{key}.in_features"),
                    format!("`in_features = {given}` does not fit layer {index}: {before}"),
                );
                problems.push(problem.hint("leave `in_features` out: it is inferred"));
            }
            linear.in_features = Some(width);
            if total > MOST_PARAMETERS && total - parameters <= MOST_PARAMETERS {
                let message =
                    format!("layer {index} makes the model larger than {MOST_PARAMETERS} parameters");
                problems.push(Problem::at_key(format!("{key}.out_features"), message));
            }
            last = Some(index);
        }
        width = layer.outputs(width);
        rows.push(LayerRow { index, name, inputs, outputs: width, parameters });
    }
    let Some(last) = last else {
        let problem =
            Problem::at_key("model.layers", "the model has no `linear` layer, so there is nothing to train");
        problems.push(problem.hint("for example `layers = [{ linear = { out_features = 1 } }]`"));
        return rows;
    };
    let key = format!("model.layers.{last}.linear.out_features");
    let numbers = units::counted(width as u64, "number");
    match facts.classes {
        Some(classes) if width < classes => {
            let message =
                format!("the model puts out {numbers} per row, and the data have {classes} classes");
            problems.push(Problem::at_key(key, message).hint(format!("set `out_features = {classes}`")));
        }
        None if width != facts.targets => {
            let targets = facts.targets;
            let message = format!("the model puts out {numbers} per row, and a target has {targets}");
            problems.push(Problem::at_key(key, message).hint(format!("set `out_features = {targets}`")));
        }
        _ => {}
    }
    rows
}
