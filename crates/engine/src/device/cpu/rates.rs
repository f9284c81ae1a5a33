//! Measures this machine's rates: products on one thread and on all, elementwise functions, caches and
//! memory, and the cost of an instruction, a block and a barrier.
//!
//! A rate is the median of many short rounds, and how far the middle half of them lies apart is the machine's noise. One that
//! varies much, or beside which other processes used many cores, is taken again, and refused where that does not end. Costs of
//! an instruction and of a block are differences of two times, each the least of many; they count once two takes agree, and a
//! barrier once two teams do. Memory is measured with STREAM's triad (J. D. McCalpin, 1995), `a = b + s c`, counting three
//! accesses per element, over more bytes than the caches hold.

use std::{
    hint::black_box,
    thread,
    time::{Duration, Instant},
};

use super::{CpuExecutor, CpuSetup, ThreadMode, team::Team};
use crate::{
    device::{
        Clock, DeviceError, Grain, Ledger, Meters,
        probe::{Probe, SHORT_AND_LONG, STEPS, agreed, spread, steadiest, tiny},
    },
    host::{
        self,
        load::{self, TOO_BUSY, Use},
    },
    op::{Activation, FUNCTION, activate},
    plan::{MachineRates, Origin},
    program::Programs,
    units,
    vector::{
        flush_denormals,
        matmul::{Epilogue, Kernel, Lhs, Rhs, Source},
        vectorized,
    },
};

/// Rounds per rate.
const ROUNDS: usize = 15;

const ROUND: Duration = Duration::from_millis(16);

/// The most attempts per rate.
const MOST_ATTEMPTS: usize = 4;

/// A rate is not measured again after this time.
const ATTEMPTS_TIME: Duration = Duration::from_secs(1);

/// A rate that varies by more, or beside which others used more of the cores, is taken again.
const MOST_SPREAD: f64 = 0.1;

/// Rates with more noise than this are refused: they would say nothing about the machine.
const MOST_NOISE: f64 = 0.5;

/// How long the least of a cost is looked for.
const SEARCH: Duration = Duration::from_millis(80);

/// The most teams that measure a barrier.
const TEAMS: usize = 6;

/// In seconds. In a barrier that takes longer, threads have waited for a core, not for each other.
const LONGEST_BARRIER: f64 = 50e-6;

/// Elements of the measured function: they stay in the L1 cache.
const FEW: usize = 2048;

/// Rows, terms and columns of the measured products; the fastest one counts.
const PRODUCTS: [[usize; 3]; 3] = [[240, 512, 512], [128, 256, 1024], [256, 256, 256]];

/// Barriers per run of the measured team.
const BARRIERS: usize = 32;

const MOST_BYTES: u64 = 1 << 30;

