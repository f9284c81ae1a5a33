//! Instructions as source text of a compiled step: a record as a constant, and the call that uses it. Ops
//! that have a special form for known sizes (`kernels/tiles.cuh`) emit it in their own files.

use std::fmt::Write;

use super::{GridTiles, Record, Slice, Stationary, record::NONE};

/// How an operand of a product is stored; the names are those of `kernels/tiles.cuh`.
#[derive(Clone, Copy, Debug)]
pub enum Operand {
    AlongK,
    AlongSide,
    Ones,
}

impl Operand {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::AlongK => "ALONG_K",
            Self::AlongSide => "ALONG_SIDE",
            Self::Ones => "ONES",
        }
    }
}

/// How to update parameters as soon as their gradients are known. Offsets are those of the flat buffers.
#[derive(Clone, Debug)]
pub struct Learning {
    /// The rule with its constants, such as `Adam{hyper, ...}`.
    pub rule: String,
    pub values: u64,
    pub gradients: u64,
    pub state: Option<u64>,
    /// Elements of the flat buffer: the distance from a parameter's first state value to its second.
    pub stride: usize,
    /// State values per parameter.
    pub states: usize,
}

/// A weight that lanes keep in registers from step to step, with its state.
#[derive(Clone, Debug)]
pub struct Kept {
    /// The place of its gradient.
    pub to: u64,
    /// Its shape.
    pub shape: [i32; 2],
    /// How its gradient is computed.
    pub tiles: Tiles,
    /// Tiles of a warp.
    pub rounds: i32,
    /// Whether others still read the weight when its gradient is computed, so that it is stored later.
    pub is_late: bool,
}

impl Kept {
    /// The registers that it takes.
    pub fn registers(&self, states: usize) -> usize {
        (self.rounds * self.tiles.wide * 4) as usize * (1 + states)
    }
}

/// A matrix whose rows lie further apart than they are long.
#[derive(Clone, Debug)]
pub struct Spaced {
    pub slice: Slice,
    /// Its place if its rows lay side by side.
    pub from: u64,
    /// Its place.
    pub at: u64,
    pub rows: usize,
    pub width: usize,
    /// From the begin of one row to the next.
    pub line: usize,
}

/// Who computes an instruction.
#[derive(Clone, Debug)]
pub enum WorkSplit {
    /// All threads of the scope `s`, which lie in this many blocks.
    Threads { blocks: u32 },
    /// A block, for the rows of part `part`. Holds the record of the part after the first, if there is one.
    Rows(Option<Box<Record>>),
    /// The blocks of a grid, in tiles.
    Tiles(GridTiles),
    /// As `Rows`, from the partial sums of the forward product.
    Sums(Option<Box<Record>>, Stationary),
    /// The blocks that hold parts of the weight.
    Stationary,
}

/// What the text of instructions depends on besides their records.
#[derive(Clone, Debug)]
pub struct Emitter {
    pub threads: u32,
    pub split: WorkSplit,
    /// Rows of a batch, and of the smaller one at the end of an epoch, or the same. Which of them a step has is its `rows`.
    pub rows: [usize; 2],
    /// The offsets of a batch's features and targets, if a step finds them in one of two buffers.
    pub batch: Option<[u64; 2]>,
    pub learning: Option<Learning>,
    pub spaced: Vec<Spaced>,
    pub kept: Vec<Kept>,
    /// Whether the GPU multiplies in tf32.
    pub tensor_cores: bool,
    /// Places of what a block of a grid holds in shared memory: in the arena, and from `held` on.
    pub held: Vec<[u64; 2]>,
}

impl Emitter {
    pub fn new(threads: u32, split: WorkSplit) -> Self {
        Self {
            threads,
            split,
            rows: [1; 2],
            batch: None,
            learning: None,
            spaced: Vec::new(),
            kept: Vec::new(),
            tensor_cores: false,
            held: Vec::new(),
        }
    }

