//! candle: tensors of all rows, batches by `index_select`. Its `mkl` feature needs Intel's library and is not
//! used.

use std::process::ExitCode;

use candle_core::{Device, Result, Tensor, Var};
use candle_nn::{AdamW, Linear, Module, Optimizer as _, ParamsAdamW, SGD};
use rivals::{Job, Loss, Optimizer, Order, Outcome, Targets, Train, Trained, uniform};

fn main() -> ExitCode {
    rivals::run("candle-core", |job, data| {
        let (x, y) = tensors(job, data.rows, data.x, data.y)?;
        let held_out = data.held_out.map(|(rows, x, y)| tensors(job, rows, x, y)).transpose()?;
        let candle = Candle { job: job.clone(), rows: data.rows, x, y, held_out };
        Ok(Box::new(move |epochs| candle.train(epochs)) as Train)
    })
}

fn tensors(job: &Job, rows: usize, x: Vec<f32>, y: Targets) -> Result<(Tensor, Tensor)> {
    let x = Tensor::from_vec(x, (rows, job.inputs()), &Device::Cpu)?;
    let y = match y {
        Targets::Values(values) => Tensor::from_vec(values, (rows, job.outputs()), &Device::Cpu)?,
        Targets::Classes(classes) => {
            let classes: Vec<u32> = classes.into_iter().map(|class| class as u32).collect();
            Tensor::from_vec(classes, rows, &Device::Cpu)?
        }
    };
    Ok((x, y))
}

struct Candle {
    job: Job,
    rows: usize,
    x: Tensor,
    y: Tensor,
    held_out: Option<(Tensor, Tensor)>,
}

impl Candle {
    fn train(&self, epochs: usize) -> Outcome<Trained> {
        let (layers, variables) = network(&self.job)?;
        let lr = self.job.lr;
        match self.job.optimizer {
            Optimizer::Sgd => self.train_by(SGD::new(variables, lr)?, &layers, epochs),
            Optimizer::Adam => {
                let config = ParamsAdamW { lr, weight_decay: 0.0, ..Default::default() };
                self.train_by(AdamW::new(variables, config)?, &layers, epochs)
            }
        }
    }

    fn train_by(
        &self,
        mut optimizer: impl candle_nn::Optimizer,
        layers: &[Linear],
        epochs: usize,
    ) -> Outcome<Trained> {
        let mut order = Order::new(self.rows, self.job.batch);
        let mut trained = Trained::default();
        for _ in 0..epochs {
            for rows in order.shuffled() {
                let rows = Tensor::from_slice(rows, rows.len(), &Device::Cpu)?;
                let (x, y) = (self.x.index_select(&rows, 0)?, self.y.index_select(&rows, 0)?);
                let loss = self.loss(layers, &x, &y)?;
                trained.losses.push(loss.to_scalar()?);
                optimizer.backward_step(&loss)?;
            }
            if let Some((x, y)) = &self.held_out {
                trained.validate(|| Ok(self.loss(layers, x, y)?.to_scalar()?))?;
            }
        }
        Ok(trained)
    }

    fn loss(&self, layers: &[Linear], x: &Tensor, y: &Tensor) -> Result<Tensor> {
        let mut out = layers[0].forward(x)?;
        for layer in &layers[1..] {
            out = layer.forward(&out.relu()?)?;
        }
        match self.job.loss {
            Loss::Mse => candle_nn::loss::mse(&out, y),
            Loss::CrossEntropy => candle_nn::loss::cross_entropy(&out, y),
        }
    }
}

fn network(job: &Job) -> Result<(Vec<Linear>, Vec<Var>)> {
    let mut random = fastrand::Rng::with_seed(0);
    let (mut layers, mut variables) = (Vec::new(), Vec::new());
    for pair in job.widths.windows(2) {
        let (inputs, outputs) = (pair[0], pair[1]);
        let weight = uniform(&mut random, inputs * outputs, inputs);
        let weight = Var::from_vec(weight, (outputs, inputs), &Device::Cpu)?;
        let bias = Var::from_vec(uniform(&mut random, outputs, inputs), outputs, &Device::Cpu)?;
        layers.push(Linear::new(weight.as_tensor().clone(), Some(bias.as_tensor().clone())));
        variables.extend([weight, bias]);
    }
    Ok((layers, variables))
}
