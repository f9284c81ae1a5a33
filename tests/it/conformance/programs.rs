//! Whole programs over several steps, including ragged batches and validation.

use runner::{
    device::PassKind,
    device::cpu::ThreadMode,
    program::{
        Accumulator, Adam, Hyper, LossKind, Op, Options, Programs, Rmsprop, Role, Sgd, Slice, UpdateRule,
        lower,
    },
    spec::{Layer, Metric, Policy},
};

use super::{At, Bench, Numbers, TEAMS, bits, close, gradients::linear, run, sums};

const FEATURES: usize = 13;
const CLASSES: usize = 10;

/// Sizes of an experiment.
#[derive(Clone, Copy)]
pub struct Sizes {
    pub rows: usize,
    pub batch: usize,
    pub validation: usize,
}

fn remainder(rows: usize, chunk: usize) -> Option<usize> {
    Some(rows % chunk).filter(|rest| *rest > 0)
}

pub fn lowered(
    layers: &[Layer],
    rule: UpdateRule,
    clip: Option<f32>,
    policy: Policy,
    sizes: Sizes,
) -> Programs {
    lowered_to(layers, rule, clip, policy, (sizes, false))
}

/// With `weighted`, classes have weights.
pub fn lowered_to(
    layers: &[Layer],
    rule: UpdateRule,
    clip: Option<f32>,
    policy: Policy,
    (Sizes { rows, batch, validation }, weighted): (Sizes, bool),
) -> Programs {
    let chunk = 32.min(validation);
    let all = [Metric::Loss, Metric::Accuracy, Metric::GradNorm, Metric::ParamNorm];
    lower(&Options {
        weighted,
        rule,
        clip,
        // Logging gradient norms would prevent the update from being fused into the products, and the fused
        // form needs a test too.
        metrics: if clip.is_some() { &all } else { &all[..2] },
        policy,
        log_slots: rows.div_ceil(batch),
        last: remainder(rows, batch),
        validation: Some((chunk, remainder(validation, chunk))),
        ordered: true,
        fold_update: true,
        ..Options::new(layers, LossKind::CrossEntropy, [FEATURES, 1], batch)
    })
}

/// The weight of a class.
pub fn weight(class: usize) -> f32 {
    [0.3, 1.0, 7.5][class % 3]
}

pub fn bench(programs: &Programs, sizes: Sizes) -> Bench {
    let mut numbers = Numbers(17);
    let mut bench = Bench::new(Some(&programs.layout));
    let mut ops = programs.train.instructions.iter().map(|instruction| &instruction.op);
    let weighted = ops.any(|op| matches!(op, Op::Loss(loss) if loss.weighted));
    for (features, rows) in [(0, sizes.rows), (2, sizes.validation)] {
        bench.contents[features] = numbers.take(rows * FEATURES);
        let classes = (0..rows).map(|row| row * 3 % CLASSES);
        bench.contents[features + 1] = match weighted {
            true => classes.flat_map(|class| [class as f32, weight(class)]).collect(),
            false => classes.map(|class| class as f32).collect(),
        };
    }
    bench.contents[4] = (0..sizes.rows).map(|i| (i * 2 % sizes.rows) as f32).collect();
    for parameter in &programs.layout.parameters {
        let scale = 1.0 / (parameter.shape[0] as f32).sqrt();
        for i in parameter.offset..parameter.offset + parameter.elements() {
            bench.contents[programs.layout.values.0][i] = numbers.next() * scale;
        }
    }
    bench
}

/// Compares an epoch and a validation by the reference with teams of every size.
fn check(layers: &[Layer], rule: UpdateRule, clip: Option<f32>, policy: Policy, sizes: Sizes) {
    let programs = lowered(layers, rule, clip, policy, sizes);
    follow(&programs, &bench(&programs, sizes), sizes, &format!("{layers:?} {rule:?}"));
}

