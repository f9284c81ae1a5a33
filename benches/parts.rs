//! Benchmarks the parts of a run separately: products, the order of rows, synthetic rows, whole steps,
//! `metrics.csv`, and the cost of each logging policy.

#![allow(clippy::too_many_lines)]

#[path = "support/products.rs"]
#[allow(unsafe_code)] // Raw pointers to operands, as `gemm-f32` takes them.
mod products;
#[path = "support/trial.rs"]
mod trial;

use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use products::{Form, Product, Shape};
use runner::{
    data::epoch_order,
    event::{Event, TrainRows},
    record::{MetricColumns, MetricsCsv, Sink},
    spec::Metric,
    vector::{flush_denormals, matmul::Kernel},
};
use trial::{Fault, Ready};

const W1: &str = r#"
[data.synthetic_regression]
weights = [2.0, -3.4]
bias = 4.2
[model]
layers = [{ linear = { out_features = 1 } }]
[optimizer.sgd]
lr = 0.03
"#;

const W5: &str = r#"
[data.idx]
images = "experiments/data/digits-images-idx3-ubyte.gz"
labels = "experiments/data/digits-labels-idx1-ubyte.gz"
scale = 16.0
validation_fraction = 0.0
[model]
loss = "cross_entropy"
layers = [{ linear = { out_features = 32 } }, "relu", { linear = { out_features = 10 } }]
[optimizer.adam]
lr = 1e-3
"#;

/// Paths in a spec are relative to its folder, which here is a temporary one.
fn w5() -> String {
    W5.replace("experiments/", concat!(env!("CARGO_MANIFEST_DIR"), "/experiments/"))
}

fn products(c: &mut Criterion) {
    flush_denormals();
    let shapes = [
        ("W5", Form::Forward, [32, 64, 32]),
        ("W5", Form::WeightGradient, [64, 32, 32]),
        ("W2", Form::Forward, [256, 784, 256]),
        ("W2", Form::WeightGradient, [784, 256, 256]),
        ("W2", Form::Forward, [256, 256, 10]),
        ("W2", Form::InputGradient, [256, 10, 256]),
        ("W3", Form::Forward, [1024, 2048, 2048]),
        ("W3", Form::WeightGradient, [2048, 1024, 2048]),
        ("W3", Form::InputGradient, [1024, 2048, 2048]),
    ];
    let mut group = c.benchmark_group("products");
    for (job, form, mkn) in shapes {
        let shape = Shape { form, mkn };
        let mut product = Product::new(shape, 1, Kernel::detect());
        group.throughput(Throughput::Elements(shape.flops() as u64));
        let name = format!("{job} {form:?} {}x{}x{}", mkn[0], mkn[1], mkn[2]);
        group.bench_function(BenchmarkId::new("ours", &name), |b| {
            b.iter_custom(|times| {
                let start = Instant::now();
                product.ours(times as usize);
                start.elapsed()
            })
        });
        group.bench_function(BenchmarkId::new("gemm", &name), |b| b.iter(|| product.gemm(1)));
    }
}

fn order(c: &mut Criterion) {
    let mut group = c.benchmark_group("order of rows");
    for rows in [1_000, 60_000, 1_000_000] {
        group.throughput(Throughput::Elements(u64::from(rows)));
        let mut numbers = Vec::new();
        group.bench_function(rows.to_string(), |b| b.iter(|| epoch_order(0, 1, rows, &mut numbers)));
    }
}

fn synthetic(c: &mut Criterion) {
    let text = W1.replace("bias = 4.2", "bias = 4.2\ntrain_rows = 100000");
    let mut group = c.benchmark_group("synthetic");
    group.throughput(Throughput::Elements(101_000));
    group.bench_function("plan and 101,000 rows", |b| b.iter(|| Ready::new(&text).map(drop).is_ok()));
}

fn metrics(c: &mut Criterion) {
    const ROWS: usize = 1000;
    let block = TrainRows {
        epoch: 3,
        first_step: 64_001,
        rows: 32,
        last_rows: 8,
        width: 1,
        values: (0..ROWS).map(|i| 1.0 / (i as f32 + 3.0)).collect(),
        lr: Vec::new(),
        elapsed_s: (0..ROWS).map(|i| i as f64 * 1.234_567e-5).collect(),
    };
    let mut group = c.benchmark_group("metrics.csv");
    group.throughput(Throughput::Elements(ROWS as u64));
    let Ok(folder) = tempfile::tempdir() else { return };
    let Ok(mut sink) = MetricsCsv::create(
        &folder.path().join("metrics.csv"),
        MetricColumns::new(&[Metric::Loss], &[], Vec::new()),
    ) else {
        return;
    };
    let event = Event::Train(block);
    group.bench_function("1000 rows, to the file", |b| {
        b.iter(|| sink.event(&event).and_then(|()| sink.flush()).is_ok());
    });
}

fn steps(c: &mut Criterion) {
    let mut group = c.benchmark_group("steps");
    for (name, text) in [("W1", W1.to_owned()), ("W5", w5())] {
        let mut stepper = expect(Ready::new(&text).and_then(|ready| ready.stepper()));
        group.throughput(Throughput::Elements(stepper.steps()));
        group.bench_function(name, |b| b.iter(|| expect(stepper.run())));
    }
}

fn policies(c: &mut Criterion) {
    let mut group = c.benchmark_group("training of W1, 10 epochs");
    group.throughput(Throughput::Elements(320));
    for policy in ["off", "per_epoch", "buffered", "immediate"] {
        let ready = expect(Ready::new(&format!("{W1}[logging]\npolicy = \"{policy}\"\n")));
        group.bench_function(policy, |b| b.iter(|| expect(ready.train())));
    }
}

/// A bench whose setup fails has nothing to measure.
fn expect<T>(result: Result<T, Fault>) -> T {
    result.unwrap_or_else(|fault| {
        eprintln!("{fault}");
        std::process::exit(1)
    })
}

criterion_group! {
    name = parts;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1));
    targets = products, order, synthetic, metrics, steps, policies
}
criterion_main!(parts);
