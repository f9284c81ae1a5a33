//! Compares every instruction with its f64 reference, in every engine, through the executor of training.

use runner::{
    cuda::{CudaExecutor, CudaSetup, Gpu, RankLink},
    device::PassKind,
    plan::Engine,
    program::{Accumulator, Programs},
    spec::Precision,
};

use super::{first_gpu, some};
use crate::conformance::{
    At, SEED,
    ops::{BEFORE, HYPER, SLOT, STEP, Suite},
    run, sums,
};

/// Sizes around those of warps and tiles: rows, then width (or inputs and outputs). The simulator runs only
/// the first few.
const ELEMENTWISE: [(usize, usize); 8] =
    [(33, 10), (1, 1), (257, 3), (2, 257), (31, 31), (257, 33), (1023, 10), (1025, 100)];
const PRODUCTS: [[usize; 3]; 12] = [
    [33, 31, 10],
    [1, 1, 1],
    [65, 33, 31],
    [31, 2, 1],
    [32, 16, 16],
    [2, 17, 100],
    [64, 17, 17],
    [5, 300, 10],
    [257, 129, 65],
    [1025, 100, 1],
    [1023, 1025, 33],
    [512, 784, 256],
];
const ENGINES: [Engine; 4] = [Engine::Launch, Engine::Graph, Engine::Cooperative, Engine::Persistent];

/// Runs a suite once in each engine that can hold it.
fn check(gpu: &Gpu, suite: &Suite, rows: usize, tolerance: f64, what: &str) {
    let (train, memory) = suite.reference(rows);
    let layout = suite.bench.layout.clone();
    let programs = Programs { layout, train, train_last: None, validate: None, validate_last: None };
    let numbers: usize = programs.layout.buffers.iter().map(|b| b.len + 16).sum();
    for engine in ENGINES {
        // This engine keeps everything in the shared memory of one block.
        if engine == Engine::Persistent && 4 * numbers > gpu.shared_bytes as usize - (16 << 10) {
            continue;
        }
        let what = format!("{what}, {engine:?}");
        let job = CudaSetup {
            device: format!("gpu:{}", gpu.ordinal),
            gpu: gpu.clone(),
            programs: programs.clone(),
            engine,
            precision: Precision::F32,
            seed: SEED,
            link: RankLink::Alone,
        };
        let mut executor = CudaExecutor::new(job).unwrap();
        suite.bench.load(&mut executor);
        let at = At { work: PassKind::Train, step: STEP, position: BEFORE, rows: BEFORE + rows, slot: SLOT };
        run(&mut executor, at, 1, &[HYPER]);
        let got = suite.bench.read(&mut executor);
        suite.compare(&got, &memory, tolerance, &what);
        let got = sums(&mut executor, Accumulator::Epoch, 2);
        got.iter().zip(&memory.sums[0]).for_each(|(got, want)| assert!((got - want).abs() < 1e-9, "{what}"));
    }
}

#[test]
fn products_follow_the_reference() {
    let Some(gpu) = first_gpu() else { return };
    for [rows, inputs, outputs] in some(&PRODUCTS, 3) {
        let mut suite = Suite::new();
        suite.products(rows, inputs, outputs);
        let longest = rows.max(inputs).max(outputs) as f64;
        let what = format!("{rows} rows, {inputs} to {outputs}");
        check(&gpu, &suite, rows, 1e-6 * (1.0 + longest.sqrt()), &what);
    }
}

#[test]
fn all_else_follows_the_reference() {
    let Some(gpu) = first_gpu() else { return };
    for (rows, width) in some(&ELEMENTWISE, 2) {
        let mut suite = Suite::new();
        suite.data(rows, width);
        suite.elementwise(rows, width);
        suite.losses(rows, width);
        suite.updates(rows * width);
        suite.log(rows);
        check(&gpu, &suite, rows, 4e-6, &format!("{rows} rows of {width}"));
    }
}
