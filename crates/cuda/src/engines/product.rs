//! Large matrix products by cuBLASLt: planned once, with the epilogue fused where the library can.
//!
//! This project's matrices are row-major and the library's column-major, so it computes C' = B' A', where a
//! prime means the same memory read by columns. A bias uses the library's epilogue. Activations use a kernel
//! of this project, because the library has no tanh and no sigmoid, its GELU is the tanh approximation, its
//! backward epilogues need masks in a format of their own, and its ReLU turns NaN into 0 (NVIDIA's forum,
//! t/329783, "Incorrect result of cublasLtMatmul with CUBLASLT_EPILOGUE_RELU when input is NaN"). PyTorch,
//! the CPU and our kernels keep NaN, so that a diverged run is noticed.

use std::{collections::HashMap, iter, sync::Arc};

use super::{
    copies::Conversion,
    gpu_context::GpuContext,
    matmul::{Addresses, Algorithm, Key, Library, Matmul, failed, is_refused, number},
    tuning::{Choice, Tuner},
};
use crate::{
    device::DeviceError,
    launch::{Shape, is_large_product, shape},
    op::{FLAG_BF16, FLAG_TF32, Kind, NONE, Record},
};

/// The library, opened when the first product needs it, and the algorithms chosen so far.
#[derive(Default)]
pub struct Products {
    /// `None`: not tried yet; `Some(None)`: not available.
    library: Option<Option<Arc<Library>>>,
    tuner: Option<Tuner>,
    pub copies: Option<u64>,
    found: HashMap<Key, Option<Choice>>,
}

impl Products {
    /// `copies`: where bfloat16 copies of operands begin in the arena, if there are any.
    pub fn new(copies: Option<u64>) -> Self {
        Self { copies, ..Self::default() }
    }

    pub fn bytes(&self) -> usize {
        self.library.iter().flatten().map(|library| library.workspace.bytes).sum()
    }

    pub fn any(&self) -> bool {
        self.found.values().any(Option::is_some)
    }

    /// What was gained by other algorithms than the library's first suggestions, in words.
    pub fn gains(&self) -> Option<String> {
        let all = || self.found.iter().filter_map(|(key, choice)| Some((key, (*choice)?.gain)));
        let gained = || all().filter(|(_, gain)| *gain > 1.0);
        let (Key { m, n, k, .. }, most) = gained().max_by(|a, b| a.1.total_cmp(&b.1))?;
        Some(format!(
            "{} of {} shapes of large products use another algorithm than cuBLASLt's first suggestion, which gives the \
             same bits: at most {most:.2} times as fast ({n} x {k} x {m})",
            gained().count(),
            all().count()
        ))
    }

    /// Plans an instruction and runs it once on the memory at its offsets. The first call of a product loads
    /// code and may allocate, which must not happen during a capture or a timed step. `halves` are the places
    /// of bfloat16 copies of its operands. Returns `None` if a kernel of this project should do the product.
    ///
    /// The library may refuse at the call what it suggested: the next suggestion follows, then f32 operands.
    pub fn plan(
        &mut self,
        op: &Record,
        gpu: &GpuContext,
        halves: Option<[u64; 2]>,
    ) -> Result<Option<Product>, DeviceError> {
        if !is_large_product(op) {
            return Ok(None);
        }
        let Some(form) = Form::new(op, gpu.context.gpu.multiprocessors) else { return Ok(None) };
        let library = match &self.library {
            Some(library) => library,
            None => self.library.insert(Library::open(&gpu.context)?.map(Arc::new)),
        };
        let Some(library) = library.clone() else { return Ok(None) };
        // Where the library multiplies no copies, it rounds the operands itself.
        for halves in halves.filter(|_| op.flags & FLAG_BF16 != 0).map(Some).into_iter().chain([None]) {
            let Some(matmul) = form.matmul(gpu, &library, op.flags, halves) else { continue };
            if let Some(algorithm) = self.tried(gpu, &library, &matmul)? {
                return Ok(Some(Product { before: Vec::new(), matmul, algorithm, follow: form.follow }));
            }
        }
        Ok(None)
    }

    /// The algorithm for a product, which has run once; `None` if the library refuses all that it suggests.
    fn tried(
        &mut self,
        gpu: &GpuContext,
        library: &Library,
        matmul: &Matmul,
    ) -> Result<Option<Algorithm>, DeviceError> {
        let Some(chosen) = self.choice(gpu, library, matmul)? else {
            self.found.insert(matmul.key, None);
            return Ok(None);
        };
        let others = iter::once_with(|| matmul.suggestions()).flatten();
        let others = others.filter(|other| *other != chosen.algorithm).map(Choice::untimed);
        for choice in iter::once(chosen).chain(others) {
            match matmul.queue(&choice.algorithm, &gpu.stream) {
                Ok(()) => {
                    self.found.insert(matmul.key, Some(choice));
                    return Ok(Some(choice.algorithm));
                }
                Err(status) if is_refused(status) => {}
                Err(status) => return Err(failed(&gpu.context, status)),
            }
        }
        self.found.insert(matmul.key, None);
        Ok(None)
    }

