//! Verdicts on jobs on GPUs.

use super::{
    tests::{LINE, WIDE, machine, of_rows, planned, setting},
    *,
};
use crate::{
    plan::{AllReduceRates, Gpu, GpuRates, Speed},
    program::{Phase, Shard},
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

/// The floor and the setting of a trial on a GPU of these rates.
fn on_gpu(trial: &Trial, rates: GpuRates, engine: Engine, precision: Precision) -> (LowerBound, RunConfig) {
    let sums = Some(AllReduceRates { gpus: 2, small_s: 20e-6, bytes_per_s: 100e9 });
    let speed = Speed { sums, fetch: trial.lower_bound.fetch, ..rates.speed(engine, precision) };
    let lower_bound = LowerBound::new(&trial.programs, speed, trial.data_bytes);
    (lower_bound, RunConfig { on_gpu: true, engine, precision, ..setting(trial) })
}

/// Steps that take `slower` times what the device must do, one behind the other.
fn busy(lower_bound: &LowerBound, steps: u64, slower: f64) -> Measured {
    let compute_s = lower_bound.by(1).device_s() * steps as f64 * slower;
    Measured { steps, train_s: compute_s, compute_s, ..Measured::default() }
}

fn said(lower_bound: &LowerBound, spent: &Measured, setting: &RunConfig) -> (&'static str, String) {
    let verdict = Verdict::compute(lower_bound, spent, setting).unwrap();
    (verdict.limit_name, verdict.advice)
}

/// A GPU is one more set of rates: the same tiny step is bound by its launches there, and by barriers where one launch
/// walks all steps.
#[test]
fn a_tiny_model_on_a_gpu_is_bound_by_launch_latency() {
    let trial = planned(LINE, "", 2, 1000, 1);
    let instructions = trial.programs.train.instructions.len() as f64;
    for (engine, name, each_s, more) in [
        (Engine::Launch, "launch latency", 3e-6, 1.0),
        (Engine::Graph, "launch latency", 1.5e-6, 1.0),
        (Engine::Cooperative, "barriers", 1.2e-6, 0.0),
        (Engine::Persistent, "barriers", 0.3e-6, 0.0),
    ] {
        let (lower_bound, setting) = on_gpu(&trial, gpu(), engine, Precision::F32);
        let overhead_s = (instructions + more) * each_s;
        assert!((lower_bound.by(1).overhead_s / overhead_s - 1.0).abs() < 1e-9, "{engine:?}");
        let spent = busy(&lower_bound, 320, 1.5);
        let verdict = Verdict::compute(&lower_bound, &spent, &setting).unwrap();
        assert_eq!(verdict.limit_name, name);
        assert!((verdict.distance() - 1.5).abs() < 1e-9 && verdict.share > 0.9, "{verdict:?}");
        assert_eq!(verdict.advice, "a larger `data.batch_size`: more rows share a step's fixed costs");
    }
    let (lower_bound, setting) = on_gpu(&trial, gpu(), Engine::Launch, Precision::F32);
    let setting = RunConfig { asked: EngineChoice::Launch, ..setting };
    let advice = "`devices.engine=auto`: the plan has ways to run a step without a launch per instruction";
    assert_eq!(
        said(&lower_bound, &busy(&lower_bound, 320, 2.0), &setting),
        ("launch latency", advice.into())
    );
}

#[test]
fn a_big_model_on_a_gpu_is_bound_by_arithmetic_at_the_rate_of_its_precision() {
    let trial = planned(WIDE, "data.batch_size = 4096", 512, 8192, 1);
    let (f32, setting) = on_gpu(&trial, gpu(), Engine::Graph, Precision::F32);
    let advice = "`devices.precision=tf32`, if products of 10 bits of mantissa will do; or more GPUs";
    assert_eq!(said(&f32, &busy(&f32, 40, 1.3), &setting), ("arithmetic", advice.into()));
    let (bf16, setting) = on_gpu(&trial, gpu(), Engine::Graph, Precision::Bf16);
    assert_eq!(said(&bf16, &busy(&bf16, 40, 1.3), &setting).1, "more GPUs, or a smaller model");
    let flops: f64 = trial.programs.train.cost().flops;
    assert!((0.9..=1.0).contains(&(f32.arithmetic_s / (flops / 50e12))), "{f32:?}");
    assert!(bf16.arithmetic_s < 0.1 * f32.arithmetic_s, "{bf16:?}");
}

#[test]
fn large_weights_and_few_rows_on_a_gpu_are_bound_by_memory() {
    let wide = WIDE.replace("2048", "16384");
    let trial = planned(&wide, "data.batch_size = 2", 512, 4096, 1);
    let (lower_bound, setting) = on_gpu(&trial, gpu(), Engine::Graph, Precision::F32);
    let advice = "a larger `data.batch_size`: weights are read once per step, for however many rows";
    assert_eq!(said(&lower_bound, &busy(&lower_bound, 40, 1.2), &setting), ("memory", advice.into()));
}

#[test]
fn a_gpu_that_waits_between_its_blocks_waits_for_its_log_or_its_rows() {
    let trial = planned(LINE, "[logging]\npolicy = \"immediate\"", 2, 1000, 1);
    let (lower_bound, setting) = on_gpu(&trial, gpu(), Engine::Persistent, Precision::F32);
    let steps = busy(&lower_bound, 320, 1.1);
    // A hand-over per step; 2 µs of it on the host.
    let spent =
        Measured { train_s: steps.train_s + 320.0 * 14e-6, log_s: 320.0 * 2e-6, log_waits: 320, ..steps };
    assert_eq!(
        said(&lower_bound, &spent, &setting),
        ("log", "`logging.policy=buffered` moves the losses in blocks".into())
    );

    let more = "[devices]\nnum_gpus = 1\n[data]\nplacement = \"streamed\"";
    let trial = of_rows(WIDE, more, (512, 4096, false), vec![Gpu::virtual_of(1 << 36)], 1);
    let (lower_bound, setting) = on_gpu(&trial, gpu(), Engine::Graph, Precision::F32);
    let steps = busy(&lower_bound, 40, 1.1);
    let spent = Measured { train_s: 2.5 * steps.train_s, log_waits: 1, ..steps };
    let advice = "`data.placement=auto` keeps the rows on the device where they fit";
    assert_eq!(said(&lower_bound, &spent, &setting), ("transfer", advice.into()));
    // The floor knows it beforehand where the link is slow.
    let slow = GpuRates { h2d_bytes_per_s: 1e8, ..gpu() };
    let (lower_bound, _) = on_gpu(&trial, slow, Engine::Graph, Precision::F32);
    assert_eq!(lower_bound.bound_name(lower_bound.bound()), "transfer");
    assert_eq!(lower_bound.serial_s(), (32 * 513 * 4) as f64 / 1e8);
}

/// A GPU waits for what is slower: the file that its rows come from, or the way to it.
#[test]
fn rows_from_a_file_are_told_from_rows_on_their_way() {
    let of = |in_file| {
        let gpus = vec![Gpu::virtual_of(1 << 36)];
        let placement = if in_file { "auto" } else { "streamed" };
        let more = format!("[devices]\nnum_gpus = 1\n[data]\nplacement = \"{placement}\"");
        of_rows(WIDE, &more, (512, 4_000_000, in_file), gpus, 1)
    };
    let waits = |trial: &Trial, rates| {
        let (lower_bound, setting) = on_gpu(trial, rates, Engine::Graph, Precision::F32);
        let steps = busy(&lower_bound, 40, 1.1);
        said(&lower_bound, &Measured { train_s: 2.5 * steps.train_s, log_waits: 1, ..steps }, &setting)
    };
    let file = "more memory: each row is copied out of its file, which the system has in its own";
    assert_eq!(waits(&of(true), gpu()), ("file reads", file.into()));
    let slow = GpuRates { h2d_bytes_per_s: 1e8, ..gpu() };
    let link = "a device with memory for the rows: they are brought to it anew in every epoch";
    assert_eq!(waits(&of(true), slow), ("transfer", link.into()));
    assert_eq!(waits(&of(false), gpu()).0, "transfer");
    // The floor knows it beforehand.
    let trial = of(true);
    let (lower_bound, _) = on_gpu(&trial, gpu(), Engine::Graph, Precision::F32);
    let parts = lower_bound.by(1);
    assert!(parts.read_s > parts.upload_s && parts.fetch_s == 0.0, "{parts:?}");
}

/// What the host does while the GPU computes costs the run nothing: rows and log are charged with the time that the GPU
/// stood idle, and with no more than all of it together.
#[test]
fn what_a_gpu_does_not_wait_for_is_not_charged() {
    let trial = planned(WIDE, "data.batch_size = 1024", 512, 4096, 1);
    let (lower_bound, setting) = on_gpu(&trial, gpu(), Engine::Graph, Precision::F32);
    let steps = busy(&lower_bound, 40, 1.2);
    // The host moves rows for most of the run, beside the steps; the GPU is idle for a twentieth of it.
    let hidden = Measured {
        train_s: steps.compute_s / 0.95,
        transfer_s: 0.9 * steps.train_s,
        log_s: 0.8 * steps.train_s,
        log_waits: 40,
        ..steps
    };
    let verdict = Verdict::compute(&lower_bound, &hidden, &setting).unwrap();
    assert_eq!((verdict.limit, verdict.limit_name), (Bottleneck::Step(StepBound::Arithmetic), "arithmetic"));
    let idle = idle(&lower_bound, &hidden, &setting);
    assert!((idle.rows_s + idle.log_s - 0.05 * hidden.train_s).abs() < 1e-12, "{idle:?}");
    // Where the GPU does wait for them, they bound the run: a large data set is moved before the first step.
    let waiting = Measured { train_s: 3.0 * steps.train_s, transfer_s: 1.9 * steps.train_s, ..steps };
    let verdict = Verdict::compute(&lower_bound, &waiting, &setting).unwrap();
    assert_eq!(
        (verdict.limit, verdict.advice.as_str()),
        (Bottleneck::Transfer, "more epochs: the rows are moved once")
    );
    assert!((verdict.share - 1.9 / 3.0).abs() < 1e-12, "{verdict:?}");
    // More epochs are no advice to a run that ended itself, and not what one ended by its steps needs.
    let advised =
        |longer| Verdict::compute(&lower_bound, &waiting, &RunConfig { longer, ..setting }).unwrap().advice;
    assert_eq!(advised(None), "fewer rows: they are moved once, whatever the number of steps");
    assert_eq!(advised(Some(RunLimit::Steps)), "a larger `trainer.max_steps`: the rows are moved once");
    assert_eq!(advised(Some(RunLimit::Time)), "a longer `trainer.max_time`: the rows are moved once");
    let trial = planned(WIDE, "trainer.max_steps = 9", 512, 4096, 1);
    assert_eq!(RunLimit::from_trial(&trial), RunLimit::Steps);
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
        let (lower_bound, _) = on_gpu(&trial, rates, Engine::Persistent, Precision::F32);
        assert!(
            (lower_bound.rows_s / (bytes / rate) - 1.0).abs() < 1e-9,
            "{memory_bytes_per_s}: {lower_bound:?}"
        );
        let (lower_bound, _) = on_gpu(&trial, rates, Engine::Cooperative, Precision::F32);
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

/// In a graph the sum has no time of its own: it takes its part of the step. Timed by itself it is not counted twice.
#[test]
fn sums_over_gpus_bound_small_steps() {
    let of_two = |text: &str| {
        let mut trial = planned(text, "", 2, 1000, 1);
        let shard = Shard { rank: 0, world_size: 2 };
        trial.programs = super::super::programs(&trial.spec, trial.facts, 32, false, shard, true);
        trial
    };
    let trial = of_two(LINE);
    let (lower_bound, setting) = on_gpu(&trial, gpu(), Engine::Graph, Precision::F32);
    assert_eq!(lower_bound.all_reduce_s, 20e-6, "a small sum takes its latency");
    let advice = "a larger `data.batch_size`: gradients are summed once per step";
    assert_eq!(said(&lower_bound, &busy(&lower_bound, 100, 1.4), &setting), ("all-reduce", advice.into()));
    let (lower_bound, setting) = on_gpu(&trial, gpu(), Engine::Launch, Precision::F32);
    let all_reduce_s = 100.0 * 60e-6;
    let compute_s = 100.0 * (lower_bound.by(1).device_s() - 20e-6) * 1.1;
    let spent = Measured {
        steps: 100,
        train_s: all_reduce_s + compute_s,
        compute_s,
        all_reduce_s,
        ..Measured::default()
    };
    let verdict = Verdict::compute(&lower_bound, &spent, &setting).unwrap();
    assert_eq!(verdict.limit_name, "all-reduce");
    assert!((verdict.share - all_reduce_s / spent.train_s).abs() < 1e-9, "{verdict:?}");
}
