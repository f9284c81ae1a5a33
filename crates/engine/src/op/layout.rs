//! Buffers: the memory that a trial needs, planned before anything runs.

use std::ops::Range;

/// The alignment of every parameter and buffer, in elements: one cache line.
pub const ALIGN: usize = 16;

pub fn aligned(len: usize) -> usize {
    len.div_ceil(ALIGN) * ALIGN
}

#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
pub struct BufferId(pub usize);

/// A range of elements within a buffer. Scratch buffers of CPU tasks are numbered after the layout's buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Slice {
    pub buffer: BufferId,
    pub offset: usize,
    pub len: usize,
}

impl Slice {
    pub fn end(self) -> usize {
        self.offset + self.len
    }

    /// A part of the slice.
    ///
    /// # Panics
    /// If the part is not within the slice.
    pub fn part(self, part: Range<usize>) -> Self {
        assert!(part.end <= self.len, "a part lies within its slice");
        Self { offset: self.offset + part.start, len: part.len(), ..self }
    }

    pub fn overlaps(self, other: Self) -> bool {
        let in_both = self.buffer == other.buffer && self.len > 0 && other.len > 0;
        in_both && self.offset < other.end() && other.offset < self.end()
    }

    pub fn rows(self, rows: &Range<usize>, width: usize) -> Self {
        self.part(rows.start * width..rows.end * width)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Rows of data, bound to the device once or streamed; not part of the arena.
    Data,
    /// All parameters in one flat buffer.
    Values,
    Gradients,
    State,
    /// An intermediate result of a step.
    Activation,
    /// Scalars of a step: loss, norms.
    Cells,
    /// Rows of metrics that the host has not read yet.
    Log,
    /// A copy of the values with the best validation; no instruction uses it.
    Best,
}

/// A named array of f32 (u32 for the order of rows).
#[derive(Clone, Debug, PartialEq)]
pub struct Buffer {
    pub name: String,
    /// Number of its elements; 0 for data, whose size depends on the source.
    pub len: usize,
    pub role: Role,
}

/// A weight or bias: a view of the flat buffer of values (and of those of gradients and state, at the same
/// offset).
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// Its name in PyTorch's `nn.Sequential`: `0.weight`.
    pub name: String,
    /// `[in, out]` for a weight, `[out]` for a bias.
    pub shape: Vec<usize>,
    /// Its first element within the flat buffer.
    pub offset: usize,
    /// The value of all its elements at the start, whatever `model.init` says.
    pub constant: Option<f32>,
}

impl Parameter {
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// The layer's number, as its name has it.
    pub fn layer(&self) -> &str {
        self.name.split('.').next().unwrap_or_default()
    }
}

/// All buffers of a trial on one device.
#[derive(Clone, Debug, PartialEq)]
pub struct Layout {
    /// Indexed by [`BufferId`].
    pub buffers: Vec<Buffer>,
    /// In the order of the layers.
    pub parameters: Vec<Parameter>,
    /// Training rows: `[rows, features]`.
    pub train_features: BufferId,
    /// `[rows, targets]`.
    pub train_targets: BufferId,
    pub validation_features: BufferId,
    pub validation_targets: BufferId,
    /// The epoch's order of rows, u32.
    pub order: BufferId,
    pub values: BufferId,
    /// On the first device, if the run validates.
    pub best: Option<BufferId>,
    /// A row of a validation's prediction, the first of a chunk, if the host reads predictions.
    pub prediction: Option<Slice>,
    /// `[slots, log_width]`.
    pub log: BufferId,
    /// Elements per logged step: all metrics except `lr`.
    pub log_width: usize,
    pub log_slots: usize,
}

impl Layout {
    /// A layout that belongs to no trial, for programs of single instructions. The first seven buffers are
    /// the data, their order, the parameters and a log of one element, in the order of the fields; those that
    /// a program does not use may be missing.
    pub fn bare(buffers: Vec<Buffer>) -> Self {
        let id = BufferId;
        Self {
            buffers,
            parameters: Vec::new(),
            train_features: id(0),
            train_targets: id(1),
            validation_features: id(2),
            validation_targets: id(3),
            order: id(4),
            values: id(5),
            best: None,
            prediction: None,
            log: id(6),
            log_width: 1,
            log_slots: 1,
        }
    }

    /// The index of a buffer of rows: training features and targets, validation features and targets.
    pub fn data_number(&self, buffer: BufferId) -> Option<usize> {
        let all =
            [self.train_features, self.train_targets, self.validation_features, self.validation_targets];
        all.iter().position(|data| *data == buffer)
    }

    pub fn whole(&self, buffer: BufferId) -> Slice {
        Slice { buffer, offset: 0, len: self.buffers[buffer.0].len }
    }

    /// The slice of the whole buffer, if there is one with this role.
    pub fn of_role(&self, role: Role) -> Option<Slice> {
        let place = self.buffers.iter().position(|buffer| buffer.role == role)?;
        Some(self.whole(BufferId(place)))
    }

    pub fn parameter_count(&self) -> u64 {
        self.parameters.iter().map(|p| p.elements() as u64).sum()
    }
}
