//! A Sequential of layers whose parameters live on a device.

use std::path::Path;

use super::{Device, Tensor, TensorError, file};
use crate::{
    device::{Purpose, backend::Linear},
    program::{Activation, Parameter, initial_parameter},
    spec::{Init, Layer},
};

/// Layers with their parameters on one device. Parameters bear the names and the order of axes that PyTorch's
/// `nn.Sequential` gives them: `0.weight` is `[out, in]`.
#[derive(Debug)]
pub struct Sequential {
    device: Device,
    inputs: usize,
    steps: Vec<Step>,
    /// In order, each with its name.
    parameters: Vec<(String, Tensor)>,
}

/// What one layer does when nothing is learned; dropout does nothing then.
#[derive(Debug)]
enum Step {
    Linear { weight: Tensor, bias: Option<Tensor>, outputs: usize },
    Activate(Activation),
    Nothing,
}

impl Sequential {
    /// With initial parameters as training would give them: by `init`, from the seed, on the host, and copied.
    pub fn new(
        device: &Device,
        layers: &[Layer],
        inputs: usize,
        init: &Init,
        seed: u64,
    ) -> Result<Self, TensorError> {
        let mut net = Self { device: device.clone(), inputs, steps: Vec::new(), parameters: Vec::new() };
        let mut width = inputs;
        for (index, layer) in layers.iter().enumerate() {
            let step = match layer {
                Layer::Linear(linear) => {
                    let outputs = linear.out_features;
                    let weight =
                        net.parameter_of(format!("{index}.weight"), &[width, outputs], width, init, seed)?;
                    let bias = if linear.bias {
                        Some(net.parameter_of(format!("{index}.bias"), &[outputs], width, init, seed)?)
                    } else {
                        None
                    };
                    width = outputs;
                    Step::Linear { weight, bias, outputs }
                }
                Layer::Relu => Step::Activate(Activation::Relu),
                Layer::Gelu => Step::Activate(Activation::Gelu),
                Layer::Tanh => Step::Activate(Activation::Tanh),
                Layer::Sigmoid => Step::Activate(Activation::Sigmoid),
                Layer::Dropout { .. } => Step::Nothing,
                other => return Err(TensorError::NoLayer { layer: other.torch_name() }),
            };
            net.steps.push(step);
        }
        if let Init::File(path) = init {
            net.load(path)?;
        }
        Ok(net)
    }

    /// Draws a parameter of `shape` in the programs' order of axes, `[in, out]`, and puts it on the device.
    fn parameter_of(
        &mut self,
        name: String,
        shape: &[usize],
        inputs: usize,
        init: &Init,
        seed: u64,
    ) -> Result<Tensor, TensorError> {
        let index = self.parameters.len();
        let parameter = Parameter { name: name.clone(), offset: 0, shape: shape.to_vec(), constant: None };
        let turned: Vec<usize> = shape.iter().rev().copied().collect();
        let tensor = if let Init::File(_) = init {
            Tensor::empty(&self.device, &turned)?
        } else {
            let mut values = vec![0.0; parameter.elements()];
            initial_parameter(init, &parameter, index, inputs, seed, &mut values);
            let (_, values) = crate::program::exported(&parameter, &values);
            Tensor::written(&self.device, &turned, &values, Purpose::Parameters)?
        };
        let tensor = tensor.named(&name);
        self.parameters.push((name, tensor.clone()));
        Ok(tensor)
    }

    /// The parameters by name, in order.
    pub fn parameters(&self) -> impl Iterator<Item = (&str, &Tensor)> {
        self.parameters.iter().map(|(name, tensor)| (name.as_str(), tensor))
    }

    /// The output for `[rows, inputs]`, on the same device.
    ///
    /// # Errors
    /// Where the input lives elsewhere than the parameters, or is of another width.
    pub fn apply(&self, x: &Tensor) -> Result<Tensor, TensorError> {
        if let Some((_, first)) = self.parameters.first() {
            x.meets(first)?;
            let fits = matches!(x.shape().axes(), [_, width] if *width == self.inputs);
            x.fits(first, fits, "multiplied", "the input must be [rows, in]")?;
        }
        let rows = x.shape().axes().first().copied().unwrap_or(1);
        let (mut now, mut width) = (x.clone(), self.inputs);
        for step in &self.steps {
            now = match step {
                Step::Linear { weight, bias, outputs } => {
                    let y = Tensor::empty(&self.device, &[rows, *outputs])?;
                    self.device.place().linear(Linear {
                        x: now.handle(),
                        weight: weight.handle(),
                        bias: bias.as_ref().map(Tensor::handle),
                        y: y.handle(),
                        shape: [rows, width, *outputs],
                    })?;
                    width = *outputs;
                    y
                }
                Step::Activate(activation) => {
                    let y = Tensor::empty(&self.device, now.shape().axes())?;
                    self.device.place().activate(*activation, now.handle(), y.handle())?;
                    y
                }
                Step::Nothing => now,
            };
        }
        Ok(now)
    }

