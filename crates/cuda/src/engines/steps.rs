//! A program as the GPU runs it: its records, and how each is launched.

use super::{
    copies::Copies,
    gpu_context::GpuContext,
    product::{Product, Products},
};
use crate::{
    device::DeviceError,
    launch::{Shape, shape},
    memory::{DeviceMemory, Staging},
    op::{
        Encoder, FLAG_COPY_ONLY, FLAG_ENDS_STEP, Instruction, Kind, Layout, MOST_COUNTED, Op, Phase,
        Precision, Record, Refused, Slice, counted, encode,
    },
    program::{Offsets, Program},
};

pub struct Launch {
    pub phase: Phase,
    pub work: LaunchKind,
}

/// How an instruction is launched.
pub enum LaunchKind {
    Kernel {
        record: Record,
        shape: Shape,
    },
    Product(Box<Product>),
    /// The sum of all gradients, `len` elements from `at` on, counted from the start of the arena.
    AllReduce {
        at: u64,
        len: usize,
        /// The elements, from the first on, that no earlier [`StartAllReduce`](Self::StartAllReduce) has.
        rest: usize,
    },
    /// The sum of a part of them. Nothing else touches the part until the sum of all gradients ends.
    StartAllReduce {
        at: u64,
        len: usize,
    },
}

impl LaunchKind {
    /// By the library, if this is a large product, or by this project's kernel.
    fn new(
        record: Record,
        gpu: &GpuContext,
        products: Option<&mut Products>,
        halves: Option<[u64; 2]>,
    ) -> Result<Self, DeviceError> {
        let product = products.map(|products| products.plan(&record, gpu, halves)).transpose()?.flatten();
        Ok(match product {
            Some(product) => Self::Product(Box::new(product)),
            None => Self::Kernel { record, shape: shape(&record, gpu.context.gpu.multiprocessors) },
        })
    }

    /// Lets it end the step, if it can, as the last launch.
    fn ends_step(&mut self, rows: i32, own_rows: i32) -> bool {
        match self {
            Self::Kernel { record, .. }
                if matches!(record.kind(), Kind::LogAppend | Kind::Accumulate | Kind::Watch) =>
            {
                record.flags |= FLAG_ENDS_STEP;
                (record.total_rows, record.inputs) = (rows, own_rows);
                true
            }
            _ => false,
        }
    }

    /// The last of its kernels, if that is this project's.
    fn last(&mut self) -> Option<(&mut Record, &mut Shape)> {
        match self {
            Self::Kernel { record, shape } => Some((record, shape)),
            Self::Product(product) => product.follow.as_mut().map(|(record, shape)| (record, shape)),
            Self::AllReduce { .. } | Self::StartAllReduce { .. } => None,
        }
    }

    /// The most kernels, events and waits that this launch queues: cuBLASLt may use an extra kernel to sum parts of a product.
    fn queued(&self) -> usize {
        match self {
            Self::Kernel { .. } => 1,
            Self::Product(product) => 2 + product.before.len() + usize::from(product.follow.is_some()),
            // A fork and a join of streams are an event and a wait each.
            Self::StartAllReduce { .. } => 3,
            Self::AllReduce { len, rest, .. } => 1 + 4 * usize::from(rest < len),
        }
    }

    /// Adds the copies of operands that are due before it, and lets its last kernel read and write copies.
    fn with_copies(&mut self, op: &Op, copies: &mut Copies<'_>, launch: usize) {
        let mut by_copies = false;
        if let Self::Product(product) = self
            && product.reads_halves()
        {
            product.before = copies.due(op);
            by_copies = true;
        }
        copies.read(op, by_copies, self.last().map(|(record, _)| record));
        copies.written(op, self.last().map(|(record, _)| record), launch);
    }
}

/// Plans the launches of a program in their order.
struct Planner<'a> {
    program: &'a Program,
    place: &'a dyn Fn(Slice) -> Option<u64>,
    gpu: &'a GpuContext,
    products: Option<&'a mut Products>,
    copies: Option<Copies<'a>>,
    /// Instructions whose work an earlier launch does.
    merged: Vec<Option<usize>>,
}

impl Planner<'_> {
    /// Instruction `at`, which would be this launch of the step; `None` if an earlier one does its work.
    fn launch(
        &mut self,
        at: usize,
        record: Record,
        launch: usize,
    ) -> Result<Option<LaunchKind>, DeviceError> {
        if self.merged.contains(&Some(at)) {
            return Ok(None);
        }
        let op = &self.program.instructions[at].op;
        let halves = self.copies.as_ref().and_then(|copies| copies.operands(op));
        let mut work = LaunchKind::new(record, self.gpu, self.products.as_deref_mut(), halves)?;
        if let LaunchKind::Product(product) = &mut work
            && self.program.leaves_activation(at)
        {
            product.follow = None;
        }
        if let Some((record, of)) = work.last() {
            self.merged.extend(self.program.merge(at, record, self.place));
            *of = shape(record, self.gpu.context.gpu.multiprocessors);
        }
        if let Some(copies) = &mut self.copies {
            work.with_copies(op, copies, launch);
        }
        Ok(Some(work))
    }
}

