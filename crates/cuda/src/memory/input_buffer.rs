//! A data buffer on the device: all rows at once, or two chunks that alternate: one is in use while the other is uploaded.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    allocation::{DeviceMemory, Pinned},
    resident_rows::Rows,
    staging::Staging,
};
use crate::{
    device::{DeviceError, LentRows, backend::misfit},
    engines::GpuContext,
    launch::{Event, InFlightQueue, Stream},
};

/// Memory of the device that is uploaded while steps read another.
struct Slot<T> {
    memory: DeviceMemory,
    /// What is known of its source.
    source: T,
    /// The upload is complete: kernels may read it.
    uploaded: Event,
    /// The kernels that read it are done.
    released: Event,
    /// Whether that was recorded since steps have last read it.
    is_released: bool,
}

/// Two of them, which are filled in turns.
struct Slots<T> {
    both: Option<[Slot<T>; 2]>,
    current: usize,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self { both: None, current: 0 }
    }
}

impl<T> Slots<T> {
    fn bytes(&self) -> usize {
        self.both.iter().flatten().map(|slot| slot.memory.bytes).sum()
    }

    /// The one that steps read.
    fn current(&mut self) -> Option<&mut Slot<T>> {
        self.both.as_mut().map(|both| &mut both[self.current])
    }

    fn at(&self) -> Option<u64> {
        self.both.as_ref().map(|both| both[self.current].memory.at)
    }

    /// The other one, which `copies` may fill with `bytes` from now on: its last upload is complete. Both have `room` bytes from
    /// the first call on, since queued steps may read memory that later ones would replace.
    fn next(
        &mut self,
        gpu: &GpuContext,
        (copies, what): (&Stream, &str),
        [bytes, room]: [usize; 2],
        source: impl Fn() -> Result<T, DeviceError>,
    ) -> Result<&mut Slot<T>, DeviceError> {
        let slot = || {
            Ok(Slot {
                memory: DeviceMemory::new(&gpu.context, room, what)?,
                source: source()?,
                uploaded: Event::timed(&gpu.context)?,
                released: Event::plain(&gpu.context)?,
                is_released: true,
            })
        };
        self.release(&gpu.stream)?;
        let both = match &mut self.both {
            Some(both) => both,
            none => none.insert([slot()?, slot()?]),
        };
        let next = &mut both[1 - self.current];
        gpu.until(&next.uploaded, || format!("uploading {what}"))?;
        if next.memory.bytes < bytes {
            let what = format!("{what} of {bytes} bytes, more than the first had room for");
            return Err(misfit(&gpu.context.name, what));
        }
        copies.follow(&next.released)?;
        Ok(next)
    }

    /// Has the next upload wait for what is in the stream of steps now: all that reads the memory that was current before, and
    /// the counters of the block that is about to begin. An engine that copies to the GPU takes one copy at a time: an upload that
    /// might begin with those counters could keep the block waiting until it ends. Where a chunk takes several
    /// blocks, only the first one is sure not to wait.
    fn release(&mut self, steps: &Stream) -> Result<(), DeviceError> {
        let Some(both) = &mut self.both else { return Ok(()) };
        let before = &mut both[1 - self.current];
        if std::mem::replace(&mut before.is_released, true) { Ok(()) } else { before.released.record(steps) }
    }

    /// Makes later work in the stream of steps read what `copies` has uploaded.
    fn turn(&mut self, gpu: &GpuContext, copies: &Stream) -> Result<(), DeviceError> {
        self.current = 1 - self.current;
        let Some(current) = self.current() else { return Ok(()) };
        current.is_released = false;
        current.uploaded.record(copies)?;
        gpu.stream.follow(&current.uploaded)
    }
}

struct Chunk {
    /// The rows on the host, until their upload is known to be complete.
    rows: Option<Arc<LentRows>>,
    begun: Event,
    /// Whether the upload's times were not reported yet.
    is_news: bool,
}

