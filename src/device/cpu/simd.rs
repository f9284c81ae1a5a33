//! Vector instructions, behind functions that are safe to call: the one file of the CPU backend with `unsafe`.
//!
//! Everything is written once, over the trait [`Vector`], and compiled for each [`InstructionSet`]: the generic code is
//! inlined into functions that bear `#[target_feature]`. A safe function checks every slice once, then runs raw pointers.
//!
//! **The tile.** [`InstructionSet::strip`] keeps a tile of the result in registers, `tile_rows` high and two vectors
//! wide, and walks k: two loads of the right operand, one broadcast per row of the left, two fused multiply-adds per row.
//!
//! | set | vector | tile | registers for sums |
//! | --- | --- | --- | --- |
//! | avx512 | 16 | 14 x 32 | 28 of 32 |
//! | avx2 | 8 | 6 x 16 | 12 of 16 |
//! | portable | 4 | 4 x 8 | 8 of 16 |
//!
//! **The order of additions.** A product's element is one chain over k, from first to last, whatever the tile: a tile of
//! fewer rows or columns, a packed or an unpacked operand, a chain put down in memory and taken up again give the same bits.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

/// A vector of f32. Methods are unsafe for the pointers they take and the instruction set that they need.
trait Vector: Copy {
    /// Numbers in it.
    const LANES: usize;
    /// Which of the lanes to load or store.
    type Mask: Copy;
    unsafe fn first(lanes: usize) -> Self::Mask;
    unsafe fn splat(x: f32) -> Self;
    unsafe fn load(from: *const f32) -> Self;
    unsafe fn store(self, to: *mut f32);
    /// Other lanes are 0, and their memory is not touched.
    unsafe fn load_some(from: *const f32, mask: Self::Mask) -> Self;
    unsafe fn store_some(self, to: *mut f32, mask: Self::Mask);
    /// `self * b + c`, rounded once where the hardware can.
    unsafe fn mul_add(self, b: Self, c: Self) -> Self;
    unsafe fn add(self, b: Self) -> Self;
    /// The larger; `self` where that is not a number.
    unsafe fn at_least(self, floor: Self) -> Self;
    /// Self where `x > 0`, else 0.
    unsafe fn where_positive(self, x: Self) -> Self;
    /// The sum of all lanes, in a fixed order.
    unsafe fn sum(self) -> f32;
    /// The same pointer, but the optimizer no longer knows how it came about.
    fn opaque(pointer: *const f32) -> *const f32;
    /// Has the cache line at `at` brought into the second-level cache.
    fn prefetch_far(at: *const f32);
    /// Has the cache line at `at` brought near; any address will do.
    fn prefetch(at: *const f32);
    /// Numbers 0, 2, 4, ... and 1, 3, 5, ... of `low` followed by `high`.
    unsafe fn deinterleave(low: Self, high: Self) -> (Self, Self);
    /// `block[i][j]` becomes `block[j][i]`; `block` has `LANES` vectors.
    unsafe fn transpose(block: &mut [Self]);
}

