//! A bench's buffers in device memory, and the engines that run programs on them.

use std::{collections::HashMap, sync::Mutex};

use runner::program::{
    Encoder, Hyper, PARTIAL_BYTES, Precision, Program, Record, Role, RunRecord, Slice, StepOptions,
    StepSource, encode,
};

use super::{
    compile::{Compiler, sources},
    driver::{Driver, Grid, MULTIPROCESSORS, Memory, Module, argument, folder},
};
use crate::conformance::{Bench, SEED};

/// Guard elements between buffers.
const GAP: usize = 16;

/// How programs run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// One launch of `blocks` blocks per op.
    Kernels { blocks: u32 },
    /// One block, with its arena in shared memory.
    Walk { threads: u32 },
    /// A cooperative launch.
    Grid { blocks: u32, threads: u32 },
    /// One block, with a kernel compiled for this program.
    Compiled,
    /// The same on a GPU with tensor cores.
    TensorBlock,
    /// One over a grid, with the arena in global memory.
    CompiledGrid,
    /// That on a GPU with tensor cores, where the first layer's weight may stay in shared memory.
    TensorGrid,
}

impl Engine {
    pub fn is_compiled(self) -> bool {
        matches!(self, Self::Compiled | Self::TensorBlock | Self::CompiledGrid | Self::TensorGrid)
    }
}

/// The part of a block's shared memory that a test's arena may use, in numbers.
pub const ROOM: usize = (232_448 - (12 << 10)) / 4;

/// A bench on the device.
pub struct Machine<'a> {
    driver: &'a Driver,
    bench: &'a Bench,
    /// Where each buffer begins in the arena; data buffers are not in it.
    places: Vec<usize>,
    arena: Memory<'a>,
    arena_floats: usize,
    _data: Vec<Memory<'a>>,
    log: Memory<'a>,
    sums: Memory<'a>,
    non_finite: Memory<'a>,
    _partial: Memory<'a>,
    barrier: Memory<'a>,
    run: Memory<'a>,
    /// The counters at the start of the next block.
    pub at: RunRecord,
    /// The precision of every product.
    pub precision: Precision,
}

impl<'a> Machine<'a> {
    pub fn new(driver: &'a Driver, bench: &'a Bench) -> Self {
        let mut arena = vec![f32::NAN; GAP];
        let mut places = Vec::new();
        for (i, contents) in bench.contents.iter().enumerate() {
            places.push(arena.len());
            // No program touches the best values.
            if i >= 5 && bench.layout.buffers[i].role != Role::Best {
                arena.extend_from_slice(contents);
                arena.resize(arena.len().next_multiple_of(GAP) + GAP, f32::NAN);
            }
        }
        let data: Vec<Memory<'a>> = bench.contents[..4].iter().map(|c| driver.holding(c)).collect();
        let order: Vec<u32> = bench.contents[4].iter().map(|row| *row as u32).collect();
        let order = driver.holding(&order);
        let log = driver.holding(&bench.contents[bench.layout.log.0]);
        let sums = driver.holding(&[0.0f64; 32]);
        let non_finite = driver.holding(&[0u64]);
        let partial = driver.holding(&[0u8; PARTIAL_BYTES]);
        let at = RunRecord {
            data: std::array::from_fn(|i| data[i].address),
            order: order.address,
            log: log.address,
            sums: sums.address,
            non_finite: non_finite.address,
            partial: partial.address,
            seed: SEED,
            rows: u64::MAX,
            ..RunRecord::default()
        };
        Self {
            driver,
            bench,
            places,
            arena_floats: arena.len(),
            arena: driver.holding(&arena),
            _data: data.into_iter().chain([order]).collect(),
            log,
            sums,
            non_finite,
            _partial: partial,
            barrier: driver.holding(&[0u32]),
            run: driver.holding(&[at]),
            at,
            precision: Precision::F32,
        }
    }

    pub fn records(&self, program: &Program) -> Vec<Record> {
        let place = |s: Slice| Some((self.places[s.buffer.0] + s.offset) as u64);
        let (layout, precision) = (&self.bench.layout, self.precision);
        let records = encode(&program.instructions, &Encoder { layout, precision, place: &place });
        records.into_iter().collect::<Result<_, _>>().unwrap()
    }

