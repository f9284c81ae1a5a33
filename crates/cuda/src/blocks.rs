//! Queues blocks of steps: uploads the counters that kernels read, then uses the engine or launches instructions singly.

use std::time::Instant;

use super::{
    engines::{Attempt, Compiled, LaunchKind as Part, StepSequence},
    executor::{CudaExecutor, loaded_for},
    launch::{Queued, wait},
    proof::Unproven,
};
use crate::{
    device::{Block, COMPARED_STEPS, DeviceError, Kind, Ledger, Meters, PassKind, Purpose},
    op::{Hyper, Phase, RunRecord},
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
        self.gpu.together(|| "queuing steps".into())?;
        if let Some(done) = self.progress.in_flight.free(&self.gpu)? {
            self.progress.learn(&done, &mut self.gpu, meters);
        }
        let trains = block.work == PassKind::Train;
        match &mut self.validate {
            Some(validate) if !trains => validate.load(&self.gpu)?,
            _ => self.train.load(&self.gpu)?,
        }
        let loaded = loaded_for(block.work, &self.train, &self.validate);
        let (batch, own) = (loaded.batch(), u64::try_from(loaded.full.own_rows).unwrap_or(0));
        let [position, in_order] = block.place(first, batch);
        // A chunk holds only this device's rows, and starts at the beginning of a batch.
        let offset = (block.offset / batch + first) as u64 * own;
        let table = block.hyper.get(first..first + steps).unwrap_or_default();
        let (data, order) = self.inputs.addresses();
        let run = RunRecord {
            data,
            order: if order == 0 { 0 } else { order + (size_of::<u32>() * in_order) as u64 },
            log: self.device_log.log(),
            hyper: if table.is_empty() { 0 } else { self.gpu.run.at + size_of::<RunRecord>() as u64 },
            sums: self.device_log.sums(),
            non_finite: self.device_log.flag(),
            partial: self.gpu.partial.at,
            seed: self.seed,
            step: block.step + if trains { first as u64 } else { 0 },
            position: position as u64,
            offset,
            rows: block.rows as u64,
            index: 0,
            slot: (block.slot + first) as u32,
        };
        let sequence = StepSequence::new(block, first, steps, batch);
        if trains {
            self.prove(run, block.hyper.get(first..).unwrap_or_default(), &sequence)?;
            self.gpu.step = block.step + (first + steps) as u64;
        }
        let loaded = loaded_for(block.work, &self.train, &self.validate);
        // Set this before queuing: sums through the host wait for steps.
        let slowest_s = steps as f64 * loaded.slowest_s;
        self.gpu.give(slowest_s);
        let start = Instant::now();
        let bytes = self.progress.in_flight.begin(&self.gpu.stream, self.gpu.run.at, run, table)?;
        let time = start.elapsed();
        self.inputs.release(&self.gpu.stream)?;
        let constants = size_of_val(table) as u64;
        meters.ledger.copy(Kind::HostToDevice, Purpose::Launch, bytes - constants, time);
        if constants > 0 {
            // They go with the counters, in one copy, whose time is that of the launch.
            meters.ledger.queued(Kind::HostToDevice, Purpose::Constants, 1, constants);
        }
        let phases = if self.train.engine == Engine::Launch && (trains || loaded.full.reduces()) {
            self.launch_marked(block, &sequence, first, meters.ledger)?
        } else {
            loaded.queue(&self.gpu, &sequence)?;
            Vec::new()
        };
        if trains && self.gpu.sums.is_some() {
            // Only the device knows the times of these sums.
            let bytes = (steps * 4 * self.reduced) as u64;
            meters.ledger.queued(Kind::AllReduce, Purpose::Gradients, steps as u64, bytes);
        }
        let first = block.step + first as u64 + 1;
        self.progress.in_flight.end(&self.gpu.stream, Queued { trains, first, steps, phases, slowest_s })
    }

    /// Launches instructions one by one, with a marker event after every phase.
    fn launch_marked(
        &mut self,
        block: &Block<'_>,
        sequence: &StepSequence,
        first: usize,
        ledger: &mut Ledger,
    ) -> Result<Vec<Vec<Phase>>, DeviceError> {
        let loaded = loaded_for(block.work, &self.train, &self.validate);
        let (mut phases, mut marks) = (Vec::new(), 0);
        for step in 0..sequence.steps {
            let steps = loaded.of_step(sequence.is_last(step));
            let mut own = Vec::new();
            for (i, launch) in steps.launches.iter().enumerate() {
                match &launch.work {
                    Part::AllReduce { at, len, .. } if self.sums.is_some() => {
                        let number = block.step + (first + step) as u64 + 1;
                        let address = self.gpu.arena.at + 4 * at;
                        if let Some(sums) = &mut self.sums {
                            sums.all_reduce(&self.gpu, address, *len, number, ledger)?;
                        }
                    }
                    work => self.gpu.queue(work)?,
                }
                if steps.launches.get(i + 1).is_none_or(|next| next.phase != launch.phase) {
                    self.progress.in_flight.mark(marks, &self.gpu.stream)?;
                    marks += 1;
                    own.push(launch.phase);
                }
            }
            phases.push(own);
            self.gpu.advance(steps)?;
        }
        Ok(phases)
    }

    /// Tests the compiled step on the steps that follow, whose rates are `hyper`, on a copy of the current state, unless an
    /// earlier trial of this process has. If the test fails, the interpreter runs this block and all later ones.
    ///
    /// A run that goes on at the smaller batch of an epoch tests that step alone, and the full batches when they come. Steps
    /// that change no weight, as those that time an engine, prove nothing.
    fn prove(&mut self, run: RunRecord, hyper: &[Hyper], sequence: &StepSequence) -> Result<(), DeviceError> {
        let is_last = sequence.is_last(0);
        let count = if is_last { 1 } else { sequence.before_last.min(COMPARED_STEPS).min(hyper.len()) };
        let (Some(unproven), Some(compiled), Some(hyper)) = (
            &self.unproven,
            &self.train.compiled,
            hyper.get(..count).filter(|own| own.iter().any(|own| own.rate != 0.0)),
        ) else {
            return Ok(());
        };
        // Locked meanwhile: trials that begin together take one proof, and all go the same way.
        let mut proofs = wait::lock(&self.gpu.context, &compiled.module.proofs);
        let verdict = match proofs.iter().find(|(known, _)| *known == is_last) {
            Some((_, known)) => known.clone(),
            None => {
                let verdict = self.attempt(unproven, compiled, run, hyper, is_last)?;
                proofs.push((is_last, verdict.clone()));
                verdict
            }
        };
        drop(proofs);
        if verdict.is_some() {
            self.train.compiled = None;
        }
        if verdict.is_some() || !is_last {
            self.unproven = None;
        }
        self.notice = verdict;
        Ok(())
    }

    /// Why the interpreter runs the steps, if so, by some steps of both.
    fn attempt(
        &self,
        unproven: &Unproven,
        compiled: &Compiled,
        run: RunRecord,
        hyper: &[Hyper],
        is_last: bool,
    ) -> Result<Option<String>, DeviceError> {
        let Some(interpreter) = &self.train.loaded_engine else { return Ok(None) };
        let values = self.layout.whole(self.layout.values);
        let first =
            self.places.place(values).ok_or_else(|| DeviceError::no_place(&self.gpu.context.name, values))?;
        let attempt = Attempt {
            run,
            hyper,
            values: [first as usize, values.len],
            log_width: unproven.log_width,
            elements: self.train.elements,
        };
        let (gpu, train) = (&self.gpu, &self.train);
        let own = attempt.run(gpu, |places, count| compiled.queue_on(gpu, places, count))?;
        let other = attempt.run(gpu, |places, count| {
            interpreter.interpret(gpu, places, train.of_step(is_last), count, train.elements)
        })?;
        Ok(unproven.verdict(&own, &other))
    }
}
