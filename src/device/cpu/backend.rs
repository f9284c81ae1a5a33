//! A backend in the host's memory: the CPU itself, or a virtual GPU, which has a memory of its own and is not to be
//! reached but by copies.
//!
//! Fresh memory is NaN, so that whoever reads what nobody wrote sees it. All work is done when a call returns.

use std::{any::Any, collections::HashMap, mem};

use crate::{
    device::{
        DeviceError, Moved,
        backend::{Backend, Handle, Linear, Reduction, Staging, check_overlap, misfit, unknown},
    },
    op::{Activation, activate, sum, sum_of_squares},
    spec::lab::Memory,
    vector::matmul::{Epilogue, Kernel, Lhs, Rhs, Source},
};

/// Multiplications below which a product is one thread's: starting others takes some 30 µs each.
const SHARED_PRODUCT: usize = 1 << 24;

/// A place in the host's memory.
#[derive(Debug)]
pub struct HostBackend {
    name: String,
    is_host: bool,
    threads: usize,
    kernel: Kernel,
    blocks: HashMap<u64, Vec<f32>>,
    /// The right operand of a product as the kernel wants it.
    packed: Vec<f32>,
}

impl HostBackend {
    /// The CPU; large products are shared by `threads` threads.
    pub fn cpu(threads: usize) -> Self {
        Self::new("cpu".to_owned(), true, threads)
    }

    /// A virtual GPU: a memory of its own, one thread.
    pub fn virtual_gpu(ordinal: u32) -> Self {
        Self::new(format!("virtual:{ordinal}"), false, 1)
    }

    fn new(name: String, is_host: bool, threads: usize) -> Self {
        Self {
            name,
            is_host,
            threads: threads.max(1),
            kernel: Kernel::detect(),
            blocks: HashMap::new(),
            packed: Vec::new(),
        }
    }

    fn moved(&self, numbers: usize) -> Moved {
        if self.is_host { Moved::Nothing } else { Moved::Bytes(4 * numbers as u64) }
    }

    fn block(&self, handle: Handle) -> Result<&[f32], DeviceError> {
        self.blocks.get(&handle.block).map(Vec::as_slice).ok_or_else(|| unknown(&self.name))
    }

    /// A block of exactly so many numbers.
    fn sized(&self, handle: Handle, expected: usize) -> Result<&[f32], DeviceError> {
        handle.check(&self.name, expected)?;
        self.block(handle)
    }

    /// Takes a result's block out while its operands are read, and puts it back: what is an operand, too, is missing then.
    fn into<R>(
        &mut self,
        out: Handle,
        operands: &[Handle],
        work: impl FnOnce(&mut Self, &mut [f32]) -> Result<R, DeviceError>,
    ) -> Result<R, DeviceError> {
        self.block(out)?;
        check_overlap(&self.name, out, operands)?;
        let mut block = self.blocks.get_mut(&out.block).map(mem::take).unwrap_or_default();
        let result = work(self, &mut block);
        self.blocks.insert(out.block, block);
        result
    }

    /// `out[m, n] = a[m, k] b[k, n] + bias`, or with bᵀ for b; the rows are shared by threads where that pays. The bits
    /// do not depend on it.
    fn multiply(
        &mut self,
        a: Handle,
        (b, is_transposed): (Handle, bool),
        [m, k, n]: [usize; 3],
        out: &mut [f32],
        bias: Option<Handle>,
    ) -> Result<(), DeviceError> {
        let mut packed = mem::take(&mut self.packed);
        let kernel = self.kernel;
        let (left, right) = (self.sized(a, m * k)?, self.sized(b, k * n)?);
        let bias = bias.map(|bias| self.sized(bias, n)).transpose()?;
        let epilogue = match bias {
            Some(_) => Epilogue::Bias { bias, relu: false },
            None => Epilogue::Store,
        };
        let rhs = if is_transposed || kernel.worth_packing(m, n) {
            let source = if is_transposed { Source::Transposed(right) } else { Source::Rows(right) };
            packed.resize(kernel.packed_len(k, n), 0.0);
            kernel.pack(source, [k, n], 0..kernel.units(k, n), &mut packed);
            Rhs::Packed(&packed)
        } else {
            Rhs::Rows(right)
        };
        let threads = if m * k * n < SHARED_PRODUCT { 1 } else { self.threads.min(m) };
        let share = |first: usize, rows: usize, out: &mut [f32]| {
            let lhs = Lhs::Rows { data: left.get(first * k..).unwrap_or_default(), stride: k };
            kernel.multiply(lhs, rhs, [rows, k, n], out, epilogue);
        };
        if threads <= 1 {
            share(0, m, out);
        } else {
            let rows = m.div_ceil(threads);
            std::thread::scope(|scope| {
                for (i, out) in out.chunks_mut((rows * n).max(1)).enumerate() {
                    let share = &share;
                    scope.spawn(move || share(i * rows, out.len() / n, out));
                }
            });
        }
        self.packed = packed;
        Ok(())
    }
}

impl Backend for HostBackend {
    fn name(&self) -> &str {
        &self.name
    }

    fn is_host(&self) -> bool {
        self.is_host
    }

