//! The sum over GPUs from memory to memory: a thread plays each GPU, in each order of CUDA threads.

use std::thread;

use runner::op::RunRecord;

use super::driver::{Driver, Grid, Memory, Order, argument};
use crate::conformance::{Numbers, close};

const MOST_PEERS: usize = 8;
const GIVEN_UP: u64 = u64::MAX;
/// Guard elements around the summed ones.
const GAP: usize = 8;
/// Longer than any test.
const LONG_NS: u64 = 600_000_000_000;

/// Mirrors the struct in `kernels/peer.cu`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Peers {
    laid: [u64; MOST_PEERS],
    arrived: [u64; MOST_PEERS],
    calls: u64,
    words: u64,
    room: u64,
    rank: i32,
    ranks: i32,
}

/// The buffers of one GPU.
struct Rank<'a> {
    numbers: Memory<'a>,
    /// Index of the first summed number. It differs between GPUs, so that alignments differ.
    first: usize,
    calls: Memory<'a>,
    words: Memory<'a>,
    table: Memory<'a>,
    arrived: Memory<'a>,
    _laid: Memory<'a>,
}

/// GPUs that reduce up to `room` elements with `blocks` blocks.
fn connected(driver: &Driver, ranks: usize, room: usize, blocks: u32) -> Vec<Rank<'_>> {
    assert_eq!(size_of::<Peers>(), 160);
    let room = room.next_multiple_of(4);
    let words = vec![0u64; blocks as usize * MOST_PEERS];
    // NaN marks numbers that were never written.
    let laid: Vec<_> = (0..ranks).map(|_| driver.holding(&vec![f32::NAN; 2 * room])).collect();
    let arrived: Vec<_> = (0..ranks).map(|_| driver.holding(&words)).collect();
    let of = |all: &[Memory<'_>]| std::array::from_fn(|i| all.get(i).map_or(0, |memory| memory.address));
    let (laid_at, arrived_at) = (of(&laid), of(&arrived));
    let each = laid.into_iter().zip(arrived).enumerate();
    each.map(|(rank, (laid, arrived))| {
        let calls = driver.holding(&vec![0u64; blocks as usize]);
        let words = driver.holding(&[0u64; 2]);
        let table = Peers {
            laid: laid_at,
            arrived: arrived_at,
            calls: calls.address,
            words: words.address,
            room: room as u64,
            rank: rank as i32,
            ranks: ranks as i32,
        };
        let numbers = driver.holding(&vec![f32::NAN; room + 2 * GAP]);
        let table = driver.holding(&[table]);
        Rank { numbers, first: GAP - rank, calls, words, table, arrived, _laid: laid }
    })
    .collect()
}

impl Rank<'_> {
    /// Launches the kernel for this GPU, at step 7.
    fn sum(&self, driver: &Driver, n: usize, blocks: u32, limit_ns: u64) {
        let run = driver.holding(&[RunRecord { step: 6, ..RunRecord::default() }]);
        let (mut numbers, mut n) = (self.numbers.address + 4 * self.first as u64, n as u64);
        let (mut table, mut run, mut limit_ns) = (self.table.address, run.address, limit_ns);
        let grid = Grid { cooperative: true, ..Grid::new(blocks, 64) };
        let arguments = &mut [
            argument(&mut numbers),
            argument(&mut n),
            argument(&mut table),
            argument(&mut run),
            argument(&mut limit_ns),
        ];
        driver.launch("peer_sum", grid, arguments);
    }

    /// Writes the numbers, with NaN on both sides.
    fn write(&self, numbers: &[f32]) {
        let mut all = vec![f32::NAN; numbers.len() + 2 * GAP];
        all[self.first..self.first + numbers.len()].copy_from_slice(numbers);
        self.numbers.write(&all);
    }

    fn read(&self, n: usize) -> Vec<f32> {
        let all: Vec<f32> = self.numbers.read(n + 2 * GAP);
        let (before, rest) = all.split_at(self.first);
        let (numbers, behind) = rest.split_at(n);
        assert!(before.iter().chain(behind).all(|x| x.is_nan()), "something was written beside the numbers");
        numbers.to_vec()
    }
}

