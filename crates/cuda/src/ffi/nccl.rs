//! NCCL: sums over the GPUs of one process or of several, queued in their streams. Only the functions that are needed are
//! bound, by the name `libnccl.so.2`: its packages hold no other.
//!
//! Communicators do not block (`blocking = 0`): a call that must wait for other GPUs continues in the
//! background, and the caller polls it. So a GPU can leave such a call when another fails: `ncclCommAbort`
//! ends it (NCCL user guide, "Fault Tolerance"; src/group.cc). The price is one library thread for every
//! queued sum: in every step under the engine `launch`, once per capture under `graph`.

use std::{ffi::c_void, path::PathBuf};

use super::library::{self, functions};

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

pub const FLOAT32: i32 = 7;
pub const SUM: i32 = 0;
/// The oldest version with non-blocking communicators. Its sums can also be captured in graphs (possible since 2.9).
const OLDEST: (i32, i32) = (2, 18);
/// `ncclInProgress`: not an error.
pub const IN_PROGRESS: i32 = 7;

/// `ncclUniqueId`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Id(pub [u8; 128]);

/// `ncclConfig_t` of 2.14. Later versions see its size and version, and use defaults for missing fields.
#[repr(C)]
pub struct Config {
    size: usize,
    magic: u32,
    version: u32,
    blocking: i32,
}

impl Config {
    /// Calls that have to wait for other GPUs continue in the background.
    pub const DOES_NOT_BLOCK: Self =
        Self { size: size_of::<Self>(), magic: 0xcafe_beef, version: 21_400, blocking: 0 };
}

pub struct Nccl {
    pub(crate) functions: Functions,
    pub(crate) version: (i32, i32),
    pub(crate) path: Option<PathBuf>,
}

impl Nccl {
    /// Major and minor.
    pub fn version(&self) -> (i32, i32) {
        self.version
    }

    pub fn open() -> Result<Self, String> {
        let found = library::find(&["libnccl.so.2"], None, |opened| {
            let functions = Functions::from_library(opened.library).map_err(|name| {
                let (least, and) = OLDEST;
                format!("is too old: it has no function {name} (NCCL {least}.{and} or newer has)")
            })?;
            let mut version = 0;
            // SAFETY: the pointer is to a live local.
            let status = unsafe { (functions.ncclGetVersion)(&raw mut version) };
            if status != 0 {
                return Err(format!("does not tell its version ({})", words(status)));
            }
            // Encoded as 22706 for 2.27.6, but up to version 2.8 as 2804 for 2.8.4 (nccl.h).
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
}

/// The meaning of a status (`nccl.h`).
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