/// Measures with `threads` threads, which takes some four seconds on a quiet machine.
///
/// # Errors
/// The machine is too busy, threads could not be started, or out of memory.
pub fn measure(threads: usize) -> Result<MachineRates, DeviceError> {
    flush_denormals();
    let kernel = Kernel::detect();
    let mut noise = 0.0_f64;
    let mut together = |threads: usize, make: &(dyn Fn() -> Repeated + Sync)| {
        let take = || {
            let before = load::counters();
            let (rate, spread) = together(threads, make)?;
            let used = before.zip(load::counters()).and_then(|(before, after)| Use::between(&before, &after));
            let lacking = used.map_or(0.0, |used| used.lacking(threads));
            let are_machines = used.is_some_and(|used| used.stolen > used.others / 2.0);
            Ok::<_, DeviceError>(((rate, spread, (lacking, are_machines)), spread.max(lacking)))
        };
        let ((rate, spread, others), _) = steadiest(MOST_ATTEMPTS, ATTEMPTS_TIME, MOST_SPREAD, take)?;
        noise = noise.max(spread);
        refuse(spread, others)?;
        Ok::<_, DeviceError>(rate)
    };
    let mut products = |threads: usize, kernel: Kernel| {
        let mut rates = PRODUCTS.into_iter().map(|shape| together(threads, &|| product(kernel, shape)));
        rates.try_fold(0.0_f64, |best, rate| Ok::<_, DeviceError>(best.max(rate?)))
    };
    let flops_per_s = products(1, kernel)?;
    let all_flops_per_s = if threads > 1 { products(threads, kernel)? } else { flops_per_s };
    let bf16_flops_per_s = Kernel::bf16().map(|bf16| products(1, bf16)).transpose()?;
    let cache_numbers = (host::second_level_cache().unwrap_or(1 << 20) / 2 / 12) as usize;
    let memory_numbers = |threads: usize| (beyond_caches() / 12) as usize / threads;
    let memory_bytes_per_s = together(1, &|| triad(memory_numbers(1)))?;
    let all_bytes_per_s = match threads {
        1 => memory_bytes_per_s,
        _ => together(threads, &|| triad(memory_numbers(threads)))?,
    };
    let elementwise_per_s = together(1, &function)?;
    let cache_bytes_per_s = together(1, &|| triad(cache_numbers))?.max(memory_bytes_per_s);
    let scaling = |all: f64, one: f64| match threads {
        1 => 1.0,
        _ => ((all / one - 1.0) / (threads - 1) as f64).clamp(0.0, 1.0),
    };
    let [instruction_s, block_s] = instruction_and_block()?;
    let typical = MachineRates::typical(kernel.name());
    let barrier_s = if threads > 1 { barrier(threads)? } else { None };
    Ok(MachineRates {
        origin: Origin::Measured,
        processor: typical.processor,
        flops_per_s,
        bf16_flops_per_s,
        elementwise_per_s,
        cache_bytes_per_s,
        memory_bytes_per_s,
        product_scaling: scaling(all_flops_per_s, flops_per_s),
        memory_scaling: scaling(all_bytes_per_s, memory_bytes_per_s),
        instruction_s: instruction_s.unwrap_or(typical.instruction_s),
        barrier_s: barrier_s.unwrap_or(typical.barrier_s),
        block_s: block_s.unwrap_or(typical.block_s),
        noise,
    })
}

/// Rates of a machine that is busy with others would make plans worse.
fn refuse(noise: f64, (others, are_machines): (f64, bool)) -> Result<(), DeviceError> {
    let [noise_is, most_noise, others_are, most_others] =
        [noise, MOST_NOISE, others, TOO_BUSY].map(units::percent);
    let what = if others > TOO_BUSY {
        let who = if are_machines { "virtual machines" } else { "processes" };
        format!("other {who} used {others_are} of the measured cores meanwhile, more than {most_others}")
    } else if noise > MOST_NOISE {
        format!("they varied by {noise_is} from round to round, more than {most_noise}")
    } else {
        return Ok(());
    };
    Err(DeviceError::Rates {
        device: "cpu".into(),
        why: format!("{what}; measure again while the machine is quiet"),
    })
}

/// A repeated piece of work and its amount per call.
type Repeated = (Box<dyn FnMut()>, f64);

/// The total rate of `threads` threads, each with its own work: the median over the rounds, and the rounds'
/// relative interquartile range.
fn together(threads: usize, make: &(dyn Fn() -> Repeated + Sync)) -> Result<(f64, f64), DeviceError> {
    let rates = thread::scope(|scope| {
        let one = || {
            flush_denormals();
            let (mut work, amount) = make();
            work();
            (0..ROUNDS).map(|_| round(&mut work, amount)).collect::<Vec<f64>>()
        };
        let mut others = Vec::new();
        for _ in 1..threads {
            others.push(thread::Builder::new().spawn_scoped(scope, one).map_err(no_thread)?);
        }
        let mut all = vec![one()];
        all.extend(others.into_iter().filter_map(|thread| thread.join().ok()));
        Ok::<_, DeviceError>(all)
    })?;
    let total = |round: usize| rates.iter().filter_map(|rates| rates.get(round)).sum();
    let mut totals: Vec<f64> = (0..ROUNDS).map(total).collect();
    let spread = spread(&mut totals);
    Ok((totals[ROUNDS / 2], spread))
}

fn no_thread(source: std::io::Error) -> DeviceError {
    DeviceError::Thread { device: "cpu".into(), source }
}

fn round(work: &mut dyn FnMut(), amount: f64) -> f64 {
    let begun = Instant::now();
    let mut count = 0.0;
    loop {
        work();
        count += amount;
        let time = begun.elapsed();
        if time >= ROUND {
            return count / time.as_secs_f64();
        }
    }
}

