//! A GPU as a backend: tensors live in its memory, and our kernels compute with them, in order on one stream.

use std::{
    any::Any,
    cell::Cell,
    collections::HashMap,
    ops::{Deref, DerefMut},
    sync::Arc,
    time::Duration,
};

use super::{
    ffi::{Context, Gpu},
    launch::{HangTimeout, Kernels, Shape, Stream, argument, launch, shape},
    memory::{DeviceMemory, Pinned},
};
use crate::{
    device::{
        DeviceError, Moved,
        backend::{Backend, Handle, Staging, misfit, unknown},
    },
    op::{Cost, Encoder, MOST_COUNTED, Op, PARTIALS, Precision, Refused, RunRecord, Slice},
    program::Layout,
    spec::lab::Memory,
};

pub struct CudaBackend {
    name: String,
    // Dropped before the context that they use.
    blocks: HashMap<u64, DeviceMemory>,
    /// Scratch for sums over blocks of a grid, and the run record that points to it.
    partial: DeviceMemory,
    run: DeviceMemory,
    stream: Stream,
    kernels: Kernels,
    context: Arc<Context>,
    /// Worst-case seconds of the work queued since the last wait.
    given_s: Cell<f64>,
}

impl CudaBackend {
    /// Takes the GPU and its kernels.
    ///
    /// # Errors
    /// What is missing, and the way out.
    pub fn open(gpu: Gpu) -> Result<Self, DeviceError> {
        let context = Context::open(gpu)?;
        let kernels = Kernels::load(&context)?;
        let stream = Stream::new(&context)?;
        let partial = DeviceMemory::new(&context, (PARTIALS + 1) * size_of::<f64>(), "sums over blocks")?;
        stream.fill(partial.at, 0, partial.bytes)?;
        let run = DeviceMemory::new(&context, size_of::<RunRecord>(), "the place of its sums")?;
        let (name, given_s) = (context.name.clone(), Cell::new(0.0));
        let own = Self { name, blocks: HashMap::new(), partial, run, stream, kernels, context, given_s };
        let record = [RunRecord { partial: own.partial.at, ..RunRecord::default() }];
        // SAFETY: the next statement waits for the copy.
        unsafe { own.stream.upload_from(own.run.at, &record)? };
        own.wait("starting")?;
        Ok(own)
    }

    /// The address of a block of exactly `expected` numbers.
    fn sized(&self, handle: Handle, expected: usize) -> Result<u64, DeviceError> {
        handle.check(&self.name, expected)?;
        self.blocks.get(&handle.block).map(|memory| memory.at).ok_or_else(|| unknown(&self.name))
    }

    fn unusable(&self, n: usize) -> DeviceError {
        let why = format!("its kernels count to {MOST_COUNTED}, and there are {n} numbers");
        DeviceError::Unusable { device: self.name.clone(), why }
    }

    /// Records what was queued.
    fn give(&self, cost: Cost) {
        self.given_s.set(self.given_s.get() + HangTimeout::slowest_s(cost, 1));
    }

    /// A launch with a thread for each number.
    fn size(&self, elements: usize) -> Shape {
        let most = 4 * self.context.gpu.multiprocessors.max(1);
        Shape::new(elements.div_ceil(256) as u64, most)
    }

    fn wait(&self, doing: &str) -> Result<Duration, DeviceError> {
        let given_s = self.given_s.replace(0.0);
        self.context.enter()?;
        self.context.finish(&self.stream, given_s, doing)
    }

    /// Waits for queued work, if there is any: else a copy to or from pageable memory would wait in the driver, which
    /// cannot be interrupted.
    fn wait_for_work(&self, doing: &str) -> Result<Duration, DeviceError> {
        if self.given_s.get() > 0.0 {
            return self.wait(doing);
        }
        self.context.enter().map(|()| Duration::ZERO)
    }
}

/// Pinned host memory as numbers.
struct PinnedNumbers {
    memory: Pinned,
    len: usize,
}

impl Deref for PinnedNumbers {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        // SAFETY: `len` numbers were allocated, aligned to a page and zeroed; copies from and to it are waited for before the
        // backend returns.
        unsafe { std::slice::from_raw_parts(self.memory.at() as *const f32, self.len) }
    }
}

impl DerefMut for PinnedNumbers {
    fn deref_mut(&mut self) -> &mut [f32] {
        // SAFETY: as above, and `&mut self` is the only way to it.
        unsafe { std::slice::from_raw_parts_mut(self.memory.at() as *mut f32, self.len) }
    }
}

impl Backend for CudaBackend {
    fn name(&self) -> &str {
        &self.name
    }

    fn is_host(&self) -> bool {
        false
    }

    fn alloc(&mut self, len: usize, value: f32) -> Result<Handle, DeviceError> {
        let bytes = len.saturating_mul(4);
        let made = self.context.enter().and_then(|()| DeviceMemory::new(&self.context, bytes, "a tensor"));
        let memory = made.map_err(|e| match e {
            DeviceError::Cuda { ref name, .. } if name == "CUDA_ERROR_OUT_OF_MEMORY" => {
                DeviceError::OutOfMemory { device: self.name.clone(), bytes: bytes as u64 }
            }
            e => e,
        })?;
        let (mut at, mut count, mut value) = (memory.at, len as u64, value);
        let mut arguments = [argument(&mut at), argument(&mut count), argument(&mut value)];
        let function = self.kernels.function("tensor_fill")?;
        self.give(Cost::new(0, len));
        // SAFETY: (float*, u64, float), a block of that length.
        unsafe {
            launch(&self.context, &self.stream, function, self.size(len), &mut arguments, "tensor_fill")?
        };
        let handle = Handle::unique(len);
        self.blocks.insert(handle.block, memory);
        Ok(handle)
    }

