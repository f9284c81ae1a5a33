//! The structs that GPU kernels read, in C's memory layout. This is the one definition for both sides:
//! [`header`] generates the C text of `kernels/abi.cuh` from it.

use std::fmt::Write;

use super::{Activation, Instruction, Kind, Layout, Slice, access::barriers, loss};

pub type Precision = crate::spec::Precision;

pub const NONE: u64 = u64::MAX;

/// Doubles per set of running sums.
pub const SUMS: usize = 16;

/// The most blocks of a launch that sums.
pub const PARTIALS: usize = 1024;

/// Up to this many columns a GPU's products use special algorithms.
pub const SLIM: i32 = 16;

/// From this many rows on, a layer with few outputs is one pass over them.
pub const SLIM_ROWS: i32 = 256;

/// Where scratch memory begins, in doubles from the start of the partial sums.
const SCRATCH: usize = PARTIALS + 16;

/// Bytes of partial sums and scratch memory: a tile of `SLIM` rows of 32 numbers per block, then a counter per
/// strip (`Strips` of kernels/lanes.cuh).
pub const PARTIAL_BYTES: usize = 8 * SCRATCH + 4 * PARTIALS * (SLIM as usize * 32 + 1);

/// The largest size that kernels count in 32 bits; it leaves room for a stride of all threads of a launch.
pub const MOST_COUNTED: usize = 2_147_000_000;

macro_rules! flags {
    ($($name:ident = $bit:literal, $doc:literal;)*) => {
        $(#[doc = $doc]
        pub const $name: i32 = 1 << $bit;)*

        const FLAGS: &str = concat!($("    ", stringify!($name), " = 1 << ", stringify!($bit), ",  // ", $doc, "\n",)*);
    };
}

flags! {
    FLAG_UPDATE = 0, "The gradient goes into the parameter: W -= rate dW.";
    FLAG_ORDERED = 1, "Rows are fetched by the epoch's order.";
    FLAG_VALIDATION = 2, "The validation's data, the validation's sums.";
    FLAG_TF32 = 3, "Operands of products are rounded to tf32.";
    FLAG_BF16 = 4, "Operands of products are rounded to bfloat16.";
    FLAG_CHUNK = 5, "Rows come from a streamed chunk: row number = offset + i.";
    FLAG_MOMENTUM = 6, "The update keeps a momentum.";
    FLAG_NESTEROV = 7, "Nesterov's form of it.";
    FLAG_DECOUPLED = 8, "Weight decay shrinks the weights themselves.";
    FLAG_SQUARED = 9, "A norm without its root: the sum of squares.";
    FLAG_COPY_ONLY = 10, "Only the bfloat16 copy of a result is stored.";
    FLAG_RELU_INPUT = 11, "RELU is applied to the input as it is read.";
    FLAG_ENDS_STEP = 12, "The launch ends the step: the counters advance by total_rows and, on this device, inputs.";
    FLAG_WEIGHTED = 13, "A row's weight follows its targets.";
}