    /// Lets launches compute what later ones would; returns these.
    pub fn merged(&self, program: &Program, records: &mut [Record]) -> Vec<usize> {
        let place = |s: Slice| Some((self.places[s.buffer.0] + s.offset) as u64);
        let mut merged = Vec::new();
        for (at, record) in records.iter_mut().enumerate() {
            if !merged.contains(&at) {
                merged.extend(program.merge(at, record, &place).into_iter().flatten());
            }
        }
        merged
    }

    /// The source of a program's compiled kernel; panics with the reason if there is none.
    pub fn source(&self, engine: Engine, program: &Program) -> StepSource {
        self.try_source(engine, program, None).unwrap()
    }

    /// The source of a kernel for whole epochs, or the reason why there is none.
    pub fn try_source(
        &self,
        engine: Engine,
        program: &Program,
        last: Option<&Program>,
    ) -> Result<StepSource, String> {
        let place = |s: Slice| Some((self.places[s.buffer.0] + s.offset) as u64);
        let (layout, precision) = (&self.bench.layout, self.precision);
        // A grid is for arenas that do not fit.
        let in_block = matches!(engine, Engine::Compiled | Engine::TensorBlock);
        let (elements, room) = (if in_block { self.arena_floats } else { ROOM + 1 }, ROOM);
        let place = &place;
        let tensor_cores = matches!(engine, Engine::TensorBlock | Engine::TensorGrid);
        // A weight that stays in shared memory is one block's; the simulator has room for two.
        let multiprocessors = if tensor_cores { 2 * MULTIPROCESSORS } else { MULTIPROCESSORS };
        let options = StepOptions { layout, precision, place, elements, room, multiprocessors, tensor_cores };
        StepSource::new(program, last.map(|last| last.rows), &options)
    }

    /// Compiles and loads a source, once per process.
    pub fn compiled(&self, text: &str) -> Module {
        static KNOWN: Mutex<Option<HashMap<String, Module>>> = Mutex::new(None);
        let source = sources::with_kernels(|_| false) + text;
        let mut known = KNOWN.lock().unwrap();
        *known.get_or_insert_default().entry(source).or_insert_with_key(|source| {
            let (image, _) = Compiler::open(&folder().unwrap().join("libnvrtc.so.12"))
                .compile(source, 90)
                .unwrap_or_else(|log| panic!("{log}\n{text}"));
            self.driver.load(&image)
        })
    }

    /// Runs a program once per `hyper`, or `steps` times if there is none; the counters continue.
    pub fn run(&mut self, engine: Engine, program: &Program, steps: usize, hyper: &[Hyper]) {
        if engine.is_compiled() {
            let source = self.source(engine, program);
            return self.run_compiled(self.compiled(&source.text), &source, program, steps, hyper);
        }
        let mut records = self.records(program);
        let table = self.driver.holding(hyper);
        let before = self.at;
        self.at.hyper = if hyper.is_empty() { 0 } else { table.address };
        self.at.index = 0;
        self.run.write(&[self.at]);
        let (mut rows, mut own_rows) = (program.batch as i32, program.rows as i32);
        let (mut arena, mut run, mut count) = (self.arena.address, self.run.address, records.len() as i32);
        let mut steps = steps as i32;
        let ops = self.driver.holding(&records);
        let (mut ops, mut barrier, mut floats) =
            (ops.address, self.barrier.address, self.arena_floats as i32);
        match engine {
            Engine::Kernels { blocks } => {
                let merged = self.merged(program, &mut records);
                for _ in 0..steps {
                    let launched = records.iter_mut().enumerate();
                    for (_, record) in launched.filter(|(at, _)| !merged.contains(at)) {
                        let name = record.kind().kernel();
                        let arguments = &mut [argument(record), argument(&mut arena), argument(&mut run)];
                        self.driver.launch(name, Grid::new(blocks, 256), arguments);
                    }
                    let arguments = &mut [argument(&mut run), argument(&mut rows), argument(&mut own_rows)];
                    self.driver.launch("advance", Grid::new(1, 32), arguments);
                }
            }
            Engine::Walk { threads } => {
                let grid = Grid { shared_bytes: 4 * floats as u32, ..Grid::new(1, threads) };
                let arguments = &mut [
                    argument(&mut ops),
                    argument(&mut count),
                    argument(&mut arena),
                    argument(&mut floats),
                    argument(&mut run),
                    argument(&mut steps),
                    argument(&mut rows),
                    argument(&mut own_rows),
                ];
                self.driver.launch("interpret", grid, arguments);
            }
            Engine::Grid { blocks, threads } => {
                let grid = Grid { cooperative: true, ..Grid::new(blocks, threads) };
                let arguments = &mut [
                    argument(&mut ops),
                    argument(&mut count),
                    argument(&mut arena),
                    argument(&mut run),
                    argument(&mut barrier),
                    argument(&mut steps),
                    argument(&mut rows),
                    argument(&mut own_rows),
                ];
                self.driver.launch("interpret_grid", grid, arguments);
            }
            Engine::Compiled | Engine::TensorBlock | Engine::CompiledGrid | Engine::TensorGrid => {
                unreachable!("run above")
            }
        }
        self.after(before, program, steps as u64);
    }

