//! The first layer of a compiled step over a grid, whose weight stays in the shared memory of its blocks: how it is
//! cut, and its text (`kernels/stationary.cuh`).

use super::{GRID_THREADS, Precision};

/// Multiply-adds per cycle that a multiprocessor's tensor cores reach in tf32.
const PER_CYCLE: f64 = 500.0;

/// Bytes per cycle that all multiprocessors together get from the L2 cache.
const L2_BYTES_PER_CYCLE: f64 = 2500.0;

/// Estimated cycles until a product's first operands are there, and of its sums over warps.
const BEGIN_CYCLES: f64 = 600.0;

/// The most accumulators of a warp, in tiles of 16 x 8.
const MOST_TILES: usize = 16;

/// Blocks that should be left for the step's other pieces, and the estimated cycles if they are not.
const SPARE: usize = 8;
const CROWDED_CYCLES: f64 = 2000.0;

/// How the blocks of a grid share the layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stationary {
    /// Rows of the batch, inputs, outputs.
    pub shape: [usize; 3],
    /// Targets of a row.
    pub targets: usize,
    /// Inputs and outputs of a block's part of the weight.
    pub part: [usize; 2],
    pub precision: Precision,
    /// Elements of shared memory.
    pub elements: usize,
    /// Estimated cycles of the forward product, of its sums by rows, and of the gradient.
    pub cycles: [f64; 3],
}

impl Stationary {
    /// The fastest division over these blocks by this estimate, if the layer fits.
    pub fn best(
        shape: [usize; 3],
        targets: usize,
        precision: Precision,
        [blocks, room]: [usize; 2],
    ) -> Option<Self> {
        let parts = (8..=128).step_by(8).flat_map(|inputs| [16, 32, 48, 64].map(|outputs| [inputs, outputs]));
        let parts = parts.filter(|[inputs, outputs]| inputs / 8 * (outputs / 16) <= MOST_TILES);
        let able = parts.map(|part| Self::new(shape, targets, part, precision, blocks));
        let able = able.filter(|own| own.blocks() <= blocks && own.elements <= room);
        able.min_by(|a, b| a.cycles.iter().sum::<f64>().total_cmp(&b.cycles.iter().sum()))
    }

    fn new(shape: [usize; 3], targets: usize, part: [usize; 2], precision: Precision, blocks: usize) -> Self {
        let ([m, _, n], [inputs, outputs]) = (shape, part);
        let warps = GRID_THREADS as usize / 32;
        let rows = m.next_multiple_of(if m > 16 * warps { 32 } else { 16 });
        let stride = if inputs % 16 == 8 { inputs } else { inputs + 8 };
        let groups = if outputs.is_multiple_of(32) { warps / 2 } else { warps };
        let batch = (rows * stride).max(groups * inputs * outputs);
        let elements = (2 * batch + inputs * (outputs + 4) + 2 * m * (1 + targets)).next_multiple_of(4);
        let own = Self { shape, targets, part, precision, elements, cycles: [0.0; 3] };
        let products = if precision == Precision::F32 { 3.0 } else { 1.0 };
        let area = (inputs * outputs) as f64;
        let product = BEGIN_CYCLES + rows as f64 * area * products / PER_CYCLE;
        let moved = (own.partials() * 4) as f64 / L2_BYTES_PER_CYCLE;
        let gradients = (own.parts()[0] * m * n * 4) as f64 / L2_BYTES_PER_CYCLE;
        let crowded = if own.blocks() + SPARE > blocks { CROWDED_CYCLES } else { 0.0 };
        let update = area / f64::from(GRID_THREADS) * 60.0;
        let cycles =
            [product + moved, BEGIN_CYCLES + moved, product + BEGIN_CYCLES + gradients + update + crowded];
        Self { cycles, ..own }
    }

    /// Parts along the inputs and along the outputs.
    pub fn parts(&self) -> [usize; 2] {
        let ([_, k, n], [inputs, outputs]) = (self.shape, self.part);
        [k.div_ceil(inputs), n.div_ceil(outputs)]
    }

    /// Blocks that have work.
    pub fn blocks(&self) -> usize {
        self.parts().iter().product()
    }

    /// Elements of the partial sums.
    pub fn partials(&self) -> usize {
        let ([m, _, n], [parts, _]) = (self.shape, self.parts());
        parts * m * n
    }

    /// Its type in the kernel.
    pub fn name(&self) -> String {
        let ([m, k, n], [inputs, outputs]) = (self.shape, self.part);
        let f32 = self.precision == Precision::F32;
        format!("Stationary<{GRID_THREADS}, {m}, {k}, {n}, {}, {inputs}, {outputs}, {f32}>", self.targets)
    }

    /// The forward product.
    pub fn forward() -> String {
        "First::forward(shared, batch.place, partials);".to_owned()
    }

    /// The sums of the `each` rows of part `part`, which the product `c` finishes.
    pub(super) fn sums(&self, each: i32) -> String {
        let ([m, _, n], [parts, _]) = (self.shape, self.parts());
        format!(
            "add_partials<{parts}, {each}, {n}, {}>(partials + part * {}, c, s);",
            m * n,
            each as usize * n
        )
    }

    /// The gradient; `finish` uses the element `held`.
    pub(super) fn gradient(finish: &str) -> String {
        format!(
            "First::gradient(shared, batch.place, own + op.at[1], [&](int i, int j, float& held, float z) {{ {finish} }});"
        )
    }
}
