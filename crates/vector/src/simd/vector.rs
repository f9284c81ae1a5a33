//! The vector operations that the generic code needs.

/// A vector of f32.
///
/// # Safety
/// The machine has the vector's instructions, and the loaded or stored memory is valid.
pub(super) trait Vector: Copy {
    const LANES: usize;
    /// Selects the first lanes to load or store.
    type Mask: Copy;
    /// Selects the first `lanes` lanes, at most all.
    unsafe fn first(lanes: usize) -> Self::Mask;
    unsafe fn splat(x: f32) -> Self;
    unsafe fn load(from: *const f32) -> Self;
    unsafe fn store(self, to: *mut f32);
    /// Stores bypassing the caches; `to` is aligned to the vector. Other threads see it only after a
    /// [`fence`](Self::fence).
    unsafe fn stream(self, to: *mut f32);
    /// Orders streamed stores before all later stores.
    fn fence();
    /// Loads the lanes of the mask. Other lanes become 0; their memory is not accessed.
    unsafe fn load_some(from: *const f32, mask: Self::Mask) -> Self;
    unsafe fn store_some(self, to: *mut f32, mask: Self::Mask);
    /// `self * b + c`, fused if the hardware can.
    unsafe fn mul_add(self, b: Self, c: Self) -> Self;
    unsafe fn add(self, b: Self) -> Self;
    /// The maximum of both; `self` if that is NaN.
    unsafe fn at_least(self, floor: Self) -> Self;
    /// `self` where `x > 0`, else 0.
    unsafe fn where_positive(self, x: Self) -> Self;
    /// The sum of all lanes, in a fixed order.
    unsafe fn sum(self) -> f32;
    /// The even and the odd elements of `low` followed by `high`.
    unsafe fn deinterleave(low: Self, high: Self) -> (Self, Self);
    /// `block[i][j]` becomes `block[j][i]`; `block` has `LANES` vectors.
    unsafe fn transpose(block: &mut [Self]);
}

/// Returns the pointer, hiding its origin from the optimizer where there is an assembler for it.
// The assembly is empty: it does not read through the pointer.
#[allow(clippy::pointers_in_nomem_asm_block)]
#[inline(always)]
pub(super) fn opaque(pointer: *const f32) -> *const f32 {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    {
        let mut pointer = pointer;
        // SAFETY: the block has no instruction.
        unsafe {
            std::arch::asm!("/* {} */", inout(reg) pointer, options(pure, nomem, nostack, preserves_flags));
        }
        pointer
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    pointer
}
