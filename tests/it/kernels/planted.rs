//! Tests of the tests: bugs planted in kernels are found.

use std::process::Command;

use super::{
    compile::sources::SOURCES,
    driver::{Driver, Grid, Order, argument, build},
};

/// Sums 1, 2, ... 256 with a kernel, in each order of threads.
fn sums(driver: &Driver, kernel: &str) -> Vec<f32> {
    let numbers: Vec<f32> = (1..=256).map(|i| i as f32).collect();
    let (x, out) = (driver.holding(&numbers), driver.holding(&[0.0f32]));
    let mut all = Vec::new();
    for order in Order::ALL {
        driver.order(order);
        let (mut x, mut to) = (x.address, out.address);
        driver.launch(kernel, Grid::new(1, 256), &mut [argument(&mut x), argument(&mut to)]);
        all.push(out.read::<f32>(1)[0]);
    }
    all
}

#[test]
fn a_missing_barrier_shows_as_other_numbers_in_another_order() {
    let Some(driver) = Driver::get() else { return };
    let right = 256.0 * 257.0 / 2.0;
    assert_eq!(sums(driver, "planted_nothing"), [right; 3]);
    let found = sums(driver, "planted_missing_barrier");
    assert!(found.iter().any(|sum| *sum != right), "{found:?}");
}

/// A block that adds up the sums of others before they have arrived gives other numbers in another order of
/// blocks; one that waits for all gives the same, and leaves the counter for the next launch.
#[test]
fn a_sum_over_blocks_that_does_not_wait_shows() {
    let Some(driver) = Driver::get() else { return };
    let numbers: Vec<f32> = (1..=256).map(|i| i as f32).collect();
    let sums = |kernel: &str| {
        let (x, out) = (driver.holding(&numbers), driver.holding(&[0.0f32]));
        let counter = driver.holding(&[0u32]);
        let sum = |order| {
            driver.order(order);
            let partial = driver.holding(&[0.0f32; 8]);
            let [mut x, mut to, mut sums, mut arrived] = [&x, &out, &partial, &counter].map(|of| of.address);
            let arguments =
                &mut [argument(&mut x), argument(&mut to), argument(&mut sums), argument(&mut arrived)];
            driver.launch(kernel, Grid::new(8, 32), arguments);
            assert_eq!(counter.read::<u32>(1), [0]);
            out.read::<f32>(1)[0]
        };
        Order::ALL.map(sum)
    };
    let right = 256.0 * 257.0 / 2.0;
    assert_eq!(sums("planted_nothing_between_blocks"), [right; 3]);
    let found = sums("planted_early_sum");
    assert!(found.iter().any(|sum| *sum != right), "{found:?}");
}

#[test]
fn a_barrier_that_some_skip_is_an_error() {
    let Some(driver) = Driver::get() else { return };
    let (x, out) = (driver.holding(&[1.0f32; 256]), driver.holding(&[0.0f32]));
    let (mut x, mut to) = (x.address, out.address);
    let arguments = &mut [argument(&mut x), argument(&mut to)];
    let status = driver.try_launch("planted_skipped_barrier", Grid::new(1, 256), arguments);
    assert_eq!(status, 719, "launch failed");
}

#[test]
fn a_write_beyond_shared_memory_is_an_error() {
    let Some(driver) = Driver::get() else { return };
    let out = driver.holding(&[0.0f32]);
    let (mut to, mut n) = (out.address, 64i32);
    let arguments = &mut [argument(&mut to), argument(&mut n)];
    let grid = |shared_bytes| Grid { shared_bytes, ..Grid::new(1, 32) };
    assert_eq!(driver.try_launch("planted_write_beyond_shared", grid(4 * 65), arguments), 0);
    assert_eq!(driver.try_launch("planted_write_beyond_shared", grid(4 * 64), arguments), 719);
}