macro_rules! shared {
    ($(#[$doc:meta])* $name:ident as $c:ident: $bytes:literal bytes
     { $($field:ident: $type:ty = $declared:literal, $text:literal;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq)]
        #[repr(C)]
        pub struct $name {
            $(#[doc = $text]
            pub $field: $type,)*
        }

        const _: () = assert!(size_of::<$name>() == $bytes);

        impl $name {
            const C: &str = concat!(
                "struct ", stringify!($c), " {\n",
                $("    ", $declared, ";  // ", $text, "\n",)*
                "};\nstatic_assert(sizeof(", stringify!($c), ") == ", $bytes, ", \"as the host has it\");\n"
            );
        }
    };
}

shared! {
    /// An op.
    Record as Op: 144 bytes {
        kind: i32 = "int kind", "A Kind.";
        rows: i32 = "int rows", "Rows of this device.";
        inputs: i32 = "int inputs", "Width of the input.";
        outputs: i32 = "int outputs", "Width of the output.";
        activation: i32 = "int activation", "An Activation.";
        loss: i32 = "int loss", "A Loss.";
        barrier: i32 = "int barrier", "Whether interpreters wait for all threads before it.";
        flags: i32 = "int flags", "Flags.";
        layer: i32 = "int layer", "Index of the layer, for dropout.";
        first: i32 = "int first", "This device's first row within the global batch.";
        total_rows: i32 = "int total_rows", "Rows of the global batch: means divide by it.";
        n: i32 = "int n", "Numbers of an elementwise op, of a reduction, of cells.";
        f: [f32; 6] = "float f[6]", "Constants of the kind.";
        scale: f64 = "double scale", "Factor of a mean.";
        at: [u64; 8] = "u64 at[8]", "Places in floats from the arena's base, in the order of the op's record().";
    }
}

shared! {
    /// The values of an update that may change at every step; computed on the host in f64 and rounded once.
    Hyper as Hyper: 20 bytes {
        rate: f32 = "float rate", "The learning rate; Adam: lr / (1 - beta1^t).";
        first: f32 = "float first", "SGD and RMSprop multiply the momentum by it; Adam multiplies (g - m) by it, so there it is 1 - beta1.";
        correction: f32 = "float correction", "Adam: 1 / sqrt(1 - beta2^t), by which the root of the second moment is multiplied.";
        decay_factor: f32 = "float decay_factor", "AdamW: 1 - lr * weight_decay, else 1.";
        loss_scale: f32 = "float loss_scale", "With weights: rows of the global batch / the sum of their weights; 0 if that is 0.";
    }
}

shared! {
    /// The position of a run. The host writes it before a block of steps, then the device keeps counting.
    /// Addresses are the device's.
    RunRecord as Run: 128 bytes {
        data: [u64; 4] = "const float* data[4]", "Training features and targets, validation features and targets.";
        order: u64 = "const u32* order", "Row by position within the epoch.";
        log: u64 = "float* log", "[slots, width]; always in global memory.";
        hyper: u64 = "const Hyper* hyper", "One per step of the block.";
        sums: u64 = "double* sums", "[2][SUMS]: of the epoch, of the validation.";
        non_finite: u64 = "u64* non_finite", "First step (1-based) whose loss was not finite; 0: none.";
        partial: u64 = "double* partial", "Zeroed once by the host: [PARTIALS] sums of blocks, a counter; from SCRATCH on what Strips uses.";
        seed: u64 = "u64 seed", "The run's seed.";
        step: u64 = "u64 step", "Optimizer steps done.";
        position: u64 = "u64 position", "First row of the global batch within the epoch.";
        offset: u64 = "u64 offset", "This device's first row within the streamed chunk.";
        rows: u64 = "u64 rows", "Rows of an epoch, whose order is followed by that of the next one.";
        index: u32 = "u32 index", "Index into `hyper` of the next step.";
        slot: u32 = "u32 slot", "Next row of the log.";
    }
}

pub fn header() -> String {
    let mut text = "// Generated by crates/engine/src/op/record.rs: what the host and the kernels share. Do not edit.\n\n\
                    typedef unsigned long long u64;\ntypedef unsigned int u32;\n\n"
        .to_owned();
    let list = |text: &mut String, name: &str, words: Vec<String>| {
        let _ = writeln!(text, "enum {name} {{\n    {}\n}};\n", words.join(",\n    "));
    };
    let kinds = Kind::ALL.iter().map(|kind| format!("OP_{}", constant(kind))).collect();
    list(&mut text, "Kind", kinds);
    let none = "NO_ACTIVATION".to_owned();
    let activations = std::iter::once(none).chain(Activation::ALL.iter().map(constant)).collect();
    list(&mut text, "Activation", activations);
    list(&mut text, "Loss", loss::KINDS.iter().map(constant).collect());
    let _ = writeln!(text, "enum Flag {{\n{FLAGS}}};\n");
    let _ = writeln!(
        text,
        "const u64 NONE = ~0ull;\nconst int SUMS = {SUMS};\nconst unsigned PARTIALS = {PARTIALS};\n\
         const int SLIM = {SLIM};\nconst int SLIM_ROWS = {SLIM_ROWS};\nconst int SCRATCH = {SCRATCH};\n\
         const unsigned BLOCK_THREADS = {BLOCK_THREADS};\n"
    );
    for record in [Record::C, Hyper::C, RunRecord::C] {
        let _ = writeln!(text, "{record}");
    }
    text.push_str("// The body of the interpreters' switch over kinds.\n#define EXECUTE_CASES");
    for (i, kind) in Kind::ALL.iter().enumerate() {
        let _ = write!(text, " \\\n    case OP_{}:", constant(kind));
        // Kinds with the same function are consecutive and share its call.
        if Kind::ALL.get(i + 1).is_none_or(|next| next.function() != kind.function()) {
            let _ = write!(text, " return {}(op, arena, run, s);", kind.function());
        }
    }
    text.push('\n');
    text
}

/// The C name of a constant: `InputGradient` becomes `INPUT_GRADIENT`.
fn constant(name: &impl std::fmt::Debug) -> String {
    let mut constant = String::new();
    for (i, c) in format!("{name:?}").char_indices() {
        if i > 0 && c.is_uppercase() {
            constant.push('_');
        }
        constant.extend(c.to_uppercase());
    }
    constant
}

impl Record {
    pub fn new(kind: Kind) -> Self {
        Self { kind: kind as i32, at: [NONE; 8], ..Self::default() }
    }

    pub fn product(&self, a: i32, b: i32) -> u64 {
        u64::try_from(i64::from(a) * i64::from(b)).unwrap_or(0)
    }

    pub fn kind(&self) -> Kind {
        Kind::ALL[self.kind as usize % Kind::ALL.len()]
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// A size beyond what kernels can count.
    TooLarge(usize),
    /// A slice without a place in the arena, which is a bug of this program.
    NoPlace(Slice),
    /// An all-reduce, which is not a kernel's work.
    AllReduce(Slice),
    /// The early start of a part of one.
    StartAllReduce(Slice),
}

/// A size as an int, as kernels count; `None` beyond their limit.
pub fn counted(n: usize) -> Option<i32> {
    i32::try_from(n).ok().filter(|_| n <= MOST_COUNTED)
}

/// What ops need to create their records.
pub struct Encoder<'a> {
    pub layout: &'a Layout,
    pub precision: Precision,
    /// The offset of each slice in elements from the arena's base.
    pub place: &'a dyn Fn(Slice) -> Option<u64>,
}

impl Encoder<'_> {
    pub(super) fn int(&self, n: usize) -> Result<i32, Refused> {
        counted(n).ok_or(Refused::TooLarge(n))
    }

    /// A record with its rows, inputs and outputs. Any two of these form a matrix, whose size is checked.
    pub(super) fn shaped(&self, kind: Kind, [rows, inputs, outputs]: [usize; 3]) -> Result<Record, Refused> {
        for (a, b) in [(rows, inputs), (rows, outputs), (inputs, outputs)] {
            self.int(a.saturating_mul(b))?;
        }
        let [rows, inputs, outputs] = [self.int(rows)?, self.int(inputs)?, self.int(outputs)?];
        Ok(Record { rows, inputs, outputs, ..Record::new(kind) })
    }

    /// A record of an op over `n` elements.
    pub(super) fn numbered<const N: usize>(
        &self,
        kind: Kind,
        n: usize,
        slices: [Slice; N],
    ) -> Result<Record, Refused> {
        Ok(Record { n: self.int(n)?, at: self.places(slices)?, ..Record::new(kind) })
    }

    pub(super) fn places<const N: usize>(&self, slices: [Slice; N]) -> Result<[u64; 8], Refused> {
        self.optional(slices.map(Some))
    }

    pub(super) fn optional<const N: usize>(&self, slices: [Option<Slice>; N]) -> Result<[u64; 8], Refused> {
        let mut at = [NONE; 8];
        for (at, slice) in at.iter_mut().zip(slices) {
            if let Some(slice) = slice {
                *at = (self.place)(slice).ok_or(Refused::NoPlace(slice))?;
            }
        }
        Ok(at)
    }

    pub(super) fn precision_flag(&self) -> i32 {
        match self.precision {
            Precision::F32 => 0,
            Precision::Tf32 => FLAG_TF32,
            Precision::Bf16 => FLAG_BF16,
        }
    }
}

