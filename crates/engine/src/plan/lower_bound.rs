//! The least time that a step can take on a machine: arithmetic at the rate of its matrix products, bytes at
//! the speed of the memory they come from, and a fixed cost per instruction.

use super::{
    devices::DeviceId,
    engine::Engine,
    machine::Machine,
    rates::{MachineRates, Processor, Speed},
    read_cost::ReadCost,
};
use crate::{
    program::{Cost, Gather, MemoryPlan, Op, Phase, Program, Programs, RowSource},
    spec::Precision,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bottleneck {
    Arithmetic,
    Memory,
    Overhead,
    /// Waiting within one kernel: barriers, and loads and sums that follow each other.
    Latency,
    AllReduce,
    /// Copying rows to the device.
    Transfer,
    /// Reading rows from their file.
    File,
    /// Reading metrics from the device and recording them.
    Log,
    /// Waiting for checkpoints.
    Checkpoint,
    /// Ready to run, but without a core because others held them.
    Core,
    /// Page faults: memory that was touched for the first time, or read from a disk.
    PageFaults,
    /// The GPU had nothing to do, for no measured reason.
    Idle,
    /// Time that nothing measured explains.
    Unexplained,
}

/// The least work of a step, in seconds of one thread.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepWork {
    /// Seconds of the instructions whose arithmetic takes longer than moving their bytes.
    pub arithmetic_s: f64,
    /// Seconds of the instructions for which moving bytes takes longer.
    pub memory_s: f64,
    /// The part of `memory_s` that comes from main memory, beyond the caches, which all threads share.
    pub far_s: f64,
    pub overhead_s: f64,
    /// Seconds of all-reduce, if its rates are known.
    pub all_reduce_s: f64,
    /// Seconds to upload a batch; it overlaps with computing on another one.
    pub upload_s: f64,
    pub barriers: usize,
}

/// The least time of a trial's steps. Reading rows from a file is not part of the bound, since the file may
/// be cached in memory: a run measures it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LowerBound {
    pub rates: MachineRates,
    pub cost: Cost,
    pub full: StepWork,
    /// The last step of an epoch, if it has fewer rows.
    pub last: Option<StepWork>,
    /// How rows are read that stay in a file.
    pub fetch: Option<ReadCost>,
}

impl LowerBound {
    /// The bound of a trial on a device of this speed. `data_bytes` are resident; `fetch` says how rows of a
    /// file are read.
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

    /// The bound of a program that is not one of training.
    pub(super) fn of_program(program: &Program, arena_bytes: u64, speed: Speed, data_bytes: u64) -> Self {
        let full = StepWork::new(program, arena_bytes, &speed, (data_bytes, None));
        Self { rates: speed.rates, cost: program.cost(), full, last: None, fetch: None }
    }

    /// The bound of a run on GPUs: that of the slowest one. `None` if there is no GPU, or one was not
    /// measured.
    pub(super) fn of_gpus<'a>(
        machine: &Machine,
        ranks: impl Iterator<Item = (&'a DeviceId, &'a Programs)>,
        (engine, precision, queued): (Engine, Precision, bool),
        data: (u64, Option<ReadCost>),
    ) -> Option<Self> {
        let ranks: Vec<_> = ranks.collect();
        // The cost of a sum depends on the number of GPUs, so measured rates hold for that number only.
        let sums = machine.sum_rates.iter().find(|sums| queued && sums.gpus as usize == ranks.len()).copied();
        let mut slowest: Option<Self> = None;
        for (place, programs) in ranks {
            let Some(gpu) = place.real_gpu(machine) else { continue };
            let in_block = 4 * MemoryPlan::new(programs).train.elements as u64 <= gpu.limits.shared_bytes;
            let bound =
                Self::new(programs, Speed { sums, ..gpu.speed?.speed(engine, precision, in_block) }, data);
            if slowest.is_none_or(|known| known.serial_s() < bound.serial_s()) {
                slowest = Some(bound);
            }
        }
        slowest
    }

    /// Seconds of a full step with one thread.
    pub fn serial_s(&self) -> f64 {
        self.by(1).total_s()
    }

    /// The breakdown of a full step's seconds with `threads` threads.
    pub fn by(&self, threads: usize) -> TimeBreakdown {
        self.parts(&self.full, threads)
    }

    /// The breakdown of `full` full steps and of `last` steps that end an epoch.
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

    /// Seconds of a step with `threads` threads, as the plan compares them: includes the rows that the step
    /// itself fetches from a file, at typical rates.
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
        // The rate, and whether it is a cache's.
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
                    // Features are copied from the file cache straight to the batch's buffer.
                    () if fetched => (2 * 4 * rows * width) as f64,
                    // Features are used in place, so no copy is written.
                    () if in_place == Some(*x) => (4 * rows * width) as f64,
                    () => 0.0,
                };
            }
            let (speed, is_near) = if instruction.phase == Phase::Data { data } else { arena };
            let compute_s = if instruction.op.product().is_some() {
                cost.flops / rates.flops_per_s
            } else {
                // Sums and products of elements take no time of their own: they are done before the next
                // elements arrive.
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
            // One more launch ends the step.
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
    /// Uploading rows, which overlaps with everything else.
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
