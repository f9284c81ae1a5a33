//! The devices that hold tensors, and the traffic between them.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use super::TensorError;
use crate::device::{
    DeviceError, Kind, Moved, Purpose, Traffic,
    backend::{Backend, Handle, Staging},
};
use crate::spec::lab::Memory;

/// The host's name in the traffic.
const HOST: &str = "cpu";

/// A device's memory and its operations. Clones share the device.
#[derive(Clone)]
pub struct Device {
    shared: Arc<Shared>,
}

struct Shared {
    name: String,
    is_host: bool,
    place: Mutex<Box<dyn Backend>>,
    traffic: Arc<Mutex<Traffic>>,
    peak_bytes: AtomicU64,
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shared.name)
    }
}

impl PartialEq for Device {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

impl Device {
    fn new(place: Box<dyn Backend>, traffic: &Arc<Mutex<Traffic>>) -> Self {
        let shared = Shared {
            name: place.name().to_owned(),
            is_host: place.is_host(),
            place: Mutex::new(place),
            traffic: Arc::clone(traffic),
            peak_bytes: AtomicU64::new(0),
        };
        Self { shared: Arc::new(shared) }
    }

    /// `cpu`, `gpu:1`, `virtual:0`.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Whether its memory is host memory.
    pub fn is_host(&self) -> bool {
        self.shared.is_host
    }

    /// Peak bytes of its tensors.
    pub fn peak_bytes(&self) -> u64 {
        self.shared.peak_bytes.load(Ordering::Relaxed)
    }

    /// Waits until the device has finished all work, and counts the wait; no wait on the CPU.
    pub fn synchronize(&self, purpose: Purpose) -> Result<(), TensorError> {
        let begun = Instant::now();
        self.place().synchronize()?;
        if !self.is_host() {
            self.traffic().wait(purpose, self.name(), HOST, begun.elapsed());
        }
        Ok(())
    }

    /// Allocates host memory of a kind to copy from and to.
    pub fn staging(&self, memory: Memory, len: usize) -> Result<Box<dyn Staging>, TensorError> {
        Ok(self.place().staging(memory, len)?)
    }

    /// The backend itself, for what has no door of its own here.
    pub(super) fn place(&self) -> MutexGuard<'_, Box<dyn Backend>> {
        // A panicked thread has left every block intact: operations put blocks back before anything else.
        self.shared.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn traffic(&self) -> MutexGuard<'_, Traffic> {
        self.shared.traffic.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn alloc(&self, len: usize) -> Result<Handle, DeviceError> {
        let mut place = self.place();
        let handle = place.alloc(len)?;
        self.shared.peak_bytes.fetch_max(place.bytes(), Ordering::Relaxed);
        Ok(handle)
    }

    pub(super) fn write(&self, purpose: Purpose, to: Handle, from: &[f32]) -> Result<(), DeviceError> {
        let begun = Instant::now();
        let moved = self.place().write(to, from)?;
        self.traffic().count(Kind::HostToDevice, purpose, [HOST, self.name()], moved, begun);
        Ok(())
    }

    pub(super) fn read(
        &self,
        purpose: Purpose,
        from: Handle,
        first: usize,
        to: &mut [f32],
    ) -> Result<(), DeviceError> {
        let begun = Instant::now();
        let moved = self.place().read(from, first, to)?;
        self.traffic().count(Kind::DeviceToHost, purpose, [self.name(), HOST], moved, begun);
        Ok(())
    }

    /// Counts a copy that was not needed.
    pub(super) fn count_nothing(&self, purpose: Purpose) {
        let route = [self.name(), self.name()];
        self.traffic().count(Kind::DeviceToDevice, purpose, route, Moved::Nothing, Instant::now());
    }

    /// Copies a block of `source` to one of this device: directly if the devices have peer access, else through the host.
    pub(super) fn copy_from(
        &self,
        purpose: Purpose,
        to: Handle,
        source: &Self,
        from: Handle,
    ) -> Result<(), DeviceError> {
        let begun = Instant::now();
        let route = [source.name(), self.name()];
        if self == source {
            let moved = self.place().copy(to, from)?;
            self.traffic().count(Kind::DeviceToDevice, purpose, route, moved, begun);
            return Ok(());
        }
        // Two threads that copy in opposite directions must not wait for each other.
        let (mut own, mut other) = if Arc::as_ptr(&self.shared) < Arc::as_ptr(&source.shared) {
            let own = self.place();
            (own, source.place())
        } else {
            let other = source.place();
            (self.place(), other)
        };
        let (kind, moved) = if let Some(values) = other.host_values(from)? {
            (Kind::HostToDevice, own.write(to, values)?)
        } else if let Some(values) = own.host_values_mut(to)? {
            (Kind::DeviceToHost, other.read(from, 0, values)?)
        } else if let Some(moved) = own.copy_from(to, &mut **other, from)? {
            (Kind::DeviceToDevice, moved)
        } else {
            let mut values = vec![0.0; from.len];
            let moved = other.read(from, 0, &mut values)?;
            self.traffic().count(Kind::DeviceToHost, purpose, [source.name(), HOST], moved, begun);
            let begun = Instant::now();
            let moved = own.write(to, &values)?;
            self.traffic().count(Kind::HostToDevice, purpose, [HOST, self.name()], moved, begun);
            return Ok(());
        };
        self.traffic().count(kind, purpose, route, moved, begun);
        Ok(())
    }
}

/// Devices that may be used together; they share one count of traffic.
#[derive(Debug)]
pub struct Devices {
    list: Vec<Device>,
    traffic: Arc<Mutex<Traffic>>,
}

impl Devices {
    pub fn new(places: Vec<Box<dyn Backend>>) -> Self {
        let traffic = Arc::default();
        let list = places.into_iter().map(|place| Device::new(place, &traffic)).collect();
        Self { list, traffic }
    }

    /// The CPU as `cpu` and `count` virtual GPUs as `virtual:0`, `virtual:1`, ...
    #[cfg(test)]
    pub fn with_virtual_gpus(count: u32) -> Self {
        use crate::device::cpu::HostBackend;

        let mut places: Vec<Box<dyn Backend>> = vec![Box::new(HostBackend::cpu(1))];
        places.extend((0..count).map(|i| Box::new(HostBackend::virtual_gpu(i)) as Box<dyn Backend>));
        Self::new(places)
    }

    pub fn get(&self, name: &str) -> Result<&Device, TensorError> {
        self.list.iter().find(|device| device.name() == name).ok_or_else(|| {
            let there: Vec<_> = self.list.iter().map(|device| format!("`{}`", device.name())).collect();
            TensorError::NoDevice { name: name.to_owned(), there: there.join(", ") }
        })
    }

    pub fn iter(&self) -> impl Iterator<Item = &Device> {
        self.list.iter()
    }

    /// All copies and waits so far.
    pub fn traffic(&self) -> Traffic {
        self.traffic.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
