//! The first layer of a step over a grid, if its weight can stay in the shared memory of the blocks.

use std::fmt::Write;

use super::{
    Access, BufferId, MOST_SHARED, NONE, Op, Slice, Stationary, Step, StepOptions,
    pieces::Piece,
    share::{READ_BY_ALL, Share, Spread},
};

/// The partial sums of the forward product, treated like a buffer.
pub const PARTIAL_PRODUCTS: Slice = Slice { buffer: BufferId(usize::MAX - 2), offset: 0, len: 1 };

/// How the first layer is shared, and where its weight is. It must be the only reader of the batch's features, and
/// its weight must change where its gradient is computed.
pub fn first_layer(
    step: &Step<'_>,
    pieces: &[Piece<'_>],
    options: &StepOptions<'_>,
    (blocks, held): (u32, &[Held]),
) -> Option<Stationary> {
    let x = step.gather.x;
    let reads = || pieces.iter().filter(|piece| piece.access.touched().any(|slice| slice.overlaps(x)));
    let [Piece { op: Op::Linear(linear), .. }, Piece { op: Op::WeightGradient(gradient), .. }] =
        reads().collect::<Vec<_>>()[..]
    else {
        return None;
    };
    let touches = pieces.iter().filter(|piece| piece.access.touched().any(|s| s.overlaps(linear.weight)));
    let learns = step.learning.is_some() || gradient.update;
    let large = linear.inputs * linear.outputs > READ_BY_ALL;
    let able = options.tensor_cores && options.multiprocessors >= blocks;
    if !(able && large && learns && touches.count() == 2) {
        return None;
    }
    let shape = [linear.rows, linear.inputs, linear.outputs];
    let room = options.room.saturating_sub(MOST_SHARED as usize + held_elements(held));
    Stationary::best(shape, step.gather.target_width, options.precision, [blocks as usize, room])
}

/// A weight or bias that each block copies to its shared memory in every step, since it reads it for several rows.
pub struct Held {
    /// Its place in the arena.
    pub from: u64,
    /// Its place behind the first layer's.
    pub to: u64,
    len: usize,
}

/// The small weights that are read by rows.
pub fn small_weights(step: &Step<'_>, pieces: &[Piece<'_>]) -> Vec<Held> {
    let mut held: Vec<Held> = Vec::new();
    let mut add = |from: u64, len: usize| {
        let to = held_elements(&held) as u64;
        if from != NONE && held.iter().all(|other| other.from != from) && to as usize + len <= READ_BY_ALL {
            held.push(Held { from, to, len });
        }
    };
    for Piece { op, record, .. } in pieces {
        match op {
            Op::Linear(l) if l.inputs * l.outputs <= READ_BY_ALL && !l.x.overlaps(step.gather.x) => {
                add(record.at[1], l.inputs * l.outputs);
                add(record.at[2], l.outputs);
            }
            Op::InputGradient(l) if l.inputs * l.outputs <= READ_BY_ALL => {
                add(record.at[1], l.inputs * l.outputs);
            }
            _ => {}
        }
    }
    held
}

/// Elements of shared memory that they take.
pub fn held_elements(held: &[Held]) -> usize {
    held.last().map_or(0, |last| (last.to as usize + last.len).next_multiple_of(4))
}

/// Fetches them, and takes the targets of rows in parts of `each` to the arena.
pub fn hold(first: &Stationary, held: &[Held], [parts, each]: [usize; 2]) -> String {
    let at = first.elements;
    let mut text = format!("        const float* held = shared + {at};\n");
    for Held { from, to, len } in held {
        let _ = writeln!(text, "        hold(shared + {}, own + {from}, {len});", at + *to as usize);
    }
    let _ = writeln!(
        text,
        "        end_group();\n        for (int part = blockIdx.x; part < {parts}; part += BLOCKS) First::take_targets(shared, own + \
         Y, batch.place, part * {each}, {each});"
    );
    text
}

/// The forward product of a layer; its sums by rows are a piece of their own.
pub fn forward(first: &Stationary) -> Share {
    let access = Access::new([], [PARTIAL_PRODUCTS]);
    share(Stationary::forward(), access, first, first.cycles[0])
}

/// The gradient, which updates the weight.
pub fn gradient(text: String, first: &Stationary, access: &Access) -> Share {
    share(text, Access::new([access.reads[1]], []), first, first.cycles[2])
}

fn share(text: String, access: Access, first: &Stationary, cycles: f64) -> Share {
    let (spread, blocks) = (Spread::All { tiles: true }, first.blocks());
    Share { text, access, spread, blocks, elements: 0, cycles, waits: false }
}

/// What a step's program says of the layer: its type, what stays in shared memory, and how its rows are fetched. `op`: the
/// record of the rows, which are in parts of `each`.
pub fn program(first: &Stationary, op: &str, step: &Step<'_>, [parts, each]: [usize; 2]) -> String {
    let [_, inputs, _] = first.shape;
    let layers = step.program.instructions.iter().zip(step.records);
    let mut own =
        layers.filter(|(i, _)| matches!(&i.op, Op::Linear(linear) if linear.x.overlaps(step.gather.x)));
    let weight = own.next().map_or(0, |(_, record)| record.at[1]);
    let piece = if inputs.is_multiple_of(4) { 4 } else { 1 };
    let held = |body: &str| {
        format!(
            "float* weight = own + {weight}; First::each_weight(shared, [&](int e, float* held) {{ {body} }});"
        )
    };
    format!(
        "    using First = {};\n    static __device__ __forceinline__ Batch batch(float*, float*, float*, int place) \
         {{\n        return {{X, Y, place}};\n    }}\n    static __device__ \
         __forceinline__ void begin(float* own, float* shared, float* ahead, const Run& at, int rows) {{\n        First::empty(ahead); {} \
         const u64 x = 0, y = 0; {op} First::number(shared, op, at, rows, 0);\n    }}\n    static __device__ __forceinline__ void \
         end(float* own, float* shared) {{\n        {}\n    }}\n    static __device__ __forceinline__ void expect(float* shared, \
         const Run& at, int rows, int place) {{\n        const u64 x = 0, y = 0; {op} First::number(shared, op, at, rows, \
         place);\n    }}\n    static __device__ __forceinline__ void gather(float*, float* shared, const Run& at, int, Batch batch) \
         {{\n        First::fetch<{piece}>(shared, at.data[0], batch.place);\n        for (int part = \
         blockIdx.x; part < {parts}; part += BLOCKS) First::fetch_targets(shared, at.data[1], batch.place, part * {each}, \
         {each});\n    }}\n",
        first.name(),
        held("*held = e >= 0 ? weight[e] : 0.0f;"),
        held("if (e >= 0) weight[e] = *held;"),
    )
}
