//! Products in bfloat16 on the CPU: only their operands are rounded, and any number of threads gives the same
//! bits. Covers AMX and AVX512-BF16 where available, and plain Rust everywhere.

use runner::{
    program::{Adam, Op, UpdateRule},
    spec::Policy,
    vector::matmul::Kernel,
};

use super::{
    Bench,
    ops::Suite,
    programs::{Sizes, bench, follow, lowered, mlp},
};

/// The last shape has enough tiles for a team to share.
const SHAPES: [[usize; 3]; 8] = [
    [1, 1, 1],
    [33, 2, 1],
    [257, 10, 1],
    [2, 31, 33],
    [31, 100, 10],
    [64, 32, 64],
    [257, 33, 100],
    [257, 400, 260],
];

fn kernels() -> impl Iterator<Item = Kernel> {
    ["amx_bf16", "avx512_bf16", "portable"].into_iter().filter_map(Kernel::bf16_named)
}

/// Kernels and shapes; plain Rust skips the last shape, which would take too long.
fn cases() -> impl Iterator<Item = (Kernel, [usize; 3])> {
    let few = |kernel: Kernel| usize::from(kernel.bf16_name() == Some("portable"));
    kernels().flat_map(move |kernel| {
        SHAPES[..SHAPES.len() - few(kernel)].iter().map(move |shape| (kernel, *shape))
    })
}

fn suite(kernel: Kernel, [rows, inputs, outputs]: [usize; 3]) -> Suite {
    let mut suite = Suite::new();
    suite.bench.kernel = kernel;
    suite.products(rows, inputs, outputs);
    suite
}

/// Rounds x, dy and the weight, which are the first three buffers of product suites.
fn round(bench: &mut Bench) {
    for numbers in &mut bench.contents[7..10] {
        for x in numbers {
            let bits = x.to_bits();
            *x = f32::from_bits((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff_0000);
        }
    }
}

#[test]
fn products_of_rounded_operands_follow_the_reference() {
    for (kernel, shape) in cases() {
        let mut suite = suite(kernel, shape);
        round(&mut suite.bench);
        let longest = shape.into_iter().max().unwrap_or(1) as f64;
        suite.check(shape[0], 1e-6 * (1.0 + longest.sqrt()), &format!("{:?} {shape:?}", kernel.bf16_name()));
    }
}

#[test]
fn operands_are_rounded_and_nothing_else() {
    for (kernel, shape) in cases() {
        let [exact, rounded] = [false, true].map(|rounded| {
            let mut suite = suite(kernel, shape);
            // The bias gradient, a sum over rows, does not round.
            suite.ops.retain(|op| !matches!(op, Op::BiasGradient(_)));
            if rounded {
                round(&mut suite.bench);
            }
            suite.bits(shape[0])
        });
        assert!(exact[5..] == rounded[5..], "{:?} {shape:?}", kernel.bf16_name());
    }
}

#[test]
fn steps_follow_the_reference() {
    let sizes = Sizes { rows: 167, batch: 33, validation: 71 };
    let sgd = UpdateRule::PLAIN_SGD;
    let adam = Adam { beta2: 0.99, one_minus_beta2: 0.01, eps: 1e-3, weight_decay: 0.1, decoupled: true };
    for (kernel, rule) in kernels().flat_map(|kernel| [(kernel, sgd), (kernel, UpdateRule::Adam(adam))]) {
        for clip in [None, Some(0.5)] {
            let programs = lowered(&mlp(), rule, clip, Policy::Buffered, sizes);
            let mut bench = bench(&programs, sizes);
            bench.kernel = kernel;
            follow(&programs, &bench, sizes, &format!("{:?} {rule:?}", kernel.bf16_name()));
        }
    }
}