#[cfg(target_arch = "x86_64")]
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
    fn opaque(mut pointer: *const f32) -> *const f32 {
        // SAFETY: no instruction.
        unsafe {
            std::arch::asm!("/* {} */", inout(reg) pointer, options(pure, nomem, nostack, preserves_flags))
        };
        pointer
    }
    #[inline(always)]
    fn prefetch_far(at: *const f32) {
        // SAFETY: a prefetch of an address that is not mapped does nothing.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(at.cast()) }
    }
    #[inline(always)]
    fn prefetch(at: *const f32) {
        // SAFETY: a prefetch of an address that is not mapped does nothing.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
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

#[cfg(target_arch = "x86_64")]
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
    fn opaque(mut pointer: *const f32) -> *const f32 {
        // SAFETY: no instruction.
        unsafe {
            std::arch::asm!("/* {} */", inout(reg) pointer, options(pure, nomem, nostack, preserves_flags))
        };
        pointer
    }
    #[inline(always)]
    fn prefetch_far(at: *const f32) {
        // SAFETY: a prefetch of an address that is not mapped does nothing.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(at.cast()) }
    }
    #[inline(always)]
    fn prefetch(at: *const f32) {
        // SAFETY: a prefetch of an address that is not mapped does nothing.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
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

/// Four plain numbers: what every compiler target turns into its own smallest vector.
type Four = [f32; 4];

impl Vector for Four {
    const LANES: usize = 4;
    type Mask = usize;
    #[inline(always)]
    unsafe fn first(lanes: usize) -> usize {
        lanes.min(4)
    }
    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        [x; 4]
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        unsafe { from.cast::<Self>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        unsafe { to.cast::<Self>().write_unaligned(self) }
    }
    #[inline(always)]
    unsafe fn load_some(from: *const f32, mask: usize) -> Self {
        std::array::from_fn(|i| if i < mask { unsafe { *from.add(i) } } else { 0.0 })
    }
    #[inline(always)]
    unsafe fn store_some(self, to: *mut f32, mask: usize) {
        for (i, x) in self.into_iter().enumerate().take(mask) {
            unsafe { *to.add(i) = x }
        }
    }
    #[inline(always)]
    unsafe fn mul_add(self, b: Self, c: Self) -> Self {
        std::array::from_fn(|i| self[i] * b[i] + c[i])
    }
    #[inline(always)]
    unsafe fn add(self, b: Self) -> Self {
        std::array::from_fn(|i| self[i] + b[i])
    }
    #[inline(always)]
    unsafe fn at_least(self, floor: Self) -> Self {
        std::array::from_fn(|i| if floor[i] > self[i] { floor[i] } else { self[i] })
    }
    #[inline(always)]
    unsafe fn where_positive(self, x: Self) -> Self {
        std::array::from_fn(|i| if x[i] > 0.0 { self[i] } else { 0.0 })
    }
    #[inline(always)]
    unsafe fn sum(self) -> f32 {
        (self[0] + self[2]) + (self[1] + self[3])
    }
    #[inline(always)]
    fn opaque(pointer: *const f32) -> *const f32 {
        pointer
    }
    #[inline(always)]
    fn prefetch_far(_: *const f32) {}
    #[inline(always)]
    fn prefetch(_: *const f32) {}
    #[inline(always)]
    unsafe fn deinterleave(low: Self, high: Self) -> (Self, Self) {
        ([low[0], low[2], high[0], high[2]], [low[1], low[3], high[1], high[3]])
    }
    #[inline(always)]
    unsafe fn transpose(block: &mut [Self]) {
        let from = [block[0], block[1], block[2], block[3]];
        for (i, row) in block.iter_mut().enumerate() {
            *row = std::array::from_fn(|j| from[j][i]);
        }
    }
}

/// The vector instructions in use. A value can only name instructions that this machine has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InstructionSet(Set);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Set {
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    Portable,
}

#[cfg(target_arch = "x86_64")]
fn has_avx512() -> bool {
    std::arch::is_x86_feature_detected!("avx512f")
}

#[cfg(target_arch = "x86_64")]
fn has_avx2() -> bool {
    std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma")
}

/// How the left operand lies in memory.
#[derive(Clone, Copy)]
pub(super) enum Order {
    /// Element (row, k) at `row * stride + k`.
    Rows,
    /// Element (row, k) at `k * stride + row`.
    Columns,
}

/// What becomes of a finished sum before it is stored. Slices begin at the strip's first element.
#[derive(Clone, Copy)]
pub(super) enum Finish<'a> {
    /// `sum`
    Store,
    /// `max(sum + bias, floor)`
    Affine { bias: Option<&'a [f32]>, floor: f32 },
    /// `out - rate * sum`
    Update { rate: f32 },
    /// `sum` where `saved > 0`, else 0; `saved` lies as `out` does.
    WherePositive { saved: &'a [f32] },
}

/// One row of tiles: a few rows of the result, all of its columns.
pub(super) struct Strip<'a> {
    pub lhs: &'a [f32],
    pub lhs_order: Order,
    pub lhs_stride: usize,
    /// Rows of the result; at most `tile_rows`.
    pub rows: usize,
    pub k: usize,
    pub rhs: &'a [f32],
    /// From one k to the next.
    pub rhs_stride: usize,
    /// From one panel of columns to the next.
    pub rhs_panel_stride: usize,
    /// Columns of the result.
    pub columns: usize,
    pub out: &'a mut [f32],
    pub out_stride: usize,
    /// Start the sums from `out` instead of 0.
    pub resume: bool,
    pub finish: Finish<'a>,
    /// What the caller will read next from far memory: rows, of which each cache line is brought near meanwhile.
    pub ahead: [Ahead<'a>; 2],
}

/// Some rows of numbers, to be brought near.
#[derive(Clone, Copy, Default)]
pub(super) struct Ahead<'a> {
    pub data: &'a [f32],
    pub stride: usize,
    pub rows: usize,
    pub columns: usize,
}

/// How far the bringing near of an [`Ahead`] is.
struct Lines {
    at: *const f32,
    stride: usize,
    rows: usize,
    columns: usize,
    column: usize,
}

impl Lines {
    /// Starts on the next cache line.
    #[inline(always)]
    fn next<V: Vector>(&mut self) {
        if self.rows == 0 {
            return;
        }
        V::prefetch_far(self.at.wrapping_add(self.column));
        self.column += 16;
        if self.column >= self.columns {
            (self.at, self.rows, self.column) = (self.at.wrapping_add(self.stride), self.rows - 1, 0);
        }
    }
}

/// `Strip`, checked.
#[derive(Clone, Copy)]
struct RawStrip {
    lhs: *const f32,
    lhs_order: Order,
    lhs_stride: usize,
    k: usize,
    rhs: *const f32,
    rhs_stride: usize,
    rhs_panel_stride: usize,
    columns: usize,
    out: *mut f32,
    out_stride: usize,
    resume: bool,
    finish: RawFinish,
    ahead: [(*const f32, [usize; 3]); 2],
}

#[derive(Clone, Copy)]
enum RawFinish {
    Affine { bias: Option<*const f32>, floor: f32 },
    Update { rate: f32 },
    WherePositive { saved: *const f32 },
}

/// `outer` pieces of `inner` numbers, `stride` apart, lie within `data`.
fn check(data: &[f32], outer: usize, stride: usize, inner: usize) {
    let end = outer.checked_sub(1).and_then(|n| n.checked_mul(stride)).and_then(|n| n.checked_add(inner));
    assert!(
        outer == 0 || inner == 0 || end.is_some_and(|end| end <= data.len()),
        "operand shorter than its shape"
    );
}

impl InstructionSet {
    /// The best that this machine has.
    pub fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            if has_avx512() {
                return Self(Set::Avx512);
            }
            if has_avx2() {
                return Self(Set::Avx2);
            }
        }
        Self(Set::Portable)
    }

    /// Only what the compiler's target has by itself.
    pub fn portable() -> Self {
        Self(Set::Portable)
    }

    /// All that this machine has.
    #[cfg(test)]
    pub fn all() -> Vec<Self> {
        let mut all = vec![Self(Set::Portable)];
        #[cfg(target_arch = "x86_64")]
        {
            if has_avx2() {
                all.push(Self(Set::Avx2));
            }
            if has_avx512() {
                all.push(Self(Set::Avx512));
            }
        }
        all
    }

    pub fn name(self) -> &'static str {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Set::Avx512 => "avx512",
            #[cfg(target_arch = "x86_64")]
            Set::Avx2 => "avx2",
            Set::Portable => "portable",
        }
    }

    /// Numbers in a vector.
    pub fn lanes(self) -> usize {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Set::Avx512 => 16,
            #[cfg(target_arch = "x86_64")]
            Set::Avx2 => 8,
            Set::Portable => 4,
        }
    }

    /// Rows of the tallest tile.
    pub fn tile_rows(self) -> usize {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Set::Avx512 => 14,
            #[cfg(target_arch = "x86_64")]
            Set::Avx2 => 6,
            Set::Portable => 4,
        }
    }

    /// Computes a row of tiles.
    ///
    /// # Panics
    /// Where a slice is shorter than its shape says.
    #[inline]
    pub fn strip(self, s: Strip<'_>) {
        let width = 2 * self.lanes();
        assert!(s.rows <= self.tile_rows(), "strip taller than a tile");
        if s.rows == 0 || s.columns == 0 {
            return;
        }
        match s.lhs_order {
            Order::Rows => check(s.lhs, s.rows, s.lhs_stride, s.k),
            Order::Columns => check(s.lhs, s.k, s.lhs_stride, s.rows),
        }
        let last = if s.k == 0 { 0 } else { (s.columns - 1) / width };
        let step = last
            .checked_mul(s.rhs_panel_stride)
            .filter(|&n| n <= s.rhs.len())
            .expect("operand shorter than its shape");
        check(&s.rhs[step..], s.k, s.rhs_stride, s.columns - last * width);
        if last > 0 {
            let before = (last - 1) * s.rhs_panel_stride;
            check(&s.rhs[before..], s.k, s.rhs_stride, width);
        }
        check(s.out, s.rows, s.out_stride, s.columns);
        let finish = match s.finish {
            Finish::Store => RawFinish::Affine { bias: None, floor: f32::NEG_INFINITY },
            Finish::Affine { bias, floor } => {
                RawFinish::Affine { bias: bias.map(|b| b[..s.columns].as_ptr()), floor }
            }
            Finish::Update { rate } => RawFinish::Update { rate },
            Finish::WherePositive { saved } => {
                check(saved, s.rows, s.out_stride, s.columns);
                RawFinish::WherePositive { saved: saved.as_ptr() }
            }
        };
        let raw = RawStrip {
            lhs: s.lhs.as_ptr(),
            lhs_order: s.lhs_order,
            lhs_stride: s.lhs_stride,
            k: s.k,
            rhs: s.rhs.as_ptr(),
            rhs_stride: s.rhs_stride,
            rhs_panel_stride: s.rhs_panel_stride,
            columns: s.columns,
            out: s.out.as_mut_ptr(),
            out_stride: s.out_stride,
            resume: s.resume,
            finish,
            ahead: s.ahead.map(|a| (a.data.as_ptr(), [a.stride, a.rows, a.columns])),
        };
        // SAFETY: every address that a strip touches was checked above; the set's instructions are there.
        unsafe {
            match self.0 {
                #[cfg(target_arch = "x86_64")]
                Set::Avx512 => strip_avx512(&raw, s.rows),
                #[cfg(target_arch = "x86_64")]
                Set::Avx2 => strip_avx2(&raw, s.rows),
                Set::Portable => strip_portable(&raw, s.rows),
            }
        }
    }

    /// Copies `rows` x `columns` numbers at `from` to `to`, as rows of `width` numbers of which those past `columns` are 0.
    ///
    /// # Panics
    /// Where a slice is shorter than its shape says, or `columns` is more than `width`.
    pub fn copy(self, from: Matrix<'_>, rows: usize, columns: usize, to: MatrixMut<'_>, width: usize) {
        assert!(columns <= width, "more columns than the copy's width");
        check(from.data, rows, from.stride, columns);
        check(to.data, rows, to.stride, width);
        let raw = RawCopy {
            from: from.data.as_ptr(),
            from_stride: from.stride,
            rows,
            columns,
            to: to.data.as_mut_ptr(),
            to_stride: to.stride,
            width,
        };
        // SAFETY: both shapes were checked above; the set's instructions are there.
        unsafe {
            match self.0 {
                #[cfg(target_arch = "x86_64")]
                Set::Avx512 => copy_avx512(&raw),
                #[cfg(target_arch = "x86_64")]
                Set::Avx2 => copy_avx2(&raw),
                Set::Portable => copy_rows::<Four>(&raw),
            }
        }
    }

    /// Writes the transpose of `rows` x `columns` numbers at `from` to `to`, as rows of `width` numbers of which those
    /// past `rows` are 0.
    ///
    /// # Panics
    /// Where a slice is shorter than its shape says, or `rows` is more than `width`, or `width` more than a panel.
    pub fn transpose(self, from: Matrix<'_>, rows: usize, columns: usize, to: MatrixMut<'_>, width: usize) {
        assert!(rows <= width, "more rows than the transposed width");
        check(from.data, rows, from.stride, columns);
        check(to.data, columns, to.stride, width);
        let raw = RawCopy {
            from: from.data.as_ptr(),
            from_stride: from.stride,
            rows,
            columns,
            to: to.data.as_mut_ptr(),
            to_stride: to.stride,
            width,
        };
        // SAFETY: both shapes were checked above; the set's instructions are there.
        unsafe {
            match self.0 {
                #[cfg(target_arch = "x86_64")]
                Set::Avx512 => transpose_avx512(&raw),
                #[cfg(target_arch = "x86_64")]
                Set::Avx2 => transpose_avx2(&raw),
                Set::Portable => transpose_blocks::<Four, 4>(&raw),
            }
        }
    }
}

