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

/// The bfloat16 number nearest to x; of two equally near the even one.
fn nearest(x: f32) -> u16 {
    let below = (x.to_bits() >> 16) as u16;
    // What lies beyond the largest number counts as the next power of two.
    let value = |bits: u16| match bits & 0x7fff {
        0x7f80 => 2f64.powi(128).copysign(f64::from(x)),
        _ => f64::from(f32::from_bits(u32::from(bits) << 16)),
    };
    let distance = |bits| (f64::from(x) - value(bits)).abs();
    let (down, up) = (distance(below), distance(below + 1));
    if down < up || down == up && below.is_multiple_of(2) { below } else { below + 1 }
}

#[test]
fn a_copy_in_bf16_holds_the_nearest_numbers_and_nan_stays_nan() {
    let Some(driver) = Driver::get() else { return };
    let ends = [0.0, -0.0, f32::MIN_POSITIVE, 1e-40, -1e-45, f32::MAX, f32::MIN, 3.389e38, 3.396e38];
    let ties =
        [0x3f80_8000, 0x3f81_8000, 0xbf80_8000, 0x3f80_8001, 0x3f80_7fff, 0x3fff_ffff].map(f32::from_bits);
    let all: Vec<f32> = ends.into_iter().chain(ties).chain(Numbers(5).take(257)).collect();
    for n in [0, 1, 15, 16, all.len()] {
        let x = &all[..n];
        let y = driver.holding(&vec![0xaaaau16; x.len() + 1]);
        let dx = driver.holding(x);
        let (mut px, mut py, mut len) = (dx.address, y.address, x.len() as u64);
        let arguments = &mut [argument(&mut px), argument(&mut py), argument(&mut len)];
        driver.launch("copy_bf16", Grid::new(2, 32), arguments);
        let want: Vec<u16> = x.iter().map(|x| nearest(*x)).chain([0xaaaa]).collect();
        assert_eq!(y.read::<u16>(x.len() + 1), want);
    }
    let odd = [f32::INFINITY, f32::NEG_INFINITY, f32::from_bits(0x7f80_0001), f32::from_bits(0xffff_ffff)];
    let (dx, y) = (driver.holding(&odd), driver.holding(&[0u16; 4]));
    let (mut px, mut py, mut len) = (dx.address, y.address, 4u64);
    driver.launch(
        "copy_bf16",
        Grid::new(1, 32),
        &mut [argument(&mut px), argument(&mut py), argument(&mut len)],
    );
    let got: Vec<f32> = y.read::<u16>(4).iter().map(|bits| f32::from_bits(u32::from(*bits) << 16)).collect();
    assert_eq!(got[..2], odd[..2]);
    assert!(got[2].is_nan() && got[3].is_nan(), "{got:?}");
}

/// Numbers on which algorithms are compared: none so small or large that another order of sums would not show.
#[test]
fn noise_is_of_both_signs_and_below_one() {
    let Some(driver) = Driver::get() else { return };
    for half in [0i32, 1] {
        let to = driver.holding(&[u32::MAX; 1001]);
        let (mut pt, mut words, mut seed, mut halves) = (to.address, 1000u64, 7u64 << 32, half);
        let arguments =
            &mut [argument(&mut pt), argument(&mut words), argument(&mut seed), argument(&mut halves)];
        driver.launch("noise", Grid::new(3, 32), arguments);
        let words = to.read::<u32>(1001);
        let numbers = words[..1000].iter().flat_map(|word| match half {
            0 => vec![f32::from_bits(*word)],
            _ => vec![f32::from_bits(word << 16), f32::from_bits(word & 0xffff_0000)],
        });
        let numbers: Vec<f32> = numbers.collect();
        assert!(numbers.iter().all(|x| (0.0625..1.0).contains(&x.abs())), "{numbers:?}");
        let mean = numbers.iter().sum::<f32>() / numbers.len() as f32;
        assert!(mean.abs() < 0.05, "{mean}");
        assert_eq!(words[1000], u32::MAX);
    }
}
