//! Tests of the simulated libraries themselves, on which the tests of the CUDA backend rely.
//!
//! The simulated driver reads its settings once, so tests with other settings run in a process of their own.

use std::{
    ffi::c_void,
    path::Path,
    process::Command,
    ptr::{from_ref, null_mut},
    thread,
};

use libloading::Library;

use super::driver::{Driver, Grid, argument, folder};
use crate::conformance::close;

type Status = i32;

/// Runs `part` of [`alone`] in a process of its own.
fn in_a_process_of_its_own(part: &str, variables: &[(&str, &str)]) {
    if folder().is_none() {
        return;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "kernels::libraries::alone", "--ignored", "--nocapture"]);
    let output = command.env("PART", part).envs(variables.iter().copied()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{part}: {text}");
}

#[test]
#[ignore = "a part of other tests, which run it in a process of its own"]
fn alone() {
    match std::env::var("PART").as_deref() {
        Ok("no_device") => {
            // SAFETY: the library is ours, the function takes any number.
            unsafe {
                let library = Library::new(folder().unwrap().join("libcuda.so.1")).unwrap();
                let init = *library.get::<unsafe extern "C" fn(u32) -> Status>(b"cuInit").unwrap();
                assert_eq!(init(0), 100, "no device");
            }
        }
        Ok("memory") => {
            let driver = Driver::get().unwrap();
            let first = driver.try_holding(&[0u8; 3000]).unwrap();
            assert_eq!(driver.try_holding(&[0u8; 3000]).err(), Some(2), "out of memory");
            drop(first);
            assert!(driver.try_holding(&[0u8; 4096]).is_ok());
        }
        Ok("faults") => {
            let driver = Driver::get().unwrap();
            let x = driver.try_holding(&[1.0f32; 256]).unwrap();
            assert_eq!(driver.try_holding(&[0u8; 4]).err(), Some(2), "the second allocation fails");
            let out = driver.try_holding(&[0.0f32]).unwrap();
            let (mut px, mut po) = (x.address, out.address);
            let arguments = &mut [argument(&mut px), argument(&mut po)];
            assert_eq!(driver.try_launch("planted_nothing", Grid::new(1, 256), arguments), 719);
            assert_eq!(driver.try_launch("planted_nothing", Grid::new(1, 256), arguments), 0);
            assert_eq!(out.read::<f32>(1), [256.0]);
        }
        Ok("streams") => streams(Driver::get().unwrap()),
        part => panic!("no part {part:?}"),
    }
}

/// Copies into pinned memory become visible only after a wait; a capture and its replay.
fn streams(driver: &Driver) {
    type Make = unsafe extern "C" fn(*mut usize, u32) -> Status;
    type One = unsafe extern "C" fn(usize) -> Status;
    type Pinned = unsafe extern "C" fn(*mut *mut f32, usize, u32) -> Status;
    type ToHost = unsafe extern "C" fn(*mut f32, u64, usize, usize) -> Status;
    type Fill = unsafe extern "C" fn(u64, u8, usize, usize) -> Status;
    type Two = unsafe extern "C" fn(usize, usize) -> Status;
    type Begin = unsafe extern "C" fn(usize, i32) -> Status;
    type End = unsafe extern "C" fn(usize, *mut usize) -> Status;
    type Instantiate = unsafe extern "C" fn(*mut usize, usize, u64) -> Status;
    let memory = driver.holding(&[7.0f32; 2]);
    let (mut stream, mut event, mut graph, mut exec) = (0, 0, 0, 0);
    let mut host = null_mut();
    // SAFETY: calls as the driver's documentation has them; `host` has room for two numbers.
    unsafe {
        assert_eq!(driver.function::<Make>("cuStreamCreate")(&mut stream, 1), 0);
        assert_eq!(driver.function::<Make>("cuEventCreate")(&mut event, 0), 0);
        assert_eq!(driver.function::<Pinned>("cuMemHostAlloc")(&mut host, 8, 0), 0);
        let to_host = driver.function::<ToHost>("cuMemcpyDtoHAsync_v2");
        let synchronize = driver.function::<One>("cuStreamSynchronize");
        assert_eq!(to_host(host, memory.address, 8, stream), 0);
        assert!((*host).is_nan(), "not before the host has waited");
        assert_eq!(driver.function::<Two>("cuEventRecord")(event, stream), 0);
        assert_eq!(driver.function::<One>("cuEventSynchronize")(event), 0);
        assert_eq!(*host, 7.0);

        // Captured work runs at each launch of the graph, not during the capture.
        assert_eq!(driver.function::<Begin>("cuStreamBeginCapture_v2")(stream, 1), 0);
        let fill = driver.function::<Fill>("cuMemsetD8Async");
        assert_eq!(fill(memory.address, 0, 8, stream), 0);
        assert_eq!(to_host(host, memory.address, 8, stream), 0);
        assert_eq!(driver.function::<End>("cuStreamEndCapture")(stream, &mut graph), 0);
        assert_eq!(memory.read::<f32>(2), [7.0; 2]);
        let instantiate = driver.function::<Instantiate>("cuGraphInstantiateWithFlags");
        assert_eq!(instantiate(&mut exec, graph, 0), 0);
        for _ in 0..2 {
            memory.write(&[7.0f32; 2]);
            assert_eq!(driver.function::<Two>("cuGraphLaunch")(exec, stream), 0);
            assert_eq!(synchronize(stream), 0);
            assert_eq!((memory.read::<f32>(2), *host), (vec![0.0; 2], 0.0));
        }
        assert_eq!(driver.function::<Begin>("cuStreamBeginCapture_v2")(stream, 1), 0);
        assert_eq!(synchronize(stream), 900, "a wait within a capture");
        assert_eq!(driver.function::<End>("cuStreamEndCapture")(stream, &mut graph), 901, "spoils it");

        // A copy from an address without memory.
        assert_eq!(to_host(host, memory.address + 4, 8, stream), 700);
    }
}

