//! Kernels over whole tensors.

use super::driver::{Driver, Grid, argument};
use crate::conformance::Numbers;

#[test]
fn tensors_follow_their_definitions() {
    let Some(driver) = Driver::get() else { return };
    for n in [0usize, 1, 33, 1000] {
        let a = Numbers(1).take(n);
        let da = driver.holding(&a);
        let y = driver.holding(&vec![f32::NAN; n]);
        let (mut pa, mut py, mut len) = (da.address, y.address, n as u64);
        driver.launch(
            "tensor_copy",
            Grid::new(3, 64),
            &mut [argument(&mut pa), argument(&mut py), argument(&mut len)],
        );
        assert_eq!(y.read::<f32>(n), a);

        let mut value = 2.5f32;
        driver.launch(
            "tensor_fill",
            Grid::new(2, 32),
            &mut [argument(&mut py), argument(&mut len), argument(&mut value)],
        );
        assert_eq!(y.read::<f32>(n), vec![2.5; n]);
    }
}

#[test]
fn a_digest_is_that_of_every_device() {
    let Some(driver) = Driver::get() else { return };
    let x = Numbers(3).take(1000);
    let digest = |x: &[f32], blocks| {
        let (memory, out) = (driver.holding(x), driver.holding(&[5u64]));
        let (mut px, mut n, mut po) = (memory.address, x.len() as u64, out.address);
        let arguments = &mut [argument(&mut px), argument(&mut n), argument(&mut po)];
        driver.launch("digest", Grid::new(blocks, 64), arguments);
        out.read::<u64>(1)[0]
    };
    let want = runner::device::digest(&x).wrapping_add(5);
    assert_eq!((digest(&x, 1), digest(&x, 3)), (want, want));
    let mut other = x.clone();
    other.swap(10, 700);
    assert_ne!(digest(&other, 1), want);
}
