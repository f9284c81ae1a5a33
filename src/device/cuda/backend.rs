//! A GPU as a backend: tensors live in its memory, and our kernels compute with them, in order on one stream.

use std::{any::Any, cell::Cell, collections::HashMap, ffi::c_void, fmt, sync::Arc, time::Duration};

use super::{
    ffi::{Context, Gpu},
    launch::{HangTimeout, Kernels, Stream, argument, launch, shape},
    memory::{DeviceMemory, Pinned},
};
use crate::{
    device::{
        DeviceError, Moved,
        backend::{Backend, Handle, Linear, Reduction, Staging, check_overlap, unknown},
    },
    op::{Activation, Cost, Kind, MOST_COUNTED, NONE, PARTIALS, Record, Size, counted},
    spec::lab::Memory,
};

pub struct CudaBackend {
    name: String,
    // What uses the context goes before it.
    blocks: HashMap<u64, DeviceMemory>,
    partial: DeviceMemory,
    stream: Stream,
    kernels: Kernels,
    context: Arc<Context>,
    /// What was given to it since the last wait takes so many seconds on the slowest of GPUs.
    given_s: Cell<f64>,
}

impl fmt::Debug for CudaBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaBackend").field("name", &self.name).field("blocks", &self.blocks.len()).finish()
    }
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
        let (name, given_s) = (context.name.clone(), Cell::new(0.0));
        Ok(Self { name, blocks: HashMap::new(), partial, stream, kernels, context, given_s })
    }

    /// The address of a block of its own.
    fn address(&self, handle: Handle) -> Result<u64, DeviceError> {
        self.blocks.get(&handle.block).map(|memory| memory.at).ok_or_else(|| unknown(&self.name))
    }

    /// The address of a block of exactly so many numbers.
    fn sized(&self, handle: Handle, expected: usize) -> Result<u64, DeviceError> {
        handle.check(&self.name, expected)?;
        self.address(handle)
    }

    /// The address of a result that is none of its operands.
    fn result(&self, out: Handle, operands: &[Handle], expected: usize) -> Result<u64, DeviceError> {
        let at = self.sized(out, expected)?;
        check_overlap(&self.name, out, operands)?;
        Ok(at)
    }

    /// Takes note of what is given to it.
    fn give(&self, flops: f64, elements: usize) {
        let cost = Cost { flops, bytes: 12.0 * elements as f64 };
        self.given_s.set(self.given_s.get() + HangTimeout::slowest_s(cost, 1));
    }

    fn int(&self, n: usize) -> Result<i32, DeviceError> {
        counted(n).ok_or_else(|| DeviceError::Unusable {
            device: self.name.clone(),
            why: format!("its kernels count to {MOST_COUNTED}, and there are {n} numbers"),
        })
    }

    /// Queues a kernel of whole tensors, over so many numbers.
    ///
    /// # Safety
    /// As for [`launch`].
    unsafe fn queue(
        &self,
        name: &'static str,
        elements: usize,
        arguments: &mut [*mut c_void],
    ) -> Result<(), DeviceError> {
        self.context.enter()?;
        let function = self.kernels.function(name)?;
        let most = 4 * self.context.gpu.multiprocessors.max(1) as usize;
        let shape = Size::new(elements.div_ceil(256) as u64, most.min(PARTIALS) as u32).into();
        self.give(0.0, elements);
        // SAFETY: the caller's.
        unsafe { launch(&self.context, &self.stream, function, shape, arguments, name) }
    }

    /// Queues an instruction's kernel; its places are offsets from `base`, whichever block they lie in.
    fn instruction(&self, mut op: Record, base: u64, places: &[u64]) -> Result<(), DeviceError> {
        for (at, place) in op.at.iter_mut().zip(places) {
            // Addresses are multiples of four, and the kernel's own addition wraps as this subtraction does.
            *at = if *place == NONE { NONE } else { (place.wrapping_sub(base) as i64 / 4) as u64 };
        }
        self.context.enter()?;
        let shape = shape(&op, self.context.gpu.multiprocessors);
        self.give(2.0 * f64::from(op.rows) * f64::from(op.inputs) * f64::from(op.outputs), elements(&op));
        let (mut arena, mut run) = (base, 0u64);
        let mut arguments = [argument(&mut op), argument(&mut arena), argument(&mut run)];
        let kind = op.kind();
        let function = self.kernels.get(kind);
        // SAFETY: (Op, float*, Run*); places lie in blocks of this backend, whose lengths the caller has checked, and
        // the kernels of these kinds do not read the run.
        unsafe { launch(&self.context, &self.stream, function, shape, &mut arguments, kind.kernel()) }
    }

    fn wait(&self, doing: &str) -> Result<Duration, DeviceError> {
        let given_s = self.given_s.replace(0.0);
        self.context.enter()?;
        self.context.finish(&self.stream, given_s, doing)
    }
}

