//! A device's rows of a chunk, in the host's memory.
//!
//! A device with fast copies from memory of its own kind lends that memory to the reader, which reads rows straight into it. A
//! block goes back to the reader when everyone has let go of it: the loop, and the device, whose copy may still be under way.

use std::{
    ops::{Deref, DerefMut},
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
};

/// Memory of the host that a device may have allocated.
pub type HostMemory = Box<dyn DerefMut<Target = [f32]> + Send + Sync>;

#[derive(Clone)]
pub enum ChunkRows {
    /// In ordinary memory.
    Own(Arc<Vec<f32>>),
    Lent(Arc<LentRows>),
}

impl Deref for ChunkRows {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        match self {
            Self::Own(rows) => rows,
            Self::Lent(rows) => rows,
        }
    }
}

/// The blocks that a device lent for one kind of rows. `None` in the queue: nobody waits for rows any more.
pub struct LentMemory {
    free: Receiver<Option<HostMemory>>,
    home: Sender<Option<HostMemory>>,
}

/// Ends the waits for a block when it is dropped.
pub struct Closer(Sender<Option<HostMemory>>);

impl Drop for Closer {
    fn drop(&mut self) {
        drop(self.0.send(None));
    }
}

impl LentMemory {
    pub fn new(blocks: impl IntoIterator<Item = HostMemory>) -> Self {
        let (home, free) = channel();
        // Sending cannot fail: the receiver is here.
        blocks.into_iter().for_each(|block| drop(home.send(Some(block))));
        Self { free, home }
    }

    /// Ends waits for a block, once it is dropped.
    pub fn closer(&self) -> Closer {
        Closer(self.home.clone())
    }

    /// Waits for a block, whose first elements are then to be written; `None` once its [`Closer`] is gone.
    pub fn take(&self, elements: usize) -> Option<LentRows> {
        // Receiving cannot fail: a sender is here.
        let Some(memory) = self.free.recv().ok().flatten() else {
            // The next call ends, too.
            drop(self.closer());
            return None;
        };
        let len = elements.min(memory.len());
        Some(LentRows { memory: Some(memory), len, home: self.home.clone() })
    }
}

/// A block that holds rows.
pub struct LentRows {
    memory: Option<HostMemory>,
    len: usize,
    home: Sender<Option<HostMemory>>,
}

impl LentRows {
    /// The most elements that the block holds.
    pub fn room(&self) -> usize {
        self.memory.as_ref().map_or(0, |memory| memory.len())
    }
}

impl Deref for LentRows {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        self.memory.as_ref().map_or(&[], |memory| &memory[..self.len])
    }
}

impl DerefMut for LentRows {
    fn deref_mut(&mut self) -> &mut [f32] {
        self.memory.as_mut().map_or(&mut [], |memory| &mut memory[..self.len])
    }
}

impl Drop for LentRows {
    fn drop(&mut self) {
        let Some(mut memory) = self.memory.take() else { return };
        if cfg!(debug_assertions) {
            // A copy that is still under way then fails its test.
            memory[..self.len].fill(f32::NAN);
        }
        // Once the reader has ended, the block is freed here.
        drop(self.home.send(Some(memory)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_comes_back_when_all_have_let_go_of_it() {
        let block = |value: f32| -> HostMemory { Box::new(vec![value; 3]) };
        let memory = LentMemory::new([block(1.0), block(2.0)]);
        let mut first = memory.take(2).expect("a block");
        assert_eq!((&first[..], first.room()), (&[1.0, 1.0][..], 3));
        first[1] = 5.0;
        let (first, second) = (Arc::new(first), memory.take(9).expect("a block"));
        assert_eq!(&second[..], [2.0; 3]);
        let copying = ChunkRows::Lent(Arc::clone(&first));
        drop(first);
        assert!(memory.free.try_recv().is_err());
        assert_eq!(&copying[..], [1.0, 5.0]);
        drop(copying);
        assert_eq!(memory.take(3).expect("a block")[2], 1.0);
        // Once it is closed, nobody waits for a block that is still out.
        let out = memory.take(3);
        drop(memory.closer());
        assert!(out.is_some() && memory.take(3).is_none() && memory.take(3).is_none());
        drop(out);
        drop(memory);
        // Nobody takes it back.
        drop(second);
    }
}
