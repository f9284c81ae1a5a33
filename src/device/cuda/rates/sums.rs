//! What a sum over several GPUs takes: of a few numbers, and of many.

use std::{thread, time::Duration};

use super::queue::{Bench, median};
use crate::{
    device::{
        DeviceError,
        cuda::{connect, gpu::Gpu, nccl::Nccl},
    },
    plan::{SumRates, peer_bytes},
};

/// Numbers of the small sum, and how many of it make a round.
const SMALL: (usize, usize) = (32, 64);
/// The same of the large sum.
const LARGE: (usize, usize) = (8 << 20, 4);
/// Rounds of a figure, after one to warm up.
const ROUNDS: usize = 5;
/// How long a GPU waits for the others.
const LIMIT: Duration = Duration::from_secs(30);

/// Measures over all of these GPUs, by the ways that training takes: few numbers by our own kernel where the GPUs reach each
/// other's memory, else by NCCL; many by NCCL where it is there. Every GPU does the same, and the slowest counts.
///
/// # Errors
/// What is missing, or went wrong, in words.
pub fn measure(gpus: &[Gpu]) -> Result<SumRates, String> {
    let nccl = by_nccl(gpus);
    let peers = by_peers(gpus);
    let (small_s, bytes_per_s) = match (peers, nccl) {
        (Ok((small_s, _)), Ok((_, bytes_per_s))) => (small_s, bytes_per_s),
        (Ok(only), Err(_)) | (Err(_), Ok(only)) => only,
        (Err(no_peers), Err(no_nccl)) => return Err(format!("{no_nccl}; no peer kernel, since {no_peers}")),
    };
    Ok(SumRates { gpus: u32::try_from(gpus.len()).unwrap_or(u32::MAX), small_s, bytes_per_s })
}

/// Seconds of a small sum, and bytes per second of a large one.
type Figures = (f64, f64);

fn by_nccl(gpus: &[Gpu]) -> Result<Figures, String> {
    let nccl = Nccl::open().map_err(|why| format!("NCCL is not there: {why}"))?;
    let ordinals: Vec<u32> = gpus.iter().map(|gpu| gpu.ordinal).collect();
    let (ranks, _) = nccl.communicators(&ordinals, LIMIT)?;
    measured(gpus, ranks, LARGE, Bench::by_nccl)
}

fn by_peers(gpus: &[Gpu]) -> Result<Figures, String> {
    let most = ((peer_bytes(gpus.len()) / 4) as usize, LARGE.1);
    let (ranks, _) = connect(gpus, most.0, LIMIT)?;
    measured(gpus, ranks, most, Bench::by_peers)
}

fn measured<W: Send>(
    gpus: &[Gpu],
    ranks: Vec<W>,
    large: (usize, usize),
    bench: fn(Gpu, W) -> Result<Bench, DeviceError>,
) -> Result<Figures, String> {
    let by_rank = thread::scope(|scope| {
        let start = |(gpu, rank): (&Gpu, W)| {
            let gpu = gpu.clone();
            scope.spawn(move || {
                let mut bench = bench(gpu, rank)?;
                Ok::<_, DeviceError>([rounds(&mut bench, SMALL)?, rounds(&mut bench, large)?])
            })
        };
        let threads: Vec<_> = gpus.iter().zip(ranks).map(start).collect();
        let joined = threads.into_iter().map(|t| t.join().map_err(|_| "a thread panicked".to_owned()));
        joined.map(|done| done?.map_err(|e| e.to_string())).collect::<Result<Vec<_>, String>>()
    })?;
    let slowest = |size: usize| {
        let of_round = |round: usize| by_rank.iter().map(|rank| rank[size][round]).fold(0.0_f64, f64::max);
        median((0..ROUNDS).map(of_round).collect()).max(1e-9)
    };
    Ok((slowest(0), 4.0 * large.0 as f64 / slowest(1)))
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
