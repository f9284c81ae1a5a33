//! The least time a step can take on a machine: arithmetic at the rate of its products, bytes at the speed of the
//! memory they come from, and a fixed cost per instruction.

use super::{Gpu, Place, Rates};
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
    /// Speeds of its processor.
    pub rates: Rates,
}

impl Machine {
    /// Speeds and cache of what computes on `place`; the host's where a GPU's are not known.
    pub fn speed(&self, place: Place) -> (Rates, u64) {
        let gpu = match place {
            Place::Gpu(i) => self.gpus.get(i as usize).and_then(|gpu| gpu.speed),
            Place::Cpu | Place::Virtual(_) => None,
        };
        gpu.unwrap_or((self.rates, self.cache_bytes))
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

/// The floor of a step on a full batch, by one thread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Floor {
    /// By which speeds.
    pub rates: Rates,
    /// Operations and bytes.
    pub cost: Cost,
    /// Bytes that a step touches over and over.
    pub working_set: u64,
    /// Seconds of arithmetic, where that is longer than the moving of its bytes.
    pub arithmetic_s: f64,
    /// Seconds of moving bytes, where that is longer.
    pub memory_s: f64,
    /// The part of these that comes from beyond the caches, from the memory that all threads share.
    pub far_s: f64,
    /// The part of them that fetches the rows of the batch.
    pub rows_s: f64,
    /// Seconds of fixed costs.
    pub overhead_s: f64,
    /// Times that a team would meet.
    pub meetings: usize,
}

impl Floor {
    /// Of a trial whose resident data take `data_bytes`, on a processor of these rates with a cache of so many bytes.
    pub fn of(programs: &Programs, (rates, cache_bytes): (Rates, u64), data_bytes: u64) -> Self {
        let working_set = programs.layout.arena_bytes();
        let from = |bytes: u64| {
            if bytes <= cache_bytes { rates.cache_bytes_per_s } else { rates.memory_bytes_per_s }
        };
        let (arena, data) = (from(working_set), from(working_set + data_bytes));
        let mut floor = Self {
            rates,
            cost: programs.train.cost(),
            working_set,
            arithmetic_s: 0.0,
            memory_s: 0.0,
            far_s: 0.0,
            rows_s: 0.0,
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
                floor.rows_s += if instruction.phase == Phase::Data { moved } else { 0.0 };
                floor.far_s += if speed < rates.cache_bytes_per_s { moved } else { 0.0 };
            }
            floor.meetings += usize::from(instruction.op.is_product());
            floor.overhead_s += rates.instruction_s;
        }
        floor
    }

    /// Seconds by one thread.
    pub fn serial_s(&self) -> f64 {
        self.by(1).total_s()
    }

    /// Seconds by a team.
    pub fn team_s(&self, threads: usize) -> f64 {
        self.by(threads).total_s()
    }

    /// What the seconds of a step by so many threads are made of.
    pub fn by(&self, threads: usize) -> Parts {
        let Rates { barrier_s, .. } = self.rates;
        let (products, memory) = (self.rates.product_speedup(threads), self.rates.memory_speedup(threads));
        let meetings_s = if threads > 1 { self.meetings as f64 * barrier_s } else { 0.0 };
        Parts {
            arithmetic_s: self.arithmetic_s / products,
            memory_s: (self.memory_s - self.far_s) / products + self.far_s / memory,
            overhead_s: self.overhead_s + meetings_s,
        }
    }

    /// The largest part by one thread.
    pub fn bound(&self) -> Bound {
        self.by(1).bound()
    }

    /// What bounds a step, in words.
    pub fn bound_name(&self, bound: Bound) -> &'static str {
        match bound {
            Bound::Arithmetic => "arithmetic",
            Bound::Memory => "memory",
            Bound::Overhead => self.rates.processor.overhead(),
        }
    }
}

/// Seconds of a step, by what they are spent on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parts {
    /// Multiplications and additions.
    pub arithmetic_s: f64,
    /// Moving bytes between memory and processor.
    pub memory_s: f64,
    /// Fixed costs of instructions and of meetings.
    pub overhead_s: f64,
}

impl Parts {
    /// All of them.
    pub fn total_s(&self) -> f64 {
        self.arithmetic_s + self.memory_s + self.overhead_s
    }

    /// The largest.
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
