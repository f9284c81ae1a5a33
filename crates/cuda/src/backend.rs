//! A GPU as a backend: tensors are in its memory, and this project's kernels compute on them, in order on one stream.

use std::{any::Any, cell::Cell, collections::HashMap, ffi::c_void, time::Duration};

use cudarc::driver::sys::CUfunction;

use super::{
    engines::GpuContext,
    ffi::{Context, Gpu},
    launch::{Event, HangTimeout, Shape, arguments, shape},
    memory::{DeviceMemory, pinned_numbers},
};
use crate::{
    device::{
        DeviceError, HostMemory, Moved,
        backend::{Backend, NO_MARK, misfit, unknown},
    },
    op::{BufferId, Cost, Encoder, MOST_COUNTED, Op, Precision, Refused, RunRecord, Slice},
    program::Layout,
    spec::lab::Memory,
};

pub struct CudaBackend {
    // Declared first, so that they are dropped before the context they use.
    blocks: HashMap<BufferId, DeviceMemory>,
    marks: Vec<Event>,
    gpu: GpuContext,
    /// Worst-case seconds of the work queued since the last wait.
    given_s: Cell<f64>,
}

impl CudaBackend {
    /// Opens the GPU. Kernels are loaded when the first is needed.
    ///
    /// # Errors
    /// What is missing, and what to do about it.
    pub fn open(gpu: Gpu) -> Result<Self, DeviceError> {
        let gpu = GpuContext::new(Context::open(gpu)?, 0, 0)?;
        let record = [RunRecord { partial: gpu.partial.at, ..RunRecord::default() }];
        let own = Self { blocks: HashMap::new(), marks: Vec::new(), gpu, given_s: Cell::new(0.0) };
        // SAFETY: the next statement waits for the copy.
        unsafe { own.gpu.stream.upload_from(own.gpu.run.at, &record)? };
        own.wait("starting")?;
        Ok(own)
    }

    fn name(&self) -> &str {
        &self.gpu.context.name
    }

    /// Number of elements in a block.
    fn len(&self, block: BufferId) -> Result<usize, DeviceError> {
        self.blocks.get(&block).map(|memory| memory.bytes / 4).ok_or_else(|| unknown(self.name()))
    }

    /// The address of a slice; `None` if this device does not hold all of it.
    fn address(&self, slice: Slice) -> Option<u64> {
        let memory = self.blocks.get(&slice.buffer).filter(|memory| 4 * slice.end() <= memory.bytes)?;
        Some(memory.at + 4 * slice.offset as u64)
    }

    /// The address of a block's first `len` elements.
    fn start(&self, buffer: BufferId, len: usize) -> Result<u64, DeviceError> {
        let found = self.address(Slice { buffer, offset: 0, len });
        found.ok_or_else(|| misfit(self.name(), "a block that is too short, or not there"))
    }

    fn unusable(&self, n: usize) -> DeviceError {
        let why = format!("its kernels count to {MOST_COUNTED}, and there are {n} numbers");
        self.gpu.context.unusable(why)
    }

    /// Queues a kernel with this cost.
    ///
    /// # Safety
    /// See [`GpuContext::launch`].
    unsafe fn launch(
        &self,
        (function, name): (CUfunction, &'static str),
        shape: Shape,
        arguments: &mut [*mut c_void],
        cost: Cost,
    ) -> Result<(), DeviceError> {
        self.gpu.context.enter()?;
        self.given_s.set(self.given_s.get() + HangTimeout::slowest_s(cost, 1));
        // SAFETY: guaranteed by the caller.
        unsafe { self.gpu.launch(function, shape, arguments, name) }
    }

    /// A launch with one thread per element.
    fn size(&self, elements: usize) -> Shape {
        let most = 4 * self.gpu.context.gpu.multiprocessors.max(1);
        Shape::new(elements.div_ceil(256) as u64, most)
    }

    fn wait(&self, doing: &str) -> Result<Duration, DeviceError> {
        let given_s = self.given_s.replace(0.0);
        self.gpu.context.enter()?;
        self.gpu.context.finish(&self.gpu.stream, given_s, doing)
    }

    /// Waits for queued work, if there is any. Otherwise a copy from or to pageable memory would wait inside
    /// the driver, where it cannot be interrupted.
    fn wait_for_work(&self, doing: &str) -> Result<Duration, DeviceError> {
        if self.given_s.get() > 0.0 {
            return self.wait(doing);
        }
        self.gpu.context.enter().map(|()| Duration::ZERO)
    }
}

impl Backend for CudaBackend {
    fn alloc(&mut self, block: BufferId, len: usize, value: f32) -> Result<(), DeviceError> {
        let bytes = len.saturating_mul(4);
        let made =
            self.gpu.context.enter().and_then(|()| DeviceMemory::new(&self.gpu.context, bytes, "a tensor"));
        let memory = made.map_err(|e| match e {
            DeviceError::Cuda { ref name, .. } if name == "CUDA_ERROR_OUT_OF_MEMORY" => {
                DeviceError::OutOfMemory { device: self.name().to_owned(), bytes: bytes as u64 }
            }
            e => e,
        })?;
        let (at, shape) = (memory.at, self.size(len));
        let fill = (self.gpu.context.function("tensor_fill")?, "tensor_fill");
        // SAFETY: (float*, u64, float), and the block has that length.
        unsafe { self.launch(fill, shape, arguments![at, len as u64, value], Cost::new(0, len))? };
        self.blocks.insert(block, memory);
        Ok(())
    }