    /// The record as a constant named `op`. `last`: what it is on the smaller batch.
    pub fn record_text(&self, r: &Record, last: &Record) -> String {
        let next = match &self.split {
            WorkSplit::Rows(Some(next)) | WorkSplit::Sums(Some(next), _) => next,
            _ => r,
        };
        let at = |i: usize| {
            let (at, apart) = (r.at[i], next.at[i].wrapping_sub(r.at[i]));
            let own = match self.batch {
                Some([x, _]) if at == x => "x".to_owned(),
                Some([_, y]) if at == y => "y".to_owned(),
                _ if at == NONE => "NONE".to_owned(),
                _ => format!("{at}ull"),
            };
            if apart == 0 { own } else { format!("{own} + part * {apart}ull") }
        };
        let at: [String; 8] = std::array::from_fn(at);
        let first = match next.first - r.first {
            0 => r.first.to_string(),
            apart => format!("{} + (int)part * {apart}", r.first),
        };
        let f: [String; 6] = std::array::from_fn(|i| self.by_rows(r.f[i], last.f[i], "f"));
        let [rows, total_rows] = [(r.rows, last.rows), (r.total_rows, last.total_rows)]
            .map(|(full, last)| self.by_rows(full, last, ""));
        let scale = self.by_rows(r.scale, last.scale, "");
        let Record { kind, inputs, outputs, activation, loss, flags, layer, n, .. } = r;
        format!(
            "const Op op = {{{kind}, {rows}, {inputs}, {outputs}, {activation}, {loss}, 0, {flags}, {layer}, {first}, \
             {total_rows}, {n}, {{{}}}, {scale}, {{{}}}}};",
            f.join(", "),
            at.join(", ")
        )
    }

    /// A number of a step, and of one on the smaller batch.
    fn by_rows<T: std::fmt::Debug + PartialEq>(&self, full: T, last: T, suffix: &str) -> String {
        let rows = self.rows[0];
        if full == last {
            format!("{full:?}{suffix}")
        } else {
            format!("(rows == {rows} ? {full:?}{suffix} : {last:?}{suffix})")
        }
    }

    /// The call of the same function that interpreters call.
    pub(super) fn call(&self, r: &Record, last: &Record) -> String {
        format!("{} {}(op, own, at, s);", self.record_text(r, last), r.kind().function())
    }

    /// A product `[m, k, n]` in tiles. `made`: the call that makes its `Product` from `op`; `to`: the offset
    /// of the gradient that it computes, if it computes one.
    pub(super) fn product(
        &self,
        r: &Record,
        made: &str,
        shape: [i32; 3],
        sides: [Operand; 2],
        to: Option<u64>,
    ) -> String {
        let mut text = format!("{} Product c = {made}; ", self.record_text(r, r));
        // Results of an op have the same rows.
        if let Some(spaced) = r.at[2..5].iter().find_map(|at| self.spaced(*at)) {
            let _ = write!(text, "c.row = {}; ", spaced.line);
        }
        for (i, operand) in [(1, "b"), (2, "bias")] {
            if let Some([_, to]) = self.held.iter().find(|[from, _]| *from == r.at[i]) {
                let _ = write!(text, "c.{operand} = held + {to}; ");
            }
        }
        let finish = match to {
            Some(to) => self.learn(to, shape[2]),
            None => "c.finish(i, j, z);".to_owned(),
        };
        match &self.split {
            WorkSplit::Tiles(tiles) => tiles.write(&mut text, r, shape, sides, &finish),
            WorkSplit::Sums(_, first) => text += &first.sums(shape[0]),
            WorkSplit::Stationary => text += &Stationary::gradient(&finish),
            _ => {
                let tiles = self.tiles_of(to, shape);
                self.tiles(&mut text, r, tiles, shape, sides, ["c.a", "c.b"], &finish);
            }
        }
        text
    }

    /// Sums of the columns of `[rows, columns]`, computed as a product with a row of ones.
    pub(super) fn column_sums(&self, r: &Record, [rows, columns]: [i32; 2]) -> String {
        let mut text =
            format!("{} const Learn out = bias_gradient_out(op, own, at); ", self.record_text(r, r));
        let finish = match self.learning {
            Some(_) => self.learn(r.at[1], columns),
            None => "out(j, z);".to_owned(),
        };
        let (shape, sides) = ([1, rows, columns], [Operand::Ones, Operand::AlongSide]);
        let tiles = Tiles::best(shape, self.scope());
        self.tiles(&mut text, r, tiles, shape, sides, ["0", "own + op.at[0]"], &finish);
        text
    }

