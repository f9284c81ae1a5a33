//! A GPU's measured speeds: large products by the path that training takes, memory, launches, copies, waits, and the
//! cost of an instruction in each engine.
//!
//! Times are by the device's events, those of a wait by the host's clock. Each figure is the median of several rounds
//! after a warm-up. Sizes grow until a round is long enough to time, so they fit any GPU.

mod engines;
mod queue;
mod sums;
pub mod timeline;

use crate::{
    device::{
        DeviceError,
        cuda::{
            engines::{LaunchKind, Products},
            ffi::Gpu,
            launch::{Graph, shape},
            memory::{DeviceMemory, Pinned},
        },
    },
    op::{FLAG_BF16, FLAG_TF32, FUNCTION, Kind, NONE, Record},
    plan::GpuRates,
};
use queue::Bench;

pub use sums::measure as measure_sums;

/// Bytes per clock of a multiprocessor's shared memory: 32 banks of four bytes (CUDA C++ programming guide, shared
/// memory).
const SHARED_BYTES_PER_CLOCK: f64 = 128.0;
/// Long enough to be timed.
const LONG_S: f64 = 1e-3;
/// Side of the smallest product: large enough for the library.
const LEAST_SIDE: usize = 272;
const MOST_SIDE: usize = 8704;
/// Elements of the shortest vectors in memory, and bytes of the smallest copies.
const LEAST: usize = 1 << 19;
/// Bytes of the largest of both.
const MOST_BYTES: usize = 1 << 30;
const NODES: usize = 128;

/// Measures a GPU, which takes some seconds.
pub fn measure(gpu: &Gpu) -> Result<GpuRates, DeviceError> {
    let mut bench = Bench::open(gpu.clone(), None)?;
    let f32_flops_per_s = products(&mut bench, 0)?;
    // Before compute capability 8 both formats are computed as f32.
    let (tf32_flops_per_s, bf16_flops_per_s) = if gpu.capability.0 >= 8 {
        (products(&mut bench, FLAG_TF32)?, products(&mut bench, FLAG_BF16)?)
    } else {
        (f32_flops_per_s, f32_flops_per_s)
    };
    let (memory_bytes_per_s, cache_bytes_per_s) = memory(&mut bench, gpu.cache_bytes as usize)?;
    let elementwise_per_s = functions(&mut bench, gpu.cache_bytes as usize)?;
    let (launch_s, node_s) = launches(&mut bench)?;
    let [h2d_bytes_per_s, d2h_bytes_per_s] = copies(&bench)?;
    let [h2d_latency_s, d2h_latency_s] = copies_s(&bench, 4)?;
    let sync_s = bench.wait_s()?;
    drop(bench);
    let engines = engines::measure(gpu)?;
    Ok(GpuRates {
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
    })
}

/// The best rate among products of growing size.
fn products(bench: &mut Bench, flags: i32) -> Result<f64, DeviceError> {
    let mut best = 0.0_f64;
    let mut side = LEAST_SIDE;
    while side <= MOST_SIDE && bench.fits(12 * side * side)? {
        bench.take(3 * side * side)?;
        let size = side as i32;
        let mut record =
            Record { rows: size, inputs: size, outputs: size, flags, ..Record::new(Kind::Linear) };
        let square = (side * side) as u64;
        record.at = [0, square, NONE, NONE, 2 * square, NONE, NONE, NONE];
        let gpu = &bench.gpu;
        let mut library = Products::new(&gpu.context, gpu.arena.at);
        let work = match library.plan(&record, &gpu.stream)? {
            Some(product) => LaunchKind::Product(Box::new(product)),
            None => LaunchKind::Kernel { record, shape: shape(&record, gpu.context.gpu.multiprocessors) },
        };
        let seconds = bench.seconds(|| bench.gpu.queue(&work))?;
        best = best.max(2.0 * (side as f64).powi(3) / seconds);
        if seconds > 2.0 * LONG_S {
            break;
        }
        side *= 2;
    }
    Ok(best)
}

/// Bytes per second of `y = a + b`, with three accesses per element: from memory, and from the second-level cache.
fn memory(bench: &mut Bench, cache_bytes: usize) -> Result<(f64, f64), DeviceError> {
    let cached = (cache_bytes / 2 / 12).clamp(1 << 10, LEAST);
    let from_cache = 12.0 * cached as f64 / sum_s(bench, cached)?;
    let mut elements = LEAST;
    loop {
        let seconds = sum_s(bench, elements)?;
        let next = 2 * elements;
        if seconds >= LONG_S || 12 * next > MOST_BYTES || !bench.fits(12 * next)? {
            return Ok((12.0 * elements as f64 / seconds, from_cache));
        }
        elements = next;
    }
}

fn sum_s(bench: &mut Bench, elements: usize) -> Result<f64, DeviceError> {
    bench.take(3 * elements)?;
    bench.seconds(|| bench.add(elements))
}

/// Operations per second of hyperbolic tangents in the second-level cache.
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

/// Seconds of a nearly empty kernel: behind another in a stream, and as a node of a graph.
fn launches(bench: &mut Bench) -> Result<(f64, f64), DeviceError> {
    bench.take(64)?;
    let gpu = &bench.gpu;
    let launch_s = bench.seconds(|| bench.add(1))?;
    let graph = Graph::capture(&gpu.context, &gpu.stream, || (0..NODES).try_for_each(|_| bench.add(1)))?;
    let graph_s = bench.seconds(|| graph.launch(&gpu.stream))?;
    Ok((launch_s, graph_s / NODES as f64))
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
