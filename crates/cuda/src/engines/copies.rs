//! Which bfloat16 copies of operands are up to date while a step's launches are planned, in their order.

use crate::{
    op::{Activation, FLAG_RELU_INPUT, Kind, NONE, Op, Record, Slice, product},
    program::{Bf16Copies, Offsets, Program, library_operands},
};

/// A copy that is due before a product: offsets in elements from the arena's base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conversion {
    pub from: u64,
    pub to: u64,
    /// Elements of the operand.
    pub n: u64,
}

pub struct Copies<'a> {
    table: Bf16Copies,
    /// Where the copies begin.
    base: u64,
    places: &'a Offsets,
    current: Vec<Slice>,
    /// What is read in f32.
    needed: Vec<Slice>,
    /// Results that have a copy, by launch.
    results: Vec<(usize, Slice)>,
}

impl<'a> Copies<'a> {
    /// `needed`: what others than the program's instructions read.
    pub fn new(program: &Program, base: u64, places: &'a Offsets, needed: Option<Slice>) -> Self {
        let (table, needed) = (Bf16Copies::new(program), needed.into_iter().collect());
        Self { table, base, places, current: Vec::new(), needed, results: Vec::new() }
    }

    fn place(&self, operand: Slice) -> Option<u64> {
        self.table.place(operand).map(|place| self.base + place as u64)
    }

    /// Where the copies of a product's operands are, in the order of what it reads.
    pub fn operands(&self, op: &Op) -> Option<[u64; 2]> {
        let [left, right] = library_operands(op)?;
        Some([self.place(left)?, self.place(right)?])
    }

    /// What has to be copied before a product that reads the copies of its operands.
    pub fn due(&mut self, op: &Op) -> Vec<Conversion> {
        let mut due = Vec::new();
        for operand in library_operands(op).into_iter().flatten() {
            if self.current.contains(&operand) {
                continue;
            }
            if let (Some(from), Some(to)) = (self.places.offset(operand), self.place(operand)) {
                due.push(Conversion { from, to, n: operand.len as u64 });
                self.current.push(operand);
                self.needed.push(operand);
            }
        }
        due
    }

    /// Notes what an instruction reads in f32. `by_copies`: its product reads the copies of its operands. `last`, the
    /// record of its last kernel, is made to read a copy where that gives the same numbers: RELU's derivative needs only
    /// a sign, a product's operand is rounded anyway.
    pub fn read(&mut self, op: &Op, by_copies: bool, last: Option<&mut Record>) {
        let operands = library_operands(op).filter(|_| by_copies).unwrap_or_default();
        let mut in_f32: Vec<Slice> = op.access().reads.to_vec();
        in_f32.retain(|read| read.len > 0 && !operands.contains(read));
        let mut last = last;
        // What leaves RELU to it has no copy yet; it writes that of what it has applied RELU to.
        if let (Op::Linear(op), Some(last)) =
            (op, last.as_deref_mut().filter(|last| last.flags & FLAG_RELU_INPUT != 0))
            && !self.current.contains(&op.x)
            && let Some(copy) = self.place(op.x)
        {
            last.at[6] = copy;
            self.current.push(op.x);
            self.needed.extend(in_f32);
            return;
        }
        let slot = last.and_then(|last| match last.kind() {
            Kind::Linear if is_slim(last) => Some((last.at[0], last, 5)),
            Kind::InputGradient if is_slim(last) && keeps_sign(last) => Some((last.at[3], last, 7)),
            Kind::ActivateBackward if last.at[3] != NONE && keeps_sign(last) => Some((last.at[0], last, 4)),
            _ => None,
        });
        if let Some((from, last, to)) = slot
            && let Some(saved) = self.current.iter().find(|copied| self.places.offset(**copied) == Some(from))
            && let Some(copy) = self.place(*saved)
        {
            last.at[to] = copy;
            in_f32.retain(|read| read != saved);
        }
        self.needed.extend(in_f32);
    }

    /// Notes what an instruction writes. `last`, the record of the kernel that writes it, is made to write the
    /// copy too, if there is one and the kernel can. `launch`: its number.
    pub fn written(&mut self, op: &Op, last: Option<&mut Record>, launch: usize) {
        let writes = op.access().writes;
        self.current.retain(|slice| !writes.iter().any(|written| written.overlaps(*slice)));
        let Some(last) = last else { return };
        let Some((of, copy)) = copy_slots(last) else { return };
        let is_result = |slice: &&Slice| slice.len > 0 && self.places.offset(**slice) == Some(last.at[of]);
        let Some(result) = writes.iter().find(is_result) else { return };
        if let Some(place) = self.place(*result) {
            last.at[copy] = place;
            self.current.push(*result);
            self.results.push((launch, *result));
        }
    }

