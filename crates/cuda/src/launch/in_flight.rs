//! The blocks on the device: one runs, another is queued after it, and never more.
//!
//! Each block has a slot of pinned memory, from which its counters and learning rates are uploaded, and events for its start
//! and end. The host does not wait for a block: it polls, and learns the block's times when it next queues something.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::stream::{Event, Stream};
use crate::{
    device::DeviceError,
    engines::GpuContext,
    ffi::Context,
    memory::Pinned,
    op::{Hyper, Phase, RunRecord},
    units,
};

/// The running block and the next one.
const PLACES: usize = 2;

#[derive(Clone, Debug)]
pub struct Queued {
    pub trains: bool,
    /// Its first step, counted from 1.
    pub first: u64,
    pub steps: usize,
    /// The phases of each step between its marks, in order; empty if the engine does not separate them.
    pub phases: Vec<Vec<Phase>>,
    pub slowest_s: f64,
}

impl Queued {
    pub fn doing(&self) -> String {
        let last = self.first + (self.steps as u64).saturating_sub(1);
        let [first, last] = [self.first, last].map(units::count);
        match (self.trains, self.steps) {
            (false, _) => "running the validation".into(),
            (true, ..=1) => format!("running step {first}"),
            (true, _) => format!("running steps {first} to {last}"),
        }
    }
}

pub struct Done {
    pub queued: Queued,
    pub begin: Instant,
    pub end: Instant,
    pub seconds: f64,
    /// Seconds of each phase, ordered as [`Queued::phases`].
    pub phases: Vec<Vec<(Phase, f64)>>,
}

struct Slot {
    staging: Pinned,
    begin: Event,
    end: Event,
    marks: Vec<Event>,
    queued: Option<Queued>,
}

pub struct InFlightQueue {
    context: Arc<Context>,
    places: Vec<Slot>,
    next: usize,
    /// An event and the host time at which it happened; maps the device's times to the host's.
    anchor: (Event, Instant),
    spare: Event,
}

impl InFlightQueue {
    /// For blocks of at most `most_steps`, with at most `marks` in a block.
    pub fn new(gpu: &GpuContext, most_steps: usize, marks: usize) -> Result<Self, DeviceError> {
        let context = &gpu.context;
        let bytes = size_of::<RunRecord>() + most_steps * size_of::<Hyper>();
        let place = || {
            Ok(Slot {
                staging: Pinned::new(context, bytes, "learning rates")?,
                begin: Event::timed(context)?,
                end: Event::timed(context)?,
                marks: (0..marks).map(|_| Event::timed(context)).collect::<Result<_, DeviceError>>()?,
                queued: None,
            })
        };
        let places = (0..PLACES).map(|_| place()).collect::<Result<_, DeviceError>>()?;
        let anchor = Event::timed(context)?;
        anchor.record(&gpu.stream)?;
        gpu.wait(&anchor, || "starting".into())?;
        let anchor = (anchor, Instant::now());
        Ok(Self { context: Arc::clone(context), places, next: 0, anchor, spare: Event::timed(context)? })
    }

    /// Frees the slot for the next block. Returns the block that used it, which is complete by then.
    pub fn free(&mut self, gpu: &GpuContext) -> Result<Option<Done>, DeviceError> {
        let place = &self.places[self.next];
        let Some(queued) = &place.queued else { return Ok(None) };
        gpu.until(&place.end, || queued.doing())?;
        self.take(self.next)
    }

    /// Uploads the counters and rates of the next block and marks its start. Returns the number of bytes.
    pub fn begin(
        &mut self,
        stream: &Stream,
        to: u64,
        run: RunRecord,
        hyper: &[Hyper],
    ) -> Result<u64, DeviceError> {
        let place = &mut self.places[self.next];
        place.staging.write(0, &[run]);
        place.staging.write(size_of_val(&run), hyper);
        let bytes = size_of_val(&run) + size_of_val(hyper);
        stream.upload(to, &place.staging, 0, bytes)?;
        place.begin.record(stream)?;
        Ok(bytes as u64)
    }

    pub fn mark(&self, number: usize, stream: &Stream) -> Result<(), DeviceError> {
        let marks = &self.places[self.next].marks;
        debug_assert!(number < marks.len(), "there is room for {} marks", marks.len());
        marks.get(number).map_or(Ok(()), |mark| mark.record(stream))
    }

    pub fn end(&mut self, stream: &Stream, queued: Queued) -> Result<(), DeviceError> {
        let place = &mut self.places[self.next];
        place.end.record(stream)?;
        place.queued = Some(queued);
        self.next = (self.next + 1) % PLACES;
        Ok(())
    }

    /// Waits for all work in the stream and sets a new anchor.
    pub fn anchor(&mut self, gpu: &GpuContext, doing: &str) -> Result<(), DeviceError> {
        self.spare.record(&gpu.stream)?;
        let running = self.unfinished()?.map(Queued::doing);
        gpu.wait(&self.spare, || running.clone().unwrap_or_else(|| doing.to_owned()))?;
        std::mem::swap(&mut self.anchor.0, &mut self.spare);
        self.anchor.1 = Instant::now();
        Ok(())
    }

    /// Sets a new anchor: an event that has just happened.
    pub fn anchor_at(&mut self, event: &mut Event) {
        std::mem::swap(&mut self.anchor.0, event);
        self.anchor.1 = Instant::now();
    }

    /// The first block that is not complete; `None` if all are.
    pub fn unfinished(&self) -> Result<Option<&Queued>, DeviceError> {
        for i in 0..PLACES {
            let place = &self.places[(self.next + i) % PLACES];
            if let Some(queued) = &place.queued
                && !place.end.happened(|| queued.doing())?
            {
                return Ok(Some(queued));
            }
        }
        Ok(None)
    }

    /// The complete blocks that were not returned yet, in order.
    pub fn finished(&mut self) -> Result<Vec<Done>, DeviceError> {
        let mut done = Vec::new();
        for i in 0..PLACES {
            let number = (self.next + i) % PLACES;
            let place = &self.places[number];
            if let Some(queued) = &place.queued
                && place.end.happened(|| queued.doing())?
            {
                done.extend(self.take(number)?);
            }
        }
        Ok(done)
    }

    fn take(&mut self, number: usize) -> Result<Option<Done>, DeviceError> {
        self.context.enter()?;
        let place = &mut self.places[number];
        let Some(queued) = place.queued.take() else { return Ok(None) };
        let seconds = place.end.seconds_after(&place.begin)?;
        let mut phases = Vec::with_capacity(queued.phases.len());
        let (mut earlier, mut marks) = (&place.begin, place.marks.iter());
        for step in &queued.phases {
            let mut seconds = Vec::with_capacity(step.len());
            for (phase, mark) in step.iter().zip(&mut marks) {
                seconds.push((*phase, mark.seconds_after(earlier)?));
                earlier = mark;
            }
            phases.push(seconds);
        }
        let (begin, end) =
            (self.instant(&self.places[number].begin)?, self.instant(&self.places[number].end)?);
        Ok(Some(Done { queued, begin, end, seconds, phases }))
    }

    /// The host time at which an event happened.
    pub fn instant(&self, event: &Event) -> Result<Instant, DeviceError> {
        // It may lie before or after the anchor: one of the two differences is zero.
        let (anchor, at) = &self.anchor;
        let later = Duration::from_secs_f64(event.seconds_after(anchor)?);
        let before = Duration::from_secs_f64(anchor.seconds_after(event)?);
        Ok((*at + later).checked_sub(before).unwrap_or(*at))
    }
}
