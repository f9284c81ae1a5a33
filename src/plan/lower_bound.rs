//! The least time a step can take on a machine: arithmetic at the rate of its products, bytes at the speed of the
//! memory they come from, and a fixed cost per instruction.

use super::{AllReduceRates, Bottleneck, DeviceId, Engine, Gpu, MachineRates, Processor, ReadCost};
use crate::{
    program::{Cost, Gather, Op, Phase, Program, Programs, RowSource},
    spec::Precision,
};

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
    pub rates: MachineRates,
    /// What a sum over its GPUs takes, where that was measured.
    pub sum_rates: Option<AllReduceRates>,
}

/// What a step goes by on a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speed {
    /// Rates of the processor that computes it.
    pub rates: MachineRates,
    /// At what the rows of the data come, from its cache and from its memory.
    pub rows_bytes_per_s: [f64; 2],
    /// Bytes of its cache.
    pub cache_bytes: u64,
    /// Rates of sums over devices; they count as any other work where nothing is known of them.
    pub sums: Option<AllReduceRates>,
    /// Rate of rows on their way to a device with a memory of its own.
    pub upload_bytes_per_s: Option<f64>,
    /// How rows are read that stay in a file.
    pub fetch: Option<ReadCost>,
}

impl Machine {
    /// What a step by the host's processor goes by.
    pub fn speed(&self) -> Speed {
        let Self { rates, cache_bytes, .. } = *self;
        let rows_bytes_per_s = [rates.cache_bytes_per_s, rates.memory_bytes_per_s];
        Speed { rates, rows_bytes_per_s, cache_bytes, sums: None, upload_bytes_per_s: None, fetch: None }
    }

    /// What a step by an engine of a GPU goes by; `None` where the GPU was not measured.
    fn gpu_speed(
        gpu: &Gpu,
        (engine, precision): (Engine, Precision),
        sums: Option<AllReduceRates>,
    ) -> Option<Speed> {
        Some(Speed { sums, ..gpu.speed?.speed(engine, precision) })
    }

    /// The floor of a run on several devices is that of the slowest; `None` where one of its GPUs was not measured, or it
    /// has none.
    pub fn gpu_floor<'a>(
        &self,
        ranks: impl Iterator<Item = (&'a DeviceId, &'a Programs)>,
        (engine, precision, queued): (Engine, Precision, bool),
        (data_bytes, fetch): (u64, Option<ReadCost>),
    ) -> Option<LowerBound> {
        let ranks: Vec<_> = ranks.collect();
        // What a sum takes depends on how many take part: the rates are of as many GPUs as were measured together.
        let sums = self.sum_rates.filter(|sums| queued && sums.gpus as usize == ranks.len());
        let mut slowest: Option<LowerBound> = None;
        for (place, programs) in ranks {
            let Some(gpu) = place.real_gpu(self) else { continue };
            let speed = Speed { fetch, ..Self::gpu_speed(gpu, (engine, precision), sums)? };
            let lower_bound = LowerBound::new(programs, speed, data_bytes);
            if slowest.is_none_or(|known| known.serial_s() < lower_bound.serial_s()) {
                slowest = Some(lower_bound);
            }
        }
        slowest
    }
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
    /// The part of them that fetches the rows of the batch.
    pub rows_s: f64,
    /// Seconds of fixed costs.
    pub overhead_s: f64,
    /// Seconds of sums over devices, where they are known apart.
    pub all_reduce_s: f64,
    /// Seconds in which a batch comes to the device, which it does while another is computed with.
    pub upload_s: f64,
    /// Barriers of a team of threads.
    pub barriers: usize,
}

/// The least that a trial's steps take. Reading rows from a file is left out: what was read once may stay in memory, so a
/// run measures it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LowerBound {
    /// By which speeds.
    pub rates: MachineRates,
    /// Operations and bytes of a step on a full batch.
    pub cost: Cost,
    /// A step on a full batch.
    pub full: StepWork,
    /// The step that ends an epoch, where it takes fewer rows.
    pub last: Option<StepWork>,
    /// How rows are read that stay in a file.
    pub fetch: Option<ReadCost>,
}

impl LowerBound {
    /// The bound of a trial whose resident data take `data_bytes`, on a device of that speed.
    pub fn new(programs: &Programs, speed: Speed, data_bytes: u64) -> Self {
        let arena_bytes = programs.arena_bytes();
        let work = |program: &Program| StepWork::new(program, arena_bytes, &speed, data_bytes);
        Self {
            rates: speed.rates,
            cost: programs.train.cost(),
            full: work(&programs.train),
            last: programs.train_last.as_ref().map(work),
            fetch: speed.fetch,
        }
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
        self.parts(&self.full, threads).times(full).plus(self.parts(ends, threads).times(last))
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
    fn new(program: &Program, working_set: u64, speed: &Speed, data_bytes: u64) -> Self {
        let Speed { rates, rows_bytes_per_s, cache_bytes, sums, upload_bytes_per_s, fetch } = *speed;
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
                instruction.op.function_operations() / rates.elementwise_per_s
            };
            let moved_s = cost.bytes / speed;
            if compute_s > moved_s {
                work.arithmetic_s += compute_s;
            } else {
                work.memory_s += moved_s;
                work.rows_s += if instruction.phase == Phase::Data { moved_s } else { 0.0 };
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
    /// Multiplications and additions.
    pub arithmetic_s: f64,
    /// Moving bytes between memory and processor.
    pub memory_s: f64,
    /// Fixed costs of instructions and of barriers.
    pub overhead_s: f64,
    /// Sums over devices.
    pub all_reduce_s: f64,
    /// Rows on their way to the device, beside all else.
    pub upload_s: f64,
}

impl TimeBreakdown {
    fn times(self, count: u64) -> Self {
        let count = count as f64;
        Self {
            arithmetic_s: self.arithmetic_s * count,
            memory_s: self.memory_s * count,
            overhead_s: self.overhead_s * count,
            all_reduce_s: self.all_reduce_s * count,
            upload_s: self.upload_s * count,
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            arithmetic_s: self.arithmetic_s + other.arithmetic_s,
            memory_s: self.memory_s + other.memory_s,
            overhead_s: self.overhead_s + other.overhead_s,
            all_reduce_s: self.all_reduce_s + other.all_reduce_s,
            upload_s: self.upload_s + other.upload_s,
        }
    }

    /// What the device itself does.
    pub fn device_s(&self) -> f64 {
        self.arithmetic_s + self.memory_s + self.overhead_s + self.all_reduce_s
    }

    /// All of them.
    pub fn total_s(&self) -> f64 {
        self.device_s().max(self.upload_s)
    }

    /// The largest.
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
