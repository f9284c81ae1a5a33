//! Finds out which of NVIDIA's libraries are available, for display: none is kept open.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Mutex, PoisonError},
};

use super::{blas::Blas, cache, compiler::Compiler, driver::Driver, gpu::Gpu};
use crate::ffi::Nccl;

/// A library's name and state, for display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LibraryRow {
    pub name: &'static str,
    /// Version and file, or why it is not available.
    pub state: String,
    pub found: bool,
}

pub fn products_library() -> Result<(), String> {
    Blas::open(Driver::get()?.version / 1000).map(drop)
}

/// Names and versions of libraries.
type Versions = Vec<(String, String)>;

/// Names and versions of the libraries that a run on this GPU loads: the compiler, cuBLASLt if there are
/// large products, NCCL if there are sums. They are searched for once, since the trials of a sweep load the same.
pub fn versions(gpu: &Gpu, products: bool, sums: bool) -> Versions {
    static KNOWN: Mutex<BTreeMap<(i32, bool, bool), Versions>> = Mutex::new(BTreeMap::new());
    let Ok(driver) = Driver::get() else { return Vec::new() };
    let (major, architecture) = (driver.version / 1000, gpu.architecture());
    let find = || {
        let number = |(major, minor): (i32, i32)| format!("{major}.{minor}");
        let compiler = Compiler::open(major, architecture).ok().map(|c| ("NVRTC", number(c.version)));
        let blas =
            products.then(|| Blas::open(major).ok()).flatten().map(|b| ("cuBLASLt", number(b.version)));
        let nccl = sums.then(|| Nccl::open().ok()).flatten().map(|n| ("NCCL", number(n.version)));
        let all = [compiler, blas, nccl].into_iter().flatten();
        all.map(|(name, version)| (name.to_owned(), version)).collect()
    };
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    known.entry((architecture, products, sums)).or_insert_with(find).clone()
}

/// The driver, the compiler, cuBLASLt, NCCL and the kernel cache.
pub fn libraries(first: &Gpu) -> Vec<LibraryRow> {
    let Ok(driver) = Driver::get() else { return Vec::new() };
    let major = driver.version / 1000;
    let row = |name, state: Result<String, String>| LibraryRow {
        name,
        found: state.is_ok(),
        state: state.unwrap_or_else(|why| why),
    };
    let at = |version: (i32, i32), path: Option<&Path>| {
        let path = path.map_or_else(|| "by the loader".to_owned(), |p| p.display().to_string());
        format!("{}.{}, {path}", version.0, version.1)
    };
    let compiler = Compiler::open(major, first.architecture()).map(|c| at(c.version, c.path.as_deref()));
    let blas = Blas::open(major).map(|b| at(b.version, b.path.as_deref()));
    let nccl = Nccl::open().map(|n| at(n.version, n.path.as_deref()));
    let cache = match cache::folder() {
        Some(folder) => Ok(folder.display().to_string()),
        None => Err("no folder ($HOME is not set): kernels are compiled at every start".into()),
    };
    vec![
        row("driver", Ok(at((major, driver.version % 1000 / 10), driver.path.as_deref()))),
        row("NVRTC", compiler),
        row(
            "cuBLASLt",
            blas.map_err(|why| format!("not there, so our own kernels do the large products: {why}")),
        ),
        row("NCCL", nccl.map_err(|why| format!("not there: {why}"))),
        row("kernel cache", cache),
    ]
}
