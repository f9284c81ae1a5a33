//! The least time a step can take on a machine: arithmetic at the rate of its products, bytes at the speed of the
//! memory they come from, and a fixed cost per instruction.

use super::{
    devices::DeviceId,
    engine::Engine,
    machine::Machine,
    rates::{MachineRates, Processor, Speed},
    read_cost::ReadCost,
};
use crate::{
    program::{Cost, Gather, Op, Phase, Program, Programs, RowSource},
    spec::Precision,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bottleneck {
    Arithmetic,
    Memory,
    Overhead,
    AllReduce,
    /// Rows on their way to the device.
    Transfer,
    /// Rows on their way out of their file.
    File,
    /// Metrics on their way to the host.
    Log,
    /// Waiting for checkpoints.
    Checkpoint,
    /// Ready to run, while others hold the cores.
    Core,
    /// Pages of memory that were touched for the first time, or read from a disk.
    PageFaults,
    /// A GPU that has nothing to do, for no measured reason.
    Idle,
    /// Nothing that was measured.
    Unexplained,
}

/// What a step takes at least, by one thread.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepWork {
    /// Seconds of arithmetic, where that is longer than the moving of its bytes.
    pub arithmetic_s: f64,
    /// Seconds of moving bytes, where that is longer.
    pub memory_s: f64,
    /// The part of these that comes from beyond the caches, from the memory that all threads share.
    pub far_s: f64,
    pub overhead_s: f64,
    /// Seconds of sums over devices, where they are known apart.
    pub all_reduce_s: f64,
    /// Seconds in which a batch comes to the device, which it does while another is computed with.
    pub upload_s: f64,
    pub barriers: usize,
}

/// The least that a trial's steps take. Reading rows from a file is left out: what was read once may stay in memory, so a
/// run measures it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LowerBound {
    pub rates: MachineRates,
    pub cost: Cost,
    pub full: StepWork,
    /// The step that ends an epoch, where it takes fewer rows.
    pub last: Option<StepWork>,
    /// How rows are read that stay in a file.
    pub fetch: Option<ReadCost>,
}

impl LowerBound {
    /// The bound of a trial on a device of this speed: `data_bytes` are resident, and `fetch` is how rows of a file are read.
    pub(super) fn new(
        programs: &Programs,
        speed: Speed,
        (data_bytes, fetch): (u64, Option<ReadCost>),
    ) -> Self {
        let arena_bytes = programs.arena_bytes();
        let work = |program: &Program| StepWork::new(program, arena_bytes, &speed, (data_bytes, fetch));
        Self {
            rates: speed.rates,
            cost: programs.train.cost(),
            full: work(&programs.train),
            last: programs.train_last.as_ref().map(work),
            fetch,
        }
    }

    /// The bound of a run on several devices: that of the slowest GPU. `None` if one of the GPUs was not measured, or there
    /// is none.
    pub(super) fn of_gpus<'a>(
        machine: &Machine,
        ranks: impl Iterator<Item = (&'a DeviceId, &'a Programs)>,
        (engine, precision, queued): (Engine, Precision, bool),
        data: (u64, Option<ReadCost>),
    ) -> Option<Self> {
        let ranks: Vec<_> = ranks.collect();
        // The cost of a sum depends on the number of GPUs, so measured rates hold for that number only.
        let sums = machine.sum_rates.filter(|sums| queued && sums.gpus as usize == ranks.len());
        let mut slowest: Option<Self> = None;
        for (place, programs) in ranks {
            let Some(gpu) = place.real_gpu(machine) else { continue };
            let bound = Self::new(programs, Speed { sums, ..gpu.speed?.speed(engine, precision) }, data);
            if slowest.is_none_or(|known| known.serial_s() < bound.serial_s()) {
                slowest = Some(bound);
            }
        }
        slowest
    }

    /// Seconds of a full step by one thread.
    pub fn serial_s(&self) -> f64 {
        self.by(1).total_s()
    }

    /// What the seconds of a full step by `threads` are made of.
    pub fn by(&self, threads: usize) -> TimeBreakdown {
        self.parts(&self.full, threads)
    }

    /// What the seconds of `full` steps and of `last` ones, which end an epoch, are made of.
    pub fn of_steps(&self, threads: usize, full: u64, last: u64) -> TimeBreakdown {
        let ends = self.last.as_ref().unwrap_or(&self.full);
        let (full, last) = (full as f64, last as f64);
        self.parts(&self.full, threads).zip(self.parts(ends, threads), |a, b| a * full + b * last)
    }

    fn parts(&self, work: &StepWork, threads: usize) -> TimeBreakdown {
        let MachineRates { barrier_s, .. } = self.rates;
        let (products, memory) = (self.rates.product_speedup(threads), self.rates.memory_speedup(threads));
        let barriers_s = if threads > 1 { work.barriers as f64 * barrier_s } else { 0.0 };
        TimeBreakdown {
            arithmetic_s: work.arithmetic_s / products,
            memory_s: (work.memory_s - work.far_s) / products + work.far_s / memory,
            overhead_s: work.overhead_s + barriers_s,
            all_reduce_s: work.all_reduce_s,
            upload_s: work.upload_s,
        }
    }

    /// Seconds of a step by `threads`, by which the plan decides: rows that it fetches from a file included,
    /// at typical rates.
    pub fn settled_s(&self, threads: usize) -> f64 {
        self.by(threads).device_s() + self.fetch.map_or(0.0, |fetch| fetch.in_step_s(threads))
    }
}

