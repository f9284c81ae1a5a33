//! The machine, as planning must know it.

use crate::{
    device::cpu::matmul::Kernel,
    host,
    plan::{Machine, Rates},
};

/// Asks the host, which may pose as a machine with so many virtual GPUs.
pub fn machine(virtual_gpus: Option<u32>) -> Machine {
    let instruction_set = Kernel::detect().name().to_owned();
    Machine {
        gpus: 0,
        virtual_gpus,
        memory_available: host::usable_memory(),
        cache_bytes: host::second_level_cache().unwrap_or(1 << 20),
        rates: Rates::typical(&instruction_set),
        instruction_set,
    }
}
