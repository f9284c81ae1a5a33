//! Blocks of steps as they are queued: the counters that kernels read, the engine or single launches, and what is learned
//! of a block that is done.

use std::time::{Duration, Instant};

use super::{
    engines::steps::Work as Part,
    executor::CudaExecutor,
    launch::ring::{Done, Queued},
};
use crate::{
    device::{Block, DeviceError, Kind, Ledger, Meters, Purpose, Work},
    op::{Phase, RunRecord},
    plan::Engine,
};

impl CudaExecutor {
    /// Queues some steps of a block as one unit.
    pub(super) fn part(
        &mut self,
        block: &Block<'_>,
        first: usize,
        steps: usize,
        meters: &mut Meters<'_>,
    ) -> Result<(), DeviceError> {
        self.ground.together(|| "queuing steps".into())?;
        if let Some(done) = self.ring.free(&self.ground)? {
            self.learn(&done, meters);
        }
        let trains = block.work == Work::Train;
        match &mut self.validate {
            Some(validate) if !trains => validate.runner(&self.ground)?,
            _ => self.train.runner(&self.ground)?,
        };
        let loaded = if trains { &self.train } else { self.validate.as_ref().unwrap_or(&self.train) };
        let batch = usize::try_from(loaded.full.rows).unwrap_or(1).max(1);
        let own = u64::try_from(loaded.full.own_rows).unwrap_or(0);
        let position = block.position + first * batch;
        // A chunk holds this device's rows only, and begins with a batch.
        let offset = (block.offset / batch + first) as u64 * own;
        let table = block.hyper.get(first..first + steps).unwrap_or_default();
        let run = RunRecord {
            data: [0, 1, 2, 3].map(|i: usize| self.feeds[i].at()),
            order: self.order.at(),
            log: self.mailbox.log(),
            hyper: if table.is_empty() { 0 } else { self.ground.run.at + size_of::<RunRecord>() as u64 },
            sums: self.mailbox.sums(),
            non_finite: self.mailbox.flag(),
            partial: self.partial.at,
            seed: self.seed,
            step: block.step + if trains { first as u64 } else { 0 },
            position: position as u64,
            offset,
            batch: batch as u64,
            index: 0,
            slot: (block.slot + first) as u32,
        };
        // Known before it is queued: where sums go through the host, that waits for steps.
        let slowest_s = steps as f64 * loaded.slowest_s;
        if trains {
            self.ground.step = block.step + (first + steps) as u64;
        }
        self.ground.give(slowest_s);
        let start = Instant::now();
        let bytes = self.ring.begin(&self.ground.stream, self.ground.run.at, run, table)?;
        meters.ledger.copy(Kind::HostToDevice, Purpose::Parameters, bytes, start.elapsed());
        // Only the last step may have fewer rows.
        let whole = (block.rows.saturating_sub(position) / batch).min(steps);
        let last = loaded.last.as_ref().filter(|_| whole < steps);
        let phases = if self.engine == Engine::Launch && (trains || loaded.full.reduces()) {
            self.launch_marked(block, whole, whole < steps, first, meters.ledger)?
        } else {
            let runner = loaded.runner.as_ref();
            runner.map_or(Ok(()), |runner| runner.queue(&self.ground, &loaded.full, whole, last))?;
            Vec::new()
        };
        if trains && self.ground.queues_sums() {
            // When they end only the device knows.
            let bytes = (steps * 4 * self.reduced) as u64;
            meters.ledger.queued(Kind::AllReduce, Purpose::Gradients, steps as u64, bytes);
        }
        let first = block.step + first as u64 + 1;
        self.ring.end(&self.ground.stream, Queued { trains, first, steps, phases, slowest_s })
    }

    /// Launches instructions one by one, with a mark behind every phase.
    fn launch_marked(
        &mut self,
        block: &Block<'_>,
        whole: usize,
        has_last: bool,
        first: usize,
        ledger: &mut Ledger,
    ) -> Result<Vec<Phase>, DeviceError> {
        let loaded = match (block.work, &self.validate) {
            (Work::Validate, Some(validate)) => validate,
            _ => &self.train,
        };
        let mut phases = Vec::new();
        for step in 0..whole + usize::from(has_last) {
            let steps =
                if step < whole { &loaded.full } else { loaded.last.as_ref().unwrap_or(&loaded.full) };
            for (i, node) in steps.nodes.iter().enumerate() {
                match &node.work {
                    Part::AllReduce { at, len } if self.sums.is_some() => {
                        let number = block.step + (first + step) as u64 + 1;
                        let address = self.ground.arena.at + 4 * at;
                        if let Some(sums) = &mut self.sums {
                            sums.all_reduce(&self.ground, address, *len, number, ledger)?;
                        }
                    }
                    work => self.ground.queue(work)?,
                }
                if steps.nodes.get(i + 1).is_none_or(|next| next.phase != node.phase) {
                    self.ring.mark(phases.len(), &self.ground.stream)?;
                    phases.push(node.phase);
                }
            }
            self.ground.advance(steps)?;
        }
        Ok(phases)
    }

    /// Takes down what is known of a block that is done.
    pub(super) fn learn(&mut self, done: &Done, meters: &mut Meters<'_>) {
        self.timeline.tell(meters.clock);
        self.timeline.block(done, meters.clock);
        let Done { queued, end, seconds, phases, .. } = done;
        self.ground.patience.learn(queued.slowest_s, *seconds);
        if !queued.trains {
            *self.validation_s.get_or_insert_default() += seconds;
            return;
        }
        let each = seconds / queued.steps.max(1) as f64;
        self.step_time = Some(Duration::from_secs_f64(each));
        if phases.is_empty() {
            meters.clock.record_device(Phase::Step, Duration::from_secs_f64(*seconds), queued.steps as u64);
        }
        for (phase, seconds) in phases {
            meters.clock.record_device(*phase, Duration::from_secs_f64(*seconds), 1);
        }
        let origin = meters.clock.origin();
        let since = end.saturating_duration_since(origin).as_secs_f64();
        // Anchors are some microseconds off: time does not run backward for that.
        self.last_end_s = since.max(self.last_end_s);
        meters.ends.extend(std::iter::repeat_n(self.last_end_s, queued.steps));
    }
}
