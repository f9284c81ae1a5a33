//! The source of a step for one block, which keeps the whole job in its shared memory.

use std::fmt::Write;

use super::{
    Access, Emitter, Encoder, Gather, Kept, Learning, Op, Record, Role, Slice, Spaced, Step, StepOptions,
    StepSource, Tiles, Window, WorkSplit, aligned, pieces, spacing::spaced,
};

/// Threads that a block may have.
const THREADS: [u32; 5] = [32, 64, 128, 256, 512];

/// The largest batch that is fetched ahead, in rows: its row indices are kept in shared memory too.
const MOST_ROWS_AHEAD: usize = 1024;

/// Approximate cycles of a piece that is not a product.
const PIECE_CYCLES: f64 = 200.0;

/// Approximate cycles of a barrier: a constant, plus some per warp.
const BARRIER_CYCLES: [f64; 2] = [15.0, 2.0];

/// Registers of a thread that may hold weights and their state: in blocks of up to 256 threads, and in larger ones.
const KEPT_REGISTERS: [usize; 2] = [112, 24];

/// The most tiles of a warp that are unrolled for weights in registers.
const MOST_ROUNDS: i32 = 2;

/// Approximate cycles until weights in registers are stored.
const STORE_CYCLES: f64 = 50.0;

/// Approximate cycles that a step takes besides its pieces: rows are looked up and fetched.
const HEAD_CYCLES: f64 = 600.0;

/// How much longer a step took on an H200 than its pieces add up to: 6,900 cycles for 64-32-10 with Adam (2026-11-26).
const OVER_CYCLES: f64 = 1.8;

/// One instruction, or several that were merged.
struct Piece {
    text: String,
    access: Access,
    /// The place of the gradient that it computes, if it computes a weight's.
    gradient: Option<u64>,
    /// Warps that have work in this piece; 0 if it stores what the piece before it keeps in registers.
    warps: u32,
    /// An estimate.
    cycles: f64,
}

impl Piece {
    /// A piece; a weight in registers that others read until later has one more, which stores it.
    fn all(piece: pieces::Piece<'_>, emitter: &Emitter) -> Vec<Self> {
        let (weight, access) = (piece.access.writes[0], piece.access);
        let mut own = Self::new(piece, emitter);
        let Some(text) = own.gradient.and_then(|to| emitter.show(to)) else { return vec![own] };
        own.access = Access::new(access.reads, []);
        let access = Access::new([], [weight]);
        let show = Self { text, access, gradient: own.gradient, warps: 0, cycles: STORE_CYCLES };
        vec![own, show]
    }

    fn new(pieces::Piece { op, record, access }: pieces::Piece<'_>, emitter: &Emitter) -> Self {
        let gradient = matches!(op, Op::WeightGradient(_)).then_some(record.at[2]);
        let tiles = match op {
            Op::BiasGradient(sum) => {
                Some(Tiles::best([1, sum.rows, sum.outputs].map(|n| n as i32), emitter.scope()))
            }
            op => op.product().map(|shape| emitter.tiles_of(gradient, shape.map(|n| n as i32))),
        };
        let (warps, cycles) = tiles.map_or((1, PIECE_CYCLES), |tiles| (tiles.warps as u32, tiles.cycles));
        Self { text: op.emit(record, emitter), access, gradient, warps, cycles }
    }
}

/// Where a block has its matrices and both buffers of the batch.
struct Room {
    spaced: Vec<Spaced>,
    /// The places of features and targets in each buffer.
    batch: [[u64; 2]; 2],
    /// Elements of shared memory.
    elements: usize,
    tensor_cores: bool,
}

