//! Sums over GPUs by the peer kernel, through the same executors as training: each GPU on a thread of its
//! own.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use runner::{
    cuda::{self, CudaExecutor, CudaSetup, Gpu, PeerAllReduce, RankLink},
    device::{Block, Clock, DeviceError, Executor, Grain, Ledger, Meters},
    plan::Engine,
    program::{AllReduce, Hyper, Instruction, Phase, Program, Programs, Slice},
    spec::Precision,
};

use super::{first_gpu, some};
use crate::conformance::{Bench, Numbers, SEED, ops::Suite};

const LONG: Duration = Duration::from_secs(60);

/// All GPUs, up to four; `None` if fewer than two can access each other. Their kernels wait for each other,
/// so a lock lets one test at a time use them.
fn several() -> Option<(Vec<Gpu>, MutexGuard<'static, ()>)> {
    static ONE: Mutex<()> = Mutex::new(());
    first_gpu()?;
    let gpus: Vec<Gpu> = cuda::gpus().unwrap().into_iter().take(4).collect();
    let all_reach = cuda::reaches(&gpus).iter().all(|reached| reached.len() + 1 == gpus.len());
    if gpus.len() > 1 && all_reach {
        return Some((gpus, ONE.lock().unwrap_or_else(PoisonError::into_inner)));
    }
    eprintln!("skipped: there are no two GPUs that reach each other's memory");
    None
}

/// Numbers behind those that are summed.
const BEHIND: usize = 5;

/// A bench whose only instruction sums `numbers` over the GPUs; others stand before and behind them, which must stay.
fn bench(numbers: &[f32], before: usize) -> (Bench, Slice) {
    let mut suite = Suite::new();
    let all = suite.bench.holding([&vec![0.5; before], numbers, &[0.5; BEHIND]].concat());
    (suite.bench, Slice { offset: all.offset + before, len: numbers.len(), ..all })
}

fn executor(gpu: &Gpu, bench: &Bench, of: Slice, engine: Engine, way: PeerAllReduce) -> CudaExecutor {
    let instructions =
        vec![Instruction { op: AllReduce { of, payload: of.len }.into(), phase: Phase::AllReduce }];
    let train = Program { batch: 1, rows: 1, instructions };
    let layout = bench.layout.clone();
    let programs = Programs { layout, train, train_last: None, validate: None, validate_last: None };
    let precision = Precision::F32;
    let job = CudaSetup {
        device: format!("gpu:{}", gpu.ordinal),
        gpu: gpu.clone(),
        programs,
        engine,
        precision,
        seed: SEED,
        link: RankLink::Queued(cuda::QueuedSums::Peers(Box::new(way))),
    };
    let mut executor = CudaExecutor::new(job).unwrap();
    bench.load(&mut executor);
    executor
}

/// Runs `steps` steps and waits for them.
fn steps(executor: &mut CudaExecutor, of: Slice, steps: usize) -> Result<Vec<f32>, DeviceError> {
    let hyper = vec![Hyper::default(); steps];
    let block = Block::first(&hyper, steps);
    let mut clock = Clock::new(Grain::Blocks);
    let (mut ledger, mut ends) = (Ledger::default(), Vec::new());
    executor.run(&block, &mut Meters { clock: &mut clock, ledger: &mut ledger, ends: &mut ends })?;
    let mut numbers = vec![0.0; of.len];
    executor.read(of, &mut numbers)?;
    Ok(numbers)
}

#[test]
fn every_gpu_holds_the_sums_in_the_order_of_ranks() {
    let Some((gpus, _one)) = several() else { return };
    // More steps than one graph holds.
    const STEPS: usize = 19;
    for count in 2..=gpus.len() {
        let gpus = &gpus[..count];
        for n in some(&[1025, 3, 20_000, 131_072], 3) {
            for engine in [Engine::Graph, Engine::Launch] {
                let (ranks, _abort) = cuda::connect(gpus, n, LONG).unwrap();
                // Small enough that repeated all-reduces stay finite.
                let brought = |rank: usize| Numbers(rank as u64).take(n);
                let got: Vec<Vec<f32>> = thread::scope(|scope| {
                    let one = |rank: usize, way: PeerAllReduce| {
                        // So each GPU has them at another alignment.
                        let (bench, of) = bench(&brought(rank), rank);
                        let mut executor = executor(&gpus[rank], &bench, of, engine, way);
                        let sums = steps(&mut executor, of, STEPS).unwrap();
                        for (offset, len) in [(of.offset - rank, rank), (of.offset + n, BEHIND)] {
                            let mut around = vec![0.0; len];
                            executor.read(Slice { offset, len, ..of }, &mut around).unwrap();
                            assert!(around.iter().all(|x| *x == 0.5), "{around:?}");
                        }
                        sums
                    };
                    let asked: Vec<_> = ranks
                        .into_iter()
                        .enumerate()
                        .map(|(rank, way)| scope.spawn(move || one(rank, way)))
                        .collect();
                    asked.into_iter().map(|thread| thread.join().unwrap()).collect()
                });
                let mut all: Vec<Vec<f32>> = (0..count).map(brought).collect();
                for _ in 0..STEPS {
                    let mut sum = all[0].clone();
                    for numbers in &all[1..] {
                        sum.iter_mut().zip(numbers).for_each(|(sum, x)| *sum += x);
                    }
                    all.fill(sum);
                }
                assert!(got == all, "{count} GPUs, {n} numbers, {engine:?}");
            }
        }
    }
}

#[test]
fn a_gpu_that_does_not_come_is_named_with_the_step() {
    let Some((gpus, _one)) = several() else { return };
    for engine in [Engine::Graph, Engine::Launch] {
        let (ranks, _abort) = cuda::connect(&gpus[..2], 100, Duration::from_millis(20)).unwrap();
        let (bench, of) = bench(&[1.0; 100], 0);
        let mut ranks = ranks.into_iter();
        let mut first = executor(&gpus[0], &bench, of, engine, ranks.next().unwrap());
        let fault = steps(&mut first, of, 2).unwrap_err().to_string();
        assert_eq!(fault, "`gpu:0`, step 1: `gpu:1` did not come to the sum over devices within 20.0 ms");
    }
}

#[test]
fn a_gpu_that_waits_is_let_go() {
    let Some((gpus, _one)) = several() else { return };
    let (ranks, abort) = cuda::connect(&gpus[..2], 100, LONG).unwrap();
    let (bench, of) = bench(&[1.0; 100], 0);
    let mut first = executor(&gpus[0], &bench, of, Engine::Graph, ranks.into_iter().next().unwrap());
    let fault = thread::scope(|scope| {
        let waiting = scope.spawn(|| steps(&mut first, of, 1).unwrap_err().to_string());
        abort.now();
        waiting.join().unwrap()
    });
    assert_eq!(fault, "`gpu:0`, step 1: another device of the run has failed");
}

#[test]
fn a_gpu_is_not_its_own_peer() {
    let Some((gpus, _one)) = several() else { return };
    let twice = [gpus[0].clone(), gpus[0].clone()];
    let refused = cuda::connect(&twice, 1, LONG).err();
    assert_eq!(refused.as_deref(), Some("`gpu:0` would have to wait for itself"));
}
