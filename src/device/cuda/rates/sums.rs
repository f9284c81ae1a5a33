//! What a sum over several GPUs takes: of a few numbers, and of many.

use std::{sync::Arc, thread, time::Duration};

use super::queue::median;
use crate::{
    device::{
        DeviceError,
        cuda::{
            context::Context,
            gpu::Gpu,
            memory::DeviceMemory,
            nccl::{Communicator, Lost, Nccl},
            stream::{Event, Stream},
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
            scope.spawn(move || Ok::<_, DeviceError>([rounds(&gpu, &rank, SMALL)?, rounds(&gpu, &rank, LARGE)?]))
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
fn rounds(gpu: &Gpu, rank: &Communicator, (numbers, count): (usize, usize)) -> Result<Vec<f64>, DeviceError> {
    let context = Context::open(gpu.clone())?;
    let stream = Stream::new(&context)?;
    let memory = DeviceMemory::new(&context, 4 * numbers, "measuring sums")?;
    stream.fill(memory.at, 0, 4 * numbers)?;
    let (begin, end) = (Event::timed(&context)?, Event::timed(&context)?);
    let broken = |context: &Arc<Context>, why: String| DeviceError::Broken {
        device: context.name.clone(),
        doing: "measuring sums".into(),
        why,
    };
    let mut times = Vec::with_capacity(ROUNDS);
    for round in 0..=ROUNDS {
        begin.record(&stream)?;
        for _ in 0..count {
            rank.all_reduce(&stream, memory.at, numbers).map_err(|why| broken(&context, why))?;
        }
        end.record(&stream)?;
        rank.wait(|| end.happened(|| "measuring sums".into()).map_err(Fault::Device)).map_err(
            |fault| match fault {
                Fault::Device(e) => e,
                Fault::Lost(why) => broken(&context, why),
            },
        )?;
        if round > 0 {
            times.push(end.seconds_after(&begin)? / count as f64);
        }
    }
    Ok(times)
}

/// What ends a wait.
enum Fault {
    Device(DeviceError),
    Lost(String),
}

impl From<Lost> for Fault {
    fn from(Lost(why): Lost) -> Self {
        Self::Lost(why)
    }
}
