//! Programs whose sums over devices start before all gradients are there, so that the network works while the
//! backward pass goes on.
//!
//! Gradients are summed in parts, those of the last layers first. An element is still added in the order of
//! ranks, so its bits do not depend on the parts.

use super::{BufferId, Instruction, Layout, Op, Phase, Program, Programs, Slice, StartAllReduce};

impl Programs {
    /// Starts the sum of every part of at least `least` elements early, in place or of a copy. Programs with a
    /// single part stay as they are.
    pub fn with_early_sums(mut self, least: usize, in_place: bool) -> Self {
        for program in [Some(&mut self.train), self.train_last.as_mut()].into_iter().flatten() {
            let sum = program.instructions.iter().position(|i| matches!(i.op, Op::AllReduce(_)));
            let Some(sum) = sum else { continue };
            let [all, ..] = program.instructions[sum].op.access().writes;
            let parts = parts(all, &self.layout, least);
            if !parts.is_empty() {
                advance(&mut program.instructions[..sum], all.buffer);
                start(&mut program.instructions, sum, &parts, in_place);
            }
        }
        self
    }

    /// Bytes of the copies that are summed, if sums start early.
    pub fn early_sum_bytes(&self) -> u64 {
        self.train.early_sums().next().map_or(0, |first| 4 * first.end() as u64)
    }
}

impl Program {
    /// The parts whose sums start early, in their order.
    pub fn early_sums(&self) -> impl Iterator<Item = Slice> {
        self.instructions.iter().filter_map(|i| match &i.op {
            Op::StartAllReduce(part) => Some(part.of),
            _ => None,
        })
    }
}

/// Divides `all` gradients and the cells that follow them into parts of at least `least` elements, from the
/// end on. The rest is in none of them: it holds the gradients of the first layer, which are the last to be
/// computed. The parts do not depend on the rank.
fn parts(all: Slice, layout: &Layout, least: usize) -> Vec<Slice> {
    let first = layout.parameters.first().map(|p| p.layer());
    let later = layout.parameters.iter().filter(|p| Some(p.layer()) != first);
    let (mut parts, mut end) = (Vec::new(), all.len);
    for start in later.rev().map(|p| p.offset) {
        if end - start >= least {
            parts.push(all.part(start..end));
            end = start;
        }
    }
    parts
}

/// Moves every instruction that writes to `buffer` to the first place that its accesses allow.
fn advance(instructions: &mut [Instruction], buffer: BufferId) {
    for i in 0..instructions.len() {
        let own = instructions[i].op.access();
        if own.writes.iter().any(|write| write.len > 0 && write.buffer == buffer) {
            let needed = |earlier: &Instruction| earlier.op.access().conflicts(&own);
            let at = instructions[..i].iter().rposition(needed).map_or(0, |last| last + 1);
            instructions[at..=i].rotate_right(1);
        }
    }
}

