//! Compiles a program to CUDA source: a step in which everything that the interpreters look up is a constant.
//!
//! A job that fits the shared memory of a block gets a step for one block (`block.rs`); a larger one a step for
//! a grid of blocks (`grid.rs`); a linear regression trains in one warp (`linear.rs`). Instructions become pieces. A
//! piece is put into the earliest stage that its reads and writes allow; a barrier separates two stages. The rows of the
//! next batch are fetched while a step runs. A smaller batch at the end of an epoch takes the same step.
//! If nothing else needs the gradients, whoever has just summed a parameter's gradient updates the parameter at
//! once; in a block, weights stay in registers from step to step. The generated text calls `kernels/step.cuh`,
//! `kernels/linear.cuh` and `kernels/grid.cuh`.

mod block;
mod grid;
mod linear;
mod pieces;
mod share;
mod spacing;
mod stationary;

use std::sync::{Arc, Mutex, PoisonError};

use super::{
    Access, BiasGradient, BufferId, Emitter, Encoder, FLAG_CHUNK, FLAG_ORDERED, GRID_THREADS, Gather,
    GridTiles, Instruction, Kept, Layout, Learning, Linear, Log, LogTarget, Loss, MOST_SHARED, Mean,
    MemoryPlan, NONE, Op, PARTIAL_SUMS, Precision, Program, Programs, Record, Refused, Role, Slice, Spaced,
    Stationary, Tiles, Update, WeightGradient, Window, WorkSplit, aligned, encode,
};

/// The source of a kernel `void steps(float* arena, Run* run, unsigned* barrier, float* ahead, int steps)`. A grid's
/// takes the word of its barrier, and `ahead` elements of memory for the next batch.
#[derive(Clone, Debug, PartialEq)]
pub struct StepSource {
    pub text: String,
    /// 1, or the blocks of a cooperative launch.
    pub blocks: u32,
    /// Threads of each block.
    pub threads: u32,
    /// Elements in a block's shared memory. One block keeps the arena there, and a second buffer for the batch.
    pub elements: usize,
    /// Elements of a grid's memory for the next batch and for partial sums.
    pub ahead: usize,
    /// Barriers of a step: over the block, or over the grid.
    pub barriers: usize,
    /// Estimated clock cycles of a step: its products, and the latency of each piece and barrier.
    pub cycles: f64,
}

impl StepSource {
    /// The source of a program's kernel. `last`: the rows of the smaller batch at the end of an epoch, if there is one. The
    /// same step takes it.
    ///
    /// # Errors
    /// An instruction that only the interpreter supports, or the reason why the job does not fit.
    pub fn new(program: &Program, last: Option<usize>, options: &StepOptions<'_>) -> Result<Self, String> {
        let StepOptions { layout, precision, place, elements, room, .. } = *options;
        // A grid has no products in bf16. Those in tf32 round less, and are far faster than a graph's.
        let is_large = elements > room;
        let precision = if is_large && precision == Precision::Bf16 { Precision::Tf32 } else { precision };
        let options = &StepOptions { precision, ..*options };
        let records = records(program, &Encoder { layout, precision, place })?;
        let step = Step::new(program, last, &records, place)?;
        if is_large {
            return grid::source(&step, options);
        }
        linear::source(&step, options).map_or_else(|| block::source(&step, options), Ok)
    }

    /// The source of a trial's training steps that a GPU can run, generated at the first call for these programs.
    ///
    /// # Errors
    /// As for [`StepSource::new`].
    pub fn get(programs: &Programs, precision: Precision, room: StepRoom) -> Result<Arc<Self>, String> {
        let known = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it =
            |own: &&Known| (own.precision, own.room) == (precision, room) && own.programs == *programs;
        if let Some(own) = known().iter().rev().find(is_it) {
            return own.source.clone();
        }
        let source = Self::from_programs(programs, precision, room).map(Arc::new);
        let (mut all, own) = (known(), source.clone());
        if all.len() >= MOST_KNOWN {
            all.remove(0);
        }
        all.push(Known { programs: programs.clone(), precision, room, source: own });
        source
    }

