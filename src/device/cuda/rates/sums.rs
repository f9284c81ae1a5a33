//! What a sum over several GPUs takes: of a few numbers, and of many.

use std::{thread, time::Duration};

use super::queue::{Bench, median};
use crate::{
    device::{
        DeviceError,
        cuda::{
            gpu::Gpu,
            nccl::{Communicator, Nccl},
        },
    },
    plan::SumRates,
};

/// Numbers of the small sum, and how many of it make a round.
const SMALL: (usize, usize) = (32, 64);
/// The same of the large sum.
const LARGE: (usize, usize) = (8 << 20, 4);
/// Rounds of a figure, after one to warm up.
const ROUNDS: usize = 5;
/// How long a GPU waits for the others.
const LIMIT: Duration = Duration::from_secs(30);

/// Measures over all of these GPUs by NCCL; every GPU does the same, and the slowest counts.
///
/// # Errors
/// What is missing, or went wrong, in words.
pub fn measure(gpus: &[Gpu]) -> Result<SumRates, String> {
    let nccl = Nccl::open().map_err(|why| format!("NCCL is not there: {why}"))?;
    let ordinals: Vec<u32> = gpus.iter().map(|gpu| gpu.ordinal).collect();
    let (ranks, _) = nccl.communicators(&ordinals, LIMIT)?;
    let measured = thread::scope(|scope| {
        let start = |(gpu, rank): (&Gpu, Communicator)| {
            let gpu = gpu.clone();
            scope.spawn(move || {
                let mut bench = Bench::among(gpu, Some(rank))?;
                Ok::<_, DeviceError>([rounds(&mut bench, SMALL)?, rounds(&mut bench, LARGE)?])
            })
        };
        let threads: Vec<_> = gpus.iter().zip(ranks).map(start).collect();
        let joined = threads.into_iter().map(|t| t.join().map_err(|_| "a thread panicked".to_owned()));
        joined.map(|done| done?.map_err(|e| e.to_string())).collect::<Result<Vec<_>, String>>()
    })?;
    let slowest = |size: usize| {
        let of_round = |round: usize| measured.iter().map(|rank| rank[size][round]).fold(0.0_f64, f64::max);
        median((0..ROUNDS).map(of_round).collect()).max(1e-9)
    };
    Ok(SumRates {
        gpus: u32::try_from(gpus.len()).unwrap_or(u32::MAX),
        small_s: slowest(0),
        bytes_per_s: 4.0 * LARGE.0 as f64 / slowest(1),
    })
}

/// Seconds of a sum, by round.
fn rounds(bench: &mut Bench, (numbers, count): (usize, usize)) -> Result<Vec<f64>, DeviceError> {
    bench.take(numbers)?;
    let times = (0..=ROUNDS).map(|_| Ok(bench.sums_s(numbers, count)? / count as f64));
    let mut times = times.collect::<Result<Vec<f64>, DeviceError>>()?;
    // The first warms up.
    times.remove(0);
    Ok(times)
}
