//! Accounts of runs that are each constructed to be limited by one cause.

use super::*;
use crate::plan::{
    DeviceId,
    testing::{LINE, WIDE, facts, of_layers},
};

const CORES: usize = 2;

fn planned(layers: &str, overrides: &[&str], features: usize, rows: usize, threads: usize) -> Trial {
    of_layers(layers, overrides, facts(rows, features, false), threads)
}

/// A run whose steps take `slower` times their lower bound, and that does nothing else.
fn computing(trial: &Trial, steps: u64, slower: f64) -> Measured {
    let compute_s = trial.lower_bound.by(trial.threads).total_s() * steps as f64 * slower;
    Measured { full_steps: steps, train_s: compute_s, compute_s, ..Measured::default() }
}

/// The cause of the largest share, and its part in thousandths.
pub(super) fn largest(trial: &Trial, measured: &Measured) -> (Bottleneck, u32) {
    let account = TimeAccount::new(trial, measured).unwrap();
    let all: f64 = account.shares.iter().map(|share| share.seconds).sum();
    assert!((all / measured.train_s - 1.0).abs() < 1e-9, "the shares add up: {account:?}");
    (account.shares[0].cause, (1000.0 * account.part(&account.shares[0])).round() as u32)
}

/// 0.14 µs of instructions, 0.24 µs of log, plus the hand-over of each step.
#[test]
fn a_tiny_model_that_logs_at_once_is_bound_by_its_log() {
    let trial = planned(LINE, &["logging.policy=immediate", "data.batch_size=32"], 2, 10_000, 1);
    let measured = Measured {
        full_steps: 3130,
        train_s: 0.76e-6 * 3130.0,
        compute_s: 0.50e-6 * 3130.0,
        log_s: 0.24e-6 * 3130.0,
        log_waits: 3130,
        ..Measured::default()
    };
    assert_eq!(largest(&trial, &measured).0, Bottleneck::Log);
    let account = TimeAccount::new(&trial, &measured).unwrap();
    assert_eq!(account.fewer_reads, Some(FewerReads { is_buffered: false, reads: 3130, instead: 10 }));
    // With few hand-overs nothing explains the time above the bound.
    let calm = Measured { log_waits: 10, ..measured };
    let account = TimeAccount::new(&trial, &calm).unwrap();
    assert_eq!((largest(&trial, &calm).0, account.fewer_reads), (Bottleneck::Unexplained, None));
    // Waits for a core explain it, but never more than the time that is left.
    let crowded = Measured { core_wait_s: 0.1e-6 * 3130.0, ..calm };
    let account = TimeAccount::new(&trial, &crowded).unwrap();
    let core = account.shares.iter().find(|share| share.cause == Bottleneck::Core).unwrap();
    assert_eq!(core.seconds, crowded.core_wait_s);
    assert_eq!(largest(&trial, &Measured { core_wait_s: 9.0, ..calm }).0, Bottleneck::Core);
    // Page faults come next.
    let faulting = Measured { page_faults_s: 0.05e-6 * 3130.0, ..crowded };
    let account = TimeAccount::new(&trial, &faulting).unwrap();
    let of = |cause| account.shares.iter().find(|share| share.cause == cause).map(|share| share.seconds);
    assert_eq!(of(Bottleneck::PageFaults), Some(faulting.page_faults_s));
    assert_eq!(of(Bottleneck::Core), Some(faulting.core_wait_s));
    assert_eq!(largest(&trial, &Measured { page_faults_s: 9.0, ..calm }).0, Bottleneck::PageFaults);
    let account =
        TimeAccount::new(&trial, &Measured { page_faults_s: 9.0, core_wait_s: 9.0, ..calm }).unwrap();
    assert!(account.shares.iter().all(|share| share.cause != Bottleneck::PageFaults), "no time is left");
    assert_eq!(TimeAccount::new(&trial, &Measured::default()), None, "no steps");
    // A CPU's rates do not apply to a GPU.
    let mut elsewhere = trial.clone();
    elsewhere.devices.used = vec![DeviceId::Gpu(0)];
    assert_eq!(TimeAccount::new(&elsewhere, &measured), None);
}

/// Time above the lower bound is never attributed to a cause that was not measured.
#[test]
fn time_above_the_bound_is_unexplained_or_measured() {
    use Bottleneck::{AllReduce, Arithmetic, File, Memory, Unexplained};
    let wide = planned(WIDE, &["data.batch_size=1024"], 512, 4096, 1);
    let rows = planned(LINE, &["data.batch_size=1024"], 100, 1_000_000, CORES);
    let weights = planned(WIDE, &["data.batch_size=2"], 512, 4096, CORES);
    for (trial, cause) in [(&wide, Arithmetic), (&rows, Memory), (&weights, Memory)] {
        assert_eq!(trial.lower_bound.by(trial.threads).bound(), cause);
        assert_eq!(largest(trial, &computing(trial, 40, 1.2)).0, cause);
        assert_eq!(largest(trial, &computing(trial, 40, 4.7)), (Unexplained, 787));
    }
    let steps = computing(&wide, 320, 2.0);
    let more = |times: f64| Measured { train_s: (1.0 + times) * steps.compute_s, ..steps };
    let summing = Measured { all_reduce_s: 3.0 * steps.compute_s, ..more(3.0) };
    assert_eq!(largest(&wide, &summing), (AllReduce, 750));
    let streamed = ["data.placement=streamed", "data.batch_size=32"];
    let trial = of_layers(WIDE, &streamed, facts(4_000_000, 512, true), CORES);
    let steps = computing(&trial, 40, 1.2);
    let waiting = Measured { fetch_s: 2.0 * steps.compute_s, train_s: 3.0 * steps.compute_s, ..steps };
    assert_eq!(largest(&trial, &waiting), (File, 667));
}

/// Ten epochs of 1000 rows in batches of 300 each end with a step on 100 rows. The bound accounts for these
/// small steps, so the run does not seem faster than possible.
#[test]
fn a_last_batch_counts_with_its_own_rows() {
    let trial = planned(WIDE, &["data.batch_size=300"], 512, 1000, 1);
    let part = trial.lower_bound.of_steps(1, 0, 1).total_s() / trial.lower_bound.by(1).total_s();
    assert!((0.3..0.6).contains(&part), "{part}");
    let least = trial.lower_bound.of_steps(1, 30, 10).total_s();
    let measured =
        Measured { full_steps: 30, last_steps: 10, train_s: least, compute_s: least, ..Measured::default() };
    let account = TimeAccount::new(&trial, &measured).unwrap();
    assert!((account.distance() - 1.0).abs() < 1e-9, "{account:?}");
    // Faster than typical rates.
    let quick = Measured { train_s: 0.7 * least, compute_s: 0.7 * least, ..measured };
    assert!((TimeAccount::new(&trial, &quick).unwrap().distance() - 0.7).abs() < 1e-9);
}
