//! The engine `compiled`: kernels for one trial, and the test run that they must pass before they are used.

use std::sync::Arc;

use cudarc::driver::sys::CUfunction;

use super::gpu_context::GpuContext;
use crate::{
    device::DeviceError,
    ffi::Context,
    launch::{Event, Shape, StepModule, allow_shared, arguments, blocks_at_once, launch},
    memory::DeviceMemory,
    op::{Hyper, RunRecord},
    program::StepSource,
};

/// The kernel for training steps.
pub struct Compiled {
    function: CUfunction,
    shape: Shape,
    /// A grid's memory for the next batch.
    ahead: Option<DeviceMemory>,
    pub module: Arc<StepModule>,
}

// SAFETY: the handles are tokens that the driver accepts from any thread.
unsafe impl Send for Compiled {}

impl Compiled {
    /// Compiles the source, or takes its code from the cache.
    pub fn load(context: &Arc<Context>, source: &StepSource) -> Result<Self, DeviceError> {
        let StepSource { blocks, threads, elements, ahead, .. } = *source;
        let module = StepModule::compiled(context, source.text.clone())?;
        let (function, shared_bytes) = (module.function(context, "steps")?, 4 * elements as u32);
        allow_shared(context, function, u64::from(shared_bytes), "steps")?;
        let together = blocks > 1;
        let at_once = if together { blocks_at_once(context, function, threads, shared_bytes)? } else { 1 };
        if u64::from(blocks) > at_once {
            return Err(context.unusable(format!(
                "the compiled step needs {blocks} blocks, and {at_once} run at once; leave `devices.engine` to the plan"
            )));
        }
        let ahead = (ahead > 0).then(|| DeviceMemory::new(context, 4 * ahead, "the next batch"));
        let shape = Shape { blocks, threads, shared_bytes, together };
        Ok(Self { function, shape, ahead: ahead.transpose()?, module })
    }

    pub fn bytes(&self) -> usize {
        self.ahead.as_ref().map_or(0, |ahead| ahead.bytes)
    }

    /// Queues steps, which may go on in another epoch.
    pub fn queue(&self, gpu: &GpuContext, steps: usize) -> Result<(), DeviceError> {
        self.queue_on(gpu, [gpu.arena.at, gpu.run.at], steps)
    }

    /// The same on another arena and with other counters.
    pub fn queue_on(
        &self,
        gpu: &GpuContext,
        [arena, run]: [u64; 2],
        count: usize,
    ) -> Result<(), DeviceError> {
        let ahead = self.ahead.as_ref().map_or(0, |ahead| ahead.at);
        let arguments = arguments![arena, run, gpu.barrier.at, ahead, count as i32];
        // SAFETY: (float*, Run*, unsigned*, float*, int); the arena has the offsets with which the source was generated.
        unsafe { launch(&gpu.context, &gpu.stream, self.function, self.shape, arguments, "a compiled step") }
    }
}

/// The result of some steps, run on a copy of the state.
pub struct Outcome {
    /// The loss of every step, if losses are logged.
    pub losses: Vec<f32>,
    /// The flat buffer of parameters.
    pub values: Vec<f32>,
}

/// What to compare: the same steps by both kernels, starting from the state in the arena.
pub struct Attempt<'a> {
    /// The counters of the block to which these steps belong.
    pub run: RunRecord,
    pub hyper: &'a [Hyper],
    /// First element and length of the flat buffer of parameters.
    pub values: [usize; 2],
    /// Elements per log row; 0 if steps log nothing.
    pub log_width: usize,
    /// Elements of the arena.
    pub elements: usize,
}

impl Attempt<'_> {
    /// Runs the steps on a copy of the arena, with a separate log and sums. `queue` queues a number of them on an
    /// arena and a run's counters.
    pub fn run(
        &self,
        gpu: &GpuContext,
        queue: impl Fn([u64; 2], usize) -> Result<(), DeviceError>,
    ) -> Result<Outcome, DeviceError> {
        let (context, stream, count) = (&gpu.context, &gpu.stream, self.hyper.len());
        let (log_numbers, sums_bytes) = (count * self.log_width, 2 * crate::op::SUMS * size_of::<f64>());
        let memory = |bytes| DeviceMemory::new(context, bytes, "a trial of the compiled steps");
        let arena = memory(4 * self.elements)?;
        let table = memory(size_of::<RunRecord>() + size_of_val(self.hyper))?;
        let left = memory(sums_bytes + size_of::<u64>() + 4 * log_numbers.max(1))?;
        let mut end = Event::plain(context)?;
        let non_finite = left.at + sums_bytes as u64;
        let run = [RunRecord {
            hyper: table.at + size_of::<RunRecord>() as u64,
            sums: left.at,
            non_finite,
            log: non_finite + size_of::<u64>() as u64,
            index: 0,
            slot: 0,
            ..self.run
        }];
        stream.copy_between(arena.at, context, gpu.arena.at, context, 4 * self.elements)?;
        stream.fill(left.at, 0, left.bytes)?;
        // SAFETY: both copies are waited for below.
        unsafe {
            stream.upload_from(table.at, &run)?;
            stream.upload_from(run[0].hyper, self.hyper)?;
        }
        queue([arena.at, table.at], count)?;
        end.record(stream)?;
        gpu.wait(&end, || "trying the compiled steps".into())?;
        let [first, len] = self.values;
        let (mut log, mut values) = (vec![0.0; log_numbers], vec![0.0; len]);
        // SAFETY: the event after them is waited for.
        unsafe {
            stream.download_into(&mut log, run[0].log)?;
            stream.download_into(&mut values, arena.at + 4 * first as u64)?;
        }
        end.record(stream)?;
        gpu.wait(&end, || "reading a trial of the compiled steps".into())?;
        [arena, table, left].into_iter().for_each(|mut memory| memory.own.leave());
        end.0.leave();
        let losses = log.chunks_exact(self.log_width.max(1)).map(|row| row[0]).collect();
        Ok(Outcome { losses, values })
    }
}