#[test]
fn the_environment_sets_devices_memory_and_faults() {
    in_a_process_of_its_own("no_device", &[("RUNNER_SIM_DEVICES", "0")]);
    in_a_process_of_its_own("memory", &[("RUNNER_SIM_MEMORY", "4096")]);
    in_a_process_of_its_own("faults", &[("RUNNER_SIM_FAIL", "alloc:2,launch:1")]);
}

#[test]
fn streams_deliver_in_order_and_write_a_log() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    in_a_process_of_its_own("streams", &[("RUNNER_SIM_LOG", log.to_str().unwrap())]);
    if super::driver::folder().is_none() {
        return;
    }
    let replay = "0 h2d 8 pageable\n0 graph 2 nodes\n0 synchronize stream\n0 d2h 8 pageable\n";
    let want = "0 alloc 8\n0 h2d 8 pageable\n0 d2h 8 pinned\n0 synchronize event\n0 d2h 8 pageable\n"
        .to_owned()
        + replay
        + replay
        + "0 d2h 8 pinned\n0 free 8\n";
    assert_eq!(std::fs::read_to_string(log).unwrap(), want);
}

fn library(name: &str) -> Library {
    // SAFETY: the library is ours and has no initialization of its own.
    unsafe { Library::new(Path::new(folder().unwrap()).join(name)) }.unwrap()
}

fn symbol<T: Copy>(library: &Library, name: &str) -> T {
    // SAFETY: each caller names the type that NVIDIA's documentation gives this function.
    *unsafe { library.get::<T>(name.as_bytes()) }.unwrap()
}

