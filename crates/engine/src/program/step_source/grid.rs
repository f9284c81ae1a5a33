//! The source of a step for a grid of blocks, whose job stays in global memory.
//!
//! Each op is divided over the blocks. Ops whose rows need no other row run by rows: a block has the same rows
//! in all of them, so between two of these a barrier of the block suffices. Large products run in tiles, and
//! everything else by all threads of the grid, or by the last block alone. A barrier over the grid stands where a block
//! touches what another one writes. The number of blocks depends on the program alone. How the
//! first layer's weight is cut, if it stays in shared memory, also depends on the room there.

use std::fmt::Write;

use super::{
    Access, Emitter, Encoder, GRID_THREADS, Gather, GridTiles, Op, PARTIAL_SUMS, Record, Slice, Stationary,
    Step, StepOptions, StepSource, Tiles, WorkSplit, aligned,
    pieces::{self, Piece},
    share::{READ_BY_ALL, Share, Spread, stages},
    stationary::{self, Held},
};

/// The most and the fewest blocks. A GPU with half as many multiprocessors runs them at once.
const BLOCKS: [u32; 2] = [8, 128];

/// Multiply-adds of a step that are worth a block.
const WORK_OF_A_BLOCK: f64 = 32_768.0;

/// The most blocks of a grid that a multiprocessor runs at once. Two have half of its registers each, so a step
/// spills some; a GPU with enough multiprocessors gives each block one of its own.
const BLOCKS_EACH: u32 = 2;

/// Elements of a weight's gradient from which tiles pay.
const IN_TILES: usize = 8192;

/// Approximate cycles of a barrier over the grid with the wait for the slowest block, and of a piece's loads from the L2
/// cache, which follow each other. Both as measured on an H200.
const GRID_BARRIER_CYCLES: f64 = 3000.0;
const PIECE_CYCLES: f64 = 1500.0;

/// Bytes per cycle that a block gets from the L2 cache.
const BYTES_PER_CYCLE: f64 = 32.0;

/// The source of a step.
///
/// # Errors
/// Why a GPU cannot run it.
pub fn source(step: &Step<'_>, options: &StepOptions<'_>) -> Result<StepSource, String> {
    let StepOptions { elements, room, .. } = *options;
    let large = format!("a step of {elements} numbers, and shared memory has room for {room}");
    let pieces = pieces::pieces(step, true);
    let blocks = blocks(step);
    let held = stationary::small_weights(step, &pieces);
    let first = stationary::first_layer(step, &pieces, options, (blocks, &held));
    let stationary = first.map(|first| build(step, options, (blocks, Some(first), held)));
    let whole = |built: &Result<Option<StepSource>, String>| !matches!(built, Ok(None));
    let built = stationary.filter(whole).unwrap_or_else(|| build(step, options, (blocks, None, Vec::new())));
    built.map_err(|why| format!("{large}; {why}"))?.ok_or_else(|| "a step without stages".into())
}

