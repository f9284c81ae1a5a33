//! Whole programs over several steps in every engine, including ragged batches and validation.

use runner::{
    program::{Hyper, LossKind, Options, Program, Programs, Role, UpdateRule, lower, reference::Memory},
    spec::{Layer, Policy},
};

use super::{
    driver::{Driver, Order},
    machine::{Engine, Machine},
};
use crate::conformance::{
    Bench, Numbers, bits, close,
    gradients::linear,
    programs::{Sizes, adam, bench, lowered, lowered_to, mlp, rmsprop, sgd},
};

const ENGINES: [Engine; 5] = [
    Engine::Kernels { blocks: 3 },
    Engine::Walk { threads: 128 },
    Engine::Grid { blocks: 3, threads: 64 },
    Engine::Compiled,
    Engine::CompiledGrid,
];

/// The programs of an epoch and a validation; each with the number of consecutive runs, and whether it
/// validates.
fn plan(programs: &Programs, rows: usize, validation: usize) -> Vec<(Program, usize, bool)> {
    let mut plan = vec![(programs.train.clone(), rows / programs.train.batch, true)];
    plan.extend(programs.train_last.clone().map(|p| (p, 1, true)));
    if let Some(full) = &programs.validate {
        plan.push((full.clone(), validation / full.batch, false));
    }
    plan.extend(programs.validate_last.clone().map(|p| (p, 1, false)));
    plan
}

/// The bits of parameters, state and log after a run; and the sums.
type Left = (Vec<Vec<u32>>, Vec<f64>);

fn run(
    driver: &Driver,
    engine: Engine,
    bench: &Bench,
    plan: &[(Program, usize, bool)],
    hyper: &[Hyper],
) -> (Left, Vec<Vec<f32>>) {
    let mut machine = Machine::new(driver, bench);
    machine.at.step = 40;
    let mut step = 0;
    let mut training = true;
    for (program, times, train) in plan {
        if training && !train {
            training = false;
            machine.at.position = 0;
        }
        // Training in two blocks, so that one begins in the middle of an epoch.
        for part in [times / 2, times - times / 2] {
            let hyper = if *train { &hyper[step..step + part] } else { &[] };
            // Only training is compiled.
            let of_validation = Engine::Walk { threads: 128 };
            let engine = if engine.is_compiled() && !*train { of_validation } else { engine };
            machine.run(engine, program, part, hyper);
            step += if *train { part } else { 0 };
        }
    }
    let all = machine.read();
    let kept = |role: Role| matches!(role, Role::Values | Role::State | Role::Log);
    let buffers = bench.layout.buffers[5..].iter().zip(&all);
    let numbers: Vec<Vec<f32>> = buffers.filter(|(b, _)| kept(b.role)).map(|(_, n)| n.clone()).collect();
    ((bits(&numbers), machine.sums()), all)
}

fn check(driver: &Driver, programs: &Programs, bench: &Bench, rows: usize, validation: usize, what: &str) {
    let steps = rows.div_ceil(programs.train.batch);
    let hyper: Vec<Hyper> = (0..steps)
        .map(|t| Hyper {
            rate: 0.05 / (t + 1) as f32,
            first: 0.2,
            correction: 0.9,
            decay_factor: 0.999,
            loss_scale: 1.3,
        })
        .collect();
    let plan = plan(programs, rows, validation);
    let mut memory: Memory = bench.memory();
    memory.step = 40;
    let mut hypers = hyper.iter();
    for (i, (program, times, train)) in plan.iter().enumerate() {
        if !train && plan[i - 1].2 {
            memory.position = 0;
        }
        for _ in 0..*times {
            memory.hyper = if *train { *hypers.next().unwrap() } else { Hyper::default() };
            memory.run(&program.instructions);
            memory.position += program.batch;
            memory.step += 1;
        }
    }
    for engine in ENGINES {
        let mut first: Option<Left> = None;
        for order in Order::ALL {
            driver.order(order);
            let (left, all) = run(driver, engine, bench, &plan, &hyper);
            if let Some(first) = &first {
                assert!(*first == left, "{what}, {engine:?}, {order:?}: other bits");
                continue;
            }
            for (i, buffer) in bench.layout.buffers.iter().enumerate().skip(5) {
                if matches!(buffer.role, Role::Values | Role::State | Role::Log) {
                    let what = format!("{what}, {engine:?}: {}", buffer.name);
                    close(&all[i - 5], &memory.buffers[i], 1e-5, &what);
                }
            }
            for (which, want) in memory.sums.iter().enumerate() {
                for (got, want) in left.1[16 * which..].iter().zip(want) {
                    assert!(
                        (got - want).abs() < 1e-5 * want.abs().max(1.0),
                        "{what}, {engine:?}: {got} {want}"
                    );
                }
            }
            first = Some(left);
        }
    }
}

#[test]
fn steps_follow_the_reference_under_every_rule() {
    let Some(driver) = Driver::get() else { return };
    let sizes = Sizes { rows: 39, batch: 16, validation: 33 };
    let layers = vec![
        Layer::Dropout { p: 0.1 },
        linear(20, true),
        Layer::Relu,
        Layer::Dropout { p: 0.4 },
        Layer::LayerNorm { eps: 1e-3 },
        linear(17, false),
        Layer::Gelu,
        Layer::Silu,
        Layer::Tanh,
        linear(10, true),
    ];
    let cases = [
        (sgd(false, false, 0.0), None, Policy::Buffered),
        (sgd(true, true, 0.1), None, Policy::PerEpoch),
        (adam(false), Some(0.5), Policy::Buffered),
        (adam(true), None, Policy::Off),
        (rmsprop(false, false), None, Policy::PerEpoch),
        (rmsprop(true, true), None, Policy::Buffered),
    ];
    for (rule, clip, policy) in cases {
        let programs = lowered(&layers, rule, clip, policy, sizes);
        let bench = bench(&programs, sizes);
        check(driver, &programs, &bench, sizes.rows, sizes.validation, &format!("{rule:?} {policy:?}"));
    }
    let programs = lowered_to(&layers, adam(false), None, Policy::PerEpoch, (sizes, true));
    check(driver, &programs, &bench(&programs, sizes), sizes.rows, sizes.validation, "weights of classes");
}

#[test]
fn a_wide_step_follows_the_reference() {
    let Some(driver) = Driver::get() else { return };
    let rule = UpdateRule::PLAIN_SGD;
    let sizes = Sizes { rows: 40, batch: 33, validation: 8 };
    let programs = lowered(&mlp(), rule, None, Policy::PerEpoch, sizes);
    let bench = bench(&programs, sizes);
    check(driver, &programs, &bench, sizes.rows, sizes.validation, "wide");
}

/// The smallest experiment: it uses up the table of hyperparameters in shared memory, which is then loaded
/// again.
#[test]
fn a_hundred_steps_of_linear_regression_follow_the_reference() {
    let Some(driver) = Driver::get() else { return };
    let (rows, batch) = (4480, 32);
    let programs = lower(&Options {
        log_slots: rows / batch,
        ordered: true,
        fold_update: true,
        ..Options::new(&[linear(1, true)], LossKind::Mse, [2, 1], batch)
    });
    let mut bench = Bench::new(Some(&programs.layout));
    let mut numbers = Numbers(29);
    bench.contents[0] = numbers.take(2 * rows);
    bench.contents[1] = numbers.take(rows);
    bench.contents[4] = (0..rows).map(|i| (i * 3 % rows) as f32).collect();
    check(driver, &programs, &bench, rows, 0, "linear regression");
}
