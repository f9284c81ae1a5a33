//! Accounts of runs on GPUs.

use super::{
    tests::{LINE, WIDE, largest, machine, of_rows, planned},
    *,
};
use crate::{
    plan::{AllReduceRates, Engine, Gpu, GpuRates, Speed},
    program::{Phase, Shard},
    spec::Precision,
};

/// Of an H100, about.
fn gpu() -> GpuRates {
    GpuRates {
        f32_flops_per_s: 50e12,
        tf32_flops_per_s: 350e12,
        bf16_flops_per_s: 650e12,
        grid_flops_per_s: 12e12,
        block_flops_per_s: 0.1e12,
        elementwise_per_s: 10e12,
        cache_bytes_per_s: 5e12,
        memory_bytes_per_s: 3e12,
        shared_bytes_per_s: GpuRates::shared_of(1_980_000_000),
        h2d_bytes_per_s: 50e9,
        d2h_bytes_per_s: 50e9,
        h2d_latency_s: 2e-6,
        d2h_latency_s: 2e-6,
        launch_s: 3e-6,
        node_s: 1.5e-6,
        barrier_s: 1.2e-6,
        meeting_s: 0.3e-6,
        sync_s: 8e-6,
        block_s: 15e-6,
        cache_bytes: 50 << 20,
    }
}

/// The trial as a GPU of these rates runs it.
fn on_gpu(trial: &Trial, rates: GpuRates, engine: Engine, precision: Precision) -> Trial {
    let mut trial = trial.clone();
    let sums = Some(AllReduceRates { gpus: 2, small_s: 20e-6, bytes_per_s: 100e9 });
    let speed = Speed { sums, ..rates.speed(engine, precision) };
    trial.lower_bound = LowerBound::new(&trial.programs, speed, trial.data_bytes);
    (trial.engine, trial.devices.used) = (engine, vec![DeviceId::Gpu(0)]);
    trial
}

/// Steps that take `slower` times what the device must do, one behind the other.
fn busy(trial: &Trial, steps: u64, slower: f64) -> Measured {
    let compute_s = trial.lower_bound.by(1).device_s() * steps as f64 * slower;
    Measured { full_steps: steps, train_s: compute_s, compute_s, ..Measured::default() }
}

/// A GPU is one more set of rates: a tiny step is bound by what its instructions cost on each engine, a large one by
/// arithmetic in its precision, and one of large weights and few rows by memory.
#[test]
fn the_bound_of_a_step_follows_engine_and_precision() {
    let tiny = planned(LINE, "", 2, 1000, 1);
    let instructions = tiny.programs.train.instructions.len() as f64;
    for (engine, each_s, more) in [
        (Engine::Launch, 3e-6, 1.0),
        (Engine::Graph, 1.5e-6, 1.0),
        (Engine::Cooperative, 1.2e-6, 0.0),
        (Engine::Persistent, 0.3e-6, 0.0),
    ] {
        let trial = on_gpu(&tiny, gpu(), engine, Precision::F32);
        let overhead_s = (instructions + more) * each_s;
        assert!((trial.lower_bound.by(1).overhead_s / overhead_s - 1.0).abs() < 1e-9, "{engine:?}");
        let account = TimeAccount::new(&trial, &busy(&trial, 320, 1.5)).unwrap();
        assert_eq!(account.shares[0].cause, Bottleneck::Overhead);
        assert!((account.distance().unwrap() - 1.5).abs() < 1e-9, "{account:?}");
    }
    let large = planned(WIDE, "data.batch_size = 4096", 512, 8192, 1);
    let of = |precision| on_gpu(&large, gpu(), Engine::Graph, precision);
    let (f32, bf16) = (of(Precision::F32), of(Precision::Bf16));
    assert_eq!(largest(&f32, &busy(&f32, 40, 1.3)).0, Bottleneck::Arithmetic);
    let flops: f64 = large.programs.train.cost().flops;
    assert!(
        (0.9..=1.0).contains(&(f32.lower_bound.full.arithmetic_s / (flops / 50e12))),
        "{:?}",
        f32.lower_bound
    );
    assert!(
        bf16.lower_bound.full.arithmetic_s < 0.1 * f32.lower_bound.full.arithmetic_s,
        "{:?}",
        bf16.lower_bound
    );
    let wide = planned(&WIDE.replace("2048", "16384"), "data.batch_size = 2", 512, 4096, 1);
    let wide = on_gpu(&wide, gpu(), Engine::Graph, Precision::F32);
    assert_eq!(largest(&wide, &busy(&wide, 40, 1.2)).0, Bottleneck::Memory);
}