impl InstructionSet {
    /// `out[r] = max(x[r] . w + bias, floor)`.
    ///
    /// # Panics
    /// Where `x` is shorter than `out.len()` rows of `w.len()` numbers.
    pub fn dots(self, x: &[f32], w: &[f32], bias: f32, floor: f32, out: &mut [f32]) {
        check(x, out.len(), w.len(), w.len());
        // SAFETY: the shape was checked above; the set's instructions are there.
        unsafe {
            match self.0 {
                #[cfg(target_arch = "x86_64")]
                Set::Avx512 if w.len() == 2 => pairs_avx512(x, w, bias, floor, out),
                #[cfg(target_arch = "x86_64")]
                Set::Avx2 if w.len() == 2 => pairs_avx2(x, w, bias, floor, out),
                Set::Portable if w.len() == 2 => dot_pairs::<Four, 4>(x, w, bias, floor, out),
                #[cfg(target_arch = "x86_64")]
                Set::Avx512 => dots_avx512(x, w, bias, floor, out),
                #[cfg(target_arch = "x86_64")]
                Set::Avx2 => dots_avx2(x, w, bias, floor, out),
                Set::Portable => dot_rows::<Four, 4, 4>(x, w, bias, floor, out),
            }
        }
    }

    /// `out[c] = sum over r of x[r][c] * weights[r]`, or `out[c] - rate * sum`.
    ///
    /// # Panics
    /// Where `x` is shorter than `weights.len()` rows of `out.len()` numbers.
    pub fn weigh(self, x: Matrix<'_>, weights: &[f32], rate: Option<f32>, out: &mut [f32]) {
        check(x.data, weights.len(), x.stride, out.len());
        // SAFETY: the shape was checked above; the set's instructions are there.
        unsafe {
            match self.0 {
                #[cfg(target_arch = "x86_64")]
                Set::Avx512 => weigh_avx512(x, weights, rate, out),
                #[cfg(target_arch = "x86_64")]
                Set::Avx2 => weigh_avx2(x, weights, rate, out),
                Set::Portable => weigh_rows::<Four>(x, weights, rate, out),
            }
        }
    }
}

