//! Blocks under way: while one runs another is queued behind it, and the host gives the device no more than that.
//!
//! Each has a place of pinned memory from which its counters and learning rates are uploaded, and events that tell when
//! it began and ended. The host never waits for them: it asks, and it learns the times of a block when it next has
//! something to say to the device.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::stream::{Event, Stream};
use crate::{
    device::{
        DeviceError,
        cuda::{abi::bytes_of, engines::GpuContext, ffi::Context, memory::Pinned},
    },
    op::{Hyper, Phase, RunRecord},
    units,
};

/// Blocks on the device: the one that runs, and the one behind it.
const PLACES: usize = 2;

/// What is known of a block that was queued.
#[derive(Clone, Debug)]
pub struct Queued {
    pub trains: bool,
    /// Its first step, from 1.
    pub first: u64,
    pub steps: usize,
    /// The phases between its marks, in order; none where the engine does not tell them apart.
    pub phases: Vec<Phase>,
    /// Seconds that it takes on the slowest of GPUs.
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
    /// Seconds of each phase, in the order of [`Queued::phases`].
    pub phases: Vec<(Phase, f64)>,
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
    /// An event that has happened, and when: how times of the device become times of the host.
    anchor: (Event, Instant),
    spare: Event,
}

impl InFlightQueue {
    /// For blocks of so many steps at most, with so many marks between phases.
    pub fn new(gpu_context: &GpuContext, most_steps: usize, marks: usize) -> Result<Self, DeviceError> {
        let context = &gpu_context.context;
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
        anchor.record(&gpu_context.stream)?;
        gpu_context.wait(&anchor, || "starting".into())?;
        let anchor = (anchor, Instant::now());
        Ok(Self { context: Arc::clone(context), places, next: 0, anchor, spare: Event::timed(context)? })
    }

    /// The place for the next block; what was in it is done before, and handed over.
    pub fn free(&mut self, gpu_context: &GpuContext) -> Result<Option<Done>, DeviceError> {
        let place = &self.places[self.next];
        let Some(queued) = &place.queued else { return Ok(None) };
        gpu_context.until(&place.end, || queued.doing())?;
        self.take(self.next)
    }

    /// Uploads counters and rates for the next block and marks its beginning.
    pub fn begin(
        &mut self,
        stream: &Stream,
        to: u64,
        run: RunRecord,
        hyper: &[Hyper],
    ) -> Result<u64, DeviceError> {
        let place = &mut self.places[self.next];
        let (head, table) = (bytes_of(std::slice::from_ref(&run)), bytes_of(hyper));
        place.staging.write(0, head);
        place.staging.write(head.len(), table);
        let bytes = head.len() + table.len();
        stream.upload(to, &place.staging, 0, bytes)?;
        place.begin.record(stream)?;
        Ok(bytes as u64)
    }

    /// Marks the end of a phase within the block.
    pub fn mark(&self, number: usize, stream: &Stream) -> Result<(), DeviceError> {
        match self.places[self.next].marks.get(number) {
            Some(mark) => mark.record(stream),
            None => Ok(()),
        }
    }

    pub fn end(&mut self, stream: &Stream, queued: Queued) -> Result<(), DeviceError> {
        let place = &mut self.places[self.next];
        place.end.record(stream)?;
        place.queued = Some(queued);
        self.next = (self.next + 1) % PLACES;
        Ok(())
    }

    /// Waits for all that the stream has been given, and has an anchor there.
    pub fn anchor(&mut self, gpu_context: &GpuContext, doing: &str) -> Result<(), DeviceError> {
        self.spare.record(&gpu_context.stream)?;
        let running = self.unfinished()?.map(Queued::doing);
        gpu_context.wait(&self.spare, || running.clone().unwrap_or_else(|| doing.to_owned()))?;
        std::mem::swap(&mut self.anchor.0, &mut self.spare);
        self.anchor.1 = Instant::now();
        Ok(())
    }

    /// The first block that is not done; `None` where all are.
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

    pub fn wait(&self, gpu_context: &GpuContext) -> Result<(), DeviceError> {
        let place = &self.places[(self.next + PLACES - 1) % PLACES];
        match &place.queued {
            Some(last) => {
                let running = || self.unfinished().ok().flatten().unwrap_or(last).doing();
                gpu_context.wait(&place.end, running).map(drop)
            }
            None => Ok(()),
        }
    }

    /// All blocks, in order; they are done.
    pub fn all(&mut self) -> Result<Vec<Done>, DeviceError> {
        let mut done = Vec::new();
        for i in 0..PLACES {
            done.extend(self.take((self.next + i) % PLACES)?);
        }
        Ok(done)
    }

    /// Those blocks, in order, that are done, whatever has become of the others.
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
        let mut earlier = &place.begin;
        for (phase, mark) in queued.phases.iter().zip(&place.marks) {
            phases.push((*phase, mark.seconds_after(earlier)?));
            earlier = mark;
        }
        let (begin, end) =
            (self.instant(&self.places[number].begin)?, self.instant(&self.places[number].end)?);
        Ok(Some(Done { queued, begin, end, seconds, phases }))
    }

    /// When an event happened, by the host's clock.
    pub fn instant(&self, event: &Event) -> Result<Instant, DeviceError> {
        // Before the anchor or behind it: one of the two differences is not zero.
        let (anchor, at) = &self.anchor;
        let later = Duration::from_secs_f64(event.seconds_after(anchor)?);
        let before = Duration::from_secs_f64(anchor.seconds_after(event)?);
        Ok((*at + later).checked_sub(before).unwrap_or(*at))
    }
}
