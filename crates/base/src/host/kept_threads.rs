//! Threads that wait for the next task of their name when they have ended one: to start one takes a third as long as all that a
//! short trial of a sweep records.

use std::{
    collections::BTreeMap,
    io, iter,
    sync::{
        Mutex,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
};

use super::lock;

type Work = Box<dyn FnOnce() + Send>;

/// Threads without a task, by name.
static IDLE: Mutex<BTreeMap<&'static str, Vec<Sender<Work>>>> = Mutex::new(BTreeMap::new());

/// A task on a thread of its own.
pub struct Task<T>(Receiver<T>);

impl<T> Task<T> {
    /// Waits for the task's end; `None` if it panicked.
    pub fn join(self) -> Option<T> {
        self.0.recv().ok()
    }
}

/// Begins a task on a thread of this name: one that has ended its last task, or else a new one. Returns once a new thread runs:
/// while it is set up, it holds the lock of the process's memory map, which would delay others. A thread is free a moment after its
/// task has been joined.
///
/// # Errors
/// No thread can be started.
pub fn begin_task<T: Send + 'static>(
    name: &'static str,
    task: impl FnOnce() -> T + Send + 'static,
) -> io::Result<Task<T>> {
    let (ended, end) = channel();
    let work: Work = Box::new(move || _ = ended.send(task()));
    let idle = lock(&IDLE).get_mut(name).and_then(Vec::pop);
    match idle {
        // A thread ends only where a task panicked, and is idle no more then: one that is idle receives.
        Some(thread) => _ = thread.send(work),
        None => start(name, work)?,
    }
    Ok(Task(end))
}

fn start(name: &'static str, first: Work) -> io::Result<()> {
    let (sender, works) = channel();
    let (ready, started) = channel();
    let serve = move || {
        let _ = ready.send(()); // `start` waits for this below
        // It never ends: the thread has a sender of its own.
        for work in iter::once(first).chain(works) {
            work();
            lock(&IDLE).entry(name).or_default().push(sender.clone());
        }
    };
    thread::Builder::new().name(name.to_owned()).spawn(serve)?;
    let _ = started.recv();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread_of_next() -> thread::ThreadId {
        begin_task("test", || thread::current().id()).unwrap().join().unwrap()
    }

    #[test]
    fn tasks_side_by_side_have_threads_of_their_own_and_later_ones_take_these() {
        let (go, wait) = channel::<()>();
        let first = begin_task("test", move || (wait.recv().is_ok(), thread::current().id())).unwrap();
        let other = thread_of_next();
        go.send(()).unwrap();
        let (is_told, own) = first.join().unwrap();
        assert!(is_told && own != other);
        let idle = || lock(&IDLE).get("test").map_or(0, Vec::len);
        // A thread is idle a moment after its task has ended.
        while idle() < 2 {
            thread::yield_now();
        }
        assert!([own, other].contains(&thread_of_next()));
        // One whose task panics is gone.
        while idle() < 2 {
            thread::yield_now();
        }
        assert!(begin_task::<()>("test", || panic!("as this test wants")).unwrap().join().is_none());
        assert_eq!(idle(), 1);
        assert!([own, other].contains(&thread_of_next()));
    }
}
