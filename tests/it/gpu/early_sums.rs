//! Sums that start during the backward pass, on one GPU that is NCCL's only rank. It shows that the driver and NCCL
//! accept the calls that fork and join streams, also in a capture. It does not show their order: there is nothing to
//! add, so a missing fork gives the same numbers. On hardware only `scripts/gpu-hosts` tests the order.

use std::time::Duration;

use runner::{
    cuda::{Nccl, QueuedSums, RankLink},
    device::Executor,
    plan::Engine,
};

use super::first_gpu;
use crate::cuda::waits::{HIDDEN, Rank, half, loaded, of_layers};

#[test]
fn one_gpu_learns_the_same_when_its_sums_start_early() {
    let Some(gpu) = first_gpu() else { return };
    for engine in [Engine::Graph, Engine::Launch] {
        let learned = [false, true].map(|early| {
            let nccl = Nccl::open().inspect_err(|why| eprintln!("skipped: NCCL is not there: {why}")).ok()?;
            let (ranks, _) = nccl.communicators(std::slice::from_ref(&gpu), Duration::from_secs(60)).unwrap();
            let link = RankLink::Queued(QueuedSums::Nccl(ranks.into_iter().next().unwrap()));
            let late = of_layers(&HIDDEN, half(0), false);
            let programs = if early { late.with_early_sums(1, true) } else { late };
            assert_eq!(programs.train.early_sums().count(), if early { 2 } else { 0 });
            let executor = loaded(gpu.clone(), engine, programs.clone(), link);
            let mut rank = Rank { executor, programs, step: 0 };
            let values = rank.values();
            let initial: Vec<f32> = (0..values.len).map(|i| (i % 7) as f32 / 8.0 - 0.375).collect();
            rank.executor.warm_up().unwrap();
            rank.bind().unwrap();
            rank.executor.write(values, &initial).unwrap();
            (0..16).for_each(|_| rank.step().unwrap());
            let mut last = vec![0.0; values.len];
            rank.executor.read(values, &mut last).unwrap();
            assert_ne!(last, initial);
            Some(last)
        });
        assert_eq!(learned[0], learned[1], "{engine:?}");
    }
}
