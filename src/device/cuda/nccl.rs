//! NCCL: sums over the GPUs of one process, queued in their streams. A binding of the few functions that are needed, by
//! the library's own name (`libnccl.so.2`), since its packages hold no other.
//!
//! Communicators do not block (`blocking = 0` of their configuration): a call that would have to wait for other GPUs
//! begins in the background and says so, and whoever made it asks how far it is ([`super::wait`]). So a GPU can be let go
//! that is in the middle of such a call when another fails: `ncclCommAbort` ends what is in the background. (NCCL user
//! guide, "Fault Tolerance"; src/group.cc.) The price is a thread of the library's for every sum that is queued, which the
//! engine `launch` pays in every step, and a graph once, when it is captured.

use std::{
    ffi::c_void,
    path::PathBuf,
    ptr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use super::{
    context::Context,
    gpu::Gpu,
    library::{self, functions},
    stream::Stream,
    wait,
};
use crate::collective::Abort;

/// `ncclComm_t`.
type Handle = *mut c_void;

functions! {
    /// `libnccl.so.2`.
    Functions {
        fn ncclGetVersion(*mut i32);
        fn ncclGetUniqueId(*mut Id);
        fn ncclGroupStart();
        fn ncclGroupEnd();
        fn ncclCommInitRankConfig(*mut Handle, i32, Id, i32, *mut Config);
        fn ncclCommFinalize(Handle);
        fn ncclCommDestroy(Handle);
        fn ncclCommAbort(Handle);
        fn ncclCommGetAsyncError(Handle, *mut i32);
        fn ncclAllReduce(*const c_void, *mut c_void, usize, i32, i32, Handle, *mut c_void);
    }
}

/// `ncclFloat32`.
const FLOAT32: i32 = 7;
/// `ncclSum`.
const SUM: i32 = 0;
/// The oldest version whose communicators need not block; graphs may hold its sums, too (from 2.9 on).
const OLDEST: (i32, i32) = (2, 14);
/// `ncclUnhandledCudaError`.
const CUDA_FAILED: i32 = 1;
/// `ncclInProgress`: not an error.
const IN_PROGRESS: i32 = 7;

/// `ncclUniqueId`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Id([u8; 128]);

/// `ncclConfig_t` as 2.14 has it: later versions take what is not there from their defaults, by its size and version.
#[repr(C)]
pub struct Config {
    size: usize,
    magic: u32,
    version: u32,
    blocking: i32,
}

impl Config {
    const DOES_NOT_BLOCK: Self =
        Self { size: size_of::<Self>(), magic: 0xcafe_beef, version: 21_400, blocking: 0 };
}

/// The opened library.
pub struct Nccl {
    functions: Functions,
    /// Major and minor version.
    pub version: (i32, i32),
    /// Its file, where that is known.
    pub path: Option<PathBuf>,
}

impl Nccl {
    /// Opens it.
    ///
    /// # Errors
    /// What was looked for, and where.
    pub fn open() -> Result<Self, String> {
        let found = library::find(&["libnccl.so.2"], None, |opened| {
            let functions = Functions::of(opened.library).map_err(|name| {
                let (least, and) = OLDEST;
                format!("is too old: it has no function {name} (NCCL {least}.{and} or newer has)")
            })?;
            let mut version = 0;
            // SAFETY: the pointer is to a live local.
            let status = unsafe { (functions.ncclGetVersion)(&raw mut version) };
            if status != 0 {
                return Err(format!("does not tell its version ({})", words(status)));
            }
            // As 22706 for 2.27.6, but up to 2.8 as 2804 for 2.8.4 (nccl.h).
            let part = if version < 10_000 { 1000 } else { 10_000 };
            let version = (version / part, version % part / 100);
            if version < OLDEST {
                let ((major, minor), (least, and)) = (version, OLDEST);
                return Err(format!(
                    "is too old: it is {major}.{minor}, and calls that can be left are there from {least}.{and} on"
                ));
            }
            Ok(Self { functions, version, path: opened.path })
        });
        found.map_err(|missing| missing.to_string())
    }

    /// A communicator for each of these GPUs, in their order, and what ends all their waits. Each waits for the others no
    /// longer than `limit`; so does this, till they are connected.
    ///
    /// # Errors
    /// What NCCL says.
    pub fn communicators(self, gpus: &[Gpu], limit: Duration) -> Result<(Vec<Communicator>, Abort), String> {
        let nccl = Arc::new(self);
        let contexts = gpus.iter().map(|gpu| Context::open(gpu.clone())).collect::<Result<Vec<_>, _>>();
        let (handles, said) = nccl.begin(&contexts.map_err(|e| e.to_string())?)?;
        let shared: Vec<Arc<Shared>> = handles
            .into_iter()
            .map(|(context, handle)| {
                let (nccl, handle) = (Arc::clone(&nccl), Mutex::new(Some(Owned(handle))));
                let (gone, over) = (AtomicBool::new(false), AtomicBool::new(false));
                Arc::new(Shared { nccl, context, handle, limit, gone, over })
            })
            .collect();
        let all = shared.clone();
        let abort = Abort::new(move || all.iter().for_each(|shared| shared.abort()));
        let ranks: Vec<Communicator> = shared.into_iter().map(Communicator).collect();
        let why = |lost| match lost {
            Lost::Ended => "it was ended".to_owned(),
            Lost::Why(why) => why,
        };
        let ready = match said {
            0 | IN_PROGRESS => ranks.iter().try_for_each(|rank| rank.settle().map_err(why)),
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

    /// Has the library begin to connect GPUs: handles of those that it has begun with, and what it says.
    fn begin(&self, contexts: &[Arc<Context>]) -> Result<(Vec<(Arc<Context>, Handle)>, i32), String> {
        let f = &self.functions;
        let failed = |status: i32| format!("NCCL cannot connect the GPUs: {}", words(status));
        let mut id = Id([0; 128]);
        // SAFETY: the pointer is to a live local.
        let mut said = unsafe { (f.ncclGetUniqueId)(&raw mut id) };
        if said == 0 {
            // SAFETY: no arguments. One thread connects all, hence as a group.
            said = unsafe { (f.ncclGroupStart)() };
        }
        if said != 0 {
            return Err(failed(said));
        }
        let mut config = Config::DOES_NOT_BLOCK;
        let mut handles = Vec::new();
        let count = i32::try_from(contexts.len()).unwrap_or(0);
        for (rank, context) in (0..count).zip(contexts) {
            let mut handle: Handle = ptr::null_mut();
            let entered = context.enter().is_ok();
            // SAFETY: pointers to live locals, of which the library keeps none; the context is the thread's.
            let status = unsafe { (f.ncclCommInitRankConfig)(&raw mut handle, count, id, rank, &raw mut config) };
            if !entered || !matches!(status, 0 | IN_PROGRESS) {
                said = if entered { status } else { CUDA_FAILED };
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

/// A communicator that its rank and the abort share.
struct Shared {
    nccl: Arc<Nccl>,
    /// Its GPU, which is taken as long as the library uses it.
    context: Arc<Context>,
    /// None once it was ended: nobody uses a handle that was given back.
    handle: Mutex<Option<Owned>>,
    limit: Duration,
    /// Set before the handle is taken, so that a wait for it can be left.
    gone: AtomicBool,
    /// The library has ended it.
    over: AtomicBool,
}

/// A handle that may change threads.
#[derive(Clone, Copy)]
struct Owned(Handle);

// SAFETY: NCCL takes a handle from any thread; the lock around it keeps its calls apart.
unsafe impl Send for Owned {}

impl Shared {
    /// Lets those go that wait. The library itself then waits until no captured graph holds a sum, which their owners see
    /// to when they are let go: so that happens on a thread that nobody waits for.
    fn abort(self: &Arc<Self>) {
        if !self.gone.swap(true, Ordering::AcqRel) {
            let shared = Arc::clone(self);
            // Without the thread the communicator stays as it is till the process ends.
            let _ = thread::Builder::new().name("nccl-abort".into()).spawn(move || {
                if let Some(Owned(handle)) = shared.taken() {
                    // SAFETY: alive, and taken only once. An error cannot be acted upon any more.
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
        let Some(Owned(handle)) = self.taken().filter(|_| alive) else { return };
        let f = &self.nccl.functions;
        let mut status = 0;
        // SAFETY: alive, and taken only once; the pointer is to a live local; so below.
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

/// Why the other GPUs are lost.
#[derive(Debug)]
pub enum Lost {
    /// The sums were ended, since another GPU failed, which says so itself.
    Ended,
    /// In words.
    Why(String),
}

/// One GPU's way to the others.
pub struct Communicator(Arc<Shared>);

impl Communicator {
    /// Queues the sum over all GPUs, in place, of so many numbers at an address of its GPU's memory. Every GPU must queue
    /// the same sums in the same order.
    ///
    /// # Errors
    /// What NCCL says.
    pub fn all_reduce(&self, stream: &Stream, at: u64, numbers: usize) -> Result<(), Lost> {
        let held = self.0.handle.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(Owned(handle)) = held.filter(|_| !self.0.gone.load(Ordering::Acquire)) else {
            return Err(Lost::Ended);
        };
        let nccl = &self.0.nccl;
        let memory = at as *mut c_void;
        // SAFETY: the caller owns so many numbers there, and the stream is alive.
        let status = unsafe {
            (nccl.functions.ncclAllReduce)(
                memory,
                memory,
                numbers,
                FLOAT32,
                SUM,
                handle,
                stream.handle.cast(),
            )
        };
        drop(held);
        match status {
            // What the stream is given next must come behind the sum: it is not there before the library says so.
            0 | IN_PROGRESS => self.settle(),
            _ if self.ended() => Err(Lost::Ended),
            status => Err(Lost::Why(format!("NCCL cannot sum over the GPUs: {}", words(status)))),
        }
    }

    /// Whether a call is still under way in the background, where all GPUs may still come to a sum that was waited for so
    /// long already. A GPU that does not come would be waited for for ever, by the device itself or by the library: after
    /// the limit all waits are ended.
    ///
    /// # Errors
    /// Why they will not come.
    pub fn under_way(&self, waited: Duration) -> Result<bool, Lost> {
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
            return Err(Lost::Why(format!("NCCL: {}", words(status))));
        }
        if waited <= self.0.limit {
            return Ok(status == IN_PROGRESS);
        }
        self.abort();
        Err(Lost::Why(format!("the other GPUs did not come to the sum within {:?}", self.0.limit)))
    }

    /// How long the others are waited for.
    pub fn limit(&self) -> Duration {
        self.0.limit
    }

    /// Whether its sums were ended, by itself or for another's sake.
    pub fn ended(&self) -> bool {
        self.0.gone.load(Ordering::Acquire)
    }

    /// Whether the library has ended it, too: what it used may go.
    pub fn is_over(&self) -> bool {
        self.0.over.load(Ordering::Acquire)
    }

    /// Lets this GPU go that waits for the others.
    pub fn abort(&self) {
        self.0.abort();
    }
}

/// A status of NCCL (`nccl.h`), in words.
fn words(status: i32) -> String {
    let text = match status {
        1 => "a call of CUDA failed (ncclUnhandledCudaError)",
        2 => "a call of the system failed (ncclSystemError)",
        3 => "an internal error (ncclInternalError)",
        4 => "an argument is wrong (ncclInvalidArgument)",
        5 => "a wrong use (ncclInvalidUsage)",
        6 => "another process or a network failed (ncclRemoteError)",
        _ => return format!("status {status}"),
    };
    format!("{text}; NCCL_DEBUG=WARN makes it say more")
}
