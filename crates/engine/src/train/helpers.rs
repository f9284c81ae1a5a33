//! Threads that share the parts of a job with the thread that has it, again and again. To start a thread takes longer than a
//! part of a chunk takes to read.

use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Mutex,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
};

use crate::host::lock;

/// The work of a job, as all threads see it.
type Work = &'static (dyn Fn() -> io::Result<()> + Sync);

/// The threads, which end when this is dropped.
pub struct Helpers {
    work: Vec<Sender<Work>>,
    done: Receiver<io::Result<()>>,
}

impl Helpers {
    /// Starts as many threads as can be started.
    pub fn new(count: usize) -> Self {
        let (ended, done) = channel();
        let start = |_| {
            let (work, taken) = channel::<Work>();
            let ended = ended.clone();
            let body = move || {
                while let Ok(work) = taken.recv() {
                    if ended.send(attempt(work)).is_err() {
                        return;
                    }
                }
            };
            thread::Builder::new().name("reader".into()).spawn(body).ok().map(|_| work)
        };
        Self { work: (0..count).map_while(start).collect(), done }
    }

    /// The number of threads that share a job.
    pub fn threads(&self) -> usize {
        1 + self.work.len()
    }

    /// Does `work` with each part, at most as many at a time as there are [`Self::threads`]. Returns the error of one that failed.
    pub fn share<T: Send>(
        &self,
        parts: impl Iterator<Item = T>,
        work: impl Fn(T) -> io::Result<()> + Sync,
    ) -> io::Result<()> {
        let parts = Mutex::new(parts.collect::<Vec<_>>());
        let others = lock(&parts).len().saturating_sub(1);
        let next = || lock(&parts).pop();
        let all = || -> io::Result<()> {
            while let Some(part) = next() {
                work(part)?;
            }
            Ok(())
        };
        let all: &(dyn Fn() -> io::Result<()> + Sync) = &all;
        // SAFETY: only the lifetime changes. A thread that takes the reference always answers once it has done with it: it
        // catches panics of the work, and it ends only when `self` is dropped. This function catches its own, too, and waits for
        // all answers.
        let all: Work = unsafe { std::mem::transmute(all) };
        let asked = self.work.iter().take(others).filter(|work| work.send(all).is_ok()).count();
        let own = attempt(all);
        let answers: Vec<_> = self.done.iter().take(asked).collect();
        answers.into_iter().fold(own, Result::and)
    }
}

fn attempt(work: Work) -> io::Result<()> {
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|_| Err(io::Error::other("a reading thread has panicked")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_is_done_once_whatever_the_others_come_to() {
        let helpers = Helpers::new(3);
        assert_eq!(helpers.threads(), 4);
        for count in [0, 1, 2, 50] {
            let mut numbers = vec![1; count];
            let parts = numbers.iter_mut().enumerate();
            let add = |(i, number): (usize, &mut usize)| {
                *number += i;
                Ok(())
            };
            helpers.share(parts, add).expect("no part fails");
            assert_eq!(numbers, (1..=count).collect::<Vec<_>>());
        }
        let work = |part: usize| match part {
            7 => Err(io::Error::other("seven")),
            _ => Ok(()),
        };
        assert_eq!(helpers.share(0..20, work).expect_err("one fails").to_string(), "seven");
        let error = helpers.share(0..4, |part| if part == 2 { panic!("two") } else { Ok(()) });
        assert_eq!(error.expect_err("one panics").to_string(), "a reading thread has panicked");
        // They are still there.
        helpers.share(0..4, |_| Ok(())).expect("no part fails");
        assert_eq!(Helpers::new(0).threads(), 1);
        Helpers::new(0).share(0..4, |_| Ok(())).expect("the thread itself does all");
    }
}