    /// Threads of the scope `s`, and the blocks that they lie in.
    pub fn scope(&self) -> [u32; 2] {
        let blocks = if let WorkSplit::Threads { blocks } = self.split { blocks } else { 1 };
        [self.threads * blocks, blocks]
    }

    /// How a product is computed, perhaps of a gradient that begins at `to`.
    pub fn tiles_of(&self, to: Option<u64>, shape: [i32; 3]) -> Tiles {
        match (to.and_then(|to| self.kept(to)), &self.split) {
            (Some((_, kept)), _) => kept.tiles,
            (_, WorkSplit::Threads { blocks: 1 }) if self.tensor_cores => {
                Tiles::in_block(shape, self.threads)
            }
            _ => Tiles::best(shape, self.scope()),
        }
    }

    /// Where a weight is whose rows of `columns` elements would lie side by side from `from` on, and how far apart
    /// its rows begin.
    fn value(&self, from: u64, columns: i32) -> [u64; 2] {
        let spaced = self.spaced.iter().find(|spaced| spaced.from == from);
        spaced.map_or([from, columns as u64], |spaced| [spaced.at, spaced.line as u64])
    }

    /// The text that stores a weight in registers, if that is not done as it learns.
    pub fn show(&self, to: u64) -> Option<String> {
        let (number, kept) = self.kept(to).filter(|(_, kept)| kept.is_late)?;
        let Learning { values, gradients, .. } = self.learning.as_ref()?;
        let [at, line] = self.value(values + to - gradients, kept.shape[1]);
        Some(format!("registers.kept{number}.show<{line}>(own + {at}, s);"))
    }

    /// The weight in registers whose gradient begins at `to`, with its number.
    fn kept(&self, to: u64) -> Option<(usize, &Kept)> {
        self.kept.iter().enumerate().find(|(_, kept)| kept.to == to)
    }

    fn spaced(&self, at: u64) -> Option<&Spaced> {
        self.spaced.iter().find(|spaced| spaced.at == at)
    }

    #[expect(clippy::too_many_arguments, reason = "each is a part of one call")]
    fn tiles(
        &self,
        text: &mut String,
        r: &Record,
        Tiles { rows, columns, lanes, depth, wide, .. }: Tiles,
        [m, k, n]: [i32; 3],
        [a, b]: [Operand; 2],
        [left, right]: [&str; 2],
        finish: &str,
    ) {
        let line = |at: u64, dense: i32| self.spaced(at).map_or(dense, |spaced| spaced.line as i32);
        // Of column sums, only the second operand is stored.
        let [at_a, at_b] = if matches!(a, Operand::Ones) { [NONE, r.at[0]] } else { [r.at[0], r.at[1]] };
        let [line_a, line_b] = [line(at_a, a.line(k, m)), line(at_b, b.line(k, n))];
        // Sums of columns are not rounded.
        let flags = if matches!(a, Operand::Ones) { 0 } else { r.flags };
        let rounds = self.kept(r.at[2]).map_or(0, |(_, kept)| kept.rounds);
        let (a, b) = (a.name(), b.name());
        let _ = write!(
            text,
            "block_product<{m}, {n}, {k}, {line_a}, {line_b}, {rows}, {columns}, {lanes}, {depth}, {wide}, {rounds}, {flags}, \
             {a}, {b}>({left}, {right}, s, [&](int i, int j, float z, int slot) {{ {finish} }});"
        );
    }

    /// What to do with element (i, j) of a gradient that begins at `to`: store it, or update the parameter.
    fn learn(&self, to: u64, columns: i32) -> String {
        let is_held = matches!(self.split, WorkSplit::Stationary);
        let Some(Learning { rule, values, gradients, state, stride, .. }) = &self.learning else {
            return if is_held { "held = fmaf(-c.rate, z, held);" } else { "c.finish(i, j, z);" }.to_owned();
        };
        let offset = to - gradients;
        let state =
            state.map_or("0".to_owned(), |state| format!("own + {} + i * {columns} + j", state + offset));
        let [at, line] = self.value(values + offset, columns);
        let value = if is_held { "&held".to_owned() } else { format!("own + {at} + i * {line} + j") };
        let learn = |number| format!("registers.kept{number}.learn({rule}, slot, z);");
        match self.kept(to) {
            Some((number, kept)) if kept.is_late => learn(number),
            Some((number, _)) => format!("*({value}) = {}", learn(number)),
            None => format!("learn({rule}, {value}, {state}, {stride}u, z);"),
        }
    }
}

