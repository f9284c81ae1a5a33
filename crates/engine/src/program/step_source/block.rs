//! The source of a step for one block, which keeps the whole job in its shared memory.

use std::fmt::Write;

use super::{
    Access, Emitter, FLAG_VALIDATION, Gather, Op, Record, Step, StepSource, Tiles, Window, WorkSplit,
    aligned, pieces,
};

/// Threads that a block may have.
const THREADS: [u32; 5] = [32, 64, 128, 256, 512];

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
    fn new(pieces::Piece { op, record, access }: pieces::Piece<'_>, emitter: &Emitter) -> Self {
        let shape = match op {
            Op::BiasGradient(sum) => Some([1, sum.rows, sum.outputs]),
            op => op.product(),
        };
        let tiles = shape.map(|shape| Tiles::best(shape.map(|n| n as i32), emitter.scope()));
        let (warps, cycles) = tiles.map_or((1, PIECE_CYCLES), |tiles| (tiles.warps as u32, tiles.cycles));
        Self { text: op.emit(record, emitter), access, warps, cycles }
    }
}

/// The source of a step whose job takes `arena` elements, for a block with room for `room` of them. `last`: the step on
/// the smaller batch at the end of an epoch.
pub fn source(
    step: &Step<'_>,
    last: Option<&Step<'_>>,
    arena: usize,
    room: usize,
) -> Result<StepSource, String> {
    let Step { program, gather, .. } = step;
    let ahead = aligned(arena) + aligned(gather.x.len) + aligned(gather.y.len);
    let fetches_ahead = ahead <= room && program.rows <= MOST_ROWS_AHEAD;
    let elements = if fetches_ahead { ahead } else { arena };
    let by = |threads| Staged::new(step, threads, fetches_ahead);
    let fastest = THREADS.into_iter().map(by).min_by(|a, b| a.cycles.total_cmp(&b.cycles));
    let Some(full) = fastest else { return Err("no threads".into()) };
    let threads = full.emitter.threads;
    let last = last.map(|last| Staged::new(last, threads, fetches_ahead));
    let mut text = String::new();
    full.write(&mut text, ("full", last.is_some()), arena);
    last.iter().for_each(|last| last.write(&mut text, ("last", false), arena));
    let other = if last.is_some() { "last" } else { "full" };
    let _ = write!(
        text,
        "extern \"C\" __global__ void __launch_bounds__({threads}, 1) {}(float* arena, Run* run, unsigned*, float*, int \
         steps) {{\n    compiled_steps<full_program, {other}_program>(arena, run, steps);\n}}\n",
        step.name
    );
    let barriers = full.stages.iter().max().map_or(1, |last| last + 1);
    Ok(StepSource { text, blocks: 1, threads, elements, ahead: 0, barriers, cycles: full.cycles })
}

/// A step's pieces in their stages, for a number of threads.
struct Staged<'a> {
    step: &'a Step<'a>,
    emitter: Emitter,
    pieces: Vec<Piece>,
    stages: Vec<usize>,
    cycles: f64,
}

impl<'a> Staged<'a> {
    fn new(step: &'a Step<'a>, threads: u32, fetches_ahead: bool) -> Self {
        let emitter = Emitter {
            threads,
            split: WorkSplit::Threads { blocks: 1 },
            batch: fetches_ahead.then(|| [step.gathers.at[0], step.gathers.at[1]]),
            learning: step.learning.clone(),
        };
        let pieces = pieces::pieces(step, fetches_ahead).into_iter().map(|piece| Piece::new(piece, &emitter));
        let pieces: Vec<_> = pieces.collect();
        let stages = stages(&pieces);
        let cycles = cycles(&pieces, &stages, threads);
        Self { step, emitter, pieces, stages, cycles }
    }

    /// Writes the struct; `is_short`: whether an epoch ends with a smaller batch.
    fn write(&self, text: &mut String, (name, is_short): (&str, bool), arena: usize) {
        let Self { step: Step { program, gather, gathers, .. }, emitter, pieces, stages, .. } = self;
        let (behind, fetches_ahead) = (aligned(arena), emitter.batch.is_some());
        let _ = write!(
            text,
            "struct {name}_program {{\n    static const int THREADS = {}, ELEMENTS = {arena}, BATCH = {}, ROWS = {};\n    \
             static const bool AHEAD = {fetches_ahead}, SHORT = {is_short};\n",
            emitter.threads, program.batch, program.rows,
        );
        if fetches_ahead {
            *text += &fetch(gather, gathers, behind);
        } else {
            *text += "    static __device__ u32 number(const Run&, unsigned) { return 0; }\n";
            *text += "    static __device__ void fetch(float*, const Run&, const u32*, int) {}\n";
        }
        write_step(text, gathers, behind, emitter, (pieces, stages));
        *text += "};\n";
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

/// The code that fetches rows into one of the batch's two buffers.
fn fetch(gather: &Gather, r: &Record, behind: usize) -> String {
    let data = if r.flags & FLAG_VALIDATION != 0 { 2 } else { 0 };
    let Gather { rows, width, target_width, .. } = gather;
    let [x, y] = [r.at[0], r.at[1]];
    let (other_x, other_y) = (behind, behind + aligned(gather.x.len));
    let by = |width: &usize| [4, 2].into_iter().find(|n| width.is_multiple_of(*n)).unwrap_or(1);
    let split = WorkSplit::Threads { blocks: 1 };
    let number = Emitter { threads: 0, split, batch: None, learning: None }.record_text(r);
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
