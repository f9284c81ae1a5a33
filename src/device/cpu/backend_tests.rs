//! The host as a device for tensors: its own memory, and that of virtual GPUs.

use super::*;
use crate::op::{Activate, Activation, Add, BufferId, SquareSum};

fn numbers(device: &mut HostBackend, handle: Handle) -> Vec<f32> {
    let mut values = vec![0.0; handle.len];
    device.read(handle, &mut values).expect("own memory");
    values
}

fn with(device: &mut HostBackend, values: &[f32]) -> Handle {
    let handle = device.alloc(values.len(), f32::NAN).expect("room");
    device.write(handle, values).expect("own memory");
    handle
}

fn words<T: std::fmt::Debug>(result: Result<T, DeviceError>) -> String {
    result.expect_err("a refusal").to_string()
}

/// The whole of a block.
fn whole(blocks: &[Handle], buffer: usize) -> Slice {
    Slice { buffer: BufferId(buffer), offset: 0, len: blocks[buffer].len }
}

#[test]
fn only_copies_reach_a_virtual_gpu() {
    let (mut cpu, mut gpu) = (HostBackend::cpu(1), HostBackend::virtual_gpu(1));
    let fresh = gpu.alloc(3, 2.0).expect("room");
    assert_eq!(numbers(&mut gpu, fresh), [2.0; 3]);
    assert_eq!((gpu.name(), gpu.bytes(), gpu.is_host()), ("virtual:1", 12, false));
    assert_eq!(gpu.write(fresh, &[1.0; 3]).expect("own"), Moved::Bytes(12));
    let own = cpu.alloc(3, f32::NAN).expect("room");
    assert_eq!(cpu.write(own, &[1.0; 3]).expect("own"), Moved::Nothing);
    assert_eq!(cpu.copy_from(own, &mut gpu, fresh).expect("own"), Moved::Bytes(12));
}

#[test]
fn foreign_freed_and_misfit_memory_is_refused() {
    let (mut a, mut b) = (HostBackend::virtual_gpu(0), HostBackend::virtual_gpu(0));
    let (x, y) = (with(&mut a, &[1.0, 2.0]), with(&mut b, &[1.0, 2.0]));
    let add =
        |blocks: &[Handle]| Op::from(Add { a: whole(blocks, 0), b: whole(blocks, 1), y: whole(blocks, 2) });
    let out = a.alloc(2, 0.0).expect("room");
    let foreign = [x, y, out];
    assert_eq!(
        words(a.run(&add(&foreign), &foreign)),
        "`virtual:0` was handed an op that reaches beyond its buffers"
    );
    let foreign = [x, x, y];
    assert_eq!(words(a.run(&add(&foreign), &foreign)), "`virtual:0` was handed memory that it does not hold");
    assert_eq!(words(a.write(x, &[0.0])), "`virtual:0` was handed 2 numbers where 1 are needed");
    assert_eq!(words(a.read(x, &mut [0.0; 3])), "`virtual:0` was handed a block that is too short");
    let huge = usize::MAX / 8;
    assert_eq!(
        words(a.alloc(huge, 0.0)),
        format!("`virtual:0` has no room for {}", crate::units::bytes(huge as u64 * 4))
    );
    let pinned = a.staging(Memory::Pinned, 1).err().map(|e| e.to_string());
    assert_eq!(pinned.as_deref(), Some("`virtual:0` cannot be used: pinned memory needs a GPU's driver"));
    // What was refused has lost nothing.
    assert_eq!(numbers(&mut a, out), [0.0, 0.0]);
    a.clear();
    assert_eq!(words(a.write(x, &[0.0; 2])), "`virtual:0` was handed memory that it does not hold");
}

#[test]
fn ops_agree_with_double_precision() {
    let mut device = HostBackend::cpu(2);
    let (m, k, n) = (260, 257, 258); // large enough for two threads
    assert!(m * k * n > SHARED_PRODUCT);
    let at = |i: usize| ((i * 37 % 101) as f32 - 50.0) / 50.0;
    let (a, b): (Vec<f32>, Vec<f32>) = ((0..m * k).map(at).collect(), (0..k * n).map(at).collect());
    let turned: Vec<f32> = (0..n * k).map(|i| b[i % k * n + i / k]).collect();
    let mut blocks = [&a[..], &b, &turned, &vec![0.5; n]].map(|values| with(&mut device, values)).to_vec();
    for len in [m * n, m * n, m * n, m * n, 1, 1] {
        blocks.push(device.alloc(len, f32::NAN).expect("room"));
    }
    let [x, w, weight, bias, y, z, biased, relu, root, squares] =
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9].map(|buffer| whole(&blocks, buffer));
    let ops: [Op; 6] = [
        Linear { x, weight: w, bias: None, activation: None, pre: None, y, rows: m, inputs: k, outputs: n }
            .into(),
        InputGradient { dy: x, weight, dx: z, derivative: None, rows: m, inputs: n, outputs: k }.into(),
        Add { a: z, b: bias, y: biased }.into(),
        Activate { activation: Activation::Relu, x: y, y: relu, rows: m, width: n }.into(),
        SquareSum { of: y, cell: root, root: true }.into(),
        SquareSum { of: y, cell: squares, root: false }.into(),
    ];
    ops.iter().for_each(|op| device.run(op, &blocks).expect("an op"));
    let mut values = |slice: Slice| numbers(&mut device, blocks[slice.buffer.0]);
    let (product, layer) = (values(y), values(biased));
    let mut total = 0.0;
    for i in 0..m {
        for j in 0..n {
            let exact: f64 = (0..k).map(|t| f64::from(a[i * k + t]) * f64::from(b[t * n + j])).sum();
            total += exact * exact;
            assert!((f64::from(product[i * n + j]) - exact).abs() < 1e-4);
            assert!((f64::from(layer[i * n + j]) - exact - 0.5).abs() < 1e-4);
        }
    }
    for (got, want) in [(values(root)[0], total.sqrt()), (values(squares)[0], total)] {
        assert!((f64::from(got) / want - 1.0).abs() < 1e-5, "{got} {want}");
    }
    assert!(values(relu).iter().zip(&product).all(|(z, y)| *z == y.max(0.0)));
}