/// All GPUs sum their contributions.
fn all_sum(ranks: &[Rank<'_>], brought: &[Vec<f32>], blocks: u32, order: Order) -> Vec<Vec<f32>> {
    thread::scope(|scope| {
        let one = |(rank, brought): (&Rank<'_>, &Vec<f32>)| {
            let driver = Driver::get().unwrap();
            driver.order(order);
            rank.write(brought);
            rank.sum(driver, brought.len(), blocks, LONG_NS);
            rank.read(brought.len())
        };
        let running: Vec<_> = ranks.iter().zip(brought).map(|both| scope.spawn(move || one(both))).collect();
        running.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn every_gpu_has_the_sum_in_the_order_of_ranks() {
    let Some(driver) = Driver::get() else { return };
    for (world, blocks) in [(2, 1), (3, 2), (4, 3)] {
        let ranks = connected(driver, world, 2500, blocks);
        // An odd number of calls of different lengths on the same memory, since calls alternate between two
        // buffers.
        for (call, n) in [1, 2500, 33, 0, 1025, 4, 2499].into_iter().enumerate() {
            for order in Order::ALL {
                let scale = |rank: usize, x: f32| x * 10f32.powi(rank as i32 % 3);
                let of = |rank: usize| {
                    let numbers = Numbers((call * 10 + rank) as u64).take(n);
                    numbers.into_iter().map(|x| scale(rank, x)).collect::<Vec<f32>>()
                };
                let brought: Vec<Vec<f32>> = (0..world).map(of).collect();
                let what = format!("{world} GPUs, {blocks} blocks, {n} numbers, {order:?}");
                let mut want = brought[0].clone();
                let mut exact: Vec<f64> = want.iter().copied().map(f64::from).collect();
                for numbers in &brought[1..] {
                    want.iter_mut().zip(numbers).for_each(|(sum, x)| *sum += x);
                    exact.iter_mut().zip(numbers).for_each(|(sum, x)| *sum += f64::from(*x));
                }
                for got in all_sum(&ranks, &brought, blocks, order) {
                    assert_eq!(got, want, "{what}");
                    close(&got, &exact, 1e-6, &what);
                }
            }
        }
        for rank in &ranks {
            assert_eq!(rank.calls.read::<u64>(blocks as usize), vec![21; blocks as usize]);
            assert_eq!(rank.words.read::<u64>(2), [0, 0]);
        }
    }
}

#[test]
fn a_gpu_that_does_not_come_is_not_waited_for_for_ever() {
    let Some(driver) = Driver::get() else { return };
    for order in Order::ALL {
        driver.order(order);
        let (ranks, numbers) = (connected(driver, 3, 100, 2), vec![1.0; 100]);
        // The second GPU has started its first call with both blocks, the third has not.
        let mut arrived = [0u64; 2 * MOST_PEERS];
        (arrived[1], arrived[MOST_PEERS + 1]) = (1, 1);
        ranks[0].arrived.write(&arrived);
        ranks[0].write(&numbers);
        ranks[0].sum(driver, 100, 2, 1_000_000);
        assert_eq!(ranks[0].words.read::<u64>(2), [0, 7 << 8 | 3], "{order:?}");
        assert_eq!(ranks[0].calls.read::<u64>(2), [GIVEN_UP; 2]);
        assert_eq!(ranks[0].read(100), numbers, "nothing was summed");
        // Later calls have nothing to wait for.
        ranks[0].words.write(&[0u64, 0]);
        ranks[0].sum(driver, 100, 2, LONG_NS);
        assert_eq!(ranks[0].words.read::<u64>(2), [0, 0]);
        assert_eq!(ranks[0].read(100), numbers);
    }
}

#[test]
fn whoever_waits_is_let_go_by_the_host() {
    let Some(driver) = Driver::get() else { return };
    let ranks = connected(driver, 2, 10, 1);
    ranks[0].write(&[1.0; 10]);
    ranks[0].words.write(&[1u64, 0]);
    ranks[0].sum(driver, 10, 1, LONG_NS);
    assert_eq!(ranks[0].words.read::<u64>(2), [1, 7 << 8 | 0xff]);
    assert_eq!(ranks[0].calls.read::<u64>(1), [GIVEN_UP]);
    assert_eq!(ranks[0].read(10), [1.0; 10]);
}
