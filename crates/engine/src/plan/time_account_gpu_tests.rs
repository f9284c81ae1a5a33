//! Accounts of runs on GPUs.

use super::{tests::largest, *};
use crate::{
    plan::{
        DeviceId, Engine, GpuRates, Machine, Origin,
        testing::{LINE, WIDE, facts, gpus, of_layers},
    },
    spec::Precision,
};

/// Rates close to those of an H100.
fn rates() -> GpuRates {
    GpuRates {
        origin: Origin::Measured,
        f32_flops_per_s: 50e12,
        tf32_flops_per_s: 350e12,
        bf16_flops_per_s: 650e12,
        grid_flops_per_s: 12e12,
        block_flops_per_s: 0.1e12,
        elementwise_per_s: 10e12,
        cache_bytes_per_s: 5e12,
        memory_bytes_per_s: 3e12,
        shared_bytes_per_s: 253e9,
        h2d_bytes_per_s: 50e9,
        d2h_bytes_per_s: 50e9,
        h2d_latency_s: 2e-6,
        d2h_latency_s: 2e-6,
        launch_s: 3e-6,
        node_s: 1.5e-6,
        barrier_s: 1.2e-6,
        block_barrier_s: 0.3e-6,
        sync_s: 8e-6,
        block_s: 15e-6,
        cache_bytes: 50 << 20,
        noise: 0.0,
    }
}

fn planned(layers: &str, batch: usize, features: usize, rows: usize) -> Trial {
    of_layers(layers, &[&format!("data.batch_size={batch}")], facts(rows, features, false), 1)
}

/// The trial, as run by a GPU with these rates.
fn on_gpu(trial: &Trial, rates: GpuRates, engine: Engine) -> Trial {
    let mut trial = trial.clone();
    let speed = rates.speed(engine, Precision::F32, true);
    trial.lower_bound = LowerBound::new(&trial.programs, speed, (trial.data_bytes, None));
    (trial.engine, trial.devices.used) = (engine, vec![DeviceId::Gpu(0)]);
    trial
}

/// Steps that take `slower` times their lower bound.
fn busy(trial: &Trial, steps: u64, slower: f64) -> Measured {
    let compute_s = trial.lower_bound.by(1).device_s() * steps as f64 * slower;
    Measured { full_steps: steps, train_s: compute_s, compute_s, ..Measured::default() }
}

/// Work of the host while the GPU computes costs nothing: rows and log are charged with at most the GPU's
/// idle time.
#[test]
fn idle_time_is_charged_to_the_log_and_to_rows() {
    let trial = on_gpu(&planned(LINE, 32, 2, 1000), rates(), Engine::Persistent);
    let steps = busy(&trial, 320, 1.1);
    // One hand-over per step; the host takes 2 µs of it.
    let logging =
        Measured { train_s: steps.train_s + 320.0 * 14e-6, log_s: 320.0 * 2e-6, log_waits: 320, ..steps };
    assert_eq!(largest(&trial, &logging).0, Bottleneck::Log);
    let trial = on_gpu(&planned(WIDE, 1024, 512, 4096), rates(), Engine::Graph);
    let steps = busy(&trial, 40, 1.2);
    // The host copies rows during most of the run, in parallel with the steps; the GPU is idle for 5 % of it.
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
    // A large data set is copied before the first step, and the GPU waits for it.
    let waiting = Measured { train_s: 3.0 * steps.train_s, upload_s: 1.9 * steps.train_s, ..steps };
    assert_eq!(largest(&trial, &waiting), (Bottleneck::Transfer, 633));
    for (from_file, waited) in [(false, Bottleneck::Transfer), (true, Bottleneck::File)] {
        let overrides = ["devices.num_gpus=1", "data.placement=streamed", "data.batch_size=32"];
        let trial = of_layers(WIDE, &overrides, facts(4_000_000, 512, from_file), 1);
        let on = |rates| on_gpu(&trial, rates, Engine::Graph);
        let trial = on(rates());
        let steps = busy(&trial, 40, 1.1);
        // Nothing was measured for which the GPU could have waited.
        let idle = Measured { train_s: 2.5 * steps.train_s, log_waits: 1, ..steps };
        assert_eq!(largest(&trial, &idle).0, Bottleneck::Idle);
        // Waits for a core explain time in which the GPU was idle, but not time in which it computed.
        let crowded = Measured { core_wait_s: 9.0 * steps.train_s, ..idle };
        assert_eq!(largest(&trial, &crowded).0, Bottleneck::Core);
        let busy = Measured { core_wait_s: 9.0, page_faults_s: 9.0, log_waits: 1, ..busy(&trial, 40, 4.0) };
        assert_eq!(largest(&trial, &busy), (Bottleneck::Unexplained, 750));
        // The part of a wait that exceeds the idle time overlapped with steps.
        let waits = Measured { wait_s: 3.0 * steps.train_s, ..idle };
        assert_eq!(largest(&trial, &waits).0, waited);
        let copies = Measured { upload_s: 3.0 * steps.train_s, ..idle };
        assert_eq!(largest(&trial, &copies).0, Bottleneck::Transfer);
        // If the link is slow, the bound predicts it.
        let slow = on(GpuRates { h2d_bytes_per_s: 1e8, ..rates() });
        assert_eq!(slow.lower_bound.by(1).bound(), Bottleneck::Transfer);
        assert_eq!(slow.lower_bound.serial_s(), (32 * 513 * 4) as f64 / 1e8);
    }
}

#[test]
fn the_slowest_gpu_bounds_all() {
    let trial = planned(WIDE, 1024, 512, 4096);
    let slow = GpuRates { f32_flops_per_s: 5e12, ..rates() };
    let lower_bound = |speeds: [Option<GpuRates>; 2]| {
        let mut all = gpus(false, 2, 1 << 36);
        all.iter_mut().zip(speeds).for_each(|(gpu, speed)| gpu.speed = speed);
        let machine = Machine::typical(all, 1 << 36);
        let places = [DeviceId::Gpu(0), DeviceId::Gpu(1)];
        let ranks = places.iter().map(|place| (place, &*trial.programs));
        let data = (trial.data_bytes, None);
        LowerBound::of_gpus(&machine, ranks, (Engine::Graph, Precision::F32, true), data)
    };
    let both = lower_bound([Some(rates()), Some(slow)]).unwrap();
    assert_eq!(both.rates.flops_per_s, 5e12);
    assert_eq!(lower_bound([Some(slow), Some(rates())]), Some(both));
    assert_eq!(lower_bound([Some(rates()), None]), None, "one was not measured");
}