/// The record of each instruction, with the barriers that interpreters need, or the reason why there is none.
pub fn encode(instructions: &[Instruction], encoder: &Encoder<'_>) -> Vec<Result<Record, Refused>> {
    let record = |(instruction, barrier): (&Instruction, bool)| {
        let record = instruction.op.record(encoder)?;
        Ok(Record { barrier: i32::from(barrier), ..record })
    };
    instructions.iter().zip(barriers(instructions)).map(record).collect()
}

/// Threads per block of a stand-alone kernel; products and column sums rely on this number.
const BLOCK_THREADS: u32 = 256;

/// Blocks and threads of a stand-alone kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    pub blocks: u32,
    pub threads: u32,
}

impl Size {
    pub const WARP: Self = Self { blocks: 1, threads: 32 };

    /// Enough blocks for work that fills `blocks` of them, but at most `most`.
    pub fn new(blocks: u64, most: u32) -> Self {
        let blocks = u32::try_from(blocks).unwrap_or(u32::MAX).clamp(1, most.max(1));
        Self { blocks, threads: BLOCK_THREADS }
    }

    /// A multiprocessor of compute capability 7 and later holds at least four blocks of 256 threads.
    pub(super) fn of_threads(threads: u64, multiprocessors: u32) -> Self {
        Self::new(threads.div_ceil(u64::from(BLOCK_THREADS)), multiprocessors.saturating_mul(4))
    }

