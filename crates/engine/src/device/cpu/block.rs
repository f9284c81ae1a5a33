//! Numbers in the host's memory that begin at a cache line.
//!
//! On Zen 3 and 4, glibc's copy (`rep movsb`) is some ten times as slow where the destination is 16 bytes after the source modulo
//! 4 KiB ([bug 30994](https://sourceware.org/bugzilla/show_bug.cgi?id=30994)). Between cache lines no distance is.

use std::{
    collections::TryReserveError,
    ops::{Deref, DerefMut},
};

use crate::op::ALIGN;

/// Numbers whose address is a multiple of 64 bytes.
#[derive(Default)]
pub struct Block {
    /// With room before the first number and after the last.
    memory: Vec<f32>,
    start: usize,
    len: usize,
}

impl Block {
    /// # Errors
    /// If there is not that much memory.
    pub fn new(len: usize, value: f32) -> Result<Self, TryReserveError> {
        let mut memory: Vec<f32> = Vec::new();
        memory.try_reserve_exact(len.saturating_add(ALIGN - 1))?;
        let start = memory.as_ptr().align_offset(ALIGN * size_of::<f32>());
        memory.resize(start + len, value);
        Ok(Self { memory, start, len })
    }
}

impl Deref for Block {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &self.memory[self.start..self.start + self.len]
    }
}

impl DerefMut for Block {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.memory[self.start..self.start + self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_begin_at_cache_lines() {
        // Small ones are of the heap, large ones are mapped.
        let blocks: Vec<_> =
            [0, 1, 3, 15, 16, 17, 1000, 65_536].map(|len| (len, Block::new(len, 2.0))).into();
        for (len, block) in blocks {
            let block = block.unwrap();
            assert_eq!((block.as_ptr() as usize % 64, block.len()), (0, len));
            assert!(block.iter().all(|value| *value == 2.0));
        }
        assert!(Block::new(usize::MAX, 0.0).is_err());
        assert!(Block::default().is_empty());
    }
}
