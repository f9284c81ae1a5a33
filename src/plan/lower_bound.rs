//! The least time a step can take on a machine: arithmetic at the rate of its products, bytes at the speed of the
//! memory they come from, and a fixed cost per instruction.

use super::{AllReduceRates, DeviceId, Engine, Gpu, MachineRates, Processor, ReadCost};
use crate::{
    program::{Cost, Gather, Op, Phase, Programs, RowSource},
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
    /// Of what computes it.
    pub rates: MachineRates,
    /// At what the rows of the data come, from its cache and from its memory.
    pub rows_bytes_per_s: [f64; 2],
    /// Bytes of its cache.
    pub cache_bytes: u64,
    /// Of sums over devices; they count as any other work where nothing is known of them.
    pub sums: Option<AllReduceRates>,
    /// Of rows on their way to the device, where they have one.
    pub upload_bytes_per_s: Option<f64>,
    /// What a step's rows take that stay in a file.
    pub fetch: Option<ReadCost>,
}

impl Machine {
    /// What a step by the host's processor goes by.
    pub fn speed(&self) -> Speed {
        let Self { rates, cache_bytes, .. } = *self;
        let rows_bytes_per_s = [rates.cache_bytes_per_s, rates.memory_bytes_per_s];
        Speed { rates, rows_bytes_per_s, cache_bytes, sums: None, upload_bytes_per_s: None, fetch: None }
    }

    /// The same for an engine of a GPU, with what its sums go by; `None` where it was not measured.
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

/// What bounds a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepBound {
    /// Multiplications and additions.
    Arithmetic,
    /// Moving bytes between memory and processor.
    Memory,
    /// The fixed cost of instructions.
    Overhead,
    /// Sums over devices.
    AllReduce,
    /// Rows on their way to the device.
    Transfer,
    /// Rows on their way out of their file.
    File,
}

/// The floor of a step on a full batch, by one thread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LowerBound {
    /// By which speeds.
    pub rates: MachineRates,
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
    /// Seconds of sums over devices, where they are known apart.
    pub all_reduce_s: f64,
    /// Seconds in which a batch comes to the device, which it does while another is computed with.
    pub upload_s: f64,
    /// What its rows take that stay in a file.
    pub fetch: Option<ReadCost>,
    /// Times that a team would meet.
    pub meetings: usize,
    /// Instructions of a step.
    pub instructions: usize,
}

impl LowerBound {
    /// Of a trial whose resident data take `data_bytes`, on a device of that speed.
    pub fn new(programs: &Programs, speed: Speed, data_bytes: u64) -> Self {
        let Speed { rates, rows_bytes_per_s, cache_bytes, sums, upload_bytes_per_s, fetch } = speed;
        let working_set = programs.layout.arena_bytes();
        // The rate, and whether it is that of the caches.
        let from = |bytes: u64, [cache, memory]: [f64; 2]| {
            if bytes <= cache_bytes { (cache, true) } else { (memory, memory >= cache) }
        };
        let arena = from(working_set, [rates.cache_bytes_per_s, rates.memory_bytes_per_s]);
        let data = from(working_set + data_bytes, rows_bytes_per_s);
        let mut lower_bound = Self {
            rates,
            cost: programs.train.cost(),
            working_set,
            arithmetic_s: 0.0,
            memory_s: 0.0,
            far_s: 0.0,
            rows_s: 0.0,
            overhead_s: 0.0,
            all_reduce_s: 0.0,
            upload_s: 0.0,
            fetch,
            meetings: 3,
            instructions: programs.train.instructions.len(),
        };
        let in_place = programs.train.features_in_place().filter(|_| rates.processor == Processor::Cpu);
        for instruction in &programs.train.instructions {
            if let (Op::AllReduce(op), Some(sums)) = (&instruction.op, sums) {
                lower_bound.all_reduce_s += sums.seconds(4 * op.of.len as u64);
                continue;
            }
            let mut cost = instruction.op.cost();
            if let Op::Gather(Gather { x, source, rows, width, target_width, .. }) = &instruction.op {
                let in_step = fetch.is_some_and(|fetch| fetch.in_step);
                if let (RowSource::Chunk, Some(rate)) = (source, upload_bytes_per_s) {
                    lower_bound.upload_s += (4 * rows * (width + target_width)) as f64 / rate;
                }
                if in_step {
                    // Features are copied out of the system's memory straight to where the step has them.
                    cost.bytes -= (2 * 4 * rows * width) as f64;
                } else if in_place == Some(*x) {
                    // Features are read where they lie; their copy is not written.
                    cost.bytes -= (4 * rows * width) as f64;
                }
            }
            let (speed, is_near) = if instruction.phase == Phase::Data { data } else { arena };
            let work = if instruction.op.product().is_some() {
                cost.flops / rates.flops_per_s
            } else {
                // Sums and products of numbers are done long before the numbers are there.
                instruction.op.function_operations() / rates.elementwise_per_s
            };
            let moved = cost.bytes / speed;
            if work > moved {
                lower_bound.arithmetic_s += work;
            } else {
                lower_bound.memory_s += moved;
                lower_bound.rows_s += if instruction.phase == Phase::Data { moved } else { 0.0 };
                lower_bound.far_s += if is_near { 0.0 } else { moved };
            }
            lower_bound.meetings += usize::from(instruction.op.product().is_some());
            lower_bound.overhead_s += rates.instruction_s;
        }
        if rates.processor == Processor::Gpu {
            // A launch of its own ends the step.
            lower_bound.overhead_s += rates.instruction_s;
        }
        lower_bound
    }