/// Numbers in rows, `stride` apart.
#[derive(Clone, Copy)]
pub(super) struct Matrix<'a> {
    pub data: &'a [f32],
    pub stride: usize,
}

/// The same, to be written.
pub(super) struct MatrixMut<'a> {
    pub data: &'a mut [f32],
    pub stride: usize,
}

macro_rules! for_set {
    ($feature:literal, $vector:ty, $lanes:literal, $strip:ident, $strip_of:ident, $transpose:ident, $copy:ident, $dots:ident, $pairs:ident, $weigh:ident, $($rows:literal)*) => {
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = $feature)]
        unsafe fn $strip(s: &RawStrip, rows: usize) {
            match rows {
                $($rows => unsafe { $strip_of::<$rows>(s) },)*
                _ => {}
            }
        }
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = $feature)]
        #[inline(never)]
        unsafe fn $strip_of<const R: usize>(s: &RawStrip) {
            unsafe { tiles::<$vector, R>(s) }
        }
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = $feature)]
        unsafe fn $transpose(t: &RawCopy) {
            unsafe { transpose_blocks::<$vector, $lanes>(t) }
        }
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = $feature)]
        unsafe fn $copy(t: &RawCopy) {
            unsafe { copy_rows::<$vector>(t) }
        }
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = $feature)]
        unsafe fn $dots(x: &[f32], w: &[f32], bias: f32, floor: f32, out: &mut [f32]) {
            unsafe { dot_rows::<$vector, $lanes, 8>(x, w, bias, floor, out) }
        }
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = $feature)]
        unsafe fn $pairs(x: &[f32], w: &[f32], bias: f32, floor: f32, out: &mut [f32]) {
            unsafe { dot_pairs::<$vector, $lanes>(x, w, bias, floor, out) }
        }
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = $feature)]
        unsafe fn $weigh(x: Matrix<'_>, weights: &[f32], rate: Option<f32>, out: &mut [f32]) {
            unsafe { weigh_rows::<$vector>(x, weights, rate, out) }
        }
    };
}

