//! burn with its backend `flex`, the fastest CPU backend that builds without downloads: tensors of all rows,
//! batches by `select`.

use std::process::ExitCode;

use burn::module::Module;
use burn::nn::loss::{CrossEntropyLoss, MseLoss, Reduction};
use burn::nn::{Linear, LinearConfig};
use burn::optim::{AdamConfig, GradientsParams, SgdConfig};
use burn::tensor::activation::relu;
use burn::tensor::{Device, Int, Tensor, TensorData};
use rivals::{Job, Optimizer, Order, Outcome, Targets, Train, Trained};

fn main() -> ExitCode {
    rivals::run("burn", |job, data| {
        let device = Device::flex().autodiff();
        let (x, y) = tensors(job, data.rows, data.x, data.y, &device);
        let held_out = data.held_out.map(|(rows, x, y)| tensors(job, rows, x, y, &device));
        let burn = Burn { job: job.clone(), rows: data.rows, x, y, held_out, device };
        Ok(Box::new(move |epochs| burn.train(epochs)) as Train)
    })
}

#[derive(Clone)]
enum Wanted {
    Values(Tensor<2>),
    Classes(Tensor<1, Int>),
}

fn tensors(job: &Job, rows: usize, x: Vec<f32>, y: Targets, device: &Device) -> (Tensor<2>, Wanted) {
    let x = Tensor::from_data(TensorData::new(x, [rows, job.inputs()]), device);
    let y = match y {
        Targets::Values(values) => {
            Wanted::Values(Tensor::from_data(TensorData::new(values, [rows, job.outputs()]), device))
        }
        Targets::Classes(classes) => {
            Wanted::Classes(Tensor::from_data(TensorData::new(classes, [rows]), device))
        }
    };
    (x, y)
}

#[derive(Module, Debug)]
struct Network {
    layers: Vec<Linear>,
}

impl Network {
    fn loss(&self, x: Tensor<2>, y: Wanted, device: &Device) -> Tensor<1> {
        let mut out = self.layers[0].forward(x);
        for layer in &self.layers[1..] {
            out = layer.forward(relu(out));
        }
        match y {
            Wanted::Values(values) => MseLoss::new().forward(out, values, Reduction::Mean),
            Wanted::Classes(classes) => CrossEntropyLoss::new(None, device).forward(out, classes),
        }
    }
}

struct Burn {
    job: Job,
    rows: usize,
    x: Tensor<2>,
    y: Wanted,
    held_out: Option<(Tensor<2>, Wanted)>,
    device: Device,
}

impl Burn {
    fn train(&self, epochs: usize) -> Outcome<Trained> {
        let device = &self.device;
        device.seed(0);
        let layer = |pair: &[usize]| LinearConfig::new(pair[0], pair[1]).init(device);
        let mut network = Network { layers: self.job.widths.windows(2).map(layer).collect() };
        let mut optimizer = match self.job.optimizer {
            Optimizer::Sgd => SgdConfig::new().init(),
            Optimizer::Adam => AdamConfig::new().with_epsilon(1e-8).init(),
        };
        let mut order = Order::new(self.rows, self.job.batch);
        let mut trained = Trained::default();
        for _ in 0..epochs {
            for rows in order.shuffled() {
                let indices: Vec<i32> = rows.iter().map(|&row| row as i32).collect();
                let rows = Tensor::<1, Int>::from_data(TensorData::new(indices, [rows.len()]), device);
                let x = self.x.clone().select(0, rows.clone());
                let y = match &self.y {
                    Wanted::Values(values) => Wanted::Values(values.clone().select(0, rows)),
                    Wanted::Classes(classes) => Wanted::Classes(classes.clone().select(0, rows)),
                };
                let loss = network.loss(x, y, device);
                trained.losses.push(loss.clone().into_scalar());
                let gradients = GradientsParams::from_grads(loss.backward(), &network);
                network = optimizer.step(self.job.lr, network, gradients);
            }
            if let Some((x, y)) = &self.held_out {
                trained.validate(|| Ok(network.loss(x.clone(), y.clone(), device).into_scalar()))?;
            }
        }
        Ok(trained)
    }
}