#[test]
fn a_gpu_that_waits_between_its_blocks_waits_for_its_log_or_its_rows() {
    let trial = planned(LINE, "[logging]\npolicy = \"immediate\"", 2, 1000, 1);
    let trial = on_gpu(&trial, gpu(), Engine::Persistent, Precision::F32);
    let steps = busy(&trial, 320, 1.1);
    // A hand-over per step; 2 µs of it on the host.
    let measured =
        Measured { train_s: steps.train_s + 320.0 * 14e-6, log_s: 320.0 * 2e-6, log_waits: 320, ..steps };
    assert_eq!(largest(&trial, &measured).0, Bottleneck::Log);
    for (from_file, waited) in [(false, Bottleneck::Transfer), (true, Bottleneck::File)] {
        let placement = if from_file { "auto" } else { "streamed" };
        let more = format!("[devices]\nnum_gpus = 1\n[data]\nplacement = \"{placement}\"");
        let gpus = vec![Gpu::virtual_of(1 << 36)];
        let trial = of_rows(WIDE, &more, (512, 4_000_000, from_file), gpus, 1);
        let trial = on_gpu(&trial, gpu(), Engine::Graph, Precision::F32);
        let steps = busy(&trial, 40, 1.1);
        let train_s = 2.5 * steps.train_s;
        // Nothing was measured that the GPU could have waited for.
        let idle = Measured { train_s, log_waits: 1, ..steps };
        assert_eq!(largest(&trial, &idle).0, Bottleneck::Idle);
        // What the host waited for longer than the GPU stood idle is hidden behind its steps.
        let waits = Measured { wait_s: 3.0 * steps.train_s, ..idle };
        assert_eq!(largest(&trial, &waits).0, waited);
        let copies = Measured { upload_s: 3.0 * steps.train_s, ..idle };
        assert_eq!(largest(&trial, &copies).0, Bottleneck::Transfer);
        // The bound knows it beforehand where the link is slow.
        let slow = GpuRates { h2d_bytes_per_s: 1e8, ..gpu() };
        let trial = on_gpu(&trial, slow, Engine::Graph, Precision::F32);
        assert_eq!(trial.lower_bound.by(1).bound(), Bottleneck::Transfer);
        assert_eq!(trial.lower_bound.serial_s(), (32 * 513 * 4) as f64 / 1e8);
    }
}

/// What the host does while the GPU computes costs the run nothing: rows and log are charged with the time that the GPU
/// stood idle, and with no more than all of it together.
#[test]
fn what_a_gpu_does_not_wait_for_is_not_charged() {
    let trial = planned(WIDE, "data.batch_size = 1024", 512, 4096, 1);
    let trial = on_gpu(&trial, gpu(), Engine::Graph, Precision::F32);
    let steps = busy(&trial, 40, 1.2);
    // The host moves rows for most of the run, beside the steps; the GPU is idle for a twentieth of it.
    let hidden = Measured {
        train_s: steps.compute_s / 0.95,
        upload_s: 0.9 * steps.train_s,
        log_s: 0.8 * steps.train_s,
        log_waits: 40,
        ..steps
    };
    assert_eq!(largest(&trial, &hidden).0, Bottleneck::Arithmetic);
    let account = TimeAccount::new(&trial, &hidden).unwrap();
    let of = |cause| account.shares.iter().filter(|s| s.cause == cause).map(|s| s.seconds).sum::<f64>();
    let beside = of(Bottleneck::Transfer) + of(Bottleneck::Log) + of(Bottleneck::Idle);
    assert!((beside - 0.05 * hidden.train_s).abs() < 1e-12, "{account:?}");
    // A large data set is moved before the first step, and the GPU waits for it.
    let waiting = Measured { train_s: 3.0 * steps.train_s, upload_s: 1.9 * steps.train_s, ..steps };
    assert_eq!(largest(&trial, &waiting), (Bottleneck::Transfer, 633));
}

