//! Lowers a Sequential over tensors to its parameters and its ops.

use super::{
    step::{Action, NetParameter},
    tensors::{Made, Tour},
};
use crate::{
    plan::DeviceId,
    program::{Activate, Activation, Add, InputGradient, LayerNorm, Parameter, Slice},
    spec::{
        self, DeviceName, Layer, Problem,
        lab::{DType, Net, Start, Step},
    },
};

impl Tour<'_> {
    #[allow(clippy::too_many_lines, reason = "a check per operand, then an op per layer")]
    pub(super) fn net(&mut self, index: usize, step: &Step, net: &Net) -> Option<(Action, Made)> {
        let key = format!("tensors.step.{index}.net");
        let mut now = *self.made.get(&net.input)?;
        let input = self.values[now.value].clone();
        let (rows, mut width) = match input.shape[..] {
            [rows, width] if width > 0 => (rows, width),
            ref shape => {
                let message = format!("`{}` has the shape {shape:?}: a net takes [rows, in]", net.input);
                self.problems.push(Problem::at_key(format!("{key}.input"), message));
                return None;
            }
        };
        let (asked, device) = (step.device.unwrap_or(now.asked), input.device);
        let (mut parameters, mut ops) = (Vec::new(), Vec::new());
        for (i, layer) in net.layers.iter().enumerate() {
            if let Layer::Linear(linear) = layer
                && let Some(given) = linear.in_features.filter(|given| *given != width)
            {
                let message =
                    format!("`in_features = {given}` does not fit layer {i}: its input has {width}");
                let problem = Problem::at_key(format!("{key}.layers.{i}.linear.in_features"), message);
                self.problems.push(problem.hint("leave `in_features` out: it is inferred"));
            }
            let outputs = layer.outputs(width);
            let place = (asked, device);
            let learned = self.learned(step, net, (i, layer.parameters(width)), place, &key)?;
            let own: Vec<Slice> = learned.iter().map(|(value, _)| self.slice(*value)).collect();
            let parameter = |(value, parameter)| NetParameter { value, parameter, inputs: width };
            parameters.extend(learned.into_iter().map(parameter));
            let x = self.slice(now.value);
            let mut output = |tour: &mut Self| -> Option<Slice> {
                now = tour.put((asked, device), DType::F32, vec![rows, outputs], &key)?;
                Some(tour.slice(now.value))
            };
            match (layer, &own[..]) {
                (Layer::Linear(_), [weight, bias @ ..]) => {
                    // y = x Wᵀ with W in PyTorch's `[out, in]` order. The op for input gradients computes
                    // just that product: a layer with weight W returns it when given x as its output
                    // gradient.
                    let (dy, dx, weight) = (x, output(self)?, *weight);
                    let (inputs, outputs, derivative) = (outputs, width, None);
                    ops.push(InputGradient { dy, weight, dx, derivative, rows, inputs, outputs }.into());
                    if let [bias] = bias {
                        ops.push(Add { a: dx, b: *bias, y: output(self)? }.into());
                    }
                }
                (Layer::LayerNorm { eps }, [weight, bias]) => {
                    let (weight, bias, y, eps) = (*weight, *bias, output(self)?, *eps as f32);
                    ops.push(LayerNorm { x, weight, bias, y, stats: None, eps, rows, width }.into());
                }
                _ => {
                    if let Some(activation) = Activation::of_layer(layer) {
                        ops.push(Activate { activation, x, y: output(self)?, rows, width }.into());
                    }
                }
            }
            width = outputs;
        }
        Some((Action::Net { parameters, start: net.start.clone(), ops }, now))
    }

    /// The initial values of a layer's parameters. If they come from a file, checks that the shapes match.
    fn learned(
        &mut self,
        step: &Step,
        net: &Net,
        (layer, parameters): (usize, Vec<spec::Parameter>),
        (asked, device): (DeviceName, DeviceId),
        key: &str,
    ) -> Option<Vec<(usize, Parameter)>> {
        let mut learned = Vec::new();
        for spec::Parameter { name, shape, constant } in parameters {
            let name = format!("{layer}.{name}");
            let turned: Vec<usize> = shape.iter().rev().copied().collect();
            if let Start::Parameters(file) = &net.start {
                let key = format!("{key}.parameters");
                let (dtype, stored) = self.stored(file, &name, &key)?;
                if (dtype, &stored) != (DType::F32, &turned) {
                    let dtype = dtype.name();
                    let message = format!(
                        "`{name}` has the shape {stored:?} in {dtype}, the net's has {turned:?} in f32"
                    );
                    self.problems.push(Problem::at_key(key, message));
                    return None;
                }
            }
            let made = self.put((asked, device), DType::F32, turned, key)?;
            self.made.insert(format!("{}.{name}", step.name.as_deref().unwrap_or_default()), made);
            learned.push((made.value, Parameter { name, shape, offset: 0, constant }));
        }
        Some(learned)
    }
}
