//! The host as a backend for tensors.

use super::*;
use crate::op::Add;

fn whole(buffer: usize, len: usize) -> Slice {
    Slice { buffer: BufferId(buffer), offset: 0, len }
}

fn words<T: std::fmt::Debug>(result: Result<T, DeviceError>) -> String {
    result.expect_err("a refusal").to_string()
}

#[test]
fn foreign_freed_and_misfit_memory_is_refused() {
    let mut device = HostBackend::virtual_gpu(0);
    let [x, y] = [0, 1].map(BufferId);
    [x, y].into_iter().for_each(|block| device.alloc(block, 2, 0.0).expect("room"));
    let add = |b: usize, len| Op::from(Add { a: whole(0, len), b: whole(b, len), y: whole(1, len) });
    assert_eq!(words(device.run(&add(2, 2))), "`virtual:0` was handed an op that reaches beyond its buffers");
    assert_eq!(words(device.run(&add(0, 3))), "`virtual:0` was handed an op that reaches beyond its result");
    assert_eq!(words(device.write(x, &[0.0])), "`virtual:0` was handed 1 numbers where 2 are needed");
    assert_eq!(words(device.read(x, &mut [0.0; 3])), "`virtual:0` was handed a block that is too short");
    let huge = usize::MAX / 8;
    let room = crate::units::bytes(huge as u64 * 4);
    assert_eq!(words(device.alloc(x, huge, 0.0)), format!("`virtual:0` has no room for {room}"));
    let pinned = device.staging(Memory::Pinned, 1).err().map(|e| e.to_string());
    assert_eq!(pinned.as_deref(), Some("`virtual:0` cannot be used: pinned memory needs a GPU's driver"));
    // A refused operation leaves the blocks intact.
    assert_eq!(device.run(&add(0, 2)).err().map(|e| e.to_string()), None);
    device.clear();
    assert_eq!(words(device.write(x, &[0.0; 2])), "`virtual:0` was handed memory that it does not hold");
}

/// The tests of the lab compare small products with double precision.
#[test]
fn threads_share_a_large_product_and_change_no_bit() {
    let (m, k, n) = (260, 257, 258);
    assert!(m * k * n > crate::device::cpu::product_threads::SHARED_PRODUCT);
    let [x, weight, y] = [whole(0, m * k), whole(1, k * n), whole(2, m * n)];
    for op in [
        Linear { x, weight, bias: None, activation: None, pre: None, y, rows: m, inputs: k, outputs: n }
            .into(),
        InputGradient { dy: x, weight, dx: y, derivative: None, rows: m, inputs: n, outputs: k }.into(),
    ] {
        let [alone, together] = [1, 3].map(|threads| {
            let mut device = HostBackend::cpu(threads);
            for slice in [x, weight, y] {
                let values: Vec<f32> = (0..slice.len).map(|i| (i * 37 % 101) as f32 / 50.0 - 1.0).collect();
                device.alloc(slice.buffer, slice.len, f32::NAN).expect("room");
                device.write(slice.buffer, &values).expect("own memory");
            }
            device.run(&op).expect("an op");
            device.block(y.buffer).expect("own memory").to_vec()
        });
        assert!(alone == together);
    }
}