    /// Runs the steps of a compiled kernel.
    pub fn run_compiled(
        &mut self,
        module: Module,
        source: &StepSource,
        program: &Program,
        steps: usize,
        hyper: &[Hyper],
    ) {
        let table = self.driver.holding(hyper);
        let before = self.at;
        self.at.hyper = if hyper.is_empty() { 0 } else { table.address };
        self.at.index = 0;
        self.run.write(&[self.at]);
        let StepSource { blocks, threads, .. } = *source;
        // The simulator puts two blocks on a multiprocessor if they use its shared memory.
        let shared_bytes = 4 * source.elements.max(1) as u32;
        let grid = Grid { shared_bytes, cooperative: blocks > 1, ..Grid::new(blocks, threads) };
        let (mut arena, mut run, mut count) = (self.arena.address, self.run.address, steps as i32);
        let ahead = self.driver.holding(&vec![f32::NAN; source.ahead]);
        let (mut barrier, mut ahead) = (self.barrier.address, ahead.address);
        let arguments = &mut [
            argument(&mut arena),
            argument(&mut run),
            argument(&mut barrier),
            argument(&mut ahead),
            argument(&mut count),
        ];
        assert_eq!(self.driver.try_launch_of(module, "steps", grid, arguments), 0, "{}", source.text);
        self.after(before, program, steps as u64);
    }

    /// Reads the counters and checks that they have advanced, also over the ends of epochs, whose last batch may be smaller.
    fn after(&mut self, before: RunRecord, program: &Program, steps: u64) {
        self.at = self.run.read::<RunRecord>(1)[0];
        let RunRecord { mut position, mut offset, mut order, rows, .. } = before;
        for _ in 0..steps {
            let is_short = rows - position < program.batch as u64;
            offset += if is_short { rows - position } else { program.rows as u64 };
            position += program.batch as u64;
            if position >= rows {
                (position, order) = (0, order + rows * size_of::<u32>() as u64);
            }
        }
        let RunRecord { step, index, slot, .. } = self.at;
        assert_eq!([self.at.position, self.at.offset, self.at.order], [position, offset, order]);
        assert_eq!((step, index, slot), (before.step + steps, steps as u32, before.slot + steps as u32));
    }

    /// The contents of all buffers except the data. Panics if a guard between them was overwritten.
    pub fn read(&self) -> Vec<Vec<f32>> {
        let arena: Vec<f32> = self.arena.read(self.arena_floats);
        let mut all = Vec::new();
        let mut end = 0;
        let buffers = self.bench.layout.buffers.iter().enumerate().skip(5);
        for (i, buffer) in buffers.filter(|(_, buffer)| buffer.role != Role::Best) {
            let place = self.places[i];
            let touched = arena[end..place].iter().position(|x| !x.is_nan());
            assert_eq!(touched, None, "something was written before buffer {i} (`{}`)", buffer.name);
            end = place + buffer.len;
            all.push(arena[place..end].to_vec());
        }
        assert!(arena[end..].iter().all(|x| x.is_nan()), "something was written behind the last buffer");
        let log = self.bench.layout.log.0;
        all[log - 5] = self.log.read(self.bench.layout.buffers[log].len);
        all
    }

    /// The sums of the epoch, then those of the validation.
    pub fn sums(&self) -> Vec<f64> {
        self.sums.read(32)
    }

    pub fn non_finite(&self) -> u64 {
        self.non_finite.read::<u64>(1)[0]
    }
}
