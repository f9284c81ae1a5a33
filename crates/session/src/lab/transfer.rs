//! Copies between memories, waiting for each: what a copy costs by size, direction and kind of host memory.

use std::time::{Duration, Instant};

use super::{Bench, LabError, device::two};
use crate::{
    device::Purpose,
    event::{CopyRow, Event, Spread},
    op::BufferId,
    plan::{DeviceId, lab::CopyPlan},
    spec::lab::{Memory, Transfer},
};

impl Bench<'_> {
    pub(super) fn copy(&mut self, transfer: &Transfer, copies: &[CopyPlan]) -> Result<(), LabError> {
        for copy in copies {
            for bytes in &transfer.sizes {
                let row = self.measure(copy, *bytes, transfer.count);
                self.clear();
                let row = row?;
                if row.count > 0 {
                    (self.emit)(Event::Copy(row))?;
                }
                self.go_on()?;
            }
        }
        Ok(())
    }

    /// Measures one size of one copy; a signal ends it early.
    fn measure(&mut self, copy: &CopyPlan, bytes: u64, times: u64) -> Result<CopyRow, LabError> {
        let len = (bytes / 4) as usize;
        let find =
            |id| self.devices.iter().position(|device| device.id() == id).ok_or(LabError::NoDevice(id));
        let [from, to] = [find(copy.from)?, find(copy.to)?];
        let host_reads = copy.memory.is_some() && copy.to == DeviceId::Cpu;
        let host_writes = copy.memory.is_some() && copy.from == DeviceId::Cpu;
        let device = if copy.from == DeviceId::Cpu { to } else { from };
        let mut host = copy.memory.map(|memory| self.devices[device].staging(memory, len)).transpose()?;
        let (source, target) = (BufferId(0), BufferId(1));
        self.devices[from].alloc(source, if host_writes { 0 } else { len }, 1.0)?;
        self.devices[to].alloc(target, if host_reads { 0 } else { len }, 0.0)?;
        // The first copy is not counted, because it touches memory for the first time.
        let mut samples: Vec<f64> = Vec::with_capacity(times as usize);
        self.devices[device].synchronize(Purpose::Tensor)?;
        for done in 0..=times {
            if self.stop.signal().is_some() {
                break;
            }
            let begun = Instant::now();
            match &mut host {
                Some(host) if host_writes => self.devices[to].write(Purpose::Tensor, target, host)?,
                Some(host) => self.devices[from].read(Purpose::Tensor, source, host)?,
                None if from == to => {
                    self.devices[to].copy(target, source)?;
                    self.devices[to].synchronize(Purpose::Tensor)?;
                }
                None => {
                    let [to, from] = two(self.devices, [to, from])?;
                    to.copy_from(target, from, source, len)?;
                }
            }
            if done > 0 {
                samples.push(begun.elapsed().as_secs_f64());
                self.counter.count()?;
            }
        }
        let (total_s, count) = (samples.iter().sum::<f64>(), samples.len() as u64);
        self.done += count;
        self.work += Duration::from_secs_f64(total_s);
        Ok(CopyRow {
            from: copy.from.to_string(),
            to: copy.to.to_string(),
            memory: copy.memory.map(Memory::name),
            bytes,
            count,
            mean_s: total_s / count.max(1) as f64,
            spread: Spread::new(samples),
        })
    }
}
