//! Training on the CPU and on every engine of a GPU logs the same rows, with numbers that agree up to the
//! rounding of sums.

use std::fs;

use super::{LINREG, Sim, plus};
use crate::process::{Ended, Folder, Sandbox};

const ENGINES: [&str; 5] = ["persistent", "compiled", "cooperative", "graph", "launch"];

/// Every layer, dropout, clipping, Adam, all metrics.
pub const MLP: &str = r#"
name = "mlp"
[devices]
num_gpus = 1
[data]
batch_size = 40
[data.synthetic_regression]
weights = [2.0, -3.4, 1.0, 0.5, 0.2, -0.7]
bias = 4.2
train_rows = 300
validation_rows = 130
[model]
layers = [
    { linear = { out_features = 24 } }, "gelu", { dropout = { p = 0.2 } },
    { linear = { out_features = 17, bias = false } }, "tanh", { linear = { out_features = 9 } }, "sigmoid",
    { linear = { out_features = 1 } },
]
[optimizer.adam]
lr = 0.01
[trainer]
max_epochs = 3
gradient_clip_val = 1.0
[logging]
metrics = ["loss", "grad_norm", "param_norm", "lr"]
"#;

/// Classes, accuracy, momentum; the label is the largest of the first three features.
const CLASSES: &str = r#"
name = "classes"
[devices]
num_gpus = 1
[data]
batch_size = 32
[data.csv]
path = "rows.csv"
target = "label"
validation_fraction = 0.3
[model]
layers = [ { linear = { out_features = 32 } }, "relu", { linear = { out_features = 3 } } ]
loss = "cross_entropy"
[optimizer.sgd]
lr = 0.1
momentum = 0.9
nesterov = true
[trainer]
max_epochs = 3
[logging]
metrics = ["loss", "accuracy"]
"#;

/// A sandbox with the data for `CLASSES`.
pub fn classes() -> Sandbox {
    let place = Sandbox::new(CLASSES);
    let mut text = "a,b,c,label\n".to_owned();
    let mut state = 1u32;
    for _ in 0..400 {
        let row: [f64; 3] = std::array::from_fn(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            f64::from(state >> 8) / f64::from(1u32 << 24) - 0.5
        });
        let label = (0..3).max_by(|i, j| row[*i].total_cmp(&row[*j])).unwrap();
        text.push_str(&format!("{},{},{},{label}\n", row[0], row[1], row[2]));
    }
    fs::write(place.path().join("rows.csv"), text).unwrap();
    place
}

/// Compares every cell of `metrics.csv` except times.
#[track_caller]
pub fn same(cpu: &Folder, gpu: &Folder, tolerance: f64, what: &str) {
    let (cpu, gpu) = (cpu.metrics(), gpu.metrics());
    assert_eq!(cpu.columns, gpu.columns);
    assert_eq!(cpu.rows.len(), gpu.rows.len(), "{what}");
    let times = cpu.columns.len() - 1;
    for (a, b) in cpu.rows.iter().zip(&gpu.rows) {
        for (a_cell, b_cell) in a[..times].iter().zip(&b[..times]) {
            let near = match (a_cell.parse::<f64>(), b_cell.parse::<f64>()) {
                (Ok(x), Ok(y)) => (x - y).abs() <= tolerance * (1.0 + x.abs()),
                _ => a_cell == b_cell,
            };
            assert!(near, "{what}: {a:?} on the CPU, {b:?} on the GPU");
        }
    }
}

pub fn every_engine(place: &Sandbox, arguments: &[&str]) {
    let Some(sim) = Sim::get() else { return };
    let cpu = place.run(&plus(arguments, "devices.num_gpus=0")).ended_by(0);
    // Sums per epoch are computed by the interpreter.
    let sums = arguments.contains(&"logging.policy=per_epoch");
    for engine in ENGINES.into_iter().filter(|engine| !(sums && *engine == "compiled")) {
        let choice = format!("devices.engine={engine}");
        let gpu = sim.run(place, &plus(arguments, &choice), &[]).ended_by(0);
        assert_eq!((gpu.summary("engine").as_str(), gpu.summary("devices_used").as_str()), (engine, "gpu:0"));
        same(&cpu, &gpu, 2e-6, engine);
    }
}

#[test]
fn linear_regression() {
    every_engine(&Sandbox::new(LINREG), &[]);
}

#[test]
fn all_layers_dropout_clipping_and_adam() {
    every_engine(&Sandbox::new(MLP), &[]);
}

#[test]
fn classes_with_accuracy_and_momentum() {
    every_engine(&classes(), &[]);
}

