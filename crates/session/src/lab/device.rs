//! A device of the lab: its memory, and a ledger that counts every copy and every wait.

use std::{collections::BTreeMap, time::Instant};

use crate::{
    device::{DeviceError, HostMemory, Kind, Ledger, Moved, Purpose, backend::Backend, cpu::HostBackend},
    event::Transfer,
    op::{BufferId, Op},
    plan::DeviceId,
    spec::lab::Memory,
};

/// A device, with counts of what was copied between it and others.
pub struct Device {
    id: DeviceId,
    backend: Box<dyn Backend>,
    /// Keyed by the memory read and the memory written; a wait counts as device to host.
    ledgers: BTreeMap<[DeviceId; 2], Ledger>,
    /// Peak bytes of its blocks.
    peak_bytes: u64,
}

impl Device {
    pub fn open(id: DeviceId, threads: usize) -> Result<Self, DeviceError> {
        let backend: Box<dyn Backend> = match id {
            DeviceId::Cpu | DeviceId::Rank(_) | DeviceId::RankGpu { .. } => {
                Box::new(HostBackend::cpu(threads))
            }
            DeviceId::Virtual(i) => Box::new(HostBackend::virtual_gpu(i)),
            DeviceId::Gpu(ordinal) => gpu(ordinal)?,
        };
        Ok(Self { id, backend, ledgers: BTreeMap::new(), peak_bytes: 0 })
    }

    pub fn id(&self) -> DeviceId {
        self.id
    }

    pub fn peak_bytes(&self) -> u64 {
        self.peak_bytes
    }

    fn count(&mut self, kind: Kind, purpose: Purpose, route: [DeviceId; 2], moved: Moved, begun: Instant) {
        self.ledgers.entry(route).or_default().count(kind, purpose, moved, begun);
    }

    /// Makes a block of `len` elements, all equal to `value`.
    pub fn alloc(&mut self, block: BufferId, len: usize, value: f32) -> Result<(), DeviceError> {
        self.backend.alloc(block, len, value)?;
        self.peak_bytes = self.peak_bytes.max(self.backend.bytes());
        Ok(())
    }

    /// Frees all blocks.
    pub fn clear(&mut self) {
        self.backend.clear();
    }

    /// Host memory to copy from and to.
    pub fn staging(&mut self, memory: Memory, len: usize) -> Result<HostMemory, DeviceError> {
        self.backend.staging(memory, len)
    }

    /// Host to device, the whole block.
    pub fn write(&mut self, purpose: Purpose, to: BufferId, from: &[f32]) -> Result<(), DeviceError> {
        let begun = Instant::now();
        let moved = self.backend.write(to, from)?;
        self.count(Kind::HostToDevice, purpose, [DeviceId::Cpu, self.id], moved, begun);
        Ok(())
    }

    /// Copies the first elements of a block from device to host; waits until they are computed.
    pub fn read(&mut self, purpose: Purpose, from: BufferId, to: &mut [f32]) -> Result<(), DeviceError> {
        let begun = Instant::now();
        let moved = self.backend.read(from, to)?;
        self.count(Kind::DeviceToHost, purpose, [self.id, DeviceId::Cpu], moved, begun);
        Ok(())
    }

    /// Copies the first `len` elements of a block to the host and returns them.
    pub fn values(&mut self, purpose: Purpose, from: BufferId, len: usize) -> Result<Vec<f32>, DeviceError> {
        let mut values = vec![0.0; len];
        self.read(purpose, from, &mut values)?;
        Ok(values)
    }

    /// Counts a copy that was unnecessary and moved nothing.
    pub fn count_nothing(&mut self) {
        self.count(Kind::DeviceToDevice, Purpose::Tensor, [self.id; 2], Moved::Nothing, Instant::now());
    }

    /// Copies a block to another one of this device.
    pub fn copy(&mut self, to: BufferId, from: BufferId) -> Result<(), DeviceError> {
        let begun = Instant::now();
        let moved = self.backend.copy(to, from)?;
        self.count(Kind::DeviceToDevice, Purpose::Tensor, [self.id; 2], moved, begun);
        Ok(())
    }

