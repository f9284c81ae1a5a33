//! NCCL: sums over the GPUs of one process, queued in their streams. A binding of the few functions that are needed, by
//! the library's own name (`libnccl.so.2`), since its packages hold no other.

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
    library::{self, functions},
    stream::Stream,
};
use crate::collective::Abort;

/// `ncclComm_t`.
type Handle = *mut c_void;

functions! {
    /// `libnccl.so.2`.
    Functions {
        fn ncclGetVersion(*mut i32);
        fn ncclCommInitAll(*mut Handle, i32, *const i32);
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
/// The oldest version of which graphs may hold sums (NCCL user guide, "Using NCCL with CUDA Graphs").
const OLDEST: (i32, i32) = (2, 9);
/// `ncclInProgress`: not an error.
const IN_PROGRESS: i32 = 7;

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
            let functions =
                Functions::of(opened.library).map_err(|name| format!("has no function {name}"))?;
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
                    "is too old: it is {major}.{minor}, and graphs hold sums from {least}.{and} on"
                ));
            }
            Ok(Self { functions, version, path: opened.path })
        });
        found.map_err(|missing| missing.to_string())
    }

    /// A communicator for each of these GPUs, in their order, and what ends all their waits. Each waits for the others no
    /// longer than `limit`.
    ///
    /// # Errors
    /// What NCCL says.
    pub fn communicators(
        self,
        ordinals: &[u32],
        limit: Duration,
    ) -> Result<(Vec<Communicator>, Abort), String> {
        let nccl = Arc::new(self);
        let devices: Vec<i32> = ordinals.iter().filter_map(|i| i32::try_from(*i).ok()).collect();
        let mut handles: Vec<Handle> = vec![ptr::null_mut(); devices.len()];
        let count = i32::try_from(devices.len()).unwrap_or(0);
        // SAFETY: both arrays have `count` entries.
        let status =
            unsafe { (nccl.functions.ncclCommInitAll)(handles.as_mut_ptr(), count, devices.as_ptr()) };
        if status != 0 {
            return Err(format!("NCCL cannot connect the GPUs: {}", words(status)));
        }
        let shared: Vec<Arc<Shared>> = handles
            .into_iter()
            .map(|handle| {
                let handle = Mutex::new(Some(Owned(handle)));
                Arc::new(Shared { nccl: Arc::clone(&nccl), handle, limit, gone: AtomicBool::new(false) })
            })
            .collect();
        let all = shared.clone();
        let abort = Abort::new(move || all.iter().for_each(|shared| shared.abort()));
        Ok((shared.into_iter().map(Communicator).collect(), abort))
    }
}

/// A communicator that its rank and the abort share.
struct Shared {
    nccl: Arc<Nccl>,
    /// None once it was ended: nobody uses a handle that was given back.
    handle: Mutex<Option<Owned>>,
    limit: Duration,
    /// Set before the handle is taken, so that a wait for it can be left.
    gone: AtomicBool,
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
            });
        }
    }

    fn taken(&self) -> Option<Owned> {
        self.handle.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(Owned(handle)) = self.taken().filter(|_| !self.gone.load(Ordering::Acquire)) {
            // SAFETY: alive, and taken only once.
            unsafe { (self.nccl.functions.ncclCommDestroy)(handle) };
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
        if status == 0 {
            return Ok(());
        }
        // Whoever comes after the others were let go is told so; who is inside the library's call then is not let out of it.
        if self.0.gone.load(Ordering::Acquire) {
            return Err(Lost::Ended);
        }
        Err(Lost::Why(format!("NCCL cannot sum over the GPUs: {}", words(status))))
    }

    /// Whether all GPUs may still come to a sum that was waited for so long already. A GPU that does not come would be
    /// waited for for ever by the device itself: after the limit all waits are ended.
    ///
    /// # Errors
    /// Why they will not come.
    pub fn still_there(&self, waited: Duration) -> Result<(), Lost> {
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
            return Ok(());
        }
        self.abort();
        Err(Lost::Why(format!("the other GPUs did not come to the sum within {:?}", self.0.limit)))
    }

    /// Whether its sums were ended, by itself or for another's sake.
    pub fn ended(&self) -> bool {
        self.0.gone.load(Ordering::Acquire)
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
