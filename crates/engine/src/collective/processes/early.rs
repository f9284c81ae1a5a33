//! Sums that start before all elements are there: a thread sums copies of parts while the step computes others.
//!
//! The parts are summed one after the other, in the order in which all ranks start them.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    thread::{self, JoinHandle},
};

use super::exchange::Exchange;
use crate::{collective::CollectiveError, vector};

pub(super) struct EarlySums {
    /// Parts to sum; `None` only while it is dropped.
    parts: Option<Sender<Vec<f32>>>,
    sums: Receiver<Result<Vec<f32>, CollectiveError>>,
    thread: Option<JoinHandle<()>>,
    is_urgent: Arc<AtomicBool>,
    /// Parts of this step that were started, and their elements.
    started: (usize, usize),
    /// Memory for the next step's parts, in their order.
    free: VecDeque<Vec<f32>>,
}

impl EarlySums {
    /// Starts the thread.
    pub(super) fn new(exchange: Exchange) -> Result<Self, CollectiveError> {
        let ((parts, to_sum), (done, sums)) = (channel::<Vec<f32>>(), channel());
        let is_urgent = Arc::clone(&exchange.is_urgent);
        let sum = move || {
            // As on the threads that compute, so that sums have the same bits.
            vector::flush_denormals();
            for mut part in to_sum {
                let sum = exchange.sum(&mut part).map(|()| part);
                // After a failure the ranks may be at different parts.
                let is_last = sum.is_err();
                if done.send(sum).is_err() || is_last {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("sums".to_owned()).spawn(sum);
        let thread = Some(thread.map_err(|e| CollectiveError::NoThread(e.to_string()))?);
        Ok(Self { parts: Some(parts), sums, thread, is_urgent, started: (0, 0), free: VecDeque::new() })
    }

    pub(super) fn has_started(&self) -> bool {
        self.started.0 > 0
    }

    /// Starts the sum of the elements that end where those of the previous call begin.
    pub(super) fn start(&mut self, elements: &[f32]) {
        self.is_urgent.store(false, Ordering::Relaxed);
        let mut part = self.free.pop_front().unwrap_or_default();
        part.clear();
        part.extend_from_slice(elements);
        self.started = (self.started.0 + 1, self.started.1 + part.len());
        // If the thread has ended, `finish` finds out why.
        let _ = self.parts.as_ref().map(|parts| parts.send(part));
    }

    /// Sums what has not been started, and writes all sums to `elements`.
    pub(super) fn finish(&mut self, elements: &mut [f32]) -> Result<(), CollectiveError> {
        let rest = elements.len().saturating_sub(self.started.1);
        self.start(&elements[..rest]);
        self.is_urgent.store(true, Ordering::Relaxed);
        let (count, _) = std::mem::take(&mut self.started);
        let mut left = elements;
        for _ in 0..count {
            let sums = self.sums.recv().unwrap_or(Err(CollectiveError::Poisoned))?;
            let (before, part) = left.split_at_mut(left.len().saturating_sub(sums.len()));
            part.copy_from_slice(&sums);
            left = before;
            self.free.push_back(sums);
        }
        Ok(())
    }
}

impl Drop for EarlySums {
    fn drop(&mut self) {
        drop(self.parts.take());
        if let Some(thread) = self.thread.take() {
            // It ends with its last sum, whose wait is limited. If it panicked, `finish` has failed.
            drop(thread.join());
        }
    }
}
