//! Compiles a program to CUDA source: a step for one block, in which everything that the interpreters look up
//! is a constant.
//!
//! Instructions become pieces. A piece is put into the earliest stage that its reads and writes allow; a
//! barrier separates two stages. The rows of the next batch are fetched while a step runs. If nothing else
//! needs the gradients, whoever has just summed a parameter's gradient updates the parameter at once. The
//! generated text calls `kernels/step.cuh`.

use std::fmt::Write;

use super::{
    Access, Emitter, Encoder, Gather, Instruction, Layout, Learning, MemoryPlan, Op, Precision, Program,
    Programs, Record, Refused, Slice, Tiles, Update, Window, aligned, encode,
};

/// Threads that a block may have.
const THREADS: [u32; 5] = [32, 64, 128, 256, 512];

/// The source of a kernel `void NAME(float* arena, Run* run, int steps)`.
#[derive(Clone, Debug, PartialEq)]
pub struct StepSource {
    pub text: String,
    pub threads: u32,
    /// Elements in shared memory: the arena, plus a second buffer for the batch.
    pub elements: usize,
    /// Barriers of a step.
    pub barriers: usize,
    /// Estimated clock cycles of a step: its products, and the latency of each piece and barrier.
    pub cycles: f64,
}

/// The sources of a trial's training steps.
#[derive(Clone, Debug, PartialEq)]
pub struct StepSources {
    pub full: StepSource,
    /// The source for the last batch of an epoch, if it is smaller.
    pub last: Option<StepSource>,
}

impl StepSources {
    /// Sources that a block with `shared_bytes` of shared memory can run.
    ///
    /// # Errors
    /// As for [`StepSource::new`].
    pub fn new(programs: &Programs, precision: Precision, shared_bytes: u64) -> Result<Self, String> {
        let places = MemoryPlan::new(programs).train;
        let options = StepOptions {
            layout: &programs.layout,
            precision,
            place: &|slice| places.offset(slice),
            elements: places.elements,
            room: usize::try_from(shared_bytes / 4).unwrap_or(usize::MAX),
        };
        let last = programs.train_last.as_ref();
        Ok(Self {
            full: StepSource::new("steps", &programs.train, &options)?,
            last: last.map(|last| StepSource::new("last_step", last, &options)).transpose()?,
        })
    }
}

/// The largest batch that is fetched ahead, in rows: its row indices are kept in shared memory too.
const MOST_ROWS_AHEAD: usize = 1024;

/// Approximate cycles of a piece that is not a product.
const PIECE_CYCLES: f64 = 200.0;

/// Approximate cycles of a barrier: a constant, plus some per warp.
const BARRIER_CYCLES: [f64; 2] = [15.0, 2.0];

/// One instruction, or several that were merged.
struct Piece {
    text: String,
    access: Access,
    /// Warps that have work in this piece.
    warps: u32,
    /// An estimate.
    cycles: f64,
}

impl Piece {
    fn new(op: &Op, record: &Record, access: Access, emitter: &Emitter) -> Self {
        let shape = match op {
            Op::BiasGradient(sum) => Some([1, sum.rows, sum.outputs]),
            op => op.product(),
        };
        let tiles = shape.map(|shape| Tiles::best(shape.map(|n| n as i32), emitter.threads));
        let (warps, cycles) = tiles.map_or((1, PIECE_CYCLES), |tiles| (tiles.warps as u32, tiles.cycles));
        Self { text: op.emit(record, emitter), access, warps, cycles }
    }
}

/// What the source depends on besides the program.
pub struct StepOptions<'a> {
    pub layout: &'a Layout,
    pub precision: Precision,
    /// The offset of a slice in the arena, in elements.
    pub place: &'a dyn Fn(Slice) -> Option<u64>,
    pub elements: usize,
    /// Elements that fit into the block's shared memory.
    pub room: usize,
}

