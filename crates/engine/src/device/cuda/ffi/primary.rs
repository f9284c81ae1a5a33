//! A GPU's primary context, one for all trials of this process, and what ended trials leave in it for the next: memory,
//! streams, events, kernels, rows. Each of these takes the driver up to milliseconds, and to free memory waits for the
//! whole GPU.
//!
//! Nothing is taken over from a context in which a call has failed: the next trial begins with a new one.

use std::{
    collections::BTreeMap,
    ffi::c_void,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use cudarc::driver::sys::{CUcontext, CUevent, CUstream};

use super::{
    compiler::Compiler,
    driver::{Driver, OUT_OF_MEMORY, Status},
    gpu::{Gpu, gpu},
    libraries::products_library,
};
use crate::{
    device::cuda::{
        launch::{Modules, wait::within},
        memory::ResidentRows,
    },
    plan::DeviceId,
};

/// Larger blocks are freed at a trial's end: other processes may want the memory, and allocation is a small part of a
/// large trial's time.
const MOST_BYTES: usize = 64 << 20;

/// The most bytes that are left in all, of device memory and of pinned memory each.
const MOST_LEFT: usize = 1 << 30;

/// A block serves a request if it is at most this many times as large, or small.
const MOST_WASTE: usize = 2;
const SMALL: usize = 64 << 10;

/// How long a trial waits for others to let go of a context in which a call has failed.
const GRACE: Duration = Duration::from_secs(2);

/// The contexts that trials or sessions hold, and those that are being released, with the UUIDs of their GPUs.
static OPEN: Mutex<Vec<(String, Weak<Primary>)>> = Mutex::new(Vec::new());

fn open() -> MutexGuard<'static, Vec<(String, Weak<Primary>)>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The GPUs that a session has used: it keeps their contexts, which take the driver a tenth of a second, until it ends.
#[derive(Default)]
pub struct KeptGpus {
    kept: Vec<Arc<Primary>>,
    /// The context of a GPU that is surely needed, which a thread opens meanwhile.
    coming: Option<JoinHandle<Option<Arc<Primary>>>>,
    /// Threads that open libraries; waited for before the process ends, which no thread may do inside a library.
    libraries: BTreeMap<&'static str, JoinHandle<()>>,
}

impl KeptGpus {
    /// Begins to open the context of a GPU, and the compiler, which names itself in the keys of compiled kernels.
    pub fn begin(&mut self, ordinal: u32) {
        let Some((driver, gpu)) = Driver::get().ok().zip(gpu(ordinal).ok()) else { return };
        let architecture = gpu.architecture();
        self.open("nvrtc", move || drop(Compiler::open(driver.version / 1000, architecture)));
        self.coming = begin("context", move || Primary::open(driver, &gpu).ok());
    }

    /// Begins to open the library of large products, which takes as long as many short runs.
    pub fn begin_products(&mut self) {
        self.open("cublaslt", || drop(products_library()));
    }

    fn open(&mut self, library: &'static str, open: impl FnOnce() + Send + 'static) {
        if !self.libraries.contains_key(library) {
            self.libraries.extend(begin(library, open).map(|thread| (library, thread)));
        }
    }

    /// Keeps the contexts of the GPUs among these devices for the trials that follow. One in which a call has failed is
    /// released first, so that the driver may begin anew.
    pub fn keep(&mut self, devices: &[DeviceId]) {
        self.kept.extend(self.coming.take().and_then(|coming| coming.join().ok().flatten()));
        self.kept.retain(|own| !own.has_failed());
        for ordinal in devices.iter().filter_map(|device| device.own_gpu()) {
            let Some((driver, gpu)) = Driver::get().ok().zip(gpu(ordinal).ok()) else { continue };
            if !self.kept.iter().any(|own| own.uuid == gpu.uuid) && !is_given_up(&gpu.uuid) {
                // A trial that loads the GPU meets the same error, and reports it.
                self.kept.extend(Primary::open(driver, &gpu));
            }
        }
    }
}

impl Drop for KeptGpus {
    fn drop(&mut self) {
        for thread in std::mem::take(&mut self.libraries).into_values() {
            let _ = thread.join(); // a panic there has been printed
        }
        self.kept.extend(self.coming.take().and_then(|coming| coming.join().ok().flatten()));
        self.kept.iter().for_each(|own| own.stays.store(true, Ordering::Release));
    }
}

/// Without a thread the trial itself opens what it needs, and reports why that cannot be opened.
fn begin<T: Send + 'static>(name: &str, open: impl FnOnce() -> T + Send + 'static) -> Option<JoinHandle<T>> {
    thread::Builder::new().name(name.to_owned()).spawn(open).ok()
}

/// Memory as the driver allocated it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocated {
    pub at: u64,
    pub bytes: usize,
}

/// What has been left, with nothing queued that uses it.
#[derive(Default)]
struct Left {
    device: Vec<Allocated>,
    pinned: Vec<Allocated>,
    streams: Vec<CUstream>,
    /// With and without times.
    events: [Vec<CUevent>; 2],
}

// SAFETY: the handles are tokens that the driver accepts from any thread.
unsafe impl Send for Left {}