    pub(super) fn of_numbers(r: &Record, multiprocessors: u32) -> Self {
        Self::of_threads(r.product(r.n, 1), multiprocessors)
    }

    /// Four elements per thread.
    pub(super) fn of_quads(r: &Record, multiprocessors: u32) -> Self {
        Self::of_threads(r.product(r.n, 1).div_ceil(4), multiprocessors)
    }

    pub(super) fn of_a_warp(_: &Record, _: u32) -> Self {
        Self::WARP
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launches_are_as_large_as_their_work_and_no_larger_than_the_gpu() {
        let size = |kind: Kind, rows, inputs, outputs| {
            kind.size(&Record { rows, inputs, outputs, n: rows * inputs, ..Record::new(kind) }, 132)
        };
        let blocks = |kind, rows, inputs, outputs| size(kind, rows, inputs, outputs).blocks;
        assert_eq!(blocks(Kind::Linear, 256, 784, 256), 64);
        assert_eq!(blocks(Kind::Linear, 4096, 2048, 2048), 264);
        assert_eq!(blocks(Kind::Linear, 256, 784, 10), 256);
        assert_eq!(blocks(Kind::Linear, 256, 256, 10), 128);
        assert_eq!(blocks(Kind::Linear, 4096, 784, 10), 128);
        assert_eq!(blocks(Kind::Linear, 8192, 2048, 10), 256);
        assert_eq!(blocks(Kind::Linear, 32, 2, 1), 1);
        assert_eq!(blocks(Kind::WeightGradient, 256, 784, 10), 25 * 16);
        assert_eq!(blocks(Kind::WeightGradient, 256, 256, 10), 8 * 16);
        assert_eq!(blocks(Kind::WeightGradient, 15, 784, 10), 25);
        assert_eq!(blocks(Kind::BiasGradient, 8192, 0, 2048), 64 * 8);
        assert_eq!(blocks(Kind::BiasGradient, 256, 0, 10), 4);
        assert_eq!(blocks(Kind::BiasGradient, 8, 0, 100_000), 528);
        assert_eq!(blocks(Kind::BiasGradient, 8192, 0, 10), 128);
        assert_eq!(blocks(Kind::InputGradient, 8192, 2048, 10), 32 * 8);
        assert_eq!(blocks(Kind::InputGradient, 256, 256, 10), 8 * 8);
        assert_eq!(blocks(Kind::Mean, 256, 1, 1), 1);
        assert_eq!(blocks(Kind::Mean, 8192, 1, 1), 8);
        assert_eq!(blocks(Kind::Norm, 1000, 1000, 1), 132);
        assert_eq!(blocks(Kind::Activate, 1 << 14, 1 << 10, 1), 1056);
        assert_eq!(blocks(Kind::Zero, 0, 0, 0), 1);
        for kind in Kind::ALL {
            assert_eq!(size(*kind, 100, 100, 100).threads % 32, 0, "{kind:?}");
        }
    }

    /// `RUNNER_WRITE_ABI=1 cargo test --lib op::record` rewrites the file.
    #[test]
    fn the_kernels_have_this_header() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../kernels/abi.cuh");
        if std::env::var_os("RUNNER_WRITE_ABI").is_some() {
            std::fs::write(path, header()).expect("the sources can be written");
        }
        let held = std::fs::read_to_string(path).unwrap_or_default();
        assert!(held == header(), "kernels/abi.cuh is not what crates/engine/src/op/record.rs says");
    }
}