impl Room {
    /// With gaps between rows if there is room, and with a second buffer for the batch if it can be filled ahead.
    fn new(step: &Step<'_>, options: &StepOptions<'_>, with_gaps: bool) -> Self {
        let StepOptions { layout, place, elements, room, tensor_cores, .. } = *options;
        let is_value = |slice: Slice| layout.buffers[slice.buffer.0].role == Role::Values;
        let Gather { x, y, width, .. } = step.gather;
        let has_few_rows = step.program.rows <= MOST_ROWS_AHEAD;
        let arena = aligned(elements);
        let (spaced, behind) = if with_gaps {
            spaced(step, (place, &is_value), arena, has_few_rows)
        } else {
            (Vec::new(), arena)
        };
        let [first_x, first_y] = [step.gathers.at[0], step.gathers.at[1]];
        let own = spaced.iter().find(|spaced| spaced.slice == *x);
        let (first_x, line) = own.map_or((first_x, *width), |own| (own.at, own.line));
        let second_y = behind + aligned(step.program.rows * line);
        let ahead = second_y + aligned(y.len);
        let batch = [[first_x, first_y], [behind as u64, second_y as u64]];
        if ahead <= room && has_few_rows {
            Self { spaced, batch, elements: ahead, tensor_cores }
        } else if with_gaps {
            Self::new(step, options, false)
        } else {
            Self { spaced, batch: [batch[0]; 2], elements, tensor_cores }
        }
    }

    /// The step's records with these places.
    fn records(&self, step: &Step<'_>, options: &StepOptions<'_>) -> Result<Vec<Record>, String> {
        let StepOptions { layout, precision, place, .. } = *options;
        let own = |slice: Slice| {
            let same = |own: &Slice| [own.buffer.0, own.offset] == [slice.buffer.0, slice.offset];
            self.spaced.iter().find(|own| same(&own.slice)).map(|own| own.at)
        };
        let place = |slice: Slice| own(slice).or_else(|| place(slice));
        super::records(step.program, &Encoder { layout, precision, place: &place })
    }

    fn fetches_ahead(&self) -> bool {
        self.batch[0] != self.batch[1]
    }
}

/// The source of a step that fits a block's shared memory.
///
/// # Errors
/// An instruction that only the interpreter supports.
pub fn source(step: &Step<'_>, options: &StepOptions<'_>) -> Result<StepSource, String> {
    let room = Room::new(step, options, true);
    let records = room.records(step, options)?;
    let step = &step.with(&records);
    let by = |threads| Staged::new(step, threads, &room);
    let fastest = THREADS.into_iter().map(by).min_by(|a, b| a.cycles.total_cmp(&b.cycles));
    let Some(staged) = fastest else { return Err("no threads".into()) };
    let threads = staged.emitter.threads;
    let mut text = staged.program(&room, options);
    let _ = write!(
        text,
        "extern \"C\" __global__ void __launch_bounds__({threads}, 1) steps(float* arena, Run* run, unsigned*, float*, int \
         steps) {{\n    compiled_steps<Program>(arena, run, steps);\n}}\n",
    );
    let barriers = staged.stages.iter().max().map_or(1, |last| last + 1);
    let (elements, cycles) = (room.elements, OVER_CYCLES * staged.cycles);
    Ok(StepSource { text, blocks: 1, threads, elements, ahead: 0, barriers, cycles })
}

/// A step's pieces in their stages, for a number of threads.
struct Staged<'a> {
    step: &'a Step<'a>,
    emitter: Emitter,
    pieces: Vec<Piece>,
    stages: Vec<usize>,
    /// The first thread of each.
    firsts: Vec<u32>,
    cycles: f64,
}

impl<'a> Staged<'a> {
    fn new(step: &'a Step<'a>, threads: u32, room: &Room) -> Self {
        let fetches_ahead = room.fetches_ahead();
        let mut emitter = Emitter {
            batch: fetches_ahead.then(|| room.batch[0]),
            spaced: room.spaced.clone(),
            tensor_cores: room.tensor_cores,
            ..step.emitter(threads, WorkSplit::Threads { blocks: 1 })
        };
        let pieces = pieces::pieces(step, fetches_ahead);
        emitter.kept = kept(&pieces, &emitter);
        let pieces: Vec<_> = pieces.into_iter().flat_map(|piece| Piece::all(piece, &emitter)).collect();
        let stages = stages(&pieces);
        let firsts = firsts(&pieces, &stages, threads);
        let cycles = cycles(&pieces, &stages, threads);
        Self { step, emitter, pieces, stages, firsts, cycles }
    }

