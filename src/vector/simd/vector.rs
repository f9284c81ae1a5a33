//! What the generic code needs of a vector.

/// A vector of f32.
///
/// # Safety
/// Every method asks that the machine has the vector's instructions, and that what it loads or stores may be.
pub(super) trait Vector: Copy {
    /// Numbers in it.
    const LANES: usize;
    /// Which of the lanes to load or store: the first few.
    type Mask: Copy;
    /// The mask of so many lanes; of all, if there are not as many.
    unsafe fn first(lanes: usize) -> Self::Mask;
    unsafe fn splat(x: f32) -> Self;
    unsafe fn load(from: *const f32) -> Self;
    unsafe fn store(self, to: *mut f32);
    /// Stores past the caches; `to` is aligned to the vector. Other threads see it only behind a [`fence`](Self::fence).
    unsafe fn stream(self, to: *mut f32);
    /// What was streamed comes before all that is stored later.
    fn fence();
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
