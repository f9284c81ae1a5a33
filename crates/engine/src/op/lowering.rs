//! What the layers' ops need while a program is lowered: buffers by name, and where gradients go.

use std::collections::HashMap;

use super::{BufferId, Instruction, Layout, Op, Phase, Role, Slice, layout::Buffer};

/// A program under construction. Gradients of parameters are kept in `later`, since they follow all gradients
/// of activations.
pub struct Lowering {
    pub layout: Layout,
    /// Activation buffers by name; each is created at its first use.
    named: HashMap<String, BufferId>,
    /// Rows of the largest program; buffers are sized for it.
    most_rows: usize,
    /// The flat buffer of gradients; `None` if the plain SGD update is fused into the products.
    pub gradients: Option<BufferId>,
    pub folds: bool,
    /// Rows of this program on this device.
    pub rows: usize,
    /// The first of these rows within the global batch.
    pub first: usize,
    pub training: bool,
    pub out: Vec<Instruction>,
    pub later: Vec<Instruction>,
}

/// The state of the backward pass when it reaches an op of the forward pass.
pub struct Backward<'a> {
    pub dy: Slice,
    /// Whether `dy` is already the gradient before the op's own activation.
    pub through: bool,
    /// The op's index among those of the forward pass.
    pub link: usize,
    /// The preceding op, if it or an earlier one has parameters. Otherwise no gradient of the input is
    /// needed.
    pub before: Option<&'a Op>,
}

impl Lowering {
    pub fn new(layout: Layout, most_rows: usize, gradients: Option<BufferId>) -> Self {
        Self {
            layout,
            named: HashMap::new(),
            most_rows,
            gradients,
            folds: gradients.is_none(),
            rows: 0,
            first: 0,
            training: false,
            out: Vec::new(),
            later: Vec::new(),
        }
    }

    /// `[rows, width]` of the activation buffer with this name, which is created at its first use.
    pub fn rows_of(&mut self, name: &str, width: usize) -> Slice {
        let buffer = match self.named.get(name) {
            Some(id) => *id,
            None => {
                let (id, len) = (BufferId(self.layout.buffers.len()), self.most_rows * width);
                self.layout.buffers.push(Buffer { name: name.to_owned(), len, role: Role::Activation });
                self.named.insert(name.to_owned(), id);
                id
            }
        };
        Slice { buffer, offset: 0, len: self.rows * width }
    }

    /// Where a parameter's gradient goes; the parameter itself if the update is fused.
    pub fn gradient_of(&self, parameter: Slice) -> Slice {
        Slice { buffer: self.gradients.unwrap_or(parameter.buffer), ..parameter }
    }

    pub fn push(&mut self, op: impl Into<Op>, phase: Phase) {
        self.out.push(Instruction { op: op.into(), phase });
    }

    pub(super) fn forward(&mut self, op: impl Into<Op>) {
        self.push(op, Phase::Forward);
    }

    pub(super) fn backward(&mut self, op: impl Into<Op>) {
        self.push(op, Phase::Backward);
    }

    pub(super) fn parameters(&mut self, op: impl Into<Op>) {
        self.later.push(Instruction { op: op.into(), phase: Phase::Backward });
    }
}