impl StepWork {
    fn new(
        program: &Program,
        working_set: u64,
        speed: &Speed,
        (data_bytes, fetch): (u64, Option<ReadCost>),
    ) -> Self {
        let Speed { rates, rows_bytes_per_s, cache_bytes, sums, upload_bytes_per_s } = *speed;
        let fetched = fetch.is_some_and(|fetch| fetch.in_step);
        // The rate, and whether it is that of the caches.
        let from = |bytes: u64, [cache, memory]: [f64; 2]| {
            if bytes <= cache_bytes { (cache, true) } else { (memory, memory >= cache) }
        };
        let arena = from(working_set, [rates.cache_bytes_per_s, rates.memory_bytes_per_s]);
        let data = from(working_set + data_bytes, rows_bytes_per_s);
        let mut work = Self { barriers: 3, ..Self::default() };
        let in_place = program.features_in_place().filter(|_| rates.processor == Processor::Cpu);
        for instruction in &program.instructions {
            if let (Op::AllReduce(op), Some(sums)) = (&instruction.op, sums) {
                work.all_reduce_s += sums.seconds(4 * op.of.len as u64);
                continue;
            }
            let mut cost = instruction.op.cost();
            if let Op::Gather(Gather { source, x, rows, width, target_width, .. }) = &instruction.op {
                if let (RowSource::Chunk, Some(rate)) = (source, upload_bytes_per_s) {
                    work.upload_s += (4 * rows * (width + target_width)) as f64 / rate;
                }
                cost.bytes -= match () {
                    // Features are copied out of the system's memory straight to where the step has them.
                    () if fetched => (2 * 4 * rows * width) as f64,
                    // Features are read where they lie; their copy is not written.
                    () if in_place == Some(*x) => (4 * rows * width) as f64,
                    () => 0.0,
                };
            }
            let (speed, is_near) = if instruction.phase == Phase::Data { data } else { arena };
            let compute_s = if instruction.op.product().is_some() {
                cost.flops / rates.flops_per_s
            } else {
                // Sums and products of numbers are done long before the numbers are there.
                cost.functions / rates.elementwise_per_s
            };
            let moved_s = cost.bytes / speed;
            if compute_s > moved_s {
                work.arithmetic_s += compute_s;
            } else {
                work.memory_s += moved_s;
                work.far_s += if is_near { 0.0 } else { moved_s };
            }
            work.barriers += usize::from(instruction.op.product().is_some());
            work.overhead_s += rates.instruction_s;
        }
        if rates.processor == Processor::Gpu {
            // A launch of its own ends the step.
            work.overhead_s += rates.instruction_s;
        }
        work
    }
}

/// Seconds of steps, by what they are spent on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimeBreakdown {
    pub arithmetic_s: f64,
    pub memory_s: f64,
    /// Fixed costs of instructions and of barriers.
    pub overhead_s: f64,
    pub all_reduce_s: f64,
    /// Rows on their way to the device, beside all else.
    pub upload_s: f64,
}

impl TimeBreakdown {
    fn zip(self, other: Self, by: impl Fn(f64, f64) -> f64) -> Self {
        Self {
            arithmetic_s: by(self.arithmetic_s, other.arithmetic_s),
            memory_s: by(self.memory_s, other.memory_s),
            overhead_s: by(self.overhead_s, other.overhead_s),
            all_reduce_s: by(self.all_reduce_s, other.all_reduce_s),
            upload_s: by(self.upload_s, other.upload_s),
        }
    }

    pub fn device_s(&self) -> f64 {
        self.arithmetic_s + self.memory_s + self.overhead_s + self.all_reduce_s
    }

    pub fn total_s(&self) -> f64 {
        self.device_s().max(self.upload_s)
    }

    pub fn bound(&self) -> Bottleneck {
        let work_s = self.arithmetic_s.max(self.memory_s);
        if self.upload_s > self.device_s() {
            Bottleneck::Transfer
        } else if self.all_reduce_s > work_s.max(self.overhead_s) {
            Bottleneck::AllReduce
        } else if self.overhead_s >= work_s {
            Bottleneck::Overhead
        } else if self.memory_s > self.arithmetic_s {
            Bottleneck::Memory
        } else {
            Bottleneck::Arithmetic
        }
    }
}