impl StepSource {
    /// The source of a program's kernel.
    ///
    /// # Errors
    /// An instruction that only the interpreter supports, or the reason why the job does not fit.
    pub fn new(name: &str, program: &Program, options: &StepOptions<'_>) -> Result<Self, String> {
        let StepOptions { layout, precision, place, elements: arena, room } = *options;
        let encoder = Encoder { layout, precision, place };
        let records = encode(&program.instructions, &encoder).into_iter().map(|record| record.map_err(why));
        let records = records.collect::<Result<Vec<Record>, String>>()?;
        let Some((Op::Gather(gather), gathers)) =
            program.instructions.first().map(|i| &i.op).zip(records.first())
        else {
            return Err("a step without rows".into());
        };
        let behind = aligned(arena);
        let ahead = behind + aligned(gather.x.len) + aligned(gather.y.len);
        let fetches_ahead = ahead <= room && program.rows <= MOST_ROWS_AHEAD;
        let elements = if fetches_ahead { ahead } else { arena };
        if elements > room {
            return Err(format!("a step of {elements} numbers, and shared memory has room for {room}"));
        }
        let emitter = |threads| Emitter {
            threads,
            precision,
            batch: fetches_ahead.then(|| [gathers.at[0], gathers.at[1]]),
            learning: learning(&program.instructions, place),
        };
        let first = usize::from(fetches_ahead);
        let by = |threads: u32| {
            let emitter = emitter(threads);
            let pieces = pieces(&program.instructions[first..], &records[first..], &emitter);
            let stages = stages(&pieces);
            let cycles = cycles(&pieces, &stages, threads);
            (emitter, pieces, stages, cycles)
        };
        let fastest = THREADS.into_iter().map(by).min_by(|a, b| a.3.total_cmp(&b.3));
        let Some((emitter, pieces, stages, cycles)) = fastest else { return Err("no threads".into()) };
        let mut text = String::new();
        let mut own = constants(program, arena, &emitter);
        if fetches_ahead {
            own += &fetch(gather, gathers, behind);
        } else {
            own += "    static __device__ u32 number(const Run&, unsigned) { return 0; }\n";
            own += "    static __device__ void fetch(float*, const Run&, const u32*, int) {}\n";
        }
        let _ = write!(text, "struct {name}_program {{\n{own}");
        write_step(&mut text, gathers, behind, &emitter, (&pieces, &stages));
        let _ = write!(
            text,
            "}};\nextern \"C\" __global__ void __launch_bounds__({}, 1) {name}(float* arena, Run* run, int steps) {{\n    \
             compiled_steps<{name}_program>(arena, run, steps);\n}}\n",
            emitter.threads
        );
        let barriers = stages.iter().max().map_or(1, |last| last + 1);
        Ok(Self { text, threads: emitter.threads, elements, barriers, cycles })
    }
}

fn why(refused: Refused) -> String {
    match refused {
        Refused::AllReduce(_) | Refused::StartAllReduce(_) => "a sum over devices".into(),
        Refused::TooLarge(n) => format!("{n} numbers in one instruction"),
        Refused::NoPlace(_) => "a slice without a place".into(),
    }
}

/// Estimated cycles of a step. The pieces of a stage run in parallel as far as there are warps for them.
fn cycles(pieces: &[Piece], stages: &[usize], threads: u32) -> f64 {
    let [barrier, warp] = BARRIER_CYCLES;
    let warps = threads / 32;
    let stage = |stage: usize| {
        let own = || pieces.iter().zip(stages).filter(move |(_, own)| **own == stage).map(|(piece, _)| piece);
        let all: f64 = own().map(|piece| piece.cycles).sum();
        let longest = own().map(|piece| piece.cycles).fold(0.0, f64::max);
        let taken = if own().map(|piece| piece.warps).sum::<u32>() <= warps { longest } else { all };
        taken + barrier + warp * f64::from(warps)
    };
    (0..=stages.iter().max().copied().unwrap_or(0)).map(stage).sum()
}

/// The update, if it may directly follow each gradient: nothing else needs the gradients, and all of them are
/// made by products and column sums.
fn learning(instructions: &[Instruction], place: &dyn Fn(Slice) -> Option<u64>) -> Option<Learning> {
    let Update { rule, values, gradients, state } = instructions.iter().find_map(update_of)?;
    let touches =
        |access: Access| access.touched().any(|slice| slice.buffer == gradients.buffer && slice.len > 0);
    let alone = instructions.iter().all(|i| match &i.op {
        Op::WeightGradient(_) | Op::BiasGradient(_) | Op::Update(_) => true,
        op => !touches(op.access()),
    });
    let state = state.map_or(Some(None), |state| place(state).map(Some))?;
    Some(Learning {
        rule: rule.emit(),
        values: place(*values)?,
        gradients: place(*gradients)?,
        state,
        stride: values.len,
    })
    .filter(|_| alone)
}

