//! Kernels over whole tensors.

use super::driver::{Driver, Grid, argument};
use crate::conformance::{Numbers, close};

#[test]
fn tensors_follow_their_definitions() {
    let Some(driver) = Driver::get() else { return };
    for n in [0usize, 1, 33, 1000] {
        let (a, b) = (Numbers(1).take(n), Numbers(2).take(n));
        let (da, db) = (driver.holding(&a), driver.holding(&b));
        let y = driver.holding(&vec![f32::NAN; n]);
        let (mut pa, mut pb, mut py, mut len) = (da.address, db.address, y.address, n as u64);
        let arguments = &mut [argument(&mut pa), argument(&mut pb), argument(&mut py), argument(&mut len)];
        driver.launch("tensor_add", Grid::new(3, 64), arguments);
        let want: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
        assert_eq!(y.read::<f32>(n), want);

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

        let partial = driver.holding(&[0.0f64; 1025]);
        let out = driver.holding(&[f32::NAN]);
        let squares: f64 = a.iter().map(|x| f64::from(*x).powi(2)).sum();
        for (mut root, want) in [(0, squares), (1, squares.sqrt())] {
            let (mut count, mut pp, mut po) = (n as u64, partial.address, out.address);
            driver.launch(
                "tensor_reduce",
                Grid::new(3, 64),
                &mut [
                    argument(&mut pa),
                    argument(&mut count),
                    argument(&mut root),
                    argument(&mut pp),
                    argument(&mut po),
                ],
            );
            close(&out.read::<f32>(1), &[want], 1e-6, "a norm");
        }
    }
}

#[test]
fn a_product_of_tensors_follows_its_definition() {
    let Some(driver) = Driver::get() else { return };
    for [m, k, n] in [[1, 1, 1], [5, 33, 70], [100, 100, 100]] {
        let (a, b) = (Numbers(1).take(m * k), Numbers(2).take(k * n));
        let (da, db, dc) = (driver.holding(&a), driver.holding(&b), driver.holding(&vec![f32::NAN; m * n]));
        let (mut pa, mut pb, mut pc) = (da.address, db.address, dc.address);
        let [mut im, mut ik, mut inn] = [m as i32, k as i32, n as i32];
        let mut flags = 0i32;
        driver.launch(
            "tensor_matmul",
            Grid::new(3, 256),
            &mut [
                argument(&mut pa),
                argument(&mut pb),
                argument(&mut pc),
                argument(&mut im),
                argument(&mut ik),
                argument(&mut inn),
                argument(&mut flags),
            ],
        );
        let mut want = vec![0.0; m * n];
        for i in 0..m {
            for j in 0..n {
                want[i * n + j] =
                    (0..k).map(|p| f64::from(a[i * k + p]) * f64::from(b[p * n + j])).sum::<f64>();
            }
        }
        close(&dc.read::<f32>(m * n), &want, 1e-5, "a product");
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