/// More numbers than 32 bits can count: an index that wraps would count too few, or loop forever.
#[test]
fn a_sum_counts_beyond_32_bits() {
    let Some(driver) = Driver::get() else { return };
    let (partial, out) = (driver.holding(&[0.0f64; 1025]), driver.holding(&[0.0f64]));
    let threads = 64u64;
    for (n, stride) in [((1u64 << 32) + 5, 1u32 << 31), ((1 << 32) - 1, 3 << 30), ((1 << 33) + 70, u32::MAX)]
    {
        let (mut pp, mut po) = (partial.address, out.address);
        let (mut count, mut step) = (n, stride);
        let arguments =
            &mut [argument(&mut count), argument(&mut step), argument(&mut pp), argument(&mut po)];
        driver.launch("planted_count", Grid::new(1, threads as u32), arguments);
        let want: u64 = (0..threads).map(|thread| (n - thread).div_ceil(u64::from(stride))).sum();
        assert_eq!(out.read::<f64>(1), [want as f64], "{n} by {stride}");
    }
}

#[test]
fn shared_memory_is_aligned_for_four_numbers() {
    let Some(driver) = Driver::get() else { return };
    let out = driver.holding(&[1u64]);
    let mut to = out.address;
    let grid = Grid { shared_bytes: 256, ..Grid::new(1, 32) };
    driver.launch("planted_alignment", grid, &mut [argument(&mut to)]);
    assert_eq!(out.read::<u64>(1), [0]);
    // The simulator always aligns shared memory like this; a device does so only on request.
    for (name, text) in SOURCES {
        let all = text.matches("extern __shared__").count();
        assert_eq!(text.matches("extern __shared__ __align__(16)").count(), all, "{name}");
    }
}

#[test]
fn an_address_of_nothing_is_an_error() {
    let Some(driver) = Driver::get() else { return };
    let out = driver.holding(&[0.0f32]);
    let freed = driver.holding(&[0.0f32; 256]).address;
    let (mut x, mut to) = (freed, out.address);
    let arguments = &mut [argument(&mut x), argument(&mut to)];
    assert_eq!(driver.try_launch("planted_nothing", Grid::new(1, 256), arguments), 700, "illegal address");
}

/// In a process of its own: AddressSanitizer must be loaded before any allocation, and ends the process.
#[test]
fn a_read_beyond_the_end_is_named_by_the_sanitizer() {
    let Some(folder) = build("cuda_sim_sanitized", &[("CUSIM_SANITIZE", "1")]) else { return };
    let run = |kernel: &str| {
        // Leaks at the end of the process do not matter here.
        let launch = folder.join("launch");
        let output = Command::new(launch).arg(kernel).env("ASAN_OPTIONS", "detect_leaks=0").output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (fine, text) = run("planted_nothing");
    assert!(fine, "{text}");
    let (fine, text) = run("planted_read_beyond");
    assert!(!fine, "{text}");
    assert!(text.contains("heap-buffer-overflow"), "{text}");
    assert!(text.contains("planted.cu"), "{text}");
}

/// Pinned memory stays as it is until the host knows that a copy from it is complete.
#[test]
fn memory_that_is_written_while_it_is_copied_is_found() {
    if Driver::get().is_none() {
        return;
    }
    for (part, is_found) in [("late", false), ("early", true)] {
        let name = "kernels::planted::writes_what_was_copied";
        let run = Command::new(std::env::current_exe().unwrap())
            .args([name, "--exact", "--ignored"])
            .env("PART", part)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&run.stderr);
        assert_eq!(
            said.contains("cusim: memory was changed while it was copied to a device"),
            is_found,
            "{said}"
        );
        assert_eq!(run.status.success(), !is_found, "{part}: {said}");
    }
}

#[test]
#[ignore = "a part of another test, which runs it in a process of its own"]
fn writes_what_was_copied() {
    let driver = Driver::get().unwrap();
    driver.copy_and_write(std::env::var("PART").as_deref() == Ok("early"));
}
