//! `runner devices`: measured and cached rates of GPUs.

use std::{fmt::Write, path::Path};

use super::rates::{self, AllReduceKey, Cached, GpuKey};
use crate::{
    cuda,
    host::nvml::Monitor,
    plan::{self, AllReduceRates, GpuRates},
    units,
};

/// The cache key of a GPU's rates.
pub fn key(gpu: &cuda::Gpu, driver: &str) -> GpuKey {
    GpuKey::new(&gpu.uuid, &gpu.name, driver)
}

/// The driver's version, if NVML reports it.
pub fn driver(monitor: Option<&Monitor>) -> String {
    monitor.and_then(|monitor| monitor.driver().version).unwrap_or_default()
}

/// Measures all GPUs that CUDA lists, and all-reduces if there are several; returns what could not be
/// measured.
pub fn measure(folder: &Path, now: &str) -> Vec<String> {
    let Ok(gpus) = cuda::gpus() else { return Vec::new() };
    let driver = driver(Monitor::open().ok().as_ref());
    let mut faults = Vec::new();
    let keys: Vec<GpuKey> = gpus.iter().map(|gpu| key(gpu, &driver)).collect();
    for (gpu, key) in gpus.iter().zip(&keys) {
        let measured = cuda::measure_rates(gpu).map_err(|e| e.to_string());
        let cached = measured.and_then(|figures| {
            if plan::are_sane(&figures) {
                return rates::write(folder, key, figures, now).map_err(|e| e.to_string());
            }
            Err(format!("`gpu:{}` was measured, and its rates cannot be true: {figures:?}", gpu.ordinal))
        });
        faults.extend(cached.err());
    }
    if gpus.len() > 1 && faults.is_empty() {
        // Without NCCL, all-reduces go through the host; runs measure that themselves.
        let cached = cuda::measure_sums(&gpus).and_then(|sums| {
            let key = AllReduceKey { gpus: keys };
            rates::write(folder, &key, sums, now).map_err(|e| e.to_string())
        });
        faults.extend(cached.err().map(|why| format!("sums over GPUs were not measured: {why}")));
    }
    faults
}

/// The rates of every GPU that CUDA lists.
pub fn describe(folder: Option<&Path>) -> String {
    let Ok(gpus) = cuda::gpus() else { return String::new() };
    let driver = driver(Monitor::open().ok().as_ref());
    let keys: Vec<GpuKey> = gpus.iter().map(|gpu| key(gpu, &driver)).collect();
    let mut text = String::new();
    for (gpu, key) in gpus.iter().zip(&keys) {
        let cached = folder.and_then(|folder| rates::read(folder, key));
        let _ = write!(text, "\nrates of gpu:{}\n{}", gpu.ordinal, of_gpu(cached.as_ref())); // cannot fail
    }
    let sums = folder.and_then(|folder| rates::read(folder, &AllReduceKey { gpus: keys }));
    text.push_str(&sums.map_or_else(String::new, |cached| of_sums(&cached)));
    text
}

fn of_gpu(cached: Option<&Cached<GpuRates>>) -> String {
    let Some(Cached { figures: r, measured }) = cached else {
        return "  not measured; `runner devices --measure` measures them\n".to_owned();
    };
    let (flops, bytes) =
        (|v: f64| format!("{}FLOP/s", units::rate(v)), |v: f64| format!("{}B/s", units::rate(v)));
    // The cache's rate is stored as at least the memory's, so it is only worth a line if it is higher.
    let by_cache = r.cache_bytes_per_s > r.memory_bytes_per_s;
    let rows = [
        ("measured", measured.clone()),
        (
            "products",
            format!(
                "{} in f32, {} in tf32, {} in bf16; by our own kernels {} in a grid, {} in a block",
                flops(r.f32_flops_per_s),
                flops(r.tf32_flops_per_s),
                flops(r.bf16_flops_per_s),
                flops(r.grid_flops_per_s),
                flops(r.block_flops_per_s)
            ),
        ),
        ("functions", flops(r.elementwise_per_s)),
        (
            "from cache",
            if by_cache { bytes(r.cache_bytes_per_s) } else { "no faster than from memory".to_owned() },
        ),
        ("from memory", bytes(r.memory_bytes_per_s)),
        (
            "copies",
            format!(
                "{} to it, {} from it; of a few bytes {} and {}",
                bytes(r.h2d_bytes_per_s),
                bytes(r.d2h_bytes_per_s),
                units::seconds(r.h2d_latency_s),
                units::seconds(r.d2h_latency_s)
            ),
        ),
        (
            "launch",
            format!(
                "{} in a stream, {} as a node of a graph",
                units::seconds(r.launch_s),
                units::seconds(r.node_s)
            ),
        ),
        (
            "instruction",
            format!(
                "{} in a grid, {} in a block",
                units::seconds(r.barrier_s),
                units::seconds(r.block_barrier_s)
            ),
        ),
        ("wait", format!("{} for a kernel", units::seconds(r.sync_s))),
        ("block", format!("{} to hand it over and read a loss", units::seconds(r.block_s))),
        ("noise", format!("rates varied by {} from round to round", units::percent(r.noise))),
    ];
    rows.iter().map(|(name, value)| format!("  {name:<12} {value}\n")).collect()
}

fn of_sums(cached: &Cached<AllReduceRates>) -> String {
    let Cached { figures, measured } = cached;
    format!(
        "\nsums over {} GPUs\n  {:<12} {measured}\n  {:<12} {}\n  {:<12} {}B/s\n",
        figures.gpus,
        "measured",
        "few numbers",
        units::seconds(figures.small_s),
        "many",
        units::rate(figures.bytes_per_s)
    )
}
