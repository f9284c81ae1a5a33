//! Times work that is queued repeatedly between two events.

use std::{cell::Cell, time::Instant};

use crate::{
    device::{DeviceError, probe::spread},
    engines::{GpuContext, LaunchKind, QueuedSums},
    ffi::{Context, Gpu},
    launch::{Event, Graph, shape},
    memory::{DeviceMemory, Staging},
    op::{Kind, Record, counted},
};

/// Rounds per figure.
pub const ROUNDS: usize = 15;
/// If all rounds together took this long, that is enough: long rounds are hardly disturbed.
pub const ENOUGH_S: f64 = 0.2;
const ROUND_S: f64 = 1e-3;
const MOST: usize = 4096;
const WAITS: usize = 100;
/// Number of values with which memory is filled. Not zeros: products of zeros take less power, so clocks would rise.
const VALUES: usize = 1 << 18;

pub struct Bench {
    pub gpu: GpuContext,
    begin: Event,
    end: Event,
    values: Vec<f32>,
    staging: Staging,
    /// The relative interquartile range of the rounds of the least steady figure.
    pub noise: Cell<f64>,
}

impl Bench {
    /// `sums`: how GPUs sum, if several are measured together.
    pub fn open(gpu: Gpu, sums: Option<QueuedSums>) -> Result<Self, DeviceError> {
        let gpu = GpuContext { sums, ..GpuContext::new(Context::open(gpu)?, 16, 0)? };
        let mut state = 1u32;
        let mut next = || {
            // The generator of Numerical Recipes modulo 2^32: any values will do.
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            f32::from((state >> 16) as u16) / 65_536.0 - 0.5
        };
        let values = (0..VALUES).map(|_| next()).collect();
        let [begin, end] = [Event::timed(&gpu.context)?, Event::timed(&gpu.context)?];
        Ok(Self { gpu, begin, end, values, staging: Staging::default(), noise: Cell::default() })
    }

    /// Whether a quarter of the free memory holds this many bytes.
    pub fn fits(&self, bytes: usize) -> Result<bool, DeviceError> {
        let (free, _) = self.gpu.context.memory()?;
        Ok(bytes as u64 <= free / 4)
    }

    /// Replaces the arena by one with `elements` elements, filled with random values.
    pub fn take(&mut self, elements: usize) -> Result<(), DeviceError> {
        let gpu = &mut self.gpu;
        gpu.context.finish(&gpu.stream, 0.0, "measuring")?;
        // Free the old arena first: both may be large.
        gpu.arena = DeviceMemory::new(&gpu.context, 16, "measuring")?;
        gpu.arena = DeviceMemory::new(&gpu.context, 4 * elements, "measuring")?;
        let mut at = gpu.arena.at;
        let mut left = elements;
        while left > 0 {
            let part = left.min(self.values.len());
            self.staging.upload(gpu, at, &self.values[..part])?;
            at += 4 * part as u64;
            left -= part;
        }
        gpu.context.finish(&gpu.stream, 0.0, "measuring").map(drop)
    }

    /// Makes its GPU the current one of this thread.
    pub fn enter(&self) -> Result<(), DeviceError> {
        self.gpu.context.enter()
    }

    /// Queues `y = a + b` over the first three vectors of the arena.
    pub fn add(&self, elements: usize) -> Result<(), DeviceError> {
        let (n, at) = (counted(elements).unwrap_or(0), |i: usize| (i * elements) as u64);
        let mut record = Record { n, inputs: n, ..Record::new(Kind::Add) };
        record.at[..3].copy_from_slice(&[at(0), at(1), at(2)]);
        let shape = shape(&record, self.gpu.context.gpu.multiprocessors);
        self.gpu.queue(&LaunchKind::Kernel { record, shape })
    }

    /// Seconds of `count` sums over all GPUs, of `elements` each.
    pub fn sums_s(&self, elements: usize, count: usize) -> Result<f64, DeviceError> {
        let work = LaunchKind::AllReduce { at: 0, len: elements, rest: elements };
        self.begin.record(&self.gpu.stream)?;
        (0..count).try_for_each(|_| self.gpu.queue(&work))?;
        self.end.record(&self.gpu.stream)?;
        self.gpu.wait(&self.end, || "measuring sums".into())?;
        self.gpu.check_peers()?;
        self.end.seconds_after(&self.begin)
    }

    /// Seconds of the work that `queue` puts into the stream, by the device's clock: the median of several rounds.
    pub fn seconds(&self, queue: impl Fn() -> Result<(), DeviceError>) -> Result<f64, DeviceError> {
        let stream = &self.gpu.stream;
        let round = |count: usize| -> Result<f64, DeviceError> {
            self.begin.record(stream)?;
            (0..count).try_for_each(|_| queue())?;
            self.end.record(stream)?;
            self.gpu.wait(&self.end, || "measuring".into())?;
            self.end.seconds_after(&self.begin)
        };
        let mut count = 1;
        // The first round warms up.
        if round(count)? < ENOUGH_S {
            while count < MOST && round(count)? < ROUND_S {
                count *= 2;
            }
        }
        let (mut times, begun) = (Vec::new(), Instant::now());
        while times.is_empty() || times.len() < ROUNDS && begun.elapsed().as_secs_f64() < ENOUGH_S {
            times.push(round(count)? / count as f64);
        }
        // A time below the clock's resolution is not zero.
        Ok(self.figure(times).max(1e-9))
    }

    /// The median; also records its noise.
    fn figure(&self, mut times: Vec<f64>) -> f64 {
        self.noise.set(self.noise.get().max(spread(&mut times)));
        median(times)
    }

    /// Seconds of one node in a graph that contains the same work `nodes` times.
    pub fn node_s(
        &self,
        nodes: usize,
        queue: impl Fn() -> Result<(), DeviceError>,
    ) -> Result<f64, DeviceError> {
        let Self { gpu: GpuContext { context, stream, .. }, .. } = self;
        let graph = Graph::capture(context, stream, || (0..nodes).try_for_each(|_| queue()))?;
        Ok(self.seconds(|| graph.launch(stream))? / nodes as f64)
    }

    /// Queues the driver's copy of the first vector of the arena to the second.
    pub fn copy(&self, elements: usize) -> Result<(), DeviceError> {
        let GpuContext { arena, context, stream, .. } = &self.gpu;
        let bytes = 4 * elements;
        stream.copy_between(arena.at + bytes as u64, context, arena.at, context, bytes)
    }

    /// Seconds from launching an almost empty kernel until the host knows that it is complete.
    pub fn wait_s(&self) -> Result<f64, DeviceError> {
        let times = (0..WAITS).map(|_| {
            let start = Instant::now();
            self.add(1)?;
            self.end.record(&self.gpu.stream)?;
            self.gpu.wait(&self.end, || "measuring".into())?;
            Ok(start.elapsed().as_secs_f64())
        });
        Ok(self.figure(times.collect::<Result<_, DeviceError>>()?))
    }
}

/// The median; 0 if there are no values.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}