/// The source with this layer as the first one; `None` if more than its forward product can begin a step.
fn build(
    step: &Step<'_>,
    options: &StepOptions<'_>,
    (blocks, first, held): (u32, Option<Stationary>, Vec<Held>),
) -> Result<Option<StepSource>, String> {
    let StepOptions { layout, precision, place, room, multiprocessors, .. } = *options;
    let encoder = Encoder { layout, precision, place };
    let mut grid = Grid { step, encoder, blocks, each: 1, first, held };
    let mut shares = Vec::new();
    for piece in pieces::pieces(step, true) {
        grid.share(piece, &mut shares)?;
    }
    let elements = shares.iter().map(|share| share.elements).max().unwrap_or(0);
    let elements = elements + grid.resident();
    if grid.blocks > multiprocessors {
        let fit = u32::try_from(room / elements.max(1)).unwrap_or(u32::MAX);
        grid.each = fit.min(BLOCKS_EACH);
    }
    let at_once = multiprocessors.saturating_mul(grid.each);
    if grid.blocks > at_once {
        return Err(format!("it needs a grid of {blocks} blocks, and this GPU runs {at_once} at once"));
    }
    let places = stages(&shares);
    let stages = places.iter().map(|[stage, _]| stage + 1).max().unwrap_or(0);
    if stages < 2 {
        return Err("a step of one stage, in which no rows can be fetched ahead".into());
    }
    let begins = shares.iter().zip(&places).filter(|(_, [stage, _])| *stage == 0);
    if grid.first.is_some() && begins.count() > 1 {
        return Ok(None);
    }
    let (text, cycles) = grid.write(&shares, &places, stages)?;
    // With a stationary weight the next step begins with what its block has, and no barrier is behind a step.
    let waits = shares.iter().filter(|share| share.waits).count();
    let barriers = stages - usize::from(grid.first.is_some()) + waits;
    let cycles = cycles + barriers as f64 * GRID_BARRIER_CYCLES;
    let ahead = grid.ahead().into_iter().sum();
    Ok(Some(StepSource { text, blocks, threads: GRID_THREADS, elements, ahead, barriers, cycles }))
}

/// The blocks of a program's grid.
fn blocks(step: &Step<'_>) -> u32 {
    let [least, most] = BLOCKS;
    let worth = (step.program.cost().flops / 2.0 / WORK_OF_A_BLOCK).clamp(1.0, f64::from(most));
    (worth as u32).next_power_of_two().clamp(least, most)
}

/// Whether a piece is too small to share.
fn is_for_one_block(op: &Op, access: &Access) -> bool {
    match op {
        Op::Mean(_) | Op::Norm(_) => !access.writes.contains(&PARTIAL_SUMS),
        op => matches!(op, Op::Log(_)),
    }
}

struct Grid<'a> {
    step: &'a Step<'a>,
    encoder: Encoder<'a>,
    blocks: u32,
    /// Blocks of a multiprocessor.
    each: u32,
    /// The first layer, if its weight stays in the blocks.
    first: Option<Stationary>,
    /// What else stays in shared memory during a step.
    held: Vec<Held>,
}

