//! Which of cuBLASLt's algorithms computes a product: the fastest of those that it suggests whose results have
//! the bits of its first suggestion's.
//!
//! The choice therefore changes no number: a run that is repeated has the same bits, whatever was faster when
//! it was loaded. Bits are compared on random operands of the product's own shape: another order of sums shows
//! in one of thousands of elements. What was chosen stays in the cache of kernels.

use std::time::{Duration, Instant};

use super::{
    gpu_context::GpuContext,
    matmul::{Algorithm, Key, Library, Matmul, failed, number},
};
use crate::{
    device::DeviceError,
    ffi::cache,
    host::variable,
    launch::{Event, Shape, arguments},
    memory::Digest,
};

/// The most time that all products together may take, code that the library loads included. Products that
/// find none left keep the first suggestion, and are tried in the next run. A product that takes all of it alone
/// is decided by what is known then, so that no run pays for it again.
const MOST: Duration = Duration::from_millis(200);
/// The environment variable that replaces it, in seconds: for tests, on machines under load.
const MOST_VARIABLE: &str = "RUNNER_GPU_TUNING_S";
/// Timed rounds per algorithm, in turns; the fastest counts.
const ROUNDS: usize = 3;
/// Seconds of a round, unless `MOST_CALLS` take less.
const ROUND_S: f64 = 100e-6;
const MOST_CALLS: f64 = 8.0;
/// Another algorithm is chosen only if the first takes this many times as long: less may be noise.
const WORTH: f64 = 1.03;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    pub algorithm: Algorithm,
    /// The time of the first suggestion over that of the chosen one; 1 if that is the first.
    pub gain: f64,
}

impl Choice {
    pub fn untimed(algorithm: Algorithm) -> Self {
        Self { algorithm, gain: 1.0 }
    }

    /// A cache entry: the first suggestion, by which the entry is known to fit; the choice; its gain.
    fn to_bytes(self, first: &Algorithm) -> Vec<u8> {
        let words = first.iter().chain(&self.algorithm).copied().chain([self.gain.to_bits()]);
        words.flat_map(u64::to_le_bytes).collect()
    }

    /// `None` if the library suggests something else now.
    fn from_bytes(bytes: &[u8], found: &[Algorithm]) -> Option<Self> {
        let words: Vec<u64> =
            bytes.chunks(8).filter_map(|word| word.try_into().ok()).map(u64::from_le_bytes).collect();
        let (first, rest) = words.split_at_checked(size_of::<Algorithm>() / 8)?;
        let (algorithm, gain) = rest.split_at_checked(size_of::<Algorithm>() / 8)?;
        let algorithm = *found.iter().find(|of| &of[..] == algorithm)?;
        let [gain] = *gain else { return None };
        (found.first()? == first).then_some(Self { algorithm, gain: f64::from_bits(gain) })
    }
}

pub struct Tuner {
    begin: Event,
    end: Event,
    digest: Digest,
    most: Duration,
    spent: Duration,
}

