//! Work that is queued again and again between two events.

use std::{sync::Arc, time::Instant};

use crate::{
    device::{
        DeviceError,
        cuda::{
            all_reduce::{Communicator, PeerAllReduce},
            engines::{GpuContext, LaunchKind},
            ffi::{Context, Gpu},
            launch::{Event, HangTimeout, Kernels, Stream, argument, launch},
            memory::{DeviceMemory, Staging},
        },
    },
    op::{RunRecord, Size},
};

const ROUNDS: usize = 5;
/// Once rounds have taken this long, there are enough of them: what takes so long is little disturbed.
const ENOUGH_S: f64 = 0.2;
/// A round takes about this long at least.
const ROUND_S: f64 = 1e-3;
const MOST: usize = 4096;
const WAITS: usize = 100;
/// Random numbers that fill memory again and again: products of zeros take less power, and clocks go up.
const NOISE: usize = 1 << 18;

/// A GPU that was taken to be measured.
pub struct Bench {
    pub gpu_context: GpuContext,
    begin: Event,
    end: Event,
    noise: Vec<f32>,
    staging: Staging,
}

impl Bench {
    pub fn open(gpu: Gpu) -> Result<Self, DeviceError> {
        Self::with(gpu, None, None)
    }

    /// Takes it, with a way to other GPUs by NCCL.
    pub fn by_nccl(gpu: Gpu, others: Communicator) -> Result<Self, DeviceError> {
        Self::with(gpu, Some(others), None)
    }

    /// Takes it, with a way to other GPUs by our own kernel.
    pub fn by_peers(gpu: Gpu, peers: PeerAllReduce) -> Result<Self, DeviceError> {
        Self::with(gpu, None, Some(peers))
    }

    fn with(
        gpu: Gpu,
        others: Option<Communicator>,
        peers: Option<PeerAllReduce>,
    ) -> Result<Self, DeviceError> {
        let context = Context::open(gpu)?;
        let kernels = Kernels::load(&context)?;
        let stream = Stream::new(&context)?;
        let memory = |bytes| DeviceMemory::new(&context, bytes, "measuring");
        let gpu_context = GpuContext {
            kernels,
            stream,
            arena: memory(16)?,
            run: memory(size_of::<RunRecord>())?,
            barrier: memory(16)?,
            others,
            peers,
            step: 0,
            hang_timeout: HangTimeout::new(context.least_wait),
            context: Arc::clone(&context),
        };
        gpu_context.stream.fill(gpu_context.run.at, 0, gpu_context.run.bytes)?;
        let mut state = 1u32;
        let mut next = || {
            // Numerical Recipes' generator modulo 2^32: any numbers will do.
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            f32::from((state >> 16) as u16) / 65_536.0 - 0.5
        };
        let noise = (0..NOISE).map(|_| next()).collect();
        Ok(Self {
            gpu_context,
            begin: Event::timed(&context)?,
            end: Event::timed(&context)?,
            noise,
            staging: Staging::default(),
        })
    }

    /// Whether there is room for so many bytes with much to spare.
    pub fn fits(&self, bytes: usize) -> Result<bool, DeviceError> {
        let (free, _) = self.gpu_context.context.memory()?;
        Ok(bytes as u64 <= free / 4)
    }

    /// Makes the arena one of so many numbers, none of them zero for long.
    pub fn take(&mut self, elements: usize) -> Result<(), DeviceError> {
        let gpu_context = &mut self.gpu_context;
        gpu_context.context.finish(&gpu_context.stream, 0.0, "measuring")?;
        // The old one goes first: both may be large.
        gpu_context.arena = DeviceMemory::new(&gpu_context.context, 16, "measuring")?;
        gpu_context.arena = DeviceMemory::new(&gpu_context.context, 4 * elements, "measuring")?;
        let mut at = gpu_context.arena.at;
        let mut left = elements;
        while left > 0 {
            let part = left.min(self.noise.len());
            self.staging.upload(gpu_context, at, &self.noise[..part])?;
            at += 4 * part as u64;
            left -= part;
        }
        gpu_context.context.finish(&gpu_context.stream, 0.0, "measuring").map(drop)
    }

    /// Makes its GPU the one of this thread.
    pub fn enter(&self) -> Result<(), DeviceError> {
        self.gpu_context.context.enter()
    }

    /// Queues `y = a + b` over the first three vectors of so many numbers of the arena.
    pub fn add(&self, elements: usize) -> Result<(), DeviceError> {
        let gpu_context = &self.gpu_context;
        let function = gpu_context.kernels.function("tensor_add")?;
        let bytes = 4 * elements as u64;
        let (mut a, mut b, mut y) =
            (gpu_context.arena.at, gpu_context.arena.at + bytes, gpu_context.arena.at + 2 * bytes);
        let mut count = elements as u64;
        let mut arguments = [argument(&mut a), argument(&mut b), argument(&mut y), argument(&mut count)];
        let most = 4 * gpu_context.context.gpu.multiprocessors.max(1);
        let blocks = u32::try_from(elements.div_ceil(256)).unwrap_or(most).clamp(1, most);
        let shape = Size::new(u64::from(blocks), most).into();
        // SAFETY: (const float*, const float*, float*, u64); the arena has three such vectors.
        unsafe {
            launch(&gpu_context.context, &gpu_context.stream, function, shape, &mut arguments, "tensor_add")
        }
    }

    /// Seconds of so many sums over all GPUs, of so many numbers each.
    pub fn sums_s(&self, elements: usize, count: usize) -> Result<f64, DeviceError> {
        let work = LaunchKind::AllReduce { at: 0, len: elements };
        self.begin.record(&self.gpu_context.stream)?;
        (0..count).try_for_each(|_| self.gpu_context.queue(&work))?;
        self.end.record(&self.gpu_context.stream)?;
        self.gpu_context.wait(&self.end, || "measuring sums".into())?;
        self.gpu_context.check_peers()?;
        self.end.seconds_after(&self.begin)
    }

    /// Seconds of what `queue` puts into the stream, by the device's clock: the median of some rounds.
    pub fn seconds(&self, queue: impl Fn() -> Result<(), DeviceError>) -> Result<f64, DeviceError> {
        let stream = &self.gpu_context.stream;
        let round = |count: usize| -> Result<f64, DeviceError> {
            self.begin.record(stream)?;
            (0..count).try_for_each(|_| queue())?;
            self.end.record(stream)?;
            self.gpu_context.wait(&self.end, || "measuring".into())?;
            self.end.seconds_after(&self.begin)
        };
        let mut count = 1;
        // The first warms up, as far as it is not long enough to have done so.
        if round(count)? < ENOUGH_S {
            while count < MOST && round(count)? < ROUND_S {
                count *= 2;
            }
        }
        let (mut times, begun) = (Vec::new(), Instant::now());
        while times.is_empty() || times.len() < ROUNDS && begun.elapsed().as_secs_f64() < ENOUGH_S {
            times.push(round(count)? / count as f64);
        }
        // What is shorter than the clock can tell is not nothing.
        Ok(median(times).max(1e-9))
    }

    /// Seconds from the launch of a kernel that does next to nothing until the host knows that it is done.
    pub fn wait_s(&self) -> Result<f64, DeviceError> {
        let times = (0..WAITS).map(|_| {
            let start = Instant::now();
            self.add(1)?;
            self.end.record(&self.gpu_context.stream)?;
            self.gpu_context.wait(&self.end, || "measuring".into())?;
            Ok(start.elapsed().as_secs_f64())
        });
        Ok(median(times.collect::<Result<_, DeviceError>>()?))
    }
}

/// The middle of some values; 0 of none.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}
