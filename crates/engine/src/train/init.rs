//! Initial weights: drawn on the host from the seed, so that every device has the same, or read from a file.

use crate::{
    data::Weights,
    program::{Layout, imported, initial_parameter},
    spec::Init,
};

/// The flat buffer of parameters, each at its offset and in the layout's axis order.
pub fn initial_values(init: &Init, layout: &Layout, seed: u64, file: Option<&Weights>) -> Vec<f32> {
    let end = layout.buffers[layout.values.0].len;
    let mut values = vec![0.0; end];
    let mut inputs = 0;
    for (index, parameter) in layout.parameters.iter().enumerate() {
        let to = &mut values[parameter.offset..parameter.offset + parameter.elements()];
        if let [width, _] = parameter.shape[..] {
            inputs = width;
        }
        match init {
            Init::File(_) => {
                if let Some(tensor) = file.and_then(|f| f.get(&parameter.name)) {
                    imported(parameter, &tensor.values, to);
                }
            }
            _ => initial_parameter(init, parameter, index, inputs, seed, to),
        }
    }
    values
}