/// The pieces of a step. If parameters are updated by the pieces that compute their gradients, these pieces
/// are placed where the update stood.
fn pieces(instructions: &[Instruction], records: &[Record], emitter: &Emitter) -> Vec<Piece> {
    let update = instructions.iter().find_map(update_of).filter(|_| emitter.learning.is_some());
    let (mut pieces, mut learning) = (Vec::new(), Vec::new());
    for (instruction, record) in instructions.iter().zip(records) {
        let op = &instruction.op;
        let mut access = op.access();
        match (update, op) {
            (Some(update), Op::WeightGradient(_) | Op::BiasGradient(_)) => {
                // The piece writes the parameter instead of its gradient. No other piece touches the
                // optimizer's state of it.
                let to = &mut access.writes[0];
                let offset = to.offset - update.gradients.offset + update.values.offset;
                *to = Slice { buffer: update.values.buffer, offset, len: to.len };
                learning.push(Piece::new(op, record, access, emitter));
            }
            (Some(_), Op::Update(_)) => pieces.append(&mut learning),
            _ => pieces.push(Piece::new(op, record, access, emitter)),
        }
    }
    pieces
}

fn update_of(instruction: &Instruction) -> Option<&Update> {
    if let Op::Update(update) = &instruction.op { Some(update) } else { None }
}

/// The stage of each piece: one after the last earlier piece that it must not run in parallel with.
fn stages(pieces: &[Piece]) -> Vec<usize> {
    let mut stages: Vec<usize> = Vec::new();
    for (number, piece) in pieces.iter().enumerate() {
        let beside = |other: usize| {
            let mut window = Window::default();
            window.add(other, &pieces[other].access);
            window.admits(number, &piece.access)
        };
        let behind = (0..number).filter(|other| !beside(*other)).map(|other| stages[other] + 1);
        let stage = behind.max().unwrap_or(0);
        stages.push(stage);
    }
    stages
}

fn constants(program: &Program, arena: usize, emitter: &Emitter) -> String {
    format!(
        "    static const int THREADS = {}, ELEMENTS = {}, BATCH = {}, ROWS = {};\n    static const bool AHEAD = {};\n",
        emitter.threads,
        arena,
        program.batch,
        program.rows,
        emitter.batch.is_some()
    )
}

/// The code that fetches rows into one of the batch's two buffers.
fn fetch(gather: &Gather, r: &Record, behind: usize) -> String {
    let data = if r.flags & super::FLAG_VALIDATION != 0 { 2 } else { 0 };
    let Gather { rows, width, target_width, .. } = gather;
    let [x, y] = [r.at[0], r.at[1]];
    let (other_x, other_y) = (behind, behind + aligned(gather.x.len));
    let by = |width: &usize| [4, 2].into_iter().find(|n| width.is_multiple_of(*n)).unwrap_or(1);
    let number =
        Emitter { threads: 0, precision: Precision::F32, batch: None, learning: None }.record_text(r);
    format!(
        "    static __device__ __forceinline__ u32 number(const Run& at, unsigned i) {{\n        {number}\n        return \
         data_row(op, at, i);\n    }}\n    static __device__ __forceinline__ void fetch(float* own, const Run& at, const \
         u32* rows, int place) {{\n        rows_ahead<{rows}, {width}, {}>(own + (place ? {other_x} : {x}), at.data[{data}], \
         rows, piece(0, THREADS));\n        rows_ahead<{rows}, {target_width}, {}>(own + (place ? {other_y} : {y}), \
         at.data[{}], rows, piece(0, THREADS));\n    }}\n",
        by(width),
        by(target_width),
        data + 1
    )
}

/// Writes the function `step`. The pieces of a stage begin at different warps, so that they run in parallel.
fn write_step(
    text: &mut String,
    gathers: &Record,
    behind: usize,
    emitter: &Emitter,
    (pieces, stages): (&[Piece], &[usize]),
) {
    *text += "    static __device__ __forceinline__ void step(float* own, const Run& at, int now) {\n";
    *text += "        const Hyper& hyper = *at.hyper;\n";
    if emitter.batch.is_some() {
        let y = behind + aligned((gathers.rows * gathers.inputs) as usize);
        let [first_x, first_y] = [gathers.at[0], gathers.at[1]];
        let _ =
            writeln!(text, "        const u64 x = now ? {behind} : {first_x}, y = now ? {y} : {first_y};");
    }
    let last = stages.iter().max().copied().unwrap_or(0);
    for stage in 0..=last {
        if stage > 0 {
            *text += "        __syncthreads();\n";
        }
        let mut warp = 0;
        for (piece, _) in pieces.iter().zip(stages).filter(|(_, own)| **own == stage) {
            let first = warp * 32 % emitter.threads;
            let _ = writeln!(text, "        {{ Solo s = piece({first}, THREADS); {} }}", piece.text);
            warp += piece.warps;
        }
    }
    *text += "    }\n";
}