/// UUIDs of GPUs that this process has given up because work queued there never ends.
static GIVEN_UP: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Whether this process has given up the GPU with this UUID, which may have a prefix such as `GPU-`.
pub fn is_given_up(uuid: &str) -> bool {
    GIVEN_UP.lock().unwrap_or_else(PoisonError::into_inner).iter().any(|own| uuid.ends_with(own.as_str()))
}

/// Released when the last trial or session that holds it is dropped.
pub struct Primary {
    pub driver: &'static Driver,
    pub modules: Modules,
    pub rows: Mutex<ResidentRows>,
    uuid: String,
    device: i32,
    handle: CUcontext,
    left: Mutex<Left>,
    /// The GPU hangs, so calls that free its memory would never return.
    given_up: AtomicBool,
    failed: AtomicBool,
    /// The session that kept it has ended, and with it soon the process: the driver then releases it sooner than if asked to.
    stays: AtomicBool,
}

// SAFETY: the handle is a token that the driver accepts from any thread.
unsafe impl Send for Primary {}
// SAFETY: as above; what changes is locked or atomic.
unsafe impl Sync for Primary {}

impl Primary {
    /// The context that this process has of the GPU, or a new one.
    pub fn open(driver: &'static Driver, gpu: &Gpu) -> Result<Arc<Self>, Status> {
        let is_its = |(uuid, _): &&(String, Weak<Self>)| *uuid == gpu.uuid;
        // Dropped after the list is unlocked: the last to drop a context locks it.
        let mut all: Vec<Arc<Self>>;
        // The driver begins anew once nobody has a context in which a call has failed. Where that call did no harm, the others
        // may go on with it for long.
        within(GRACE, || {
            let own: Vec<_> = open().iter().filter(is_its).map(|(_, own)| own.clone()).collect();
            own.is_empty() || own.iter().filter_map(Weak::upgrade).any(|own| !own.has_failed())
        });
        let mut open = open();
        all = open.iter().filter(is_its).filter_map(|(_, own)| own.upgrade()).collect();
        if let Some(sound) = all.iter().position(|own| !own.has_failed()) {
            return Ok(all.swap_remove(sound));
        }
        let (mut device, mut handle) = (0, std::ptr::null_mut());
        // SAFETY: the pointers are to live locals, here and below.
        driver.check(unsafe { (driver.cuDeviceGet)(&raw mut device, gpu.ordinal as i32) })?;
        // SAFETY: see above.
        driver.check(unsafe { (driver.cuDevicePrimaryCtxRetain)(&raw mut handle, device) })?;
        let own = Arc::new(Self {
            driver,
            modules: Modules::default(),
            rows: Mutex::default(),
            uuid: gpu.uuid.clone(),
            device,
            handle,
            left: Mutex::default(),
            given_up: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            stays: AtomicBool::new(false),
        });
        open.push((gpu.uuid.clone(), Arc::downgrade(&own)));
        Ok(own)
    }

    pub fn handle(&self) -> CUcontext {
        self.handle
    }

    /// Makes it the calling thread's current context; returns the driver's status.
    pub fn enter(&self) -> i32 {
        // SAFETY: the handle is alive until `self` is dropped.
        unsafe { (self.driver.cuCtxSetCurrent)(self.handle) }
    }

