//! The recording thread: takes events from a bounded channel and passes them to the sinks, so that formatting
//! and disk writes never delay the training loop.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
    mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
};

use super::{RecordError, Sink, run_lock::HEARTBEAT_INTERVAL, second_signal};
use crate::{
    event::{Closed, Event, Outcome, Recorded, Status},
    host::{Task, begin_task},
};

/// Capacity of the channel in batches of events. It is small, since one batch may hold many blocks of rows.
/// If the disk is slower than the training, the training waits instead of filling the memory.
const WAITING: usize = 16;

enum Message {
    Events(Vec<Event>),
    Close,
}

/// A run's sinks, on their own thread.
///
/// A sink that fails gets no more events, and every later [`EventSender::send`] reports the failure. The
/// other sinks continue, so that a run that ends early because the disk is full still records what it can.
pub struct Recorder {
    sender: EventSender,
    thread: Task<Result<(), RecordError>>,
}

impl Recorder {
    pub fn start(sinks: Vec<Box<dyn Sink>>) -> Result<Self, RecordError> {
        let (channel, receiver) = sync_channel(WAITING);
        let failed = Arc::new(AtomicBool::new(false));
        let unwritten = second_signal::unwritten();
        let sender = EventSender { channel, failed: Arc::clone(&failed), unwritten: Arc::clone(&unwritten) };
        let record =
            move || RecorderThread { sinks, failed, unwritten, fault: None, recorded: None }.run(&receiver);
        let thread = begin_task("record", record).map_err(RecordError::Start)?;
        Ok(Self { sender, thread })
    }

    pub fn sender(&self) -> EventSender {
        self.sender.clone()
    }

    /// Whether a sink has failed.
    pub fn has_failed(&self) -> bool {
        self.sender.failed.load(Ordering::Relaxed)
    }

    /// Waits until everything sent so far is written, and returns the first error of a sink. Remaining
    /// senders are useless after that.
    pub fn finish(self) -> Result<(), RecordError> {
        let _ = self.sender.channel.send(Message::Close); // joining reports a thread that is gone
        self.thread.join().unwrap_or(Err(RecordError::Gone))
    }
}

/// Sends events to a [`Recorder`]; any number may exist.
#[derive(Clone)]
pub struct EventSender {
    channel: SyncSender<Message>,
    failed: Arc<AtomicBool>,
    /// Batches that were sent and are not written, also those that wait for room in the channel.
    unwritten: Arc<AtomicUsize>,
}

impl EventSender {
    pub fn send(&self, event: Event) -> Result<(), Closed> {
        self.send_all(vec![event])
    }

    /// Sends events, and waits while the channel is full. After a sink has failed, the others still get them.
    pub fn send_all(&self, events: Vec<Event>) -> Result<(), Closed> {
        self.unwritten.fetch_add(1, Ordering::SeqCst);
        if self.channel.send(Message::Events(events)).is_err() {
            self.unwritten.fetch_sub(1, Ordering::SeqCst);
            return Err(Closed);
        }
        if self.failed.load(Ordering::Relaxed) { Err(Closed) } else { Ok(()) }
    }
}

struct RecorderThread {
    sinks: Vec<Box<dyn Sink>>,
    failed: Arc<AtomicBool>,
    unwritten: Arc<AtomicUsize>,
    fault: Option<RecordError>,
    /// What was written of the rows of steps, if some were lost.
    recorded: Option<Recorded>,
}