impl Grid<'_> {
    fn emitter(&self, split: WorkSplit) -> Emitter {
        let [x, y] = [self.step.gathers.at[0], self.step.gathers.at[1]];
        let by_rows = matches!(split, WorkSplit::Rows(_));
        let held = self.held.iter().filter(|_| by_rows).map(|held| [held.from, held.to]).collect();
        Emitter { batch: Some([x, y]), held, ..self.step.emitter(GRID_THREADS, split) }
    }

    /// Elements of shared memory besides those of tiles.
    fn resident(&self) -> usize {
        self.first.map_or(0, |first| first.elements + stationary::held_elements(&self.held))
    }

    /// Parts of the rows, and how many rows a block has at once: a divisor of the rows, so that all parts are alike.
    fn parts(&self) -> [usize; 2] {
        let rows = self.step.program.rows;
        let each = (1..=rows.div_ceil(self.blocks as usize)).rev().find(|each| rows.is_multiple_of(*each));
        let each = each.unwrap_or(1);
        [rows / each, each]
    }

    /// Adds the shares of a piece.
    fn share(&self, piece: Piece<'_>, shares: &mut Vec<Share>) -> Result<(), String> {
        let Piece { op, record, access } = &piece;
        let of_first = |x: Slice| self.first.filter(|_| x.overlaps(self.step.gather.x));
        let share = match (op, op.product(), op.operands()) {
            _ if is_for_one_block(op, access) => {
                let text = op.emit(record, &self.emitter(WorkSplit::Threads { blocks: 1 }));
                let (spread, blocks, cycles) = (Spread::Last, 1, PIECE_CYCLES);
                Share { text, access: *access, spread, blocks, elements: 0, cycles, waits: false }
            }
            (Op::Linear(linear), ..) if let Some(first) = of_first(linear.x) => {
                shares.push(stationary::forward(&first));
                let mut sums = self.by_rows(piece, Some(first))?;
                sums.access.reads[0] = stationary::PARTIAL_PRODUCTS;
                Share { cycles: first.cycles[1], ..sums }
            }
            (Op::WeightGradient(gradient), ..) if let Some(first) = of_first(gradient.x) => {
                stationary::gradient(op.emit(record, &self.emitter(WorkSplit::Stationary)), &first, access)
            }
            (Op::WeightGradient(_), Some([m, _, n]), _) if m * n < IN_TILES => self.by_all(piece),
            (Op::Linear(_) | Op::InputGradient(_), Some([_, k, n]), _) if k * n <= READ_BY_ALL => {
                self.by_rows(piece, None)?
            }
            // In f32, whatever the precision.
            (_, Some(shape), Some(operands)) => {
                let tiles = GridTiles::best(shape.map(|n| n as i32), operands, self.blocks);
                let tiles = tiles.ok_or_else(|| format!("a product of {shape:?}"))?;
                let text = op.emit(record, &self.emitter(WorkSplit::Tiles(tiles)));
                let (spread, blocks) = (Spread::All { tiles: true }, tiles.blocks as usize);
                let GridTiles { elements, cycles, .. } = tiles;
                Share { text, access: *access, spread, blocks, elements, cycles, waits: false }
            }
            _ if op.of_rows(&(0..1)).is_some() => self.by_rows(piece, None)?,
            _ => self.by_all(piece),
        };
        shares.push(share);
        Ok(())
    }

    /// By all threads of the grid.
    fn by_all(&self, Piece { op, record, access }: Piece<'_>) -> Share {
        // Blocks without a part of the first layer's weight, if some have none.
        let spare = self.first.map_or(0, |first| self.blocks - first.blocks() as u32);
        let emitter =
            self.emitter(WorkSplit::Threads { blocks: if spare > 0 { spare } else { self.blocks } });
        let shape = match op {
            Op::BiasGradient(sum) => Some([1, sum.rows, sum.outputs]),
            op => op.product(),
        };
        let tiles = shape.map(|shape| Tiles::best(shape.map(|n| n as i32), emitter.scope()));
        let all = self.blocks as usize;
        let warps = GRID_THREADS as usize / 32;
        let blocks = tiles.map_or(all, |tiles| (tiles.warps as usize).div_ceil(warps).min(all));
        let bytes = op.cost().bytes / f64::from(self.blocks);
        let cycles = PIECE_CYCLES + tiles.map_or(bytes / BYTES_PER_CYCLE, |tiles| tiles.cycles);
        let (text, waits) = (op.emit(record, &emitter), access.writes.contains(&PARTIAL_SUMS));
        Share { text, access, spread: Spread::All { tiles: false }, blocks, elements: 0, cycles, waits }
    }

    /// By rows, if the op can; `first`: from the partial sums of its product.
    fn by_rows(&self, piece: Piece<'_>, first: Option<Stationary>) -> Result<Share, String> {
        let [parts, each] = self.parts();
        let own = |part: usize| piece.op.of_rows(&(part * each..(part + 1) * each));
        let Some((record, next)) = self.of_parts(own, parts)? else { return Ok(self.by_all(piece)) };
        let next = next.map(Box::new);
        let emitter =
            self.emitter(first.map_or(WorkSplit::Rows(next.clone()), |first| WorkSplit::Sums(next, first)));
        let text = piece.op.emit(&record, &emitter);
        let accesses = (0..parts).filter_map(|part| Some((part % self.blocks as usize, own(part)?.access())));
        let spread = Spread::Rows { parts, accesses: accesses.collect() };
        let work = match piece.op.product() {
            Some([_, k, n]) => Tiles::best([each, k, n].map(|n| n as i32), emitter.scope()).cycles,
            None => 0.0,
        };
        let rounds = parts.div_ceil(self.blocks as usize) as f64;
        let (blocks, cycles) = (parts.min(self.blocks as usize), rounds * (PIECE_CYCLES + work));
        Ok(Share { text, access: piece.access, spread, blocks, elements: 0, cycles, waits: false })
    }

    /// The records of the first part and of the one after it.
    fn of_parts(
        &self,
        own: impl Fn(usize) -> Option<Op>,
        parts: usize,
    ) -> Result<Option<(Record, Option<Record>)>, String> {
        let record =
            |part: usize| own(part).map(|op| op.record(&self.encoder).map_err(super::why)).transpose();
        let Some(first) = record(0)? else { return Ok(None) };
        Ok(Some((first, if parts > 1 { record(1)? } else { None })))
    }

    /// The text, and the estimated cycles of a step without its barriers.
    fn write(&self, shares: &[Share], places: &[[usize; 2]], stages: usize) -> Result<(String, f64), String> {
        let Step { gathers, .. } = self.step;
        let [x_ahead, y_ahead, _] = self.ahead();
        let is_open = self.first.is_some();
        let mut text = format!(
            "struct Program {{\n    {}    static const int BLOCKS = {}, TILES = {};\n    static const bool OPEN = \
             {is_open};\n    static const u64 X = {}, Y = {}, BEHIND_X = {x_ahead};\n",
            self.step.sizes(GRID_THREADS),
            self.blocks,
            self.resident(),
            gathers.at[0],
            gathers.at[1],
        );
        text += &self.rows_ahead()?;
        text += "    template <class Meanwhile>\n    static __device__ __forceinline__ void step(float* own, float* shared, const \
                 Run& at, int rows, unsigned* barrier, unsigned& arrived, float* ahead, Batch batch, Meanwhile meanwhile) {\n        const u64 x = batch.x, y = \
                 batch.y;\n";
        let each = self.first.map_or(0, |first| first.partials());
        let _ =
            writeln!(text, "        float* partials = ahead + {} + batch.place * {each};", x_ahead + y_ahead);
        text += "        const Hyper& hyper = *at.hyper;\n";
        let mut cycles = 0.0;
        for stage in 0..stages {
            match stage {
                0 => {}
                1 if let Some(first) = &self.first => {
                    text += "        wait_for_all(barrier, arrived);\n";
                    text += &stationary::hold(first, &self.held, self.parts());
                    text += "        meanwhile();\n        end_group();\n";
                }
                1 => {
                    text += "        { unsigned arrived = arrive(barrier); meanwhile(); wait_for_all(barrier, arrived); }\n"
                }
                _ => text += "        meet(barrier);\n",
            }
            cycles += self.write_stage(&mut text, shares, places, stage);
            if stage == 1 && self.first.is_some() && !places.iter().any(|place| place[0] == 1 && place[1] > 0)
            {
                text += "        copied_but<1>();\n";
            }
        }
        text += if is_open {
            "        copied();\n        arrived = arrive(barrier);\n"
        } else {
            "        copied();\n        meet(barrier);\n"
        };
        let _ = write!(
            text,
            "    }}\n}};\nextern \"C\" __global__ void __launch_bounds__({GRID_THREADS}, {}) steps(float* arena, Run* \
             run, unsigned* barrier, float* ahead, int steps) {{\n    grid_steps<Program>(arena, run, barrier, ahead, steps);\n}}\n",
            self.each
        );
        Ok((text, cycles))
    }

    /// Elements of the memory for the next batch's features and targets, and for partial sums.
    fn ahead(&self) -> [usize; 3] {
        let Gather { x, y, .. } = self.step.gather;
        match &self.first {
            Some(first) => [0, 0, 2 * first.partials()],
            None => [aligned(x.len), aligned(y.len), 0],
        }
    }

    /// The functions that fetch rows, and those for what stays in shared memory.
    fn rows_ahead(&self) -> Result<String, String> {
        let [parts, each] = self.parts();
        if let Some(first) = &self.first {
            let all = self
                .emitter(WorkSplit::Threads { blocks: 1 })
                .record_text(self.step.gathers, self.step.gathers);
            return Ok(stationary::program(first, &all, self.step, [parts, each]));
        }
        let gather = Op::from(self.step.gather.clone());
        let own = |part: usize| gather.of_rows(&(part * each..(part + 1) * each));
        let Some((rows, next)) = self.of_parts(own, parts)? else {
            return Err("a step without rows".into());
        };
        let emitter = self.emitter(WorkSplit::Rows(next.map(Box::new)));
        let (gather, op) = (gather.emit(&rows, &emitter), emitter.record_text(&rows, &rows));
        let parts = format!(
            "for (unsigned part = blockIdx.x; part < {parts}; part += BLOCKS) {{ Solo s(threadIdx.x, THREADS);"
        );
        Ok(format!(
            "    static __device__ Batch batch(float* own, float*, float* ahead, int place) {{\n        const u64 other = \
             (u64)((long long)((u64)ahead - (u64)own) / 4);\n        return place ? Batch{{other, other + BEHIND_X, 1}} : Batch{{X, Y, 0}};\n    }}\n    \
             static __device__ void begin(float*, float*, float*, const Run&, int) {{}}\n    static __device__ void end(float*, float*) \
             {{}}\n    static __device__ __forceinline__ void gather(float* own, float*, const Run& at, int rows, Batch batch) \
             {{\n        const u64 x = batch.x, y = batch.y;\n        {parts} {gather} }}\n    }}\n    static __device__ __forceinline__ void \
             expect(float*, const Run& at, int rows, int) {{\n        const u64 x = 0, y = 0;\n        {parts} {op} expect_rows(op, at, rows, s); \
             }}\n    }}\n"
        ))
    }

    /// Writes the pieces of a stage; returns the estimated cycles of its busiest block. Pieces by all threads begin at
    /// the blocks that have the least to do.
    fn write_stage(&self, text: &mut String, shares: &[Share], places: &[[usize; 2]], stage: usize) -> f64 {
        let all = self.blocks as usize;
        let mut busy = vec![0.0; all];
        let mut own: Vec<_> = shares.iter().zip(places).filter(|(_, place)| place[0] == stage).collect();
        // Tiles first, so that smaller pieces find the blocks that have none.
        own.sort_by_key(|(share, place)| (place[1], !matches!(share.spread, Spread::All { tiles: true })));
        let mut at_level = 0;
        for (share, [_, level]) in own {
            if *level > at_level {
                // The small weights are there; the next batch is still on its way.
                let arrives = stage == 1 && at_level == 0 && self.first.is_some();
                *text += if arrives { "        copied_but<1>();\n" } else { "" };
                *text += "        __syncthreads();\n";
                at_level = *level;
            }
            let busiest = |first: usize, busy: &[f64]| {
                (first..first + share.blocks).map(|block| busy[block % all]).fold(0.0, f64::max)
            };
            let (first, scope) = match &share.spread {
                Spread::Last => (all - 1, format!("{{ Team s(barrier, {}); ", all - 1)),
                Spread::All { tiles: true } => (0, "{ ".to_owned()),
                Spread::All { tiles: false } => {
                    let first = (0..all).min_by(|a, b| busiest(*a, &busy).total_cmp(&busiest(*b, &busy)));
                    let first = first.unwrap_or(0);
                    (first, format!("{{ Team s(barrier, {first}); "))
                }
                Spread::Rows { parts, .. } => {
                    let parts = format!("for (unsigned part = blockIdx.x; part < {parts}; part += BLOCKS)");
                    (0, format!("{parts} {{ Solo s(threadIdx.x, THREADS); "))
                }
            };
            (first..first + share.blocks).for_each(|block| busy[block % all] += share.cycles);
            let _ = writeln!(text, "        {scope}{} }}", share.text);
        }
        busy.into_iter().fold(0.0, f64::max)
    }
}