#[test]
fn weights_of_classes() {
    let weights = "model.class_weights=[0.2, 1, 3]";
    every_engine(&classes(), &[weights]);
    every_engine(
        &classes(),
        &[weights, "data.placement=streamed", "data.batch_size=7", "trainer.max_epochs=1"],
    );
}

#[test]
fn streamed_rows() {
    every_engine(&classes(), &["data.placement=streamed", "data.batch_size=7", "trainer.max_epochs=1"]);
}

#[test]
fn every_policy() {
    for policy in ["immediate", "per_epoch", "off"] {
        every_engine(&Sandbox::new(LINREG), &[&format!("logging.policy={policy}")]);
    }
}

#[test]
fn adamw_without_shuffling_and_one_step_more_than_a_graph_holds() {
    let arguments =
        ["data.shuffle=false", "~optimizer.sgd", "optimizer.adamw.lr=0.05", "trainer.max_steps=33"];
    every_engine(&Sandbox::new(LINREG), &arguments);
}

/// Steps after a validation have the rate that follows from it: blocks that run many epochs end there.
#[test]
fn a_rate_that_follows_validations() {
    let plateau = "schedule.plateau={ factor = 0.5, patience = 0, threshold = 0.9 }";
    let validations = ["trainer.validate_every_epochs=2", "trainer.max_epochs=6"];
    every_engine(
        &Sandbox::new(LINREG),
        &[&validations[..], &[plateau, "logging.metrics=[\"loss\", \"lr\"]"]].concat(),
    );
}

#[test]
fn a_loss_that_is_not_finite_ends_the_run_at_its_step() {
    let Some(sim) = Sim::get() else { return };
    let place = Sandbox::new(LINREG);
    for policy in ["buffered", "per_epoch", "off"] {
        let arguments = ["optimizer.sgd.lr=9", "trainer.max_epochs=30", &format!("logging.policy={policy}")];
        let cpu = place.run(&plus(&arguments, "devices.num_gpus=0")).ended_by(1);
        for engine in ["persistent", "graph"] {
            let gpu =
                sim.run(&place, &[&arguments[..], &[&format!("devices.engine={engine}")]].concat(), &[]);
            let gpu = gpu.ended_by(1);
            assert_eq!(gpu.summary("status"), "diverged");
            assert_eq!(gpu.summary("steps"), cpu.summary("steps"), "{policy} {engine}");
        }
    }
}

/// Layers large enough for cuBLASLt: with its fused epilogues, and with separate kernels after the product.
const WIDE: &str = r#"model.layers=[{ linear = { out_features = 1300 } }, "relu", { linear = { out_features = 600 } }, "gelu", { linear = { out_features = 3 } }]"#;

#[test]
fn large_products_go_to_the_library_where_it_is_there() {
    let Some(sim) = Sim::get() else { return };
    let Some((without, _folder)) = Sim::only(&["libcuda.so.1", "libnvrtc.so.12"]) else { return };
    let place = classes();
    let arguments = [WIDE, "trainer.max_steps=2"];
    let cpu = place.run(&plus(&arguments, "devices.num_gpus=0")).ended_by(0);
    for engine in ["graph", "launch"] {
        let choice = format!("devices.engine={engine}");
        let arguments = plus(&arguments, &choice);
        same(&cpu, &sim.run(&place, &arguments, &[]).ended_by(0), 2e-6, engine);
        let own = without.run(&place, &arguments, &[]);
        let warning = "warning: large products are done by kernels of our own, which are slower: cuBLASLt is not there: \
                       looked for libcublasLt.so.13, libcublasLt.so.12 in ";
        assert!(own.ended.stderr.contains(warning), "{}", own.ended.stderr);
        same(&cpu, &own.ended_by(0), 2e-6, engine);
    }
    let calls = sim.calls();
    let count = |what: &str| calls.iter().filter(|call| **call == what).count();
    // Forward with its bias, and both gradients: each is tried once per engine before anything is captured or
    // counted. `launch` then calls it twice; in a graph the calls are nodes.
    assert_eq!(count("matmul 600 32 1300 epilogue 4 compute 68"), 4, "{calls:?}");
    assert_eq!(count("matmul 1300 32 600 epilogue 1 compute 68"), 4);
    assert_eq!(count("matmul 600 1300 32 epilogue 1 compute 68"), 4);
    let at = |what: &str| calls.iter().position(|call| call.starts_with(what)).unwrap();
    let cleared = format!("memset {}", calls[0].strip_prefix("alloc ").unwrap());
    let last = calls.iter().rposition(|call| *call == cleared).unwrap();
    assert!(at("matmul 600 120 1300") < at("graph"), "{calls:?}");
    assert!(
        calls[last..].iter().any(|call| call.starts_with("launch")),
        "and what they wrote is gone: {calls:?}"
    );
    assert!(without.calls().iter().all(|call| !call.starts_with("matmul")));
}

