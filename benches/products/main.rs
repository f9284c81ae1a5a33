//! The speed of a training step's products with nothing between them, as a reference for the step of a wide
//! network. Each product is a program of its own, and runs as it does in a step. `cargo run --release -p products --
//! [--json] [--threads N] [--bf16] [W2 | W3]`

#![allow(clippy::too_many_lines)]

#[allow(unsafe_code)] // Raw pointers to operands, as `gemm-f32` takes them.
mod products;

use std::time::Instant;

use products::{Product, of_step};
use runner::vector::{flush_denormals, matmul::Kernel};

/// Rounds over all products; the median counts.
const ROUNDS: usize = 9;

/// Operations per product and round. A small product is repeated, so that waking a team does not matter.
const FLOPS: f64 = 1e10;

/// The most repetitions.
const MOST_TIMES: f64 = 1e4;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let option = words.iter().position(|w| w == "--threads").and_then(|i| words.get(i + 1)?.parse().ok());
    let threads: usize = option.or_else(runner::host::logical_cores).unwrap_or(1);
    let (name, batch, widths): (_, _, &[usize]) = if words.iter().any(|w| w == "W2") {
        ("W2", 256, &[784, 256, 10])
    } else {
        ("W3", 1024, &[784, 2048, 2048, 10])
    };
    flush_denormals();
    let bf16 = words.iter().any(|w| w == "--bf16");
    let kernel = if bf16 { Kernel::bf16().expect("AMX or AVX512-BF16") } else { Kernel::detect() };
    let shapes = of_step(batch, widths);
    let mut all: Vec<Product> = shapes.iter().map(|&shape| Product::new(shape, threads, kernel)).collect();
    let (mut ours, mut gemm) = (Vec::new(), Vec::new());
    // One more round than is counted: the first touches the memory and wakes the processor.
    for round in 0..=ROUNDS {
        let a = timed(&mut all, &mut |p, times| p.ours(times));
        let b = timed(&mut all, &mut |p, times| (0..times).for_each(|_| p.gemm(threads)));
        if round > 0 {
            ours.push(a);
            gemm.push(b);
        }
    }
    let flops: f64 = shapes.iter().map(products::Shape::flops).sum();
    let whole = |rounds: &[Vec<f64>]| flops / median(rounds.iter().map(|r| r.iter().sum()).collect()) / 1e9;
    let (ours_gflops, gemm_gflops) = (whole(&ours), whole(&gemm));
    if words.iter().any(|w| w == "--json") {
        println!(
            "{{\"product_job\": \"{name}\", \"threads\": {threads}, \"kernel\": \"{}\", \
             \"ours_gflops\": {ours_gflops:.2}, \"gemm_gflops\": {gemm_gflops:.2}}}",
            kernel.bf16_name().unwrap_or(kernel.name())
        );
        return;
    }
    println!(
        "products of {name}, {threads} threads, {}: GFLOP/s ours, gemm",
        kernel.bf16_name().unwrap_or(kernel.name())
    );
    for (i, shape) in shapes.iter().enumerate() {
        let rate = |rounds: &[Vec<f64>]| shape.flops() / median(rounds.iter().map(|r| r[i]).collect()) / 1e9;
        let [m, k, n] = shape.mkn;
        let form = format!("{:?}", shape.form);
        println!("{form:>15} {m:5} x {k:4} x {n:4} {:8.1} {:8.1}", rate(&ours), rate(&gemm));
    }
    println!("{:>15} {:18} {ours_gflops:8.1} {gemm_gflops:8.1}", "all", "");
}

/// Seconds of each product, after one untimed run: threads may be asleep, or still be spinning from the other
/// kind.
fn timed(all: &mut [Product], work: &mut dyn FnMut(&mut Product, usize)) -> Vec<f64> {
    let mut seconds = |p: &mut Product| {
        let times = (FLOPS / p.shape().flops()).clamp(1.0, MOST_TIMES) as usize;
        work(p, 1);
        let start = Instant::now();
        work(p, times);
        start.elapsed().as_secs_f64() / times as f64
    };
    all.iter_mut().map(&mut seconds).collect()
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}
