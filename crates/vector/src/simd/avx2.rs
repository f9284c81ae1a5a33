//! AVX2 and FMA: 8 lanes, 16 registers.

use std::arch::x86_64::*;

use super::compile;
use super::vector::Vector;

compile!(#[target_feature(enable = "avx2,fma,bmi2")] __m256, 8, 8, [1 2 3 4 5 6]);

// SAFETY, for every block in here: the trait's contract.
#[allow(clippy::undocumented_unsafe_blocks)]
impl Vector for __m256 {
    const LANES: usize = 8;
    type Mask = __m256i;
    #[inline(always)]
    unsafe fn first(lanes: usize) -> __m256i {
        unsafe {
            let lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
            _mm256_cmpgt_epi32(_mm256_set1_epi32(lanes.min(8) as i32), lane)
        }
    }
    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        unsafe { _mm256_set1_ps(x) }
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        unsafe { _mm256_loadu_ps(from) }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        unsafe { _mm256_storeu_ps(to, self) }
    }
    #[inline(always)]
    unsafe fn stream(self, to: *mut f32) {
        unsafe { _mm256_stream_ps(to, self) }
    }
    #[inline(always)]
    fn fence() {
        // SAFETY: sfence is part of SSE, which every x86-64 has.
        unsafe { _mm_sfence() }
    }
    #[inline(always)]
    unsafe fn load_some(from: *const f32, mask: __m256i) -> Self {
        unsafe { _mm256_maskload_ps(from, mask) }
    }
    #[inline(always)]
    unsafe fn store_some(self, to: *mut f32, mask: __m256i) {
        unsafe { _mm256_maskstore_ps(to, mask, self) }
    }
    #[inline(always)]
    unsafe fn mul_add(self, b: Self, c: Self) -> Self {
        unsafe { _mm256_fmadd_ps(self, b, c) }
    }
    #[inline(always)]
    unsafe fn add(self, b: Self) -> Self {
        unsafe { _mm256_add_ps(self, b) }
    }
    #[inline(always)]
    unsafe fn at_least(self, floor: Self) -> Self {
        unsafe { _mm256_max_ps(floor, self) }
    }
    #[inline(always)]
    unsafe fn where_positive(self, x: Self) -> Self {
        unsafe { _mm256_and_ps(_mm256_cmp_ps::<_CMP_GT_OQ>(x, _mm256_setzero_ps()), self) }
    }
    #[inline(always)]
    unsafe fn sum(self) -> f32 {
        unsafe {
            let half = _mm_add_ps(_mm256_castps256_ps128(self), _mm256_extractf128_ps::<1>(self));
            let pair = _mm_add_ps(half, _mm_movehl_ps(half, half));
            _mm_cvtss_f32(_mm_add_ss(pair, _mm_movehdup_ps(pair)))
        }
    }
    #[inline(always)]
    unsafe fn deinterleave(low: Self, high: Self) -> (Self, Self) {
        unsafe {
            // Each 128-bit part takes two of `low`, then two of `high`; the 64-bit permutation undoes that.
            let even = _mm256_castps_pd(_mm256_shuffle_ps::<0x88>(low, high));
            let odd = _mm256_castps_pd(_mm256_shuffle_ps::<0xdd>(low, high));
            (
                _mm256_castpd_ps(_mm256_permute4x64_pd::<0xd8>(even)),
                _mm256_castpd_ps(_mm256_permute4x64_pd::<0xd8>(odd)),
            )
        }
    }
    #[inline(always)]
    unsafe fn transpose(block: &mut [Self]) {
        unsafe {
            let mut t = [_mm256_setzero_ps(); 8];
            for i in 0..4 {
                t[2 * i] = _mm256_unpacklo_ps(block[2 * i], block[2 * i + 1]);
                t[2 * i + 1] = _mm256_unpackhi_ps(block[2 * i], block[2 * i + 1]);
            }
            let mut u = t;
            for g in [0, 4] {
                u[g] = _mm256_shuffle_ps::<0x44>(t[g], t[g + 2]);
                u[g + 1] = _mm256_shuffle_ps::<0xee>(t[g], t[g + 2]);
                u[g + 2] = _mm256_shuffle_ps::<0x44>(t[g + 1], t[g + 3]);
                u[g + 3] = _mm256_shuffle_ps::<0xee>(t[g + 1], t[g + 3]);
            }
            for c in 0..4 {
                block[c] = _mm256_permute2f128_ps::<0x20>(u[c], u[c + 4]);
                block[c + 4] = _mm256_permute2f128_ps::<0x31>(u[c], u[c + 4]);
            }
        }
    }
}
