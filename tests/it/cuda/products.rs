//! Large products by cuBLASLt: which of its algorithms computes them, and their operands in bfloat16.

use super::{
    Sim,
    parity::{classes, same},
    plus,
};

/// Its products are just large enough for the library.
const WIDE: &str = r#"model.layers=[{ linear = { out_features = 1060 } }, "relu", { linear = { out_features = 600 } }, "gelu", { linear = { out_features = 3 } }]"#;

/// Enough time for the choice of algorithms, however busy the machine is.
const LONG: (&str, &str) = ("RUNNER_GPU_TUNING_S", "600");

const SAID: &str = " shapes of large products use another algorithm than cuBLASLt's first suggestion, which gives the same bits: \
                    at most ";

/// Of four algorithms the first is slow, the second has other bits, the third is refused.
#[test]
fn the_fastest_algorithm_of_the_same_bits_is_taken_and_remembered() {
    let Some(sim) = Sim::get() else { return };
    let place = classes();
    let arguments = [WIDE, "trainer.max_steps=2", "devices.engine=launch"];
    let alone = sim.run(&place, &arguments, &[]).ended_by(0);
    assert!(!alone.text("run.log").contains("another algorithm"));
    let four = Sim::get().unwrap();
    let product = "matmul 600 32 1060 epilogue 4 compute 68 algorithm ";
    let mut seen = 0;
    let mut run = || {
        let ran = four.run(&place, &arguments, &[("RUNNER_SIM_ALGORITHMS", "4"), LONG]).ended_by(0);
        assert_eq!(ran.numbers(), alone.numbers(), "no bit depends on the algorithm");
        let calls = four.calls();
        let of_run = calls[seen..].iter().filter_map(|call| call.strip_prefix(product)).collect::<String>();
        seen = calls.len();
        (ran.text("run.log"), of_run)
    };
    let (log, of_run) = run();
    assert!(of_run.len() > 3 && of_run.ends_with("444"), "the steps use it: {of_run}");
    assert!(log.contains(SAID), "{log}");
    let (log, of_run) = run();
    assert_eq!(of_run, "444", "one at the start, one a step: the choice was remembered");
    assert!(log.contains(SAID), "{log}");
}

/// A product for which no time is enough keeps the first suggestion, and no later load tries it again; those
/// that found no time left get it in the next run.
#[test]
fn a_product_that_takes_all_the_time_is_decided() {
    let Some(sim) = Sim::get() else { return };
    let place = classes();
    let arguments = [WIDE, "trainer.max_steps=2", "devices.engine=launch"];
    let mut seen = 0;
    let mut run = |seconds: &str| {
        let variables = [("RUNNER_SIM_ALGORITHMS", "4"), ("RUNNER_GPU_TUNING_S", seconds)];
        let log = sim.run(&place, &arguments, &variables).ended_by(0).text("run.log");
        let calls = sim.calls();
        let products = calls[seen..].iter().filter_map(|call| call.strip_prefix("matmul "));
        let products: Vec<_> = products.filter_map(|call| call.split_once(" algorithm ")).collect();
        let shape = products[0].0;
        let of = |first| -> String {
            products.iter().filter(|of| (of.0 == shape) == first).map(|of| of.1).collect()
        };
        let got = [of(true), of(false)];
        seen = calls.len();
        (log, got)
    };
    let (log, [first, others]) = run("0");
    assert_eq!(first, "1111", "a trial, one at the start, one a step");
    assert!(others.chars().all(|algorithm| algorithm == '1'), "{others}");
    assert!(!log.contains("another algorithm"), "{log}");
    let (log, [first, others]) = run("600");
    assert_eq!(first, "111", "it is not tried again");
    assert!(others.ends_with('4') && others.len() > 10, "{others}");
    assert!(log.contains(SAID), "{log}");
}

