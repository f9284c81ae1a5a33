//! The machine, as planning must know it.

use crate::{
    device::cpu::matmul::Kernel,
    host,
    plan::{Machine, Rates},
};

/// Asks the host.
pub fn machine() -> Machine {
    let instruction_set = Kernel::detect().name().to_owned();
    Machine {
        gpus: 0,
        memory_available: host::usable_memory(),
        cache_bytes: host::second_level_cache().unwrap_or(1 << 20),
        rates: Rates::typical(&instruction_set),
        instruction_set,
    }
}