/// The library's own ReLU turns NaN into 0, so the loss would stay finite. It is not used: a run must end at
/// the same step as on the CPU.
#[test]
fn what_is_no_number_is_not_hidden_by_large_products() {
    let Some(sim) = Sim::get() else { return };
    let place = classes();
    let layers = r#"model.layers=[{ linear = { out_features = 1300 } }, "relu", { linear = { out_features = 600 } }, "relu", { linear = { out_features = 3 } }]"#;
    let arguments = [layers, "optimizer.sgd.lr=1e30", "trainer.max_steps=8", "-q"];
    let cpu = place.run(&plus(&arguments, "devices.num_gpus=0")).ended_by(1);
    let gpu = sim.run(&place, &plus(&arguments, "devices.engine=graph"), &[]).ended_by(1);
    assert_eq!((gpu.summary("status"), gpu.summary("steps")), ("diverged".into(), cpu.summary("steps")));
    let products: Vec<_> = sim.calls().into_iter().filter(|call| call.starts_with("matmul")).collect();
    assert!(products.iter().any(|call| call == "matmul 600 32 1300 epilogue 4 compute 68"), "{products:?}");
    let hides = |call: &&String| [" epilogue 2 ", " epilogue 6 "].iter().any(|name| call.contains(name));
    assert_eq!(products.iter().find(hides), None);
}

#[test]
fn a_product_that_the_library_has_no_way_for_is_our_own() {
    let Some(sim) = Sim::get() else { return };
    let place = classes();
    let arguments = [WIDE, "trainer.max_steps=2", "devices.engine=graph"];
    let with = sim.run(&place, &arguments, &[]).ended_by(0);
    let own = Sim::at(&sim.libraries);
    let none = [("RUNNER_SIM_FAIL", "plan:1,plan:2,plan:3,plan:4")];
    let without = own.run(&place, &arguments, &none).ended_by(0);
    same(&with, &without, 2e-6, "no plan");
    assert_eq!(own.calls().iter().find(|call| call.starts_with("matmul")), None);
}

#[test]
fn precision_is_what_the_spec_says() {
    let Some(sim) = Sim::get() else { return };
    let place = classes();
    let exact = sim.run(&place, &[], &[]).ended_by(0);
    for (precision, compute) in [("tf32", "compute 77"), ("bf16", "compute 68 bf16")] {
        let rounded = sim.run(&place, &[&format!("devices.precision={precision}")], &[]).ended_by(0);
        assert_eq!(rounded.summary("precision"), precision);
        assert_ne!(rounded.numbers(), exact.numbers(), "operands are rounded");
        same(&exact, &rounded, 0.05, precision);
        let wide =
            [WIDE, "trainer.max_steps=1", "devices.engine=launch", &format!("devices.precision={precision}")];
        sim.run(&place, &wide, &[]).ended_by(0);
        let calls = sim.calls();
        let products = calls.iter().filter(|call| call.starts_with("matmul"));
        assert!(
            products.clone().count() > 0 && products.clone().all(|call| call.ends_with(compute)),
            "{calls:?}"
        );
        fs::remove_file(sim.log()).unwrap();
    }
}

/// The CPU has neither this precision nor this engine. It is the f32 reference, with limits that allow for
/// the difference.
#[test]
fn parity_takes_what_only_a_gpu_has() {
    let Some(sim) = Sim::get() else { return };
    let place = Sandbox::new(LINREG);
    let words =
        ["parity", "spec.toml", "devices.precision=tf32", "devices.engine=persistent", "devices.num_gpus=1"];
    let ended = Ended::from_output(sim.on(&mut place.command(&words), &[]).output().unwrap());
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{}", ended.stdout);
    let out = ended.stdout;
    for part in [
        "linreg: 20 steps of 32 rows\n  the engine `persistent` does not run on all of these devices: the plan picks one for \
         the others\n",
        "\n  gpu:0 ",
        "\n  a loss may differ from that of cpu by 1.562e-2 of it + 2.441e-4 times ",
        "\n  the parameters after the last step, as one vector, by 1.562e-2 of its length\n  (32 times 2^-11, to which tf32 \
         rounds the operands of products; the CPU computes in f32)\n",
    ] {
        assert!(out.contains(part), "{part}\nis not in\n{out}");
    }
    // The operands were rounded, so the bits differ from the CPU's.
    assert!(out.lines().any(|line| line.starts_with("  gpu:0 ") && line.ends_with("  the same")), "{out}");
}