/// What the library refuses at the call though it suggested it is no reason to refuse the run: the next suggestion
/// follows, then operands in f32, then a kernel of this project.
#[test]
fn an_algorithm_that_is_refused_at_its_call_leaves_the_run_to_others() {
    let Some(sim) = Sim::get() else { return };
    let place = classes();
    let arguments = [WIDE, "trainer.max_steps=2", "devices.engine=launch"];
    let mut seen = 0;
    let mut run = |arguments: &[&str], variables: &[(&str, &str)]| {
        let ran = sim.run(&place, arguments, variables).ended_by(0);
        let calls = sim.calls();
        let products = calls[seen..].iter().filter(|call| call.starts_with("matmul ")).cloned();
        let products: Vec<String> = products.collect();
        seen = calls.len();
        (ran, products)
    };
    let (alone, _) = run(&arguments, &[]);
    let four = ("RUNNER_SIM_ALGORITHMS", "4");
    let (fourth, calls) = run(&arguments, &[four, ("RUNNER_SIM_REFUSED", "123")]);
    assert!(!calls.is_empty() && calls.iter().all(|call| call.ends_with("algorithm 4")), "{calls:?}");
    assert_eq!(fourth.numbers(), alone.numbers());
    let (own, calls) = run(&arguments, &[four, ("RUNNER_SIM_REFUSED", "1234")]);
    assert!(calls.is_empty(), "{calls:?}");
    same(&alone, &own, 0.02, "kernels of this project");
    let half = plus(&arguments, "devices.precision=bf16");
    let (copied, calls) = run(&half, &[]);
    assert!(calls.iter().any(|call| call.ends_with("bf16")), "{calls:?}");
    let (rounded, calls) = run(&half, &[("RUNNER_SIM_BF16", "call")]);
    assert!(!calls.is_empty() && calls.iter().all(|call| call.ends_with("compute 75")), "{calls:?}");
    assert_eq!(rounded.numbers(), copied.numbers());
}

/// Everything that may write an operand: rows, activations, a normalization, dropout, gradients, updates.
const DEEP: &str = r#"model.layers=[{ linear = { out_features = 530 } }, "relu", { linear = { out_features = 500 } }, "layer_norm", "tanh", { linear = { out_features = 530 } }, "gelu", { dropout = { p = 0.1 } }, { linear = { out_features = 500, bias = false } }, { linear = { out_features = 3 } }]"#;

/// A library that takes bfloat16 operands gets copies; one that does not rounds f32 operands itself. The
/// numbers are the same to the bit, so no copy is out of date, through ragged batches and validations.
#[test]
fn copies_in_bf16_give_what_rounded_operands_give() {
    let Some(sim) = Sim::get() else { return };
    let place = classes();
    let without = [("RUNNER_SIM_BF16", "0")];
    // Of the results of RELU and of its derivative only the copies are stored.
    let relu = r#"model.layers=[{ linear = { out_features = 530 } }, "relu", { linear = { out_features = 500 } }, "relu", { linear = { out_features = 520 } }, "relu", { linear = { out_features = 3 } }]"#;
    for (layers, engine, clip) in [
        (DEEP, "graph", "trainer.gradient_clip_val=0.5"),
        (DEEP, "launch", "trainer.gradient_clip_val=0"),
        (relu, "graph", "trainer.gradient_clip_val=0"),
    ] {
        let engine = format!("devices.engine={engine}");
        let arguments =
            [layers, "devices.precision=bf16", &engine, clip, "trainer.max_epochs=1", "data.batch_size=100"];
        let copies = sim.run(&place, &arguments, &[]).ended_by(0);
        let rounded = sim.run(&place, &arguments, &without).ended_by(0);
        assert_eq!(copies.numbers(), rounded.numbers(), "{engine}");
        assert!(copies.model() == rounded.model(), "{engine}");
    }
    let calls = sim.calls();
    let of =
        |end: &str| calls.iter().filter(|call| call.starts_with("matmul") && call.ends_with(end)).count();
    assert!(of("compute 68 bf16") > 0 && of("compute 75") > 0, "{calls:?}");
    let arguments = [WIDE, "devices.engine=launch", "trainer.max_steps=3"];
    let exact = sim.run(&place, &arguments, &[]).ended_by(0);
    let half = sim.run(&place, &plus(&arguments, "devices.precision=bf16"), &[]).ended_by(0);
    assert_ne!(half.numbers(), exact.numbers(), "operands are rounded");
    same(&exact, &half, 0.02, "bf16");
}