for_set!("avx512f", __m512, 16, strip_avx512, strip_of_avx512, transpose_avx512, copy_avx512, dots_avx512, pairs_avx512, weigh_avx512, 1 2 3 4 5 6 7 8 9 10 11 12 13 14);
for_set!("avx2,fma", __m256, 8, strip_avx2, strip_of_avx2, transpose_avx2, copy_avx2, dots_avx2, pairs_avx2, weigh_avx2, 1 2 3 4 5 6);

unsafe fn strip_portable(s: &RawStrip, rows: usize) {
    unsafe {
        match rows {
            1 => tiles::<Four, 1>(s),
            2 => tiles::<Four, 2>(s),
            3 => tiles::<Four, 3>(s),
            _ => tiles::<Four, 4>(s),
        }
    }
}

/// All tiles of a strip of `R` rows.
#[inline(always)]
unsafe fn tiles<V: Vector, const R: usize>(s: &RawStrip) {
    let (width, mut column, mut rhs) = (2 * V::LANES, 0, s.rhs);
    let ahead =
        &mut s.ahead.map(|(at, [stride, rows, columns])| Lines { at, stride, rows, columns, column: 0 });
    while column < s.columns {
        let left = s.columns - column;
        unsafe {
            match (s.lhs_order, left) {
                (Order::Rows, n) if n >= width => tile::<V, R, 2, true, false>(s, rhs, column, ahead),
                (Order::Rows, n) if n > V::LANES => tile::<V, R, 2, true, true>(s, rhs, column, ahead),
                (Order::Rows, _) => tile::<V, R, 1, true, true>(s, rhs, column, ahead),
                (Order::Columns, n) if n >= width => tile::<V, R, 2, false, false>(s, rhs, column, ahead),
                (Order::Columns, n) if n > V::LANES => tile::<V, R, 2, false, true>(s, rhs, column, ahead),
                (Order::Columns, _) => tile::<V, R, 1, false, true>(s, rhs, column, ahead),
            }
        }
        column += width;
        rhs = rhs.wrapping_add(s.rhs_panel_stride);
    }
}

/// `$body` for each row `$r` of a tile of `$rows`: written out, for the optimizer keeps sums in registers only where no
/// loop over them is left, and gives up on loops as long as these.
macro_rules! for_rows {
    ($r:ident < $rows:ident $body:block) => { for_rows!($r < $rows $body, 0 1 2 3 4 5 6 7 8 9 10 11 12 13) };
    ($r:ident < $rows:ident $body:block, $($number:literal)*) => {
        $(if $number < $rows {
            let $r: usize = $number;
            $body
        })*
    };
}

