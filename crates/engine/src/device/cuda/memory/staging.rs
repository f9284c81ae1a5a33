//! Uploads of any memory through pinned memory of our own.
//!
//! The driver copies pageable memory through its own pinned memory and may wait for the whole stream without a notice.
//! Here the host waits only while both slots are in use, and knows for how long.

use std::time::Duration;

use bytemuck::NoUninit;

use super::allocation::Pinned;
use crate::device::{
    DeviceError,
    cuda::{engines::GpuContext, launch::Event},
};

/// Largest slot: two of them keep the bus as busy as larger ones.
const MOST_BYTES: usize = 4 << 20;

/// One of two slots, filled in turn.
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
    /// Queues a copy to the device. `from` may change when this returns. Returns how long the host waited for a slot.
    pub fn upload<T: NoUninit>(
        &mut self,
        gpu: &GpuContext,
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
                waited += gpu.until(&place.copied, doing)?;
            }
            let place = match place.take().filter(|place| place.bytes >= bytes) {
                Some(large_enough) => place.insert(large_enough),
                None => place.insert(Slot {
                    memory: Pinned::new(&gpu.context, bytes, "copies")?,
                    bytes,
                    copied: Event::plain(&gpu.context)?,
                }),
            };
            place.memory.write(0, part);
            gpu.stream.upload(to + (i * elements * size_of::<T>()) as u64, &place.memory, 0, bytes)?;
            place.copied.record(&gpu.stream)?;
        }
        Ok(waited)
    }
}
