//! The host as a place of tensors: its own memory, and that of virtual GPUs.

use super::*;

fn numbers(place: &mut HostBackend, handle: Handle) -> Vec<f32> {
    let mut values = vec![0.0; handle.len];
    place.read(handle, 0, &mut values).expect("own memory");
    values
}

fn with(place: &mut HostBackend, values: &[f32]) -> Handle {
    let handle = place.alloc(values.len()).expect("room");
    place.write(handle, values).expect("own memory");
    handle
}

fn words<T: std::fmt::Debug>(result: Result<T, DeviceError>) -> String {
    result.expect_err("a refusal").to_string()
}

#[test]
fn fresh_memory_is_nan_and_the_hosts_own_is_never_moved() {
    let (mut cpu, mut gpu) = (HostBackend::cpu(1), HostBackend::virtual_gpu(1));
    let fresh = gpu.alloc(3).expect("room");
    assert!(numbers(&mut gpu, fresh).iter().all(|v| v.is_nan()));
    assert_eq!((gpu.name(), gpu.bytes(), gpu.is_host()), ("virtual:1", 12, false));
    assert_eq!(gpu.write(fresh, &[1.0; 3]).expect("own"), Moved::Bytes(12));
    let own = cpu.alloc(3).expect("room");
    assert_eq!(cpu.write(own, &[1.0; 3]).expect("own"), Moved::Nothing);
    assert_eq!(cpu.copy_from(own, &mut gpu, fresh).expect("own"), Some(Moved::Bytes(12)));
}

#[test]
fn foreign_freed_and_misfit_memory_is_refused() {
    let (mut a, mut b) = (HostBackend::virtual_gpu(0), HostBackend::virtual_gpu(0));
    let (x, y) = (with(&mut a, &[1.0, 2.0]), with(&mut b, &[1.0, 2.0]));
    let out = a.alloc(2).expect("room");
    assert_eq!(words(a.add(x, y, out)), "`virtual:0` was handed memory that it does not hold");
    assert_eq!(words(a.add(x, x, x)), "`virtual:0` was handed a result that is one of its operands");
    let short = with(&mut a, &[1.0]);
    assert_eq!(words(a.add(x, short, out)), "`virtual:0` was handed 1 numbers where 2 are needed");
    assert_eq!(words(a.read(x, 1, &mut [0.0; 2])), "`virtual:0` was handed 2 numbers where 3 are needed");
    assert_eq!(
        words(a.reduce(Reduction::Sum, x, out, 2)),
        "`virtual:0` was handed 2 numbers where 3 are needed"
    );
    a.free(x);
    with(&mut a, &[3.0, 4.0]);
    assert_eq!(words(a.fill(x, 0.0)), "`virtual:0` was handed memory that it does not hold");
    let huge = usize::MAX / 8;
    assert_eq!(
        words(a.alloc(huge)),
        format!("`virtual:0` has no room for {}", crate::units::bytes(huge as u64 * 4))
    );
    let pinned = a.staging(Memory::Pinned, 1).err().map(|e| e.to_string());
    assert_eq!(pinned.as_deref(), Some("`virtual:0` cannot be used: pinned memory needs a GPU's driver"));
    // What was refused has lost nothing.
    a.add(out, out, short).expect_err("lengths differ");
    assert_eq!(numbers(&mut a, short), [1.0]);
}

#[test]
fn operations_agree_with_double_precision() {
    let mut place = HostBackend::cpu(2);
    let (m, k, n) = (260, 257, 258); // large enough to be shared by threads
    let at = |i: usize| ((i * 37 % 101) as f32 - 50.0) / 50.0;
    let (a, b): (Vec<f32>, Vec<f32>) = ((0..m * k).map(at).collect(), (0..k * n).map(at).collect());
    let (x, w) = (with(&mut place, &a), with(&mut place, &b));
    let bias = with(&mut place, &vec![0.5; n]);
    let (y, z, cell) = (place.alloc(m * n), place.alloc(m * n), place.alloc(3));
    let (y, z, cell) = (y.expect("room"), z.expect("room"), cell.expect("room"));
    assert!(m * k * n > SHARED_PRODUCT);
    place.product(x, w, y, [m, k, n]).expect("a product");
    let turned: Vec<f32> = (0..n * k).map(|i| b[i % k * n + i / k]).collect();
    let weight = with(&mut place, &turned);
    place.linear(Linear { x, weight, bias: Some(bias), y: z, shape: [m, k, n] }).expect("a layer");
    let (product, layer) = (numbers(&mut place, y), numbers(&mut place, z));
    let mut squares = 0.0;
    for i in 0..m {
        for j in 0..n {
            let terms = (0..k).map(|t| f64::from(a[i * k + t]) * f64::from(b[t * n + j]));
            let exact: f64 = terms.sum();
            squares += exact * exact;
            assert!((f64::from(product[i * n + j]) - exact).abs() < 1e-4);
            assert!((f64::from(layer[i * n + j]) - exact - 0.5).abs() < 1e-4);
        }
    }
    place.reduce(Reduction::Frobenius, y, cell, 0).expect("a norm");
    place.reduce(Reduction::Trace, y, cell, 1).expect("a trace");
    place.reduce(Reduction::Sum, bias, cell, 2).expect("a sum");
    let cells = numbers(&mut place, cell);
    for (got, want) in cells.iter().zip([squares.sqrt(), squares, n as f64 / 2.0]) {
        assert!((f64::from(*got) / want - 1.0).abs() < 1e-5, "{got} {want}");
    }
    place.activate(Activation::Relu, y, z).expect("an activation");
    assert!(numbers(&mut place, z).iter().zip(&product).all(|(z, y)| *z == y.max(0.0)));
}