    fn clear(&mut self) {
        // The driver itself waits for kernels that use them.
        self.blocks.clear();
    }

    fn bytes(&self) -> u64 {
        self.blocks.values().map(|memory| memory.bytes as u64).sum()
    }

    fn staging(&mut self, memory: Memory, len: usize) -> Result<Staging, DeviceError> {
        match memory {
            Memory::Pageable => Ok(Box::new(vec![0.0; len])),
            Memory::Pinned => {
                let bytes = len.saturating_mul(4);
                self.context.enter()?;
                Ok(Box::new(PinnedNumbers { memory: Pinned::new(&self.context, bytes, "copies")?, len }))
            }
        }
    }

    fn write(&mut self, to: Handle, from: &[f32]) -> Result<Moved, DeviceError> {
        let at = self.sized(to, from.len())?;
        let before = self.wait_for_work("computing with what is written anew")?;
        // SAFETY: the next statement waits for the stream, pinned or not; should that fail, the device reads no more.
        unsafe { self.stream.upload_from(at, from)? };
        let wait = before + self.wait("copying to it")?;
        Ok(Moved::AfterWait { bytes: size_of_val(from) as u64, wait })
    }

    fn read(&mut self, from: Handle, to: &mut [f32]) -> Result<Moved, DeviceError> {
        let at = self.sized(from, from.len.max(to.len()))?;
        let before = self.wait_for_work("computing what is copied from it")?;
        let bytes = size_of_val(to) as u64;
        // SAFETY: the next statement waits for the stream; should that fail, the device writes no more.
        unsafe { self.stream.download_into(to, at)? };
        let wait = before + self.wait("copying from it")?;
        Ok(Moved::AfterWait { bytes, wait })
    }

    fn copy(&mut self, to: Handle, from: Handle) -> Result<Moved, DeviceError> {
        let (mut source, mut count) = (self.sized(from, to.len)?, to.len as u64);
        let mut target = self.sized(to, to.len)?;
        let mut arguments = [argument(&mut source), argument(&mut target), argument(&mut count)];
        let function = self.kernels.function("tensor_copy")?;
        self.context.enter()?;
        self.give(Cost::new(0, 2 * to.len));
        let shape = self.size(to.len);
        // SAFETY: (const float*, float*, u64), both blocks of that length.
        unsafe { launch(&self.context, &self.stream, function, shape, &mut arguments, "tensor_copy")? };
        Ok(Moved::Bytes(4 * count))
    }

    fn copy_from(&mut self, to: Handle, peer: &mut dyn Backend, from: Handle) -> Result<Moved, DeviceError> {
        let Some(peer) = peer.as_any().downcast_mut::<Self>() else { return Err(unknown(&self.name)) };
        let (target, source) = (self.sized(to, from.len)?, peer.sized(from, to.len)?);
        // Its own stream may still write what is to be copied; and it may be freed or written once this returns.
        let before = peer.wait("computing what is copied from it")?;
        let bytes = 4 * to.len;
        self.context.enter()?;
        self.stream.copy_between(target, &self.context, source, &peer.context, bytes)?;
        let wait = before + self.wait("copying from another GPU")?;
        Ok(Moved::AfterWait { bytes: bytes as u64, wait })
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }

    fn run(&mut self, op: &Op, blocks: &[Handle]) -> Result<(), DeviceError> {
        let address = |slice: Slice| -> Option<u64> {
            let block = blocks.get(slice.buffer.0).filter(|block| slice.end() <= block.len)?;
            Some(self.blocks.get(&block.block)?.at + 4 * slice.offset as u64)
        };
        let base = address(op.access().writes[0]).ok_or_else(|| unknown(&self.name))?;
        // Places are offsets from the result, whichever block they lie in: addresses are multiples of four, and the kernel's
        // own addition wraps as this subtraction does.
        let place = |slice| Some((address(slice)?.wrapping_sub(base) as i64 / 4) as u64);
        let layout = Layout::bare(Vec::new());
        let encoder = Encoder { layout: &layout, precision: Precision::F32, place: &place };
        let mut record = op.record(&encoder).map_err(|refused| match refused {
            Refused::TooLarge(n) => self.unusable(n),
            Refused::NoPlace(_) => unknown(&self.name),
            Refused::AllReduce(_) => misfit(&self.name, "a sum over devices"),
        })?;
        self.context.enter()?;
        self.give(op.cost());
        let (kind, shape) = (record.kind(), shape(&record, self.context.gpu.multiprocessors));
        let (mut arena, mut run) = (base, self.run.at);
        let mut arguments = [argument(&mut record), argument(&mut arena), argument(&mut run)];
        let function = self.kernels.get(kind);
        // SAFETY: (Op, float*, Run*); every place lies in a block of this backend, as long as its slice.
        unsafe { launch(&self.context, &self.stream, function, shape, &mut arguments, kind.kernel()) }
    }

    fn synchronize(&mut self) -> Result<(), DeviceError> {
        self.wait("computing").map(drop)
    }
}
