//! The engine of kernels that are compiled for one trial, and the trial that they must pass before they are used.

use std::sync::Arc;

use cudarc::driver::sys::CUfunction;

use super::{gpu_context::GpuContext, steps::Steps};
use crate::{
    device::{
        DeviceError,
        cuda::{
            ffi::Context,
            launch::{Event, Module, Shape, allow_shared, arguments, launch},
            memory::DeviceMemory,
        },
    },
    op::{Hyper, RunRecord},
    program::{StepSource, StepSources},
};

/// Kernels of one kind of steps: for a full batch, and for the last.
pub struct Compiled {
    full: Kernel,
    last: Option<Kernel>,
    _module: Module,
}

struct Kernel {
    function: CUfunction,
    threads: u32,
    shared_bytes: u32,
}

// SAFETY: the handles are tokens that the driver takes from any thread.
unsafe impl Send for Compiled {}

impl Compiled {
    /// Compiles the sources, or finds their code in the cache.
    pub fn load(context: &Arc<Context>, sources: &StepSources) -> Result<Self, DeviceError> {
        let (full, last) = (&sources.full, sources.last.as_ref());
        let text = full.text.clone() + last.map_or("", |last| &last.text);
        let module = Module::compiled(context, &text)?;
        let kernel = |name: &str, source: &StepSource| {
            let (function, shared_bytes) = (module.function(name)?, 4 * source.elements as u32);
            allow_shared(context, function, u64::from(shared_bytes), name)?;
            Ok(Kernel { function, threads: source.threads, shared_bytes })
        };
        Ok(Self {
            full: kernel("steps", full)?,
            last: last.map(|last| kernel("last_step", last)).transpose()?,
            _module: module,
        })
    }

    /// Queues `count` full steps, or the last one.
    pub fn queue(&self, gpu: &GpuContext, count: usize, is_last: bool) -> Result<(), DeviceError> {
        self.queue_on(gpu, [gpu.arena.at, gpu.run.at], count, is_last)
    }

    fn queue_on(
        &self,
        gpu: &GpuContext,
        [arena, run]: [u64; 2],
        count: usize,
        is_last: bool,
    ) -> Result<(), DeviceError> {
        let kernel = self.last.as_ref().filter(|_| is_last).unwrap_or(&self.full);
        let Kernel { function, threads, shared_bytes } = *kernel;
        let shape = Shape { threads, shared_bytes, ..Shape::WARP };
        // SAFETY: (float*, Run*, int); the arena is that of the places that the source was made with.
        unsafe {
            launch(
                &gpu.context,
                &gpu.stream,
                function,
                shape,
                arguments![arena, run, count as i32],
                "a compiled step",
            )
        }
    }
}

/// Steps that are compared, at most: later ones amplify differences of rounding.
pub const COMPARED: usize = 64;

/// What some steps leave, from a state that is not touched.
pub struct Outcome {
    /// Of every step, where they are logged.
    pub losses: Vec<f32>,
    /// The flat buffer of parameters.
    pub values: Vec<f32>,
    pub seconds: f64,
}

/// What is tried: the same steps by both, from the state in the arena.
pub struct Attempt<'a> {
    /// As for the block whose steps these are.
    pub run: RunRecord,
    pub hyper: &'a [Hyper],
    /// First number of the flat buffer of parameters, and how many there are.
    pub values: [usize; 2],
    /// Numbers of a row of the log; 0 where steps leave none.
    pub log_width: usize,
    /// Numbers of the arena.
    pub elements: usize,
}

impl Attempt<'_> {
    /// Runs the steps on a copy of the arena, with a log and sums of its own: by the compiled kernel, or by the interpreter.
    pub fn run(
        &self,
        gpu: &GpuContext,
        steps: &Steps,
        threads: u32,
        compiled: Option<&Compiled>,
    ) -> Result<Outcome, DeviceError> {
        let (context, stream, count) = (&gpu.context, &gpu.stream, self.hyper.len());
        let (log_numbers, sums_bytes) = (count * self.log_width, 2 * crate::op::SUMS * size_of::<f64>());
        let memory = |bytes| DeviceMemory::new(context, bytes, "a trial of the compiled steps");
        let arena = memory(4 * self.elements)?;
        let table = memory(size_of::<RunRecord>() + size_of_val(self.hyper))?;
        let left = memory(sums_bytes + size_of::<u64>() + 4 * log_numbers.max(1))?;
        let (begin, end) = (Event::timed(context)?, Event::timed(context)?);
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
        let mut seconds = f64::INFINITY;
        // The first time, code comes to the GPU.
        for _ in 0..2 {
            stream.copy_between(arena.at, context, gpu.arena.at, context, 4 * self.elements)?;
            stream.fill(left.at, 0, left.bytes)?;
            // SAFETY: both are waited for below.
            unsafe {
                stream.upload_from(table.at, &run)?;
                stream.upload_from(run[0].hyper, self.hyper)?;
            }
            begin.record(stream)?;
            match compiled {
                Some(compiled) => compiled.queue_on(gpu, [arena.at, table.at], count, false)?,
                None => gpu.interpret([arena.at, table.at], steps, count, threads, self.elements)?,
            }
            end.record(stream)?;
            gpu.wait(&end, || "trying the compiled steps".into())?;
            seconds = end.seconds_after(&begin)?.min(seconds);
        }
        let [first, len] = self.values;
        let (mut log, mut values) = (vec![0.0; log_numbers], vec![0.0; len]);
        // SAFETY: the event behind them is waited for.
        unsafe {
            stream.download_into(&mut log, run[0].log)?;
            stream.download_into(&mut values, arena.at + 4 * first as u64)?;
        }
        end.record(stream)?;
        gpu.wait(&end, || "reading a trial of the compiled steps".into())?;
        let losses = log.chunks_exact(self.log_width.max(1)).map(|row| row[0]).collect();
        Ok(Outcome { losses, values, seconds })
    }
}
