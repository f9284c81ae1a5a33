//! The offset of each buffer of a trial in the device's one block of memory, the arena.
//!
//! First come the buffers that persist from step to step: parameters, the optimizer's state, gradients (with
//! gaps between parameters that stay zero), and a step's scalars. Temporary buffers follow. These have two
//! layouts over the same memory, one for training and one for validation, since the two never run at the same
//! time. So a small model's training is not enlarged by validation's larger chunks, and may fit a
//! multiprocessor's shared memory.

use std::collections::BTreeMap;

use super::{ALIGN, Buffer, BufferId, Layout, Program, Programs, Role, Slice};

/// The offsets for one kind of program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offsets {
    /// First element and length of each buffer.
    bases: BTreeMap<BufferId, (usize, usize)>,
    /// Elements from the start of the arena to the end of the last buffer.
    pub elements: usize,
}

impl Offsets {
    /// First element of a slice; `None` if its buffer is not in the arena, or is shorter than the slice.
    pub fn offset(&self, slice: Slice) -> Option<u64> {
        let (base, len) = *self.bases.get(&slice.buffer)?;
        (slice.offset.checked_add(slice.len)? <= len).then_some((base + slice.offset) as u64)
    }

    fn add(&mut self, buffer: BufferId, elements: usize) {
        self.bases.insert(buffer, (self.elements, elements));
        self.elements = (self.elements + elements).next_multiple_of(ALIGN);
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryPlan {
    pub train: Offsets,
    pub validate: Offsets,
    /// The prediction's buffer, which the host reads at its offset in the validation layout.
    prediction: Option<BufferId>,
}

impl MemoryPlan {
    pub fn new(programs: &Programs) -> Self {
        let layout = &programs.layout;
        let mut lasting = Offsets::default();
        for (i, buffer) in layout.buffers.iter().enumerate() {
            if matches!(buffer.role, Role::Values | Role::Gradients | Role::State | Role::Cells) {
                lasting.add(BufferId(i), buffer.len);
            }
        }
        let behind = |programs: [Option<&Program>; 2], all: &[(BufferId, usize)]| {
            let mut places = lasting.clone();
            let mut extents = extents(programs, layout.buffers.len());
            extents.extend(all.iter().copied());
            for (buffer, elements) in extents {
                if !places.bases.contains_key(&buffer) {
                    places.add(buffer, elements);
                }
            }
            places
        };
        // Without validation no buffer is sized by it, so all activations are placed in full.
        let whole = |(i, buffer): (usize, &Buffer)| {
            let lies_here = buffer.role == Role::Activation;
            lies_here.then_some((BufferId(i), buffer.len))
        };
        let alone = programs.validate.is_none();
        let all: Vec<_> = layout.buffers.iter().enumerate().filter(|_| alone).filter_map(whole).collect();
        Self {
            train: behind([Some(&programs.train), programs.train_last.as_ref()], &all),
            validate: behind([programs.validate.as_ref(), programs.validate_last.as_ref()], &[]),
            prediction: layout.prediction.map(|row| row.buffer),
        }
    }

    /// Adds room for the best values, after the memory that steps use.
    pub fn with_best(mut self, layout: &Layout) -> Self {
        layout.best.into_iter().for_each(|best| self.add(best, layout.whole(best).len));
        self
    }

    pub fn elements(&self) -> usize {
        self.train.elements.max(self.validate.elements)
    }

    /// Adds a buffer after all others, at the same offset for training and validation.
    pub fn add(&mut self, buffer: BufferId, elements: usize) {
        let end = self.elements();
        for offsets in [&mut self.train, &mut self.validate] {
            offsets.elements = end;
            offsets.add(buffer, elements);
        }
    }

    /// First element and length of a buffer, in training and in validation.
    pub fn places(&self, buffer: BufferId) -> impl Iterator<Item = (usize, usize)> + use<'_> {
        [&self.train, &self.validate].into_iter().filter_map(move |o| o.bases.get(&buffer).copied())
    }

    /// The offset at which the host reads and writes a slice.
    pub fn place(&self, slice: Slice) -> Option<u64> {
        if self.prediction == Some(slice.buffer) {
            return self.validate.offset(slice);
        }
        self.train.offset(slice).or_else(|| self.validate.offset(slice))
    }
}

/// How much of each buffer the programs use. Neither the log nor the data are part of the arena.
fn extents(programs: [Option<&Program>; 2], buffers: usize) -> BTreeMap<BufferId, usize> {
    let mut extents = BTreeMap::new();
    let instructions = programs.into_iter().flatten().flat_map(|program| &program.instructions);
    for slice in instructions.flat_map(|instruction| instruction.op.access().touched()) {
        // Higher ids stand for things that are not in the arena.
        if slice.len > 0 && slice.buffer.0 < buffers {
            let extent = extents.entry(slice.buffer).or_default();
            *extent = slice.offset.saturating_add(slice.len).max(*extent);
        }
    }
    extents
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::{Gather, Instruction, Op, Phase, RowSource, Zero};

    #[test]
    fn validation_lies_over_what_training_makes_anew() {
        let buffer = |(len, role)| Buffer { name: String::new(), len, role };
        let data = [(0, Role::Data); 5];
        let lasting = [(5, Role::Values), (0, Role::Log), (5, Role::Gradients), (10, Role::State)];
        let buffers = [&data[..], &lasting, &[(600, Role::Activation), (300, Role::Activation)]].concat();
        let layout = Layout::bare(buffers.into_iter().map(buffer).collect());
        let slice = |buffer, len| Slice { buffer: BufferId(buffer), offset: 0, len };
        let program = |rows: usize, more: Option<Op>| {
            let gather = Gather {
                features: BufferId(0),
                targets: BufferId(1),
                source: RowSource::Position,
                first: 0,
                x: slice(9, 2 * rows),
                y: slice(10, rows),
                rows,
                width: 2,
                target_width: 1,
            };
            let ops = [Some(gather.into()), more].into_iter().flatten();
            let instructions = ops.map(|op| Instruction { op, phase: Phase::Data }).collect();
            Program { batch: rows, rows, instructions }
        };
        let programs = Programs {
            layout,
            train: program(10, Some(Zero { of: slice(7, 5) }.into())),
            train_last: Some(program(3, None)),
            validate: Some(program(300, None)),
            validate_last: None,
        };
        let arena = MemoryPlan::new(&programs);
        let at = |places: &Offsets, buffer| places.offset(slice(buffer, 1));
        assert_eq!([5, 7, 8, 9, 10].map(|buffer| at(&arena.train, buffer)), [0, 16, 32, 48, 80].map(Some));
        assert_eq!(arena.train.elements, 96);
        assert_eq!([9, 10].map(|buffer| at(&arena.validate, buffer)), [48, 656].map(Some));
        assert_eq!(arena.elements(), arena.validate.elements);
    }
}
