//! The gradients of the f64 references, compared with finite differences of their loss.

use runner::{
    program::{Hyper, LossKind, Options, Programs, lower, reference::Memory},
    spec::{Layer, Linear, Policy},
};

use super::{Bench, Numbers, programs::sgd};

pub const fn linear(out_features: usize, bias: bool) -> Layer {
    Layer::Linear(Linear { out_features, in_features: None, bias })
}

/// The gradient of the mean loss with respect to every parameter, and the loss itself, in f64.
fn loss(programs: &Programs, bench: &Bench, values: &[f64]) -> (f64, Vec<f64>) {
    let mut memory: Memory = bench.memory();
    (memory.step, memory.hyper) = (4, Hyper::default());
    memory.buffers[programs.layout.values.0] = values.to_vec();
    memory.run(&programs.train.instructions);
    let gradients = programs.layout.buffers.iter().position(|b| b.name == "gradients").unwrap();
    (memory.buffers[programs.layout.log.0][0], memory.buffers[gradients].clone())
}

fn check(layers: &[Layer], kind: LossKind) {
    let (rows, features, outputs) = (9, 4, 3);
    let targets = if kind.classifies() { 1 } else { outputs };
    let programs = lower(&Options {
        rule: sgd(true, false, 0.0),
        policy: Policy::Immediate,
        ..Options::new(layers, kind, [features, targets], rows)
    });
    let mut bench = Bench::new(Some(&programs.layout));
    let mut numbers = Numbers(3);
    bench.contents[0] = numbers.take(rows * features);
    bench.contents[1] = match kind {
        LossKind::CrossEntropy => (0..rows).map(|row| (row % outputs) as f32).collect(),
        // Targets large enough that some residuals exceed Huber's delta.
        _ => numbers.take(rows * targets).into_iter().map(|y| 3.0 * y).collect(),
    };
    let len = programs.layout.buffers[programs.layout.values.0].len;
    let mut values: Vec<f64> = numbers.take(len).into_iter().map(f64::from).collect();
    let (_, gradient) = loss(&programs, &bench, &values);
    const STEP: f64 = 1e-6;
    for parameter in &programs.layout.parameters {
        for i in parameter.offset..parameter.offset + parameter.elements() {
            let value = values[i];
            let mut at = |x| {
                values[i] = x;
                loss(&programs, &bench, &values).0
            };
            let difference = (at(value + STEP) - at(value - STEP)) / (2.0 * STEP);
            values[i] = value;
            let (got, name) = (gradient[i], &parameter.name);
            assert!((got - difference).abs() < 1e-7, "{layers:?} {kind:?} {name}: {got} {difference}");
        }
    }
}

#[test]
fn references_agree_with_finite_differences() {
    let models = [
        vec![linear(3, true)],
        vec![linear(5, true), Layer::Relu, linear(3, false)],
        vec![linear(5, true), Layer::Silu, linear(6, true), Layer::Tanh, linear(3, true)],
        vec![Layer::Gelu, linear(5, false), Layer::Sigmoid, Layer::Gelu, linear(3, true), Layer::Tanh],
        vec![Layer::Dropout { p: 0.3 }, linear(7, true), Layer::Dropout { p: 0.5 }, linear(3, true)],
        vec![linear(7, true), Layer::Tanh, Layer::Dropout { p: 0.5 }, Layer::Relu, linear(3, true)],
        vec![Layer::LayerNorm { eps: 0.1 }, linear(5, true), Layer::Relu, linear(3, true)],
        vec![
            linear(5, true),
            Layer::LayerNorm { eps: 0.1 },
            Layer::Tanh,
            linear(3, true),
            Layer::LayerNorm { eps: 0.1 },
        ],
        vec![linear(4, true), linear(5, true), linear(3, true), Layer::Dropout { p: 0.2 }],
    ];
    for layers in &models {
        for kind in [LossKind::Mse, LossKind::L1, LossKind::Huber, LossKind::CrossEntropy] {
            check(layers, kind);
        }
    }
}
