//! The recording thread: takes events from a bounded channel and hands them to the sinks, so that formatting and disk
//! never stand in the training loop's way.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread::{self, JoinHandle},
};

use super::{RecordError, Sink};
use crate::event::{Event, Outcome, Status};

/// Batches of events that may wait. Few, since one may hold many blocks of rows; a disk that is slower than the training
/// makes the training wait rather than fill the memory.
const WAITING: usize = 16;

enum Message {
    Events(Vec<Event>),
    Close,
}

/// A run's sinks on a thread of their own.
///
/// A sink that fails is told nothing more, and every later [`EventSender::send`] says so; the other sinks go on, so
/// that a run that ends early for a full disk still has what could be kept.
pub struct Recorder {
    sender: EventSender,
    thread: JoinHandle<Result<(), RecordError>>,
}

impl Recorder {
    /// Starts the thread.
    ///
    /// # Errors
    /// Where the system gives no thread.
    pub fn start(sinks: Vec<Box<dyn Sink>>) -> Result<Self, RecordError> {
        let (channel, receiver) = sync_channel(WAITING);
        let (ready, started) = sync_channel(1);
        let failed = Arc::new(AtomicBool::new(false));
        let sender = EventSender { channel, failed: Arc::clone(&failed) };
        let thread = thread::Builder::new()
            .name("record".to_owned())
            .spawn(move || {
                let _ = ready.send(()); // it is waited for below
                Recording { sinks, failed, fault: None }.run(&receiver)
            })
            .map_err(RecordError::Start)?;
        // A thread that is still being set up would stand in the way of the first steps: both need the memory map.
        started.recv().map_err(|_| RecordError::Gone)?;
        Ok(Self { sender, thread })
    }

    /// A handle to send events by; any number may exist.
    pub fn sender(&self) -> EventSender {
        self.sender.clone()
    }

    /// Waits until everything sent so far is written. Senders that still exist are of no more use.
    ///
    /// # Errors
    /// The first fault of a sink.
    pub fn finish(self) -> Result<(), RecordError> {
        let _ = self.sender.channel.send(Message::Close); // a thread that is gone is told by the join
        self.thread.join().unwrap_or(Err(RecordError::Gone))
    }
}

/// Sends events to a [`Recorder`].
#[derive(Clone)]
pub struct EventSender {
    channel: SyncSender<Message>,
    failed: Arc<AtomicBool>,
}

/// A sink failed: the run cannot be kept whole any more, and should end. [`Recorder::finish`] says why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the run can no longer be recorded")]
pub struct Stopped;

impl EventSender {
    /// Hands an event over, as [`EventSender::send_all`].
    ///
    /// # Errors
    /// Where a sink has failed. The event still reaches the others.
    pub fn send(&self, event: Event) -> Result<(), Stopped> {
        self.send_all(vec![event])
    }

    /// Hands events over, waiting while too many batches wait already. All are in the files soon after.
    ///
    /// # Errors
    /// Where a sink has failed. The events still reach the others.
    pub fn send_all(&self, events: Vec<Event>) -> Result<(), Stopped> {
        self.channel.send(Message::Events(events)).map_err(|_| Stopped)?;
        if self.failed.load(Ordering::Relaxed) { Err(Stopped) } else { Ok(()) }
    }
}

struct Recording {
    sinks: Vec<Box<dyn Sink>>,
    failed: Arc<AtomicBool>,
    fault: Option<RecordError>,
}

impl Recording {
    fn run(mut self, receiver: &Receiver<Message>) -> Result<(), RecordError> {
        while let Ok(Message::Events(events)) = receiver.recv() {
            for event in events {
                match event {
                    Event::Finished(outcome) => self.finished(outcome),
                    event => self.each_sink(|sink| sink.event(&event)),
                }
            }
            self.each_sink(|sink| sink.flush());
        }
        self.close()
    }

    fn each_sink(&mut self, mut what: impl FnMut(&mut dyn Sink) -> Result<(), RecordError>) {
        let (failed, fault) = (&self.failed, &mut self.fault);
        self.sinks.retain_mut(|sink| match what(sink.as_mut()) {
            Ok(()) => true,
            Err(error) => {
                fault.get_or_insert(error);
                failed.store(true, Ordering::Relaxed);
                false
            }
        });
    }

