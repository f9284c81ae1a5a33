//! The CPU against the f64 references of `program::reference`: every instruction, whole programs and
//! gradients. Also, any number of threads gives the same bits.

mod bf16;
pub mod gradients;
pub mod ops;
mod poison;
pub mod programs;

use runner::{
    device::{
        Block, Clock, Executor, Grain, Ledger, Meters, PassKind,
        cpu::{CpuExecutor, CpuSetup, ThreadMode},
    },
    program::{Accumulator, Buffer, BufferId, Hyper, Layout, Programs, Role, Slice, reference::Memory},
    vector::matmul::Kernel,
};

/// Team sizes whose results must have the same bits.
const TEAMS: [usize; 4] = [1, 2, 3, 5];

pub const SEED: u64 = 11;

/// Pseudo-random f32 in (-1, 1), from SplitMix64.
pub struct Numbers(pub u64);

impl Numbers {
    pub fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    pub fn take(&mut self, len: usize) -> Vec<f32> {
        (0..len).map(|_| self.next()).collect()
    }
}

/// A layout with the contents of all its buffers. The first five buffers are the data.
pub struct Bench {
    pub layout: Layout,
    pub contents: Vec<Vec<f32>>,
    /// The kernel that the CPU uses.
    kernel: Kernel,
}

impl Bench {
    pub fn new(programs_layout: Option<&Layout>) -> Self {
        let data = |i| Buffer { name: format!("data_{i}"), len: 0, role: Role::Data };
        let bare = || Layout { log_width: 2, log_slots: 4, ..Layout::bare((0..5).map(data).collect()) };
        let layout = programs_layout.cloned().unwrap_or_else(bare);
        let contents = layout.buffers.iter().map(|b| vec![0.0; b.len]).collect();
        Self { layout, contents, kernel: Kernel::detect() }
    }

    /// Adds a buffer with these numbers.
    pub fn holding(&mut self, numbers: Vec<f32>) -> Slice {
        let buffer = BufferId(self.layout.buffers.len());
        let len = numbers.len();
        self.layout.buffers.push(Buffer { name: String::new(), len, role: Role::Activation });
        self.contents.push(numbers);
        Slice { buffer, offset: 0, len }
    }

    pub fn memory(&self) -> Memory {
        let wide = |numbers: &Vec<f32>| numbers.iter().copied().map(f64::from).collect();
        Memory { buffers: self.contents.iter().map(wide).collect(), seed: SEED, ..Memory::default() }
    }

    /// The CPU with programs and data loaded.
    fn executor(&self, programs: &Programs, threads: usize) -> CpuExecutor {
        self.sharing_executor(programs, threads, ThreadMode::Team)
    }

    fn sharing_executor(&self, programs: &Programs, threads: usize, sharing: ThreadMode) -> CpuExecutor {
        let programs = Programs { layout: self.layout.clone(), ..programs.clone() };
        let setup = CpuSetup { kernel: self.kernel, ..CpuSetup::cpu(programs, threads, SEED, sharing) };
        let mut executor = CpuExecutor::new(setup).unwrap();
        self.load(&mut executor);
        executor
    }

    /// Writes all buffers to a device.
    pub fn load(&self, executor: &mut impl Executor) {
        for (i, contents) in self.contents.iter().enumerate() {
            match i {
                0..4 => executor.bind(BufferId(i), &contents.clone().into()).map(drop).unwrap(),
                4 => {
                    let order: Vec<u32> = contents.iter().map(|row| *row as u32).collect();
                    executor.bind_order(&order.into()).map(drop).unwrap();
                }
                // Memory starts as zeros, and buffers that no program uses do not exist.
                _ if contents.iter().all(|v| *v == 0.0) => {}
                _ => executor.write(self.layout.whole(BufferId(i)), contents).map(drop).unwrap(),
            }
        }
    }

    /// The contents of all buffers except the data.
    pub fn read(&self, executor: &mut impl Executor) -> Vec<Vec<f32>> {
        let mut all = Vec::new();
        for (i, buffer) in self.layout.buffers.iter().enumerate().skip(5) {
            let mut numbers = vec![0.0; buffer.len];
            executor.read(self.layout.whole(BufferId(i)), &mut numbers).unwrap();
            all.push(numbers);
        }
        all
    }
}

/// Where a block starts.
#[derive(Clone, Copy)]
pub struct At {
    pub work: PassKind,
    pub step: u64,
    pub position: usize,
    pub rows: usize,
    pub slot: usize,
}

/// Runs steps; returns the first step with a non-finite loss, if any.
pub fn run(executor: &mut impl Executor, at: At, steps: usize, hyper: &[Hyper]) -> Option<u64> {
    let At { work, step, position, rows, slot } = at;
    let block = Block { work, step, position, order: 0, offset: 0, rows, steps, hyper, slot };
    let mut clock = Clock::new(Grain::Blocks);
    let (mut ledger, mut ends) = (Ledger::default(), Vec::new());
    let mut meters = Meters { clock: &mut clock, ledger: &mut ledger, ends: &mut ends };
    executor.run(&block, &mut meters).unwrap().non_finite
}

pub fn sums(executor: &mut impl Executor, which: Accumulator, len: usize) -> Vec<f64> {
    let mut sums = vec![0.0; len];
    executor.take_sums(which, &mut sums).unwrap();
    sums
}

/// Asserts that all numbers agree within `tolerance`, which is relative to the largest number of their buffer
/// if that is above 1.
#[track_caller]
pub fn close(got: &[f32], want: &[f64], tolerance: f64, what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    let largest = want.iter().fold(1.0, |a: f64, w| a.max(w.abs()));
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        let off = (f64::from(*got) - want).abs() / largest;
        assert!(off <= tolerance, "{what}: number {i} is {got}, expected {want}: off by {off:e}");
    }
}

pub fn bits(all: &[Vec<f32>]) -> Vec<Vec<u32>> {
    all.iter().map(|numbers| numbers.iter().map(|n| n.to_bits()).collect()).collect()
}
