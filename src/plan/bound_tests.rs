//! Accounts of runs built to be bound by each thing that can bound one.

use super::*;
use crate::{
    plan::{DatasetInfo, Gpu, Machine, MachineRates, plan},
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
    plan(&experiment.trials[0].spec, facts, &machine(gpus), threads).unwrap()
}

/// A run that computes at `slower` times its lower bound, with nothing else.
fn computing(trial: &Trial, steps: u64, slower: f64) -> Measured {
    let compute_s = trial.lower_bound.by(trial.threads).total_s() * steps as f64 * slower;
    Measured { full_steps: steps, train_s: compute_s, compute_s, ..Measured::default() }
}

/// The largest share, and its part in thousandths.
pub(super) fn largest(trial: &Trial, measured: &Measured) -> (Bottleneck, u32) {
    let account = TimeAccount::new(trial, measured).unwrap();
    let all: f64 = account.shares.iter().map(|share| share.seconds).sum();
    assert!((all / measured.train_s - 1.0).abs() < 1e-9, "the shares add up: {account:?}");
    (account.shares[0].cause, (1000.0 * account.part(&account.shares[0])).round() as u32)
}

pub(super) const LINE: &str = "{ linear = { out_features = 1 } }";
pub(super) const WIDE: &str = "{ linear = { out_features = 2048 } }, \"relu\", { linear = { out_features = 2048 } }, \"relu\", { linear = { out_features = 1 } }";

/// 0.14 µs of instructions, 0.24 µs of log, and the hand-over of each step.
#[test]
fn a_tiny_model_that_logs_at_once_is_bound_by_its_log() {
    let trial = planned(LINE, "[logging]\npolicy = \"immediate\"", 2, 10_000, 1);
    let steps = 3130;
    let measured = Measured {
        full_steps: steps,
        train_s: 0.76e-6 * 3130.0,
        compute_s: 0.50e-6 * 3130.0,
        log_s: 0.24e-6 * 3130.0,
        log_waits: steps,
        ..Measured::default()
    };
    assert_eq!(largest(&trial, &measured).0, Bottleneck::Log);
    let account = TimeAccount::new(&trial, &measured).unwrap();
    assert_eq!(account.fewer_reads, Some(FewerReads { is_buffered: false, reads: 3130, instead: 10 }));
    // Without a hand-over per step nothing explains what steps take longer than they must.
    let calm = Measured { log_waits: 10, ..measured };
    let account = TimeAccount::new(&trial, &calm).unwrap();
    assert_eq!((largest(&trial, &calm).0, account.fewer_reads), (Bottleneck::Unexplained, None));
}

/// Time above the lower bound is booked to nothing that was not measured.
#[test]
fn what_steps_take_longer_than_their_bound_is_unexplained() {
    use Bottleneck::{Arithmetic, Memory, Unexplained};
    let wide = planned(WIDE, "data.batch_size = 1024", 512, 4096, 1);
    let rows = planned(LINE, "data.batch_size = 1024", 100, 1_000_000, CORES);
    let weights = planned(WIDE, "data.batch_size = 2", 512, 4096, CORES);
    for (trial, cause) in [(&wide, Arithmetic), (&rows, Memory), (&weights, Memory)] {
        assert_eq!(trial.lower_bound.by(trial.threads).bound(), cause);
        assert_eq!(largest(trial, &computing(trial, 40, 1.2)).0, cause);
        assert_eq!(largest(trial, &computing(trial, 40, 4.7)), (Unexplained, 787));
    }
}

/// Ten epochs of 1000 rows by 300 end with steps on 100: none of them makes a run quicker than it can be.
#[test]
fn a_last_batch_counts_with_its_own_rows() {
    let trial = planned(WIDE, "data.batch_size = 300", 512, 1000, 1);
    let last = trial.lower_bound.of_steps(1, 0, 1).total_s();
    let part = last / trial.lower_bound.by(1).total_s();
    assert!((0.3..0.6).contains(&part), "{part}");
    let least = trial.lower_bound.of_steps(1, 30, 10).total_s();
    let measured =
        Measured { full_steps: 30, last_steps: 10, train_s: least, compute_s: least, ..Measured::default() };
    let account = TimeAccount::new(&trial, &measured).unwrap();
    assert!((account.distance().unwrap() - 1.0).abs() < 1e-9, "{account:?}");
    // Quicker than the bound of typical rates: no number of times is told.
    let quick = Measured { train_s: 0.7 * least, compute_s: 0.7 * least, ..measured };
    assert_eq!(TimeAccount::new(&trial, &quick).unwrap().distance(), None);
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
        let reported = trial.lower_bound.full.rows_s;
        assert!((reported / wanted - 1.0).abs() < 1e-9, "{model}, batch of {batch}: {reported} for {wanted}");
    }
}

#[test]
fn rows_that_are_fetched_or_waited_for_are_measured() {
    let streamed = "[data]\nplacement = \"streamed\"";
    let trial = of_rows(WIDE, streamed, (512, 4_000_000, true), Vec::new(), CORES);
    let computing = computing(&trial, 40, 1.2);
    let waiting =
        Measured { fetch_s: 2.0 * computing.compute_s, train_s: 3.0 * computing.compute_s, ..computing };
    assert_eq!(largest(&trial, &waiting), (Bottleneck::File, 667));
    // The plan goes by typical rates: rows of 2 KB, 32 of them in a step, by two threads.
    let fetch_s = 32.0 * (1.5e-6 + 2048.0 / 3.5e9) / 1.7;
    let planned_s = trial.lower_bound.settled_s(CORES) - trial.lower_bound.by(CORES).device_s();
    assert!((planned_s / fetch_s - 1.0).abs() < 0.02, "{planned_s} {fetch_s}");
}

#[test]
fn sums_over_devices_are_measured() {
    let trial = planned(LINE, "", 2, 1000, 1);
    let computing = computing(&trial, 320, 2.0);
    let measured =
        Measured { all_reduce_s: 3.0 * computing.compute_s, train_s: 4.0 * computing.compute_s, ..computing };
    assert_eq!(largest(&trial, &measured), (Bottleneck::AllReduce, 750));
}

#[test]
fn without_steps_there_is_no_account() {
    let trial = planned(LINE, "", 2, 1000, 1);
    assert_eq!(TimeAccount::new(&trial, &Measured::default()), None);
}