    /// Sinks hear of the end in turn, each once all before it have written everything: `summary.csv`, which comes late,
    /// never calls a run finished that is not recorded in full.
    fn finished(&mut self, outcome: Box<Outcome>) {
        let mut event = Event::Finished(outcome);
        for mut sink in std::mem::take(&mut self.sinks) {
            if let (Some(fault), Event::Finished(outcome)) = (&self.fault, &mut event)
                && outcome.status == Status::Finished
            {
                outcome.status = Status::Failed;
                outcome.reason = Some(fault.to_string());
            }
            match sink.event(&event).and_then(|()| sink.flush()) {
                Ok(()) => self.sinks.push(sink),
                Err(error) => {
                    self.fault.get_or_insert(error);
                    self.failed.store(true, Ordering::Relaxed);
                }
            }
        }
    }

    fn close(mut self) -> Result<(), RecordError> {
        self.each_sink(|sink| sink.flush());
        self.fault.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use std::{io, path::Path, sync::mpsc};

    use super::*;
    use crate::{
        event::Level,
        record::{metrics::MetricsCsv, sample},
    };

    struct FullDisk;

    impl Sink for FullDisk {
        fn event(&mut self, event: &Event) -> Result<(), RecordError> {
            match event {
                Event::Train(_) => {
                    Err(RecordError::write(Path::new("metrics.csv"), io::Error::from_raw_os_error(28)))
                }
                _ => Ok(()),
            }
        }
    }

    struct Tell(mpsc::Sender<Event>);

    impl Sink for Tell {
        fn event(&mut self, event: &Event) -> Result<(), RecordError> {
            let _ = self.0.send(event.clone());
            Ok(())
        }
    }

    #[test]
    fn every_event_reaches_every_sink_in_order() {
        let (reported, heard) = mpsc::channel();
        let recorder =
            Recorder::start(vec![Box::new(Tell(reported.clone())), Box::new(Tell(reported))]).unwrap();
        let sender = recorder.sender();
        for n in 0..100 {
            sender.send(Event::Notice(Level::Info, n.to_string())).unwrap();
        }
        recorder.finish().unwrap();
        let heard: Vec<String> = heard.iter().map(|event| format!("{event:?}")).collect();
        let expected: Vec<String> =
            (0..200).map(|n| format!("{:?}", Event::Notice(Level::Info, (n / 2).to_string()))).collect();
        assert_eq!(heard, expected);
    }

    #[test]
    fn a_failing_sink_is_told_to_the_sender_and_kept_for_the_end() {
        let (reported, heard) = mpsc::channel();
        let recorder = Recorder::start(vec![Box::new(FullDisk), Box::new(Tell(reported))]).unwrap();
        let sender = recorder.sender();
        for event in sample::events() {
            let _ = sender.send(event);
        }
        // Once the other sink has heard the end, the fault is behind the recorder, too.
        assert!(heard.iter().any(|event| matches!(event, Event::Finished(_))));
        assert_eq!(sender.send(Event::Notice(Level::Info, String::new())), Err(Stopped));
        assert_eq!(
            recorder.finish().unwrap_err().to_string(),
            "cannot write `metrics.csv`: no space left on device"
        );
        assert_eq!(sender.send(Event::Notice(Level::Info, String::new())), Err(Stopped));
    }

    #[test]
    fn a_run_that_is_not_recorded_in_full_has_not_finished() {
        let (sent, heard) = mpsc::channel();
        let recorder = Recorder::start(vec![Box::new(FullDisk), Box::new(Tell(sent))]).unwrap();
        for event in sample::events() {
            let _ = recorder.sender().send(event);
        }
        recorder.finish().unwrap_err();
        let ends = heard.iter().filter_map(|event| match event {
            Event::Finished(outcome) => Some((outcome.status, outcome.reason)),
            _ => None,
        });
        let reason = "cannot write `metrics.csv`: no space left on device".to_owned();
        assert_eq!(ends.collect::<Vec<_>>(), [(Status::Failed, Some(reason))]);
    }

    #[test]
    fn an_idle_recorder_owes_no_rows() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.csv");
        let sinks: Vec<Box<dyn Sink>> =
            vec![Box::new(MetricsCsv::create(&path, &sample::header().metrics).unwrap())];
        let recorder = Recorder::start(sinks).unwrap();
        for event in sample::events() {
            recorder.sender().send(event).unwrap();
        }
        recorder.finish().unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 9);
    }
}
