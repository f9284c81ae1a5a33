//! What all rivals in Rust share, like `benches/peers/harness.py` for those in Python: an untimed fit first,
//! the clock, the recorded losses, one line of JSON at the end.

mod data;
mod job;

use std::error::Error;
use std::fs;
use std::process::ExitCode;
use std::time::{Duration, Instant};

pub use data::{Data, Targets, one_hot, picked};
pub use job::{Job, Loss, Optimizer};

pub type Outcome<T> = Result<T, Box<dyn Error>>;

/// The results of a fit.
#[derive(Default)]
pub struct Trained {
    /// One per step.
    pub losses: Vec<f32>,
    /// One per epoch, if the job validates.
    pub validation: Vec<f32>,
    pub validation_took: Duration,
}

impl Trained {
    /// Records the validation loss, and the time it took.
    pub fn validate(&mut self, loss: impl FnOnce() -> Outcome<f32>) -> Outcome<()> {
        let start = Instant::now();
        self.validation.push(loss()?);
        self.validation_took += start.elapsed();
        Ok(())
    }
}

/// Trains from fresh parameters for this number of epochs.
pub type Train = Box<dyn FnMut(usize) -> Outcome<Trained>>;

/// The batches of an epoch, in a new random order each time.
pub struct Order {
    rows: Vec<u32>,
    batch: usize,
    random: fastrand::Rng,
}

impl Order {
    pub fn new(rows: usize, batch: usize) -> Self {
        Self { rows: (0..rows as u32).collect(), batch, random: fastrand::Rng::with_seed(0) }
    }

    pub fn shuffled(&mut self) -> impl Iterator<Item = &[u32]> {
        self.random.shuffle(&mut self.rows);
        self.rows.chunks(self.batch)
    }
}

/// Initial parameters as in PyTorch's Linear, for libraries with other defaults: uniform in ±1/sqrt(inputs).
pub fn uniform(random: &mut fastrand::Rng, len: usize, inputs: usize) -> Vec<f32> {
    let bound = 1.0 / (inputs as f32).sqrt();
    (0..len).map(|_| bound * (2.0 * random.f32() - 1.0)).collect()
}

/// The main function of a rival: `prepare` builds the training from the job and its data.
pub fn run(library: &str, prepare: impl FnOnce(&Job, Data) -> Outcome<Train>) -> ExitCode {
    match fit(library, prepare) {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(fault) => {
            eprintln!("{fault}");
            ExitCode::FAILURE
        }
    }
}

fn fit(library: &str, prepare: impl FnOnce(&Job, Data) -> Outcome<Train>) -> Outcome<String> {
    let job = Job::read(std::env::args().skip(1))?;
    settle(job.threads)?;
    let data = Data::load(&job)?;
    let steps_per_epoch = data.rows.div_ceil(job.batch);
    let mut train = prepare(&job, data)?;
    if job.warm_up > 0 {
        train(job.warm_up)?;
    }
    let start = Instant::now();
    let trained = train(job.epochs)?;
    let train_s = (start.elapsed() - trained.validation_took).as_secs_f64();

    let mut csv = String::from("step,split,loss\n");
    for (split, losses) in [("train", &trained.losses), ("validation", &trained.validation)] {
        for (index, loss) in losses.iter().enumerate() {
            csv += &format!("{},{split},{loss}\n", index + 1);
        }
    }
    fs::write(&job.losses, csv).map_err(|e| format!("{}: {e}", job.losses.display()))?;

    let steps = job.epochs * steps_per_epoch;
    if trained.losses.len() != steps {
        return Err(format!("{} losses of {steps} steps", trained.losses.len()).into());
    }
    let last = &trained.losses[steps - steps_per_epoch..];
    let final_loss = last.iter().map(|&loss| f64::from(loss)).sum::<f64>() / last.len() as f64;
    if !final_loss.is_finite() {
        return Err(format!("the loss is {final_loss}").into());
    }
    Ok(format!(
        r#"{{"steps_per_s": {}, "train_s": {train_s}, "steps": {steps}, "losses": {steps}, "final_loss": {final_loss}, "threads": {}, "versions": {{"{library}": "{}"}}}}"#,
        steps as f64 / train_s,
        job.threads,
        version(library)?,
    ))
}

/// The library's version as built: the newest with this name in the lock file.
fn version(library: &str) -> Outcome<&'static str> {
    let head = format!("name = \"{library}\"\nversion = \"");
    let found = include_str!("../Cargo.lock").rsplit_once(&head).and_then(|(_, rest)| rest.split_once('"'));
    found.map(|(version, _)| version).ok_or_else(|| format!("{library} is not in the lock file").into())
}

/// Makes all threads, including this one, flush denormals to zero: dying units leave Adam with tiny moments,
/// and a processor takes hundreds of cycles for each denormal.
fn settle(threads: usize) -> Outcome<()> {
    // SAFETY: no other thread runs yet. candle reads this variable; the others ask the pool below.
    unsafe { std::env::set_var("RAYON_NUM_THREADS", threads.to_string()) };
    flush_to_zero();
    rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .use_current_thread()
        .start_handler(|_| flush_to_zero())
        .build_global()?;
    Ok(())
}

#[cfg(target_arch = "x86_64")]
fn flush_to_zero() {
    let mut control = 0u32;
    // SAFETY: MXCSR is read, and written back with its flags FTZ and DAZ set.
    unsafe {
        std::arch::asm!("stmxcsr [{}]", in(reg) &mut control, options(nostack));
        control |= 0x8040;
        std::arch::asm!("ldmxcsr [{}]", in(reg) &control, options(nostack));
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn flush_to_zero() {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_has_every_row_once_and_keeps_the_last_batch() {
        let mut order = Order::new(10, 4);
        let first: Vec<Vec<u32>> = order.shuffled().map(<[u32]>::to_vec).collect();
        let second: Vec<Vec<u32>> = order.shuffled().map(<[u32]>::to_vec).collect();
        assert_eq!(first.iter().map(Vec::len).collect::<Vec<_>>(), [4, 4, 2]);
        assert_ne!(first, second);
        for epoch in [first, second] {
            let mut rows = epoch.concat();
            rows.sort();
            assert_eq!(rows, (0..10).collect::<Vec<_>>());
        }
    }

    #[test]
    fn versions_come_from_the_lock_file() {
        assert_eq!(version("dfdx").unwrap(), "0.13.0");
        // The lock file has two versions; dfdx uses the older one.
        assert_eq!(version("gemm").unwrap(), "0.19.0");
        assert_eq!(version("torch").unwrap_err().to_string(), "torch is not in the lock file");
    }

    #[test]
    fn numbers_near_zero_become_zero() {
        let tiny = std::hint::black_box(1e-38f32);
        assert_ne!(tiny * std::hint::black_box(0.1), 0.0);
        std::thread::spawn(|| {
            flush_to_zero();
            assert_eq!(std::hint::black_box(1e-38f32) * std::hint::black_box(0.1), 0.0);
        })
        .join()
        .unwrap();
    }
}
