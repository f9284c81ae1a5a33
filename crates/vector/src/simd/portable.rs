//! A vector of four elements with plain loops, for any machine.

use super::compile;
use super::vector::Vector;

compile!(Four, 4, 4, [1 2 3 4]);

/// Every target compiles this to its smallest vector.
type Four = [f32; 4];

// SAFETY, for every block in here: the trait's contract.
#[allow(clippy::undocumented_unsafe_blocks)]
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
    unsafe fn stream(self, to: *mut f32) {
        unsafe { self.store(to) }
    }
    #[inline(always)]
    fn fence() {}
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