fn product(kernel: Kernel, [m, k, n]: [usize; 3]) -> Repeated {
    let numbers = |len: usize| (0..len).map(|i| ((i * 37) % 101) as f32 / 101.0 - 0.5).collect::<Vec<f32>>();
    let (left, right) = (numbers(m * k), numbers(k * n));
    let mut packed = vec![0.0; kernel.packed_len(k, n)];
    kernel.pack(Source::Rows(&right), [k, n], 0..kernel.units(k, n), &mut packed);
    let mut out = vec![0.0; m * n];
    let mut strips = vec![0.0; if kernel.strip_rows().is_some() { kernel.left_len(m, k) } else { 0 }];
    if let Some(rows) = kernel.strip_rows() {
        kernel.pack_left(Lhs::Rows { data: &left, stride: k }, [m, k], 0..m.div_ceil(rows), &mut strips);
    }
    let work = move || {
        let lhs = if strips.is_empty() { Lhs::Rows { data: &left, stride: k } } else { Lhs::Packed(&strips) };
        kernel.multiply(lhs, Rhs::Packed(&packed), [m, k, n], &mut out, Epilogue::Store);
        black_box(&mut out);
    };
    (Box::new(work), 2.0 * (m * k * n) as f64)
}

fn function() -> Repeated {
    let x: Vec<f32> = (0..FEW).map(|i| i as f32 / FEW as f32).collect();
    let mut y = vec![0.0; FEW];
    let work = move || {
        activate(Activation::Tanh, black_box(&x), &mut y);
        black_box(&mut y);
    };
    (Box::new(work), (FUNCTION * FEW) as f64)
}

/// STREAM's triad over three arrays of `numbers` elements each; the amount is in bytes.
fn triad(numbers: usize) -> Repeated {
    let numbers = numbers.max(16);
    let (mut a, b, c) = (vec![0.0_f32; numbers], vec![1.0_f32; numbers], vec![2.0_f32; numbers]);
    let work = move || {
        let s = black_box(0.5_f32);
        vectorized(|| a.iter_mut().zip(&b).zip(&c).for_each(|((a, b), c)| *a = b + s * c));
        black_box(&mut a);
    };
    (Box::new(work), 12.0 * numbers as f64)
}

/// Four times the last-level cache, within limits.
fn beyond_caches() -> u64 {
    let last = host::cache_sizes().into_iter().max().unwrap_or(1 << 23);
    (4 * last).clamp(1 << 26, MOST_BYTES).min(host::usable_memory() / 8)
}

/// Seconds of an instruction and of a block, where two takes agree on them. Rectifiers on one element do almost no work, so
/// the extra time of a longer model is the cost of its extra instructions.
fn instruction_and_block() -> Result<[Option<f64>; 2], DeviceError> {
    let [short, long] = SHORT_AND_LONG.map(tiny);
    let instructions = |programs: &Programs| programs.train.instructions.len() as f64;
    let further = instructions(&long) - instructions(&short);
    let step_s = |programs: &Programs| Ok::<_, DeviceError>(block_s(programs, STEPS)? / STEPS as f64);
    let instruction_s =
        agreed(MOST_ATTEMPTS, || Ok::<_, DeviceError>((step_s(&long)? - step_s(&short)?) / further))?;
    let block_s = agreed(MOST_ATTEMPTS, || Ok::<_, DeviceError>(block_s(&short, 1)? - step_s(&short)?))?;
    Ok([instruction_s.ok(), block_s.ok()])
}

/// The least seconds of a block of `steps` steps.
fn block_s(programs: &Programs, steps: usize) -> Result<f64, DeviceError> {
    let executor = CpuExecutor::new(CpuSetup::cpu(programs.clone(), 1, 0, ThreadMode::Team))?;
    let mut probe = Probe::new(executor, programs)?;
    let (mut clock, mut ledger, mut ends) = (Clock::new(Grain::Blocks), Ledger::default(), Vec::new());
    let mut meters = Meters { clock: &mut clock, ledger: &mut ledger, ends: &mut ends };
    // Equal numbers of steps, so that interrupts affect long and short blocks equally.
    let blocks = (STEPS / steps) as u32;
    let mut least = f64::INFINITY;
    let begun = Instant::now();
    while begun.elapsed() < SEARCH {
        let start = Instant::now();
        for _ in 0..blocks {
            probe.run(steps, &mut meters)?;
            meters.ends.clear();
        }
        least = least.min((start.elapsed() / blocks).as_secs_f64());
    }
    Ok(least)
}