pub struct Steps {
    pub rows: i32,
    /// This device's rows of the batch.
    pub own_rows: i32,
    pub launches: Vec<Launch>,
    /// Whether the last launch ends the step.
    pub ends_itself: bool,
    /// Its kernels' records in device memory, for the engines that interpret them.
    pub records: DeviceMemory,
    pub count: i32,
    /// The most elements that one instruction writes, which limits how many threads have work.
    pub widest: u64,
}

impl Steps {
    pub fn new(
        program: &Program,
        layout: &Layout,
        places: &Offsets,
        precision: Precision,
        gpu: &GpuContext,
        staging: &mut Staging,
        products: Option<&mut Products>,
    ) -> Result<Self, DeviceError> {
        let context = &gpu.context;
        let rows = |n: usize| counted(n).ok_or_else(|| context.unusable(too_large(n)));
        let (mut launches, mut records, mut widest): (Vec<Launch>, _, _) = (Vec::new(), Vec::new(), 1);
        let mut started = None;
        let base = products.as_ref().and_then(|products| products.copies);
        let copies = base.map(|base| Copies::new(program, base, places, layout.prediction));
        let place = |slice| places.offset(slice);
        let encoder = Encoder { layout, precision, place: &place };
        let mut planner = Planner { program, place: &place, gpu, products, copies, merged: Vec::new() };
        let all = program.instructions.iter().zip(encode(&program.instructions, &encoder));
        for (at, (Instruction { phase, .. }, record)) in all.enumerate() {
            let mut phase = *phase;
            let work = match record {
                Ok(record) => {
                    records.push(record);
                    widest = widest.max(elements(&record));
                    match planner.launch(at, record, launches.len())? {
                        Some(work) => work,
                        None => continue,
                    }
                }
                // The gradients that sums write are no operands.
                Err(Refused::AllReduce(of)) => {
                    let rest = started.map_or(of.len, |started| started - of.offset);
                    LaunchKind::AllReduce { at: places.offset(of).unwrap_or(0), len: of.len, rest }
                }
                Err(Refused::StartAllReduce(of)) => {
                    started = Some(of.offset);
                    // The step does not wait for it, so it is no phase of its own.
                    phase = launches.last().map_or(phase, |earlier| earlier.phase);
                    LaunchKind::StartAllReduce { at: places.offset(of).unwrap_or(0), len: of.len }
                }
                Err(Refused::TooLarge(n)) => return Err(context.unusable(too_large(n))),
                Err(Refused::NoPlace(slice)) => return Err(DeviceError::no_place(&context.name, slice)),
            };
            launches.push(Launch { phase, work });
        }
        for launch in planner.copies.iter().flat_map(Copies::copy_only) {
            if let Some((record, _)) = launches[launch].work.last() {
                record.flags |= FLAG_COPY_ONLY;
            }
        }
        let [rows, own_rows] = [rows(program.batch)?, rows(program.rows)?];
        let ends_itself = launches.last_mut().is_some_and(|last| last.work.ends_step(rows, own_rows));
        let memory = DeviceMemory::new(context, size_of_val(&records[..]), "the records of a program")?;
        staging.upload(gpu, memory.at, &records)?;
        Ok(Self {
            rows,
            own_rows,
            launches,
            ends_itself,
            count: records.len() as i32,
            records: memory,
            widest,
        })
    }

    /// The most kernels that a step queues, including the one that ends it.
    pub fn queued(&self) -> usize {
        1 + self.launches.iter().map(|launch| launch.work.queued()).sum::<usize>()
    }

    /// The marks of a step: one at the end of each run of launches of one phase. Phases may alternate, since
    /// early sums put gradients where they can be computed first.
    pub fn marks(&self) -> usize {
        self.launches.chunk_by(|a, b| a.phase == b.phase).count()
    }

    pub fn reduces(&self) -> bool {
        self.launches.iter().any(|launch| matches!(launch.work, LaunchKind::AllReduce { .. }))
    }
}

fn too_large(n: usize) -> String {
    format!(
        "its kernels count to {MOST_COUNTED}, and an instruction has {n} numbers; lower `data.batch_size`"
    )
}

/// Elements that an instruction writes.
fn elements(r: &Record) -> u64 {
    r.product(r.rows, r.inputs).max(r.product(r.rows, r.outputs)).max(r.product(r.n, 1))
}
