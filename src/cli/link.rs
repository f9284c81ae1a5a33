//! `mpirun -n 2 runner devices --measure`: measures how long sums over the processes of a job take, and
//! derives the network link's rate and latency.

use std::{
    sync::{Arc, atomic::AtomicUsize},
    time::Instant,
};

use super::{args::LinkOption, hosts, scale::local_s};
use crate::{
    collective::{Collective, CollectiveError, ProcessGroup, RankSum, Traffic},
    host::Launched,
    plan::Link,
    record::text_table,
    run::{self, Exit, print},
    units,
};

/// Sizes of a sum in elements, with the number of repetitions.
const SIZES: [(usize, usize); 6] =
    [(1, 2000), (1 << 10, 2000), (1 << 14, 1000), (1 << 18, 100), (1 << 20, 40), (1 << 22, 10)];

/// The measurement is called noisy if a sum's time differs from the link's prediction by this factor.
const MOST_DOUBT: f64 = 2.0;

/// Number of sums before measuring.
const WARM_UP: usize = 5;

/// Measures among the processes started together with this one; rank 0 prints.
pub fn measure(launched: Launched) -> Result<Exit, Exit> {
    let signal = Arc::<AtomicUsize>::default();
    let world = hosts::join_group(launched, &signal)?;
    let exit = match sums(&world) {
        Ok(times) if world.rank() == 0 => print(&page(&world, &times)),
        Ok(_) => Exit::Done,
        Err(e) => hosts::ended(&world, Err(e)),
    };
    Ok(run::leave(&world, exit))
}

/// For each size, the median time, and the part of it spent on messages: the time minus what this process
/// alone needs.
fn sums(world: &Arc<ProcessGroup>) -> Result<Vec<[f64; 2]>, CollectiveError> {
    let mut sum = RankSum::new(world, world.limit());
    let mut all = Vec::new();
    for (len, count) in SIZES {
        let mut elements = vec![0.0; len];
        let mut times = Vec::with_capacity(count);
        for step in 0..WARM_UP + count {
            let start = Instant::now();
            sum.all_reduce(&mut elements, step as u64)?;
            times.extend((step >= WARM_UP).then(|| start.elapsed().as_secs_f64()));
        }
        times.sort_unstable_by(f64::total_cmp);
        let median = times.get(times.len() / 2).copied().unwrap_or(0.0);
        all.push([median, median - local_s(world.size(), len)]);
    }
    Ok(all)
}

fn page(world: &ProcessGroup, times: &[[f64; 2]]) -> String {
    let size = world.size();
    let rows = SIZES.iter().zip(times).map(|((len, _), [all, remote])| {
        let bytes = 4 * *len as u64;
        let rate = format!("{}B/s", units::rate(bytes as f64 / all));
        vec![units::bytes(bytes), units::seconds(*all), units::seconds(remote.max(0.0)), rate]
    });
    let mut text =
        format!("sums over {size} processes by {}: {}\n", world.transport(), world.names().join(" "));
    let header = ["bytes", "median", "messages alone", "rate"];
    text += &text_table::text(&header, &rows.collect::<Vec<_>>(), |_| true);
    let of = |i: usize| Some((Traffic::new(SIZES.get(i)?.0, size), times.get(i)?[1]));
    let link = of(0).zip(of(SIZES.len() - 1)).and_then(|(small, large)| Link::from_sums([small, large]));
    match link {
        Some(link) => {
            text + &format!("  as a link: --link {}\n{}", LinkOption(link), doubt(link, size, times))
        }
        None => text + "  no link explains these times: messages took no longer with more bytes\n",
    }
}

/// A remark for the case that the link does not explain the times of all sizes.
fn doubt(link: Link, processes: usize, times: &[[f64; 2]]) -> String {
    let factor = |((len, _), [_, remote]): (&(usize, usize), &[f64; 2])| {
        let ratio = remote / link.seconds(Traffic::new(*len, processes));
        ratio.max(1.0 / ratio)
    };
    let worst = SIZES.iter().zip(times).map(factor).filter(|factor| factor.is_finite()).fold(1.0, f64::max);
    if worst < MOST_DOUBT {
        return String::new();
    }
    format!(
        "  noisy: a size differs from this link by a factor of {}; repeat it on quiet hosts\n",
        units::factor(worst)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_fit_no_link_are_doubted() {
        let link = Link { latency_s: 1e-5, bytes_per_s: 1e9 };
        let mut times: Vec<_> =
            SIZES.iter().map(|(len, _)| [1.0, link.seconds(Traffic::new(*len, 2))]).collect();
        assert_eq!(doubt(link, 2, &times), "");
        times[3][1] *= 3.4;
        assert_eq!(
            doubt(link, 2, &times),
            "  noisy: a size differs from this link by a factor of 3.40; repeat it on quiet hosts\n"
        );
    }
}