impl Tuner {
    pub fn new(gpu: &GpuContext) -> Result<Self, DeviceError> {
        let [begin, end] = [Event::timed(&gpu.context)?, Event::timed(&gpu.context)?];
        let set = variable(MOST_VARIABLE).and_then(|text| text.to_str()?.parse().ok());
        let most = set.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).unwrap_or(MOST);
        Ok(Self { begin, end, digest: Digest::new(gpu)?, most, spent: Duration::ZERO })
    }

    /// Chooses a product's algorithm. Overwrites its matrices. `None` if the library has no algorithm.
    pub fn choose(
        &mut self,
        gpu: &GpuContext,
        library: &Library,
        matmul: &Matmul,
    ) -> Result<Option<Choice>, DeviceError> {
        let found = matmul.suggestions();
        let first = found.first().copied().map(Choice::untimed);
        // Without a place to remember the choice, every load would pay for it.
        let (Some(folder), Some(algorithm), 2..) = (cache::folder(), found.first(), found.len()) else {
            return Ok(first);
        };
        let path = cache::path(&folder, &[made_for(gpu, library, &matmul.key).as_bytes()], "algorithm");
        let known = cache::read(&folder, &path).ok().flatten();
        if let Some(known) = known.and_then(|bytes| Choice::from_bytes(&bytes, &found)) {
            return Ok(Some(known));
        }
        // Others took the time.
        if self.spent > self.most {
            return Ok(first);
        }
        let begun = Instant::now();
        let fastest = self.fastest(gpu, matmul, &found, begun);
        self.spent += begun.elapsed();
        let Some(fastest) = fastest? else { return Ok(first) };
        // If it cannot be written, the next run chooses again.
        let _ = cache::write(&folder, &path, &fastest.to_bytes(algorithm));
        Ok(Some(fastest))
    }

    /// `None` if others left too little time, or if the first suggestion does not work.
    fn fastest(
        &self,
        gpu: &GpuContext,
        matmul: &Matmul,
        found: &[Algorithm],
        begun: Instant,
    ) -> Result<Option<Choice>, DeviceError> {
        let (is_late, alone) = (|| self.spent + begun.elapsed() > self.most, self.spent.is_zero());
        let first = Choice::untimed(found[0]);
        fill(gpu, matmul)?;
        let Some(want) = self.result(gpu, matmul, &found[0])? else { return Ok(None) };
        let mut equal = vec![(found[0], f64::INFINITY)];
        for algorithm in &found[1..] {
            if is_late() {
                return Ok(alone.then_some(first));
            }
            if self.result(gpu, matmul, algorithm)? == Some(want) {
                equal.push((*algorithm, f64::INFINITY));
            }
        }
        if equal.len() == 1 {
            return Ok(Some(first));
        }
        let once = self.seconds(gpu, matmul, &found[0], 1)?;
        let calls = (ROUND_S / once.max(1e-9)).clamp(1.0, MOST_CALLS) as usize;
        'rounds: for _ in 0..ROUNDS {
            for (algorithm, least) in &mut equal {
                if is_late() {
                    if alone {
                        break 'rounds;
                    }
                    return Ok(None);
                }
                *least = least.min(self.seconds(gpu, matmul, algorithm, calls)?);
            }
        }
        let first_s = equal[0].1;
        let best = equal.iter().min_by(|a, b| a.1.total_cmp(&b.1)).copied();
        let best = best.filter(|(_, best_s)| first_s > WORTH * best_s);
        if let Some((algorithm, best_s)) = best
            && self.result(gpu, matmul, &algorithm)? == Some(want)
        {
            return Ok(Some(Choice { algorithm, gain: first_s / best_s }));
        }
        Ok(Some(first))
    }

    /// The digest of what an algorithm writes; `None` if the library refuses it.
    fn result(
        &self,
        gpu: &GpuContext,
        matmul: &Matmul,
        algorithm: &Algorithm,
    ) -> Result<Option<u64>, DeviceError> {
        let elements = (matmul.key.m * matmul.key.n) as usize;
        // NaN, so that nothing of the previous result remains.
        gpu.stream.fill(matmul.at.to, 0xff, 4 * elements)?;
        if matmul.queue(algorithm, &gpu.stream).is_err() {
            return Ok(None);
        }
        self.digest.queue(gpu, matmul.at.to, elements)?;
        self.end.record(&gpu.stream)?;
        gpu.wait(&self.end, doing)?;
        Ok(Some(self.digest.get()))
    }

    /// Seconds of a call, by the device's clock.
    fn seconds(
        &self,
        gpu: &GpuContext,
        matmul: &Matmul,
        algorithm: &Algorithm,
        calls: usize,
    ) -> Result<f64, DeviceError> {
        self.begin.record(&gpu.stream)?;
        for _ in 0..calls {
            matmul.queue(algorithm, &gpu.stream).map_err(|status| failed(&gpu.context, status))?;
        }
        self.end.record(&gpu.stream)?;
        gpu.wait(&self.end, doing)?;
        Ok(self.end.seconds_after(&self.begin)? / calls as f64)
    }
}

fn doing() -> String {
    "choosing algorithms of products".into()
}

/// Everything on which the suggestions and their times depend.
fn made_for(gpu: &GpuContext, library: &Library, key: &Key) -> String {
    let context = &gpu.context;
    let (own, driver, workspace) = (&context.gpu, context.driver.version, library.workspace.bytes);
    let (name, capability, count) = (&own.name, own.capability, own.multiprocessors);
    format!("{name} {capability:?} {count} {driver} {:?} {workspace} {key:?}", library.version())
}

/// Fills the operands with random numbers. Not zeros: their sums have the same bits in any order, and they
/// take less power, so clocks would rise.
fn fill(gpu: &GpuContext, matmul: &Matmul) -> Result<(), DeviceError> {
    let Key { m, n, k, operands, .. } = matmul.key;
    let noise = gpu.context.function("noise")?;
    let half = operands == number::R_16BF;
    let mut seed = 0u64;
    let mut fill = |at: u64, elements: u64, half: bool| {
        seed += 1;
        let words = if half { elements.div_ceil(2) } else { elements };
        let shape = Shape::new(words.div_ceil(1024), 4 * gpu.context.gpu.multiprocessors);
        // SAFETY: (u32*, u64, u64, int); a product's matrices lie within the arena, padded to whole words.
        unsafe { gpu.launch(noise, shape, arguments![at, words, seed << 32, i32::from(half)], "noise") }
    };
    fill(matmul.at.left, m * k, half)?;
    fill(matmul.at.right, k * n, half)?;
    matmul.at.bias.map_or(Ok(()), |bias| fill(bias, m, false))
}
