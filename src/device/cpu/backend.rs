//! A backend in the host's memory: the CPU itself, or a virtual GPU, which has a memory of its own and is not to be
//! reached but by copies.
//!
//! Fresh memory is NaN, so that whoever reads what nobody wrote sees it. All work is done when a call returns.

use std::{any::Any, collections::HashMap, mem};

use super::{
    matmul::{Epilogue, Kernel, Lhs, Rhs, Source},
    ops::{activation, reduce},
};
use crate::{
    device::{
        Moved,
        backend::{Backend, BackendError, BackendId, Handle, HostMemory, Linear, Reduction, Staging},
    },
    program::Activation,
};

/// Multiplications below which a product is one thread's: starting others takes some 30 µs each.
const SHARED_PRODUCT: usize = 1 << 24;

/// A place in the host's memory.
#[derive(Debug)]
pub struct HostBackend {
    name: String,
    id: BackendId,
    is_host: bool,
    threads: usize,
    kernel: Kernel,
    /// By number, which is never given twice: what was freed stays unknown.
    blocks: HashMap<u64, Vec<f32>>,
    next: u64,
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
            id: BackendId::unique(),
            is_host,
            threads: threads.max(1),
            kernel: Kernel::detect(),
            blocks: HashMap::new(),
            next: 0,
            packed: Vec::new(),
        }
    }

    fn moved(&self, numbers: usize) -> Moved {
        if self.is_host { Moved::Nothing } else { Moved::Bytes(4 * numbers as u64) }
    }

    fn foreign(&self) -> BackendError {
        BackendError::Foreign { place: self.name.clone() }
    }

    fn freed(&self) -> BackendError {
        BackendError::Freed { place: self.name.clone() }
    }

    fn block(&self, handle: Handle) -> Result<&[f32], BackendError> {
        if handle.place != self.id {
            return Err(self.foreign());
        }
        self.blocks.get(&handle.block).map(Vec::as_slice).ok_or_else(|| self.freed())
    }

    /// A block of exactly so many numbers.
    fn sized(&self, handle: Handle, expected: usize) -> Result<&[f32], BackendError> {
        let block = self.block(handle)?;
        self.check(block.len(), expected)?;
        Ok(block)
    }

    fn check(&self, found: usize, expected: usize) -> Result<(), BackendError> {
        if found == expected {
            return Ok(());
        }
        Err(BackendError::Length { place: self.name.clone(), expected, found })
    }

    /// Takes a result's block out while its operands are read, and puts it back: what is an operand, too, is missing then.
    fn into<R>(
        &mut self,
        out: Handle,
        operands: &[Handle],
        work: impl FnOnce(&mut Self, &mut [f32]) -> Result<R, BackendError>,
    ) -> Result<R, BackendError> {
        self.block(out)?;
        if operands.contains(&out) {
            return Err(BackendError::Overlap { place: self.name.clone() });
        }
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
    ) -> Result<(), BackendError> {
        let mut packed = mem::take(&mut self.packed);
        let kernel = self.kernel;
        let (left, right) = (self.sized(a, m * k)?, self.sized(b, k * n)?);
        let bias = bias.map(|bias| self.sized(bias, n)).transpose()?;
        self.check(out.len(), m * n)?;
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

    fn id(&self) -> BackendId {
        self.id
    }

    fn is_host(&self) -> bool {
        self.is_host
    }

    fn alloc(&mut self, len: usize) -> Result<Handle, BackendError> {
        let mut values = Vec::new();
        let bytes = (len as u64).saturating_mul(4);
        values
            .try_reserve_exact(len)
            .map_err(|_| BackendError::OutOfMemory { place: self.name.clone(), bytes })?;
        values.resize(len, f32::NAN);
        let block = self.next;
        self.next += 1;
        self.blocks.insert(block, values);
        Ok(Handle { place: self.id, block, len })
    }

    fn free(&mut self, memory: Handle) {
        if memory.place == self.id {
            self.blocks.remove(&memory.block);
        }
    }

    fn bytes(&self) -> u64 {
        self.blocks.values().map(|block| 4 * block.len() as u64).sum()
    }

    fn staging(&mut self, memory: HostMemory, len: usize) -> Result<Box<dyn Staging>, BackendError> {
        match memory {
            HostMemory::Pageable => Ok(Box::new(vec![0.0; len])),
            HostMemory::Pinned => Err(BackendError::NoPinned { place: self.name.clone() }),
        }
    }

    fn write(&mut self, to: Handle, from: &[f32]) -> Result<Moved, BackendError> {
        self.into(to, &[], |place, to| {
            place.check(from.len(), to.len())?;
            to.copy_from_slice(from);
            Ok(place.moved(from.len()))
        })
    }

    fn read(&mut self, from: Handle, first: usize, to: &mut [f32]) -> Result<Moved, BackendError> {
        let block = self.block(from)?;
        match block.get(first..first.saturating_add(to.len())) {
            Some(part) => to.copy_from_slice(part),
            None => self.check(block.len(), first.saturating_add(to.len()))?,
        }
        Ok(self.moved(to.len()))
    }

    fn copy(&mut self, to: Handle, from: Handle) -> Result<Moved, BackendError> {
        self.into(to, &[from], |place, to| {
            to.copy_from_slice(place.sized(from, to.len())?);
            Ok(Moved::Bytes(4 * to.len() as u64))
        })
    }

    fn host_values(&self, of: Handle) -> Result<Option<&[f32]>, BackendError> {
        Ok(Some(self.block(of)?).filter(|_| self.is_host))
    }

    fn host_values_mut(&mut self, of: Handle) -> Result<Option<&mut [f32]>, BackendError> {
        self.block(of)?;
        let is_host = self.is_host;
        Ok(self.blocks.get_mut(&of.block).map(Vec::as_mut_slice).filter(|_| is_host))
    }

    fn copy_from(
        &mut self,
        to: Handle,
        peer: &mut dyn Backend,
        from: Handle,
    ) -> Result<Option<Moved>, BackendError> {
        let Some(peer) = peer.as_any().downcast_mut::<Self>() else { return Ok(None) };
        self.into(to, &[], |_, to| {
            to.copy_from_slice(peer.sized(from, to.len())?);
            Ok(Some(Moved::Bytes(4 * to.len() as u64)))
        })
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }

    fn fill(&mut self, to: Handle, value: f32) -> Result<(), BackendError> {
        self.into(to, &[], |_, to| {
            to.fill(value);
            Ok(())
        })
    }

    fn add(&mut self, a: Handle, b: Handle, out: Handle) -> Result<(), BackendError> {
        self.into(out, &[a, b], |place, out| {
            let (a, b) = (place.sized(a, out.len())?, place.sized(b, out.len())?);
            out.iter_mut().zip(a.iter().zip(b)).for_each(|(out, (a, b))| *out = a + b);
            Ok(())
        })
    }

    fn product(&mut self, a: Handle, b: Handle, out: Handle, mkn: [usize; 3]) -> Result<(), BackendError> {
        self.into(out, &[a, b], |place, out| place.multiply(a, (b, false), mkn, out, None))
    }

    fn linear(&mut self, linear: Linear) -> Result<(), BackendError> {
        let Linear { x, weight, bias, y, shape } = linear;
        let operands: Vec<Handle> = [x, weight].into_iter().chain(bias).collect();
        self.into(y, &operands, |place, y| place.multiply(x, (weight, true), shape, y, bias))
    }

    fn activate(&mut self, activation: Activation, x: Handle, y: Handle) -> Result<(), BackendError> {
        self.into(y, &[x], |place, y| {
            activation::activate(activation, place.sized(x, y.len())?, y);
            Ok(())
        })
    }

    fn reduce(
        &mut self,
        reduction: Reduction,
        of: Handle,
        to: Handle,
        at: usize,
    ) -> Result<(), BackendError> {
        self.into(to, &[of], |place, to| {
            let values = place.block(of)?;
            let value = match reduction {
                Reduction::Frobenius => reduce::sum_of_squares(values).sqrt(),
                Reduction::Trace => reduce::sum_of_squares(values),
                Reduction::Sum => reduce::sum(values),
            };
            let (found, expected) = (to.len(), at.saturating_add(1));
            let cell = to.get_mut(at);
            *cell.ok_or_else(|| BackendError::Length { place: place.name.clone(), expected, found })? =
                value as f32;
            Ok(())
        })
    }

    fn synchronize(&mut self) -> Result<(), BackendError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(place: &mut HostBackend, handle: Handle) -> Vec<f32> {
        let mut values = vec![0.0; handle.len];
        place.read(handle, 0, &mut values).expect("own memory");
        values
    }

    fn with(place: &mut HostBackend, values: &[f32]) -> Handle {
        let handle = place.alloc(values.len()).expect("room");
        place.write(handle, values).expect("own memory");
        handle
    }

    fn words<T: std::fmt::Debug>(result: Result<T, BackendError>) -> String {
        result.expect_err("a refusal").to_string()
    }

    #[test]
    fn fresh_memory_is_nan_and_the_hosts_own_is_never_moved() {
        let (mut cpu, mut gpu) = (HostBackend::cpu(1), HostBackend::virtual_gpu(1));
        let fresh = gpu.alloc(3).expect("room");
        assert!(numbers(&mut gpu, fresh).iter().all(|v| v.is_nan()));
        assert_eq!((gpu.name(), gpu.bytes(), gpu.is_host()), ("virtual:1", 12, false));
        assert_eq!(gpu.write(fresh, &[1.0; 3]).expect("own"), Moved::Bytes(12));
        let own = cpu.alloc(3).expect("room");
        assert_eq!(cpu.write(own, &[1.0; 3]).expect("own"), Moved::Nothing);
        assert_eq!(cpu.copy_from(own, &mut gpu, fresh).expect("own"), Some(Moved::Bytes(12)));
    }

    #[test]
    fn foreign_freed_and_misfit_memory_is_refused() {
        let (mut a, mut b) = (HostBackend::virtual_gpu(0), HostBackend::virtual_gpu(0));
        let (x, y) = (with(&mut a, &[1.0, 2.0]), with(&mut b, &[1.0, 2.0]));
        let out = a.alloc(2).expect("room");
        assert_eq!(words(a.add(x, y, out)), "memory of another device was handed to `virtual:0`");
        assert_eq!(words(a.add(x, x, x)), "the result of an operation on `virtual:0` is one of its operands");
        let short = with(&mut a, &[1.0]);
        assert_eq!(words(a.add(x, short, out)), "`virtual:0` was handed 1 numbers where 2 are needed");
        assert_eq!(words(a.read(x, 1, &mut [0.0; 2])), "`virtual:0` was handed 2 numbers where 3 are needed");
        assert_eq!(
            words(a.reduce(Reduction::Sum, x, out, 2)),
            "`virtual:0` was handed 2 numbers where 3 are needed"
        );
        a.free(x);
        with(&mut a, &[3.0, 4.0]);
        assert_eq!(words(a.fill(x, 0.0)), "memory of `virtual:0` was used after it was freed");
        let huge = usize::MAX / 8;
        assert_eq!(
            words(a.alloc(huge)),
            format!("`virtual:0` has no room for {}", crate::units::bytes(huge as u64 * 4))
        );
        let pinned = a.staging(HostMemory::Pinned, 1).err().map(|e| e.to_string());
        assert_eq!(pinned.as_deref(), Some("pinned memory needs a GPU's driver, and `virtual:0` has none"));
        // What was refused has lost nothing.
        a.add(out, out, short).expect_err("lengths differ");
        assert_eq!(numbers(&mut a, short), [1.0]);
    }

    #[test]
    fn operations_agree_with_double_precision() {
        let mut place = HostBackend::cpu(2);
        let (m, k, n) = (260, 257, 258); // large enough to be shared by threads
        let at = |i: usize| ((i * 37 % 101) as f32 - 50.0) / 50.0;
        let (a, b): (Vec<f32>, Vec<f32>) = ((0..m * k).map(at).collect(), (0..k * n).map(at).collect());
        let (x, w) = (with(&mut place, &a), with(&mut place, &b));
        let bias = with(&mut place, &vec![0.5; n]);
        let (y, z, cell) = (place.alloc(m * n), place.alloc(m * n), place.alloc(3));
        let (y, z, cell) = (y.expect("room"), z.expect("room"), cell.expect("room"));
        assert!(m * k * n > SHARED_PRODUCT);
        place.product(x, w, y, [m, k, n]).expect("a product");
        let turned: Vec<f32> = (0..n * k).map(|i| b[i % k * n + i / k]).collect();
        let weight = with(&mut place, &turned);
        place.linear(Linear { x, weight, bias: Some(bias), y: z, shape: [m, k, n] }).expect("a layer");
        let (product, layer) = (numbers(&mut place, y), numbers(&mut place, z));
        let mut squares = 0.0;
        for i in 0..m {
            for j in 0..n {
                let terms = (0..k).map(|t| f64::from(a[i * k + t]) * f64::from(b[t * n + j]));
                let exact: f64 = terms.sum();
                squares += exact * exact;
                assert!((f64::from(product[i * n + j]) - exact).abs() < 1e-4);
                assert!((f64::from(layer[i * n + j]) - exact - 0.5).abs() < 1e-4);
            }
        }
        place.reduce(Reduction::Frobenius, y, cell, 0).expect("a norm");
        place.reduce(Reduction::Trace, y, cell, 1).expect("a trace");
        place.reduce(Reduction::Sum, bias, cell, 2).expect("a sum");
        let cells = numbers(&mut place, cell);
        for (got, want) in cells.iter().zip([squares.sqrt(), squares, n as f64 / 2.0]) {
            assert!((f64::from(*got) / want - 1.0).abs() < 1e-5, "{got} {want}");
        }
        place.activate(Activation::Relu, y, z).expect("an activation");
        assert!(numbers(&mut place, z).iter().zip(&product).all(|(z, y)| *z == y.max(0.0)));
    }
}
