//! Compiled steps over a grid of blocks: wide and odd products against the reference, proof that no barrier is
//! superfluous, and what the job of the documentation takes. Whole epochs under every rule, with all layers, are in
//! `programs`.

use runner::{
    program::{LossKind, Precision, Programs, StepRoom, StepSource, UpdateRule},
    spec::{Layer, Policy},
};

use super::{
    compiled::{ADAM, Job, STEPS, check, hyper, kept},
    driver::{Driver, Order},
    machine::{Engine, Machine},
};
use crate::conformance::{
    bits,
    gradients::linear,
    programs::{Sizes, lowered},
};

/// An H100's.
const ROOM: StepRoom =
    StepRoom { shared_bytes: 232_448 - (12 << 10), multiprocessors: 132, tensor_cores: true };

/// 784-256-10 at batch 256 under Adam.
pub fn images() -> Job {
    let layers = vec![linear(256, true), Layer::Relu, linear(10, true)];
    Job { layers, features: 784, batch: 256, ..Job::digits() }
}

fn source(programs: &Programs) -> StepSource {
    StepSource::from_programs(programs, Precision::F32, ROOM).unwrap()
}

/// Sources of steps for a GPU, each with a name: of a warp, of a block, and over grids.
pub fn steps(tensor_cores: bool) -> Vec<(&'static str, String)> {
    let sizes = Sizes { rows: 1000, batch: 250, validation: 100 };
    let layers = vec![
        Layer::Dropout { p: 0.1 },
        linear(300, true),
        Layer::Gelu,
        Layer::LayerNorm { eps: 1e-5 },
        linear(301, true),
        Layer::Silu,
        Layer::Dropout { p: 0.4 },
        Layer::Tanh,
        linear(10, true),
    ];
    let deep = lowered(&layers, ADAM, Some(0.5), Policy::PerEpoch, sizes);
    let wide = vec![linear(2048, true), Layer::Relu, linear(2048, true), Layer::Relu, linear(10, true)];
    let wide = Job { layers: wide, batch: 1024, rule: UpdateRule::PLAIN_SGD, ..images() }.programs();
    let source = |programs: Programs| {
        StepSource::from_programs(&programs, Precision::F32, StepRoom { tensor_cores, ..ROOM }).unwrap().text
    };
    [
        ("linear regression", Job::linear_regression().programs()),
        ("64-32-10", Job::digits().programs()),
        ("784-256-10", images().programs()),
        ("all layers, clipped", deep),
        ("784-2048-2048-10", wide),
    ]
    .map(|(name, programs)| (name, source(programs)))
    .into()
}

#[test]
fn wide_and_odd_products_follow_the_reference() {
    let Some(driver) = Driver::get() else { return };
    let wide = vec![linear(96, true), Layer::Gelu, linear(132, false), Layer::Tanh, linear(10, true)];
    let odd = vec![linear(131, true), Layer::Relu, linear(67, true), Layer::Sigmoid, linear(3, true)];
    for (what, job) in [
        ("wide", Job { layers: wide, features: 112, batch: 12, ..Job::digits() }),
        (
            "odd",
            Job {
                layers: odd,
                loss: LossKind::Huber,
                features: 71,
                targets: 3,
                batch: 13,
                ..Job::linear_regression()
            },
        ),
        ("weights of classes", Job { weighted: true, batch: 13, ..Job::digits() }),
        ("weights of rows", Job { weighted: true, ..Job::linear_regression() }),
        ("narrow", Job { features: 7, batch: 13, ..Job::digits() }),
        ("linear regression", Job::linear_regression()),
    ] {
        check(driver, Engine::CompiledGrid, &job, what);
        check(driver, Engine::TensorGrid, &job, what);
    }
}

/// Partial sums of many rows, rows in two turns, a step whose update stands in the gradient of the first layer alone.
#[test]
fn a_weight_that_stays_in_its_blocks_follows_the_reference() {
    let Some(driver) = Driver::get() else { return };
    let layers = vec![linear(129, true), Layer::Relu, linear(3, true)];
    for (what, batch, features, rule) in [
        ("many rows", 150, 64, UpdateRule::PLAIN_SGD),
        ("one row", 1, 65, ADAM),
        ("few columns in the last part", 31, 74, ADAM),
    ] {
        let layers = layers.clone();
        let job = Job { layers, features, targets: 3, batch, rule, ..Job::linear_regression() };
        let programs = job.programs();
        let source = Machine::new(driver, &job.bench(&programs)).source(Engine::TensorGrid, &programs.train);
        assert_eq!(source.text.matches("First::gradient(").count(), 1, "{what}: {}", source.text);
        check(driver, Engine::TensorGrid, &job, what);
    }
}

