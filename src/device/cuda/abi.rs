//! The bytes of the records that kernels read; [`crate::op`] says what is in them.

use crate::op::{Hyper, Record, RunRecord};

pub fn bytes_of<T: Plain>(records: &[T]) -> &[u8] {
    // SAFETY: records have no padding and no pointers; their bytes may be read for as long as they are borrowed.
    unsafe { std::slice::from_raw_parts(records.as_ptr().cast(), size_of_val(records)) }
}

/// Types of plain numbers without padding.
///
/// # Safety
/// There must be no padding between or behind the fields.
pub unsafe trait Plain: Copy {}
// SAFETY: twelve times 4 bytes, six times 4, then fields of 8: none is padded.
unsafe impl Plain for Record {}
// SAFETY: fields of 8 bytes, then two of 4.
unsafe impl Plain for RunRecord {}
// SAFETY: four times 4 bytes.
unsafe impl Plain for Hyper {}

const _: () = {
    assert!(std::mem::offset_of!(Record, f) == 48 && std::mem::offset_of!(Record, scale) == 72);
    assert!(std::mem::offset_of!(Record, at) == 80 && std::mem::offset_of!(RunRecord, index) == 120);
};
