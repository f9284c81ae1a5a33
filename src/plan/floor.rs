//! The least time a step can take on a machine: arithmetic at the rate of its products, bytes at the speed of the
//! memory they come from, and a fixed cost per instruction.

use crate::program::{Cost, Phase, Programs};

/// What planning must know of a machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// GPUs that can be used, by ordinal.
    pub gpus: Vec<Gpu>,
    /// Where there is none: why, in words.
    pub no_gpu: String,
    /// Bytes that a run may take.
    pub memory_available: u64,
    /// Bytes of one core's second-level cache.
    pub cache_bytes: u64,
    /// Instruction set of the products.
    pub instruction_set: String,
    /// Speeds of one thread.
    pub rates: Rates,
}

/// A GPU, as planning must know it.
#[derive(Clone, Debug, PartialEq)]
pub struct Gpu {
    /// Whether the host only poses as it.
    pub is_virtual: bool,
    /// Its model.
    pub model: String,
    /// Bytes of its memory that are free.
    pub memory_free: u64,
}

/// Speeds of one CPU thread: typical figures of the instruction set, not measured here.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// Of large products.
    pub flops_per_s: f64,
    /// Of everything else.
    pub elementwise_per_s: f64,
    /// From its own caches.
    pub cache_bytes_per_s: f64,
    /// From memory.
    pub memory_bytes_per_s: f64,
    /// Cost of an instruction beside its work.
    pub instruction_s: f64,
    /// Cost of one meeting of a team.
    pub barrier_s: f64,
}

impl Rates {
    /// Typical figures for an instruction set.
    pub fn typical(instruction_set: &str) -> Self {
        let (flops_per_s, elementwise_per_s) = match instruction_set {
            "avx512" => (160e9, 40e9),
            "avx2" => (80e9, 20e9),
            _ => (15e9, 5e9),
        };
        Self {
            flops_per_s,
            elementwise_per_s,
            cache_bytes_per_s: 60e9,
            memory_bytes_per_s: 12e9,
            instruction_s: 20e-9,
            barrier_s: 1e-6,
        }
    }
}

/// What bounds a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// Multiplications and additions.
    Arithmetic,
    /// Moving bytes between memory and processor.
    Memory,
    /// The fixed cost of instructions.
    Overhead,
}

impl Bound {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Arithmetic => "arithmetic",
            Self::Memory => "memory",
            Self::Overhead => "call overhead",
        }
    }
}

/// The floor of a step on a full batch, by one thread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Floor {
    /// Operations and bytes.
    pub cost: Cost,
    /// Bytes that a step touches over and over.
    pub working_set: u64,
    /// Seconds of arithmetic, where that is longer than the moving of its bytes.
    pub arithmetic_s: f64,
    /// Seconds of moving bytes, where that is longer.
    pub memory_s: f64,
    /// Seconds of fixed costs.
    pub overhead_s: f64,
    /// Times that a team would meet.
    pub meetings: usize,
}

impl Floor {
    /// Of a trial whose resident data take `data_bytes`.
    pub fn of(programs: &Programs, machine: &Machine, data_bytes: u64) -> Self {
        let rates = machine.rates;
        let working_set = programs.layout.arena_bytes();
        let from = |bytes: u64| {
            if bytes <= machine.cache_bytes { rates.cache_bytes_per_s } else { rates.memory_bytes_per_s }
        };
        let (arena, data) = (from(working_set), from(working_set + data_bytes));
        let mut floor = Self {
            cost: programs.train.cost(),
            working_set,
            arithmetic_s: 0.0,
            memory_s: 0.0,
            overhead_s: 0.0,
            meetings: 3,
        };
        for instruction in &programs.train.instructions {
            let cost = instruction.op.cost();
            let speed = if instruction.phase == Phase::Data { data } else { arena };
            let rate = if instruction.op.is_product() { rates.flops_per_s } else { rates.elementwise_per_s };
            let (work, moved) = (cost.flops / rate, cost.bytes / speed);
            if work > moved {
                floor.arithmetic_s += work;
            } else {
                floor.memory_s += moved;
            }
            floor.meetings += usize::from(instruction.op.is_product());
            floor.overhead_s += rates.instruction_s;
        }
        floor
    }

    /// Seconds by one thread.
    pub fn serial_s(&self) -> f64 {
        self.arithmetic_s + self.memory_s + self.overhead_s
    }

    /// Seconds by a team.
    pub fn team_s(&self, machine: &Machine, threads: usize) -> f64 {
        let shared = (self.arithmetic_s + self.memory_s) / threads.max(1) as f64;
        shared + self.overhead_s + self.meetings as f64 * machine.rates.barrier_s
    }

    /// The largest part.
    pub fn bound(&self) -> Bound {
        if self.overhead_s >= self.arithmetic_s.max(self.memory_s) {
            Bound::Overhead
        } else if self.memory_s > self.arithmetic_s {
            Bound::Memory
        } else {
            Bound::Arithmetic
        }
    }
}