#[test]
fn the_blas_multiplies_and_follows_its_epilogues() {
    let Some(driver) = Driver::get() else { return };
    let blas = library("libcublasLt.so.12");
    type Layout = unsafe extern "C" fn(*mut usize, i32, u64, u64, i64) -> Status;
    type Description = unsafe extern "C" fn(*mut usize, i32, i32) -> Status;
    type Attribute = unsafe extern "C" fn(usize, i32, *const c_void, usize) -> Status;
    #[rustfmt::skip]
    type Heuristic = unsafe extern "C" fn(
        usize, usize, usize, usize, usize, usize, usize, i32, *mut [u64; 14], *mut i32,
    ) -> Status;
    #[rustfmt::skip]
    type Matmul = unsafe extern "C" fn(
        usize, usize, *const f32, u64, usize, u64, usize, *const f32, u64, usize, u64, usize, *const u64, usize, usize, usize,
    ) -> Status;
    // Column-major: D [2, 3] = A^T [2, 4] B [4, 3], plus an epilogue.
    let (m, n, k) = (2, 3, 4);
    let a: Vec<f32> = (0..k * m).map(|i| i as f32 - 3.0).collect();
    let b: Vec<f32> = (0..k * n).map(|i| 2.0 - i as f32).collect();
    let bias = [0.5f32, -0.25];
    let product = |i: usize, j: usize| (0..k).map(|p| f64::from(a[i * k + p] * b[j * k + p])).sum::<f64>();
    for (epilogue, expected) in [(1, 0), (2, 0), (4, 0), (6, 0), (512, 0), (136, 15), (134, 15)] {
        let (da, db, dd) = (driver.holding(&a), driver.holding(&b), driver.holding(&vec![f32::NAN; m * n]));
        let extra = if epilogue == 512 { vec![0.0f32; n] } else { bias.to_vec() };
        let dbias = driver.holding(&extra);
        let (mut la, mut lb, mut ld, mut description) = (0, 0, 0, 0);
        let mut found = [[0u64; 14]; 1];
        let mut count = 0;
        let (one, zero) = (1.0f32, 0.0f32);
        // SAFETY: calls follow the library's documentation, with pointers to live variables of the given sizes.
        let status = unsafe {
            let layout = symbol::<Layout>(&blas, "cublasLtMatrixLayoutCreate");
            layout(&mut la, 0, k as u64, m as u64, k as i64);
            layout(&mut lb, 0, k as u64, n as u64, k as i64);
            layout(&mut ld, 0, m as u64, n as u64, m as i64);
            symbol::<Description>(&blas, "cublasLtMatmulDescCreate")(&mut description, 68, 0);
            let set = symbol::<Attribute>(&blas, "cublasLtMatmulDescSetAttribute");
            assert_eq!(set(description, 3, from_ref(&1i32).cast(), 4), 0);
            assert_eq!(set(description, 7, from_ref(&epilogue).cast(), 4), 0);
            assert_eq!(set(description, 8, from_ref(&dbias.address).cast(), 8), 0);
            let heuristic = symbol::<Heuristic>(&blas, "cublasLtMatmulAlgoGetHeuristic");
            let status = heuristic(0, description, la, lb, ld, ld, 0, 1, found.as_mut_ptr(), &mut count);
            if status == 0 {
                let multiply = symbol::<Matmul>(&blas, "cublasLtMatmul");
                #[rustfmt::skip]
                let done = multiply(
                    0, description, &one, da.address, la, db.address, lb, &zero, dd.address, ld, dd.address, ld,
                    found[0].as_ptr(), 0, 0, 0,
                );
                assert_eq!(done, 0);
            }
            status
        };
        assert_eq!((status, count), (expected, i32::from(expected == 0)), "epilogue {epilogue}");
        if expected != 0 {
            continue;
        }
        let want = (0..m * n).map(|at| {
            let x = product(at % m, at / m) + if epilogue & 4 == 4 { f64::from(bias[at % m]) } else { 0.0 };
            if epilogue & 2 == 2 { x.max(0.0) } else { x }
        });
        close(&dd.read::<f32>(m * n), &want.collect::<Vec<_>>(), 1e-6, &format!("epilogue {epilogue}"));
        if epilogue == 512 {
            let sums: Vec<f64> =
                (0..n).map(|j| b[j * k..(j + 1) * k].iter().map(|x| f64::from(*x)).sum()).collect();
            close(&dbias.read::<f32>(n), &sums, 1e-6, "sums over k of B");
        }
    }
}

#[test]
fn collectives_sum_and_broadcast_in_the_order_of_ranks() {
    if Driver::get().is_none() {
        return;
    }
    let nccl = &library("libnccl.so.2");
    type Id = unsafe extern "C" fn(*mut [u8; 128]) -> Status;
    type Init = unsafe extern "C" fn(*mut usize, i32, [u8; 128], i32) -> Status;
    type Reduce = unsafe extern "C" fn(u64, u64, usize, i32, i32, usize, usize) -> Status;
    type Destroy = unsafe extern "C" fn(usize) -> Status;
    let mut id = [0u8; 128];
    // SAFETY: the pointer is to 128 bytes.
    assert_eq!(unsafe { symbol::<Id>(nccl, "ncclGetUniqueId")(&mut id) }, 0);
    let rank = &|rank: i32| {
        let driver = Driver::get().unwrap();
        let memory = driver.holding(&[rank as f32 + 1.0; 5]);
        let mut communicator = 0;
        // SAFETY: calls as NCCL's documentation has them, on memory of five numbers.
        unsafe {
            assert_eq!(symbol::<Init>(nccl, "ncclCommInitRank")(&mut communicator, 3, id, rank), 0);
            let reduce = symbol::<Reduce>(nccl, "ncclAllReduce");
            for _ in 0..2 {
                assert_eq!(reduce(memory.address, memory.address, 5, 7, 0, communicator, 0), 0);
            }
            let broadcast = symbol::<Reduce>(nccl, "ncclBroadcast");
            let root = driver.holding(&[10.0 * rank as f32]);
            assert_eq!(broadcast(root.address, root.address, 1, 7, 2, communicator, 0), 0);
            assert_eq!(symbol::<Destroy>(nccl, "ncclCommDestroy")(communicator), 0);
            (memory.read::<f32>(5), root.read::<f32>(1))
        }
    };
    thread::scope(|scope| {
        let ranks: Vec<_> = (0..3).map(|r| scope.spawn(move || rank(r))).collect();
        for got in ranks {
            assert_eq!(got.join().unwrap(), (vec![18.0; 5], vec![20.0]));
        }
    });
}
