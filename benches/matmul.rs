//! The matrix product on one thread, beside the `gemm` crate: `cargo bench --bench matmul`.
//!
//! The shapes are those of 784-256-10 (batch 256), 784-2048-2048-10 (1024) and 64-32-10 (32). The packing of the right
//! operand, where it is worth its cost, is counted.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use runner::device::cpu::matmul::{Epilogue, Kernel, Lhs, Rhs, Source};

/// Which operand is given transposed.
#[derive(Clone, Copy, PartialEq)]
enum Product {
    Forward,
    WeightGradient,
    InputGradient,
}
use Product::{Forward, InputGradient, WeightGradient};

const CASES: [(&str, Product, [usize; 3]); 15] = [
    ("middle/forward", Forward, [256, 784, 256]),
    ("middle/forward-output", Forward, [256, 256, 10]),
    ("middle/weights", WeightGradient, [784, 256, 256]),
    ("middle/weights-output", WeightGradient, [256, 256, 10]),
    ("middle/inputs", InputGradient, [256, 10, 256]),
    ("large/forward", Forward, [1024, 2048, 2048]),
    ("large/forward-output", Forward, [1024, 2048, 10]),
    ("large/weights", WeightGradient, [2048, 1024, 2048]),
    ("large/weights-output", WeightGradient, [2048, 1024, 10]),
    ("large/inputs", InputGradient, [1024, 2048, 2048]),
    ("small/forward", Forward, [32, 64, 32]),
    ("small/forward-output", Forward, [32, 32, 10]),
    ("small/weights", WeightGradient, [64, 32, 32]),
    ("small/weights-output", WeightGradient, [32, 32, 10]),
    ("small/inputs", InputGradient, [32, 10, 32]),
];

fn products(criterion: &mut Criterion) {
    let kernel = Kernel::detect();
    for (name, product, shape @ [m, k, n]) in CASES {
        let (a, b) = (numbers(m * k), numbers(k * n));
        let (mut packed, mut out) = (vec![0.0; kernel.packed_len(k, n)], vec![0.0; m * n]);
        let lhs = match product {
            WeightGradient => Lhs::Columns { data: &a, stride: m },
            _ => Lhs::Rows { data: &a, stride: k },
        };
        let source = if product == InputGradient { Source::Transposed(&b) } else { Source::Rows(&b) };
        let pack = product == InputGradient || kernel.worth_packing(m, n);
        let mut group = criterion.benchmark_group(name);
        group.throughput(Throughput::Elements(2 * (m * k * n) as u64)).sample_size(20);
        group.bench_function(kernel.name(), |bencher| {
            bencher.iter(|| {
                if pack {
                    kernel.pack(black_box(source), [k, n], 0..kernel.units(k, n), &mut packed);
                    kernel.multiply(lhs, Rhs::Packed(&packed), shape, &mut out, Epilogue::Store);
                } else {
                    kernel.multiply(black_box(lhs), Rhs::Rows(&b), shape, &mut out, Epilogue::Store);
                }
            });
        });
        group.bench_function("gemm", |bencher| {
            bencher.iter(|| gemm_crate(product, black_box(&a), &b, &mut out, shape))
        });
    }
}

fn gemm_crate(product: Product, a: &[f32], b: &[f32], out: &mut [f32], [m, k, n]: [usize; 3]) {
    let lhs = if product == WeightGradient { (m as isize, 1) } else { (1, k as isize) };
    let rhs = if product == InputGradient { (k as isize, 1) } else { (1, n as isize) };
    assert!(a.len() == m * k && b.len() == k * n && out.len() == m * n);
    let (to, a, b) = (out.as_mut_ptr(), a.as_ptr(), b.as_ptr());
    let threads = gemm::Parallelism::None;
    // SAFETY: the strides are those of dense matrices, whose sizes were checked.
    unsafe {
        gemm::gemm(
            m, n, k, to, 1, n as isize, false, a, lhs.0, lhs.1, b, rhs.0, rhs.1, 0.0, 1.0, false, false,
            false, threads,
        );
    }
}

fn one_output(criterion: &mut Criterion) {
    let kernel = Kernel::detect();
    for (rows, k) in [(32, 2), (1024, 100)] {
        let (x, w, d) = (numbers(rows * k), numbers(k), numbers(rows));
        let (mut out, mut gradient) = (vec![0.0; rows], vec![0.0; k]);
        let mut group = criterion.benchmark_group(format!("one-output/{rows}x{k}"));
        group.throughput(Throughput::Elements(2 * (rows * k) as u64));
        group.bench_function("forward", |b| {
            b.iter(|| kernel.dot_rows(black_box(&x), &w, 0.1, false, &mut out))
        });
        group.bench_function("weights", |b| {
            b.iter(|| kernel.weigh_rows(black_box(&x), k, &d, None, &mut gradient))
        });
    }
}

/// Numbers in -0.5..0.5.
fn numbers(count: usize) -> Vec<f32> {
    (0..count as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 8) as f32 / (1 << 24) as f32 - 0.5).collect()
}

criterion_group!(benches, products, one_output);
criterion_main!(benches);
