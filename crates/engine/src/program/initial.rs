//! Initial values of parameters, and transposition between the programs' axis order and PyTorch's.

use rand_distr::{Distribution, StandardNormal};

use crate::{
    op::Parameter,
    random::{ChaCha8Rng, Purpose, Rng, stream},
    spec::Init,
};

/// Draws the initial values of parameter `index` into `to`, in the programs' axis order. `inputs` is the
/// width of its layer's input. Values that are not drawn (most biases; those loaded from a file) stay as they
/// are.
pub fn initial_parameter(
    init: &Init,
    parameter: &Parameter,
    index: usize,
    inputs: usize,
    seed: u64,
    to: &mut [f32],
) {
    if let Some(constant) = parameter.constant {
        return to.fill(constant);
    }
    // Drawn in PyTorch's order, `[out, in]` row by row. One random stream per parameter, so that they are
    // independent.
    let mut random = stream(seed, Purpose::Weights, index as u64);
    let is_weight = parameter.shape.len() == 2;
    let outputs = parameter.shape.last().copied().unwrap_or(1);
    match init {
        Init::Pytorch => {
            let bound = 1.0 / (inputs.max(1) as f64).sqrt();
            draw(to, parameter, || uniform(&mut random, bound));
        }
        Init::XavierUniform if is_weight => {
            let bound = (6.0 / (inputs + outputs) as f64).sqrt();
            draw(to, parameter, || uniform(&mut random, bound));
        }
        Init::KaimingNormal if is_weight => {
            let std = (2.0 / inputs.max(1) as f64).sqrt();
            draw(to, parameter, || normal(&mut random, std));
        }
        Init::Normal { std } if is_weight => draw(to, parameter, || normal(&mut random, *std)),
        Init::XavierUniform | Init::KaimingNormal | Init::Normal { .. } | Init::File(_) => {}
    }
}

/// Fills a parameter from values in PyTorch's axis order.
pub fn imported(parameter: &Parameter, values: &[f32], to: &mut [f32]) {
    let mut elements = values.iter().copied();
    draw(to, parameter, || elements.next().unwrap_or(0.0));
}

/// A parameter's values in PyTorch's axis order, taken from the flat buffer of all parameters.
pub fn exported<'a>(parameter: &Parameter, values: &'a [f32]) -> impl Iterator<Item = f32> + use<'a> {
    let own = &values[parameter.offset..parameter.offset + parameter.elements()];
    let (inputs, outputs) = match parameter.shape[..] {
        [inputs, outputs] => (inputs, outputs),
        _ => (own.len(), 1),
    };
    (0..outputs).flat_map(move |o| (0..inputs).map(move |i| own[i * outputs + o]))
}

/// Fills a parameter from `next`, called in PyTorch's axis order.
fn draw(to: &mut [f32], parameter: &Parameter, mut next: impl FnMut() -> f32) {
    match parameter.shape[..] {
        [inputs, outputs] => {
            for o in 0..outputs {
                for i in 0..inputs {
                    to[i * outputs + o] = next();
                }
            }
        }
        _ => to.iter_mut().for_each(|v| *v = next()),
    }
}

/// Uniform in (-bound, bound), from 24 random bits.
fn uniform(random: &mut ChaCha8Rng, bound: f64) -> f32 {
    let unit = f64::from(random.next_u32() >> 8) * (1.0 / 16_777_216.0);
    ((unit * 2.0 - 1.0) * bound) as f32
}

fn normal(random: &mut ChaCha8Rng, std: f64) -> f32 {
    let z: f64 = StandardNormal.sample(random);
    (z * std) as f32
}
