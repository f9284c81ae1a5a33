//! A data buffer on the device: all rows at once, or two chunks in turn, of which one is computed with while the other
//! is on its way.

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use super::{
    context::Context,
    memory::{DeviceMemory, Pinned},
    stream::{Event, Stream},
};
use crate::device::DeviceError;

/// So long the host asks again and again; a sleep is longer than a short block.
const EAGER: Duration = Duration::from_micros(200);
/// Then it sleeps so long before it asks again.
pub const ASK_AGAIN: Duration = Duration::from_micros(20);

/// Asks an event until it has happened: no wait of the driver, and the device has more to do meanwhile.
pub fn ask(event: &Event, doing: impl Fn() -> String) -> Result<(), DeviceError> {
    let begun = Instant::now();
    while !event.happened(&doing)? {
        if begun.elapsed() < EAGER { thread::yield_now() } else { thread::sleep(ASK_AGAIN) }
    }
    Ok(())
}

/// One of a feed's two places.
struct Chunk {
    memory: DeviceMemory,
    staging: Pinned,
    /// The upload is done: the staging may be written again, and kernels may read.
    uploaded: Event,
    /// The kernels that read it are done.
    released: Event,
}

/// See the module.
#[derive(Default)]
pub struct Feed {
    whole: Option<DeviceMemory>,
    chunks: [Option<Chunk>; 2],
    current: usize,
}

impl Feed {
    /// Where kernels find the rows; 0 before any were bound.
    pub fn at(&self) -> u64 {
        let chunk = self.chunks[self.current].as_ref().map(|c| c.memory.at);
        chunk.or_else(|| self.whole.as_ref().map(|m| m.at)).unwrap_or(0)
    }

    /// Brings all rows to the device, once.
    pub fn bind_whole(
        &mut self,
        context: &Arc<Context>,
        stream: &Stream,
        rows: &[f32],
        what: &str,
    ) -> Result<(), DeviceError> {
        let bytes = size_of_val(rows);
        let memory = match self.whole.take().filter(|memory| memory.bytes == bytes) {
            Some(memory) => memory,
            None => DeviceMemory::new(context, bytes, what)?,
        };
        stream.upload_staged(memory.at, rows)?;
        self.whole = Some(memory);
        Ok(())
    }

    /// Begins to bring the next chunk to the device. What `compute` is given from now on waits for it, and nothing else.
    pub fn bind_chunk(
        &mut self,
        context: &Arc<Context>,
        copies: &Stream,
        compute: &Stream,
        rows: &[f32],
        what: &str,
    ) -> Result<(), DeviceError> {
        if let Some(current) = &self.chunks[self.current] {
            current.released.record(compute)?;
        }
        let next = if self.chunks[self.current].is_some() { 1 - self.current } else { self.current };
        let bytes = size_of_val(rows);
        let chunk = match self.chunks[next].take().filter(|chunk| chunk.memory.bytes >= bytes) {
            Some(mut chunk) => {
                // The upload of two chunks ago, long done: the host only asks.
                ask(&chunk.uploaded, || format!("uploading {what}"))?;
                chunk.staging.write(0, rows);
                copies.follow(&chunk.released)?;
                chunk
            }
            None => {
                // Only for the first two, since none is larger than the first.
                let mut chunk = Chunk {
                    memory: DeviceMemory::new(context, bytes, what)?,
                    staging: Pinned::new(context, bytes, what)?,
                    uploaded: Event::plain(context)?,
                    released: Event::plain(context)?,
                };
                chunk.staging.write(0, rows);
                chunk
            }
        };
        copies.upload(chunk.memory.at, &chunk.staging, 0, bytes)?;
        chunk.uploaded.record(copies)?;
        compute.follow(&chunk.uploaded)?;
        self.chunks[next] = Some(chunk);
        self.current = next;
        Ok(())
    }
}

/// The epoch's order of rows: one place on the device, two on the host.
pub struct OrderFeed {
    memory: Option<DeviceMemory>,
    staging: [Option<(Pinned, Event)>; 2],
    next: usize,
}

impl OrderFeed {
    /// None so far.
    pub fn new() -> Self {
        Self { memory: None, staging: [None, None], next: 0 }
    }

    /// Where kernels find it.
    pub fn at(&self) -> u64 {
        self.memory.as_ref().map_or(0, |memory| memory.at)
    }

    /// Brings it to the device, behind all steps that use the one before.
    pub fn bind(
        &mut self,
        context: &Arc<Context>,
        stream: &Stream,
        order: &[u32],
    ) -> Result<(), DeviceError> {
        let bytes = size_of_val(order);
        let what = "the order of rows";
        let memory = match self.memory.take().filter(|memory| memory.bytes >= bytes) {
            Some(memory) => memory,
            None => DeviceMemory::new(context, bytes, what)?,
        };
        let place = &mut self.staging[self.next];
        self.next = 1 - self.next;
        if let Some((_, uploaded)) = place {
            ask(uploaded, || format!("uploading {what}"))?;
        }
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