    fn alloc(&mut self, len: usize) -> Result<Handle, DeviceError> {
        let mut values = Vec::new();
        let bytes = (len as u64).saturating_mul(4);
        values
            .try_reserve_exact(len)
            .map_err(|_| DeviceError::OutOfMemory { device: self.name.clone(), bytes })?;
        values.resize(len, f32::NAN);
        let handle = Handle::unique(len);
        self.blocks.insert(handle.block, values);
        Ok(handle)
    }

    fn free(&mut self, memory: Handle) {
        self.blocks.remove(&memory.block);
    }

    fn bytes(&self) -> u64 {
        self.blocks.values().map(|block| 4 * block.len() as u64).sum()
    }

    fn staging(&mut self, memory: Memory, len: usize) -> Result<Box<dyn Staging>, DeviceError> {
        match memory {
            Memory::Pageable => Ok(Box::new(vec![0.0; len])),
            Memory::Pinned => {
                let why = "pinned memory needs a GPU's driver".to_owned();
                Err(DeviceError::Unusable { device: self.name.clone(), why })
            }
        }
    }

    fn write(&mut self, to: Handle, from: &[f32]) -> Result<Moved, DeviceError> {
        to.check(&self.name, from.len())?;
        self.into(to, &[], |place, to| {
            to.copy_from_slice(from);
            Ok(place.moved(from.len()))
        })
    }

    fn read(&mut self, from: Handle, first: usize, to: &mut [f32]) -> Result<Moved, DeviceError> {
        let needed = first.saturating_add(to.len());
        let part = self.block(from)?.get(first..needed);
        let missing = || misfit(&self.name, format!("{} numbers where {needed} are needed", from.len));
        to.copy_from_slice(part.ok_or_else(missing)?);
        Ok(self.moved(to.len()))
    }

    fn copy(&mut self, to: Handle, from: Handle) -> Result<Moved, DeviceError> {
        self.into(to, &[from], |place, to| {
            to.copy_from_slice(place.sized(from, to.len())?);
            Ok(Moved::Bytes(4 * to.len() as u64))
        })
    }

    fn host_values(&self, of: Handle) -> Result<Option<&[f32]>, DeviceError> {
        Ok(Some(self.block(of)?).filter(|_| self.is_host))
    }

    fn host_values_mut(&mut self, of: Handle) -> Result<Option<&mut [f32]>, DeviceError> {
        self.block(of)?;
        let is_host = self.is_host;
        Ok(self.blocks.get_mut(&of.block).map(Vec::as_mut_slice).filter(|_| is_host))
    }

    fn copy_from(
        &mut self,
        to: Handle,
        peer: &mut dyn Backend,
        from: Handle,
    ) -> Result<Option<Moved>, DeviceError> {
        let Some(peer) = peer.as_any().downcast_mut::<Self>() else { return Ok(None) };
        self.into(to, &[], |_, to| {
            to.copy_from_slice(peer.sized(from, to.len())?);
            Ok(Some(Moved::Bytes(4 * to.len() as u64)))
        })
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }

    fn fill(&mut self, to: Handle, value: f32) -> Result<(), DeviceError> {
        self.into(to, &[], |_, to| {
            to.fill(value);
            Ok(())
        })
    }

    fn add(&mut self, a: Handle, b: Handle, out: Handle) -> Result<(), DeviceError> {
        self.into(out, &[a, b], |place, out| {
            let (a, b) = (place.sized(a, out.len())?, place.sized(b, out.len())?);
            out.iter_mut().zip(a.iter().zip(b)).for_each(|(out, (a, b))| *out = a + b);
            Ok(())
        })
    }

    fn product(&mut self, a: Handle, b: Handle, out: Handle, mkn: [usize; 3]) -> Result<(), DeviceError> {
        out.check(&self.name, mkn[0] * mkn[2])?;
        self.into(out, &[a, b], |place, out| place.multiply(a, (b, false), mkn, out, None))
    }

    fn linear(&mut self, linear: Linear) -> Result<(), DeviceError> {
        let Linear { x, weight, bias, y, shape } = linear;
        y.check(&self.name, shape[0] * shape[2])?;
        let operands: Vec<Handle> = [x, weight].into_iter().chain(bias).collect();
        self.into(y, &operands, |place, y| place.multiply(x, (weight, true), shape, y, bias))
    }

    fn activate(&mut self, activation: Activation, x: Handle, y: Handle) -> Result<(), DeviceError> {
        self.into(y, &[x], |place, y| {
            activate(activation, place.sized(x, y.len())?, y);
            Ok(())
        })
    }

    fn reduce(&mut self, reduction: Reduction, of: Handle, to: Handle, at: usize) -> Result<(), DeviceError> {
        self.into(to, &[of], |place, to| {
            let values = place.block(of)?;
            let value = match reduction {
                Reduction::Frobenius => sum_of_squares(values).sqrt(),
                Reduction::Trace => sum_of_squares(values),
                Reduction::Sum => sum(values),
            };
            let found = to.len();
            let missing = || misfit(&place.name, format!("{found} numbers where {} are needed", at + 1));
            *to.get_mut(at).ok_or_else(missing)? = value as f32;
            Ok(())
        })
    }

    fn synchronize(&mut self) -> Result<(), DeviceError> {
        Ok(())
    }
}

#[cfg(test)]
#[path = "backend_tests.rs"]
mod tests;
