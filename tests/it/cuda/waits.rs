//! Every wait of the host for a hung GPU ends, whether the all-reduce or one of the GPU's own kernels hangs.
//! A simulated stream then stops making progress, and a blocking call on it would end the process.

use std::{
    sync::{Arc, Barrier},
    thread,
    time::Duration,
};

use runner::{
    collective::Abort,
    cuda::{self, CudaExecutor, CudaSetup, Gpu, Nccl, RankLink},
    device::{Block, Clock, DeviceError, Executor, Grain, Ledger, LentMemory, Meters, Purpose},
    plan::Engine,
    program::{Accumulator, Hyper, LossKind, Op, Options, Programs, RowSource, Shard, Slice, lower},
    spec::{Layer, Precision},
};

use crate::conformance::gradients::linear;

/// How long the GPUs wait for each other: longer than a busy processor takes for the sums that connect them.
const LIMIT: Duration = Duration::from_millis(300);
const HYPER: Hyper = Hyper { rate: 0.1, first: 0.0, correction: 1.0, decay_factor: 1.0, loss_scale: 1.0 };
const ROWS: usize = 64;
const BATCH: usize = 4;

/// Linear regression with each batch split over several GPUs; with a hidden layer in tests of sums that start early.
fn programs(shard: Shard, streamed: bool) -> Programs {
    match std::env::var("PART").as_deref() {
        Ok("early") => of_layers(&HIDDEN, shard, streamed).with_early_sums(1, true),
        _ => of_layers(&HIDDEN[1..], shard, streamed),
    }
}

pub const HIDDEN: [Layer; 2] = [linear(3, true), linear(1, true)];

pub fn of_layers(layers: &[Layer], shard: Shard, streamed: bool) -> Programs {
    lower(&Options {
        log_slots: ROWS / BATCH,
        streamed,
        shard,
        ..Options::new(layers, LossKind::Mse, [2, 1], BATCH)
    })
}

const ALONE: Shard = Shard { rank: 0, world_size: 1 };

pub fn half(rank: usize) -> Shard {
    Shard { rank, world_size: 2 }
}

fn load(gpu: Gpu, engine: Engine, programs: Programs, link: RankLink) -> Result<CudaExecutor, DeviceError> {
    CudaExecutor::new(CudaSetup {
        device: format!("gpu:{}", gpu.ordinal),
        gpu,
        programs,
        engine,
        precision: Precision::F32,
        seed: 1,
        link,
    })
}

pub fn loaded(gpu: Gpu, engine: Engine, programs: Programs, link: RankLink) -> CudaExecutor {
    load(gpu, engine, programs, link).unwrap()
}

/// Both GPUs, connected.
fn pair(engine: Engine, streamed: bool, limit: Duration) -> (Vec<CudaExecutor>, Abort) {
    let gpus = cuda::gpus().unwrap();
    let (ranks, abort) = Nccl::open().unwrap().communicators(&gpus[..2], limit).unwrap();
    let made = ranks.into_iter().zip(gpus).enumerate();
    let made = made.map(|(rank, (nccl, gpu))| {
        loaded(gpu, engine, programs(half(rank), streamed), RankLink::Queued(cuda::QueuedSums::Nccl(nccl)))
    });
    (made.collect(), abort)
}

/// One rank's executor and layout.
pub struct Rank {
    pub executor: CudaExecutor,
    pub programs: Programs,
    pub step: usize,
}

impl Rank {
    pub fn bind(&mut self) -> Result<(), DeviceError> {
        let layout = &self.programs.layout;
        for (buffer, elements) in [(layout.train_features, 2 * ROWS), (layout.train_targets, ROWS)] {
            if self.is_streamed() {
                let lent = LentMemory::new(self.executor.lend(elements)?);
                let mut rows = lent.take(elements).expect("nobody closed it");
                rows.fill(1.0);
                self.executor.bind_lent(buffer, &Arc::new(rows))?;
            } else {
                self.executor.bind(buffer, &Arc::new(vec![1.0; elements]))?;
            }
        }
        Ok(())
    }

