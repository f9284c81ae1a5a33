//! A program as the device runs it: its records, how each is launched, and what is not a kernel's work.

use super::{
    gpu_context::GpuContext,
    product::{Product, Products},
};
use crate::{
    device::{
        DeviceError,
        cuda::{
            abi::bytes_of,
            launch::{Shape, shape},
            memory::{DeviceMemory, Staging},
        },
    },
    op::{Encoder, Layout, MOST_COUNTED, Phase, Precision, Record, Refused, counted, encode},
    program::{Offsets, Program},
};

pub struct Launch {
    pub phase: Phase,
    pub work: LaunchKind,
}

/// What an instruction is for the device.
pub enum LaunchKind {
    Kernel {
        /// With what.
        record: Record,
        /// By how many threads.
        shape: Shape,
    },
    Product(Box<Product>),
    /// A sum over devices: so many numbers from that place on.
    AllReduce {
        /// In numbers from the arena's base.
        at: u64,
        len: usize,
    },
}

pub struct Steps {
    /// Rows of the global batch.
    pub rows: i32,
    /// Of these, the rows of this device.
    pub own_rows: i32,
    pub launches: Vec<Launch>,
    /// The same as an array of records, for the engines that walk it by themselves.
    pub records: DeviceMemory,
    pub count: i32,
    /// Most numbers that one instruction makes: how many threads have work.
    pub widest: u64,
}

impl Steps {
    pub fn new(
        program: &Program,
        layout: &Layout,
        places: &Offsets,
        precision: Precision,
        gpu_context: &GpuContext,
        staging: &mut Staging,
        mut products: Option<&mut Products>,
    ) -> Result<Self, DeviceError> {
        let context = &gpu_context.context;
        let unusable = |why: String| DeviceError::Unusable { device: context.name.clone(), why };
        let rows = |n: usize| counted(n).ok_or_else(|| unusable(too_large(n)));
        let (mut launches, mut records, mut widest) = (Vec::new(), Vec::new(), 1);
        let encoder = Encoder { layout, precision, place: &|slice| places.offset(slice) };
        for (instruction, record) in program.instructions.iter().zip(encode(&program.instructions, &encoder))
        {
            let phase = instruction.phase;
            let work = match record {
                Ok(record) => {
                    records.push(record);
                    widest = widest.max(elements(&record));
                    let product = match &mut products {
                        Some(products) => products.plan(&record, &gpu_context.stream)?,
                        None => None,
                    };
                    match product {
                        Some(product) => LaunchKind::Product(Box::new(product)),
                        None => {
                            LaunchKind::Kernel { record, shape: shape(&record, context.gpu.multiprocessors) }
                        }
                    }
                }
                Err(Refused::AllReduce(of)) => {
                    LaunchKind::AllReduce { at: places.offset(of).unwrap_or(0), len: of.len }
                }
                Err(Refused::TooLarge(n)) => return Err(unusable(too_large(n))),
                Err(Refused::NoPlace(slice)) => {
                    return Err(unusable(format!("buffer {} has no place in its memory", slice.buffer.0)));
                }
            };
            launches.push(Launch { phase, work });
        }
        let bytes = bytes_of(&records);
        let memory = DeviceMemory::new(context, bytes.len(), "the records of a program")?;
        staging.upload(gpu_context, memory.at, bytes)?;
        Ok(Self {
            rows: rows(program.batch)?,
            own_rows: rows(program.rows)?,
            launches,
            count: records.len() as i32,
            records: memory,
            widest,
        })
    }

    /// Whether devices must meet within a step.
    pub fn reduces(&self) -> bool {
        self.launches.iter().any(|launch| matches!(launch.work, LaunchKind::AllReduce { .. }))
    }
}

fn too_large(n: usize) -> String {
    format!(
        "its kernels count to {MOST_COUNTED}, and an instruction has {n} numbers; lower `data.batch_size`"
    )
}

/// Numbers that an instruction makes.
fn elements(r: &Record) -> u64 {
    r.product(r.rows, r.inputs).max(r.product(r.rows, r.outputs)).max(r.product(r.n, 1))
}