/// Blocks wait until partial sums are no longer what an empty place holds; a loss that is not a number is not that.
#[test]
fn a_step_of_numbers_that_are_none_ends() {
    let Some(driver) = Driver::get() else { return };
    let layers = vec![linear(129, true), Layer::Relu, linear(3, true)];
    let job = Job { layers, features: 65, targets: 3, ..Job::linear_regression() };
    let programs = job.programs();
    let mut bench = job.bench(&programs);
    bench.contents[0].fill(f32::from_bits(u32::MAX));
    for precision in [Precision::F32, Precision::Tf32] {
        let mut machine = Machine::new(driver, &bench);
        machine.precision = precision;
        machine.run(Engine::TensorGrid, &programs.train, STEPS, &hyper()[..STEPS]);
        assert_eq!(machine.non_finite(), 1);
    }
}

#[test]
fn tf32_on_tensor_cores_follows_the_interpreter() {
    let Some(driver) = Driver::get() else { return };
    driver.order(Order::Forward);
    let layers = vec![linear(128, true), Layer::Tanh, linear(10, true)];
    let job = Job { layers, features: 72, batch: 20, rule: UpdateRule::PLAIN_SGD, ..Job::digits() };
    let programs = job.programs();
    let bench = job.bench(&programs);
    let run = |engine, precision| {
        let mut machine = Machine::new(driver, &bench);
        machine.precision = precision;
        machine.run(engine, &programs.train, STEPS, &hyper()[..STEPS]);
        kept(&bench, &machine.read()).flat_map(|(_, numbers)| numbers).collect::<Vec<_>>()
    };
    let [walk, tensor] = [Engine::Grid { blocks: 3, threads: 64 }, Engine::TensorGrid];
    let [want, got, exact] = [(walk, Precision::Tf32), (tensor, Precision::Tf32), (tensor, Precision::F32)]
        .map(|(e, p)| run(e, p));
    let apart =
        |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from((a - b).powi(2))).sum::<f64>().sqrt();
    // Sums in another order may round a later operand the other way.
    let [own, rounding] = [apart(&got, &want), apart(&exact, &want)];
    assert!(own < 0.1 * rounding, "{own} of {rounding}");
    // Where a grid cannot round as the precision says, it rounds less. It computes in tf32 in place of bf16.
    assert!(run(tensor, Precision::Bf16) == got);
    for (engine, precision) in [
        (tensor, Precision::Bf16),
        (Engine::CompiledGrid, Precision::Tf32),
        (Engine::CompiledGrid, Precision::Bf16),
    ] {
        let [want, got] = [walk, engine].map(|engine| run(engine, precision));
        let [own, rounding] = [apart(&got, &exact), apart(&want, &exact)];
        assert!(own < 1.1 * rounding, "{engine:?} {precision:?}: {own} of {rounding}");
    }
}

/// Replaces each barrier by what its absence allows: a block comes to its stage only when all others have done the
/// next one. The numbers must then differ.
#[test]
fn no_barrier_of_the_grid_can_be_missing() {
    let Some(driver) = Driver::get() else { return };
    for (engine, count) in [(Engine::CompiledGrid, 3), (Engine::TensorGrid, 2)] {
        no_barrier_can_be_missing(driver, engine, count);
    }
}