impl CudaBackend {
    /// Waits for what was given to it, where that was anything since the last wait: a copy to or from pageable memory would
    /// do so within the driver, which cannot be left.
    fn wait_for_work(&self, doing: &str) -> Result<Duration, DeviceError> {
        if self.given_s.get() > 0.0 {
            return self.wait(doing);
        }
        self.context.enter().map(|()| Duration::ZERO)
    }
}

/// Numbers that an instruction's kernel touches.
fn elements(op: &Record) -> usize {
    let sizes = [(op.rows, op.inputs), (op.rows, op.outputs), (op.inputs, op.outputs), (op.n, 1)];
    sizes.iter().map(|(a, b)| usize::try_from(i64::from(*a) * i64::from(*b)).unwrap_or(0)).sum()
}

struct PinnedNumbers {
    memory: Pinned,
    len: usize,
}

impl Staging for PinnedNumbers {
    fn values(&self) -> &[f32] {
        // SAFETY: so many numbers were allocated, aligned to a page and zeroed; copies from and to it are waited for
        // before the backend returns.
        unsafe { std::slice::from_raw_parts(self.memory.at() as *const f32, self.len) }
    }

    fn values_mut(&mut self) -> &mut [f32] {
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

    fn alloc(&mut self, len: usize) -> Result<Handle, DeviceError> {
        let bytes = len.saturating_mul(4);
        let made = self.context.enter().and_then(|()| DeviceMemory::new(&self.context, bytes, "a tensor"));
        let memory = made.map_err(|e| match e {
            DeviceError::Cuda { ref name, .. } if name == "CUDA_ERROR_OUT_OF_MEMORY" => {
                DeviceError::OutOfMemory { device: self.name.clone(), bytes: bytes as u64 }
            }
            e => e,
        })?;
        // All bits set are a NaN.
        self.stream.fill(memory.at, 0xff, bytes)?;
        self.give(0.0, len);
        let handle = Handle::unique(len);
        self.blocks.insert(handle.block, memory);
        Ok(handle)
    }

    fn free(&mut self, memory: Handle) {
        // The driver itself waits for kernels that use it.
        self.blocks.remove(&memory.block);
    }

    fn bytes(&self) -> u64 {
        self.blocks.values().map(|memory| memory.bytes as u64).sum()
    }

    fn staging(&mut self, memory: Memory, len: usize) -> Result<Box<dyn Staging>, DeviceError> {
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

    fn read(&mut self, from: Handle, first: usize, to: &mut [f32]) -> Result<Moved, DeviceError> {
        let at = self.address(from)?;
        if first.saturating_add(to.len()) > from.len {
            from.check(&self.name, first.saturating_add(to.len()))?;
        }
        let before = self.wait_for_work("computing what is copied from it")?;
        let bytes = size_of_val(to) as u64;
        // SAFETY: the next statement waits for the stream; should that fail, the device writes no more.
        unsafe { self.stream.download_into(to, at + 4 * first as u64)? };
        let wait = before + self.wait("copying from it")?;
        Ok(Moved::AfterWait { bytes, wait })
    }

    fn copy(&mut self, to: Handle, from: Handle) -> Result<Moved, DeviceError> {
        let (mut source, mut count) = (self.sized(from, to.len)?, to.len as u64);
        let mut target = self.result(to, &[from], to.len)?;
        let mut arguments = [argument(&mut source), argument(&mut target), argument(&mut count)];
        // SAFETY: (const float*, float*, u64), both blocks of that length.
        unsafe { self.queue("tensor_copy", to.len, &mut arguments)? };
        Ok(Moved::Bytes(4 * count))
    }

    fn copy_from(
        &mut self,
        to: Handle,
        peer: &mut dyn Backend,
        from: Handle,
    ) -> Result<Option<Moved>, DeviceError> {
        let Some(peer) = peer.as_any().downcast_mut::<Self>() else { return Ok(None) };
        let (target, source) = (self.sized(to, from.len)?, peer.sized(from, to.len)?);
        // Its own stream may still write what is to be copied; and it may be freed or written once this returns.
        let before = peer.wait("computing what is copied from it")?;
        let bytes = 4 * to.len;
        self.context.enter()?;
        self.stream.copy_between(target, &self.context, source, &peer.context, bytes)?;
        let wait = before + self.wait("copying from another GPU")?;
        Ok(Some(Moved::AfterWait { bytes: bytes as u64, wait }))
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }

    fn fill(&mut self, to: Handle, value: f32) -> Result<(), DeviceError> {
        let (mut at, mut count, mut value) = (self.address(to)?, to.len as u64, value);
        let mut arguments = [argument(&mut at), argument(&mut count), argument(&mut value)];
        // SAFETY: (float*, u64, float), a block of that length.
        unsafe { self.queue("tensor_fill", to.len, &mut arguments) }
    }

    fn add(&mut self, a: Handle, b: Handle, out: Handle) -> Result<(), DeviceError> {
        let (mut left, mut right) = (self.sized(a, out.len)?, self.sized(b, out.len)?);
        let (mut to, mut count) = (self.result(out, &[a, b], out.len)?, out.len as u64);
        let mut arguments =
            [argument(&mut left), argument(&mut right), argument(&mut to), argument(&mut count)];
        // SAFETY: (const float*, const float*, float*, u64), blocks of that length.
        unsafe { self.queue("tensor_add", out.len, &mut arguments) }
    }

    fn product(&mut self, a: Handle, b: Handle, out: Handle, mkn: [usize; 3]) -> Result<(), DeviceError> {
        let [m, k, n] = mkn;
        let (left, right) = (self.sized(a, m * k)?, self.sized(b, k * n)?);
        let to = self.result(out, &[a, b], m * n)?;
        let (rows, inputs, outputs) = (self.int(m)?, self.int(k)?, self.int(n)?);
        let op = Record { rows, inputs, outputs, ..Record::new(Kind::Linear) };
        self.instruction(op, left, &[left, right, NONE, NONE, to])
    }

    fn linear(&mut self, linear: Linear) -> Result<(), DeviceError> {
        let Linear { x, weight, bias, y, shape: [rows, inputs, outputs] } = linear;
        let (from, by) = (self.sized(x, rows * inputs)?, self.sized(weight, outputs * inputs)?);
        let to = self.result(y, &[x, weight], rows * outputs)?;
        // dx = dy Wᵀ has the same shape of operands: what comes in is its dy, the weight lies as [outputs, inputs].
        let op = Record {
            rows: self.int(rows)?,
            inputs: self.int(outputs)?,
            outputs: self.int(inputs)?,
            ..Record::new(Kind::InputGradient)
        };
        self.instruction(op, from, &[from, by, to, NONE])?;
        let Some(bias) = bias else { return Ok(()) };
        let (mut to, mut bias) = (to, self.sized(bias, outputs)?);
        let (mut count, mut width) = ((rows * outputs) as u64, outputs as u64);
        let mut arguments =
            [argument(&mut to), argument(&mut bias), argument(&mut count), argument(&mut width)];
        // SAFETY: (float*, const float*, u64, u64), blocks of these lengths.
        unsafe { self.queue("tensor_add_rows", rows * outputs, &mut arguments) }
    }

    fn activate(&mut self, activation: Activation, x: Handle, y: Handle) -> Result<(), DeviceError> {
        let (from, to) = (self.sized(x, y.len)?, self.result(y, &[x], y.len)?);
        let op = Record {
            activation: Activation::number(Some(activation)),
            n: self.int(y.len)?,
            ..Record::new(Kind::Activate)
        };
        self.instruction(op, from, &[from, to])
    }

    fn reduce(&mut self, reduction: Reduction, of: Handle, to: Handle, at: usize) -> Result<(), DeviceError> {
        let (mut from, mut count) = (self.address(of)?, of.len as u64);
        let out = self.address(to)?;
        if at >= to.len {
            to.check(&self.name, at + 1)?;
        }
        check_overlap(&self.name, to, &[of])?;
        let (mut out, mut partial) = (out + 4 * at as u64, self.partial.at);
        let mut mode = match reduction {
            Reduction::Trace => 0i32,
            Reduction::Frobenius => 1,
            Reduction::Sum => 2,
        };
        let mut arguments = [
            argument(&mut from),
            argument(&mut count),
            argument(&mut mode),
            argument(&mut partial),
            argument(&mut out),
        ];
        // SAFETY: (const float*, u64, int, double*, float*); the blocks have these lengths.
        unsafe { self.queue("tensor_reduce", of.len.div_ceil(16), &mut arguments) }
    }

    fn synchronize(&mut self) -> Result<(), DeviceError> {
        self.wait("computing").map(drop)
    }
}
