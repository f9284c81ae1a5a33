//! Every op alone in every engine, at sizes around those of warps and tiles.

use std::collections::BTreeSet;

use runner::program::{Accumulator, Activation, Log, LogTarget, Op, Precision, Slice};

use super::{
    driver::{Driver, Order},
    machine::{Engine, Machine},
};
use crate::conformance::{
    bits,
    ops::{BEFORE, HYPER, SLOT, STEP, Suite},
};

/// Few blocks, so that each thread handles several numbers; one block, whose sums need no second stage; and
/// blocks to spare, which share rows or the terms of a sum.
const KERNELS: [Engine; 3] =
    [Engine::Kernels { blocks: 3 }, Engine::Kernels { blocks: 1 }, Engine::Kernels { blocks: 13 }];
const INTERPRETERS: [Engine; 4] = [
    Engine::Walk { threads: 32 },
    Engine::Walk { threads: 96 },
    Engine::Grid { blocks: 3, threads: 64 },
    Engine::Grid { blocks: 1, threads: 32 },
];

/// Runs a suite in each engine and order. Results must be close to the reference, with equal bits in every
/// order.
fn check(driver: &Driver, suite: &Suite, rows: usize, tolerance: f64, engines: &[Engine], what: &str) {
    let (program, memory) = suite.reference(rows);
    for engine in engines {
        let what = format!("{what}, {engine:?}");
        let mut first: Option<(Vec<Vec<u32>>, Vec<f64>)> = None;
        for order in Order::ALL {
            driver.order(order);
            let mut machine = Machine::new(driver, &suite.bench);
            (machine.at.step, machine.at.position, machine.at.slot) = (STEP, BEFORE as u64, SLOT as u32);
            machine.run(*engine, &program, 1, &[HYPER]);
            let (got, sums) = (machine.read(), machine.sums());
            match &first {
                Some(first) => assert!(*first == (bits(&got), sums), "{what}, {order:?}: other bits"),
                None => {
                    suite.compare(&got, &memory, tolerance, &what);
                    let pairs = sums.iter().zip(&memory.sums[0]);
                    pairs.for_each(|(got, want)| assert!((got - want).abs() < 1e-9, "{what}: {got} {want}"));
                    assert_eq!(machine.non_finite(), 0, "{what}");
                    first = Some((bits(&got), sums));
                }
            }
        }
    }
}

/// Rounding errors add up over the longest sum.
fn product_tolerance([rows, inputs, outputs]: [usize; 3]) -> f64 {
    1e-6 * (1.0 + (rows.max(inputs).max(outputs) as f64).sqrt())
}

fn products(driver: &Driver, shape: [usize; 3], engines: &[Engine]) {
    let [rows, inputs, outputs] = shape;
    let mut suite = Suite::new();
    suite.products(rows, inputs, outputs);
    let what = format!("{rows} rows, {inputs} to {outputs}");
    check(driver, &suite, rows, product_tolerance(shape), engines, &what);
}

#[test]
fn products_follow_the_reference() {
    let Some(driver) = Driver::get() else { return };
    for shape in [
        [1, 1, 1],
        [1, 33, 2],
        [31, 2, 1],
        [33, 31, 10],
        [32, 16, 16],
        [2, 17, 100],
        [64, 17, 17],
        [65, 33, 31],
        [5, 300, 10],
    ] {
        products(driver, shape, &KERNELS);
    }
    // Enough large tiles for three blocks, so that the path for large tiles is taken.
    products(driver, [130, 65, 129], &[Engine::Kernels { blocks: 3 }]);
    // One, two, four and eight warps for a row of the product; blocks that share the rows of a strip.
    products(driver, [257, 100, 3], &KERNELS);
    products(driver, [26, 300, 10], &[Engine::Kernels { blocks: 7 }, Engine::Kernels { blocks: 13 }]);
    products(driver, [5, 1100, 16], &[Engine::Kernels { blocks: 5 }]);
}

