//! Compiles a program to CUDA source: a step in which everything that the interpreters look up is a constant.
//!
//! A job that fits the shared memory of a block gets a step for one block (`block.rs`); a larger one a step for
//! a grid of blocks (`grid.rs`). Instructions become pieces. A piece is put into the earliest stage that its reads
//! and writes allow; a barrier separates two stages. The rows of the next batch are fetched while a step runs.
//! If nothing else needs the gradients, whoever has just summed a parameter's gradient updates the parameter at
//! once. The generated text calls `kernels/step.cuh` and `kernels/grid.cuh`.

mod block;
mod grid;
mod pieces;

use std::sync::{Arc, Mutex, PoisonError};

use super::{
    Access, Emitter, Encoder, FLAG_VALIDATION, GRID_THREADS, Gather, GridTiles, Instruction, Layout,
    Learning, MemoryPlan, Op, PARTIAL_SUMS, Precision, Program, Programs, Record, Refused, Slice, Tiles,
    Update, Window, WorkSplit, aligned, encode,
};

/// The source of a kernel `void NAME(float* arena, Run* run, unsigned* barrier, float* ahead, int steps)`. A grid's
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
    /// Elements of the second buffer for the batch, if a grid needs one.
    pub ahead: usize,
    /// Barriers of a step: over the block, or over the grid.
    pub barriers: usize,
    /// Estimated clock cycles of a step: its products, and the latency of each piece and barrier.
    pub cycles: f64,
}

impl StepSource {
    /// The source of a program's kernel.
    ///
    /// # Errors
    /// An instruction that only the interpreter supports, or the reason why the job does not fit.
    pub fn new(name: &str, program: &Program, options: &StepOptions<'_>) -> Result<Self, String> {
        let StepOptions { layout, precision, place, elements, room, .. } = *options;
        let encoder = Encoder { layout, precision, place };
        let records = encode(&program.instructions, &encoder).into_iter().map(|record| record.map_err(why));
        let records = records.collect::<Result<Vec<Record>, String>>()?;
        let step = Step::new(name, program, &records, place)?;
        if elements <= room { block::source(&step, elements, room) } else { grid::source(&step, options) }
    }
}

/// What both kinds of steps are made from.
struct Step<'a> {
    name: &'a str,
    program: &'a Program,
    records: &'a [Record],
    gather: &'a Gather,
    gathers: &'a Record,
    learning: Option<Learning>,
}

impl<'a> Step<'a> {
    fn new(
        name: &'a str,
        program: &'a Program,
        records: &'a [Record],
        place: &dyn Fn(Slice) -> Option<u64>,
    ) -> Result<Self, String> {
        let first = program.instructions.first().map(|i| &i.op).zip(records.first());
        let Some((Op::Gather(gather), gathers)) = first.filter(|_| program.rows > 0) else {
            return Err("a step without rows".into());
        };
        let learning = pieces::learning(&program.instructions, place);
        Ok(Self { name, program, records, gather, gathers, learning })
    }
}

/// The sources of a trial's training steps.
#[derive(Clone, Debug, PartialEq)]
pub struct StepSources {
    pub full: StepSource,
    /// The source for the last batch of an epoch, if it is smaller.
    pub last: Option<StepSource>,
}

/// Sources that were generated, the newest last: a millisecond for each of thousands of equal trials is seconds.
static KNOWN: Mutex<Vec<Known>> = Mutex::new(Vec::new());

/// The most that are kept.
const MOST_KNOWN: usize = 16;

struct Known {
    programs: Programs,
    precision: Precision,
    room: StepRoom,
    sources: Result<Arc<StepSources>, String>,
}

impl StepSources {
    /// Sources that a GPU can run, generated at the first call for these programs.
    ///
    /// # Errors
    /// As for [`StepSource::new`].
    pub fn get(programs: &Programs, precision: Precision, room: StepRoom) -> Result<Arc<Self>, String> {
        let known = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it =
            |own: &&Known| (own.precision, own.room) == (precision, room) && own.programs == *programs;
        if let Some(own) = known().iter().rev().find(is_it) {
            return own.sources.clone();
        }
        let sources = Self::new(programs, precision, room).map(Arc::new);
        let (mut all, own) = (known(), sources.clone());
        if all.len() >= MOST_KNOWN {
            all.remove(0);
        }
        all.push(Known { programs: programs.clone(), precision, room, sources: own });
        sources
    }

    /// Generates them.
    ///
    /// # Errors
    /// As for [`StepSource::new`].
    pub fn new(programs: &Programs, precision: Precision, room: StepRoom) -> Result<Self, String> {
        let places = MemoryPlan::new(programs).train;
        let options = StepOptions {
            layout: &programs.layout,
            precision,
            place: &|slice| places.offset(slice),
            elements: places.elements,
            room: usize::try_from(room.shared_bytes / 4).unwrap_or(usize::MAX),
            multiprocessors: room.multiprocessors,
        };
        let last = programs.train_last.as_ref();
        Ok(Self {
            full: StepSource::new("steps", &programs.train, &options)?,
            last: last.map(|last| StepSource::new("last_step", last, &options)).transpose()?,
        })
    }
}

/// What a GPU has for a compiled step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepRoom {
    /// Shared memory of a block.
    pub shared_bytes: u64,
    /// Those that may take part in one cooperative launch; 0 if there is none.
    pub multiprocessors: u32,
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
}

fn why(refused: Refused) -> String {
    match refused {
        Refused::AllReduce(_) | Refused::StartAllReduce(_) => "a sum over devices".into(),
        Refused::TooLarge(n) => format!("{n} numbers in one instruction"),
        Refused::NoPlace(_) => "a slice without a place".into(),
    }
}