pub fn follow(programs: &Programs, bench: &Bench, sizes: Sizes, label: &str) {
    // Operands are rounded to bfloat16, with an error of up to 2^-9.
    let tolerance = if bench.kernel.bf16_name().is_some() { 2e-2 } else { 1e-5 };
    let width = programs.layout.log_width;
    let steps = sizes.rows.div_ceil(sizes.batch);
    let hyper: Vec<Hyper> = (0..steps)
        .map(|t| Hyper {
            rate: 0.05 / (t + 1) as f32,
            first: 0.2,
            correction: 0.9,
            decay_factor: 0.999,
            loss_scale: 1.3,
        })
        .collect();

    let mut memory = bench.memory();
    memory.step = 40;
    for hyper in &hyper {
        let left = sizes.rows - memory.position;
        let program =
            if left < sizes.batch { programs.train_last.as_ref().unwrap() } else { &programs.train };
        memory.hyper = *hyper;
        memory.run(&program.instructions);
        memory.position += program.batch;
        memory.step += 1;
    }
    memory.position = 0;
    let full = programs.validate.as_ref().unwrap();
    while memory.position < sizes.validation {
        let left = sizes.validation - memory.position;
        let program = if left < full.batch { programs.validate_last.as_ref().unwrap() } else { full };
        memory.run(&program.instructions);
        memory.position += program.batch;
    }

    let mut first = None;
    // Handing over between the team and a single thread at every step must not change the bits.
    let teams = TEAMS.map(|threads| (threads, ThreadMode::Team));
    for (threads, sharing) in teams.into_iter().chain([(2, ThreadMode::InTurns), (3, ThreadMode::InTurns)]) {
        let mut executor = bench.sharing_executor(programs, threads, sharing);
        // Two blocks, so that one starts in the middle of an epoch.
        let half = steps / 2;
        let at = At { work: PassKind::Train, step: 40, position: 0, rows: sizes.rows, slot: 0 };
        assert_eq!(run(&mut executor, at, half, &hyper[..half]), None);
        let at = At { step: 40 + half as u64, position: half * sizes.batch, slot: half, ..at };
        assert_eq!(run(&mut executor, at, steps - half, &hyper[half..]), None);
        let at = At { work: PassKind::Validate, step: 99, position: 0, rows: sizes.validation, slot: 0 };
        run(&mut executor, at, sizes.validation.div_ceil(full.batch), &[]);
        let kept = |role: Role| matches!(role, Role::Values | Role::State | Role::Log);
        let mut got = Vec::new();
        for (i, buffer) in bench.layout.buffers.iter().enumerate().skip(5).filter(|(_, b)| kept(b.role)) {
            let mut numbers = vec![0.0; buffer.len];
            let id = runner::program::BufferId(i);
            let slice = Slice { buffer: id, offset: 0, len: buffer.len };
            runner::device::Executor::read(&mut executor, slice, &mut numbers).unwrap();
            if threads == 1 {
                close(&numbers, &memory.buffers[i], tolerance, &format!("{label}: {}", buffer.name));
            }
            got.push(numbers);
        }
        let got = bits(&got);
        let sums = [(Accumulator::Epoch, width), (Accumulator::Validation, 2)]
            .map(|(s, n)| sums(&mut executor, s, n));
        let seen: Option<&(_, _)> = first.as_ref();
        match seen {
            Some(first) => {
                assert!((&got, &sums) == (&first.0, &first.1), "{threads} threads have other bits")
            }
            None => {
                let pairs = sums.iter().zip(&memory.sums).flat_map(|(got, want)| got.iter().zip(want));
                for (got, want) in pairs {
                    assert!((got - want).abs() < tolerance * want.abs().max(1.0), "{got} {want}");
                }
                first = Some((got, sums));
            }
        }
    }
}

pub fn mlp() -> Vec<Layer> {
    vec![
        Layer::Dropout { p: 0.1 },
        linear(100, true),
        Layer::Relu,
        Layer::Dropout { p: 0.4 },
        linear(129, false),
        Layer::Gelu,
        Layer::Tanh,
        Layer::LayerNorm { eps: 1e-3 },
        linear(CLASSES, true),
    ]
}

pub fn sgd(momentum: bool, nesterov: bool, weight_decay: f32) -> UpdateRule {
    UpdateRule::Sgd(Sgd { momentum, nesterov, weight_decay })
}

pub fn adam(decoupled: bool) -> UpdateRule {
    UpdateRule::Adam(Adam { beta2: 0.99, one_minus_beta2: 0.01, eps: 1e-3, weight_decay: 0.1, decoupled })
}

pub fn rmsprop(momentum: bool, centered: bool) -> UpdateRule {
    let (alpha, one_minus_alpha, eps, weight_decay) = (0.9, 0.1, 1e-2, 0.1);
    UpdateRule::Rmsprop(Rmsprop { alpha, one_minus_alpha, eps, momentum, centered, weight_decay })
}

#[test]
fn steps_follow_the_reference_under_every_rule() {
    let sizes = Sizes { rows: 167, batch: 33, validation: 71 };
    let sgd = [sgd(false, false, 0.0), sgd(false, false, 0.1), sgd(true, true, 0.1)];
    let adaptive = [adam(false), adam(true), rmsprop(false, false), rmsprop(true, true)];
    for rule in sgd.into_iter().chain(adaptive) {
        for clip in [None, Some(0.5)] {
            check(&mlp(), rule, clip, Policy::Buffered, sizes);
        }
    }
}

#[test]
fn weighted_steps_follow_the_reference() {
    for (rows, batch, validation) in [(1, 1, 1), (5, 2, 33), (167, 33, 71)] {
        let sizes = Sizes { rows, batch, validation };
        for (layers, rule) in [(vec![linear(CLASSES, true)], UpdateRule::PLAIN_SGD), (mlp(), adam(true))] {
            for policy in [Policy::Buffered, Policy::PerEpoch] {
                let programs = lowered_to(&layers, rule, None, policy, (sizes, true));
                follow(&programs, &bench(&programs, sizes), sizes, &format!("weights, {layers:?}"));
            }
        }
    }
}