    /// The launches of whose results only the copies are read.
    pub fn copy_only(&self) -> impl Iterator<Item = usize> {
        let is_needed = |of: &Slice| self.needed.iter().any(|needed| needed.overlaps(*of));
        self.results.iter().filter(move |(_, result)| !is_needed(result)).map(|(launch, _)| *launch)
    }
}

fn is_slim(record: &Record) -> bool {
    product::is_slim(record.kind(), [record.rows, record.inputs, record.outputs])
}

/// Whether the activation's derivative is the same for a copy of what it is computed from.
fn keeps_sign(record: &Record) -> bool {
    record.activation <= Activation::number(Some(Activation::Relu))
}

/// Which of a record's places are those of its result and of the result's copy.
fn copy_slots(record: &Record) -> Option<(usize, usize)> {
    match record.kind() {
        Kind::Gather => Some((0, 2)),
        Kind::Activate | Kind::ActivateBackward => Some((1, 2)),
        Kind::InputGradient if is_slim(record) => Some((2, 6)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        op::{Activation, Buffer, BufferId, Instruction, Layout, Linear, Phase, Role, Zero},
        program::{MemoryPlan, Programs},
    };

    #[test]
    fn a_copy_is_made_once_and_again_when_its_operand_was_written() {
        let (rows, inputs, outputs) = (200, 300, 512);
        let sizes =
            [(0, Role::Data); 5].into_iter().chain([(2 * inputs * outputs, Role::Values), (0, Role::Log)]);
        let sizes =
            sizes.chain([rows * inputs, rows * outputs, rows * inputs].map(|len| (len, Role::Activation)));
        let buffers = sizes.map(|(len, role)| Buffer { name: String::new(), len, role });
        let layout = Layout::bare(buffers.collect());
        let whole = |buffer| layout.whole(BufferId(buffer));
        let [x, hidden, y] = [7, 8, 9].map(whole);
        let weights = [0, 1].map(|i| whole(5).part(i * inputs * outputs..(i + 1) * inputs * outputs));
        let layer = |x, weight, y, [inputs, outputs]: [usize; 2]| {
            let (bias, pre, activation) = (None, None, Some(Activation::Relu));
            Linear { x, weight, bias, activation, pre, y, rows, inputs, outputs }.into()
        };
        let first: Op = layer(x, weights[0], hidden, [inputs, outputs]);
        let second: Op = layer(hidden, weights[1], y, [outputs, inputs]);
        let zero: Op = Zero { of: weights[0] }.into();
        let ops = [&first, &second, &zero].map(|op| Instruction { op: op.clone(), phase: Phase::Forward });
        let train = Program { batch: rows, rows, instructions: ops.to_vec() };
        let programs = Programs { layout, train, train_last: None, validate: None, validate_last: None };
        let places = MemoryPlan::new(&programs).train;
        let at = |slice| places.offset(slice).expect("it has a place");

        let mut copies = Copies::new(&programs.train, 1 << 20, &places, None);
        let [of_x, of_weight] = copies.operands(&first).expect("a large product");
        assert_eq!(of_x, 1 << 20);
        let conversion = |of: Slice, to| Conversion { from: at(of), to, n: of.len as u64 };
        assert_eq!(copies.due(&first), [conversion(x, of_x), conversion(weights[0], of_weight)]);
        let mut relu = Record::new(Kind::Activate);
        relu.at[..2].copy_from_slice(&[at(hidden), at(hidden)]);
        copies.written(&first, Some(&mut relu), 0);
        let [of_hidden, of_other] = copies.operands(&second).expect("a large product");
        assert_eq!(relu.at[2], of_hidden, "the kernel writes the copy of its result");
        assert_eq!(copies.due(&second), [conversion(weights[1], of_other)]);
        copies.read(&second, true, None);
        copies.written(&second, None, 1);
        assert!(copies.copy_only().eq([0]), "nothing reads the hidden values in f32");
        copies.read(&second, false, None);
        assert_eq!(copies.copy_only().next(), None);
        assert_eq!(copies.due(&first), []);
        copies.written(&zero, None, 2);
        assert_eq!(copies.due(&first), [conversion(weights[0], of_weight)]);
        assert_eq!(copies.operands(&zero), None);
    }
}
