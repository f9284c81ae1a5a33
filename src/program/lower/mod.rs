//! Lowering: a Sequential, its loss and its optimizer become the programs of a trial.
//!
//! The backward pass is laid out so that all gradients of activations come first, then all gradients of parameters:
//! the first kind needs only its own rows, the second needs all of them, so that a team of threads that share rows
//! meets but once in between.

mod backward;
mod finish;
mod forward;

use std::{collections::HashMap, ops::Range};

use forward::LossParts;

use super::{
    Accumulator, Activation, Instruction, Op, Phase, Program, Programs, UpdateRule,
    layout::{Buffer, BufferId, Layout, Parameter, Role, Slice, aligned},
};
use crate::spec::{Layer, Loss, Metric, Policy};

/// What lowering needs to know; the plan has checked it.
#[derive(Clone, Debug, PartialEq)]
pub struct Options<'a> {
    /// The Sequential.
    pub layers: &'a [Layer],
    /// What is minimized.
    pub loss: Loss,
    /// Width of a row of features.
    pub features: usize,
    /// Width of a row of targets (1 for a class).
    pub targets: usize,
    /// How parameters are updated.
    pub rule: UpdateRule,
    /// Largest gradient norm, where it is clipped.
    pub clip: Option<f32>,
    /// Columns, loss first.
    pub metrics: &'a [Metric],
    /// When rows leave the device.
    pub policy: Policy,
    /// Steps that the log holds.
    pub log_slots: usize,
    /// Rows per step, over all devices.
    pub batch: usize,
    /// Rows of an epoch's last step, where fewer.
    pub last: Option<usize>,
    /// Rows per chunk of validation and of its last chunk, where there are any.
    pub validation: Option<(usize, Option<usize>)>,
    /// Whether rows are fetched by the epoch's order.
    pub ordered: bool,
    /// Whether rows come in chunks that hold a device's own rows.
    pub streamed: bool,
    /// Whether the plain SGD update may be folded into the products that make the gradients.
    pub fold_update: bool,
    /// Which of the devices this is for.
    pub shard: Shard,
}

/// One of the devices that share each batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Which, from 0.
    pub rank: usize,
    /// How many there are.
    pub world_size: usize,
}

impl Shard {
    /// A device that has each batch to itself.
    pub const WHOLE: Self = Self { rank: 0, world_size: 1 };

    /// Its rows of a batch: shares differ by one row at most, and may be empty.
    pub fn rows(self, batch: usize) -> Range<usize> {
        let bound = |rank: usize| batch * rank / self.world_size;
        bound(self.rank)..bound(self.rank + 1)
    }
}

/// Builds all programs of a trial.
pub fn lower(options: &Options<'_>) -> Programs {
    let mut b = Builder::new(options);
    let train = b.train(options.batch);
    let train_last = options.last.map(|rows| b.train(rows));
    let (mut validate, mut validate_last) = (None, None);
    if let Some((rows, last)) = options.validation {
        validate = Some(b.validate(rows));
        validate_last = last.map(|rows| b.validate(rows));
    }
    Programs { layout: b.layout, train, train_last, validate, validate_last }
}

/// A parameter layer's views of the flat buffers.
#[derive(Clone, Copy)]
struct Learned {
    weight: Slice,
    bias: Option<Slice>,
}

/// One link of the forward pass, with what the backward pass needs of it.
enum TapeEntry {
    Linear {
        learned: Learned,
        x: Slice,
        activation: Option<(Activation, Slice)>,
        inputs: usize,
        outputs: usize,
    },
    Activate {
        activation: Activation,
        saved: Slice,
        width: usize,
    },
    Dropout {
        p: f32,
        layer: u32,
        width: usize,
    },
}

struct Builder<'a> {
    o: &'a Options<'a>,
    layout: Layout,
    /// Of the layout, those made at their first use.
    named: HashMap<String, BufferId>,
    learned: Vec<Option<Learned>>,
    gradients: Option<BufferId>,
    state: Option<BufferId>,
    /// Room for the scalars of a step.
    cells: Slice,
    rows: usize,
    folds: bool,
}

/// Scalars of a step: the columns of the log, a norm for clipping, the sums of a validation chunk.
const CELLS: usize = 16;

