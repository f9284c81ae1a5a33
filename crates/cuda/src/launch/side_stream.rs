//! A stream beside that of the steps: work forks to it, and joins again. Both may be captured in one graph.

use std::sync::Arc;

use super::stream::{Event, Stream};
use crate::{device::DeviceError, ffi::Context};

/// Its events are recorded again while earlier waits are still queued: a wait takes the state that an event has when the
/// wait is queued.
pub struct SideStream {
    forked: Event,
    joined: Event,
    stream: Stream,
}

impl SideStream {
    pub fn new(context: &Arc<Context>) -> Result<Self, DeviceError> {
        let (forked, joined) = (Event::plain(context)?, Event::plain(context)?);
        Ok(Self { forked, joined, stream: Stream::new(context)? })
    }

    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// The stream, whose later work follows all that is in `main` now.
    pub fn fork(&self, main: &Stream) -> Result<&Stream, DeviceError> {
        self.forked.record(main)?;
        self.stream.follow(&self.forked)?;
        Ok(&self.stream)
    }

    /// Makes later work of `main` follow all that is in this stream now.
    pub fn join(&self, main: &Stream) -> Result<(), DeviceError> {
        self.joined.record(&self.stream)?;
        main.follow(&self.joined)
    }
}
