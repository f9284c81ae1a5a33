//! One thread for each of several devices. All get the same command and answer it. A device that fails,
//! panics or does not answer ends the work of all.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use crate::{
    collective::{Abort, CollectiveError},
    device::{Clock, Device, DeviceError, Kind, Line, Purpose, Timer, Totals},
    host::{AwakeTimer, lock},
    program::Phase,
};

/// How long the others are waited for after a failure. It may be short, because the abort has released them.
const GRACE: Duration = Duration::from_secs(1);

/// How often a wait checks its timer.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);

type Answer = Result<(), DeviceError>;
type Command = Arc<dyn Fn(&mut Rank) -> Answer + Send + Sync>;

/// A device and the state that only its own thread writes.
pub struct Rank {
    pub device: Device,
    /// Times of its steps; `None` if they go to the run's own clock.
    pub clock: Option<Clock>,
    pub index: usize,
}

/// What a device's own clock and ledger have counted.
pub struct DeviceTimes {
    totals: Totals,
    /// How often the host read the log from it, and so waited for it.
    pub log_waits: u64,
}

impl DeviceTimes {
    pub fn from_rank(rank: &Rank) -> Self {
        let is_log = |(kind, purpose, _): &(Kind, Purpose, Line)| {
            (*kind, *purpose) == (Kind::DeviceToHost, Purpose::Log)
        };
        let lines = rank.device.ledger.lines().filter(is_log);
        let log_waits = lines.map(|(_, _, line)| line.count + line.noop_count).sum();
        Self { totals: rank.clock.as_ref().map(Clock::totals).unwrap_or_default(), log_waits }
    }

    pub fn total(&self, by: Timer, phase: Phase) -> Duration {
        self.totals[by as usize][phase as usize]
    }
}

struct Worker {
    name: String,
    commands: Sender<(u64, Command)>,
    thread: JoinHandle<Rank>,
    /// The device did not answer, so its thread may never end.
    lost: bool,
}

pub struct Workers {
    workers: Vec<Worker>,
    /// Number of the command, index of the device, and its answer.
    answers: Receiver<(u64, usize, Answer)>,
    asked: u64,
    abort: Abort,
    limit: Duration,
    /// Replaces [`GRACE`] once a process is gone.
    pub grace: Duration,
    /// What the devices are doing now, for error messages.
    pub doing: String,
    pub failed: bool,
}

impl Workers {
    pub fn new(ranks: Vec<Rank>, abort: Abort, limit: Duration) -> Result<Self, DeviceError> {
        let (answer, answers) = channel();
        let workers = ranks.into_iter().map(|rank| spawn(rank, answer.clone(), abort.clone()));
        let workers = workers.collect::<Result<_, _>>()?;
        Ok(Self {
            workers,
            answers,
            asked: 0,
            abort,
            limit,
            grace: GRACE,
            doing: "the start".into(),
            failed: false,
        })
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.workers.iter().map(|worker| &*worker.name)
    }