/// A launch that has the operands of later gradients computes these too: of a layer with few outputs its weight's and
/// the preceding bias's, after an activation's derivative the bias's. Launches are as many as are left.
#[test]
fn gradients_of_one_launch_follow_the_reference() {
    let Some(driver) = Driver::get() else { return };
    for [rows, inputs, outputs] in
        [[1, 1, 1], [33, 31, 10], [70, 66, 3], [257, 130, 10], [65, 128, 12], [600, 64, 16], [40, 33, 4]]
    {
        let mut suite = Suite::new();
        suite.merged_gradients(rows, inputs, outputs);
        let (program, _) = suite.reference(rows);
        let machine = Machine::new(driver, &suite.bench);
        let merged = machine.merged(&program, &mut machine.records(&program));
        assert_eq!(merged.len(), 13, "{merged:?}");
        let what = format!("{rows} rows, {inputs} to {outputs}");
        let tolerance = product_tolerance([rows, inputs, outputs]);
        check(driver, &suite, rows, tolerance, &KERNELS, &what);
        check(driver, &suite, rows, tolerance, &[Engine::Kernels { blocks: 64 }], &what);
    }
}

#[test]
fn products_follow_the_reference_within_programs() {
    let Some(driver) = Driver::get() else { return };
    for shape in [[1, 1, 1], [31, 2, 1], [33, 31, 10], [5, 33, 2], [2, 100, 3], [33, 33, 32]] {
        products(driver, shape, &INTERPRETERS);
    }
}

#[test]
fn all_else_follows_the_reference() {
    let Some(driver) = Driver::get() else { return };
    let sizes = [(1, 1), (1, 257), (2, 3), (31, 10), (33, 4), (257, 2), (33, 33), (1025, 1)];
    for (rows, width) in sizes {
        let what = format!("{rows} rows of {width}");
        let fill: [fn(&mut Suite, usize, usize); 6] = [
            |suite, rows, width| suite.data(rows, width),
            |suite, rows, width| suite.elementwise(rows, width),
            |suite, rows, width| suite.losses(rows, width),
            |suite, rows, width| suite.layer_norms(rows, width),
            |suite, rows, width| suite.updates(rows * width),
            |suite, rows, _| suite.log(rows),
        ];
        for fill in fill {
            let mut suite = Suite::new();
            fill(&mut suite, rows, width);
            check(driver, &suite, rows, 2e-6, &KERNELS, &what);
            check(driver, &suite, rows, 2e-6, &INTERPRETERS, &what);
        }
    }
    // Sums over more numbers than one block of a grid handles alone.
    let mut suite = Suite::new();
    suite.updates(8200);
    check(driver, &suite, 1, 2e-6, &[Engine::Kernels { blocks: 3 }, INTERPRETERS[2]], "8200 numbers");
}

/// Programs longer than the table of records in shared memory.
#[test]
fn a_long_program_follows_the_reference() {
    let Some(driver) = Driver::get() else { return };
    let mut suite = Suite::new();
    for _ in 0..3 {
        suite.products(3, 5, 2);
    }
    suite.elementwise(3, 5);
    suite.losses(3, 5);
    assert!(suite.ops.len() > 64, "{}", suite.ops.len());
    check(driver, &suite, 3, 3e-6, &INTERPRETERS, "a long program");
}

#[test]
fn no_rows_are_no_work() {
    let Some(driver) = Driver::get() else { return };
    let mut suite = Suite::new();
    suite.data(0, 3);
    suite.products(0, 5, 20);
    suite.elementwise(0, 3);
    suite.losses(0, 3);
    check(driver, &suite, 0, 1e-6, &[KERNELS[0], INTERPRETERS[0], INTERPRETERS[2]], "no rows");
}