/// One tile: `R` rows, `C` vectors of columns from `column` on, of which the last may be a part (`PART`).
#[inline(always)]
unsafe fn tile<V: Vector, const R: usize, const C: usize, const ROWS: bool, const PART: bool>(
    s: &RawStrip,
    rhs: *const f32,
    column: usize,
    ahead: &mut [Lines; 2],
) {
    unsafe {
        let mask = V::first(s.columns - column - (C - 1) * V::LANES);
        let load = |from: *const f32, c: usize| {
            let from = from.add(c * V::LANES);
            if PART && c + 1 == C { V::load_some(from, mask) } else { V::load(from) }
        };
        let out = s.out.add(column);
        let mut sums = [[V::splat(0.0); C]; R];
        if s.resume {
            for_rows!(r < R {
                for (c, sum) in sums[r].iter_mut().enumerate() {
                    *sum = load(out.add(r * s.out_stride), c);
                }
            });
        }
        if s.columns - column > C * V::LANES {
            // The next tile's part of the result, while this one computes.
            for_rows!(r < R {
                for c in 0..C {
                    V::prefetch(out.wrapping_add(r * s.out_stride + (C + c) * V::LANES));
                }
            });
        }
        let (mut lhs, mut rhs) = (s.lhs, rhs);
        // Rows are addressed from every third one: a pointer each would not fit the registers.
        let mut third: [*const f32; 5] = std::array::from_fn(|i| s.lhs.wrapping_add(3 * i * s.lhs_stride));
        let mut k = s.k;
        while k > 0 {
            ahead[0].next::<V>();
            ahead[1].next::<V>();
            let few = k.min(16);
            k -= few;
            for _ in 0..few {
                let mut right = [V::splat(0.0); C];
                for (c, v) in right.iter_mut().enumerate() {
                    *v = load(rhs, c);
                }
                for_rows!(r < R {
                    let left = V::splat(if ROWS { *third[r / 3].add(r % 3 * s.lhs_stride) } else { *lhs.add(r) });
                    for (c, sum) in sums[r].iter_mut().enumerate() {
                        *sum = left.mul_add(right[c], *sum);
                    }
                });
                if ROWS {
                    for pointer in &mut third {
                        *pointer = V::opaque(pointer.wrapping_add(1));
                    }
                }
                lhs = lhs.wrapping_add(s.lhs_stride);
                rhs = rhs.wrapping_add(s.rhs_stride);
            }
        }
        let store = |to: *mut f32, c: usize, v: V| {
            let to = to.add(c * V::LANES);
            if PART && c + 1 == C { v.store_some(to, mask) } else { v.store(to) }
        };
        match s.finish {
            RawFinish::Affine { bias, floor } => {
                let floor = V::splat(floor);
                // Adding -0 changes nothing, not even the sign of a zero.
                let mut add = [V::splat(-0.0); C];
                if let Some(bias) = bias {
                    for (c, v) in add.iter_mut().enumerate() {
                        *v = load(bias.add(column), c);
                    }
                }
                for_rows!(r < R {
                    for (c, sum) in sums[r].iter().enumerate() {
                        store(out.add(r * s.out_stride), c, sum.add(add[c]).at_least(floor));
                    }
                });
            }
            RawFinish::Update { rate } => {
                let rate = V::splat(-rate);
                for_rows!(r < R {
                    let out = out.add(r * s.out_stride);
                    for (c, sum) in sums[r].iter().enumerate() {
                        store(out, c, rate.mul_add(*sum, load(out, c)));
                    }
                });
            }
            RawFinish::WherePositive { saved } => {
                for_rows!(r < R {
                    let at = r * s.out_stride;
                    for (c, sum) in sums[r].iter().enumerate() {
                        store(out.add(at), c, sum.where_positive(load(saved.add(column + at), c)));
                    }
                });
            }
        }
    }
}

struct RawCopy {
    from: *const f32,
    from_stride: usize,
    rows: usize,
    columns: usize,
    to: *mut f32,
    to_stride: usize,
    width: usize,
}

/// A copy, by rows.
#[inline(always)]
unsafe fn copy_rows<V: Vector>(t: &RawCopy) {
    unsafe {
        if t.width == V::LANES {
            let (loaded, all) = (V::first(t.columns), t.columns == V::LANES);
            for r in 0..t.rows {
                let from = t.from.add(r * t.from_stride);
                let v = if all { V::load(from) } else { V::load_some(from, loaded) };
                v.store(t.to.add(r * t.to_stride));
            }
            return;
        }
        for r in 0..t.rows {
            let (from, to) = (t.from.add(r * t.from_stride), t.to.add(r * t.to_stride));
            for c in (0..t.width).step_by(V::LANES) {
                let there = t.columns.saturating_sub(c);
                let v = if there >= V::LANES {
                    V::load(from.add(c))
                } else {
                    V::load_some(from.wrapping_add(c), V::first(there))
                };
                if t.width - c >= V::LANES {
                    v.store(to.add(c))
                } else {
                    v.store_some(to.add(c), V::first(t.width - c))
                }
            }
        }
    }
}

/// A transpose by square blocks of `N`, the vector's lanes.
#[inline(always)]
unsafe fn transpose_blocks<V: Vector, const N: usize>(t: &RawCopy) {
    for i in (0..t.width).step_by(N) {
        let (rows, stored) = (t.rows.saturating_sub(i).min(N), (t.width - i).min(N));
        for j in (0..t.columns).step_by(N) {
            let columns = (t.columns - j).min(N);
            unsafe {
                let (loaded, stored_mask) = (V::first(columns), V::first(stored));
                let mut block = [V::splat(0.0); N];
                let from = t.from.wrapping_add(i * t.from_stride + j);
                if rows == N && columns == N {
                    for (r, v) in block.iter_mut().enumerate() {
                        *v = V::load(from.add(r * t.from_stride));
                    }
                } else {
                    for (r, v) in block.iter_mut().enumerate().take(rows) {
                        *v = V::load_some(from.add(r * t.from_stride), loaded);
                    }
                }
                V::transpose(&mut block);
                let to = t.to.add(j * t.to_stride + i);
                if stored == N && columns == N {
                    for (c, v) in block.iter().enumerate() {
                        v.store(to.add(c * t.to_stride));
                    }
                } else {
                    for (c, v) in block.iter().enumerate().take(columns) {
                        v.store_some(to.add(c * t.to_stride), stored_mask);
                    }
                }
            }
        }
    }
}