    fn is_streamed(&self) -> bool {
        let first = self.programs.train.instructions.first().map(|first| &first.op);
        matches!(first, Some(Op::Gather(gather)) if gather.source == RowSource::Chunk)
    }

    pub fn step(&mut self) -> Result<(), DeviceError> {
        let step = self.step;
        self.step += 1;
        let (position, first) = (step * BATCH, Block::first(&[HYPER], ROWS));
        let block = Block { step: step as u64, position, slot: step, ..first };
        metered(|meters| self.executor.run(&block, meters).map(drop))
    }

    pub fn values(&self) -> Slice {
        self.programs.layout.whole(self.programs.layout.values)
    }
}

fn metered(work: impl FnOnce(&mut Meters<'_>) -> Result<(), DeviceError>) -> Result<(), DeviceError> {
    let mut clock = Clock::new(Grain::Blocks);
    let (mut ledger, mut ends) = (Ledger::default(), Vec::new());
    work(&mut Meters { clock: &mut clock, ledger: &mut ledger, ends: &mut ends })
}

type Part = fn(&mut Rank) -> Result<(), DeviceError>;

/// Everything that the host may do with a GPU that hangs in its first step.
const PARTS: [(&str, Part); 9] = [
    ("a place in the queue", |rank| (0..2).try_for_each(|_| rank.step())),
    ("the times of its steps", |rank| metered(|meters| rank.executor.settle(Purpose::Log, meters).map(drop))),
    ("its log", |rank| {
        let log = Slice { len: 1, ..rank.programs.layout.whole(rank.programs.layout.log) };
        rank.executor.read(log, &mut [0.0]).map(drop)
    }),
    ("its parameters", |rank| {
        let values = rank.values();
        rank.executor.read(values, &mut vec![0.0; values.len]).map(drop)
    }),
    ("its sums", |rank| rank.executor.take_sums(Accumulator::Epoch, &mut [0.0]).map(drop)),
    ("a digest", |rank| rank.executor.digest(rank.values()).map(drop)),
    ("a place to copy from", |rank| {
        let values = rank.values();
        (0..3).try_for_each(|_| rank.executor.write(values, &vec![0.0; values.len]).map(drop))
    }),
    ("a place for an order", |rank| {
        (0..5).try_for_each(|_| rank.executor.bind_order(&Arc::new(vec![0; ROWS])).map(drop))
    }),
    ("a place for a chunk", |rank| (0..4).try_for_each(|_| rank.bind())),
];

/// The errors of both GPUs when both do `part`, after a first step that hangs.
fn both(engine: Engine, name: &str, part: Part) -> Vec<String> {
    let (executors, _) = pair(engine, name.contains("chunk"), LIMIT);
    let meet = Barrier::new(2);
    let work = |(rank, executor): (usize, CudaExecutor)| {
        let mut rank = Rank { executor, programs: programs(half(rank), name.contains("chunk")), step: 0 };
        let ready = rank.executor.warm_up().and_then(|()| rank.bind());
        // Neither may give up before both have started.
        meet.wait();
        ready.unwrap();
        // If the other GPU has already given up, the step itself reports it.
        rank.step().and_then(|()| part(&mut rank)).expect_err(name).to_string()
    };
    thread::scope(|scope| {
        let ranks: Vec<_> = executors.into_iter().enumerate().map(|r| scope.spawn(move || work(r))).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

#[test]
#[ignore = "a part of another test, which runs it in a process of its own"]
fn alone() {
    let late = format!("the other GPUs did not come to the sum within {LIMIT:?}");
    if std::env::var("PART").as_deref() == Ok("first") {
        // The all-reduce by which the GPUs connect hangs.
        let (executors, _) = pair(Engine::Graph, false, LIMIT);
        thread::scope(|scope| {
            for mut executor in executors {
                scope.spawn(move || {
                    let said = executor.warm_up().expect_err("no sum").to_string();
                    assert!(said.contains(", connecting the GPUs: "), "{said}");
                });
            }
        });
        return;
    }
    // Of sums in a stream of their own, a few waits show that they end, too.
    let parts = if std::env::var("PART").as_deref() == Ok("early") { 3 } else { PARTS.len() };
    for engine in [Engine::Graph, Engine::Launch] {
        for (name, part) in PARTS.into_iter().take(parts) {
            let said = both(engine, name, part);
            // One of them times out first, and aborts the sums of both.
            assert!(said.iter().any(|said| said.ends_with(&late)), "{name}: {said:?}");
            for (rank, said) in said.iter().enumerate() {
                let reported = said.ends_with(&late) || said.contains("NCCL: another process");
                assert!(reported && said.starts_with(&format!("`gpu:{rank}`, ")), "{name}: {said}");
            }
        }
        // A rank that was released because another failed reports only that.
        let (executors, abort) = pair(engine, false, LIMIT);
        let meet = Barrier::new(2);
        let ended: Vec<String> = thread::scope(|scope| {
            let meet = &meet;
            let ranks = executors.into_iter().enumerate().map(|(rank, executor)| {
                let abort = abort.clone();
                scope.spawn(move || {
                    let mut rank = Rank { executor, programs: programs(half(rank), false), step: 0 };
                    rank.executor.warm_up().and_then(|()| rank.bind()).unwrap();
                    rank.step().and_then(|()| rank.step()).unwrap();
                    meet.wait();
                    abort.now();
                    rank.step().expect_err("ended").to_string()
                })
            });
            let ranks: Vec<_> = ranks.collect();
            ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
        });
        let want = [
            "`gpu:0`, step 2: another device of the run has failed",
            "`gpu:1`, step 2: another device of the run has failed",
        ];
        assert_eq!(ended, want);
    }
}

/// A single GPU whose first kernel never ends. Each call is tested on a GPU of its own.
#[test]
#[ignore = "a part of another test, which runs it in a process of its own"]
fn hanging() {
    let gpus = cuda::gpus().unwrap();
    let engines = [Engine::Persistent, Engine::Cooperative, Engine::Graph, Engine::Launch];
    let cases = PARTS.iter().flat_map(|part| engines.map(|engine| (engine, part)));
    for (gpu, (engine, (name, part))) in gpus.iter().zip(cases) {
        let streamed = name.contains("chunk");
        let executor = loaded(gpu.clone(), engine, programs(ALONE, streamed), RankLink::Alone);
        let mut rank = Rank { executor, programs: programs(ALONE, streamed), step: 0 };
        rank.executor.warm_up().and_then(|()| rank.bind()).and_then(|()| rank.step()).unwrap();
        let said = part(&mut rank).expect_err(name).to_string();
        let values = rank.values();
        let doing = match *name {
            "a place to copy from" => format!("copying {} bytes to it", 4 * values.len),
            "a place for an order" => "uploading the order of rows".to_owned(),
            "a place for a chunk" => "uploading training features".to_owned(),
            _ => "running step 1".to_owned(),
        };
        let last = if *name == "a place in the queue" { 2 } else { 1 };
        let device = format!("gpu:{}", gpu.ordinal);
        let limit = said.split_once("within ").and_then(|(_, rest)| rest.split_once(", ")).unwrap().0;
        let want = format!(
            "`{device}` hangs while {doing}: it has not ended within {limit}, and the last step that it was given is {last}; \
             look at `dmesg` and `nvidia-smi -q`; where it is only slow, `RUNNER_GPU_WAIT_S` sets for how many seconds it is \
             waited for at least"
        );
        assert_eq!(said, want, "{engine:?}, {name}");
        // The buffer is never waited for, freed or used again.
        let mut numbers = vec![0.0; values.len];
        assert!(
            rank.executor.read(values, &mut numbers).is_err_and(|e| e.to_string().contains(" hangs while "))
        );
        drop(rank);
        let again = load(gpu.clone(), engine, programs(ALONE, streamed), RankLink::Alone);
        let refused = format!(
            "`{device}` cannot be used: it hangs since it was used before: end this process, and look at `dmesg`"
        );
        assert_eq!(again.err().unwrap().to_string(), refused);
    }
}

/// One of two trials on a GPU hangs. The other frees nothing of it, which would wait for ever.
#[test]
#[ignore = "a part of another test, which runs it in a process of its own"]
fn beside() {
    let gpu = cuda::gpus().unwrap().remove(0);
    let trial = || {
        let executor = loaded(gpu.clone(), Engine::Persistent, programs(ALONE, false), RankLink::Alone);
        Rank { executor, programs: programs(ALONE, false), step: 0 }
    };
    let (mut first, mut second) = (trial(), trial());
    first.bind().and_then(|()| first.step()).unwrap();
    let settled = metered(|meters| first.executor.settle(Purpose::Log, meters).map(drop));
    assert!(settled.expect_err("it hangs").to_string().contains(" hangs while running step 1"));
    // Nobody has the rows of the first any more, neither on the host nor on the GPU.
    drop(first);
    second.bind().unwrap();
}

/// Rows that no trial uses fill a GPU. A trial that needs their memory waits until another one has uploaded its own.
#[test]
#[ignore = "a part of another test, which runs it in a process of its own"]
fn crowded() {
    let gpu = cuda::gpus().unwrap().remove(0);
    let trial = |outputs| {
        let programs = of_layers(&[linear(outputs, true), linear(1, true)], ALONE, false);
        let features = programs.layout.train_features;
        load(gpu.clone(), Engine::Cooperative, programs, RankLink::Alone).map(|trial| (trial, features))
    };
    let [unused, others] = [760_000, 750_000].map(|elements| Arc::new(vec![1.0; elements]));
    let (mut first, features) = trial(1).unwrap();
    let (mut second, _) = trial(1).unwrap();
    first.bind(features, &unused).unwrap();
    drop(first);
    let log = std::env::var("RUNNER_SIM_LOG").unwrap();
    thread::scope(|scope| {
        scope.spawn(|| second.bind(features, &others).unwrap());
        while !std::fs::read_to_string(&log).is_ok_and(|calls| calls.contains("h2d 3000000")) {
            thread::yield_now();
        }
        let (large, _) = trial(50_000).unwrap();
        assert!(large.bytes() > 3_000_000);
    });
}

/// One of two GPUs fails before it reaches the sum, while the other is inside NCCL's call.
#[test]
#[ignore = "a part of another test, which runs it in a process of its own"]
fn inside() {
    let long = Duration::from_secs(3600);
    for engine in [Engine::Launch, Engine::Graph] {
        let (executors, abort) = pair(engine, false, long);
        let mut executors = executors.into_iter();
        let (first, second) = (executors.next().unwrap(), executors.next().unwrap());
        let said = thread::scope(|scope| {
            let first = scope.spawn(move || {
                let mut rank = Rank { executor: first, programs: programs(half(0), false), step: 0 };
                rank.executor.warm_up().expect_err("nobody comes").to_string()
            });
            // Waits until the log shows that the first GPU has entered the call; only then the other fails.
            let log = std::env::var("RUNNER_SIM_LOG").unwrap();
            let comes =
                |log: &str| std::fs::read_to_string(log).is_ok_and(|calls| calls.contains("0 all_reduce"));
            while !comes(&log) {
                thread::yield_now();
            }
            abort.now();
            drop(second);
            std::fs::remove_file(&log).unwrap();
            first.join().unwrap()
        });
        assert_eq!(said, "`gpu:0`, step 0: another device of the run has failed", "{engine:?}");
    }
}
