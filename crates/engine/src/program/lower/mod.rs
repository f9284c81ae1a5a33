//! Lowering: a Sequential, its loss and its optimizer become the programs of a trial.
//!
//! The backward pass computes all gradients of activations first, then all gradients of parameters. The
//! former need only their own rows, the latter need all rows. So a team of threads that divide the rows needs
//! only one barrier in between.

mod finish;
mod forward;

use std::ops::Range;

use forward::LossParts;

use super::{
    Accumulator, AllReduce, Backward, Buffer, BufferId, Layout, Log, LogTarget, Lowering, Mean, Op,
    Parameter, Phase, Program, Programs, Role, Slice, UpdateRule, Zero, aligned,
};
use crate::spec::{self, Layer, Loss, Metric, Policy};

/// The input of lowering; the plan has checked it.
#[derive(Clone, Debug, PartialEq)]
pub struct Options<'a> {
    pub layers: &'a [Layer],
    pub loss: Loss,
    pub features: usize,
    /// Elements of a row's targets: 1 for a class index.
    pub targets: usize,
    /// Whether the row's weight follows them.
    pub weighted: bool,
    pub rule: UpdateRule,
    /// Largest gradient norm, if gradients are clipped.
    pub clip: Option<f32>,
    /// The metrics to log, loss first.
    pub metrics: &'a [Metric],
    pub policy: Policy,
    pub log_slots: usize,
    /// Rows per step, over all devices.
    pub batch: usize,
    /// Rows of an epoch's last step, if fewer.
    pub last: Option<usize>,
    /// Rows of a validation chunk, and of the last one if it is smaller; `None` without validation.
    pub validation: Option<(usize, Option<usize>)>,
    /// Whether the host reads the prediction of each chunk of validation.
    pub keeps_prediction: bool,
    /// Whether rows are fetched in the order of the epoch (a permutation) rather than in file order.
    pub ordered: bool,
    /// Whether rows come in chunks, which hold only this device's share.
    pub streamed: bool,
    /// Whether the plain SGD update may be fused into the products that compute the gradients.
    pub fold_update: bool,
    /// The device that this is lowered for.
    pub shard: Shard,
}

impl<'a> Options<'a> {
    /// Steps of plain SGD on one device that fetch whole batches in file order and log the loss.
    pub fn new(layers: &'a [Layer], loss: Loss, [features, targets]: [usize; 2], batch: usize) -> Self {
        Self {
            layers,
            loss,
            features,
            targets,
            weighted: false,
            rule: UpdateRule::PLAIN_SGD,
            clip: None,
            metrics: &[Metric::Loss],
            policy: Policy::Buffered,
            log_slots: 1,
            batch,
            last: None,
            validation: None,
            keeps_prediction: false,
            ordered: false,
            streamed: false,
            fold_update: false,
            shard: Shard::WHOLE,
        }
    }
}

/// A device's index among the devices that share each batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    pub rank: usize,
    pub world_size: usize,
}

impl Shard {
    /// A single device, which has each batch to itself.
    pub const WHOLE: Self = Self { rank: 0, world_size: 1 };

    /// This device's rows of a batch. Shares differ by at most one row, and may be empty.
    pub fn rows(self, batch: usize) -> Range<usize> {
        let bound = |rank: usize| batch * rank / self.world_size;
        bound(self.rank)..bound(self.rank + 1)
    }
}

pub fn lower(options: &Options<'_>) -> Programs {
    let mut b = Builder::new(options);
    let train = b.train(options.batch);
    let train_last = options.last.map(|rows| b.train(rows));
    let (mut validate, mut validate_last) = (None, None);
    if let Some((rows, last)) = options.validation {
        validate = Some(b.validate(rows));
        validate_last = last.map(|rows| b.validate(rows));
    }
    let mut layout = b.l.layout;
    if validate.is_some() && options.shard.rank == 0 {
        layout.best = Some(BufferId(layout.buffers.len()));
        let len = layout.whole(layout.values).len;
        layout.buffers.push(Buffer { name: "best".to_owned(), len, role: Role::Best });
    }
    if options.keeps_prediction {
        let prediction = validate.as_ref().and_then(prediction_of);
        layout.prediction =
            prediction.map(|all| Slice { len: all.len / validate.as_ref().map_or(1, |v| v.rows), ..all });
    }
    Programs { layout, train, train_last, validate, validate_last }
}

