//! Measures a GPU's speeds: large products with the same library calls as training, memory, launches, copies,
//! waits, and the cost of an instruction in each engine.
//!
//! Times come from the device's events; only the time of a wait is from the host's clock. Each figure is the median of 15
//! rounds after a warm-up; the rounds' relative interquartile range is the GPU's noise. A cost that is a difference of two
//! times counts once two measurements agree on it. Sizes grow until a round is long enough to time, so they fit any GPU.

mod engines;
mod queue;
mod sums;
pub mod timeline;

use crate::{
    device::{DeviceError, probe},
    engines::{Conversion, LaunchKind, Products},
    ffi::Gpu,
    launch::shape,
    memory::{DeviceMemory, Pinned},
    op::{FLAG_BF16, FLAG_TF32, FUNCTION, Kind, NONE, Record},
    plan::{GpuRates, Origin, SHARED_BYTES_PER_CLOCK},
    units,
};
use queue::Bench;

pub use sums::measure as measure_sums;

/// A round this long can be timed.
const LONG_S: f64 = 1e-3;
/// Side of the smallest product: large enough for the library.
const LEAST_SIDE: usize = 272;
const MOST_SIDE: usize = 8704;
/// Elements of the shortest vectors in memory, and bytes of the smallest copies.
const LEAST: usize = 1 << 19;
/// The most bytes of vectors and of copies.
const MOST_BYTES: usize = 1 << 30;
const NODES: usize = 128;
/// Vector sums in the cache per round, one after the other.
const PASSES: usize = 16;
/// The vectors in memory together are this many times as large as the cache.
const BEYOND: usize = 8;
/// The most measurements of a cost until two agree.
const TAKES: usize = 6;

/// Measures a GPU; takes some seconds.
pub fn measure(gpu: &Gpu) -> Result<GpuRates, DeviceError> {
    let mut bench = Bench::open(gpu.clone(), None)?;
    let f32_flops_per_s = products(&mut bench, 0)?;
    // Below compute capability 8 both formats are computed in f32.
    let (tf32_flops_per_s, bf16_flops_per_s) = if gpu.capability.0 >= 8 {
        (products(&mut bench, FLAG_TF32)?, products(&mut bench, FLAG_BF16)?)
    } else {
        (f32_flops_per_s, f32_flops_per_s)
    };
    let cache_bytes = gpu.cache_bytes as usize;
    let (memory_bytes_per_s, cache_bytes_per_s) =
        (memory(&mut bench, cache_bytes)?, cache(&mut bench, cache_bytes)?);
    let elementwise_per_s = functions(&mut bench, cache_bytes)?;
    let (launch_s, node_s) = launches(&mut bench)?;
    let [h2d_bytes_per_s, d2h_bytes_per_s] = copies(&bench)?;
    let [h2d_latency_s, d2h_latency_s] = copies_s(&bench, 4)?;
    let sync_s = bench.wait_s()?;
    let noise = bench.noise.get();
    drop(bench);
    let engines = engines::measure(gpu)?;
    Ok(GpuRates {
        origin: Origin::Measured,
        f32_flops_per_s,
        tf32_flops_per_s,
        bf16_flops_per_s,
        grid_flops_per_s: engines.grid_flops_per_s.unwrap_or(f32_flops_per_s),
        block_flops_per_s: engines.block_flops_per_s,
        elementwise_per_s,
        cache_bytes_per_s: cache_bytes_per_s.max(memory_bytes_per_s),
        memory_bytes_per_s,
        shared_bytes_per_s: SHARED_BYTES_PER_CLOCK * f64::from(gpu.clock_khz.max(1)) * 1000.0,
        h2d_bytes_per_s,
        d2h_bytes_per_s,
        h2d_latency_s,
        d2h_latency_s,
        launch_s,
        node_s,
        barrier_s: engines.barrier_s.unwrap_or(node_s),
        block_barrier_s: engines.block_barrier_s,
        sync_s,
        block_s: engines.block_s,
        cache_bytes: u64::from(gpu.cache_bytes),
        noise: noise.max(engines.noise),
    })
}

/// The best rate among products of growing size.
fn products(bench: &mut Bench, flags: i32) -> Result<f64, DeviceError> {
    let (mut best, mut library) = (0.0_f64, Products::new(None));
    let mut side = LEAST_SIDE;
    // The last quarter holds bfloat16 copies.
    while side <= MOST_SIDE && bench.fits(16 * side * side)? {
        bench.take(4 * side * side)?;
        let size = side as i32;
        let mut record =
            Record { rows: size, inputs: size, outputs: size, flags, ..Record::new(Kind::Linear) };
        let square = (side * side) as u64;
        record.at = [0, square, NONE, NONE, 2 * square, NONE, NONE, NONE];
        let gpu = &bench.gpu;
        let copies = [3 * square, 3 * square + square / 2];
        let work = match library.plan(&record, gpu, Some(copies))? {
            Some(product) => LaunchKind::Product(Box::new(product)),
            None => LaunchKind::Kernel { record, shape: shape(&record, gpu.context.gpu.multiprocessors) },
        };
        // A step makes them once for several products.
        for (from, to) in [0, square].into_iter().zip(copies) {
            gpu.convert(Conversion { from, to, n: square })?;
        }
        let seconds = bench.seconds(|| bench.gpu.queue(&work))?;
        best = best.max(2.0 * (side as f64).powi(3) / seconds);
        if seconds > 2.0 * LONG_S {
            break;
        }
        side *= 2;
    }
    Ok(best)
}

