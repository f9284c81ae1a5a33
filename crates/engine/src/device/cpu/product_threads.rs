//! How many threads compute a product of its own: one, where starting others takes longer than they save.

use std::{collections::HashMap, time::Duration};

/// Below this number of multiplications one thread computes a product: starting another thread takes about 30
/// µs.
pub const SHARED_PRODUCT: usize = 1 << 24;

/// From this number on the threads are worth their start, and trying both ways would take long.
const SURELY_SHARED: usize = 1 << 33;

/// Tries of each way; their medians are compared.
const TRIES: usize = 5;

/// No further tries begin after this time.
const LONG_ENOUGH: Duration = Duration::from_millis(100);

/// Threads together must take at most this share of what one takes: their times vary more from product to product.
const GAIN: f64 = 0.9;

/// The numbers of threads that were found for some shapes.
#[derive(Default)]
pub struct ProductThreads(HashMap<[usize; 3], usize>);

impl ProductThreads {
    /// The number for this shape, at most `most`; by its size alone if it was not tried.
    pub fn count(&self, shape: [usize; 3], most: usize) -> usize {
        let found = self.0.get(&shape).copied();
        found.unwrap_or(if multiplications(shape) >= SHARED_PRODUCT { most } else { 1 })
    }

    /// Chooses the number for a shape by the times of its product. `run` computes it with the number of threads that it gets,
    /// and returns the time.
    pub fn choose<E>(
        &mut self,
        shape: [usize; 3],
        most: usize,
        mut run: impl FnMut(usize) -> Result<Duration, E>,
    ) -> Result<usize, E> {
        self.0.remove(&shape);
        let expected = self.count(shape, most);
        // The first product touches fresh memory.
        run(expected)?;
        let is_open = expected > 1 && multiplications(shape) < SURELY_SHARED;
        let threads = if is_open && !is_shared(times(most, run)?) { 1 } else { expected };
        self.0.insert(shape, threads);
        Ok(threads)
    }
}

fn multiplications(shape: [usize; 3]) -> usize {
    shape.into_iter().fold(1, usize::saturating_mul)
}

/// Median times of one thread and of all, in turns, so that what else the machine does hits both.
fn times<E>(most: usize, mut run: impl FnMut(usize) -> Result<Duration, E>) -> Result<[Duration; 2], E> {
    let (mut taken, mut all) = ([Vec::with_capacity(TRIES), Vec::with_capacity(TRIES)], Duration::ZERO);
    while taken[1].len() < TRIES && all < LONG_ENOUGH {
        for (taken, threads) in taken.iter_mut().zip([1, most]) {
            let time = run(threads)?;
            taken.push(time);
            all += time;
        }
    }
    Ok(taken.map(|mut times| {
        times.sort_unstable();
        times[times.len() / 2]
    }))
}

fn is_shared([alone, together]: [Duration; 2]) -> bool {
    together.as_secs_f64() <= GAIN * alone.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    /// Chooses for a product that takes these times with one thread and with two; returns how often it was computed.
    fn chosen(shape: [usize; 3], took_ms: [u64; 2]) -> (usize, usize) {
        let (mut threads, mut runs) = (ProductThreads::default(), 0);
        let run = |threads: usize| {
            runs += 1;
            Ok::<_, Infallible>(Duration::from_millis(took_ms[threads - 1]))
        };
        let Ok(found) = threads.choose(shape, 2, run);
        assert_eq!(threads.count(shape, 2), found);
        (found, runs)
    }

    #[test]
    fn one_thread_computes_what_others_do_not_make_faster() {
        assert_eq!(chosen([256; 3], [2, 6]), (1, 11));
        assert_eq!(chosen([256; 3], [6, 2]), (2, 11));
        // What takes long is tried once each way.
        assert_eq!(chosen([256; 3], [60, 120]), (1, 3));
        // Small and large ones are not tried.
        assert_eq!(chosen([255; 3], [1, 1]), (1, 1));
        assert_eq!(chosen([2048; 3], [1, 1]), (2, 1));
    }

    #[test]
    fn a_product_that_was_not_tried_is_shared_by_its_size() {
        let threads = ProductThreads::default();
        assert_eq!([[255; 3], [256; 3], [usize::MAX; 3]].map(|shape| threads.count(shape, 3)), [1, 3, 3]);
        assert!(is_shared([Duration::from_micros(10), Duration::from_micros(9)]));
        assert!(!is_shared([Duration::from_micros(10), Duration::from_micros(10)]));
    }
}
