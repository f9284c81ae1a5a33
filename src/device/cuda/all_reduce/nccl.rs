//! NCCL: sums over the GPUs of one process, queued in their streams. A binding of the few functions that are needed, by
//! the library's own name (`libnccl.so.2`), since its packages hold no other.
//!
//! Communicators do not block (`blocking = 0` of their configuration): a call that would have to wait for other GPUs
//! begins in the background and says so, and whoever made it asks how far it is (`launch::wait`). So a GPU can be let go
//! that is in the middle of such a call when another fails: `ncclCommAbort` ends what is in the background. (NCCL user
//! guide, "Fault Tolerance"; src/group.cc.) The price is a thread of the library's for every sum that is queued, which the
//! engine `launch` pays in every step, and a graph once, when it is captured.

use std::{ffi::c_void, path::PathBuf, ptr, sync::Arc, time::Duration};

use super::communicator::{Communicator, Lost, Shared};
use crate::{
    collective::Abort,
    device::cuda::ffi::{
        context::Context,
        gpu::Gpu,
        library::{self, functions},
    },
};

/// `ncclComm_t`.
pub type Handle = *mut c_void;

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
pub const FLOAT32: i32 = 7;
/// `ncclSum`.
pub const SUM: i32 = 0;
/// The oldest version whose communicators need not block; graphs may hold its sums, too (from 2.9 on).
const OLDEST: (i32, i32) = (2, 18);
/// `ncclUnhandledCudaError`.
const CUDA_FAILED: i32 = 1;
/// `ncclInProgress`: not an error.
pub const IN_PROGRESS: i32 = 7;

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

/// GPUs with the handles that the library has begun with, and what it says.
type Begun = (Vec<(Arc<Context>, Handle)>, i32);

/// The opened library.
pub struct Nccl {
    pub(super) functions: Functions,
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
        let made = handles.into_iter().map(|(context, handle)| Shared::new(&nccl, context, handle, limit));
        let shared: Vec<Arc<Shared>> = made.collect();
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

    /// Has the library begin to connect GPUs.
    fn begin(&self, contexts: &[Arc<Context>]) -> Result<Begun, String> {
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
            if context.enter().is_err() {
                said = CUDA_FAILED;
                break;
            }
            // SAFETY: pointers to live locals, of which the library keeps none (versions before the oldest that is taken
            // did: they filled the handle in later, on a thread of their own); the context is the thread's.
            let status =
                unsafe { (f.ncclCommInitRankConfig)(&raw mut handle, count, id, rank, &raw mut config) };
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

/// A status of NCCL (`nccl.h`), in words.
pub fn words(status: i32) -> String {
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