    /// Writes the parameters to a safetensors file, straight from the device's memory.
    ///
    /// # Errors
    /// Where the file cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), TensorError> {
        let named: Vec<(&str, &Tensor)> = self.parameters().collect();
        file::save(path, &named)
    }

    /// Reads the parameters from a safetensors file, straight into the device's memory.
    ///
    /// # Errors
    /// Where the file does not hold them all, in their shapes.
    pub fn load(&self, path: &Path) -> Result<(), TensorError> {
        file::load_into(path, &self.parameters)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{spec, tensor::Devices};

    fn layers() -> Vec<Layer> {
        let linear =
            |out_features| Layer::Linear(spec::Linear { out_features, in_features: None, bias: true });
        vec![linear(4), Layer::Gelu, Layer::Dropout { p: 0.5 }, linear(1), Layer::Sigmoid]
    }

    #[test]
    fn a_net_agrees_with_double_precision_on_every_device() {
        let devices = Devices::with_virtual_gpus(2);
        let mut outputs = Vec::new();
        for device in devices.iter() {
            let x = Tensor::rand(device, &[5, 3], 7, 0).expect("room");
            let net = Sequential::new(device, &layers(), 3, &Init::Pytorch, 7).expect("room");
            let y = net.apply(&x).expect("an output");
            assert_eq!((y.shape().axes(), y.device()), (&[5, 1][..], device));
            assert!(net.parameters().all(|(_, p)| p.device() == device));
            let values = |name: &str| -> Vec<f64> {
                let values = net
                    .parameters()
                    .find(|(own, _)| *own == name)
                    .expect("a parameter")
                    .1
                    .values()
                    .expect("numbers");
                values.into_iter().map(f64::from).collect()
            };
            let (w0, b0, w1, b1) =
                (values("0.weight"), values("0.bias"), values("3.weight"), values("3.bias"));
            let (input, output) = (x.values().expect("x"), y.values().expect("y"));
            for row in 0..5 {
                let hidden = |o: usize| {
                    let sum: f64 = (0..3).map(|i| f64::from(input[row * 3 + i]) * w0[o * 3 + i]).sum();
                    Activation::Gelu.value(sum + b0[o])
                };
                let sum: f64 = (0..4).map(|o| hidden(o) * w1[o]).sum();
                let exact = Activation::Sigmoid.value(sum + b1[0]);
                assert!((f64::from(output[row]) - exact).abs() < 1e-6, "{} {exact}", output[row]);
            }
            outputs.push(output);
        }
        assert!(outputs.iter().all(|o| *o == outputs[0]), "the same bits on every device");
    }

    #[test]
    fn parameters_go_to_a_file_and_back_to_another_device() {
        let devices = Devices::with_virtual_gpus(2);
        let (first, second) =
            (devices.get("virtual:0").expect("there"), devices.get("virtual:1").expect("there"));
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("net.safetensors");
        let net = Sequential::new(first, &layers(), 3, &Init::XavierUniform, 1).expect("room");
        net.save(&path).expect("a file");
        let other = Sequential::new(second, &layers(), 3, &Init::File(path), 2).expect("the same layers");
        for ((name, a), (_, b)) in net.parameters().zip(other.parameters()) {
            assert_eq!(a.values().expect(name), b.values().expect(name), "{name}");
        }
        let x = Tensor::ones(first, &[1, 3]).expect("room").named("X");
        let refused = other.apply(&x).expect_err("another device").to_string();
        assert_eq!(
            refused,
            "`X` is on virtual:0 and `0.weight` on virtual:1; copy one: `Z = X.copy(virtual:1)`"
        );
        let wide = Tensor::ones(first, &[1, 4]).expect("room").named("X");
        assert_eq!(
            net.apply(&wide).expect_err("too wide").to_string(),
            "`X` of shape [1, 4] and `0.weight` of shape [4, 3] cannot be multiplied: the input must be [rows, in]"
        );
    }
}
