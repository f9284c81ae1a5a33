//! NEON: 4 lanes, 32 registers. Every AArch64 has it.

use std::arch::aarch64::*;

use super::compile;
use super::vector::Vector;

compile!(#[target_feature(enable = "neon")] float32x4_t, 4, 4, [1 2 3 4 5 6 7 8 9 10 11 12]);

// SAFETY, for every block in here: the trait's contract.
#[allow(clippy::undocumented_unsafe_blocks)]
impl Vector for float32x4_t {
    const LANES: usize = 4;
    type Mask = usize;
    #[inline(always)]
    unsafe fn first(lanes: usize) -> usize {
        lanes.min(4)
    }
    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        unsafe { vdupq_n_f32(x) }
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        unsafe { vld1q_f32(from) }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        unsafe { vst1q_f32(to, self) }
    }
    /// Past the caches there is only a store of pairs, and its hint is free to do nothing.
    #[inline(always)]
    unsafe fn stream(self, to: *mut f32) {
        unsafe { self.store(to) }
    }
    #[inline(always)]
    fn fence() {}
    #[inline(always)]
    unsafe fn load_some(from: *const f32, mask: usize) -> Self {
        unsafe {
            let zero = vdup_n_f32(0.0);
            match mask {
                0 => vdupq_n_f32(0.0),
                1 => vcombine_f32(vld1_lane_f32::<0>(from, zero), zero),
                2 => vcombine_f32(vld1_f32(from), zero),
                3 => vcombine_f32(vld1_f32(from), vld1_lane_f32::<0>(from.add(2), zero)),
                _ => vld1q_f32(from),
            }
        }
    }
    #[inline(always)]
    unsafe fn store_some(self, to: *mut f32, mask: usize) {
        unsafe {
            match mask {
                0 => {}
                1 => vst1q_lane_f32::<0>(to, self),
                2 => vst1_f32(to, vget_low_f32(self)),
                3 => {
                    vst1_f32(to, vget_low_f32(self));
                    vst1q_lane_f32::<2>(to.add(2), self);
                }
                _ => vst1q_f32(to, self),
            }
        }
    }
    #[inline(always)]
    unsafe fn mul_add(self, b: Self, c: Self) -> Self {
        unsafe { vfmaq_f32(c, self, b) }
    }
    #[inline(always)]
    unsafe fn add(self, b: Self) -> Self {
        unsafe { vaddq_f32(self, b) }
    }
    /// Not `fmax`, which makes 0 of -0 where the floor is 0; the other sets keep -0.
    #[inline(always)]
    unsafe fn at_least(self, floor: Self) -> Self {
        unsafe { vbslq_f32(vcgtq_f32(floor, self), floor, self) }
    }
    #[inline(always)]
    unsafe fn where_positive(self, x: Self) -> Self {
        unsafe { vreinterpretq_f32_u32(vandq_u32(vcgtzq_f32(x), vreinterpretq_u32_f32(self))) }
    }
    #[inline(always)]
    unsafe fn sum(self) -> f32 {
        unsafe { vpadds_f32(vadd_f32(vget_low_f32(self), vget_high_f32(self))) }
    }
    #[inline(always)]
    unsafe fn deinterleave(low: Self, high: Self) -> (Self, Self) {
        unsafe { (vuzp1q_f32(low, high), vuzp2q_f32(low, high)) }
    }
    #[inline(always)]
    unsafe fn transpose(block: &mut [Self]) {
        unsafe {
            let pairs = |a, b| [vtrn1q_f32(a, b), vtrn2q_f32(a, b)].map(|v| vreinterpretq_f64_f32(v));
            let ([a, b], [c, d]) = (pairs(block[0], block[1]), pairs(block[2], block[3]));
            block[0] = vreinterpretq_f32_f64(vzip1q_f64(a, c));
            block[1] = vreinterpretq_f32_f64(vzip1q_f64(b, d));
            block[2] = vreinterpretq_f32_f64(vzip2q_f64(a, c));
            block[3] = vreinterpretq_f32_f64(vzip2q_f64(b, d));
        }
    }
}
