//! Measures the cost of an instruction in each engine, the rate of its products, and the cost of handing over
//! a block, with small programs that run in the same way as training.

use std::time::Instant;

use super::{
    queue::{ENOUGH_S, ROUNDS, median},
    settled,
};
use crate::{
    CudaExecutor, CudaSetup, Gpu, RankLink,
    device::{
        Clock, DeviceError, Executor, Grain, Ledger, Meters, Purpose, Timer,
        probe::{self, Probe, SHORT_AND_LONG, STEPS},
    },
    plan::Engine,
    program::{MemoryPlan, Phase, Programs, Slice},
    spec::Precision,
};

/// Number of blocks of one step, each timed.
const BLOCKS: usize = 100;
/// Widths of products. They are tried in order, if they fit, until a step takes `LONG_S`.
const WIDTHS: [usize; 8] = [16, 32, 48, 64, 96, 128, 256, 512];
const LONG_S: f64 = 2e-3;

pub struct Engines {
    /// Seconds of an instruction in the persistent block.
    pub block_barrier_s: f64,
    /// Rate of products in the persistent block.
    pub block_flops_per_s: f64,
    /// Seconds of an instruction in a cooperative grid, if the GPU supports one.
    pub barrier_s: Option<f64>,
    /// Rate of products in a cooperative grid.
    pub grid_flops_per_s: Option<f64>,
    /// Seconds of a block, not counting its steps.
    pub block_s: f64,
    /// As [`GpuRates::noise`](crate::plan::GpuRates::noise).
    pub noise: f64,
}

pub fn measure(gpu: &Gpu) -> Result<Engines, DeviceError> {
    let mut noise = 0.0;
    let noise = &mut noise;
    let block_barrier_s = instruction_s(gpu, Engine::Persistent, noise)?;
    let block_flops_per_s = flops_per_s(gpu, Engine::Persistent, block_barrier_s, noise)?;
    let (mut barrier_s, mut grid_flops_per_s) = (None, None);
    if gpu.cooperative {
        let seconds = instruction_s(gpu, Engine::Cooperative, noise)?;
        barrier_s = Some(seconds);
        grid_flops_per_s = Some(flops_per_s(gpu, Engine::Cooperative, seconds, noise)?);
    }
    let block_s = block_s(gpu)?;
    Ok(Engines { block_barrier_s, block_flops_per_s, barrier_s, grid_flops_per_s, block_s, noise: *noise })
}

/// Seconds per instruction: the extra time of a longer program, per extra instruction.
fn instruction_s(gpu: &Gpu, engine: Engine, noise: &mut f64) -> Result<f64, DeviceError> {
    let [short, long] = SHORT_AND_LONG.map(probe::tiny);
    let instructions = |programs: &Programs| programs.train.instructions.len() as f64;
    let further = instructions(&long) - instructions(&short);
    let (name, what) = (format!("gpu:{}", gpu.ordinal), format!("an instruction of `{}`", engine.name()));
    settled(&name, &what, || {
        let (short_s, long_s) =
            (step_s(gpu, engine, short.clone(), noise)?, step_s(gpu, engine, long.clone(), noise)?);
        Ok((long_s - short_s) / further)
    })
}

/// The best rate of products, not counting the fixed cost of their instructions.
fn flops_per_s(gpu: &Gpu, engine: Engine, instruction_s: f64, noise: &mut f64) -> Result<f64, DeviceError> {
    let mut best = 0.0_f64;
    for width in WIDTHS {
        let programs = probe::wide(width);
        let bytes = 4 * MemoryPlan::new(&programs).train.elements as u64;
        if engine == Engine::Persistent && bytes > gpu.job_shared_bytes() {
            break;
        }
        let train = &programs.train;
        let (flops, fixed_s) = (train.cost().flops, train.instructions.len() as f64 * instruction_s);
        let seconds = step_s(gpu, engine, programs, noise)?;
        // However high the fixed costs are, in a long step at least half of the time is the work itself.
        best = best.max(flops / (seconds - fixed_s).max(0.5 * seconds));
        if seconds > LONG_S {
            break;
        }
    }
    Ok(best.max(1.0))
}

/// The median time of a step among many, by the device's clock.
fn step_s(gpu: &Gpu, engine: Engine, programs: Programs, noise: &mut f64) -> Result<f64, DeviceError> {
    let mut probe = GpuProbe::new(gpu, engine, programs)?;
    // The first run warms up.
    probe.run(STEPS)?;
    let (mut times, begun) = (Vec::with_capacity(ROUNDS), Instant::now());
    while times.is_empty() || times.len() < ROUNDS && begun.elapsed().as_secs_f64() < ENOUGH_S {
        let clock = probe.run(STEPS)?;
        times.push(clock.total(Timer::Device, Phase::Step).as_secs_f64() / STEPS as f64);
    }
    *noise = noise.max(probe::spread(&mut times));
    Ok(median(times))
}

/// The time to hand over one step and read its loss, not counting the step itself.
fn block_s(gpu: &Gpu) -> Result<f64, DeviceError> {
    let mut probe = GpuProbe::new(gpu, Engine::Graph, probe::tiny(SHORT_AND_LONG[0]))?;
    let mut times = Vec::with_capacity(BLOCKS);
    for block in 0..=BLOCKS {
        let start = Instant::now();
        let clock = probe.run(1)?;
        let whole_s = start.elapsed().as_secs_f64();
        if block > 0 {
            times.push((whole_s - clock.total(Timer::Device, Phase::Step).as_secs_f64()).max(0.0));
        }
    }
    Ok(median(times))
}

struct GpuProbe {
    probe: Probe<CudaExecutor>,
    log: Slice,
}

impl GpuProbe {
    fn new(gpu: &Gpu, engine: Engine, programs: Programs) -> Result<Self, DeviceError> {
        let log = Slice { buffer: programs.layout.log, offset: 0, len: programs.layout.log_width };
        let executor = CudaExecutor::new(CudaSetup {
            device: format!("gpu:{}", gpu.ordinal),
            gpu: gpu.clone(),
            programs: programs.clone(),
            engine,
            precision: Precision::F32,
            seed: 0,
            link: RankLink::Alone,
        })?;
        Ok(Self { probe: Probe::new(executor, &programs)?, log })
    }

    /// Runs a block as under `immediate`: reading its losses yields its times.
    fn run(&mut self, steps: usize) -> Result<Clock, DeviceError> {
        let (mut clock, mut ledger, mut ends) = (Clock::new(Grain::Blocks), Ledger::default(), Vec::new());
        let mut meters = Meters { clock: &mut clock, ledger: &mut ledger, ends: &mut ends };
        self.probe.run(steps, &mut meters)?;
        let executor = &mut self.probe.executor;
        let log = Slice { len: steps * self.log.len, ..self.log };
        executor.read(log, &mut vec![0.0; log.len])?;
        executor.settle(Purpose::Log, &mut meters)?;
        Ok(clock)
    }
}