    fn choice(
        &mut self,
        gpu: &GpuContext,
        library: &Library,
        matmul: &Matmul,
    ) -> Result<Option<Choice>, DeviceError> {
        if let Some(known) = self.found.get(&matmul.key) {
            return Ok(*known);
        }
        let tuner = match &mut self.tuner {
            Some(tuner) => tuner,
            None => self.tuner.insert(Tuner::new(gpu)?),
        };
        tuner.choose(gpu, library, matmul)
    }
}

/// A product as the library sees it, with the offsets of its matrices.
struct Form {
    key: Key,
    left: u64,
    right: u64,
    to: u64,
    bias: Option<u64>,
    follow: Option<(Record, Shape)>,
}

impl Form {
    /// The product of the operands, or of their bfloat16 copies at `halves`: `None` if the library cannot
    /// describe it.
    fn matmul(
        &self,
        gpu: &GpuContext,
        library: &Arc<Library>,
        flags: i32,
        halves: Option<[u64; 2]>,
    ) -> Option<Matmul> {
        let (operands, compute) = match flags & (FLAG_TF32 | FLAG_BF16) {
            _ if halves.is_some() => (number::R_16BF, number::COMPUTE_32F),
            0 => (number::R_32F, number::COMPUTE_32F),
            FLAG_TF32 => (number::R_32F, number::COMPUTE_32F_FAST_TF32),
            _ => (number::R_32F, number::COMPUTE_32F_FAST_16BF),
        };
        let at = |place: u64| gpu.arena.at + 4 * place;
        // The library's left operand is the second that this project's op reads.
        let [right, left] = halves.unwrap_or([self.right, self.left]).map(at);
        let at = Addresses { left, right, bias: self.bias.map(at), to: at(self.to) };
        Matmul::new(library, Key { operands, compute, ..self.key }, at)
    }

    fn new(op: &Record, multiprocessors: u32) -> Option<Self> {
        let size = |n: i32| u64::try_from(n).unwrap_or(0);
        let (rows, inputs, outputs) = (size(op.rows), size(op.inputs), size(op.outputs));
        let follow = |kind: Kind, at: [u64; 2], n: i32| {
            let mut next = Record { activation: op.activation, n, ..Record::new(kind) };
            next.at[..2].copy_from_slice(&at);
            (next, shape(&next, multiprocessors))
        };
        let plain = |m, n, k, transposed, left, right, to| {
            let (operands, compute) = (number::R_32F, number::COMPUTE_32F);
            let epilogue = number::EPILOGUE_DEFAULT;
            let key = Key { m, n, k, transposed, operands, compute, epilogue };
            Self { key, left, right, to, bias: None, follow: None }
        };
        match op.kind() {
            Kind::Linear => {
                let [x, weight, bias, pre, y, ..] = op.at;
                let to = if pre == NONE { y } else { pre };
                let mut form = plain(outputs, rows, inputs, [false, false], weight, x, to);
                form.bias = Some(bias).filter(|bias| *bias != NONE);
                if form.bias.is_some() {
                    form.key.epilogue = number::EPILOGUE_BIAS;
                }
                if op.activation > 0 {
                    form.follow = Some(follow(Kind::Activate, [to, y], op.rows * op.outputs));
                }
                Some(form)
            }
            Kind::InputGradient => {
                let [dy, weight, dx, saved, ..] = op.at;
                let mut form = plain(inputs, rows, outputs, [true, false], weight, dy, dx);
                if saved != NONE {
                    form.follow = Some(follow(Kind::ActivateBackward, [saved, dx], op.rows * op.inputs));
                }
                Some(form)
            }
            Kind::WeightGradient => {
                let [x, dy, to, ..] = op.at;
                Some(plain(outputs, inputs, rows, [false, true], dy, x, to))
            }
            _ => None,
        }
    }
}

pub struct Product {
    /// Copies of its operands that are made before it.
    pub before: Vec<Conversion>,
    matmul: Matmul,
    algorithm: Algorithm,
    /// A kernel of this project that runs after the product.
    pub follow: Option<(Record, Shape)>,
}

impl Product {
    /// Whether its operands are bfloat16 copies.
    pub fn reads_halves(&self) -> bool {
        self.matmul.key.operands == number::R_16BF
    }

    /// Queues the product, without the kernels before and after it.
    pub fn queue(&self, gpu: &GpuContext) -> Result<(), DeviceError> {
        self.matmul.queue(&self.algorithm, &gpu.stream).map_err(|status| failed(&gpu.context, status))
    }
}
