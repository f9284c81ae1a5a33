//! A device of the lab: its memory behind a ledger that counts every copy and every wait.

use std::{collections::BTreeMap, time::Instant};

use crate::{
    device::{
        DeviceError, Kind, Ledger, Moved, Purpose,
        backend::{Backend, Handle, Staging},
        cpu::HostBackend,
    },
    event::Transfer,
    op::Op,
    plan::DeviceId,
    spec::lab::Memory,
};

/// The host's name in the ledgers.
const HOST: &str = "cpu";

/// A device with what has crossed between it and others.
pub struct Device {
    id: DeviceId,
    backend: Box<dyn Backend>,
    /// By the names of the memory that is read and the one that is written; a wait goes from the device to the host.
    ledgers: BTreeMap<[String; 2], Ledger>,
    /// Peak bytes of its blocks.
    peak_bytes: u64,
}

impl Device {
    /// # Errors
    /// The device cannot be used.
    pub fn open(id: DeviceId, threads: usize) -> Result<Self, DeviceError> {
        let backend: Box<dyn Backend> = match id {
            DeviceId::Cpu => Box::new(HostBackend::cpu(threads)),
            DeviceId::Virtual(i) => Box::new(HostBackend::virtual_gpu(i)),
            DeviceId::Gpu(ordinal) => gpu(ordinal)?,
        };
        Ok(Self { id, backend, ledgers: BTreeMap::new(), peak_bytes: 0 })
    }

    pub fn id(&self) -> DeviceId {
        self.id
    }

    pub fn name(&self) -> &str {
        self.backend.name()
    }

    pub fn peak_bytes(&self) -> u64 {
        self.peak_bytes
    }

    fn count(&mut self, kind: Kind, purpose: Purpose, route: [&str; 2], moved: Moved, begun: Instant) {
        self.ledgers.entry(route.map(str::to_owned)).or_default().count(kind, purpose, moved, begun);
    }

    /// A block of `len` numbers that all are `value`.
    pub fn alloc(&mut self, len: usize, value: f32) -> Result<Handle, DeviceError> {
        let handle = self.backend.alloc(len, value)?;
        self.peak_bytes = self.peak_bytes.max(self.backend.bytes());
        Ok(handle)
    }

    /// A block with these numbers.
    pub fn holding(&mut self, purpose: Purpose, values: &[f32]) -> Result<Handle, DeviceError> {
        let handle = self.alloc(values.len(), f32::NAN)?;
        self.write(purpose, handle, values)?;
        Ok(handle)
    }

    /// Frees all blocks.
    pub fn clear(&mut self) {
        self.backend.clear();
    }

    /// Host memory to copy from and to.
    pub fn staging(&mut self, memory: Memory, len: usize) -> Result<Staging, DeviceError> {
        self.backend.staging(memory, len)
    }

    /// Host to device, the whole block.
    pub fn write(&mut self, purpose: Purpose, to: Handle, from: &[f32]) -> Result<(), DeviceError> {
        let begun = Instant::now();
        let moved = self.backend.write(to, from)?;
        let name = self.name().to_owned();
        self.count(Kind::HostToDevice, purpose, [HOST, &name], moved, begun);
        Ok(())
    }

    /// Device to host, the block's first numbers; waits until they are computed.
    pub fn read(&mut self, purpose: Purpose, from: Handle, to: &mut [f32]) -> Result<(), DeviceError> {
        let begun = Instant::now();
        let moved = self.backend.read(from, to)?;
        let name = self.name().to_owned();
        self.count(Kind::DeviceToHost, purpose, [&name, HOST], moved, begun);
        Ok(())
    }

    /// A whole block on the host.
    pub fn values(&mut self, purpose: Purpose, from: Handle) -> Result<Vec<f32>, DeviceError> {
        let mut values = vec![0.0; from.len];
        self.read(purpose, from, &mut values)?;
        Ok(values)
    }

