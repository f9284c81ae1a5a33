//! Copies of any memory to the device, by way of pinned memory of our own.
//!
//! A driver copies pageable memory through pinned memory of its own, for which it may wait for the whole stream, and says
//! nothing of that. Here the host waits only where both places are still on their way, and knows it.

use std::time::Duration;

use super::allocation::{Pinned, Plain};
use crate::device::{
    DeviceError,
    cuda::{engines::GpuContext, launch::Event},
};

/// Bytes of a place at most: two of them keep the bus as busy as larger ones.
const MOST_BYTES: usize = 4 << 20;

/// One of two places that are filled in turn.
struct Slot {
    memory: Pinned,
    bytes: usize,
    /// The device has read it.
    copied: Event,
}

#[derive(Default)]
pub struct Staging {
    places: [Option<Slot>; 2],
    next: usize,
}

impl Staging {
    /// Queues a copy to the device, whose memory there is large enough. `from` may change when this returns. How long the
    /// host had to wait for a place.
    ///
    /// # Errors
    /// What the device says.
    pub fn upload<T: Plain>(
        &mut self,
        gpu_context: &GpuContext,
        to: u64,
        from: &[T],
    ) -> Result<Duration, DeviceError> {
        let bytes = size_of_val(from);
        let doing = || format!("copying {bytes} bytes to it");
        let mut waited = Duration::ZERO;
        let elements = (MOST_BYTES / size_of::<T>().max(1)).max(1);
        for (i, part) in from.chunks(elements).enumerate() {
            let bytes = size_of_val(part);
            let place = &mut self.places[self.next];
            self.next = 1 - self.next;
            if let Some(place) = place {
                waited += gpu_context.until(&place.copied, doing)?;
            }
            let place = match place.take().filter(|place| place.bytes >= bytes) {
                Some(large_enough) => place.insert(large_enough),
                None => place.insert(Slot {
                    memory: Pinned::new(&gpu_context.context, bytes, "copies")?,
                    bytes,
                    copied: Event::plain(&gpu_context.context)?,
                }),
            };
            place.memory.write(0, part);
            gpu_context.stream.upload(
                to + (i * elements * size_of::<T>()) as u64,
                &place.memory,
                0,
                bytes,
            )?;
            place.copied.record(&gpu_context.stream)?;
        }
        Ok(waited)
    }
}
