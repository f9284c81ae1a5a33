//! Measures the time of an all-reduce over several GPUs, of few elements and of many.

use std::{thread, time::Duration};

use super::queue::{Bench, median};
use crate::{
    collective::Abort,
    connect,
    device::DeviceError,
    engines::QueuedSums,
    ffi::{Gpu, Nccl},
    plan::AllReduceRates,
};

/// Elements of the small sum, and sums per round.
const SMALL: (usize, usize) = (32, 64);
/// Elements of the large sum, and sums per round.
const LARGE: (usize, usize) = (8 << 20, 4);
/// Rounds per figure, after one to warm up.
const ROUNDS: usize = 5;
/// The longest wait for the other GPUs.
const LIMIT: Duration = Duration::from_secs(30);

/// Measures all these GPUs together, with the methods that training uses: small sums with the peer kernel if the GPUs can
/// access each other's memory, else with NCCL; large sums with NCCL if it is available. The slowest GPU counts.
pub fn measure(gpus: &[Gpu]) -> Result<AllReduceRates, String> {
    let nccl = by_nccl(gpus);
    let peers = by_peers(gpus);
    let (small_s, bytes_per_s) = match (peers, nccl) {
        (Ok((small_s, _)), Ok((_, bytes_per_s))) => (small_s, bytes_per_s),
        // Training would use NCCL for large sums, but it could not be measured.
        (Ok(_), Err(no_nccl)) if Nccl::open().is_ok() => return Err(no_nccl),
        (Ok(only), Err(_)) | (Err(_), Ok(only)) => only,
        (Err(no_peers), Err(no_nccl)) => return Err(format!("{no_nccl}; no peer kernel, since {no_peers}")),
    };
    Ok(AllReduceRates { gpus: u32::try_from(gpus.len()).unwrap_or(u32::MAX), small_s, bytes_per_s })
}

/// Seconds of a small sum, and bytes per second of a large one.
type Figures = (f64, f64);

fn by_nccl(gpus: &[Gpu]) -> Result<Figures, String> {
    let nccl = Nccl::open().map_err(|why| format!("NCCL is not there: {why}"))?;
    let (ranks, abort) = nccl.communicators(gpus, LIMIT)?;
    measured(gpus, (ranks, &abort), LARGE, QueuedSums::Nccl)
}

fn by_peers(gpus: &[Gpu]) -> Result<Figures, String> {
    let bytes = gpus.first().and_then(|gpu| gpu.limits(false).peer_bytes.get(gpus.len()).copied());
    let most = ((bytes.unwrap_or(0) / 4) as usize, LARGE.1);
    let (ranks, abort) = connect(gpus, most.0, LIMIT)?;
    measured(gpus, (ranks, &abort), most, |peers| QueuedSums::Peers(Box::new(peers)))
}

/// Every GPU allocates its memory before the first sum, since allocating may wait for a GPU that is inside a sum.
fn measured<W>(
    gpus: &[Gpu],
    (ranks, abort): (Vec<W>, &Abort),
    large: (usize, usize),
    sums: fn(W) -> QueuedSums,
) -> Result<Figures, String> {
    let ready = |(gpu, rank): (&Gpu, W)| {
        let mut bench = Bench::open(gpu.clone(), Some(sums(rank)))?;
        bench.take(SMALL.0.max(large.0))?;
        Ok(bench)
    };
    let benches: Result<Vec<Bench>, DeviceError> = gpus.iter().zip(ranks).map(ready).collect();
    let benches = benches.map_err(|e| e.to_string())?;
    // The memory is returned with the figures, and freed when all have finished.
    let ended: Vec<(Bench, [Vec<f64>; 2])> = thread::scope(|scope| {
        let start = |bench: Bench| {
            scope.spawn(move || {
                let figures =
                    bench.enter().and_then(|()| Ok([rounds(&bench, SMALL)?, rounds(&bench, large)?]));
                // Release the others.
                let figures = figures.inspect_err(|_| abort.now());
                (bench, figures)
            })
        };
        let threads: Vec<_> = benches.into_iter().map(start).collect();
        let joined = threads.into_iter().map(|t| t.join().map_err(|_| "a thread panicked".to_owned()));
        let all = joined.collect::<Result<Vec<_>, String>>()?;
        let reported = |(bench, figures): (Bench, Result<_, DeviceError>)| {
            Ok((bench, figures.map_err(|e| e.to_string())?))
        };
        all.into_iter().map(reported).collect::<Result<Vec<_>, String>>()
    })?;
    let by_rank: Vec<_> = ended.iter().map(|(_, figures)| figures).collect();
    let slowest = |size: usize| {
        let of_round = |round: usize| by_rank.iter().map(|rank| rank[size][round]).fold(0.0_f64, f64::max);
        median((0..ROUNDS).map(of_round).collect()).max(1e-9)
    };
    Ok((slowest(0), 4.0 * large.0 as f64 / slowest(1)))
}

fn rounds(bench: &Bench, (elements, count): (usize, usize)) -> Result<Vec<f64>, DeviceError> {
    let times = (0..=ROUNDS).map(|_| Ok(bench.sums_s(elements, count)? / count as f64));
    let mut times = times.collect::<Result<Vec<f64>, DeviceError>>()?;
    // The first round warms up.
    times.remove(0);
    Ok(times)
}