/// Cycles from the last terms of a tile of 8 rows to its stored results.
const TILE_END: f64 = 190.0;

/// How much longer products of threads take in a block than [`Tiles::best`] estimates.
const LATENCIES: f64 = 2.0;

/// How the threads of a block, or of a grid, share a product without shared memory of their own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tiles {
    /// Rows of a thread's tile.
    pub rows: i32,
    pub columns: i32,
    /// Lanes that share the terms of a tile.
    pub lanes: i32,
    /// Terms that are loaded at the same time.
    pub depth: i32,
    /// Tiles of 8 rows and 16 columns that a warp has on tensor cores; 0: threads multiply.
    pub wide: i32,
    /// Warps that have work.
    pub warps: i32,
    /// Estimated cycles.
    pub cycles: f64,
}

impl Tiles {
    /// The fastest division by this estimate: a multiprocessor does 128 multiply-adds and loads 32 elements
    /// from shared memory per cycle; a thread waits about 25 cycles for each exchange between lanes and about
    /// 30 for its first elements.
    pub fn best([m, k, n]: [i32; 3], [threads, blocks]: [u32; 2]) -> Self {
        let depth = [4, 2, 1].into_iter().find(|depth| k % depth == 0).unwrap_or(1);
        let [threads, blocks] = [threads, blocks].map(|n| n as i32);
        let mut best =
            Self { rows: 1, columns: 1, lanes: 1, depth, wide: 0, warps: 1, cycles: f64::INFINITY };
        let tiles = [1, 2, 4].into_iter().flat_map(|rows| [1, 2, 4].map(|columns| [rows, columns]));
        let tiles =
            tiles.flat_map(|[rows, columns]| [1, 2, 4, 8, 16, 32].map(|lanes| [rows, columns, lanes]));
        for [rows, columns, lanes] in tiles {
            let warps = Self::up(Self::up(m, rows) * Self::up(n, columns) * lanes, 32);
            let rounds = f64::from(Self::up(warps, threads / 32));
            let terms = f64::from(Self::up(k / depth, lanes) * depth);
            let [tile, edges] = [rows * columns, rows + columns].map(f64::from);
            let warps = warps.min(threads / 32);
            // The warps share four schedulers. A step takes at least the latency of one chain of additions.
            let work = terms * (tile / 4.0 + edges * 0.5) * f64::from(Self::up(warps, blocks));
            let alone = terms * (tile + edges * 2.0 + 4.0);
            let exchanges = f64::from(lanes).log2() * 25.0 + tile * 2.0 * (1.0 - 1.0 / f64::from(lanes));
            let cycles = rounds * (30.0 + work.max(alone) + exchanges + tile * 4.0 / f64::from(lanes));
            if cycles < best.cycles {
                best = Self { rows, columns, lanes, depth, wide: 0, warps, cycles };
            }
        }
        best
    }
    /// The same for a block with its operands in shared memory and with tensor cores, where they are faster: in
    /// f32 a warp splits the operands, and issues three instructions for 16 x 8 elements and 8 terms.
    pub fn in_block(shape @ [m, k, n]: [i32; 3], threads: u32) -> Self {
        let mut best = Self::best(shape, [threads, 1]);
        best.cycles *= LATENCIES;
        let warps = threads as i32 / 32;
        for wide in [1, 2] {
            let tiles = Self::up(m, 8 * wide) * Self::up(n, 16);
            let issued = f64::from((14 + 10 * wide) * Self::up(tiles.min(warps), 4));
            let terms = f64::from(Self::up(k, 8)) * issued.max(60.0);
            let cycles = f64::from(Self::up(tiles, warps)) * (60.0 + terms + TILE_END * f64::from(wide));
            if cycles < best.cycles {
                best = Self { wide, warps: tiles.min(warps), cycles, ..best };
            }
        }
        best
    }
    /// How many units hold n.
    pub fn up(n: i32, unit: i32) -> i32 {
        (n + unit - 1) / unit
    }
}
