//! A program as the device runs it: its records, how each is launched, and what is not a kernel's work.

use super::{
    ground::Ground,
    product::{Product, Products},
};
use crate::{
    device::{
        DeviceError,
        cuda::{
            abi::bytes_of,
            launch::kernel::{Shape, shape},
            memory::{allocation::DeviceMemory, staging::Staging},
        },
    },
    op::{Encoder, Layout, MOST_COUNTED, Phase, Precision, Record, Refused, counted, encode},
    program::{Places, Program},
};

/// An instruction.
pub struct Node {
    /// Where its time counts.
    pub phase: Phase,
    /// What is done.
    pub work: Work,
}

/// What an instruction is for the device.
pub enum Work {
    /// A kernel of ours.
    Kernel {
        /// With what.
        record: Record,
        /// By how many threads.
        shape: Shape,
    },
    /// A product of the library.
    Product(Box<Product>),
    /// A sum over devices: so many numbers from that place on.
    AllReduce {
        /// In numbers from the arena's base.
        at: u64,
        /// How many.
        len: usize,
    },
}

/// See the module.
pub struct Steps {
    /// Rows of the global batch.
    pub rows: i32,
    /// Of these, the rows of this device.
    pub own_rows: i32,
    /// In order.
    pub nodes: Vec<Node>,
    /// The same as an array of records, for the engines that walk it by themselves.
    pub records: DeviceMemory,
    /// Records in the array.
    pub count: i32,
    /// Most numbers that one instruction makes: how many threads have work.
    pub widest: u64,
}

impl Steps {
    /// Encodes a program and uploads its records.
    pub fn new(
        program: &Program,
        layout: &Layout,
        places: &Places,
        precision: Precision,
        ground: &Ground,
        staging: &mut Staging,
        mut products: Option<&mut Products>,
    ) -> Result<Self, DeviceError> {
        let context = &ground.context;
        let unusable = |why: String| DeviceError::Unusable { device: context.name.clone(), why };
        let rows = |n: usize| counted(n).ok_or_else(|| unusable(too_large(n)));
        let (mut nodes, mut records, mut widest) = (Vec::new(), Vec::new(), 1);
        let encoder = Encoder { layout, precision, place: &|slice| places.of(slice) };
        for (instruction, record) in program.instructions.iter().zip(encode(&program.instructions, &encoder))
        {
            let phase = instruction.phase;
            let work = match record {
                Ok(record) => {
                    records.push(record);
                    widest = widest.max(numbers(&record));
                    let product = match &mut products {
                        Some(products) => products.plan(&record, &ground.stream)?,
                        None => None,
                    };
                    match product {
                        Some(product) => Work::Product(Box::new(product)),
                        None => Work::Kernel { record, shape: shape(&record, context.gpu.multiprocessors) },
                    }
                }
                Err(Refused::AllReduce(of)) => {
                    Work::AllReduce { at: places.of(of).unwrap_or(0), len: of.len }
                }
                Err(Refused::TooLarge(n)) => return Err(unusable(too_large(n))),
                Err(Refused::NoPlace(slice)) => {
                    return Err(unusable(format!("buffer {} has no place in its memory", slice.buffer.0)));
                }
            };
            nodes.push(Node { phase, work });
        }
        let bytes = bytes_of(&records);
        let memory = DeviceMemory::new(context, bytes.len(), "the records of a program")?;
        staging.upload(ground, memory.at, bytes)?;
        Ok(Self {
            rows: rows(program.batch)?,
            own_rows: rows(program.rows)?,
            nodes,
            count: records.len() as i32,
            records: memory,
            widest,
        })
    }

    /// Whether devices must meet within a step.
    pub fn reduces(&self) -> bool {
        self.nodes.iter().any(|node| matches!(node.work, Work::AllReduce { .. }))
    }
}

fn too_large(n: usize) -> String {
    format!(
        "its kernels count to {MOST_COUNTED}, and an instruction has {n} numbers; lower `data.batch_size`"
    )
}

/// Numbers that an instruction makes.
fn numbers(r: &Record) -> u64 {
    r.product(r.rows, r.inputs).max(r.product(r.rows, r.outputs)).max(r.product(r.n, 1))
}