    /// Notes that a call failed. After some failures all later calls fail too, so nothing is taken over.
    pub fn note(&self, status: i32) {
        if status != OUT_OF_MEMORY {
            self.failed.store(true, Ordering::Release);
        }
    }

    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire) || self.is_given_up()
    }

    /// Gives the GPU up: nothing is freed any more, and no later trial may use it.
    pub fn give_up(&self) {
        if !self.given_up.swap(true, Ordering::AcqRel) {
            GIVEN_UP.lock().unwrap_or_else(PoisonError::into_inner).push(self.uuid.clone());
        }
    }

    pub fn is_given_up(&self) -> bool {
        self.given_up.load(Ordering::Acquire)
    }

    fn left(&self) -> MutexGuard<'_, Left> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Device memory of at least this size, if some is left.
    pub fn take_device(&self, bytes: usize) -> Option<Allocated> {
        take(&mut self.left().device, bytes)
    }

    /// Whether [`Self::take_device`] has this much.
    pub fn has_device(&self, bytes: usize) -> bool {
        find(&self.left().device, bytes).is_some()
    }

    /// The same for pinned memory of the host.
    pub fn take_pinned(&self, bytes: usize) -> Option<Allocated> {
        take(&mut self.left().pinned, bytes)
    }

    pub fn take_stream(&self) -> Option<CUstream> {
        self.left().streams.pop()
    }

    pub fn take_event(&self, is_timed: bool) -> Option<CUevent> {
        self.left().events[usize::from(is_timed)].pop()
    }

    /// Leaves device memory for the next trial; false if it is to be freed.
    pub fn leave_device(&self, memory: Allocated) -> bool {
        !self.has_failed() && leave(&mut self.left().device, memory)
    }

    pub fn leave_pinned(&self, memory: Allocated) -> bool {
        !self.has_failed() && leave(&mut self.left().pinned, memory)
    }

    pub fn leave_stream(&self, stream: CUstream) -> bool {
        let is_left = !self.has_failed();
        if is_left {
            self.left().streams.push(stream);
        }
        is_left
    }

    pub fn leave_event(&self, event: CUevent, is_timed: bool) -> bool {
        let is_left = !self.has_failed();
        if is_left {
            self.left().events[usize::from(is_timed)].push(event);
        }
        is_left
    }

    /// Frees device memory; the context must be current.
    pub fn free(&self, at: u64) {
        // SAFETY: allocated in this context, freed once; the driver itself waits for work that uses it.
        unsafe { (self.driver.cuMemFree_v2)(at) };
    }

    /// Frees pinned memory; the context must be current.
    pub fn free_pinned(&self, at: u64) {
        // SAFETY: allocated in this context, freed once.
        unsafe { (self.driver.cuMemFreeHost)(at as *mut c_void) };
    }

    pub fn destroy_stream(&self, stream: CUstream) {
        // SAFETY: made in this context, destroyed once; queued work still completes.
        unsafe { (self.driver.cuStreamDestroy_v2)(stream) };
    }

    pub fn destroy_event(&self, event: CUevent) {
        // SAFETY: made in this context, destroyed once.
        unsafe { (self.driver.cuEventDestroy_v2)(event) };
    }

    /// Frees the device memory that no trial uses, since another allocation needs it; the context must be current. Returns
    /// whether there was any.
    pub fn free_unused(&self) -> bool {
        // A trial that binds rows has the lock, and has freed those that nobody uses.
        let rows = self.rows.try_lock().is_ok_and(|mut rows| rows.free_unused(self));
        let device = std::mem::take(&mut self.left().device);
        device.iter().for_each(|memory| self.free(memory.at));
        rows || !device.is_empty()
    }

    /// The same for pinned memory.
    pub fn free_unused_pinned(&self) -> bool {
        let pinned = std::mem::take(&mut self.left().pinned);
        pinned.iter().for_each(|memory| self.free_pinned(memory.at));
        !pinned.is_empty()
    }

    /// Frees all that is left; the context must be current.
    fn free_all(&self) {
        self.free_unused();
        self.free_unused_pinned();
        let Left { streams, events, .. } = std::mem::take(&mut *self.left());
        events.into_iter().flatten().for_each(|event| self.destroy_event(event));
        streams.into_iter().for_each(|stream| self.destroy_stream(stream));
        self.modules.unload(self.driver);
    }
}

/// The smallest of the blocks that are large enough and not too large.
fn find(among: &[Allocated], bytes: usize) -> Option<usize> {
    let most = bytes.saturating_mul(MOST_WASTE).max(SMALL);
    let fits = |(_, own): &(usize, &Allocated)| (bytes..=most).contains(&own.bytes);
    among.iter().enumerate().filter(fits).min_by_key(|(_, own)| own.bytes).map(|(at, _)| at)
}

fn take(from: &mut Vec<Allocated>, bytes: usize) -> Option<Allocated> {
    find(from, bytes).map(|at| from.swap_remove(at))
}

impl Drop for Primary {
    fn drop(&mut self) {
        if !self.is_given_up() {
            // The thread may work with another GPU.
            let mut current = std::ptr::null_mut();
            // SAFETY: the pointer is to a live local.
            unsafe { (self.driver.cuCtxGetCurrent)(&raw mut current) };
            if self.enter() == 0 {
                self.free_all();
            }
            if !self.stays.load(Ordering::Acquire) || self.has_failed() {
                // SAFETY: `open` retained it once. An error could not be handled.
                unsafe { (self.driver.cuDevicePrimaryCtxRelease_v2)(self.device) };
            }
            let other = if current == self.handle { std::ptr::null_mut() } else { current };
            // SAFETY: null, or what the thread had.
            unsafe { (self.driver.cuCtxSetCurrent)(other) };
        }
        open().retain(|(_, own)| !std::ptr::eq(own.as_ptr(), self));
    }
}

/// Leaves a block for the next trial, unless it or all that is left is too large.
fn leave(left: &mut Vec<Allocated>, memory: Allocated) -> bool {
    let all: usize = left.iter().map(|block| block.bytes).sum();
    let is_left = memory.bytes <= MOST_BYTES && all + memory.bytes <= MOST_LEFT;
    if is_left {
        left.push(memory);
    }
    is_left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_block_that_is_not_too_large_is_taken() {
        let sizes = [100, 1 << 20, 70 << 10, 300 << 10];
        let mut blocks: Vec<Allocated> = sizes.map(|bytes| Allocated { at: bytes as u64, bytes }).to_vec();
        let mut taken = |bytes| take(&mut blocks, bytes).map(|own| own.bytes);
        assert_eq!(taken(101), None, "small blocks serve anything that is smaller");
        assert_eq!(taken(200 << 10), Some(300 << 10));
        assert_eq!(taken(200 << 10), None, "1 MiB is more than twice as much");
        assert_eq!([taken(90), taken(60 << 10), taken(1 << 20)], [Some(100), Some(70 << 10), Some(1 << 20)]);
    }
}