impl RecorderThread {
    fn run(mut self, receiver: &Receiver<Message>) -> Result<(), RecordError> {
        loop {
            let mut events = match receiver.recv_timeout(HEARTBEAT_INTERVAL) {
                Ok(Message::Events(events)) => events,
                Err(RecvTimeoutError::Timeout) => {
                    self.each_sink(|sink| sink.flush());
                    continue;
                }
                Ok(Message::Close) | Err(RecvTimeoutError::Disconnected) => break,
            };
            // Flush whenever no events are waiting; if some always are, after every [`WAITING`] batches.
            let mut taken = 0;
            let is_last = loop {
                self.take(events);
                taken += 1;
                if taken == WAITING {
                    break false;
                }
                match receiver.try_recv() {
                    Ok(Message::Events(more)) => events = more,
                    Ok(Message::Close) => break true,
                    Err(_) => break false,
                }
            };
            self.each_sink(|sink| sink.flush());
            self.unwritten.fetch_sub(taken, Ordering::SeqCst);
            if is_last {
                break;
            }
        }
        self.each_sink(|sink| sink.flush());
        self.fault.map_or(Ok(()), Err)
    }

    fn take(&mut self, events: Vec<Event>) {
        for event in events {
            match event {
                Event::Finished(outcome) => self.finished(outcome),
                event @ Event::Checkpoint(_) => self.checkpoint(&event),
                event => self.each_sink(|sink| sink.event(&event)),
            }
        }
    }

    fn each_sink(&mut self, what: impl Fn(&mut dyn Sink) -> Result<(), RecordError>) {
        for mut sink in std::mem::take(&mut self.sinks) {
            let done = what(sink.as_mut());
            self.keep(sink, done);
        }
    }

    /// A checkpoint counts rows that the sinks before it have written, so it is skipped if one of them
    /// failed.
    fn checkpoint(&mut self, event: &Event) {
        for mut sink in std::mem::take(&mut self.sinks) {
            let done = if self.fault.is_none() { sink.event(event) } else { Ok(()) };
            self.keep(sink, done);
        }
    }