/// Where a validation program leaves its `[rows, outputs]` prediction.
fn prediction_of(validate: &Program) -> Option<Slice> {
    validate.instructions.iter().find_map(|instruction| match &instruction.op {
        Op::Loss(loss) => Some(loss.prediction),
        _ => None,
    })
}

/// A program for inference with a trained model on `rows` rows, and where it leaves its `[rows, outputs]`
/// prediction.
pub fn lower_inference(
    layers: &[Layer],
    loss: Loss,
    sizes: [usize; 2],
    weighted: bool,
    rows: usize,
) -> (Programs, Slice) {
    let options = Options {
        weighted,
        metrics: &[],
        policy: Policy::Off,
        validation: Some((rows, None)),
        // Nothing is learned, so leave out the buffer for gradients.
        fold_update: true,
        ..Options::new(layers, loss, sizes, 0)
    };
    let mut b = Builder::new(&options);
    let validate = b.validate(rows);
    let prediction = prediction_of(&validate);
    let train = Program { batch: 1, rows: 0, instructions: Vec::new() };
    let programs = Programs {
        layout: b.l.layout,
        train,
        train_last: None,
        validate: Some(validate),
        validate_last: None,
    };
    (programs, prediction.unwrap_or_default())
}

struct Builder<'a> {
    o: &'a Options<'a>,
    l: Lowering,
    /// Slices of the flat buffer of values: the parameters of each layer.
    parameters: Vec<Vec<Slice>>,
    state: Option<BufferId>,
    /// The scalars of a step.
    cells: Slice,
}

/// Number of scalars of a step: log columns, a norm for clipping, the sums of a validation chunk.
const CELLS: usize = 16;
/// Holds the norm for clipping if it is not also a log column.
const NORM_CELL: usize = 7;
const VALIDATION_LOSS_CELL: usize = 8;
const VALIDATION_HITS_CELL: usize = VALIDATION_LOSS_CELL + 1;