/// Starts the sum of each part as soon as its last element is there; `sum` is the place of the whole sum.
fn start(instructions: &mut Vec<Instruction>, sum: usize, parts: &[Slice], in_place: bool) {
    let mut at = 0;
    for (started, &of) in parts.iter().enumerate() {
        let writes = |i: &Instruction| i.op.access().writes.iter().any(|write| write.overlaps(of));
        let last = instructions[..sum + started].iter().rposition(writes);
        at = last.map_or(at, |last| at.max(last + 1));
        let op = StartAllReduce { of, in_place }.into();
        instructions.insert(at, Instruction { op, phase: Phase::AllReduce });
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        program::{LossKind, Options, Shard, lower},
        spec::{Layer, Linear, Metric},
    };

    fn linear(out_features: usize) -> Layer {
        Layer::Linear(Linear { out_features, in_features: None, bias: true })
    }

    /// 8 features, layers of 32, 32 and 3 outputs; the first of three ranks has no row of the last batch.
    fn programs(rank: usize) -> Programs {
        let dropout = Layer::Dropout { p: 0.1 };
        of_layers(&[linear(32), Layer::Relu, linear(32), dropout, Layer::Tanh, linear(3)], rank)
    }

    fn of_layers(layers: &[Layer], rank: usize) -> Programs {
        lower(&Options {
            clip: Some(1.0),
            metrics: &[Metric::Loss, Metric::Accuracy, Metric::GradNorm],
            last: Some(2),
            ordered: true,
            fold_update: true,
            shard: Shard { rank, world_size: 3 },
            ..Options::new(layers, LossKind::CrossEntropy, [8, 1], 6)
        })
    }

    fn names(program: &Program) -> Vec<String> {
        let name = |i: &Instruction| format!("{:?}", i.op).split('(').next().unwrap_or_default().to_owned();
        program.instructions.iter().map(name).collect()
    }

    fn started(program: &Program) -> Vec<[usize; 2]> {
        program.early_sums().map(|part| [part.offset, part.end()]).collect()
    }

    #[test]
    fn sums_start_with_the_last_layers() {
        // Offsets: weight 0, bias 256; 288, 1312; 1344, 1440; 16 cells from 1456 on.
        let early = programs(0).with_early_sums(100, false);
        assert_eq!(started(&early.train), [[1344, 1472], [288, 1344]]);
        let wanted = "Gather Linear Linear Dropout Activate Linear Loss BiasGradient WeightGradient Mean Mean \
                      StartAllReduce InputGradient ActivateBackward DropoutBackward BiasGradient WeightGradient \
                      StartAllReduce InputGradient BiasGradient WeightGradient AllReduce Norm Clip Update Log";
        assert_eq!(names(&early.train).join(" "), wanted);
    }

    #[test]
    fn a_rank_without_rows_starts_the_same_sums() {
        let [first, last] =
            [0, 2].map(|rank| programs(rank).with_early_sums(100, false).train_last.expect("ragged"));
        assert_eq!((first.rows, last.rows), (0, 1));
        assert_eq!(started(&first), started(&last));
        assert_eq!(names(&first)[..4], ["Zero", "StartAllReduce", "StartAllReduce", "AllReduce"]);
    }

    #[test]
    fn small_later_layers_leave_the_program_as_it_is() {
        // The later layers have 1,184 elements, 16 of them cells.
        assert_eq!(programs(1).with_early_sums(1185, false), programs(1));
        assert_eq!(started(&programs(1).with_early_sums(1184, false).train), [[288, 1472]]);
    }

    /// A GPU sums gradients where they are: from a part's start to the end of the whole sum no other instruction may
    /// touch the part. The parts and the rest are all gradients, each of them once.
    #[test]
    fn nothing_touches_a_part_that_is_being_summed() {
        let dropout = Layer::Dropout { p: 0.5 };
        let layers = [linear(32), Layer::Gelu, linear(24), dropout, linear(40), Layer::Sigmoid, linear(3)];
        for (rank, least) in (0..3).flat_map(|rank| [1, 16, 100, 1000].map(|least| (rank, least))) {
            let Programs { train, train_last, .. } = of_layers(&layers, rank).with_early_sums(least, true);
            for program in [Some(train), train_last].into_iter().flatten() {
                let ops: Vec<&Op> = program.instructions.iter().map(|i| &i.op).collect();
                let sum = ops.iter().position(|op| matches!(op, Op::AllReduce(_))).expect("a sum");
                let [all, ..] = ops[sum].access().writes;
                let mut end = all.end();
                for (at, op) in ops[..sum].iter().enumerate() {
                    let Op::StartAllReduce(part) = op else { continue };
                    let touches = |other: &&&Op| other.access().conflicts(&op.access());
                    assert_eq!(ops[at + 1..sum].iter().find(touches), None, "{part:?}");
                    assert_eq!(part.of.end(), end);
                    end = part.of.offset;
                }
                assert!(all.offset < end && end < all.end(), "{least}: {end} of {all:?}");
            }
        }
    }
}
