//! cuBLASLt's functions.

use std::{ffi::c_void, path::PathBuf};

use super::library::{self, functions};

functions! {
    /// `libcublasLt.so`.
    Functions {
        fn cublasLtGetProperty(i32, *mut i32);
        fn cublasLtCreate(*mut *mut c_void);
        fn cublasLtDestroy(*mut c_void);
        fn cublasLtMatmulDescCreate(*mut *mut c_void, i32, i32);
        fn cublasLtMatmulDescDestroy(*mut c_void);
        fn cublasLtMatmulDescSetAttribute(*mut c_void, i32, *const c_void, usize);
        fn cublasLtMatrixLayoutCreate(*mut *mut c_void, i32, u64, u64, i64);
        fn cublasLtMatrixLayoutDestroy(*mut c_void);
        fn cublasLtMatmulPreferenceCreate(*mut *mut c_void);
        fn cublasLtMatmulPreferenceDestroy(*mut c_void);
        fn cublasLtMatmulPreferenceSetAttribute(*mut c_void, i32, *const c_void, usize);
        fn cublasLtMatmulAlgoGetHeuristic(
            *mut c_void, *mut c_void, *mut c_void, *mut c_void, *mut c_void, *mut c_void, *mut c_void, i32,
            *mut c_void, *mut i32,
        );
        fn cublasLtMatmul(
            *mut c_void, *mut c_void, *const c_void, *const c_void, *mut c_void, *const c_void, *mut c_void,
            *const c_void, *const c_void, *mut c_void, *mut c_void, *mut c_void, *const c_void, *mut c_void, usize,
            *mut c_void,
        );
    }
}

pub struct Blas {
    pub functions: Functions,
    /// Major, minor.
    pub version: (i32, i32),
    /// The third number of the version.
    pub patch: i32,
    pub path: Option<PathBuf>,
}

impl Blas {
    /// Opens a version that a driver for CUDA `major` supports.
    pub fn open(major: i32) -> Result<Self, String> {
        let names = if major >= 13 {
            &["libcublasLt.so.13", "libcublasLt.so.12"][..]
        } else {
            &["libcublasLt.so.12"]
        };
        let found = library::find(names, None, |opened| {
            let functions =
                Functions::from_library(opened.library).map_err(|name| format!("has no function {name}"))?;
            let property = |which| {
                let mut value = 0;
                // SAFETY: the pointer is to a live local. 0 is the major version, 1 the minor, 2
                // the patch level (library_types.h).
                let status = unsafe { (functions.cublasLtGetProperty)(which, &raw mut value) };
                if status == 0 { Ok(value) } else { Err("does not tell its version".to_owned()) }
            };
            let (version, patch) = ((property(0)?, property(1)?), property(2)?);
            Ok(Self { functions, version, patch, path: opened.path })
        });
        found.map_err(|missing| missing.to_string())
    }
}