    fn clear(&mut self) {
        // The driver itself waits for kernels that use the memory.
        self.blocks.clear();
    }

    fn bytes(&self) -> u64 {
        self.blocks.values().map(|memory| memory.bytes as u64).sum()
    }

    fn staging(&mut self, memory: Memory, len: usize) -> Result<HostMemory, DeviceError> {
        match memory {
            Memory::Pageable => Ok(Box::new(vec![0.0; len])),
            Memory::Pinned => {
                self.gpu.context.enter()?;
                pinned_numbers(&self.gpu.context, len, "copies")
            }
        }
    }

    fn write(&mut self, to: BufferId, from: &[f32]) -> Result<Moved, DeviceError> {
        let at = self.start(to, from.len())?;
        let before = self.wait_for_work("computing with what is written anew")?;
        // SAFETY: the next statement waits for the stream, pinned or not; if that fails, the device no longer reads.
        unsafe { self.gpu.stream.upload_from(at, from)? };
        let wait = before + self.wait("copying to it")?;
        Ok(Moved::AfterWait { bytes: size_of_val(from) as u64, wait })
    }

    fn read(&mut self, from: BufferId, to: &mut [f32]) -> Result<Moved, DeviceError> {
        let at = self.start(from, to.len())?;
        let before = self.wait_for_work("computing what is copied from it")?;
        let bytes = size_of_val(to) as u64;
        // SAFETY: the next statement waits for the stream; if that fails, the device no longer writes.
        unsafe { self.gpu.stream.download_into(to, at)? };
        let wait = before + self.wait("copying from it")?;
        Ok(Moved::AfterWait { bytes, wait })
    }

    fn copy(&mut self, to: BufferId, from: BufferId) -> Result<Moved, DeviceError> {
        let len = self.len(from)?;
        let (source, target, shape) = (self.start(from, len)?, self.start(to, len)?, self.size(len));
        let (copy, cost) =
            ((self.gpu.context.function("tensor_copy")?, "tensor_copy"), Cost::new(0, 2 * len));
        // SAFETY: (const float*, float*, u64), and both blocks have that length.
        unsafe { self.launch(copy, shape, arguments![source, target, len as u64], cost)? };
        Ok(Moved::Bytes(4 * len as u64))
    }

    fn copy_from(
        &mut self,
        to: BufferId,
        peer: &mut dyn Backend,
        from: BufferId,
    ) -> Result<Moved, DeviceError> {
        let Some(peer) = peer.as_any().downcast_mut::<Self>() else { return Err(unknown(self.name())) };
        let len = peer.len(from)?;
        let (target, source) = (self.start(to, len)?, peer.start(from, len)?);
        // The peer's stream may still be writing the source, which may also be freed or overwritten once this returns.
        let before = peer.wait("computing what is copied from it")?;
        self.gpu.context.enter()?;
        self.gpu.stream.copy_between(target, &self.gpu.context, source, &peer.gpu.context, 4 * len)?;
        let wait = before + self.wait("copying from another GPU")?;
        Ok(Moved::AfterWait { bytes: 4 * len as u64, wait })
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }

    fn run(&mut self, op: &Op) -> Result<(), DeviceError> {
        let base = self.address(op.access().writes[0]).ok_or_else(|| unknown(self.name()))?;
        // Offsets are relative to the result, whichever block a slice is in. Addresses are multiples of four,
        // and the kernel's addition wraps like this subtraction.
        let place = |slice| Some((self.address(slice)?.wrapping_sub(base) as i64 / 4) as u64);
        let layout = Layout::bare(Vec::new());
        let encoder = Encoder { layout: &layout, precision: Precision::F32, place: &place };
        let record = op.record(&encoder).map_err(|refused| match refused {
            Refused::TooLarge(n) => self.unusable(n),
            Refused::NoPlace(_) => unknown(self.name()),
            Refused::AllReduce(_) | Refused::StartAllReduce(_) => misfit(self.name(), "a sum over devices"),
        })?;
        let (kind, shape) = (record.kind(), shape(&record, self.gpu.context.gpu.multiprocessors));
        let kernel = (self.gpu.context.ops()?.get(kind), kind.kernel());
        // SAFETY: (Op, float*, Run*); every offset leads to a slice within a block of this backend.
        unsafe { self.launch(kernel, shape, arguments![record, base, self.gpu.run.at], op.cost()) }
    }

    fn synchronize(&mut self) -> Result<(), DeviceError> {
        self.wait("computing").map(drop)
    }

    fn mark(&mut self, number: usize) -> Result<(), DeviceError> {
        self.gpu.context.enter()?;
        while self.marks.len() <= number {
            self.marks.push(Event::timed(&self.gpu.context)?);
        }
        self.marks[number].record(&self.gpu.stream)
    }

    fn seconds_between(&self, marks: [usize; 2]) -> Result<f64, DeviceError> {
        let [Some(from), Some(to)] = marks.map(|number| self.marks.get(number)) else {
            return Err(misfit(self.name(), NO_MARK));
        };
        self.gpu.context.enter()?;
        to.seconds_after(from)
    }
}
