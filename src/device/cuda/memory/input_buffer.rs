//! A data buffer on the device: all rows at once, or two chunks in turn, of which one is computed with while the other
//! is on its way.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    allocation::{DeviceMemory, Pinned},
    staging::Staging,
};
use crate::device::{
    DeviceError,
    cuda::{
        engines::GpuContext,
        ffi::Context,
        launch::{Event, InFlightQueue, Stream},
    },
};

/// One of a feed's two places.
struct Chunk {
    memory: DeviceMemory,
    staging: Pinned,
    begun: Event,
    /// The upload is done: the staging may be written again, and kernels may read.
    uploaded: Event,
    /// Whether its time was not told so far.
    is_news: bool,
    /// The kernels that read it are done.
    released: Event,
}

impl Chunk {
    fn new(context: &Arc<Context>, bytes: usize, what: &str) -> Result<Self, DeviceError> {
        Ok(Self {
            memory: DeviceMemory::new(context, bytes, what)?,
            staging: Pinned::new(context, bytes, what)?,
            begun: Event::timed(context)?,
            uploaded: Event::timed(context)?,
            is_news: false,
            released: Event::plain(context)?,
        })
    }

    /// When its last upload began and ended, once; the upload is done.
    fn reported(&mut self, in_flight: &InFlightQueue) -> Result<Option<[Instant; 2]>, DeviceError> {
        if !std::mem::take(&mut self.is_news) {
            return Ok(None);
        }
        Ok(Some([in_flight.instant(&self.begun)?, in_flight.instant(&self.uploaded)?]))
    }
}

#[derive(Default)]
pub struct InputBuffer {
    whole: Option<DeviceMemory>,
    chunks: [Option<Chunk>; 2],
    current: usize,
}

impl InputBuffer {
    /// Where kernels find the rows; 0 before any were bound.
    pub fn at(&self) -> u64 {
        let chunk = self.chunks[self.current].as_ref().map(|c| c.memory.at);
        chunk.or_else(|| self.whole.as_ref().map(|m| m.at)).unwrap_or(0)
    }

    pub fn bytes(&self) -> usize {
        let chunks = self.chunks.iter().flatten().map(|chunk| chunk.memory.bytes);
        chunks.sum::<usize>() + self.whole.as_ref().map_or(0, |memory| memory.bytes)
    }

    /// Brings all rows to the device, once. How long the host waited for a place to copy from.
    pub fn bind_whole(
        &mut self,
        gpu_context: &GpuContext,
        staging: &mut Staging,
        rows: &[f32],
        what: &str,
    ) -> Result<Duration, DeviceError> {
        let bytes = size_of_val(rows);
        let memory = match self.whole.take().filter(|memory| memory.bytes == bytes) {
            Some(memory) => memory,
            None => DeviceMemory::new(&gpu_context.context, bytes, what)?,
        };
        let waited = staging.upload(gpu_context, memory.at, rows)?;
        self.whole = Some(memory);
        Ok(waited)
    }

    /// Begins to bring the next chunk to the device. What `compute` is given from now on waits for it, and nothing else.
    /// When the upload before it in the same place began and ended.
    pub fn bind_chunk(
        &mut self,
        gpu_context: &GpuContext,
        (copies, in_flight): (&Stream, &InFlightQueue),
        rows: &[f32],
        what: &str,
    ) -> Result<Option<[Instant; 2]>, DeviceError> {
        let (context, compute) = (&gpu_context.context, &gpu_context.stream);
        if let Some(current) = &self.chunks[self.current] {
            current.released.record(compute)?;
        }
        let next = 1 - self.current;
        let bytes = size_of_val(rows);
        let mut reported = None;
        if let Some(chunk) = &mut self.chunks[next] {
            let doing = || format!("uploading {what}");
            // The upload of two chunks ago, long done: the host only asks.
            gpu_context.until(&chunk.uploaded, doing)?;
            reported = chunk.reported(in_flight)?;
            if chunk.memory.bytes < bytes {
                gpu_context.until(&chunk.released, doing)?;
            }
        }
        // What may still be in use stays where it is if a wait fails: to free it would be a wait, too.
        let mut chunk = match self.chunks[next].take() {
            Some(chunk) if chunk.memory.bytes >= bytes => {
                copies.follow(&chunk.released)?;
                chunk
            }
            // Larger than all before it, which the loader does not send: this place alone grows.
            Some(_) => Chunk::new(context, bytes, what)?,
            None => {
                // The first of all: both places are taken, so that nothing is allocated later.
                self.chunks[1 - next] = Some(Chunk::new(context, bytes, what)?);
                Chunk::new(context, bytes, what)?
            }
        };
        chunk.staging.write(0, rows);
        chunk.begun.record(copies)?;
        copies.upload(chunk.memory.at, &chunk.staging, 0, bytes)?;
        chunk.uploaded.record(copies)?;
        chunk.is_news = true;
        compute.follow(&chunk.uploaded)?;
        self.chunks[next] = Some(chunk);
        self.current = next;
        Ok(reported)
    }

    /// When the uploads that are done and were not told so far began and ended, in order.
    pub fn reported(&mut self, in_flight: &InFlightQueue) -> Result<Vec<[Instant; 2]>, DeviceError> {
        let mut all = Vec::new();
        for place in [1 - self.current, self.current] {
            let Some(chunk) = &mut self.chunks[place] else { continue };
            if chunk.is_news && chunk.uploaded.happened(|| "uploading rows".into())? {
                all.extend(chunk.reported(in_flight)?);
            }
        }
        Ok(all)
    }
}

/// The epoch's order of rows: one place on the device, two on the host.
pub struct OrderBuffer {
    memory: Option<DeviceMemory>,
    staging: [Option<(Pinned, Event)>; 2],
    next: usize,
}

impl OrderBuffer {
    pub fn new() -> Self {
        Self { memory: None, staging: [None, None], next: 0 }
    }

    /// Where kernels find it.
    pub fn at(&self) -> u64 {
        self.memory.as_ref().map_or(0, |memory| memory.at)
    }

    pub fn bytes(&self) -> usize {
        self.memory.as_ref().map_or(0, |memory| memory.bytes)
    }

    /// Brings it to the device, behind all steps that use the one before.
    pub fn bind(&mut self, gpu_context: &GpuContext, order: &[u32]) -> Result<(), DeviceError> {
        let (context, stream) = (&gpu_context.context, &gpu_context.stream);
        let bytes = size_of_val(order);
        let what = "the order of rows";
        if let Some((_, uploaded)) = &self.staging[self.next] {
            gpu_context.until(uploaded, || format!("uploading {what}"))?;
        }
        let memory = match self.memory.take().filter(|memory| memory.bytes >= bytes) {
            Some(memory) => memory,
            None => DeviceMemory::new(context, bytes, what)?,
        };
        let place = &mut self.staging[self.next];
        self.next = 1 - self.next;
        if place.as_ref().is_none_or(|(staging, _)| staging.pointer(0, bytes).is_none()) {
            *place = Some((Pinned::new(context, bytes, what)?, Event::plain(context)?));
        }
        if let Some((staging, uploaded)) = place {
            staging.write(0, order);
            stream.upload(memory.at, staging, 0, bytes)?;
            uploaded.record(stream)?;
        }
        self.memory = Some(memory);
        Ok(())
    }
}
