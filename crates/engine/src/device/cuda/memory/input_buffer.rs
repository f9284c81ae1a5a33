//! A data buffer on the device: all rows at once, or two chunks that alternate: one is in use while the other
//! is uploaded.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    allocation::{DeviceMemory, Pinned},
    resident_rows::Rows,
    staging::Staging,
};
use crate::device::{
    DeviceError, LentRows,
    backend::misfit,
    cuda::{
        engines::GpuContext,
        ffi::Context,
        launch::{Event, InFlightQueue, Stream},
    },
};

struct Chunk {
    memory: DeviceMemory,
    /// The rows on the host, until their upload is known to be complete.
    rows: Option<Arc<LentRows>>,
    begun: Event,
    /// The upload is complete: kernels may read the chunk.
    uploaded: Event,
    /// Whether the upload's times were not reported yet.
    is_news: bool,
    /// The kernels that read the chunk are done.
    released: Event,
}

impl Chunk {
    fn new(context: &Arc<Context>, bytes: usize, what: &str) -> Result<Self, DeviceError> {
        Ok(Self {
            memory: DeviceMemory::new(context, bytes, what)?,
            rows: None,
            begun: Event::timed(context)?,
            uploaded: Event::timed(context)?,
            is_news: false,
            released: Event::plain(context)?,
        })
    }

    /// Start and end of its last upload, returned only once; the upload must be complete. Lets go of the rows on the host.
    fn reported(&mut self, in_flight: &InFlightQueue) -> Result<Option<[Instant; 2]>, DeviceError> {
        self.rows = None;
        if !std::mem::take(&mut self.is_news) {
            return Ok(None);
        }
        Ok(Some([in_flight.instant(&self.begun)?, in_flight.instant(&self.uploaded)?]))
    }
}

#[derive(Default)]
pub struct InputBuffer {
    /// Those that were bound; steps read the last, and queued ones may read the others.
    whole: Vec<Rows>,
    chunks: [Option<Chunk>; 2],
    current: usize,
}

impl InputBuffer {
    /// The address of the rows; 0 before any were bound.
    pub fn at(&self) -> u64 {
        let chunk = self.chunks[self.current].as_ref().map(|c| c.memory.at);
        chunk.or_else(|| self.whole.last().map(|rows| rows.at)).unwrap_or(0)
    }

    pub fn bytes(&self) -> usize {
        let chunks = self.chunks.iter().flatten().map(|chunk| chunk.memory.bytes);
        chunks.sum::<usize>() + self.whole.iter().map(|rows| rows.bytes).sum::<usize>()
    }

    /// Binds all rows. Returns how long the host waited to upload them; `None` if they were there.
    pub fn bind_whole(
        &mut self,
        gpu: &GpuContext,
        staging: &mut Staging,
        rows: &Arc<Vec<f32>>,
        what: &str,
    ) -> Result<Option<Duration>, DeviceError> {
        let (rows, waited) = Rows::bind(gpu, staging, rows, what)?;
        self.whole.push(rows);
        Ok(waited)
    }

    /// Starts uploading the next chunk, which it holds for that long; later work in the stream of steps waits for it. Returns
    /// start and end of the previous upload into the same memory.
    pub fn bind_chunk(
        &mut self,
        gpu: &GpuContext,
        (copies, in_flight): (&Stream, &InFlightQueue),
        rows: &Arc<LentRows>,
        what: &str,
    ) -> Result<Option<[Instant; 2]>, DeviceError> {
        let (context, compute) = (&gpu.context, &gpu.stream);
        let doing = || format!("uploading {what}");
        if let Some(current) = &mut self.chunks[self.current] {
            current.released.record(compute)?;
            if current.uploaded.happened(doing)? {
                current.rows = None;
            }
        }
        let next = 1 - self.current;
        let mut reported = None;
        if let Some(chunk) = &mut self.chunks[next] {
            // The upload of two chunks ago, which was complete long ago.
            gpu.until(&chunk.uploaded, doing)?;
            reported = chunk.reported(in_flight)?;
            copies.follow(&chunk.released)?;
        } else {
            // Allocate both, for the largest chunk, so that none has to be allocated later.
            for chunk in &mut self.chunks {
                *chunk = Some(Chunk::new(context, 4 * rows.room(), what)?);
            }
        }
        let Some(chunk) =
            self.chunks[next].as_mut().filter(|chunk| size_of_val(&rows[..]) <= chunk.memory.bytes)
        else {
            return Err(misfit(&context.name, "a chunk that is larger than the one before"));
        };
        chunk.rows = Some(Arc::clone(rows));
        chunk.begun.record(copies)?;
        // SAFETY: the slot holds the rows, and nobody writes them, until the copy is complete. They fit.
        unsafe { copies.upload_from(chunk.memory.at, &rows[..])? };
        chunk.uploaded.record(copies)?;
        chunk.is_news = true;
        compute.follow(&chunk.uploaded)?;
        self.current = next;
        Ok(reported)
    }

    /// Start and end of the uploads that are complete and were not reported yet, in order.
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

/// One of two buffers for orders of rows.
struct Order {
    memory: DeviceMemory,
    staging: Pinned,
    uploaded: Event,
    /// The steps that read it are complete.
    released: Event,
}

impl Order {
    fn new(context: &Arc<Context>, bytes: usize, what: &str) -> Result<Self, DeviceError> {
        Ok(Self {
            memory: DeviceMemory::new(context, bytes, what)?,
            staging: Pinned::new(context, bytes, what)?,
            uploaded: Event::plain(context)?,
            released: Event::plain(context)?,
        })
    }
}

/// The orders of rows of some epochs, and those of the next ones.
#[derive(Default)]
pub struct OrderBuffer {
    places: Option<[Order; 2]>,
    current: usize,
}

impl OrderBuffer {
    pub fn at(&self) -> u64 {
        self.places.as_ref().map_or(0, |places| places[self.current].memory.at)
    }

    pub fn bytes(&self) -> usize {
        self.places.iter().flatten().map(|order| order.memory.bytes).sum()
    }

    /// Uploads the order while steps that use the previous one run. Later ones find room if they fit its memory on the
    /// host.
    pub fn bind(&mut self, gpu: &GpuContext, copies: &Stream, order: &Vec<u32>) -> Result<(), DeviceError> {
        let (context, compute) = (&gpu.context, &gpu.stream);
        let (bytes, room) = (size_of_val(&order[..]), size_of::<u32>() * order.capacity());
        let what = "the order of rows";
        let places = match &mut self.places {
            Some(places) => places,
            none => none.insert([Order::new(context, room, what)?, Order::new(context, room, what)?]),
        };
        places[self.current].released.record(compute)?;
        let next = &mut places[1 - self.current];
        gpu.until(&next.uploaded, || format!("uploading {what}"))?;
        if next.memory.bytes < bytes {
            return Err(misfit(&context.name, "an order of more rows than the first had room for"));
        }
        copies.follow(&next.released)?;
        next.staging.write(0, order);
        copies.upload(next.memory.at, &next.staging, 0, bytes)?;
        next.uploaded.record(copies)?;
        compute.follow(&next.uploaded)?;
        self.current = 1 - self.current;
        Ok(())
    }
}
