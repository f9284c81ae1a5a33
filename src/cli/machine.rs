//! The machine, as planning needs it.

use std::thread;

use super::rates::{self, CpuKey};
use crate::{
    host,
    plan::{AllReduceRates, Gpu, Machine, MachineRates},
    spec::{DeviceName, Experiment, GpuCount, Request},
    vector::matmul::Kernel,
};

/// Queries the host, which may be given `virtual_gpus` virtual GPUs. Real GPUs are queried only if they are
/// wanted: asking the driver takes longer than a small run.
pub fn machine(virtual_gpus: Option<u32>, look_for_gpus: bool) -> Machine {
    query(virtual_gpus, look_for_gpus, false)
}

/// The machine as an experiment needs to know it.
pub fn machine_for(virtual_gpus: Option<u32>, experiment: &Experiment) -> Machine {
    let over_hosts =
        experiment.trials.iter().any(|trial| trial.spec.devices.hosts.is_some_and(|hosts| hosts > 1));
    query(virtual_gpus, wants_gpu(experiment), over_hosts)
}

/// `over_hosts`: whether a GPU sums with those of other processes.
fn query(virtual_gpus: Option<u32>, look_for_gpus: bool, over_hosts: bool) -> Machine {
    let memory_available = host::usable_memory();
    let instruction_set = Kernel::detect().name().to_owned();
    let (gpus, no_gpu, sum_rates) = match virtual_gpus {
        Some(count) => {
            let hidden = "`--virtual-gpus 0` hides every one";
            ((0..count).map(|_| Gpu::virtual_of(memory_available)).collect(), hidden.to_owned(), Vec::new())
        }
        None if look_for_gpus => real_gpus(over_hosts),
        None => (Vec::new(), String::new(), Vec::new()),
    };
    let cached =
        host::cache_folder().and_then(|folder| rates::read(&folder, &CpuKey::here(&instruction_set)));
    Machine {
        gpus,
        no_gpu,
        cores: host::logical_cores().unwrap_or(1),
        memory_available,
        cache_bytes: host::second_level_cache().unwrap_or(1 << 20),
        rates: cached.map_or_else(|| MachineRates::typical(&instruction_set), |cached| cached.figures),
        instruction_set,
        bf16_unit: Kernel::bf16_here().map(str::to_owned),
        sum_rates,
        ranks: None,
        rank: 0,
        described: None,
    }
}

/// Whether a trial wants a GPU.
fn wants_gpu(experiment: &Experiment) -> bool {
    experiment.trials.iter().any(|trial| match &trial.spec.devices.request {
        Request::NumGpus(count) => *count != GpuCount::Exactly(0),
        Request::Use(names) => names.iter().any(|name| matches!(name, DeviceName::Gpu(_))),
    })
}

/// The GPUs that CUDA lists, or why it lists none. NVML reports how much of their memory is free without
/// reserving it; without NVML this is found out when the run begins.
fn real_gpus(over_hosts: bool) -> (Vec<Gpu>, String, Vec<AllReduceRates>) {
    use super::{gpu_measure, rates::AllReduceKey};
    use crate::{cuda, host::nvml::Monitor};

    // The driver takes a tenth of a second to start, and NVML a quarter of that.
    let gpus = thread::scope(|scope| {
        let _ = thread::Builder::new().name("nvml".to_owned()).spawn_scoped(scope, Monitor::of_process);
        cuda::gpus()
    });
    let gpus = match gpus {
        Ok(gpus) => gpus,
        Err(why) => return (Vec::new(), why, Vec::new()),
    };
    let monitor = Monitor::of_process();
    let driver = gpu_measure::driver(monitor);
    let folder = host::cache_folder();
    let keys: Vec<_> = gpus.iter().map(|gpu| gpu_measure::key(gpu, &driver)).collect();
    let speed_of =
        |gpu: &cuda::Gpu| Some(rates::read(folder.as_deref()?, &gpu_measure::key(gpu, &driver))?.figures);
    let kept_sums = folder.as_deref().and_then(|folder| rates::read(folder, &AllReduceKey { gpus: keys }));
    let mut reaches = cuda::reaches(&gpus).into_iter();
    // To open it takes a while, and a GPU alone has nobody to sum with.
    let queued_sums = (over_hosts || gpus.len() > 1) && cuda::Nccl::open().is_ok();
    // The monitor knows a GPU, or a part of one, by its UUID with a word before it.
    let known = |uuid: &str| {
        let names = [format!("GPU-{uuid}"), format!("MIG-{uuid}")];
        names.into_iter().find_map(|name| Some((monitor?.sample(&name)?, name)))
    };
    let mut made = |gpu: cuda::Gpu| {
        let (sample, uuid) = known(&gpu.uuid).unzip();
        let free = sample.and_then(|s| Some(s.memory_total_bytes?.saturating_sub(s.memory_used_bytes?)));
        Gpu {
            is_virtual: false,
            uuid: Some(uuid.unwrap_or_else(|| format!("GPU-{}", gpu.uuid))),
            memory_free: free.unwrap_or(gpu.memory_bytes),
            reaches: reaches.next().unwrap_or_default(),
            limits: gpu.limits(queued_sums),
            speed: speed_of(&gpu),
            model: gpu.name,
        }
    };
    let kept_sums = kept_sums.into_iter().map(|cached| cached.figures).collect();
    (gpus.into_iter().map(&mut made).collect(), String::new(), kept_sums)
}