/// Seconds of a barrier, once two teams agree on it: a team whose threads had to wait for a core measures
/// that instead. `None` if no two agree.
fn barrier(threads: usize) -> Result<Option<f64>, DeviceError> {
    let agreed = agreed(TEAMS, || barrier_of_a_team(threads))?;
    Ok(agreed.ok().filter(|seconds| *seconds < LONGEST_BARRIER))
}

/// Seconds of a barrier, measured by a new team: the median of its runs.
fn barrier_of_a_team(threads: usize) -> Result<f64, DeviceError> {
    let run_barriers = |token: super::team::WorkerToken<'_>| (0..BARRIERS).try_for_each(|_| token.wait());
    let mut team = Team::new(threads, run_barriers).map_err(no_thread)?;
    let mut times = Vec::new();
    let begun = Instant::now();
    while begun.elapsed() < ROUND || times.len() < ROUNDS {
        let start = Instant::now();
        team.run(run_barriers).map_err(|_| DeviceError::Lost { device: "cpu".into(), step: 0 })?;
        times.push(start.elapsed().as_secs_f64() / BARRIERS as f64);
    }
    times.sort_unstable_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Wide bounds: every processor that this runs on is at least, and none more than, this fast.
    #[test]
    fn rates_are_those_of_a_machine() {
        // On a busy machine the measurement is refused.
        let rates = match measure(2) {
            Err(DeviceError::Rates { why, .. }) => {
                return assert!(why.contains("; measure again"), "{why}");
            }
            rates => rates.unwrap(),
        };
        assert_eq!(rates.origin, Origin::Measured);
        let within = |value: f64, low: f64, high: f64| assert!((low..high).contains(&value), "{rates:?}");
        within(rates.flops_per_s, 1e7, 2e12);
        within(rates.elementwise_per_s, 1e6, 2e12);
        within(rates.cache_bytes_per_s, 1e7, 1e13);
        within(rates.memory_bytes_per_s, 1e7, 2e12);
        within(rates.instruction_s, 1e-10, 1e-3);
        within(rates.barrier_s, 1e-9, 1.0);
        within(rates.block_s, 1e-12, 1.0);
        within(rates.noise, 0.0, 0.51);
        assert!(rates.cache_bytes_per_s >= rates.memory_bytes_per_s);
        assert!((0.0..=1.0).contains(&rates.product_scaling) && (0.0..=1.0).contains(&rates.memory_scaling));
    }

    #[test]
    fn rates_of_a_busy_machine_are_refused() {
        assert!(refuse(0.24, (0.24, false)).is_ok());
        let words = |noise, others| refuse(noise, others).unwrap_err().to_string();
        assert_eq!(
            words(1.076, (0.0, false)),
            "the rates of `cpu` are not kept: they varied by 107.6 % from round to round, more than 50.0 %; measure again \
             while the machine is quiet"
        );
        // A neighbour that never rests leaves rates steady.
        assert_eq!(
            words(0.01, (0.493, false)),
            "the rates of `cpu` are not kept: other processes used 49.3 % of the measured cores meanwhile, more than 25.0 %; \
             measure again while the machine is quiet"
        );
        assert!(
            words(0.01, (0.493, true)).contains("other virtual machines used 49.3 % of the measured cores")
        );
    }

    #[test]
    fn work_is_counted_as_it_is_done() {
        let mut count = 0;
        let mut work = || {
            count += 1;
            thread::yield_now();
        };
        let begun = Instant::now();
        let rate = round(&mut work, 3.0);
        let least = 3.0 * f64::from(count) / begun.elapsed().as_secs_f64();
        assert!(rate >= least, "{rate} {least}");
        assert!(rate <= 3.0 * f64::from(count) / ROUND.as_secs_f64(), "{rate}");
    }
}
