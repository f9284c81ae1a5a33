//! The memory on which the ops' references run, in double precision. Written only for clarity: every device
//! is compared with it.

use super::{Hyper, Instruction, Op, Slice};

/// The memory of a reference run, and the counters that a device would keep.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// Indexed by [`BufferId`](super::BufferId).
    pub buffers: Vec<Vec<f64>>,
    /// The first row of the global batch within the epoch, or of the chunk within the validation rows.
    pub position: usize,
    /// The first row of the batch within a streamed chunk, counting only this device's rows.
    pub offset: usize,
    pub step: u64,
    pub slot: usize,
    pub seed: u64,
    /// The values for this step's update.
    pub hyper: Hyper,
    /// Running sums of the epoch and of the validation.
    pub sums: [Vec<f64>; 2],
    pub non_finite: bool,
}

impl Memory {
    pub fn run(&mut self, instructions: &[Instruction]) {
        instructions.iter().for_each(|instruction| self.execute(&instruction.op));
    }

    pub fn execute(&mut self, op: &Op) {
        op.reference(self);
    }

    pub(super) fn get(&self, s: Slice) -> Vec<f64> {
        self.buffers[s.buffer.0][s.offset..s.offset + s.len].to_vec()
    }

    pub(super) fn set(&mut self, s: Slice, values: &[f64]) {
        self.buffers[s.buffer.0][s.offset..s.offset + s.len].copy_from_slice(values);
    }

    pub(super) fn map(&mut self, s: Slice, f: impl Fn(f64) -> f64) {
        let values: Vec<f64> = self.get(s).into_iter().map(f).collect();
        self.set(s, &values);
    }

    /// Stores a gradient or, with `update`, takes a plain SGD step along it.
    pub(super) fn gradient(&mut self, to: Slice, d: &[f64], update: bool) {
        let rate = f64::from(self.hyper.rate);
        let stepped = |(v, d): (&f64, &f64)| v - rate * d;
        let values = if update { self.get(to).iter().zip(d).map(stepped).collect() } else { d.to_vec() };
        self.set(to, &values);
    }
}
