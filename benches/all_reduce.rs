//! The cost of an all-reduce within one process, by number of threads and bytes: medians of single calls on
//! the first rank. Run it on an idle machine. With more ranks than cores it measures the system's scheduler.

#![allow(clippy::too_many_lines)]

use std::{
    thread,
    time::{Duration, Instant},
};

use runner::collective::{Collective, CollectiveError, Shared, shared};

/// Bytes of a call, and the number of calls.
const SIZES: [(usize, usize); 5] =
    [(4, 2000), (4 << 10, 2000), (64 << 10, 1000), (1 << 20, 400), (16 << 20, 30)];

/// Warm-up calls, not counted.
const WARM_UP: usize = 10;

fn main() {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    println!("{cores} cores\n\n ranks       bytes      median        p95        GB/s");
    for ranks in [2, 4] {
        for (bytes, calls) in SIZES {
            let Ok(mut times) = measure(ranks, bytes / 4, calls) else {
                eprintln!("error: {ranks} ranks did not come together");
                std::process::exit(1);
            };
            times.sort_unstable();
            let at = |part: f64| times[(part * (times.len() - 1) as f64) as usize].as_secs_f64();
            let (median, p95) = (at(0.5), at(0.95));
            let (us, rate) = (1e6, bytes as f64 / median / 1e9);
            println!("{ranks:>6} {bytes:>11} {:>8.2} µs {:>8.2} µs {rate:>9.2}", median * us, p95 * us);
        }
    }
}

/// The first rank's times of every call.
fn measure(ranks: usize, numbers: usize, calls: usize) -> Result<Vec<Duration>, CollectiveError> {
    let names = (0..ranks).map(|rank| format!("rank {rank}")).collect();
    let (handles, abort) = shared(names, Duration::from_secs(60));
    let work = |mut rank: Shared| {
        let mut numbers = vec![1.0; numbers];
        let mut times = Vec::with_capacity(calls);
        for call in 0..WARM_UP + calls {
            // Without this, repeated sums would overflow.
            numbers.fill(1.0);
            let start = Instant::now();
            rank.all_reduce(&mut numbers, call as u64)?;
            times.extend((call >= WARM_UP).then(|| start.elapsed()));
        }
        Ok(times)
    };
    thread::scope(|scope| {
        let threads: Vec<_> = handles
            .into_iter()
            .map(|rank| {
                let abort = abort.clone();
                scope.spawn(move || {
                    let guard = abort.guard();
                    let times = work(rank);
                    guard.defuse();
                    times
                })
            })
            .collect();
        let all: Vec<_> =
            threads.into_iter().map(|t| t.join().unwrap_or(Err(CollectiveError::Poisoned))).collect();
        all.into_iter().next().unwrap_or(Err(CollectiveError::Poisoned))
    })
}
