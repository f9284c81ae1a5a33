//! dfdx: a network's type contains its widths, so only the networks of the benchmark jobs are supported.
//! Batches are gathered on the host.

use std::process::ExitCode;

use dfdx::optim::{Adam, AdamConfig, Sgd, SgdConfig};
use dfdx::prelude::*;
use rivals::{Data, Job, Order, Outcome, Targets, Train, Trained, one_hot, picked};

/// The rows of a batch; the last batch may be smaller.
type Rows<const WIDTH: usize> = (usize, Const<WIDTH>);
type Taped<const WIDTH: usize> = Tensor<Rows<WIDTH>, f32, Cpu, OwnedTape<f32, Cpu>>;
type Plain<const WIDTH: usize> = Tensor<Rows<WIDTH>, f32, Cpu>;

type Hidden<const I: usize, const O: usize> = (builders::Linear<I, O>, ReLU);
type Last<const I: usize, const O: usize> = builders::Linear<I, O>;

fn main() -> ExitCode {
    rivals::run("dfdx", |job, data| match job.widths[..] {
        [2, 1] => fit::<Last<2, 1>, 2, 1>(job, data),
        [100, 1] => fit::<Last<100, 1>, 100, 1>(job, data),
        [64, 32, 10] => fit::<(Hidden<64, 32>, Last<32, 10>), 64, 10>(job, data),
        [784, 256, 10] => fit::<(Hidden<784, 256>, Last<256, 10>), 784, 10>(job, data),
        [784, 2048, 2048, 10] => {
            fit::<(Hidden<784, 2048>, Hidden<2048, 2048>, Last<2048, 10>), 784, 10>(job, data)
        }
        _ => Err(format!("no network of widths {:?} was compiled: add it here", job.widths).into()),
    })
}

fn fit<N, const I: usize, const O: usize>(job: &Job, data: Data) -> Outcome<Train>
where
    N: BuildOnDevice<Cpu, f32> + 'static,
    N::Built: Network<I, O>,
{
    let job = job.clone();
    Ok(Box::new(move |epochs| {
        let device = Cpu::seed_from_u64(0);
        let network = device.build_module::<N, f32>();
        let lr = job.lr;
        match job.optimizer {
            rivals::Optimizer::Sgd => {
                let optimizer = Sgd::new(&network, SgdConfig { lr, ..Default::default() });
                train(&job, &data, device, network, optimizer, epochs)
            }
            rivals::Optimizer::Adam => {
                let optimizer = Adam::new(&network, AdamConfig { lr, ..Default::default() });
                train(&job, &data, device, network, optimizer, epochs)
            }
        }
    }))
}

trait Network<const I: usize, const O: usize>:
    TensorCollection<f32, Cpu>
    + ModuleMut<Taped<I>, Output = Taped<O>, Error = CpuError>
    + Module<Plain<I>, Output = Plain<O>, Error = CpuError>
{
}

impl<const I: usize, const O: usize, N> Network<I, O> for N where
    N: TensorCollection<f32, Cpu>
        + ModuleMut<Taped<I>, Output = Taped<O>, Error = CpuError>
        + Module<Plain<I>, Output = Plain<O>, Error = CpuError>
{
}

fn train<N: Network<I, O>, const I: usize, const O: usize>(
    job: &Job,
    data: &Data,
    device: Cpu,
    mut network: N,
    mut optimizer: impl Optimizer<N, Cpu, f32>,
    epochs: usize,
) -> Outcome<Trained> {
    let mut gradients = network.alloc_grads();
    let mut order = Order::new(data.rows, job.batch);
    let mut trained = Trained::default();
    for _ in 0..epochs {
        for rows in order.shuffled() {
            let (mut x, mut y) = (Vec::with_capacity(rows.len() * I), Vec::new());
            picked(&data.x, I, rows, &mut x);
            match &data.y {
                Targets::Values(values) => picked(values, O, rows, &mut y),
                Targets::Classes(classes) => y = one_hot(rows.iter().map(|&row| classes[row as usize]), O),
            }
            let x: Plain<I> = device.tensor_from_vec(x, (rows.len(), Const));
            let y: Plain<O> = device.tensor_from_vec(y, (rows.len(), Const));
            let out = network.forward_mut(x.traced(gradients));
            let loss = match job.loss {
                rivals::Loss::Mse => mse_loss(out, y),
                rivals::Loss::CrossEntropy => cross_entropy_with_logits_loss(out, y),
            };
            trained.losses.push(loss.array());
            gradients = loss.backward();
            optimizer.update(&mut network, &gradients).map_err(|e| format!("{e:?}"))?;
            network.zero_grads(&mut gradients);
        }
        if let Some((rows, x, Targets::Values(y))) = &data.held_out {
            trained.validate(|| {
                let x: Plain<I> = device.tensor_from_vec(x.clone(), (*rows, Const));
                let y: Plain<O> = device.tensor_from_vec(y.clone(), (*rows, Const));
                Ok(mse_loss(network.forward(x), y).array())
            })?;
        }
    }
    Ok(trained)
}