/// Bytes per second from memory: the faster of vector sums by this project's kernel and the driver's copies.
/// Both use more bytes than the caches hold, so that almost nothing is left there from the previous pass.
fn memory(bench: &mut Bench, cache_bytes: usize) -> Result<f64, DeviceError> {
    let fits = |bench: &Bench, elements| {
        Ok::<_, DeviceError>(12 * elements <= MOST_BYTES && bench.fits(12 * elements)?)
    };
    let mut elements = (BEYOND * cache_bytes / 12).max(LEAST);
    while elements > LEAST && !fits(bench, elements)? {
        elements /= 2;
    }
    loop {
        bench.take(3 * elements)?;
        let (sum_s, copy_s) =
            (bench.seconds(|| bench.add(elements))?, bench.seconds(|| bench.copy(elements))?);
        if sum_s >= LONG_S || !fits(bench, 2 * elements)? {
            return Ok((12.0 * elements as f64 / sum_s).max(8.0 * elements as f64 / copy_s));
        }
        elements *= 2;
    }
}

/// Bytes per second of vector sums from the L2 cache: from the extra time of vectors that fill a quarter of it over shorter
/// ones. A difference is used because a single sum in the cache takes less time than its launch.
fn cache(bench: &mut Bench, cache_bytes: usize) -> Result<f64, DeviceError> {
    let [few, many] = [16, 4].map(|part| (cache_bytes / part / 12).max(1 << 10));
    bench.take(3 * many)?;
    let s = |elements| bench.node_s(PASSES, || bench.add(elements));
    let further_s = settled(&bench.gpu.context.name, "reading its cache", || Ok(s(many)? - s(few)?))?;
    Ok(12.0 * (many - few) as f64 / further_s)
}

/// Seconds of a cost, once two measurements agree on it.
fn settled(
    device: &str,
    what: &str,
    take: impl FnMut() -> Result<f64, DeviceError>,
) -> Result<f64, DeviceError> {
    probe::agreed(TAKES, take)?.map_err(|taken| {
        let taken: Vec<_> = taken.into_iter().map(units::seconds).collect();
        let why = format!("no two measurements of {what} agree: {}; measure again", taken.join(", "));
        DeviceError::unusable(device, why)
    })
}

/// tanh operations per second on data in the L2 cache.
fn functions(bench: &mut Bench, cache_bytes: usize) -> Result<f64, DeviceError> {
    let elements = (cache_bytes / 2 / 8).clamp(1 << 10, LEAST);
    bench.take(2 * elements)?;
    let mut record = Record { activation: 3, n: elements as i32, ..Record::new(Kind::Activate) };
    (record.at[0], record.at[1]) = (0, elements as u64);
    let shape = shape(&record, bench.gpu.context.gpu.multiprocessors);
    let work = LaunchKind::Kernel { record, shape };
    let seconds = bench.seconds(|| bench.gpu.queue(&work))?;
    Ok((FUNCTION * elements) as f64 / seconds)
}

/// Seconds of an almost empty kernel: after another one in a stream, and as a node of a graph.
fn launches(bench: &mut Bench) -> Result<(f64, f64), DeviceError> {
    bench.take(64)?;
    Ok((bench.seconds(|| bench.add(1))?, bench.node_s(NODES, || bench.add(1))?))
}

/// Bytes per second from and to pinned memory.
fn copies(bench: &Bench) -> Result<[f64; 2], DeviceError> {
    let mut bytes = LEAST;
    loop {
        let seconds = copies_s(bench, bytes)?;
        if seconds.iter().all(|s| *s >= LONG_S) || 2 * bytes > MOST_BYTES / 4 {
            return Ok(seconds.map(|s| bytes as f64 / s));
        }
        bytes *= 2;
    }
}

/// Seconds of a copy from and to pinned memory.
fn copies_s(bench: &Bench, bytes: usize) -> Result<[f64; 2], DeviceError> {
    let gpu = &bench.gpu;
    let host = Pinned::new(&gpu.context, bytes, "measuring copies")?;
    let device = DeviceMemory::new(&gpu.context, bytes, "measuring copies")?;
    gpu.stream.fill(device.at, 0, bytes)?;
    let up = bench.seconds(|| gpu.stream.upload(device.at, &host, 0, bytes))?;
    let down = bench.seconds(|| gpu.stream.download(&host, 0, device.at, bytes))?;
    Ok([up, down])
}
