//! The structs that GPUs read as bytes: none of them has padding.

use std::mem::offset_of;

use bytemuck::NoUninit;

use super::{Hyper, Record, RunRecord};

// SAFETY: twelve fields of 4 bytes, then six of 4, then fields of 8: there is no padding.
unsafe impl NoUninit for Record {}
// SAFETY: fields of 8 bytes, then two of 4: no padding.
unsafe impl NoUninit for RunRecord {}
// SAFETY: five fields of 4 bytes: no padding.
unsafe impl NoUninit for Hyper {}

const _: () = {
    assert!(offset_of!(Record, f) == 48 && offset_of!(Record, scale) == 72);
    assert!(offset_of!(Record, at) == 80 && offset_of!(RunRecord, index) == 120);
};