    /// Copies a block of `len` elements from another device: directly between GPUs, otherwise from or to host
    /// memory.
    pub fn copy_from(
        &mut self,
        to: BufferId,
        source: &mut Self,
        from: BufferId,
        len: usize,
    ) -> Result<(), DeviceError> {
        let begun = Instant::now();
        match [self.id, source.id] {
            [_, DeviceId::Cpu] => {
                let mut values = vec![0.0; len];
                source.backend.read(from, &mut values)?;
                self.write(Purpose::Tensor, to, &values)
            }
            [DeviceId::Cpu, _] => {
                let values = source.values(Purpose::Tensor, from, len)?;
                self.backend.write(to, &values).map(drop)
            }
            _ => {
                let moved = self.backend.copy_from(to, &mut *source.backend, from)?;
                self.count(Kind::DeviceToDevice, Purpose::Tensor, [source.id, self.id], moved, begun);
                Ok(())
            }
        }
    }

    /// Runs an op on the blocks.
    pub fn run(&mut self, op: &Op) -> Result<(), DeviceError> {
        self.backend.run(op)
    }

    /// See [`Backend::prepare`].
    pub fn prepare(&mut self, op: &Op) -> Result<Option<usize>, DeviceError> {
        self.backend.prepare(op)
    }

    /// Waits until the device has finished all work, and counts the wait; does nothing on the CPU.
    pub fn synchronize(&mut self, purpose: Purpose) -> Result<(), DeviceError> {
        let begun = Instant::now();
        self.backend.synchronize()?;
        if self.id != DeviceId::Cpu {
            self.ledgers.entry([self.id, DeviceId::Cpu]).or_default().sync(purpose, begun.elapsed());
        }
        Ok(())
    }

    /// Waits for the work whose result is read next. The wait is not counted here but by that read.
    pub fn wait_before_read(&mut self, purpose: Purpose) -> Result<(), DeviceError> {
        let begun = Instant::now();
        self.backend.synchronize()?;
        if self.id != DeviceId::Cpu {
            let ledger = self.ledgers.entry([self.id, DeviceId::Cpu]).or_default();
            ledger.sync_before_read(purpose, begun.elapsed());
        }
        Ok(())
    }

    /// See [`Backend::mark`].
    pub fn mark(&mut self, number: usize) -> Result<(), DeviceError> {
        self.backend.mark(number)
    }

    /// See [`Backend::seconds_between`].
    pub fn seconds_between(&self, marks: [usize; 2]) -> Result<f64, DeviceError> {
        self.backend.seconds_between(marks)
    }

    /// Bytes copied between memories, not counting copies made only to show values.
    pub fn copied_bytes(&self) -> u64 {
        let lines = self.ledgers.values().flat_map(Ledger::lines);
        lines.filter(|line| line.0 != Kind::Sync && line.1 != Purpose::Log).map(|line| line.2.bytes).sum()
    }
}

/// Mutable references to two different devices of the list.
pub fn two(devices: &mut [Device], at: [usize; 2]) -> Result<[&mut Device; 2], DeviceError> {
    let lost = |_| DeviceError::Operand { device: "cpu".into(), what: "a copy without two devices".into() };
    devices.get_disjoint_mut(at).map_err(lost)
}

/// All lines of `transfers.csv`, by kind and purpose, then by route.
pub fn transfers(devices: &[Device]) -> Vec<Transfer> {
    let mut lines: Vec<_> = devices
        .iter()
        .flat_map(|device| &device.ledgers)
        .flat_map(|(route, ledger)| {
            ledger.lines().map(move |(kind, purpose, line)| (kind, purpose, route, line))
        })
        .collect();
    lines.sort_by_key(|(kind, purpose, route, _)| (*kind, *purpose, *route));
    let transfer = |(kind, purpose, [from, to], line): (_, _, &[DeviceId; 2], _)| {
        Transfer::new(kind, purpose, from.to_string(), to.to_string(), line)
    };
    lines.into_iter().map(transfer).collect()
}

fn gpu(ordinal: u32) -> Result<Box<dyn Backend>, DeviceError> {
    use crate::cuda;

    Ok(Box::new(cuda::CudaBackend::open(cuda::gpu(ordinal)?)?))
}
