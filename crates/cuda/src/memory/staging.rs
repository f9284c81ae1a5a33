//! Uploads of any memory through pinned memory of this program.
//!
//! For pageable memory the driver would use its own pinned memory and might silently wait for the whole
//! stream. Here the host waits only while both slots are in use, and knows for how long.

use std::time::Duration;

use bytemuck::NoUninit;

use super::allocation::Pinned;
use crate::{device::DeviceError, engines::GpuContext, launch::Event};

/// The largest slot: two of this size keep the bus as busy as larger ones.
const MOST_BYTES: usize = 4 << 20;

/// The smallest: the driver takes as long for a smaller one, and the next upload may be larger.
const LEAST_BYTES: usize = 64 << 10;

/// One of two slots that are filled alternately.
struct Slot {
    memory: Pinned,
    /// The device has read the slot.
    copied: Event,
}

#[derive(Default)]
pub struct Staging {
    places: [Option<Slot>; 2],
    next: usize,
}

impl Staging {
    /// Queues a copy to the device. `from` may change once this returns. Returns how long the host waited for a slot.
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
            let is_small = |place: &mut Slot| place.memory.pointer(0, bytes).is_none();
            if let Some(Slot { mut memory, mut copied }) = place.take_if(is_small) {
                // Its copy is complete. To free it would take the driver a millisecond, and the next trial another to allocate it.
                memory.own.leave();
                copied.0.leave();
            }
            let place = match place {
                Some(large_enough) => large_enough,
                None => place.insert(Slot {
                    memory: Pinned::new(&gpu.context, bytes.max(LEAST_BYTES), "copies")?,
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