    /// Seconds by one thread.
    pub fn serial_s(&self) -> f64 {
        self.by(1).total_s()
    }

    /// What the seconds of a step by so many threads are made of.
    pub fn by(&self, threads: usize) -> TimeBreakdown {
        let MachineRates { barrier_s, .. } = self.rates;
        let (products, memory) = (self.rates.product_speedup(threads), self.rates.memory_speedup(threads));
        let meetings_s = if threads > 1 { self.meetings as f64 * barrier_s } else { 0.0 };
        let read_s = self.fetch.map_or(0.0, |fetch| fetch.beside_s());
        // A GPU has steps of the last epoch left while the next one begins.
        let waits = self.fetch.filter(|_| !self.rates.processor.is_gpu());
        let [first, last] = waits.map_or([0.0; 2], |fetch| fetch.ends);
        let mut parts = TimeBreakdown {
            arithmetic_s: self.arithmetic_s / products,
            memory_s: (self.memory_s - self.far_s) / products + self.far_s / memory,
            overhead_s: self.overhead_s + meetings_s,
            all_reduce_s: self.all_reduce_s,
            fetch_s: self.fetch.map_or(0.0, |fetch| fetch.in_step_s(threads)),
            upload_s: self.upload_s,
            read_s,
            order_s: waits.map_or(0.0, |fetch| fetch.order_s),
            first_s: first * read_s,
            last_s: 0.0,
        };
        parts.last_s = last * parts.device_s();
        parts
    }

    /// What the device does in a step by so many threads, as decisions go by it: with typical rates of the file that rows
    /// come from, so that the same spec is planned alike whenever that is.
    pub fn settled_s(&self, threads: usize) -> f64 {
        let parts = self.by(threads);
        let fetch_s = self.fetch.map_or(0.0, |fetch| fetch.in_step_typical_s(threads));
        TimeBreakdown { fetch_s, ..parts }.device_s()
    }

    /// The largest part by one thread.
    pub fn bound(&self) -> StepBound {
        self.by(1).bound()
    }

    /// What bounds a step, in words.
    pub fn bound_name(&self, bound: StepBound) -> &'static str {
        match bound {
            StepBound::Arithmetic => "arithmetic",
            StepBound::Memory => "memory",
            StepBound::Overhead => self.rates.processor.overhead(),
            StepBound::AllReduce => "all-reduce",
            StepBound::Transfer => "transfer",
            StepBound::File => "file reads",
        }
    }
}

/// Seconds of a step, by what they are spent on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimeBreakdown {
    /// Multiplications and additions.
    pub arithmetic_s: f64,
    /// Moving bytes between memory and processor.
    pub memory_s: f64,
    /// Fixed costs of instructions and of meetings.
    pub overhead_s: f64,
    /// Sums over devices.
    pub all_reduce_s: f64,
    /// Rows that the step fetches from a file.
    pub fetch_s: f64,
    /// Rows on their way to the device, beside all else.
    pub upload_s: f64,
    /// Rows that are read from a file, beside all else.
    pub read_s: f64,
    /// A step's share of the time in which the orders of epochs are made, beside which nothing is done.
    pub order_s: f64,
    /// Its share of the time in which first chunks of epochs are read, a part of `read_s`: nothing is computed meanwhile.
    pub first_s: f64,
    /// Its share of the time in which last chunks of epochs are computed with: nothing is read meanwhile.
    pub last_s: f64,
}

impl TimeBreakdown {
    /// What the device itself does.
    pub fn device_s(&self) -> f64 {
        self.arithmetic_s + self.memory_s + self.overhead_s + self.all_reduce_s + self.fetch_s
    }

    /// All of them. Of an epoch that is read in one chunk nothing is done at the same time.
    pub fn total_s(&self) -> f64 {
        let (computing, reading) = (self.device_s() + self.first_s, self.read_s + self.last_s);
        self.order_s + computing.max(self.upload_s).max(reading)
    }

    /// The largest.
    pub fn bound(&self) -> StepBound {
        // An order is drawn all over the memory that holds it.
        let memory_s = self.memory_s + self.order_s;
        let rest = self.arithmetic_s.max(memory_s);
        let device_s = self.device_s().max(self.order_s);
        if self.read_s > device_s.max(self.upload_s) {
            StepBound::File
        } else if self.upload_s > device_s {
            StepBound::Transfer
        } else if self.fetch_s > rest.max(self.overhead_s).max(self.all_reduce_s) {
            StepBound::File
        } else if self.all_reduce_s > rest.max(self.overhead_s) {
            StepBound::AllReduce
        } else if self.overhead_s >= rest {
            StepBound::Overhead
        } else if memory_s > self.arithmetic_s {
            StepBound::Memory
        } else {
            StepBound::Arithmetic
        }
    }
}
