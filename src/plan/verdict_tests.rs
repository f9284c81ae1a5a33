//! Verdicts on jobs built to be bound by each thing that can bound one.

use super::*;
use crate::{
    plan::{DatasetInfo, Disk, Gpu, Machine, MachineRates, plan},
    spec::load,
};

const CORES: usize = 2;

pub(super) fn planned(model: &str, more: &str, features: usize, rows: usize, threads: usize) -> Trial {
    of_rows(model, more, (features, rows, false), Vec::new(), threads)
}

/// Of typical rates, with those GPUs.
pub(super) fn machine(gpus: Vec<Gpu>) -> Machine {
    Machine {
        gpus,
        no_gpu: String::new(),
        memory_available: 1 << 36,
        cache_bytes: 1 << 20,
        instruction_set: "avx2".into(),
        rates: MachineRates::typical("avx2"),
        sum_rates: None,
    }
}

/// Of so many features and rows that stay in a file, or do not.
pub(super) fn of_rows(
    model: &str,
    more: &str,
    (features, rows, in_file): (usize, usize, bool),
    gpus: Vec<Gpu>,
    threads: usize,
) -> Trial {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("spec.toml");
    let weights = vec!["1.0"; features].join(", ");
    let text = format!(
        "{more}\n[data.synthetic_regression]\nweights = [{weights}]\n[model]\nlayers = [{model}]\n[optimizer.sgd]\nlr = 0.1\n"
    );
    std::fs::write(&path, text).unwrap();
    let experiment = load(&path, &[]).unwrap();
    let file_row_bytes = in_file.then_some(4 * features as u64);
    let facts = DatasetInfo {
        train_rows: rows,
        validation_rows: 0,
        features,
        targets: 1,
        classes: None,
        file_row_bytes,
    };
    plan(&experiment.trials[0].spec, facts, None, &machine(gpus), threads).unwrap()
}

pub(super) fn setting(trial: &Trial) -> RunConfig {
    RunConfig::from_trial(trial, CORES)
}

/// A run that computes at `slower` times its floor, with nothing else.
pub(super) fn computing(trial: &Trial, steps: u64, slower: f64) -> Measured {
    let compute_s = trial.lower_bound.by(trial.threads).total_s() * steps as f64 * slower;
    Measured { steps, train_s: compute_s, compute_s, ..Measured::default() }
}

pub(super) fn reported(trial: &Trial, spent: Measured) -> (Bottleneck, &'static str, String) {
    let verdict = Verdict::compute(&trial.lower_bound, &spent, &setting(trial)).unwrap();
    (verdict.limit, verdict.limit_name, verdict.advice)
}

pub(super) const LINE: &str = "{ linear = { out_features = 1 } }";
pub(super) const WIDE: &str = "{ linear = { out_features = 2048 } }, \"relu\", { linear = { out_features = 2048 } }, \"relu\", { linear = { out_features = 1 } }";

/// Figures of the machine that the README's table is from: 0.14 µs of instructions, 0.24 µs of log, and the hand-over
/// of each step.
#[test]
fn a_tiny_model_that_logs_at_once_is_bound_by_its_log() {
    let trial = planned(LINE, "[logging]\npolicy = \"immediate\"", 2, 10_000, 1);
    let steps = 3130;
    let spent = Measured {
        steps,
        train_s: 0.76e-6 * 3130.0,
        compute_s: 0.50e-6 * 3130.0,
        log_s: 0.24e-6 * 3130.0,
        log_waits: steps,
        ..Measured::default()
    };
    let (limit, name, advice) = reported(&trial, spent);
    assert_eq!((limit, name), (Bottleneck::Log, "log"));
    assert_eq!(advice, "`logging.policy=buffered` moves the losses in blocks");
    // The same times without a hand-over per step are not the log's.
    let (limit, _, advice) = reported(&trial, Measured { log_waits: 10, ..spent });
    assert_eq!(limit, Bottleneck::Step(StepBound::Overhead));
    assert_eq!(advice, "a larger `data.batch_size`: more rows share a step's fixed costs");
}

#[test]
fn a_big_model_is_bound_by_arithmetic() {
    let batch = "data.batch_size = 1024";
    let trial = planned(WIDE, batch, 512, 4096, 1);
    let (limit, name, advice) = reported(&trial, computing(&trial, 40, 1.4));
    assert_eq!((limit, name), (Bottleneck::Step(StepBound::Arithmetic), "arithmetic"));
    assert_eq!(advice, "more threads (`--threads 2`, `devices.engine=team`)");
    let trial = planned(WIDE, batch, 512, 4096, CORES);
    assert_eq!(reported(&trial, computing(&trial, 40, 1.4)).2, "a GPU, or a smaller model");
}

/// A layer with one output needs no copy of the rows of a large batch; one of few rows, or a wider layer, has one written.
#[test]
fn the_floor_knows_which_rows_are_read_where_they_lie() {
    let two = format!("{{ linear = {{ out_features = 2 }} }}, {LINE}");
    for (model, batch, copied) in [(LINE, 1024, 0), (LINE, 64, 64 * 100), (&two[..], 1024, 1024 * 100)] {
        let trial = planned(model, &format!("data.batch_size = {batch}"), 100, 1_000_000, CORES);
        // Per row its features and target; of targets the copy; and its place in the order.
        let numbers = batch * (100 + 1 + 1 + 1) + copied;
        let wanted = (4 * numbers) as f64 / MachineRates::typical("avx2").memory_bytes_per_s;
        let reported = trial.lower_bound.rows_s;
        assert!((reported / wanted - 1.0).abs() < 1e-9, "{model}, batch of {batch}: {reported} for {wanted}");
    }
}