/// Dot products of rows with `w`: a vector of partial sums for each row, `G` rows at a time; the sums of `N` rows, the
/// vector's lanes, are then added up together. Which rows are neighbours does not matter to the bits.
#[inline(always)]
unsafe fn dot_rows<V: Vector, const N: usize, const G: usize>(
    x: &[f32],
    w: &[f32],
    bias: f32,
    floor: f32,
    out: &mut [f32],
) {
    let (rows, k) = (out.len(), w.len());
    unsafe {
        let (bias, floor) = (V::splat(bias), V::splat(floor));
        // Long rows are streams that the hardware foresees; short ones need to be told.
        let ahead = if k < 256 { 2 * G * k } else { 64 };
        let (whole, part) = (k / N * N, V::first(k % N));
        for row in (0..rows).step_by(N) {
            let there = (rows - row).min(N);
            let mut sums = [V::splat(0.0); N];
            for group in (0..there).step_by(G) {
                // Rows past the last are the last one again; their sums are not stored.
                let at: [*const f32; G] =
                    std::array::from_fn(|g| x.as_ptr().wrapping_add((row + group + g).min(rows - 1) * k));
                let mut acc = [V::splat(0.0); G];
                for j in (0..whole).step_by(N) {
                    let w = V::load(w.as_ptr().add(j));
                    for g in 0..G {
                        V::prefetch(at[g].wrapping_add(ahead + j));
                        acc[g] = V::load(at[g].add(j)).mul_add(w, acc[g]);
                    }
                }
                if whole < k {
                    let w = V::load_some(w.as_ptr().add(whole), part);
                    for g in 0..G {
                        acc[g] = V::load_some(at[g].add(whole), part).mul_add(w, acc[g]);
                    }
                }
                sums[group..group + G].copy_from_slice(&acc);
            }
            V::transpose(&mut sums);
            let mut count = N;
            while count > 1 {
                count /= 2;
                for i in 0..count {
                    sums[i] = sums[i].add(sums[i + count]);
                }
            }
            let to = out.as_mut_ptr().add(row);
            let sum = sums[0].add(bias).at_least(floor);
            if there == N { sum.store(to) } else { sum.store_some(to, V::first(there)) }
        }
    }
}

/// [`dot_rows`] for rows of two: there the lanes are rows.
#[inline(always)]
unsafe fn dot_pairs<V: Vector, const N: usize>(x: &[f32], w: &[f32], bias: f32, floor: f32, out: &mut [f32]) {
    let rows = out.len();
    unsafe {
        let (bias, floor) = (V::splat(bias), V::splat(floor));
        let (w0, w1) = (V::splat(w[0]), V::splat(w[1]));
        for row in (0..rows).step_by(N) {
            let there = rows - row;
            let (from, to) = (x.as_ptr().add(2 * row), out.as_mut_ptr().add(row));
            if there >= N {
                let (x0, x1) = V::deinterleave(V::load(from), V::load(from.add(N)));
                x1.mul_add(w1, x0.mul_add(w0, V::splat(0.0))).add(bias).at_least(floor).store(to);
            } else {
                let (low, high) = (V::first(2 * there), V::first((2 * there).saturating_sub(N)));
                let high = V::load_some(from.wrapping_add(N), high);
                let (x0, x1) = V::deinterleave(V::load_some(from, low), high);
                let sum = x1.mul_add(w1, x0.mul_add(w0, V::splat(0.0)));
                sum.add(bias).at_least(floor).store_some(to, V::first(there));
            }
        }
    }
}

/// Sums of weighted rows, some vectors of columns at a time. An element's sum is that of four chains, over every fourth
/// row each, so that it does not wait for the adder; the same whichever columns are its neighbours. Two columns alone
/// would leave most lanes empty: there the lanes are rows.
#[inline(always)]
unsafe fn weigh_rows<V: Vector>(x: Matrix<'_>, weights: &[f32], rate: Option<f32>, out: &mut [f32]) {
    unsafe {
        if out.len() == 2 && x.stride == 2 {
            let mut sums = [V::splat(0.0); 2];
            for row in (0..weights.len()).step_by(V::LANES) {
                let (from, there) = (x.data.as_ptr().add(2 * row), weights.len() - row);
                let (x0, x1, d);
                if there >= V::LANES {
                    (x0, x1) = V::deinterleave(V::load(from), V::load(from.add(V::LANES)));
                    d = V::load(weights.as_ptr().add(row));
                } else {
                    let (low, high) = (V::first(2 * there), V::first((2 * there).saturating_sub(V::LANES)));
                    let high = V::load_some(from.wrapping_add(V::LANES), high);
                    (x0, x1) = V::deinterleave(V::load_some(from, low), high);
                    d = V::load_some(weights.as_ptr().add(row), V::first(there));
                }
                sums = [x0.mul_add(d, sums[0]), x1.mul_add(d, sums[1])];
            }
            for (out, sum) in out.iter_mut().zip(sums) {
                *out = rate.map_or(sum.sum(), |rate| *out - rate * sum.sum());
            }
            return;
        }
        let mut column = 0;
        while column < out.len() {
            let x = Matrix { data: &x.data[column.min(x.data.len())..], stride: x.stride };
            let out = &mut out[column..];
            match out.len().div_ceil(V::LANES) {
                1 => weigh_columns::<V, 1>(x, weights, rate, out),
                2 => weigh_columns::<V, 2>(x, weights, rate, out),
                3 if V::LANES > 8 => weigh_columns::<V, 3>(x, weights, rate, out),
                _ if V::LANES > 8 => weigh_columns::<V, 4>(x, weights, rate, out),
                _ => weigh_columns::<V, 2>(x, weights, rate, out),
            }
            column += if V::LANES > 8 { 4 } else { 2 } * V::LANES;
        }
    }
}

