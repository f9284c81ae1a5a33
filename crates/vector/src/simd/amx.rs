//! AMX: eight tiles of 16 rows of 64 bytes each, and an instruction that multiplies two bfloat16 tiles and
//! adds to a tile of f32 sums.
//!
//! A block of the result is 32 x 32: four tiles of sums, two of the left operand, two of the right one. Each
//! of those is loaded once for two multiplications, so the L1 cache, which delivers a tile in 8 cycles, keeps
//! up with a multiplication's 16.
//!
//! `TDPBF16PS` takes 16 pairs of terms. For each sum it adds up the even terms and the odd terms separately,
//! with fused multiply-adds starting at 0, and then adds the total of both to the tile. Denormals are treated
//! as zeros (Intel's manual). `plain_bf16.rs` reproduces the same bits.

use std::arch::{asm, x86_64};
use std::marker::PhantomData;
use std::sync::OnceLock;

use super::bf16::{BLOCK, Block, STEP_WORDS, TILE_WORDS};

/// Linux' `arch_prctl`, its functions `ARCH_GET_XCOMP_SUPP` and `ARCH_REQ_XCOMP_PERM`, and the state
/// component that holds tiles.
const ARCH_PRCTL: u64 = 158;
const SUPPORTED_STATES: u64 = 0x1021;
const REQUEST_PERMISSION: u64 = 0x1023;
const TILE_DATA: u64 = 18;

/// Bytes from one row of an operand's tile to the next (`ROW`), and from one row of a block's sums to the
/// next.
const ROW: usize = 64;
const SUMS_ROW: usize = 4 * BLOCK;

/// The operand of `LDTILECFG`: palette 1, eight tiles of 16 rows of 64 bytes.
#[repr(C, align(64))]
struct Configuration([u8; 64]);

static CONFIGURATION: Configuration = {
    let mut bytes = [0; 64];
    bytes[0] = 1;
    let mut tile = 0;
    while tile < 8 {
        bytes[16 + 2 * tile] = 64;
        bytes[48 + tile] = 16;
        tile += 1;
    }
    Configuration(bytes)
};

/// Whether this processor has the tiles and the system's kernel supports them.
pub(super) fn is_supported() -> bool {
    let mut states = 0_u64;
    cfg!(target_os = "linux")
        && has_tiles()
        && prctl(SUPPORTED_STATES, (&raw mut states).expose_provenance() as u64)
        && states >> TILE_DATA & 1 == 1
}

/// Whether the system's kernel also permits this process to use them. Permission is requested once, and only
/// if bf16 products are computed or measured: tiles add 8 KiB to a thread's state, and from then on every
/// signal handler's stack must have room for it.
pub(super) fn is_there() -> bool {
    static THERE: OnceLock<bool> = OnceLock::new();
    *THERE.get_or_init(|| is_supported() && prctl(REQUEST_PERMISSION, TILE_DATA))
}

fn has_tiles() -> bool {
    // SAFETY: every x86-64 has the instruction, and a leaf that this processor lacks is not queried.
    #[allow(unused_unsafe, reason = "safe in newer compilers")]
    let features = unsafe {
        if x86_64::__cpuid(0).eax < 7 {
            return false;
        }
        x86_64::__cpuid_count(7, 0).edx
    };
    let (bf16, tile) = (1 << 22, 1 << 24);
    features & bf16 != 0 && features & tile != 0
}

/// Whether the call succeeds. The argument is a number, or the address of a number to be written.
fn prctl(function: u64, argument: u64) -> bool {
    let result: u64;
    // SAFETY: both functions access no memory except the number at that address; the kernel overwrites rcx
    // and r11.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") ARCH_PRCTL => result,
            in("rdi") function,
            in("rsi") argument,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack)
        );
    }
    result == 0
}

/// Configures a thread's tiles until it is dropped. Threads without configured tiles do not have to save them
/// at a context switch.
pub(in super::super) struct Tiles {
    /// Not `Send`: the tiles belong to the thread.
    _thread: PhantomData<*const ()>,
}

impl Tiles {
    /// # Safety
    /// [`is_there`] must have returned true.
    pub unsafe fn new() -> Self {
        // SAFETY: the configuration is 64 bytes long and valid.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const CONFIGURATION, options(nostack, readonly)) };
        Self { _thread: PhantomData }
    }

    /// `sums[32, 32] += left x right` over `steps` steps of 32 terms, starting from 0 unless `resume`.
    ///
    /// # Safety
    /// The block's operands must have that number of steps.
    #[inline]
    pub unsafe fn multiply(&self, block: Block<'_>, sums: &mut [f32; BLOCK * BLOCK]) {
        const { assert!(STEP_WORDS == 2 * TILE_WORDS && 4 * TILE_WORDS == 16 * ROW) };
        let Block { left, right, steps, resume } = block;
        // SAFETY: tiles are configured, since `self` exists; each step reads two consecutive tiles of each
        // operand, and the sums are 32 rows of 128 bytes.
        unsafe {
            asm!(
                "test {resume:e}, {resume:e}",
                "jz 3f",
                "tileloadd tmm0, [{sums} + {wide}]",
                "tileloadd tmm1, [{sums} + {wide} + 64]",
                "tileloadd tmm2, [{below} + {wide}]",
                "tileloadd tmm3, [{below} + {wide} + 64]",
                "jmp 4f",
                "3:",
                "tilezero tmm0",
                "tilezero tmm1",
                "tilezero tmm2",
                "tilezero tmm3",
                "4:",
                "test {steps}, {steps}",
                "jz 5f",
                "2:",
                "tileloadd tmm4, [{left} + {row}]",
                "tileloadd tmm6, [{right} + {row}]",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "tileloadd tmm7, [{right} + {row} + 1024]",
                "tdpbf16ps tmm1, tmm4, tmm7",
                "tileloadd tmm5, [{left} + {row} + 1024]",
                "tdpbf16ps tmm2, tmm5, tmm6",
                "tdpbf16ps tmm3, tmm5, tmm7",
                "add {left}, 2048",
                "add {right}, 2048",
                "dec {steps}",
                "jnz 2b",
                "5:",
                "tilestored [{sums} + {wide}], tmm0",
                "tilestored [{sums} + {wide} + 64], tmm1",
                "tilestored [{below} + {wide}], tmm2",
                "tilestored [{below} + {wide} + 64], tmm3",
                resume = in(reg) u32::from(resume),
                sums = in(reg) sums.as_mut_ptr(),
                below = in(reg) sums.as_mut_ptr().add(16 * BLOCK),
                wide = in(reg) SUMS_ROW,
                left = inout(reg) left.as_ptr() => _,
                right = inout(reg) right.as_ptr() => _,
                row = in(reg) ROW,
                steps = inout(reg) steps => _,
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack)
            );
        }
    }
}

impl Drop for Tiles {
    fn drop(&mut self) {
        // SAFETY: tiles are configured.
        unsafe { asm!("tilerelease", options(nostack, nomem)) };
    }
}