    /// The results of all devices, in their order.
    pub fn all<R: Send + 'static>(
        &mut self,
        command: impl Fn(&mut Rank) -> Result<R, DeviceError> + Send + Sync + 'static,
    ) -> Result<Vec<R>, DeviceError> {
        self.run(self.workers.len(), command)
    }

    /// The results of the first `count` devices, in their order.
    pub fn run<R: Send + 'static>(
        &mut self,
        count: usize,
        command: impl Fn(&mut Rank) -> Result<R, DeviceError> + Send + Sync + 'static,
    ) -> Result<Vec<R>, DeviceError> {
        let results: Arc<Vec<_>> = Arc::new((0..count).map(|_| Mutex::new(None)).collect());
        let written = Arc::clone(&results);
        let command = move |rank: &mut Rank| {
            let result = command(rank)?;
            *lock(&written[rank.index]) = Some(result);
            Ok(())
        };
        self.broadcast(count, Arc::new(command))?;
        Ok(results.iter().filter_map(|r| lock(r).take()).collect())
    }

    fn broadcast(&mut self, count: usize, command: Command) -> Answer {
        self.asked += 1;
        let mut answers = Vec::with_capacity(count);
        for worker in &mut self.workers[..count] {
            // Sending fails if the device panicked earlier: its thread has ended.
            let gone = worker.lost || worker.commands.send((self.asked, Arc::clone(&command))).is_err();
            answers.push(gone.then(|| Err(DeviceError::Ended { device: worker.name.clone() })));
        }
        drop(command);
        let cause = self.receive(&mut answers);
        let Some(failure) = self.failure(answers, cause) else { return Ok(()) };
        self.abort.now();
        self.failed = true;
        Err(failure)
    }

    /// Fills `answers` until all have arrived or time is up. Returns the first device that failed on its own.
    fn receive(&self, answers: &mut [Option<Answer>]) -> Option<usize> {
        let (mut limit, mut timer) = (self.limit, AwakeTimer::start());
        let mut cause = None;
        while answers.iter().any(Option::is_none) {
            let left = limit.saturating_sub(timer.elapsed());
            let (asked, index, answer) = match self.answers.recv_timeout(left.min(CHECK_INTERVAL)) {
                Ok(answer) => answer,
                Err(RecvTimeoutError::Timeout) if limit > timer.elapsed() => continue,
                Err(_) => break,
            };
            // A late answer to an earlier command, from a device that was given up.
            if asked != self.asked {
                continue;
            }
            if let Err(error) = &answer {
                let source = match error {
                    DeviceError::Collective { source, .. } => Some(source),
                    _ => None,
                };
                let grace = match source {
                    Some(CollectiveError::Gone { .. }) => self.grace,
                    _ => GRACE,
                };
                limit = limit.min(timer.elapsed() + grace);
                let released = matches!(source, Some(CollectiveError::Poisoned));
                cause = cause.or((!released).then_some(index));
            }
            answers[index] = Some(answer);
        }
        cause
    }

    /// The failure to report: that of `cause` if given, else the first.
    fn failure(&mut self, answers: Vec<Option<Answer>>, cause: Option<usize>) -> Option<DeviceError> {
        let mut failure = None;
        for (index, (worker, answer)) in self.workers.iter_mut().zip(answers).enumerate() {
            let (device, doing) = (worker.name.clone(), self.doing.clone());
            let error = match answer {
                Some(Ok(())) => continue,
                Some(Err(DeviceError::Panicked { reason, .. })) => {
                    DeviceError::Panicked { device, doing, reason }
                }
                Some(Err(error)) => error,
                None => {
                    worker.lost = true;
                    DeviceError::Stalled { device, doing, waited: self.limit }
                }
            };
            if failure.is_none() || cause == Some(index) {
                failure = Some(error);
            }
        }
        failure
    }

    /// Ends the threads. Returns the ranks whose threads did end.
    pub fn finish(self) -> impl Iterator<Item = Rank> {
        self.workers.into_iter().filter_map(|worker| {
            drop(worker.commands);
            // A thread that hangs inside a device cannot be joined; it ends with the process.
            if worker.lost && !worker.thread.is_finished() { None } else { worker.thread.join().ok() }
        })
    }
}

fn spawn(mut rank: Rank, answers: Sender<(u64, usize, Answer)>, abort: Abort) -> Result<Worker, DeviceError> {
    let name = rank.device.name.clone();
    let (commands, received) = channel::<(u64, Command)>();
    let body = move || {
        // However this thread ends, the guard aborts, so that no other device waits for it.
        let guard = abort.guard();
        while let Ok((asked, command)) = received.recv() {
            // Unwind safety: after a panic only the rank's times and counts are read, which are valid at any moment.
            let answer = catch_unwind(AssertUnwindSafe(|| command(&mut rank)));
            // Free what the command holds before the answer arrives.
            drop(command);
            let panicked = answer.is_err();
            let answer = answer.unwrap_or_else(|panic| {
                let (device, doing) = (rank.device.name.clone(), String::new());
                Err(DeviceError::Panicked { device, doing, reason: panic_message(&*panic) })
            });
            // Send the cause before the abort makes the other devices fail.
            let failed = answer.is_err();
            let gone = answers.send((asked, rank.index, answer)).is_err();
            if failed {
                abort.now();
            }
            if gone || panicked {
                break;
            }
        }
        guard.defuse();
        rank
    };
    let thread = thread::Builder::new().name(name.clone()).spawn(body);
    let thread = thread.map_err(|source| DeviceError::Thread { device: name.clone(), source })?;
    Ok(Worker { name, commands, thread, lost: false })
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "for no reason given".into())
}
