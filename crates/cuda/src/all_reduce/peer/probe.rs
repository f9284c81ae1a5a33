//! Tests peer access before training: sums known values, which shows whether the other GPUs' memory can
//! really be read. With some IOMMU settings it cannot, and no call reports an error.

use std::{thread, time::Duration};

use crate::{
    all_reduce::peer::PeerAllReduce,
    collective::CollectiveError,
    device::DeviceError,
    launch::Stream,
    memory::{DeviceMemory, Pinned},
};

/// The wait for the others is at least this long.
const LIMIT: Duration = Duration::from_secs(10);
const NUMBERS: usize = 1021;

struct ProbeSetup {
    stream: Stream,
    memory: DeviceMemory,
    staging: Pinned,
}

impl PeerAllReduce {
    /// Sums known values with the others, twice, so that both buffers are used; each rank runs on its own thread.
    fn probe(&self, setup: &mut ProbeSetup) -> Result<(), DeviceError> {
        let ProbeSetup { stream, memory, staging } = setup;
        let shared = &self.shared;
        let context = &shared.members[self.rank].context;
        context.enter()?;
        let len = memory.bytes / size_of::<f32>();
        for round in 1..=2 {
            // Integers, so the sums are exact.
            let brought = |rank: usize, i: usize| ((i * 7 + rank * 1009) * round) as f32;
            let mut elements: Vec<f32> = (0..len).map(|i| brought(self.rank, i)).collect();
            staging.write(0, &elements);
            stream.upload(memory.at, staging, 0, memory.bytes)?;
            self.queue(stream, memory.at, len, 0, shared.limit.max(LIMIT))?;
            stream.download(staging, 0, memory.at, memory.bytes)?;
            context.finish(stream, shared.limit.max(LIMIT).as_secs_f64(), "summing with the others")?;
            self.fault()?;
            staging.read(0, &mut elements);
            let want = |i: usize| (0..shared.members.len()).map(|rank| brought(rank, i)).sum::<f32>();
            if elements.iter().enumerate().any(|(i, sum)| *sum != want(i)) {
                let why = "what it reads from the others' memory is not what they hold";
                return Err(context.unusable(why));
            }
        }
        Ok(())
    }
}

/// Whether all ranks get the correct sums.
pub fn all(ranks: &mut [PeerAllReduce]) -> Result<(), DeviceError> {
    // Anything that may make the driver wait for a GPU must happen before any GPU waits for another one.
    let setup = |rank: &PeerAllReduce| {
        let context = &rank.shared.members[rank.rank].context;
        context.enter()?;
        let (bytes, what) = (NUMBERS.min(rank.shared.room) * size_of::<f32>(), "a sum over GPUs");
        let (stream, memory) = (Stream::new(context)?, DeviceMemory::new(context, bytes, what)?);
        Ok(ProbeSetup { stream, memory, staging: Pinned::new(context, bytes, what)? })
    };
    let mut grounds = ranks.iter().map(setup).collect::<Result<Vec<_>, DeviceError>>()?;
    let one = |(rank, setup): (&mut PeerAllReduce, &mut ProbeSetup)| {
        // Release the others.
        rank.probe(setup).inspect_err(|_| rank.shared.stop())
    };
    let faults: Vec<DeviceError> = thread::scope(|scope| {
        let both = ranks.iter_mut().zip(&mut grounds);
        let asked: Vec<_> = both.map(|both| scope.spawn(move || one(both))).collect();
        let ended = || DeviceError::Ended { device: "a GPU".into() };
        asked.into_iter().filter_map(|thread| thread.join().unwrap_or_else(|_| Err(ended())).err()).collect()
    });
    // Ranks that were released do not know the cause, so prefer another error.
    let released =
        |e: &DeviceError| matches!(e, DeviceError::Collective { source: CollectiveError::Poisoned, .. });
    let (released, mut causes): (Vec<_>, Vec<_>) = faults.into_iter().partition(released);
    causes.extend(released);
    causes.into_iter().next().map_or(Ok(()), Err)
}