    /// The struct that the kernel is made from.
    fn program(&self, room: &Room, options: &StepOptions<'_>) -> String {
        let Self { step, emitter, .. } = self;
        let fetches_ahead = room.fetches_ahead();
        let mut text = format!(
            "struct Program {{\n    {}    static const int ELEMENTS = {};\n    static const bool AHEAD = {fetches_ahead};\n",
            step.sizes(emitter.threads),
            options.elements
        );
        text += &if fetches_ahead { fetch(step, room) } else { NO_FETCH.to_owned() };
        let is_value = |own: &&Spaced| options.layout.buffers[own.slice.buffer.0].role == Role::Values;
        text += &respace(room.spaced.iter().filter(is_value).collect());
        text += &self.registers();
        self.write_step(&mut text, room);
        text + "};\n"
    }

    /// The type of what lanes keep in registers, and the code that fills and empties it.
    fn registers(&self) -> String {
        let (mut all, mut take, mut give) = (String::new(), String::new(), String::new());
        for (number, Kept { to, shape: [m, n], tiles, rounds, .. }) in self.emitter.kept.iter().enumerate() {
            let Some(Learning { values, gradients, state, stride, states, .. }) = &self.emitter.learning
            else {
                continue;
            };
            let _ = write!(all, "Kept<{m}, {n}, {}, {rounds}, {states}> kept{number}; ", tiles.wide);
            let place = self.pieces.iter().position(|piece| piece.gradient == Some(*to));
            let first = place.map_or(0, |place| self.firsts[place]);
            let (value, state) = (values + to - gradients, state.map_or(0, |state| state + to - gradients));
            let ends = format!("own + {state}, {stride}u, piece({first}, THREADS)); ");
            let _ = write!(take, "registers.kept{number}.take(own + {value}, {ends}");
            let _ = write!(give, "registers.kept{number}.give({ends}");
        }
        format!(
            "    struct Registers {{ {all}}};\n    static __device__ __forceinline__ void take(const float* own, Registers& \
             registers) {{ {take}}}\n    static __device__ __forceinline__ void give(float* own, const Registers& registers) \
             {{ {give}}}\n"
        )
    }

    /// Writes the function `step`. The pieces of a stage begin at different warps, so that they run in parallel.
    fn write_step(&self, text: &mut String, room: &Room) {
        *text += "    static __device__ __forceinline__ void step(float* own, const Run& at, int rows, int now, Registers& \
                  registers) {\n        const Hyper& hyper = *at.hyper;\n";
        if room.fetches_ahead() {
            let [[x, y], [other_x, other_y]] = room.batch;
            let _ = writeln!(text, "        const u64 x = now ? {other_x} : {x}, y = now ? {other_y} : {y};");
        }
        let pieces = || self.pieces.iter().zip(&self.stages).zip(&self.firsts);
        for stage in 0..=self.stages.iter().max().copied().unwrap_or(0) {
            if stage > 0 {
                *text += "        __syncthreads();\n";
            }
            for ((piece, _), first) in pieces().filter(|((_, own), _)| **own == stage) {
                let _ = writeln!(text, "        {{ Solo s = piece({first}, THREADS); {} }}", piece.text);
            }
        }
        *text += "    }\n";
    }
}

