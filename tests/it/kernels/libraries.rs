//! The simulated driver is as strict as a real one where that finds faults of the CUDA backend, whose own tests show the rest.

use std::ptr::null_mut;

use super::driver::Driver;

type Status = i32;

/// Copies into pinned memory become visible only after a wait; a capture and its replay.
#[test]
fn copies_arrive_with_a_wait_and_captured_work_with_each_launch() {
    let Some(driver) = Driver::get() else { return };
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