/// Without access to each other's memory (for that, see peers.rs) GPUs sum by NCCL, as graph nodes or
/// launches, or through the host. The curve equals the CPU's.
#[test]
fn several_gpus_do_what_one_does() {
    let Some(sim) = Sim::get() else { return };
    let Some((without_nccl, _folder)) =
        Sim::only(&["libcuda.so.1", "libnvrtc.so.12", "libcublasLt.so.12", "libnvidia-ml.so.1"])
    else {
        return;
    };
    let place = classes();
    let cpu = place.run(&["devices.num_gpus=0"]).ended_by(0);
    let four = [("RUNNER_SIM_DEVICES", "4"), ("RUNNER_SIM_PEER", "0")];
    for (sim, count, engine, chosen) in [
        (&sim, 2, "auto", "graph"),
        (&sim, 4, "auto", "graph"),
        (&sim, 2, "launch", "launch"),
        (&without_nccl, 2, "auto", "launch"),
        (&without_nccl, 4, "auto", "launch"),
    ] {
        let arguments = [format!("devices.num_gpus={count}"), format!("devices.engine={engine}")];
        let gpus = sim.run(&place, &[&arguments[0], &arguments[1]], &four).ended_by(0);
        let names: Vec<String> = (0..count).map(|i| format!("gpu:{i}")).collect();
        assert_eq!((gpus.summary("devices_used"), gpus.summary("engine")), (names.join(";"), chosen.into()));
        same(&cpu, &gpus, 2e-6, &format!("{count} GPUs, {chosen}"));
    }
    // Each GPU takes its own rows of every chunk.
    let streamed = ["data.placement=streamed", "data.batch_size=7", "trainer.max_epochs=1"];
    let cpu = place.run(&plus(&streamed, "devices.num_gpus=0")).ended_by(0);
    let gpus = sim.run(&place, &plus(&streamed, "devices.num_gpus=2"), &four).ended_by(0);
    same(&cpu, &gpus, 2e-6, "2 GPUs, streamed rows");
    let warned = without_nccl.run(&place, &["devices.num_gpus=2"], &four).ended;
    let warning = "warning: gradients are summed through the host's memory, with a wait in every step: NCCL is not there: \
                   looked for libnccl.so.2 in ";
    assert!(warned.stderr.contains(warning), "{}", warned.stderr);
    // A library that is too old is not used, and the reason is given.
    let old = [("RUNNER_SIM_DEVICES", "2"), ("RUNNER_SIM_PEER", "0"), ("RUNNER_SIM_NCCL_VERSION", "21304")];
    let warned = sim.run(&place, &["devices.num_gpus=2"], &old).ended;
    let reported = "libnccl.so.2 is too old: it is 2.13, and calls that can be left are there from 2.18 on";
    assert!(warned.stderr.contains(reported) && warned.stderr.contains(warning), "{}", warned.stderr);
    let graph = without_nccl.run(&place, &["devices.num_gpus=2", "devices.engine=graph"], &four).ended;
    assert_eq!(graph.code, Some(2));
    let refused = "error: the engine `graph` cannot sum over several devices";
    assert!(graph.stderr.starts_with(refused), "{}", graph.stderr);
}

/// Whichever GPU fails is named, and the others do not wait for it.
#[test]
fn a_gpu_that_fails_ends_the_run_of_all() {
    let Some(sim) = Sim::get() else { return };
    let place = classes();
    for (engine, fails) in [("graph", "replay:9"), ("launch", "launch:500")] {
        for (count, peer) in [("2", "0"), ("2", "1"), ("4", "0"), ("4", "1")] {
            let variables =
                [("RUNNER_SIM_DEVICES", count), ("RUNNER_SIM_PEER", peer), ("RUNNER_SIM_FAIL", fails)];
            let arguments = [format!("devices.num_gpus={count}"), format!("devices.engine={engine}")];
            let ended = sim.run(&place, &[&arguments[0], &arguments[1]], &variables).ended;
            let what = format!("{count} GPUs, {engine}, peers {peer}: {}", ended.stderr);
            assert_eq!(ended.code, Some(1), "{what}");
            let last = ended.stderr.lines().last().unwrap_or_default();
            let gpu = last.strip_prefix("error: `gpu:").and_then(|rest| rest.split_once('`'));
            assert!(gpu.is_some_and(|(_, rest)| rest.starts_with(" failed while launching ")), "{what}");
        }
    }
}