/// The weights that lanes keep in registers, with their state: those whose gradients are made by tensor cores, as long
/// as there are registers.
fn kept(pieces: &[pieces::Piece<'_>], emitter: &Emitter) -> Vec<Kept> {
    let Some(learning) = &emitter.learning else { return Vec::new() };
    let warps = emitter.threads as i32 / 32;
    let mut room = if emitter.threads > 256 { KEPT_REGISTERS[1] } else { KEPT_REGISTERS[0] };
    let mut all = Vec::new();
    for pieces::Piece { op, record, access } in pieces {
        let Some(shape @ [m, _, n]) = op.product().filter(|_| matches!(op, Op::WeightGradient(_))) else {
            continue;
        };
        let [tall, wide] = [m, n].map(|n| n as i32);
        let tiles = emitter.tiles_of(None, shape.map(|n| n as i32));
        let count = Tiles::up(tall, 8 * tiles.wide.max(1)) * Tiles::up(wide, 16);
        let rounds = Tiles::up(count, warps);
        let is_late = pieces.iter().any(|other| is_read_by_input_gradient(other.op, access.writes[0]));
        let own = Kept { to: record.at[2], shape: [tall, wide], tiles, rounds, is_late };
        let registers = own.registers(learning.states);
        if tiles.wide > 0 && own.rounds <= MOST_ROUNDS && registers <= room {
            room -= registers;
            all.push(own);
        }
    }
    all
}

/// Whether an op is the gradient of an input that needs this weight.
fn is_read_by_input_gradient(op: &Op, weight: Slice) -> bool {
    matches!(op, Op::InputGradient(op) if op.weight.overlaps(weight))
}

/// The first thread of each piece: the pieces of a stage begin at different warps, so that they run in parallel. A
/// weight is stored by the lanes that keep it.
fn firsts(pieces: &[Piece], stages: &[usize], threads: u32) -> Vec<u32> {
    let mut warps = vec![0; stages.len()];
    let mut firsts: Vec<u32> = Vec::new();
    for (piece, stage) in pieces.iter().zip(stages) {
        let first = warps[*stage] * 32 % threads;
        let stores = firsts.last().copied().filter(|_| piece.warps == 0);
        firsts.push(stores.unwrap_or(first));
        warps[*stage] += piece.warps;
    }
    firsts
}

/// The code that moves parameters to where a step keeps them, and back.
fn respace(values: Vec<&Spaced>) -> String {
    let mut text = String::new();
    for (name, is_out) in [("space_out", true), ("close_up", false)] {
        let moves = values.iter().map(|Spaced { from, at, rows, width, line, .. }| {
            let (to, of, lines) = if is_out { (at, from, [line, width]) } else { (from, at, [width, line]) };
            let [to_line, line] = lines;
            format!(
                "respace<{rows}, {width}, {to_line}, {line}>(own + {to}, own + {of}, piece(0, THREADS)); "
            )
        });
        let moves: String = moves.collect();
        let _ = writeln!(text, "    static __device__ __forceinline__ void {name}(float* own) {{ {moves}}}");
    }
    text
}

/// Estimated cycles of a step: the pieces of a stage run in parallel as far as there are warps for them.
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
    HEAD_CYCLES + (0..=stages.iter().max().copied().unwrap_or(0)).map(stage).sum::<f64>()
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
        let stored = stages.last().copied().filter(|_| piece.warps == 0);
        stages.push(behind.max().max(stored).unwrap_or(0));
    }
    stages
}

/// That of a step that begins with its rows.
const NO_FETCH: &str = "    static __device__ u32 number(const Run&, int, int) { return 0; }\n    static __device__ void \
                        fetch(float*, const Run&, const u32*, int) {}\n";

/// The code that fetches rows into one of the batch's two buffers.
fn fetch(step: &Step<'_>, room: &Room) -> String {
    let (r, Gather { rows, width, target_width, .. }) = (step.gathers, step.gather);
    let [[x, y], [other_x, other_y]] = room.batch;
    let line = room.spaced.iter().find(|own| own.at == x).map_or(*width, |own| own.line);
    let by = |width: &usize| [4, 2].into_iter().find(|n| width.is_multiple_of(*n)).unwrap_or(1);
    let op = step.emitter(0, WorkSplit::Threads { blocks: 1 }).record_text(r, r);
    format!(
        "    static __device__ __forceinline__ u32 number(const Run& at, int rows, int i) {{\n        {op}\n        return \
         batch_row(op, at, rows, i);\n    }}\n    static __device__ __forceinline__ void fetch(float* own, const Run& at, const \
         u32* rows, int place) {{\n        rows_ahead<{rows}, {width}, {line}, {}>(own + (place ? {other_x} : {x}), \
         at.data[0], rows, piece(0, THREADS));\n        rows_ahead<{rows}, {target_width}, {target_width}, {}>(own + \
         (place ? {other_y} : {y}), at.data[1], rows, piece(0, THREADS));\n    }}\n",
        by(width),
        by(target_width)
    )
}
