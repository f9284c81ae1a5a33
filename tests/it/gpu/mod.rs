//! The same suites on whatever GPU there is: `scripts/gpu-check` runs them on the hardware, and a test here runs them on
//! the stand-in libraries, in a process of its own that finds those.

mod instructions;
mod peers;
mod training;

use std::process::Command;

use runner::device::cuda::{self, Gpu};

use crate::kernels::driver::folder;

/// Set where a missing GPU is a failure.
const REQUIRED: &str = "RUNNER_REQUIRE_CUDA";

/// Set for the process that runs on the stand-in libraries, which are slow: it takes a part of the cases.
const STAND_IN: &str = "RUNNER_TEST_STAND_IN";

/// The first GPU; `None`, said on standard error, where there is none and none is required.
fn first_gpu() -> Option<Gpu> {
    let found = cuda::gpus().map(|gpus| gpus.into_iter().next());
    let why = match found {
        Ok(Some(gpu)) => return Some(gpu),
        Ok(None) => "no GPU".to_owned(),
        Err(why) => why,
    };
    assert!(std::env::var_os(REQUIRED).is_none_or(|v| v != "1"), "{REQUIRED}=1, but {why}");
    eprintln!("skipped: {why}");
    None
}

/// Of a list of cases, those that this run takes.
fn some<T: Copy>(all: &[T], on_the_stand_in: usize) -> Vec<T> {
    let count = if std::env::var_os(STAND_IN).is_some() { on_the_stand_in } else { all.len() };
    all.iter().copied().take(count).collect()
}

#[test]
fn the_suites_pass_on_the_stand_in_libraries() {
    // On the hardware they run by themselves.
    if std::env::var_os(REQUIRED).is_some() {
        return;
    }
    let Some(libraries) = folder() else { return };
    let cache = tempfile::tempdir().unwrap();
    let run = Command::new(std::env::current_exe().unwrap())
        .args(["gpu::instructions::", "gpu::training::", "gpu::peers::", "--test-threads", "2"])
        .env("LD_LIBRARY_PATH", libraries)
        .env("RUNNER_CACHE_DIR", cache.path())
        .env("RUNNER_SIM_DEVICES", "3")
        .env(REQUIRED, "1")
        .env(STAND_IN, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{said}{}", String::from_utf8_lossy(&run.stderr));
    assert!(said.contains("test result: ok. 7 passed"), "{said}");
}