/// Of four layers the second and the third are large.
#[test]
fn a_step_copies_each_operand_once() {
    let Some(sim) = Sim::get() else { return };
    let place = classes();
    let layers = r#"model.layers=[{ linear = { out_features = 1060 } }, "relu", { linear = { out_features = 600 } }, "relu", { linear = { out_features = 1100 } }, "relu", { linear = { out_features = 3 } }]"#;
    let run = |precision: &str| {
        let precision = format!("devices.precision={precision}");
        let more = ["devices.engine=launch", "trainer.max_steps=1", "trainer.validate_every_epochs=0"];
        let ran = sim.run(&place, &[&[layers, &precision][..], &more].concat(), &[]).ended_by(0);
        ran.summary("peak_device_bytes").parse::<u64>().unwrap()
    };
    let (copied, exact) = (run("bf16"), run("f32"));
    // Inputs of a batch of 32, weights, gradients of outputs.
    let [inputs, weights, gradients] = [32 * (1060 + 600), (1060 + 1100) * 600, 32 * (600 + 1100)];
    assert_eq!(copied - exact, 2 * (inputs + weights + gradients));
    // Kernels write the copies of the third layer's input and of both gradients.
    let calls = sim.calls();
    let conversions = calls.iter().filter(|call| call.starts_with("launch copy_bf16 ")).count();
    assert_eq!(conversions, 3, "{calls:?}");
}

/// A layer that ends with RELU leaves it to the layer with few outputs and to its gradient, which read all rows anyway.
#[test]
fn the_last_activation_is_applied_as_it_is_read() {
    let Some(sim) = Sim::get() else { return };
    let place = classes();
    let layers = |outputs: usize| {
        format!(
            r#"model.layers=[{{ linear = {{ out_features = 520 }} }}, "relu", {{ linear = {{ out_features = 140 }} }}, "relu", {{ linear = {{ out_features = {outputs} }} }}]"#
        )
    };
    // The gradient's kernel has a form of its own for up to ten outputs.
    for outputs in [12, 3] {
        let (sim, layers) = (Sim::get().unwrap(), layers(outputs));
        let arguments = [&layers[..], "data.batch_size=280", "trainer.max_epochs=3"];
        let cpu = place.run(&plus(&arguments, "devices.num_gpus=0")).ended_by(0);
        let gpu = sim.run(&place, &plus(&arguments, "devices.engine=launch"), &[]).ended_by(0);
        same(&cpu, &gpu, 2e-6, "f32");
        let launches = |of: &str| sim.calls().iter().filter(|call| call.starts_with(of)).count();
        assert_eq!(launches("launch op_activate "), 0, "{:?}", sim.calls());
    }
    let layers = layers(3);
    let arguments = [&layers[..], "data.batch_size=280", "trainer.max_epochs=3"];
    let cpu = place.run(&plus(&arguments, "devices.num_gpus=0")).ended_by(0);
    let half = plus(&arguments, "devices.precision=bf16");
    let copied = sim.run(&place, &half, &[]).ended_by(0);
    let rounded = sim.run(&place, &half, &[("RUNNER_SIM_BF16", "0")]).ended_by(0);
    assert_eq!(copied.numbers(), rounded.numbers());
    assert!(copied.model() == rounded.model());
    same(&cpu, &copied, 0.02, "bf16");
}

#[test]
fn what_is_no_number_stays_so_in_bf16() {
    let Some(sim) = Sim::get() else { return };
    let place = classes();
    let arguments = [WIDE, "devices.precision=bf16", "optimizer.sgd.lr=1e30", "trainer.max_steps=8", "-q"];
    let copies = sim.run(&place, &arguments, &[]).ended_by(1);
    let rounded = sim.run(&place, &arguments, &[("RUNNER_SIM_BF16", "0")]).ended_by(1);
    let ends = [&copies, &rounded].map(|ran| (ran.summary("status"), ran.summary("steps")));
    assert_eq!(ends[0], ends[1]);
    assert_eq!(ends[0].0, "diverged");
}
