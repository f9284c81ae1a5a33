//! The orders of rows of the next epochs. Where a GPU runs the steps and orders take long, a thread makes them while the
//! steps before them run.

use std::{
    io,
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

use crate::{data::epoch_order, op::make_room, plan::Trial};

/// The thread starts once making orders has taken this long: to start it takes some 50 µs.
const LONG: Duration = Duration::from_millis(1);

/// The epochs whose orders are wanted, and memory for them.
struct Request {
    first: u64,
    epochs: usize,
    /// Empty, with room for all.
    orders: Vec<u32>,
}

pub(super) struct Orders {
    seed: u64,
    rows: usize,
    /// Epochs that the memory has room for at least: a GPU takes no more later than at the start.
    room: usize,
    /// All epochs of the run.
    all: u64,
    is_gpu: bool,
    /// The orders that devices have.
    bound: Arc<Vec<u32>>,
    ahead: Option<(SyncSender<Request>, Receiver<Vec<u32>>)>,
    /// The first epoch of the request that the thread works at.
    asked: Option<u64>,
    /// The time that the loop has spent on them.
    time: Duration,
}

impl Orders {
    pub fn new(trial: &Trial) -> Self {
        let is_gpu = trial.engine.is_gpu();
        Self {
            seed: trial.spec.shuffle_seed(),
            rows: trial.facts.train_rows,
            room: if is_gpu { usize::try_from(trial.stretch(0)).unwrap_or(1) } else { 1 },
            all: trial.steps.div_ceil(trial.steps_per_epoch.max(1)),
            is_gpu,
            bound: Arc::default(),
            ahead: None,
            asked: None,
            time: Duration::ZERO,
        }
    }

    /// The orders of `epochs` epochs from `first` on, one behind the other.
    ///
    /// # Errors
    /// Memory does not hold them.
    pub fn take(&mut self, first: u64, epochs: usize) -> io::Result<Arc<Vec<u32>>> {
        let start = Instant::now();
        let mut spare = Arc::try_unwrap(std::mem::take(&mut self.bound)).unwrap_or_default();
        let made = match (&self.ahead, self.asked.take()) {
            // A thread that is gone made none.
            (Some((_, made)), Some(asked)) if asked == first => made.recv().ok(),
            _ => None,
        };
        let mut orders = match made {
            Some(made) => made,
            None => {
                spare.clear();
                std::mem::take(&mut spare)
            }
        };
        orders.truncate(epochs * self.rows);
        make_room(&mut orders, self.room.max(epochs) * self.rows, "their order")?;
        for epoch in (first..).take(epochs).skip(orders.len() / self.rows.max(1)) {
            epoch_order(self.seed, epoch, self.rows as u32, &mut orders);
        }
        self.bound = Arc::new(orders);
        self.time += start.elapsed();
        self.ask(first + epochs as u64, epochs, spare);
        Ok(Arc::clone(&self.bound))
    }

    /// Has the thread make the next orders. Where memory does not hold them, they are made when they are needed.
    fn ask(&mut self, first: u64, epochs: usize, mut orders: Vec<u32>) {
        let left = (self.all + 1).saturating_sub(first);
        if !self.is_gpu || left == 0 || self.time < LONG {
            return;
        }
        let epochs = usize::try_from(left).unwrap_or(usize::MAX).min(epochs);
        orders.clear();
        if make_room(&mut orders, self.room.max(epochs) * self.rows, "their order").is_err() {
            return;
        }
        let (seed, rows) = (self.seed, self.rows);
        let start = || {
            let (requests, asked) = sync_channel::<Request>(1);
            let (done, made) = sync_channel(1);
            let make = move || {
                // The channels close when the run ends.
                for Request { first, epochs, mut orders } in asked {
                    (first..)
                        .take(epochs)
                        .for_each(|epoch| epoch_order(seed, epoch, rows as u32, &mut orders));
                    if done.send(orders).is_err() {
                        return;
                    }
                }
            };
            // If no thread can be started, orders are made when they are needed.
            thread::Builder::new().name("orders".into()).spawn(make).ok().map(|_| (requests, made))
        };
        if self.ahead.is_none() {
            self.ahead = start();
        }
        let sent = |(requests, _): &(SyncSender<Request>, _)| {
            requests.send(Request { first, epochs, orders }).is_ok()
        };
        self.asked = self.ahead.as_ref().is_some_and(sent).then_some(first);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_made_ahead_are_those_made_at_once() {
        const ROWS: usize = 1000;
        let orders = |is_gpu| Orders {
            seed: 3,
            rows: ROWS,
            room: 8,
            all: 40,
            is_gpu,
            bound: Arc::default(),
            ahead: None,
            asked: None,
            time: LONG,
        };
        let (mut ahead, mut at_once) = (orders(true), orders(false));
        let mut first = 1;
        // As many as the thread made, fewer and more.
        for epochs in [1, 1, 4, 2, 8, 8, 8, 8] {
            let made = ahead.take(first, epochs).expect("memory");
            assert_eq!(made, at_once.take(first, epochs).expect("memory"));
            assert_eq!(made.len(), epochs * ROWS);
            first += epochs as u64;
            assert_eq!(ahead.asked, (first <= 40).then_some(first));
        }
    }
}
