//! AVX-512: 16 lanes, 32 registers.

use std::arch::x86_64::*;

use super::compile;
use super::vector::Vector;

compile!(#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,bmi2")] __m512, 16, 8, [1 2 3 4 5 6 7 8 9 10 11 12 13 14]);

// SAFETY, for every block in here: the trait's contract.
#[allow(clippy::undocumented_unsafe_blocks)]
impl Vector for __m512 {
    const LANES: usize = 16;
    type Mask = __mmask16;
    #[inline(always)]
    unsafe fn first(lanes: usize) -> __mmask16 {
        if lanes >= 16 { !0 } else { (1 << lanes) - 1 }
    }
    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        unsafe { _mm512_set1_ps(x) }
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        unsafe { _mm512_loadu_ps(from) }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        unsafe { _mm512_storeu_ps(to, self) }
    }
    #[inline(always)]
    unsafe fn stream(self, to: *mut f32) {
        unsafe { _mm512_stream_ps(to, self) }
    }
    #[inline(always)]
    fn fence() {
        // SAFETY: sfence is part of SSE, which every x86-64 has.
        unsafe { _mm_sfence() }
    }
    #[inline(always)]
    unsafe fn load_some(from: *const f32, mask: __mmask16) -> Self {
        unsafe { _mm512_maskz_loadu_ps(mask, from) }
    }
    #[inline(always)]
    unsafe fn store_some(self, to: *mut f32, mask: __mmask16) {
        unsafe { _mm512_mask_storeu_ps(to, mask, self) }
    }
    #[inline(always)]
    unsafe fn mul_add(self, b: Self, c: Self) -> Self {
        unsafe { _mm512_fmadd_ps(self, b, c) }
    }
    #[inline(always)]
    unsafe fn add(self, b: Self) -> Self {
        unsafe { _mm512_add_ps(self, b) }
    }
    #[inline(always)]
    unsafe fn at_least(self, floor: Self) -> Self {
        unsafe { _mm512_max_ps(floor, self) }
    }
    #[inline(always)]
    unsafe fn where_positive(self, x: Self) -> Self {
        unsafe { _mm512_maskz_mov_ps(_mm512_cmp_ps_mask::<_CMP_GT_OQ>(x, _mm512_setzero_ps()), self) }
    }
    #[inline(always)]
    unsafe fn sum(self) -> f32 {
        unsafe { _mm512_reduce_add_ps(self) }
    }
    #[inline(always)]
    unsafe fn deinterleave(low: Self, high: Self) -> (Self, Self) {
        unsafe {
            let even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
            let odd = _mm512_or_si512(even, _mm512_set1_epi32(1));
            (_mm512_permutex2var_ps(low, even, high), _mm512_permutex2var_ps(low, odd, high))
        }
    }
    #[inline(always)]
    unsafe fn transpose(block: &mut [Self]) {
        unsafe {
            let mut t = [_mm512_setzero_ps(); 16];
            for i in 0..8 {
                t[2 * i] = _mm512_unpacklo_ps(block[2 * i], block[2 * i + 1]);
                t[2 * i + 1] = _mm512_unpackhi_ps(block[2 * i], block[2 * i + 1]);
            }
            let pair = |a, b| (_mm512_castps_pd(a), _mm512_castps_pd(b));
            let mut u = t;
            for g in [0, 4, 8, 12] {
                let (a, b) = pair(t[g], t[g + 2]);
                u[g] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
                u[g + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
                let (a, b) = pair(t[g + 1], t[g + 3]);
                u[g + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
                u[g + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
            }
            // `u[4 g + c]` holds, in its 128-bit part p, rows 4 g to 4 g + 3 of column 4 p + c.
            for c in 0..4 {
                let even = _mm512_shuffle_f32x4::<0x88>(u[c], u[c + 4]);
                let even_below = _mm512_shuffle_f32x4::<0x88>(u[c + 8], u[c + 12]);
                let odd = _mm512_shuffle_f32x4::<0xdd>(u[c], u[c + 4]);
                let odd_below = _mm512_shuffle_f32x4::<0xdd>(u[c + 8], u[c + 12]);
                block[c] = _mm512_shuffle_f32x4::<0x88>(even, even_below);
                block[c + 4] = _mm512_shuffle_f32x4::<0x88>(odd, odd_below);
                block[c + 8] = _mm512_shuffle_f32x4::<0xdd>(even, even_below);
                block[c + 12] = _mm512_shuffle_f32x4::<0xdd>(odd, odd_below);
            }
        }
    }
}
