//! One GPU's NCCL communicator: queues sums, and ends waits for other GPUs.

use std::{
    ffi::c_void,
    ptr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crate::{
    collective::{Abort, CollectiveError, ProcessGroup},
    device::DeviceError,
    ffi::{
        Context, Gpu,
        nccl::{Config, FLOAT32, Handle, IN_PROGRESS, Id, Nccl, SUM, words},
    },
    launch::{Stream, wait},
};

const CUDA_FAILED: i32 = 1;

/// How much later than its limit a silence is noticed, at most.
const NOTICED: Duration = Duration::from_millis(500);

/// How long GPUs of several processes may take to connect, as long as all of these give signs of life.
const CONNECTING: Duration = Duration::from_secs(120);

/// Shared by the rank and the abort.
struct Shared {
    nccl: Arc<Nccl>,
    /// Keeps the GPU's context alive while the library uses it.
    context: Arc<Context>,
    /// `None` once the communicator was ended.
    handle: Mutex<Option<Owned>>,
    limit: Duration,
    /// The other processes, if each has one of the GPUs: they know who is gone, which NCCL does not tell.
    world: Option<Arc<ProcessGroup>>,
    /// Set before the handle is taken: waits for the handle then end.
    gone: AtomicBool,
    over: AtomicBool,
}

#[derive(Clone, Copy)]
struct Owned(Handle);

// SAFETY: NCCL accepts a handle from any thread; the lock around it makes calls mutually exclusive.
unsafe impl Send for Owned {}

impl Shared {
    fn new(nccl: &Arc<Nccl>, context: Arc<Context>, handle: Handle, limit: Duration) -> Self {
        let (nccl, handle) = (Arc::clone(nccl), Mutex::new(Some(Owned(handle))));
        let (gone, over) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { nccl, context, handle, limit, world: None, gone, over }
    }

    /// Why waits for other processes end.
    fn verdict(&self) -> Option<CollectiveError> {
        self.world.as_ref()?.verdict()
    }

    /// Ends all waits. `ncclCommAbort` blocks until no captured graph contains a sum, and owners drop their
    /// graphs only when their waits end. So it runs on a thread of its own.
    pub fn abort(self: &Arc<Self>) {
        if !self.gone.swap(true, Ordering::AcqRel) {
            let shared = Arc::clone(self);
            // If no thread can be started, the communicator remains until the process ends.
            let _ = thread::Builder::new().name("nccl-abort".into()).spawn(move || {
                if let Some(Owned(handle)) = shared.taken() {
                    // SAFETY: the handle is alive and taken only once. An error could not be handled any more.
                    unsafe { (shared.nccl.functions.ncclCommAbort)(handle) };
                }
                shared.over.store(true, Ordering::Release);
            });
        }
    }

    fn taken(&self) -> Option<Owned> {
        self.handle.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let alive = !self.gone.load(Ordering::Acquire) && !self.context.is_given_up();
        // To end it in order takes all ranks. After a loss the end of the process ends it.
        let alive = alive && self.verdict().is_none();
        let Some(Owned(handle)) = self.taken().filter(|_| alive) else { return };
        let f = &self.nccl.functions;
        let mut status = 0;
        // SAFETY: the handle is alive and taken only once; the pointer is to a live local. The same holds below.
        let asked = || match unsafe { (f.ncclCommGetAsyncError)(handle, &raw mut status) } {
            0 => status != IN_PROGRESS,
            _ => true,
        };
        // SAFETY: see above.
        let begun = matches!(unsafe { (f.ncclCommFinalize)(handle) }, 0 | IN_PROGRESS);
        let ended = begun && wait::soon(asked);
        if ended && status == 0 {
            // SAFETY: see above.
            unsafe { (f.ncclCommDestroy)(handle) };
        } else {
            // SAFETY: see above.
            unsafe { (f.ncclCommAbort)(handle) };
        }
    }
}

#[derive(Debug)]
pub enum Lost {
    /// The sums were ended because another GPU failed; that GPU reports the cause.
    Ended,
    /// The process of another GPU is gone.
    Gone(CollectiveError),
    Why(String),
}

impl Lost {
    /// As the error of this GPU, after the step that it was given last.
    pub fn into_error(self, device: String, step: u64, doing: String) -> DeviceError {
        let source = match self {
            Self::Ended => CollectiveError::Poisoned,
            Self::Gone(verdict) => verdict,
            Self::Why(why) => return DeviceError::Broken { device, doing, why },
        };
        DeviceError::Collective { device, step, source }
    }
}

impl From<CollectiveError> for Lost {
    fn from(verdict: CollectiveError) -> Self {
        if verdict == CollectiveError::Poisoned { Self::Ended } else { Self::Gone(verdict) }
    }
}

pub struct Communicator(Arc<Shared>);

impl Communicator {
    /// Queues the sum over all GPUs of `elements` at `at` in this GPU's memory, in place. Every GPU must
    /// queue the same sums in the same order.
    ///
    /// # Errors
    /// The error that NCCL reports.
    pub fn all_reduce(&self, stream: &Stream, at: u64, elements: usize) -> Result<(), Lost> {
        let held = self.0.handle.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(Owned(handle)) = held.filter(|_| !self.0.gone.load(Ordering::Acquire)) else {
            return Err(self.cause());
        };
        let nccl = &self.0.nccl;
        let memory = at as *mut c_void;
        // SAFETY: the caller owns the elements there, and the stream is alive.
        let status = unsafe {
            (nccl.functions.ncclAllReduce)(
                memory,
                memory,
                elements,
                FLOAT32,
                SUM,
                handle,
                stream.handle().cast(),
            )
        };
        drop(held);
        match status {
            // The next launch must follow the sum, which is in the stream only once the library says so.
            0 | IN_PROGRESS => self.settle(self.0.limit),
            _ if self.ended() => Err(self.cause()),
            status => Err(self.failed(format!("NCCL cannot sum over the GPUs: {}", words(status)))),
        }
    }

    /// Why its sums were ended.
    pub fn cause(&self) -> Lost {
        self.0.verdict().map_or(Lost::Ended, Lost::from)
    }

    /// What is behind an error of NCCL. Its own words name no rank; where a process is gone, signs of life soon do.
    fn failed(&self, why: String) -> Lost {
        if let Some(world) = &self.0.world {
            wait::within(world.limit() + NOTICED, || world.verdict().is_some());
        }
        self.0.verdict().map_or(Lost::Why(why), |verdict| {
            self.abort();
            verdict.into()
        })
    }

    /// Waits until the library has finished a call in the background.
    fn settle(&self, limit: Duration) -> Result<(), Lost> {
        let begun = Instant::now();
        while self.look(begun.elapsed(), limit)? {
            wait::turn(begun.elapsed());
        }
        Ok(())
    }

    /// Whether a call is still running in the background. If a GPU does not arrive, the device or the library
    /// would wait for it forever, so all waits are ended after the limit.
    pub fn under_way(&self, waited: Duration) -> Result<bool, Lost> {
        self.look(waited, self.0.limit)
    }

    fn look(&self, waited: Duration, limit: Duration) -> Result<bool, Lost> {
        self.0.context.heartbeat.beat();
        if let Some(verdict) = self.0.verdict() {
            self.abort();
            return Err(verdict.into());
        }
        let held = self.0.handle.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(Owned(handle)) = held.filter(|_| !self.0.gone.load(Ordering::Acquire)) else {
            return Err(Lost::Ended);
        };
        let mut status = 0;
        // SAFETY: alive; the pointer is to a live local.
        let asked = unsafe { (self.0.nccl.functions.ncclCommGetAsyncError)(handle, &raw mut status) };
        drop(held);
        let status = if asked == 0 { status } else { asked };
        if status != 0 && status != IN_PROGRESS {
            return Err(self.failed(format!("NCCL: {}", words(status))));
        }
        if waited <= limit {
            return Ok(status == IN_PROGRESS);
        }
        self.abort();
        Err(Lost::Why(format!("the other GPUs did not come to the sum within {limit:?}")))
    }

    pub(crate) fn limit(&self) -> Duration {
        self.0.limit
    }

    /// How long its end is waited for after its sums were ended. Where a process is gone, the library may wait for the network.
    pub fn grace(&self) -> Duration {
        if self.0.verdict().is_some() { wait::GRACE } else { self.0.limit }
    }

    /// Whether its sums were ended, by itself or because another GPU failed.
    pub fn ended(&self) -> bool {
        self.0.gone.load(Ordering::Acquire)
    }

    /// Whether the library has ended the communicator, so that the memory it used may be freed.
    pub fn is_over(&self) -> bool {
        self.0.over.load(Ordering::Acquire)
    }

    /// Ends this GPU's waits for the others.
    pub fn abort(&self) {
        self.0.abort();
    }
}

/// GPUs with their new handles, and NCCL's status.
type Begun = (Vec<(Arc<Context>, Handle)>, i32);

impl Nccl {
    /// A communicator for each of these GPUs, in order, and an [`Abort`] that ends all their waits. Each
    /// waits for the others at most `limit`, and so does this function until they are connected.
    ///
    /// # Errors
    /// The error that NCCL reports.
    pub fn communicators(self, gpus: &[Gpu], limit: Duration) -> Result<(Vec<Communicator>, Abort), String> {
        let nccl = Arc::new(self);
        let contexts = gpus.iter().map(|gpu| Context::open(gpu.clone())).collect::<Result<Vec<_>, _>>();
        let id = nccl.unique_id()?;
        let (handles, said) = nccl.begin(&contexts.map_err(|e| e.to_string())?, &id, (0, gpus.len()))?;
        let made = handles.into_iter().map(|(context, handle)| Shared::new(&nccl, context, handle, limit));
        let shared: Vec<Arc<Shared>> = made.map(Arc::new).collect();
        let all = shared.clone();
        let abort = Abort::new(move || all.iter().for_each(|shared| shared.abort()));
        let ranks: Vec<Communicator> = shared.into_iter().map(Communicator).collect();
        let why = |lost| match lost {
            Lost::Ended => "it was ended".to_owned(),
            Lost::Gone(verdict) => verdict.to_string(),
            Lost::Why(why) => why,
        };
        let ready = match said {
            0 | IN_PROGRESS => ranks.iter().try_for_each(|rank| rank.settle(limit).map_err(why)),
            status => Err(words(status)),
        };
        match ready {
            Ok(()) => Ok((ranks, abort)),
            Err(why) => {
                abort.now();
                Err(format!("NCCL cannot connect the GPUs: {why}"))
            }
        }
    }

    /// What GPUs find each other by: the address of a thread that this call starts, or the one that `NCCL_COMM_ID` names.
    ///
    /// # Errors
    /// What NCCL says.
    pub fn unique_id(&self) -> Result<Id, String> {
        let mut id = Id([0; 128]);
        // SAFETY: the pointer is to a live local.
        match unsafe { (self.functions.ncclGetUniqueId)(&raw mut id) } {
            0 => Ok(id),
            status => Err(format!("NCCL cannot connect the GPUs: {}", words(status))),
        }
    }

    /// The communicator of this process's GPU with those of all other processes of `world`, which call this, too. Each sum
    /// waits for the others at most `limit`.
    ///
    /// # Errors
    /// What NCCL says, or who is gone.
    pub fn communicator(
        self,
        gpu: Gpu,
        id: &Id,
        world: &Arc<ProcessGroup>,
        limit: Duration,
    ) -> Result<Communicator, DeviceError> {
        let name = world.name_of(world.rank());
        let context = Context::open_as(gpu, name.clone())?;
        self.connect(context, id, world, limit).map_err(|lost| {
            lost.into_error(name, 0, "connecting with the GPUs of the other processes".to_owned())
        })
    }

    fn connect(
        self,
        context: Arc<Context>,
        id: &Id,
        world: &Arc<ProcessGroup>,
        limit: Duration,
    ) -> Result<Communicator, Lost> {
        let nccl = Arc::new(self);
        let (handles, said) = nccl.begin(&[context], id, (world.rank(), world.size())).map_err(Lost::Why)?;
        let refused = |status| format!("NCCL cannot connect the GPUs: {}", words(status));
        let Some((context, handle)) = handles.into_iter().next() else {
            return Err(Lost::Why(refused(said)));
        };
        let mut shared = Shared::new(&nccl, context, handle, limit);
        shared.world = Some(Arc::clone(world));
        let rank = Communicator(Arc::new(shared));
        let ready = match said {
            0 | IN_PROGRESS => rank.settle(CONNECTING),
            status => Err(Lost::Why(refused(status))),
        };
        if ready.is_err() {
            rank.abort();
        }
        ready.map(|()| rank)
    }

    /// Begins to connect `contexts`, whose ranks follow each other from `first` on, with all of `count` ranks.
    fn begin(
        &self,
        contexts: &[Arc<Context>],
        id: &Id,
        (first, count): (usize, usize),
    ) -> Result<Begun, String> {
        let f = &self.functions;
        let failed = |status: i32| format!("NCCL cannot connect the GPUs: {}", words(status));
        // SAFETY: no arguments. One thread connects all, hence as a group.
        let mut said = unsafe { (f.ncclGroupStart)() };
        if said != 0 {
            return Err(failed(said));
        }
        let mut config = Config::DOES_NOT_BLOCK;
        let mut handles = Vec::new();
        let [first, count] = [first, count].map(|number| i32::try_from(number).unwrap_or(0));
        for (rank, context) in (first..count).zip(contexts) {
            let mut handle: Handle = ptr::null_mut();
            if context.enter().is_err() {
                said = CUDA_FAILED;
                break;
            }
            // SAFETY: the pointers are to live locals, which the library does not keep (versions before [`OLDEST`] filled in
            // the handle later, from a thread of their own); the context is current on this thread.
            let status =
                unsafe { (f.ncclCommInitRankConfig)(&raw mut handle, count, *id, rank, &raw mut config) };
            if !matches!(status, 0 | IN_PROGRESS) {
                said = status;
                break;
            }
            handles.push((Arc::clone(context), handle));
        }
        // SAFETY: a group was begun.
        let ended = unsafe { (f.ncclGroupEnd)() };
        handles.retain(|(_, handle)| !handle.is_null());
        Ok((handles, if said == 0 { ended } else { said }))
    }
}