    /// Counts a copy that was not needed.
    pub fn count_nothing(&mut self) {
        let name = self.name().to_owned();
        self.count(Kind::DeviceToDevice, Purpose::Tensor, [&name, &name], Moved::Nothing, Instant::now());
    }

    /// Copies a block to another one of this device.
    pub fn copy(&mut self, to: Handle, from: Handle) -> Result<(), DeviceError> {
        let begun = Instant::now();
        let moved = self.backend.copy(to, from)?;
        let name = self.name().to_owned();
        self.count(Kind::DeviceToDevice, Purpose::Tensor, [&name, &name], moved, begun);
        Ok(())
    }

    /// Copies a block of another device: directly between GPUs, else from or to the host's memory.
    pub fn copy_from(&mut self, to: Handle, source: &mut Self, from: Handle) -> Result<(), DeviceError> {
        let begun = Instant::now();
        let host = [self.backend.is_host(), source.backend.is_host()];
        let mut values = vec![0.0; if host[0] || host[1] { from.len } else { 0 }];
        match host {
            [_, true] => {
                source.backend.read(from, &mut values)?;
                self.write(Purpose::Tensor, to, &values)
            }
            [true, _] => {
                source.read(Purpose::Tensor, from, &mut values)?;
                self.backend.write(to, &values).map(drop)
            }
            _ => {
                let moved = self.backend.copy_from(to, &mut *source.backend, from)?;
                let (from, to) = (source.name(), self.name().to_owned());
                self.count(Kind::DeviceToDevice, Purpose::Tensor, [from, &to], moved, begun);
                Ok(())
            }
        }
    }

    /// Runs an op whose buffers are these blocks, by number.
    pub fn run(&mut self, op: &Op, blocks: &[Handle]) -> Result<(), DeviceError> {
        self.backend.run(op, blocks)
    }

    /// Waits until the device has finished all work, and counts the wait; no wait on the CPU.
    pub fn synchronize(&mut self, purpose: Purpose) -> Result<(), DeviceError> {
        let begun = Instant::now();
        self.backend.synchronize()?;
        if !self.backend.is_host() {
            let route = [self.name().to_owned(), HOST.to_owned()];
            self.ledgers.entry(route).or_default().sync(purpose, begun.elapsed());
        }
        Ok(())
    }

    /// Bytes that were copied between memories, without those that were copied to be shown.
    pub fn copied_bytes(&self) -> u64 {
        let lines = self.ledgers.values().flat_map(Ledger::lines);
        lines.filter(|line| line.0 != Kind::Sync && line.1 != Purpose::Log).map(|line| line.2.bytes).sum()
    }
}

/// Two different devices of the list.
pub fn two(devices: &mut [Device], at: [usize; 2]) -> Result<[&mut Device; 2], DeviceError> {
    let lost =
        |_| DeviceError::Operand { device: HOST.to_owned(), what: "a copy without two devices".into() };
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
    let transfer = |(kind, purpose, [from, to], line): (_, _, &[String; 2], _)| {
        Transfer::new(kind, purpose, from.clone(), to.clone(), line)
    };
    lines.into_iter().map(transfer).collect()
}

#[cfg(feature = "cuda")]
fn gpu(ordinal: u32) -> Result<Box<dyn Backend>, DeviceError> {
    use crate::device::cuda;

    let unusable = |why| DeviceError::Unusable { device: format!("gpu:{ordinal}"), why };
    let found = cuda::gpus().map_err(unusable)?.into_iter().find(|gpu| gpu.ordinal == ordinal);
    let gpu = found.ok_or_else(|| unusable("it is no longer there".into()))?;
    Ok(Box::new(cuda::CudaBackend::open(gpu)?))
}

#[cfg(not(feature = "cuda"))]
fn gpu(ordinal: u32) -> Result<Box<dyn Backend>, DeviceError> {
    let why = "this program was built without its feature `cuda`".into();
    Err(DeviceError::Unusable { device: format!("gpu:{ordinal}"), why })
}