/// Shared memory holds the model, not the data.
#[test]
fn rows_of_a_persistent_block_come_from_the_memory_of_the_gpu() {
    let trial = planned(LINE, "data.batch_size = 1024", 100, 200_000, 1);
    let bytes = trial.programs.train.instructions.iter().filter(|i| i.phase == Phase::Data);
    let bytes: f64 = bytes.map(|i| i.op.cost().bytes).sum();
    assert!(trial.data_bytes > gpu().cache_bytes && bytes > (1024 * 100 * 4) as f64);
    for (memory_bytes_per_s, cache_bytes, rate) in [
        (100e9, 50 << 20, 100e9),
        // All rows in the second-level cache.
        (100e9, 1 << 30, 200e9),
        // A block takes no more than its multiprocessor gives it.
        (3e12, 50 << 20, GpuRates::shared_of(1_980_000_000)),
    ] {
        let rates = GpuRates {
            memory_bytes_per_s,
            cache_bytes,
            cache_bytes_per_s: 2.0 * memory_bytes_per_s,
            ..gpu()
        };
        let lower_bound = on_gpu(&trial, rates, Engine::Persistent, Precision::F32).lower_bound.full;
        assert!(
            (lower_bound.rows_s / (bytes / rate) - 1.0).abs() < 1e-9,
            "{memory_bytes_per_s}: {lower_bound:?}"
        );
        let lower_bound = on_gpu(&trial, rates, Engine::Cooperative, Precision::F32).lower_bound.full;
        let whole = if cache_bytes > trial.data_bytes { rates.cache_bytes_per_s } else { memory_bytes_per_s };
        assert!(
            (lower_bound.rows_s / (bytes / whole) - 1.0).abs() < 1e-9,
            "{memory_bytes_per_s}: {lower_bound:?}"
        );
    }
}

/// Of several GPUs the slowest one's floor is the run's; one that was not measured leaves nothing to say.
#[test]
fn the_slowest_gpu_is_the_floor_of_all() {
    let trial = planned(WIDE, "data.batch_size = 1024", 512, 4096, 1);
    let real = |speed| Gpu { is_virtual: false, speed, ..Gpu::virtual_of(1 << 36) };
    let slow = GpuRates { f32_flops_per_s: 5e12, ..gpu() };
    let lower_bound = |speeds: [Option<GpuRates>; 2]| {
        let machine = machine(speeds.into_iter().map(real).collect());
        let (places, programs) = ([DeviceId::Gpu(0), DeviceId::Gpu(1)], &trial.programs);
        let ranks = places.iter().map(|place| (place, programs));
        machine.gpu_floor(ranks, (Engine::Graph, Precision::F32, true), (trial.data_bytes, None))
    };
    let both = lower_bound([Some(gpu()), Some(slow)]).unwrap();
    assert_eq!(both.rates.flops_per_s, 5e12);
    assert_eq!(lower_bound([Some(slow), Some(gpu())]), Some(both));
    assert_eq!(lower_bound([Some(gpu()), None]), None);
}

/// In a graph a sum has no time of its own: it takes its part of the step. Timed by itself it is not counted twice.
#[test]
fn sums_over_gpus_bound_small_steps() {
    let mut trial = planned(LINE, "", 2, 1000, 1);
    let shard = Shard { rank: 0, world_size: 2 };
    trial.programs = super::super::programs(&trial.spec, trial.facts, 32, false, shard, true);
    let graph = on_gpu(&trial, gpu(), Engine::Graph, Precision::F32);
    assert_eq!(graph.lower_bound.full.all_reduce_s, 20e-6, "a small sum takes its latency");
    assert_eq!(largest(&graph, &busy(&graph, 100, 1.4)).0, Bottleneck::AllReduce);
    let launch = on_gpu(&trial, gpu(), Engine::Launch, Precision::F32);
    let all_reduce_s = 100.0 * 60e-6;
    let compute_s = 100.0 * (launch.lower_bound.by(1).device_s() - 20e-6) * 1.1;
    let train_s = all_reduce_s + compute_s;
    let measured = Measured { full_steps: 100, train_s, compute_s, all_reduce_s, ..Measured::default() };
    let part = (1000.0 * all_reduce_s / train_s).round() as u32;
    assert_eq!(largest(&launch, &measured), (Bottleneck::AllReduce, part));
}

/// A virtual GPU's speed says nothing of a real one.
#[test]
fn nothing_is_said_of_a_processor_by_the_rates_of_another() {
    let mut trial = planned(LINE, "", 2, 1000, 1);
    trial.devices.used = vec![DeviceId::Gpu(0)];
    assert_eq!(TimeAccount::new(&trial, &busy(&trial, 320, 1.5)), None);
}