#[test]
fn steps_follow_the_reference_at_odd_sizes() {
    let rule = UpdateRule::PLAIN_SGD;
    let small = vec![linear(CLASSES, true)];
    for (rows, batch, validation) in
        [(1, 1, 1), (5, 2, 33), (257, 256, 31), (64, 64, 64), (100, 7, 1), (1000, 257, 300)]
    {
        let sizes = Sizes { rows, batch, validation };
        for layers in [&mlp(), &small] {
            for policy in [Policy::PerEpoch, Policy::Off] {
                check(layers, rule, None, policy, sizes);
            }
        }
    }
}

/// Layers wide enough for the team to share the tiles of their products: several blocks of terms and groups
/// of columns, with every kind of partial tile at the edges.
#[test]
fn steps_follow_the_reference_where_a_team_shares_products() {
    let layers = vec![
        linear(600, true),
        Layer::Gelu,
        linear(1000, true),
        Layer::Relu,
        linear(600, false),
        Layer::Tanh,
        linear(CLASSES, true),
    ];
    let rule = UpdateRule::PLAIN_SGD;
    check(&layers, rule, None, Policy::Buffered, Sizes { rows: 301, batch: 151, validation: 40 });
    let rule = sgd(true, false, 0.1);
    check(&layers, rule, None, Policy::Off, Sizes { rows: 151, batch: 151, validation: 1 });
}

/// A layer with one output, with rows wide enough and batches large enough to be read in place instead of
/// copied: through the order in training, by position in validation. The last, small batches are copied.
#[test]
fn steps_follow_the_reference_where_rows_are_read_in_place() {
    let rule = UpdateRule::PLAIN_SGD;
    for (features, activation, fold_update) in
        [(16, None, true), (100, Some(Layer::Gelu), true), (37, Some(Layer::Relu), false)]
    {
        let sizes = Sizes { rows: 3 * 130 + 40, batch: 130, validation: 2 * 90 + 70 };
        let layers: Vec<_> = std::iter::once(linear(1, true)).chain(activation).collect();
        let programs = lower(&Options {
            rule,
            log_slots: 4,
            last: remainder(sizes.rows, sizes.batch),
            validation: Some((90, Some(70))),
            ordered: true,
            fold_update,
            ..Options::new(&layers, LossKind::Mse, [features, 1], sizes.batch)
        });
        let full = [Some(&programs.train), programs.validate.as_ref(), programs.validate_last.as_ref()];
        assert!(full.into_iter().flatten().all(|p| p.features_in_place().is_some()));
        assert_eq!(programs.train_last.as_ref().and_then(|p| p.features_in_place()), None);
        let mut bench = self::bench(&programs, sizes);
        let mut numbers = Numbers(23);
        for (split, rows) in [(0, sizes.rows), (2, sizes.validation)] {
            bench.contents[split] = numbers.take(rows * features);
            bench.contents[split + 1] = numbers.take(rows);
        }
        follow(&programs, &bench, sizes, &format!("{features} features, {layers:?}"));
    }
}

#[test]
fn features_that_another_layer_uses_are_not_read_in_place() {
    let rule = UpdateRule::PLAIN_SGD;
    let sizes = Sizes { rows: 300, batch: 100, validation: 1 };
    for layers in [mlp(), vec![linear(CLASSES, true)]] {
        let programs = lowered(&layers, rule, None, Policy::Off, sizes);
        assert_eq!(programs.train.features_in_place(), None, "{layers:?}");
    }
}

#[test]
fn dropout_zeroes_its_share_and_keeps_the_mean() {
    use runner::program::dropout_keeps;
    for p in [0.1, 0.5, 0.9] {
        let mut kept = 0u32;
        for row in 0..400 {
            for unit in 0..250 {
                kept += u32::from(dropout_keeps(1, 2, 3, row, unit, p));
            }
        }
        // Five standard deviations of a binomial with n = 100,000.
        let (n, q) = (1e5, 1.0 - f64::from(p));
        let off = (f64::from(kept) - n * q).abs() / (n * q * f64::from(p)).sqrt();
        assert!(off < 5.0, "p = {p}: {kept} kept");
    }
    // The mask must depend on seed, layer, step, row and unit.
    let draw = |seed, layer, step, first| -> Vec<bool> {
        (0..64).map(|unit| dropout_keeps(seed, layer, step, first, unit, 0.5)).collect()
    };
    let base = draw(1, 2, 3, 4);
    for other in [draw(2, 2, 3, 4), draw(1, 3, 3, 4), draw(1, 2, 4, 4), draw(1, 2, 3, 5)] {
        let same = base.iter().zip(&other).filter(|(a, b)| a == b).count();
        assert!((16..48).contains(&same), "{same} of 64 agree");
    }
}