    fn keep(&mut self, sink: Box<dyn Sink>, done: Result<(), RecordError>) {
        match done {
            Ok(()) => self.sinks.push(sink),
            Err(error) => {
                self.recorded = self.recorded.take().or_else(|| sink.recorded());
                self.fault.get_or_insert(error);
                self.failed.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Sinks get the end one by one, each after all before it have written everything. So `summary.csv`,
    /// which comes late, never calls a run finished that is not recorded completely.
    fn finished(&mut self, outcome: Box<Outcome>) {
        let mut event = Event::Finished(outcome);
        let was_stopped = self.fault.is_some();
        for mut sink in std::mem::take(&mut self.sinks) {
            if let (Some(fault), Event::Finished(outcome)) = (&self.fault, &mut event) {
                if was_stopped || outcome.status == Status::Finished {
                    outcome.status = Status::Failed;
                    outcome.reason = Some(fault.to_string());
                }
                if let Some(recorded) = &self.recorded {
                    outcome.forget_lost(recorded);
                }
            }
            let done = sink.event(&event).and_then(|()| sink.flush());
            self.keep(sink, done);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{io, path::Path, sync::mpsc};

    use super::*;
    use crate::{
        event::Level,
        record::{MetricColumns, metrics::MetricsCsv, sample},
    };

    struct FullDisk;

    impl Sink for FullDisk {
        fn event(&mut self, event: &Event) -> Result<(), RecordError> {
            let full = || RecordError::write(Path::new("metrics.csv"), io::Error::from_raw_os_error(28));
            if matches!(event, Event::Train(_)) { Err(full()) } else { Ok(()) }
        }
    }

    struct Repeat(mpsc::Sender<Event>);

    impl Sink for Repeat {
        fn event(&mut self, event: &Event) -> Result<(), RecordError> {
            let _ = self.0.send(event.clone());
            Ok(())
        }
    }

    #[test]
    fn every_event_reaches_every_sink_in_order() {
        let (sent, heard) = mpsc::channel();
        let recorder = Recorder::start(vec![Box::new(Repeat(sent.clone())), Box::new(Repeat(sent))]).unwrap();
        let notice = |n: usize| Event::Notice(Level::Info, n.to_string());
        for n in 0..100 {
            recorder.sender().send(notice(n)).unwrap();
        }
        recorder.finish().unwrap();
        let heard: Vec<String> = heard.iter().map(|event| format!("{event:?}")).collect();
        assert_eq!(heard, (0..200).map(|n| format!("{:?}", notice(n / 2))).collect::<Vec<_>>());
    }

    /// Loses the row of the last validation alone.
    struct LosesARow(MetricsCsv);

    impl Sink for LosesARow {
        fn event(&mut self, event: &Event) -> Result<(), RecordError> {
            if matches!(event, Event::Validation(row) if row.step == 6) {
                self.0.flush()?;
                return FullDisk.event(&sample::events()[2]);
            }
            self.0.event(event)
        }

        fn recorded(&self) -> Option<Recorded> {
            self.0.recorded()
        }
    }

    /// The last step was recorded, and so was the validation after step 3. The best is kept only if its row was written.
    #[test]
    fn a_best_whose_row_is_lost_is_none() {
        let folder = tempfile::tempdir().unwrap();
        for (step, is_kept) in [(6, false), (3, true)] {
            let path = folder.path().join(format!("{step}.csv"));
            let columns = MetricColumns::new(&sample::header().metrics, &[], Vec::new());
            let (sent, heard) = mpsc::channel();
            let metrics = LosesARow(MetricsCsv::create(&path, columns).unwrap());
            let recorder = Recorder::start(vec![Box::new(metrics), Box::new(Repeat(sent))]).unwrap();
            for mut event in sample::events() {
                if let Event::Finished(outcome) = &mut event {
                    outcome.best.as_mut().unwrap().step = step;
                }
                let _ = recorder.sender().send(event); // it says that a row was lost
            }
            assert!(recorder.finish().is_err());
            let outcome = heard.iter().find_map(|event| match event {
                Event::Finished(outcome) => Some(outcome),
                _ => None,
            });
            let outcome = outcome.unwrap();
            assert_eq!((outcome.steps, outcome.final_train_loss), (6, Some(1.5)));
            let validated = (outcome.final_validation_loss, outcome.final_validation_accuracy);
            assert_eq!(validated, (Some(0.123_456_789_012_345_68), Some(0.9)));
            assert_eq!(outcome.best.map(|best| best.step), is_kept.then_some(step));
        }
    }

    /// Waits until it may write.
    struct SlowDisk(mpsc::Receiver<()>);

    impl Sink for SlowDisk {
        fn event(&mut self, _: &Event) -> Result<(), RecordError> {
            Ok(())
        }

        fn flush(&mut self) -> Result<(), RecordError> {
            let _ = self.0.recv();
            Ok(())
        }
    }

    #[test]
    fn a_batch_is_unwritten_until_every_sink_has_flushed() {
        let (go_on, waits) = mpsc::channel();
        let recorder = Recorder::start(vec![Box::new(SlowDisk(waits))]).unwrap();
        let unwritten = Arc::clone(&recorder.sender.unwritten);
        for expected in 1..=3 {
            recorder.sender().send(Event::Notice(Level::Info, String::new())).unwrap();
            assert_eq!(unwritten.load(Ordering::SeqCst), expected);
        }
        drop(go_on);
        recorder.finish().unwrap();
        assert_eq!(unwritten.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn a_failing_sink_stops_the_sender_and_fails_the_run() {
        let (sent, heard) = mpsc::channel();
        let recorder = Recorder::start(vec![Box::new(FullDisk), Box::new(Repeat(sent))]).unwrap();
        let sender = recorder.sender();
        for event in sample::events() {
            let _ = sender.send(event);
        }
        let reason = "cannot write `metrics.csv`: no space left on device";
        // The other sink is sent the end of a failed run.
        let end = heard.iter().find_map(|event| match event {
            Event::Finished(outcome) => Some((outcome.status, outcome.reason)),
            _ => None,
        });
        assert_eq!(end, Some((Status::Failed, Some(reason.to_owned()))));
        assert_eq!(sender.send(Event::Notice(Level::Info, String::new())), Err(Closed));
        assert_eq!(recorder.finish().unwrap_err().to_string(), reason);
        assert_eq!(sender.send(Event::Notice(Level::Info, String::new())), Err(Closed));
    }
}