#[test]
fn operands_are_rounded_as_told() {
    let Some(driver) = Driver::get() else { return };
    // A product of operands that were rounded beforehand must equal a rounding product, to the bit.
    let keep = |bits: u32| {
        move |x: &f32| {
            let dropped = 23 - bits;
            let n = x.to_bits();
            let rounded = n + (1 << (dropped - 1)) - 1 + (n >> dropped & 1);
            f32::from_bits(rounded >> dropped << dropped)
        }
    };
    for (precision, kept) in [(Precision::Bf16, 7), (Precision::Tf32, 10)] {
        for (fill, shape, engine) in [
            (Suite::products as fn(&mut Suite, usize, usize, usize), [33, 31, 20], KERNELS[0]),
            (Suite::products, [33, 70, 3], KERNELS[0]),
            (Suite::products, [9, 31, 20], INTERPRETERS[1]),
            (Suite::products, [9, 5, 20], INTERPRETERS[2]),
            // One launch for all gradients.
            (Suite::merged_gradients, [70, 66, 3], KERNELS[0]),
            (Suite::merged_gradients, [33, 31, 12], KERNELS[0]),
        ] {
            let [rows, inputs, outputs] = shape;
            let mut suite = Suite::new();
            fill(&mut suite, rows, inputs, outputs);
            // The bias gradient, a sum over rows, does not round; nor do derivatives.
            suite.ops.retain(|op| match op {
                Op::InputGradient(op) => matches!(op.derivative, None | Some((Activation::Relu, _))),
                op => op.product().is_some(),
            });
            let products = suite.ops.iter().flat_map(|op| op.access().reads.into_iter().take(2));
            let operands: BTreeSet<usize> = products.map(|operand| operand.buffer.0).collect();
            let (program, _) = suite.reference(rows);
            let run = |suite: &Suite, precision| {
                let mut machine = Machine::new(driver, &suite.bench);
                machine.precision = precision;
                machine.run(engine, &program, 1, &[HYPER]);
                machine.read()
            };
            let exact = run(&suite, Precision::F32);
            let got = run(&suite, precision);
            for operand in &operands {
                let numbers = &mut suite.bench.contents[*operand];
                *numbers = numbers.iter().map(keep(kept)).collect();
            }
            let want = run(&suite, Precision::F32);
            let [got, want, exact] = [got, want, exact].map(|all| {
                let results = (5..).zip(all).filter(|(buffer, _)| !operands.contains(buffer));
                bits(&results.map(|(_, numbers)| numbers).collect::<Vec<_>>())
            });
            assert!(got == want, "{engine:?} {shape:?} {kept} bits");
            assert!(got != exact, "{engine:?} {shape:?} {kept} bits");
        }
    }
}

#[test]
fn losses_that_are_not_finite_are_flagged() {
    let Some(driver) = Driver::get() else { return };
    for engine in [KERNELS[0], INTERPRETERS[0], INTERPRETERS[2]] {
        for loss in [f32::NAN, f32::INFINITY] {
            let mut suite = Suite::new();
            let cells = suite.bench.holding(vec![loss, 2.0]);
            let cell = Slice { len: 1, ..cells };
            suite.ops = vec![Log { cells: cell, to: LogTarget::Flag }.into()];
            let (program, _) = suite.reference(1);
            let mut machine = Machine::new(driver, &suite.bench);
            machine.at.step = 41;
            machine.run(engine, &program, 1, &[HYPER]);
            machine.run(engine, &program, 1, &[HYPER]);
            assert_eq!(machine.non_finite(), 42, "the first step, counted from 1");

            // The sums of the epoch include the loss that raises the flag, and nothing after it.
            let sums = |sums| Op::from(Log { cells, to: LogTarget::Sums { rows: 3, weighted: false, sums } });
            suite.ops = vec![sums(Accumulator::Epoch)];
            let (program, _) = suite.reference(1);
            let mut machine = Machine::new(driver, &suite.bench);
            machine.run(engine, &program, 2, &[HYPER; 2]);
            assert_eq!(machine.sums()[1], 6.0, "{engine:?}");
            assert_eq!(machine.non_finite(), 1, "{engine:?}");
            suite.ops = vec![sums(Accumulator::Validation)];
            let (program, _) = suite.reference(1);
            let mut machine = Machine::new(driver, &suite.bench);
            machine.run(engine, &program, 2, &[HYPER; 2]);
            assert_eq!((machine.sums()[17], machine.non_finite()), (12.0, 0), "{engine:?}");
        }
    }
}