impl<'a> Builder<'a> {
    fn new(o: &'a Options<'a>) -> Self {
        let mut buffers = Vec::new();
        let mut add = |name: &str, len, role| {
            buffers.push(Buffer { name: name.to_owned(), len, role });
            BufferId(buffers.len() - 1)
        };
        let train_features = add("train_features", 0, Role::Data);
        let train_targets = add("train_targets", 0, Role::Data);
        let validation_features = add("validation_features", 0, Role::Data);
        let validation_targets = add("validation_targets", 0, Role::Data);
        let order = add("order", 0, Role::Data);
        let mut parameters = Vec::new();
        let mut learned = Vec::new();
        let (mut end, mut width) = (0, o.features);
        let values = BufferId(5);
        for (i, layer) in o.layers.iter().enumerate() {
            let Layer::Linear(linear) = layer else {
                learned.push(None);
                continue;
            };
            let mut view = |name, shape: Vec<usize>| {
                let parameter = Parameter { name, shape, offset: end };
                let slice = Slice { buffer: values, offset: end, len: parameter.elements() };
                end = aligned(end + parameter.elements());
                parameters.push(parameter);
                slice
            };
            let weight = view(format!("{i}.weight"), vec![width, linear.out_features]);
            let bias = linear.bias.then(|| view(format!("{i}.bias"), vec![linear.out_features]));
            learned.push(Some(Learned { weight, bias }));
            width = linear.out_features;
        }
        let values = add("values", end, Role::Values);
        let norm = o.metrics.contains(&Metric::GradNorm) || o.clip.is_some();
        let plain = matches!(o.rule, UpdateRule::Sgd { momentum: false, weight_decay: 0.0, .. });
        let alone = o.shard.world_size == 1;
        let folds = o.fold_update && plain && !norm && alone;
        // On several devices the cells stand behind the gradients, so that one sum serves both.
        let cells_behind = if alone { 0 } else { CELLS };
        let gradients = (!folds).then(|| add("gradients", end + cells_behind, Role::Gradients));
        let cells = match gradients.filter(|_| !alone) {
            Some(buffer) => Slice { buffer, offset: end, len: CELLS },
            None => Slice { buffer: add("cells", CELLS, Role::Cells), offset: 0, len: CELLS },
        };
        let per = o.rule.state_per_parameter();
        let state = (per > 0).then(|| add("optimizer_state", per * end, Role::State));
        let log_width = o.metrics.iter().filter(|m| **m != Metric::Lr).count();
        let log = add("log", o.log_slots * log_width, Role::Log);
        let shares = [o.batch, o.validation.map_or(0, |(rows, _)| rows)].map(|rows| o.shard.rows(rows).len());
        // An empty last share is no reason for an empty buffer: the full one decides.
        let rows = shares.into_iter().fold(o.last.map_or(0, |rows| o.shard.rows(rows).len()), usize::max);
        let layout = Layout {
            buffers,
            parameters,
            train_features,
            train_targets,
            validation_features,
            validation_targets,
            order,
            values,
            log,
            log_width,
            log_slots: o.log_slots,
        };
        Self { o, layout, named: HashMap::new(), learned, gradients, state, cells, rows, folds }
    }

    /// A buffer by name, made at its first use with room for the largest program.
    fn buffer(&mut self, name: &str, len: usize, role: Role) -> BufferId {
        if let Some(id) = self.named.get(name) {
            return *id;
        }
        let id = BufferId(self.layout.buffers.len());
        self.layout.buffers.push(Buffer { name: name.to_owned(), len, role });
        self.named.insert(name.to_owned(), id);
        id
    }

    /// `[rows, width]` of an activation buffer that has room for the largest program.
    fn rows_of(&mut self, name: &str, rows: usize, width: usize) -> Slice {
        let buffer = self.buffer(name, self.rows * width, Role::Activation);
        Slice { buffer, offset: 0, len: rows * width }
    }

    fn cell(&self, index: usize) -> Slice {
        Slice { offset: self.cells.offset + index, len: 1, ..self.cells }
    }

    /// All gradients without the cells behind them.
    fn all_gradients(&self) -> Option<Slice> {
        let len = self.layout.buffers[self.layout.values.0].len;
        self.gradients.map(|buffer| Slice { buffer, offset: 0, len })
    }

    fn validate(&mut self, batch: usize) -> Program {
        let mut out = Vec::new();
        let share = self.o.shard.rows(batch);
        let rows = share.len();
        if rows == 0 {
            return Program { batch, rows, instructions: out };
        }
        let (_, prediction, target) = self.forward(share, false, &mut out);
        let parts = self.loss(rows, batch, prediction, target, false, &mut out);
        let loss = self.cell(8);
        // Sums, not means: a count of hits is exact, and so is its quotient by all rows in the end.
        let scale = if self.o.loss.classifies() { 1.0 } else { 1.0 / (prediction.len / rows) as f64 };
        let mean = Op::Mean { of: parts.per_row, cell: loss, scale };
        out.push(Instruction { op: mean, phase: Phase::Loss });
        let mut cells = loss;
        if let Some(hits) = parts.hits {
            cells.len = 2;
            let op = Op::Mean { of: hits, cell: self.cell(9), scale: 1.0 };
            out.push(Instruction { op, phase: Phase::Log });
        }
        out.push(Instruction {
            op: Op::Accumulate { cells, rows: 1, sums: Accumulator::Validation },
            phase: Phase::Log,
        });
        Program { batch, rows, instructions: out }
    }

    fn train(&mut self, batch: usize) -> Program {
        let mut out = Vec::new();
        let share = self.o.shard.rows(batch);
        let rows = share.len();
        if let (0, Some(of)) = (rows, self.gradients) {
            let of = self.layout.whole(of);
            out.push(Instruction { op: Op::Zero { of }, phase: Phase::Backward });
        } else {
            let first = share.start;
            let (links, prediction, target) = self.forward(share, true, &mut out);
            let parts = self.loss(rows, batch, prediction, target, true, &mut out);
            let mut updates = Vec::new();
            if let Some(gradient) = parts.gradient {
                self.backward(rows, first, &links, gradient, &mut out, &mut updates);
            }
            self.means(batch, &parts, &mut out);
            if self.folds {
                self.norm_before_update(&mut out);
            }
            out.append(&mut updates);
        }
        if let Some(of) = self.gradients.filter(|_| self.o.shard.world_size > 1) {
            let of = self.layout.whole(of);
            out.push(Instruction { op: Op::AllReduce { of }, phase: Phase::AllReduce });
        }
        if !self.folds {
            self.norm_before_update(&mut out);
        }
        self.update(&mut out);
        // All devices have the same numbers then: the first one keeps them.
        if self.o.shard.rank == 0 {
            self.log(batch, &mut out);
        }
        Program { batch, rows, instructions: out }
    }

    /// The log's columns: the rates are the host's.
    fn columns(&self) -> impl Iterator<Item = (usize, Metric)> + use<'a> {
        self.o.metrics.iter().copied().filter(|m| *m != Metric::Lr).enumerate()
    }
}
