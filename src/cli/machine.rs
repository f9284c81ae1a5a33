//! The machine, as planning must know it.

use super::rates::{self, Key};
use crate::{
    device::cpu::matmul::Kernel,
    host,
    plan::{Gpu, Machine, Rates},
};

/// Asks the host, which may pose as a machine with so many virtual GPUs.
pub fn machine(virtual_gpus: Option<u32>) -> Machine {
    let memory_available = host::usable_memory();
    let instruction_set = Kernel::detect().name().to_owned();
    let kept = rates::folder().and_then(|folder| rates::read(&folder, &Key::here(&instruction_set)));
    Machine {
        gpus: (0..virtual_gpus.unwrap_or(0)).map(|_| virtual_gpu(memory_available)).collect(),
        no_gpu: match virtual_gpus {
            Some(_) => "`--virtual-gpus 0` hides every one".to_owned(),
            None => "this version computes on the CPU only".to_owned(),
        },
        memory_available,
        cache_bytes: host::second_level_cache().unwrap_or(1 << 20),
        rates: kept.map_or_else(|| Rates::typical(&instruction_set), |kept| kept.rates),
        instruction_set,
    }
}

/// The host's memory, posing as that of a GPU.
fn virtual_gpu(memory_free: u64) -> Gpu {
    Gpu { is_virtual: true, model: "virtual GPU".to_owned(), memory_free }
}