    /// Generates it.
    ///
    /// # Errors
    /// As for [`StepSource::new`].
    pub fn from_programs(programs: &Programs, precision: Precision, room: StepRoom) -> Result<Self, String> {
        let places = MemoryPlan::new(programs).train;
        let options = StepOptions {
            layout: &programs.layout,
            precision,
            place: &|slice| places.offset(slice),
            elements: places.elements,
            room: usize::try_from(room.shared_bytes / 4).unwrap_or(usize::MAX),
            multiprocessors: room.multiprocessors,
            tensor_cores: room.tensor_cores,
        };
        Self::new(&programs.train, programs.train_last.as_ref().map(|last| last.rows), &options)
    }
}

/// Sources that were generated, the newest last: a millisecond for each of thousands of equal trials is seconds.
static KNOWN: Mutex<Vec<Known>> = Mutex::new(Vec::new());

/// The most that are kept.
const MOST_KNOWN: usize = 16;

struct Known {
    programs: Programs,
    precision: Precision,
    room: StepRoom,
    source: Result<Arc<StepSource>, String>,
}

fn records(program: &Program, encoder: &Encoder<'_>) -> Result<Vec<Record>, String> {
    let records = encode(&program.instructions, encoder).into_iter();
    records.map(|record| record.map_err(why)).collect()
}

/// What all kinds of steps are made from.
#[derive(Clone)]
struct Step<'a> {
    program: &'a Program,
    /// Rows of the smaller batch at the end of an epoch, if there is one.
    last: Option<usize>,
    records: &'a [Record],
    gather: &'a Gather,
    gathers: &'a Record,
    learning: Option<Learning>,
}

impl<'a> Step<'a> {
    fn new(
        program: &'a Program,
        last: Option<usize>,
        records: &'a [Record],
        place: &dyn Fn(Slice) -> Option<u64>,
    ) -> Result<Self, String> {
        let first = program.instructions.first().map(|i| &i.op).zip(records.first());
        let Some((Op::Gather(gather), gathers)) = first.filter(|_| program.rows > 0) else {
            return Err("a step without rows".into());
        };
        // Kernels count on it: positions and offsets advance by the same rows.
        if program.rows != program.batch {
            return Err("a share of a batch".into());
        }
        let learning = pieces::learning(&program.instructions, place);
        Ok(Self { program, last, records, gather, gathers, learning })
    }

    /// The same step with records for other places.
    fn with(&self, records: &'a [Record]) -> Self {
        Self { records, gathers: &records[0], ..self.clone() }
    }

    /// What the text of its instructions depends on.
    fn emitter(&self, threads: u32, split: WorkSplit) -> Emitter {
        let rows = self.program.rows;
        let (learning, rows) = (self.learning.clone(), [rows, self.last.unwrap_or(rows)]);
        Emitter { learning, rows, ..Emitter::new(threads, split) }
    }

    /// The sizes that every generated struct has.
    fn sizes(&self, threads: u32) -> String {
        let (rows, is_short) = (self.program.rows, self.last.is_some());
        format!(
            "static const int THREADS = {threads}, ROWS = {rows};\n    static const bool SHORT = {is_short};\n"
        )
    }
}

/// What a GPU has for a compiled step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepRoom {
    /// Shared memory of a block.
    pub shared_bytes: u64,
    /// Those that may take part in one cooperative launch; 0 if there is none.
    pub multiprocessors: u32,
    /// Whether it multiplies in tf32.
    pub tensor_cores: bool,
}

/// What the source depends on besides the program.
pub struct StepOptions<'a> {
    pub layout: &'a Layout,
    pub precision: Precision,
    /// The offset of a slice in the arena, in elements.
    pub place: &'a dyn Fn(Slice) -> Option<u64>,
    pub elements: usize,
    /// Elements that fit into a block's shared memory.
    pub room: usize,
    /// See [`StepRoom`].
    pub multiprocessors: u32,
    pub tensor_cores: bool,
}

fn why(refused: Refused) -> String {
    match refused {
        Refused::AllReduce(_) | Refused::StartAllReduce(_) => "a sum over devices".into(),
        Refused::TooLarge(n) => format!("{n} numbers in one instruction"),
        Refused::NoPlace(_) => "a slice without a place".into(),
    }
}
