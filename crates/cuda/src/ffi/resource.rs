//! What the driver gives: memory, streams, events. What ended trials leave of it waits here for the next ones.

/// The largest block that is left: other processes may want the memory, and allocation is a small part of a large trial's time.
const MOST_BYTES: usize = 64 << 20;

/// The most bytes that are left in all, of device memory and of pinned memory each.
const MOST_LEFT: usize = 1 << 30;

/// A block serves a request if it is at most this many times as large, or small.
const MOST_WASTE: usize = 2;
const SMALL: usize = 64 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Memory of the device.
    Device,
    /// Pinned memory of the host.
    Pinned,
    Stream,
    /// An event with a time.
    Timed,
    /// An event that only orders work.
    Plain,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resource {
    pub kind: Kind,
    /// Its address or handle.
    pub at: u64,
    /// Bytes that the driver allocated; 0 for streams and events.
    pub bytes: usize,
}

/// What has been left, with nothing queued that uses it.
#[derive(Default)]
pub struct Left(Vec<Resource>);

impl Left {
    /// The smallest block that is large enough and not too large; any stream or event.
    fn find(&self, kind: Kind, bytes: usize) -> Option<usize> {
        let room = bytes..=bytes.saturating_mul(MOST_WASTE).max(SMALL);
        let fits = |(_, own): &(usize, &Resource)| own.kind == kind && room.contains(&own.bytes);
        self.0.iter().enumerate().filter(fits).min_by_key(|(_, own)| own.bytes).map(|(at, _)| at)
    }

    pub fn has(&self, kind: Kind, bytes: usize) -> bool {
        self.find(kind, bytes).is_some()
    }

    pub fn take(&mut self, kind: Kind, bytes: usize) -> Option<Resource> {
        self.find(kind, bytes).map(|at| self.0.swap_remove(at))
    }

    /// Takes it, unless it or all that is left is too large.
    pub fn leave(&mut self, resource: Resource) -> bool {
        let alike = self.0.iter().filter(|own| own.kind == resource.kind);
        let all = alike.map(|own| own.bytes).sum::<usize>() + resource.bytes;
        let is_left = resource.bytes <= MOST_BYTES && all <= MOST_LEFT;
        self.0.extend(is_left.then_some(resource));
        is_left
    }

    /// Takes out all that `is_wanted`.
    pub fn take_all(&mut self, is_wanted: impl Fn(Kind) -> bool) -> Vec<Resource> {
        self.0.extract_if(.., |own| is_wanted(own.kind)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_block_that_is_not_too_large_is_taken() {
        let mut left = Left::default();
        for bytes in [100, 1 << 20, 70 << 10, 300 << 10] {
            assert!(left.leave(Resource { kind: Kind::Pinned, at: bytes as u64, bytes }));
        }
        assert!(!left.has(Kind::Device, 100));
        let mut taken = |bytes| left.take(Kind::Pinned, bytes).map(|own| own.bytes);
        assert_eq!(taken(101), None, "small blocks serve anything that is smaller");
        assert_eq!(taken(200 << 10), Some(300 << 10));
        assert_eq!(taken(200 << 10), None, "1 MiB is more than twice as much");
        assert_eq!([taken(90), taken(60 << 10), taken(1 << 20)], [Some(100), Some(70 << 10), Some(1 << 20)]);
    }
}