#[test]
fn wide_rows_and_a_small_model_are_bound_by_memory() {
    let trial = planned(LINE, "data.batch_size = 1024", 100, 1_000_000, CORES);
    let (limit, name, advice) = reported(&trial, computing(&trial, 977, 1.3));
    assert_eq!((limit, name), (Bottleneck::Step(StepBound::Memory), "memory"));
    assert_eq!(advice, "fewer features: a step's rows are read from memory");
}

#[test]
fn large_weights_and_few_rows_are_bound_by_memory_too() {
    let trial = planned(WIDE, "data.batch_size = 2", 512, 4096, CORES);
    let (limit, _, advice) = reported(&trial, computing(&trial, 40, 1.1));
    assert_eq!(limit, Bottleneck::Step(StepBound::Memory));
    assert_eq!(advice, "a larger `data.batch_size`: weights are read once per step, for however many rows");
}

#[test]
fn a_slow_source_bounds_by_file_reads() {
    let streamed = "[data]\nplacement = \"streamed\"";
    let mut trial = of_rows(WIDE, streamed, (512, 4_000_000, true), Vec::new(), CORES);
    let computing = computing(&trial, 40, 1.2);
    let waiting =
        Measured { fetch_s: 2.0 * computing.compute_s, train_s: 3.1 * computing.compute_s, ..computing };
    let (limit, name, advice) = reported(&trial, waiting);
    assert_eq!((limit, name), (Bottleneck::File, "file reads"));
    assert_eq!(advice, "`data.placement=auto` keeps the rows in memory where they fit");
    // Rows of 2 KB at typical rates, 32 of them in a step, by two threads.
    let fetch_s = 32.0 * (1.5e-6 + 2048.0 / 3.5e9) / 1.7;
    assert!(
        (trial.lower_bound.by(CORES).fetch_s / fetch_s - 1.0).abs() < 0.02,
        "{:?}",
        trial.lower_bound.fetch
    );
    // What is fetched is no part of what the rest is divided by.
    let calm = Measured { fetch_s: computing.compute_s / 100.0, ..computing };
    assert_eq!(reported(&trial, calm).0, Bottleneck::Step(StepBound::Arithmetic));
    // Where they would be in memory if they fitted, it matters what they come from.
    let of_auto = of_rows(WIDE, "", (512, 4_000_000, true), Vec::new(), CORES);
    let near = "more memory: each row is copied out of its file, which the system has in its own";
    assert_eq!(reported(&of_auto, waiting).2, near);
    let disk = Disk { rows: 9, row_s: 1e-4, bytes_per_s: 1e8 };
    let mut fetch = of_auto.lower_bound.fetch.unwrap();
    fetch.rates.disk = Some(disk);
    trial.lower_bound.fetch = Some(fetch);
    trial.spec.data.placement = Placement::Auto;
    let far = "more memory, or a quicker disk: the rows come from their file";
    assert_eq!(reported(&trial, waiting).2, far);
    trial.spec.data.placement = Placement::Streamed;
    let verdict = Verdict::compute(&trial.lower_bound, &waiting, &setting(&trial)).unwrap();
    assert!((verdict.share - 2.0 / 3.1).abs() < 1e-12);
    assert!((verdict.distance() - 1.2 * 3.1).abs() < 1e-9, "{verdict:?}");
}

#[test]
fn sums_over_devices_bound_small_steps() {
    let trial = planned(LINE, "", 2, 1000, 1);
    let computing = computing(&trial, 320, 2.0);
    let spent =
        Measured { all_reduce_s: 3.0 * computing.compute_s, train_s: 4.0 * computing.compute_s, ..computing };
    assert_eq!(reported(&trial, spent).1, "all-reduce");
}

#[test]
fn nothing_is_said_of_a_processor_by_the_rates_of_another() {
    let trial = planned(LINE, "", 2, 1000, 1);
    let setting = RunConfig { on_gpu: true, ..setting(&trial) };
    assert_eq!(Verdict::compute(&trial.lower_bound, &computing(&trial, 320, 1.5), &setting), None);
}

#[test]
fn without_steps_there_is_no_verdict() {
    let trial = planned(LINE, "", 2, 1000, 1);
    assert_eq!(Verdict::compute(&trial.lower_bound, &Measured::default(), &setting(&trial)), None);
}

/// Advice that the run cannot follow is none.
#[test]
fn a_step_of_all_rows_and_a_step_shorter_than_a_launch_are_advised_otherwise() {
    let trial = planned(LINE, "data.batch_size = 1000", 2, 1000, 1);
    let (lower_bound, setting) = (trial.lower_bound, setting(&trial));
    let words = |limit, step_s| crate::plan::advice::advice(limit, &lower_bound, &setting, step_s);
    let all = "a step takes every row already";
    assert_eq!(
        words(Bottleneck::Step(StepBound::Overhead), 1e-3),
        format!("more rows, or fewer layers: {all}, and they share its fixed costs")
    );
    assert_eq!(
        words(Bottleneck::AllReduce, 1e-3),
        format!("fewer devices: gradients are summed once per step, and {all}")
    );
    let wide = planned(WIDE, "data.batch_size = 2", 512, 2, 1);
    assert_eq!(
        reported(&wide, computing(&wide, 40, 1.1)).2,
        format!("a smaller model, or more rows: weights are read once per step, and {all}")
    );
    // Seven instructions are 10.5 µs of a GPU that uses all of itself.
    assert_eq!(lower_bound.instructions, 7);
    let arithmetic = Bottleneck::Step(StepBound::Arithmetic);
    assert_eq!(words(arithmetic, 10e-6), "a smaller model: a step is shorter than its launches on a GPU");
    assert_eq!(words(arithmetic, 11e-6), "a GPU, or a smaller model");
}