#[inline(always)]
unsafe fn weigh_columns<V: Vector, const C: usize>(
    x: Matrix<'_>,
    weights: &[f32],
    rate: Option<f32>,
    out: &mut [f32],
) {
    unsafe {
        let last = V::first(out.len() - (C - 1) * V::LANES);
        let mut sums = [[V::splat(0.0); C]; 4];
        let mut from = x.data.as_ptr();
        let add = |sums: &mut [V; C], from: *const f32, weight: f32| {
            let weight = V::splat(weight);
            for (c, sum) in sums.iter_mut().enumerate() {
                let from = from.add(c * V::LANES);
                V::prefetch(from.wrapping_add(16 * x.stride));
                let x = if c + 1 == C { V::load_some(from, last) } else { V::load(from) };
                *sum = x.mul_add(weight, *sum);
            }
        };
        let (fours, rest) = weights.as_chunks::<4>();
        for four in fours {
            add(&mut sums[0], from, four[0]);
            add(&mut sums[1], from.add(x.stride), four[1]);
            add(&mut sums[2], from.add(2 * x.stride), four[2]);
            add(&mut sums[3], from.add(3 * x.stride), four[3]);
            from = from.wrapping_add(4 * x.stride);
        }
        if let Some(&weight) = rest.first() {
            add(&mut sums[0], from, weight);
        }
        if let Some(&weight) = rest.get(1) {
            add(&mut sums[1], from.add(x.stride), weight);
        }
        if let Some(&weight) = rest.get(2) {
            add(&mut sums[2], from.add(2 * x.stride), weight);
        }
        for c in 0..C {
            let mut sum = sums[0][c].add(sums[1][c]).add(sums[2][c].add(sums[3][c]));
            let to = out.as_mut_ptr().add(c * V::LANES);
            if let Some(rate) = rate {
                let before = if c + 1 == C { V::load_some(to, last) } else { V::load(to) };
                sum = V::splat(-rate).mul_add(sum, before);
            }
            if c + 1 == C { sum.store_some(to, last) } else { sum.store(to) }
        }
    }
}

/// Makes the calling thread treat numbers below the normal range as 0, as operands and as results: arithmetic on them
/// is a hundred times slower, and a training run makes them (the moments of a dead unit). Nothing where the processor
/// has no such switch.
pub fn flush_denormals() {
    #[cfg(target_arch = "x86_64")]
    {
        let mut mxcsr = 0u32;
        // SAFETY: reads and writes the calling thread's SSE control register; only flush-to-zero (bit 15) and
        // denormals-are-zero (bit 6) change, no exception is unmasked.
        unsafe {
            std::arch::asm!("stmxcsr [{}]", in(reg) &raw mut mxcsr, options(nostack));
            mxcsr |= 0x8040;
            std::arch::asm!("ldmxcsr [{}]", in(reg) &raw const mxcsr, options(nostack));
        }
    }
    #[cfg(target_arch = "aarch64")]
    {
        // SAFETY: sets only bit 24 (flush to zero) of the calling thread's floating-point control register.
        unsafe {
            let mut fpcr: u64;
            std::arch::asm!("mrs {}, fpcr", out(reg) fpcr, options(nomem, nostack));
            fpcr |= 1 << 24;
            std::arch::asm!("msr fpcr, {}", in(reg) fpcr, options(nostack));
        }
    }
}

/// Whether [`flush_denormals`] is in force in the calling thread.
pub fn denormals_flushed() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        let mut mxcsr = 0u32;
        // SAFETY: reads the calling thread's SSE control register.
        unsafe { std::arch::asm!("stmxcsr [{}]", in(reg) &raw mut mxcsr, options(nostack)) };
        mxcsr & 0x8040 == 0x8040
    }
    #[cfg(target_arch = "aarch64")]
    {
        let fpcr: u64;
        // SAFETY: reads the calling thread's floating-point control register.
        unsafe { std::arch::asm!("mrs {}, fpcr", out(reg) fpcr, options(nomem, nostack)) };
        fpcr & (1 << 24) != 0
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        false
    }
}

/// Asks for numbers that will be read soon, without waiting for them.
#[inline(always)]
pub fn prefetch(numbers: &[f32]) {
    #[cfg(target_arch = "x86_64")]
    for line in numbers.chunks(16) {
        // SAFETY: a prefetch reads nothing that the program can see, and faults nowhere; SSE is part of x86-64.
        unsafe { std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(line.as_ptr().cast()) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = numbers;
}
