//! A GPU whose sum over the others does not end is not waited for for ever, whatever the host wants of it: in the stand-in
//! libraries a stream stands still, and a call that would wait for it ends the process.

use std::{
    process::Command,
    sync::{Arc, Barrier},
    thread,
    time::Duration,
};

use runner::{
    collective::Abort,
    device::{
        Block, Clock, DeviceError, Executor, Grain, Ledger, Meters, Purpose, Work,
        cuda::{self, CudaExecutor, Job, Nccl, Way},
    },
    plan::Engine,
    program::{Hyper, LossKind, Options, Programs, Shard, Slice, Sums, UpdateRule, lower},
    spec::{Metric, Policy, Precision},
};

use super::Sim;
use crate::conformance::gradients::linear;

/// How long the GPUs wait for each other.
const LIMIT: Duration = Duration::from_millis(50);
const HYPER: Hyper = Hyper { rate: 0.1, first: 0.0, correction: 1.0, shrink: 1.0 };
const ROWS: usize = 64;
const BATCH: usize = 4;

/// Linear regression, one half of each batch on each of two GPUs.
fn programs(rank: usize, streamed: bool) -> Programs {
    lower(&Options {
        layers: &[linear(1, true)],
        loss: LossKind::Mse,
        features: 2,
        targets: 1,
        rule: UpdateRule::Sgd { momentum: false, nesterov: false, weight_decay: 0.0 },
        clip: None,
        metrics: &[Metric::Loss],
        policy: Policy::Buffered,
        log_slots: ROWS / BATCH,
        batch: BATCH,
        last: None,
        validation: None,
        ordered: false,
        streamed,
        fold_update: false,
        shard: Shard { rank, world_size: 2 },
    })
}

/// Both GPUs, connected; rows are bound.
fn pair(engine: Engine, streamed: bool) -> (Vec<CudaExecutor>, Abort) {
    let gpus = cuda::gpus().unwrap();
    let (ranks, abort) = Nccl::open().unwrap().communicators(&[0, 1], LIMIT).unwrap();
    let made = ranks.into_iter().zip(gpus).enumerate().map(|(rank, (way, gpu))| {
        let programs = programs(rank, streamed);
        let (precision, way) = (Precision::F32, Way::Nccl(way));
        CudaExecutor::new(Job { gpu, programs, engine, precision, seed: 1, way }).unwrap()
    });
    (made.collect(), abort)
}

/// A rank and its layout.
struct Rank {
    executor: CudaExecutor,
    programs: Programs,
    step: usize,
}

impl Rank {
    fn bind(&mut self) -> Result<(), DeviceError> {
        let layout = &self.programs.layout;
        let (features, targets) = (layout.train_features, layout.train_targets);
        self.executor.bind(features, &Arc::new(vec![1.0; 2 * ROWS]))?;
        self.executor.bind(targets, &Arc::new(vec![1.0; ROWS])).map(drop)
    }

    fn step(&mut self) -> Result<(), DeviceError> {
        let step = self.step;
        self.step += 1;
        let block = Block {
            work: Work::Train,
            step: step as u64,
            position: step * BATCH,
            offset: 0,
            rows: ROWS,
            steps: 1,
            hyper: &[HYPER],
            slot: step,
        };
        metered(|meters| self.executor.run(&block, meters).map(drop))
    }

    fn values(&self) -> Slice {
        self.programs.layout.whole(self.programs.layout.values)
    }
}

fn metered(work: impl FnOnce(&mut Meters<'_>) -> Result<(), DeviceError>) -> Result<(), DeviceError> {
    let mut clock = Clock::new(Grain::Blocks);
    let (mut ledger, mut ends) = (Ledger::default(), Vec::new());
    work(&mut Meters { clock: &mut clock, ledger: &mut ledger, ends: &mut ends })
}

type Part = fn(&mut Rank) -> Result<(), DeviceError>;

/// What the host may want of a GPU that stands still in its first step.
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
    ("its sums", |rank| rank.executor.take_sums(Sums::Epoch, &mut [0.0]).map(drop)),
    ("a digest", |rank| rank.executor.digest(rank.values()).map(drop)),
    ("a place to copy from", |rank| {
        let values = rank.values();
        (0..3).try_for_each(|_| rank.executor.write(values, &vec![0.0; values.len]).map(drop))
    }),
    ("a place for an order", |rank| {
        (0..3).try_for_each(|_| rank.executor.bind_order(&Arc::new(vec![0; ROWS])).map(drop))
    }),
    ("a place for a chunk", |rank| (0..4).try_for_each(|_| rank.bind())),
];

/// What each GPU says when both do a part, after a first step that does not end.
fn both(engine: Engine, name: &str, part: Part) -> Vec<String> {
    let (executors, _) = pair(engine, name.contains("chunk"));
    let work = |(rank, executor): (usize, CudaExecutor)| {
        let mut rank = Rank { executor, programs: programs(rank, name.contains("chunk")), step: 0 };
        let ready = rank.executor.warm_up().and_then(|()| rank.bind()).and_then(|()| rank.step());
        ready.unwrap();
        part(&mut rank).expect_err(name).to_string()
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
        // The sum by which they are connected.
        let (executors, _) = pair(Engine::Graph, false);
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
    for engine in [Engine::Graph, Engine::Launch] {
        for (name, part) in PARTS {
            let said = both(engine, name, part);
            // One of them is the first to give up, and ends the sums of both.
            assert!(said.iter().any(|said| said.ends_with(&late)), "{name}: {said:?}");
            for (rank, said) in said.iter().enumerate() {
                let told = said.ends_with(&late) || said.contains("NCCL: another process");
                assert!(told && said.starts_with(&format!("`gpu:{rank}`, ")), "{name}: {said}");
            }
        }
        // Whoever is let go since another failed says no more than that.
        let (executors, abort) = pair(engine, false);
        let meet = Barrier::new(2);
        let ended: Vec<String> = thread::scope(|scope| {
            let meet = &meet;
            let ranks = executors.into_iter().enumerate().map(|(rank, executor)| {
                let abort = abort.clone();
                scope.spawn(move || {
                    let mut rank = Rank { executor, programs: programs(rank, false), step: 0 };
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

fn in_a_process_of_its_own(part: &str, stall: &str) {
    let Some(sim) = Sim::get() else { return };
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "cuda::waits::alone", "--ignored", "--nocapture"]);
    let variables = [("PART", part), ("RUNNER_SIM_DEVICES", "2"), ("RUNNER_SIM_FAIL", stall)];
    let output = sim.on(&mut command, &variables).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{part}: {text}");
}

#[test]
fn a_gpu_that_stands_still_is_given_up_in_time() {
    in_a_process_of_its_own("every", "stall:2");
}

#[test]
fn gpus_that_cannot_be_connected_say_so_before_the_first_step() {
    in_a_process_of_its_own("first", "stall:1");
}
