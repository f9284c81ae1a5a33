//! Memory of a separate device starts as NaN, so a program that forgets to write a buffer gives NaN.

use runner::{
    device::{
        Executor, PassKind,
        cpu::{CpuExecutor, CpuSetup, Memory, ThreadMode},
    },
    program::{Hyper, LossKind, Op, Options, Programs, lower},
    spec::Layer,
};

use super::{At, SEED, gradients::linear, programs::sgd, run};

const ROWS: usize = 4;

fn programs() -> Programs {
    let layers = [linear(2, true), Layer::Relu, linear(1, true)];
    lower(&Options {
        rule: sgd(true, false, 0.0),
        log_slots: 8,
        fold_update: true,
        ..Options::new(&layers, LossKind::Mse, [3, 1], ROWS)
    })
}

/// The first of eight steps whose loss is NaN, if the host has written everything that it must write.
fn first_bad_step(programs: &Programs, memory: Memory, values: Option<f32>) -> Option<u64> {
    let job = CpuSetup { memory, ..CpuSetup::cpu(programs.clone(), 1, SEED, ThreadMode::Team) };
    let mut executor = CpuExecutor::new(job).unwrap();
    let layout = &programs.layout;
    executor.bind(layout.train_features, &vec![0.5; 8 * ROWS * 3].into()).unwrap();
    executor.bind(layout.train_targets, &vec![0.25; 8 * ROWS].into()).unwrap();
    let all = layout.whole(layout.values);
    if let Some(value) = values {
        executor.write(all, &vec![value; all.len]).unwrap();
    }
    let at = At { work: PassKind::Train, step: 0, position: 0, rows: 8 * ROWS, slot: 0 };
    let hyper = [Hyper { rate: 0.01, first: 0.9, correction: 1.0, decay_factor: 1.0, loss_scale: 1.0 }; 8];
    run(&mut executor, at, 8, &hyper)
}

#[test]
fn what_is_not_written_shows_at_once() {
    let whole = programs();
    for memory in [Memory::Host, Memory::Separate] {
        assert_eq!(first_bad_step(&whole, memory, Some(0.1)), None);
    }
    // The parameters were never written.
    assert_eq!(first_bad_step(&whole, Memory::Separate, None), Some(1));
    // Removes each instruction that computes something from a step's rows. Each must be noticed; on host
    // memory, which starts as zeros, most go unnoticed.
    let makes = |op: &Op| matches!(op, Op::Gather(_) | Op::Linear(_) | Op::Loss(_));
    let mut missed = 0;
    for place in 0..whole.train.instructions.len() {
        if !makes(&whole.train.instructions[place].op) {
            continue;
        }
        let mut without = whole.clone();
        without.train.instructions.remove(place);
        assert_eq!(first_bad_step(&without, Memory::Separate, Some(0.1)), Some(1), "instruction {place}");
        assert_eq!(first_bad_step(&without, Memory::Host, Some(0.1)), None, "instruction {place}");
        missed += 1;
    }
    assert_eq!(missed, 4);
}

#[test]
fn fresh_memory_holds_no_number() {
    let programs = programs();
    let job =
        CpuSetup { memory: Memory::Separate, ..CpuSetup::cpu(programs.clone(), 1, SEED, ThreadMode::Team) };
    let mut executor = CpuExecutor::new(job).unwrap();
    for buffer in [programs.layout.values, programs.layout.log] {
        let all = programs.layout.whole(buffer);
        let mut numbers = vec![0.0; all.len];
        executor.read(all, &mut numbers).unwrap();
        assert!(numbers.iter().all(|v| v.is_nan()), "{numbers:?}");
    }
}