/// The flat buffer of all parameters; it comes after the four data buffers and the order.
const VALUES: BufferId = BufferId(5);

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
        let (parameters, views, end) = parameters(o);
        let values = add("values", end, Role::Values);
        let norm = o.metrics.contains(&Metric::GradNorm) || o.clip.is_some();
        let alone = o.shard.world_size == 1;
        let folds = o.fold_update && o.rule.is_plain() && !norm && alone;
        // On several devices the cells follow the gradients, so that one all-reduce sums both.
        let cells_behind = if alone { 0 } else { CELLS };
        let gradients = (!folds).then(|| add("gradients", end + cells_behind, Role::Gradients));
        let cells = match gradients.filter(|_| !alone) {
            Some(buffer) => Slice { buffer, offset: end, len: CELLS },
            None => Slice { buffer: add("cells", CELLS, Role::Cells), offset: 0, len: CELLS },
        };
        let per = o.rule.state_per_parameter();
        let state = (per > 0).then(|| add("optimizer_state", per * end, Role::State));
        let log_width = o.metrics.iter().filter(|metric| metric.is_logged()).count();
        let log = add("log", o.log_slots * log_width, Role::Log);
        let shares = [o.batch, o.validation.map_or(0, |(rows, _)| rows)].map(|rows| o.shard.rows(rows).len());
        // A device may have no rows in an epoch's last batch; its buffers are sized for the full batch.
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
            best: None,
            prediction: None,
            log,
            log_width,
            log_slots: o.log_slots,
        };
        Self { o, l: Lowering::new(layout, rows, gradients), parameters: views, state, cells }
    }

    fn cell(&self, index: usize) -> Slice {
        Slice { offset: self.cells.offset + index, len: 1, ..self.cells }
    }

    /// The buffer of all gradients, without the cells that follow them.
    fn all_gradients(&self) -> Option<Slice> {
        let len = self.l.layout.buffers[self.l.layout.values.0].len;
        self.l.gradients.map(|buffer| Slice { buffer, offset: 0, len })
    }

    /// Begins a program; returns how many rows of the batch this device has.
    fn begin(&mut self, batch: usize, training: bool) -> usize {
        let share = self.o.shard.rows(batch);
        (self.l.rows, self.l.first, self.l.training) = (share.len(), share.start, training);
        self.l.rows
    }

    fn end(&mut self, batch: usize) -> Program {
        Program { batch, rows: self.l.rows, instructions: std::mem::take(&mut self.l.out) }
    }

    fn validate(&mut self, batch: usize) -> Program {
        let rows = self.begin(batch, false);
        if rows == 0 {
            return self.end(batch);
        }
        let (prediction, target) = self.forward();
        let parts = self.loss(batch, prediction, target);
        let loss = self.cell(VALIDATION_LOSS_CELL);
        // Sums, not means: a count of hits is exact, and so is dividing it by the number of rows at the end.
        let scale = if self.o.loss.classifies() { 1.0 } else { 1.0 / (prediction.len / rows) as f64 };
        self.l.push(Mean { of: parts.per_row, cell: loss, scale }, Phase::Loss);
        let mut cells = loss;
        if let Some(hits) = parts.hits {
            cells.len = 2;
            self.l.push(Mean { of: hits, cell: self.cell(VALIDATION_HITS_CELL), scale: 1.0 }, Phase::Log);
        }
        let to = LogTarget::Sums { rows: 1, weighted: false, sums: Accumulator::Validation };
        self.l.push(Log { cells, to }, Phase::Log);
        self.end(batch)
    }

    fn train(&mut self, batch: usize) -> Program {
        let rows = self.begin(batch, true);
        if let (0, Some(of)) = (rows, self.l.gradients) {
            let of = self.l.layout.whole(of);
            self.l.push(Zero { of }, Phase::Backward);
        } else {
            let (prediction, target) = self.forward();
            let forward = self.l.out.len();
            let parts = self.loss(batch, prediction, target);
            if let Some(gradient) = parts.gradient {
                self.backward(forward, gradient);
            }
            self.means(batch, &parts);
            if self.l.folds {
                self.norm_before_update();
            }
            let mut updates = std::mem::take(&mut self.l.later);
            self.l.out.append(&mut updates);
        }
        if let Some(of) = self.l.gradients.filter(|_| self.o.shard.world_size > 1) {
            let of = self.l.layout.whole(of);
            let means = self.columns().filter(|(_, m)| matches!(m, Metric::Loss | Metric::Accuracy)).count();
            let payload = self.l.layout.parameter_count() as usize + means;
            self.l.push(AllReduce { of, payload }, Phase::AllReduce);
        }
        if !self.l.folds {
            self.norm_before_update();
        }
        self.update();
        // The cells are equal on all devices here, so only the first one logs them.
        if self.o.shard.rank == 0 {
            self.log(batch);
        }
        self.end(batch)
    }

    /// Emits the backward pass of the first `forward` instructions: gradients of activations, then of
    /// parameters.
    fn backward(&mut self, forward: usize, gradient: Slice) {
        // Instruction 0 gathers the batch, so it is skipped.
        let links: Vec<Op> = self.l.out[1..forward].iter().map(|i| i.op.clone()).collect();
        let Some(first) = links.iter().position(|op| op.learns()) else { return };
        let (mut dy, mut through) = (gradient, false);
        for (link, op) in links.iter().enumerate().skip(first).rev() {
            let before = if link > first { Some(&links[link - 1]) } else { None };
            (dy, through) = op.backward(&mut self.l, Backward { dy, through, link, before });
        }
    }

    /// The log's columns.
    fn columns(&self) -> impl Iterator<Item = (usize, Metric)> + use<'a> {
        self.o.metrics.iter().copied().filter(|metric| metric.is_logged()).enumerate()
    }
}

/// All parameters, their slices by layer, and the length of the flat buffer.
fn parameters(o: &Options<'_>) -> (Vec<Parameter>, Vec<Vec<Slice>>, usize) {
    let (mut parameters, mut views) = (Vec::new(), Vec::new());
    let (mut end, mut width) = (0, o.features);
    for (i, layer) in o.layers.iter().enumerate() {
        let mut own = Vec::new();
        for spec::Parameter { name, shape, constant } in layer.parameters(width) {
            let parameter = Parameter { name: format!("{i}.{name}"), shape, offset: end, constant };
            own.push(Slice { buffer: VALUES, offset: end, len: parameter.elements() });
            end = aligned(end + parameter.elements());
            parameters.push(parameter);
        }
        views.push(own);
        width = layer.outputs(width);
    }
    (parameters, views, end)
}