impl Slot<Chunk> {
    /// Start and end of its last upload, returned only once; the upload must be complete. Lets go of the rows on the host.
    fn reported(&mut self, in_flight: &InFlightQueue) -> Result<Option<[Instant; 2]>, DeviceError> {
        self.source.rows = None;
        if !std::mem::take(&mut self.source.is_news) {
            return Ok(None);
        }
        Ok(Some([in_flight.instant(&self.source.begun)?, in_flight.instant(&self.uploaded)?]))
    }
}

#[derive(Default)]
pub struct InputBuffer {
    /// Those that were bound; steps read the last, and queued ones may read the others.
    whole: Vec<Rows>,
    chunks: Slots<Chunk>,
}

impl InputBuffer {
    /// The address of the rows; 0 before any were bound.
    pub fn at(&self) -> u64 {
        self.chunks.at().or_else(|| self.whole.last().map(|rows| rows.at)).unwrap_or(0)
    }

    pub fn bytes(&self) -> usize {
        self.chunks.bytes() + self.whole.iter().map(|rows| rows.bytes).sum::<usize>()
    }

    /// See [`Slots::release`].
    pub fn release(&mut self, steps: &Stream) -> Result<(), DeviceError> {
        self.chunks.release(steps)
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
        if let Some(current) = self.chunks.current()
            && current.uploaded.happened(|| format!("uploading {what}"))?
        {
            current.source.rows = None;
        }
        let room = [size_of_val(&rows[..]), 4 * rows.room()];
        let source = || Ok(Chunk { rows: None, begun: Event::timed(&gpu.context)?, is_news: false });
        let next = self.chunks.next(gpu, (copies, what), room, source)?;
        let reported = next.reported(in_flight)?;
        next.source.rows = Some(Arc::clone(rows));
        next.source.begun.record(copies)?;
        // SAFETY: the slot holds the rows, and nobody writes them, until the copy is complete. They fit.
        unsafe { copies.upload_from(next.memory.at, &rows[..])? };
        self.chunks.turn(gpu, copies)?;
        self.chunks.current().into_iter().for_each(|current| current.source.is_news = true);
        Ok(reported)
    }

    /// Start and end of the uploads that are complete and were not reported yet, in order.
    pub fn reported(&mut self, in_flight: &InFlightQueue) -> Result<Vec<[Instant; 2]>, DeviceError> {
        let mut all = Vec::new();
        let Slots { both: Some(both), current } = &mut self.chunks else { return Ok(all) };
        for slot in [1 - *current, *current] {
            let slot = &mut both[slot];
            if slot.source.is_news && slot.uploaded.happened(|| "uploading rows".into())? {
                all.extend(slot.reported(in_flight)?);
            }
        }
        Ok(all)
    }
}

/// The orders of rows of some epochs, and those of the next ones.
#[derive(Default)]
pub struct OrderBuffer(Slots<Pinned>);

impl OrderBuffer {
    pub fn at(&self) -> u64 {
        self.0.at().unwrap_or(0)
    }

    pub fn bytes(&self) -> usize {
        self.0.bytes()
    }

    /// See [`Slots::release`].
    pub fn release(&mut self, steps: &Stream) -> Result<(), DeviceError> {
        self.0.release(steps)
    }

    /// Uploads the order while steps that use the previous one run. Later ones find room if they fit its memory on the host.
    pub fn bind(&mut self, gpu: &GpuContext, copies: &Stream, order: &Vec<u32>) -> Result<(), DeviceError> {
        let (bytes, room) = (size_of_val(&order[..]), size_of::<u32>() * order.capacity());
        let what = "the order of rows";
        let source = || Pinned::new(&gpu.context, room, what);
        let next = self.0.next(gpu, (copies, what), [bytes, room], source)?;
        next.source.write(0, order);
        copies.upload(next.memory.at, &next.source, 0, bytes)?;
        self.0.turn(gpu, copies)
    }
}
