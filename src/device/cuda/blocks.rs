//! Blocks of steps as they are queued: the counters that kernels read, the engine or single launches, and what is learned
//! of a block that is done.

use std::time::{Duration, Instant};

use super::{
    engines::LaunchKind as Part,
    executor::CudaExecutor,
    launch::{Done, Queued},
};
use crate::{
    device::{Block, DeviceError, Kind, Ledger, Meters, PassKind, Purpose},
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
        self.gpu_context.together(|| "queuing steps".into())?;
        if let Some(done) = self.in_flight.free(&self.gpu_context)? {
            self.learn(&done, meters);
        }
        let trains = block.work == PassKind::Train;
        match &mut self.validate {
            Some(validate) if !trains => validate.loaded_engine(&self.gpu_context)?,
            _ => self.train.loaded_engine(&self.gpu_context)?,
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
            log: self.device_log.log(),
            hyper: if table.is_empty() { 0 } else { self.gpu_context.run.at + size_of::<RunRecord>() as u64 },
            sums: self.device_log.sums(),
            non_finite: self.device_log.flag(),
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
            self.gpu_context.step = block.step + (first + steps) as u64;
        }
        self.gpu_context.give(slowest_s);
        let start = Instant::now();
        let bytes = self.in_flight.begin(&self.gpu_context.stream, self.gpu_context.run.at, run, table)?;
        meters.ledger.copy(Kind::HostToDevice, Purpose::Parameters, bytes, start.elapsed());
        // Only the last step may have fewer rows.
        let whole = (block.rows.saturating_sub(position) / batch).min(steps);
        let last = loaded.last.as_ref().filter(|_| whole < steps);
        let phases = if self.engine == Engine::Launch && (trains || loaded.full.reduces()) {
            self.launch_marked(block, whole, whole < steps, first, meters.ledger)?
        } else {
            let loaded_engine = loaded.loaded_engine.as_ref();
            loaded_engine.map_or(Ok(()), |loaded_engine| {
                loaded_engine.queue(&self.gpu_context, &loaded.full, whole, last)
            })?;
            Vec::new()
        };
        if trains && self.gpu_context.queues_sums() {
            // When they end only the device knows.
            let bytes = (steps * 4 * self.reduced) as u64;
            meters.ledger.queued(Kind::AllReduce, Purpose::Gradients, steps as u64, bytes);
        }
        let first = block.step + first as u64 + 1;
        self.in_flight.end(&self.gpu_context.stream, Queued { trains, first, steps, phases, slowest_s })
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
            (PassKind::Validate, Some(validate)) => validate,
            _ => &self.train,
        };
        let mut phases = Vec::new();
        for step in 0..whole + usize::from(has_last) {
            let steps =
                if step < whole { &loaded.full } else { loaded.last.as_ref().unwrap_or(&loaded.full) };
            for (i, launch) in steps.launches.iter().enumerate() {
                match &launch.work {
                    Part::AllReduce { at, len } if self.sums.is_some() => {
                        let number = block.step + (first + step) as u64 + 1;
                        let address = self.gpu_context.arena.at + 4 * at;
                        if let Some(sums) = &mut self.sums {
                            sums.all_reduce(&self.gpu_context, address, *len, number, ledger)?;
                        }
                    }
                    work => self.gpu_context.queue(work)?,
                }
                if steps.launches.get(i + 1).is_none_or(|next| next.phase != launch.phase) {
                    self.in_flight.mark(phases.len(), &self.gpu_context.stream)?;
                    phases.push(launch.phase);
                }
            }
            self.gpu_context.advance(steps)?;
        }
        Ok(phases)
    }

    /// Takes down what is known of a block that is done.
    pub(super) fn learn(&mut self, done: &Done, meters: &mut Meters<'_>) {
        self.timeline.report(meters.clock);
        self.timeline.block(done, meters.clock);
        let Done { queued, end, seconds, phases, .. } = done;
        self.gpu_context.hang_timeout.learn(queued.slowest_s, *seconds);
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