fn no_barrier_can_be_missing(driver: &Driver, engine: Engine, count: usize) {
    let layers = vec![linear(96, true), Layer::Relu, linear(10, true)];
    let job = Job { layers, features: 96, batch: 16, ..Job::digits() };
    let programs = job.programs();
    let bench = job.bench(&programs);
    driver.order(Order::Forward);
    let left = |source: &StepSource| {
        let mut machine = Machine::new(driver, &bench);
        let module = machine.compiled(&source.text);
        machine.run_compiled(module, source, &programs.train, STEPS, &hyper()[..STEPS]);
        bits(&kept(&bench, &machine.read()).map(|(_, numbers)| numbers).collect::<Vec<_>>())
    };
    let source = Machine::new(driver, &bench).source(engine, &programs.train);
    let right = left(&source);
    let (head, step) = source.text.split_once("const Hyper& hyper = *at.hyper;\n").unwrap();
    let is_barrier = |line: &&str| line.contains("wait_for_all(barrier") || line.trim() == "meet(barrier);";
    let lines: Vec<&str> = step.lines().collect();
    let barriers: Vec<usize> = (0..lines.len()).filter(|i| is_barrier(&lines[*i])).collect();
    assert_eq!(barriers.len(), source.barriers, "{}", source.text);
    assert_eq!(source.barriers, count, "{}", source.text);
    // A block of an open step has arrived at the first barrier in the step before. One that holds no part of the weight must
    // wait there, for nobody needs what it computes.
    let is_open = source.text.contains("OPEN = true");
    let late = if is_open { source.blocks - 1 } else { 0 };
    for (number, missing) in barriers.iter().enumerate() {
        let mut changed: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        // Without a barrier the spare batch is still fetched.
        changed[*missing] =
            if lines[*missing].contains("meanwhile") { "meanwhile();".into() } else { String::new() };
        // The stage before it, and the barrier after the next one: that of the next step, if it is the step's last.
        let last = if is_open { barriers.last().map_or(0, |last| last + 1) } else { 0 };
        let before = number.checked_sub(1).map_or(last, |earlier| barriers[earlier] + 1);
        let behind = barriers[(number + 1) % barriers.len()];
        let waits = format!(
            "{{ if (blockIdx.x == {late} && threadIdx.x == 0) while (__atomic_load_n(&done, 5) < LATE) relax(); __syncthreads(); }}"
        );
        let counts = format!(
            "{{ __syncthreads(); if (blockIdx.x != {late} && threadIdx.x == 0) __atomic_add_fetch(&done, 1, 5); }}"
        );
        // Only once. If the next stage is one of the next step, it is counted twice.
        let times = if behind < before { 2 } else { 1 };
        let late = format!("const int LATE = {times} * (BLOCKS - 1); static int done;");
        changed[behind] = format!("{counts}\n{}", changed[behind]);
        changed[before] = format!("{waits}\n{}", changed[before]);
        let hyper = "const Hyper& hyper = *at.hyper;";
        let mut text = format!("{head}{hyper} {late}\n{}\n", changed.join("\n"));
        if is_open && number == 0 {
            // Nor does anybody arrive at it.
            text = text
                .replace("arrived = arrive(barrier);", "__syncthreads();")
                .replace("OPEN = true", "OPEN = false");
        }
        let found = left(&StepSource { text, ..source.clone() });
        assert!(found != right, "nothing shows that barrier {number} is missing:\n{}", source.text);
    }
}

/// What makes a step fast: two barriers for a net of two layers whose first weight stays in the blocks, three without
/// tensor cores, rows fetched ahead, updates fused with gradients, and large products in tiles.
#[test]
fn a_net_of_two_layers_takes_two_barriers() {
    let programs = images().programs();
    let source = source(&programs);
    assert_eq!((source.blocks, source.threads, source.barriers), (128, 256, 2), "{}", source.text);
    assert!(4 * source.elements <= 136 << 10, "{}", source.elements);
    assert_eq!(source.ahead, 2 * 14 * 256 * 256);
    assert_eq!(source.text.matches("grid_product<").count(), 0, "{}", source.text);
    // At an H100's 1.98 GHz, by the plan's estimate.
    assert!(source.cycles / 1.98e9 < 15e-6, "{}", source.cycles);
    let tiles =
        StepSource::from_programs(&programs, Precision::F32, StepRoom { tensor_cores: false, ..ROOM })
            .unwrap();
    assert_eq!((tiles.blocks, tiles.threads, tiles.barriers), (128, 256, 3), "{}", tiles.text);
    assert!(4 * tiles.elements <= 48 << 10, "{}", tiles.elements);
    assert_eq!(tiles.ahead, 256 * 784 + 256);
    assert_eq!(tiles.text.matches("grid_product<").count(), 2, "{}", tiles.text);
    for source in [&source, &tiles] {
        assert_eq!(source.text.matches("learn(Adam{").count(), 4, "{}", source.text);
        assert!(!source.text.contains("adam_op"), "{}", source.text);
    }
}

/// A GPU with half as many multiprocessors gets the same tiles, with fewer registers.
#[test]
fn fewer_multiprocessors_run_two_blocks_each() {
    let programs = images().programs();
    let on = |multiprocessors, tensor_cores| {
        let room = StepRoom { multiprocessors, tensor_cores, ..ROOM };
        StepSource::from_programs(&programs, Precision::F32, room).unwrap()
    };
    let (tiles, smaller) = (on(132, false), on(64, true));
    assert_eq!(smaller.text, tiles.text.replace("__launch_bounds__(256, 1)", "__launch_bounds__(256, 2)"));
    assert_eq!(StepSource { text: tiles.text.clone(), ..smaller }, tiles);
}

#[test]
fn what_a_grid_cannot_do_is_refused_by_name() {
    let programs = images().programs();
    let why = |precision, room| StepSource::from_programs(&programs, precision, room).unwrap_err();
    let few = why(Precision::F32, StepRoom { multiprocessors: 40, ..ROOM });
    assert!(few.starts_with("a step of "), "{few}");
    assert!(few.ends_with("it needs a grid of 128 blocks, and this GPU runs 80 at once"), "{few}");
}
