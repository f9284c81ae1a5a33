//! Vector instructions behind safe functions; all `unsafe` code that uses them is here.
//!
//! Everything is written once, over the trait [`Vector`](vector::Vector), and compiled for each
//! [`InstructionSet`]: the generic code is inlined into functions with `#[target_feature]`. Safe functions
//! check every slice once, then use raw pointers.

mod bf16;
mod denormals;
mod layout;
mod lines;
mod panels;
mod plain_bf16;
mod portable;
mod prefetch;
mod tile;
mod vector;

#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod dot_bf16;

#[cfg(target_arch = "x86_64")]
use std::arch::is_x86_feature_detected;
use std::sync::OnceLock;

pub(super) use bf16::{BLOCK, Bf16Set, Block, Blocks, Operand, STEP_WORDS, Side};
pub use denormals::{Flushed, denormals_flushed, flush_denormals};
pub(super) use layout::{Matrix, MatrixMut};
pub use lines::Lines;
pub(super) use panels::{From, Reach};
pub use prefetch::prefetch;
pub(super) use tile::{Finish, Order, Strip, TilePrefetch};

/// Calls a function of the set's module. The call is `unsafe` because of that function's contract; its
/// instructions are always available, since the set exists.
macro_rules! dispatch {
    ($set:expr, $function:ident($($argument:expr),*)) => {
        match $set.0 {
            #[cfg(target_arch = "x86_64")]
            $crate::simd::Set::Avx512 => $crate::simd::avx512::$function($($argument),*),
            #[cfg(target_arch = "x86_64")]
            $crate::simd::Set::Avx2 => $crate::simd::avx2::$function($($argument),*),
            $crate::simd::Set::Portable => $crate::simd::portable::$function($($argument),*),
        }
    };
}
use dispatch;

/// Compiles the generic code for one instruction set. Arguments: its attribute, its vector, the number of
/// lanes, rows at a time in [`lines`], and tile heights.
macro_rules! compile {
    ($(#[$feature:meta])? $vector:ty, $lanes:literal, $group:literal, [$($rows:literal)*]) => {
        use std::hint::unreachable_unchecked;
        use super::{layout, lines, panels, tile};

        $(#[$feature])?
        pub(super) unsafe fn run<R>(work: impl FnOnce() -> R) -> R {
            work()
        }

        $(#[$feature])?
        pub(super) unsafe fn strip(s: &mut tile::Strip<'_>) {
            // SAFETY: the caller has checked the strip and its height.
            unsafe {
                match s.rows {
                    $($rows => strip_of::<$rows>(s),)*
                    _ => unreachable_unchecked(),
                }
            }
        }

        $(#[$feature])?
        #[inline(never)]
        unsafe fn strip_of<const R: usize>(s: &mut tile::Strip<'_>) {
            // SAFETY: as above.
            unsafe { tile::tiles::<$vector, R>(s) }
        }

        $(#[$feature])?
        pub(super) unsafe fn copy(c: &layout::RawCopy) {
            // SAFETY: the caller has checked the shapes.
            unsafe { layout::copy_rows::<$vector, false>(c) }
        }

        $(#[$feature])?
        pub(super) unsafe fn transpose(c: &layout::RawCopy) {
            // SAFETY: the caller has checked the shapes.
            unsafe { layout::transpose_blocks::<$vector, $lanes, false>(c) }
        }

        $(#[$feature])?
        pub(super) unsafe fn panels(p: &panels::RawPanels) {
            // SAFETY: the caller has checked the shapes.
            unsafe { panels::pack::<$vector, $lanes>(p) }
        }

        $(#[$feature])?
        pub(super) unsafe fn gemv(x: lines::Lines<'_>, w: &[f32], bias: f32, floor: f32, out: &mut [f32]) {
            // SAFETY: the caller has checked the shapes.
            unsafe { lines::dot_rows::<$vector, $lanes, $group>(x, w, bias, floor, out) }
        }

        $(#[$feature])?
        pub(super) unsafe fn pairs(x: &[f32], w: &[f32], bias: f32, floor: f32, out: &mut [f32]) {
            // SAFETY: the caller has checked the shapes.
            unsafe { lines::dot_pairs::<$vector, $lanes>(x, w, bias, floor, out) }
        }

        $(#[$feature])?
        pub(super) unsafe fn gemv_t(x: lines::Lines<'_>, weights: &[f32], rate: Option<f32>, out: &mut [f32]) {
            // SAFETY: the caller has checked the shapes.
            unsafe { lines::weigh_rows::<$vector>(x, weights, rate, out) }
        }
    };
}
use compile;

/// A set of vector instructions. Values exist only for instructions that this machine has.
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

/// Panics unless `outer` rows of `inner` elements, `stride` apart, lie within `data`.
fn check(data: &[f32], outer: usize, stride: usize, inner: usize) {
    let end = outer.checked_sub(1).and_then(|n| n.checked_mul(stride)).and_then(|n| n.checked_add(inner));
    assert!(
        outer == 0 || inner == 0 || end.is_some_and(|end| end <= data.len()),
        "operand shorter than its shape"
    );
}

impl InstructionSet {
    /// The sets that this machine has, best first.
    fn all() -> impl Iterator<Item = Self> {
        let all = [
            #[cfg(target_arch = "x86_64")]
            (
                Set::Avx512,
                is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512cd")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("bmi2"),
            ),
            #[cfg(target_arch = "x86_64")]
            (
                Set::Avx2,
                is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("fma")
                    && is_x86_feature_detected!("bmi2"),
            ),
            (Set::Portable, true),
        ];
        all.into_iter().filter(|&(_, there)| there).map(|(set, _)| Self(set))
    }

    /// The best set of this machine. The result is cached, since elementwise loops of a few nanoseconds call
    /// this.
    #[inline]
    pub fn detect() -> Self {
        static BEST: OnceLock<InstructionSet> = OnceLock::new();
        *BEST.get_or_init(|| Self::all().next().unwrap_or(Self::portable()))
    }

    /// Only the instructions of the compiler's baseline target.
    pub fn portable() -> Self {
        Self(Set::Portable)
    }

    /// The set with this name, if this machine has it.
    pub fn named(name: &str) -> Option<Self> {
        Self::all().find(|set| set.name() == name)
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

    /// Calls `work`; what is inlined into it is compiled for this set.
    #[inline(always)]
    pub fn run<R>(self, work: impl FnOnce() -> R) -> R {
        // SAFETY: a set exists only if this machine has its instructions.
        unsafe { dispatch!(self, run(work)) }
    }

    /// Number of elements of a vector.
    pub fn lanes(self) -> usize {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Set::Avx512 => 16,
            #[cfg(target_arch = "x86_64")]
            Set::Avx2 => 8,
            Set::Portable => 4,
        }
    }

    /// Number of rows of the highest tile.
    pub fn tile_rows(self) -> usize {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Set::Avx512 => 14,
            #[cfg(target_arch = "x86_64")]
            Set::Avx2 => 6,
            Set::Portable => 4,
        }
    }
}
