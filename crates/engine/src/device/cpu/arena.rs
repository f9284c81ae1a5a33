//! One block of memory that a team of threads shares without locks.
//!
//! Each task declares what it reads and writes. Before anything runs, a [`Prover`] goes through the tasks of
//! a program and proves that no write of a task overlaps anything that another thread touches between the
//! same two barriers, nor anything else of the task itself. Only an access verified in this way can be
//! borrowed ([`Verified::borrow`]), as plain slices.

use std::{cell::UnsafeCell, ops::Range};

use crate::{
    host::prefer_huge_pages,
    op::{ALIGN, Access, BufferId, Layout, Role, Slice, Window, run::Slices},
    program::{MemoryPlan, Offsets},
};

/// A cache line: the arena's unit of alignment.
#[repr(C, align(64))]
struct Line(UnsafeCell<[f32; ALIGN]>);

/// A range of elements within the arena.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    start: usize,
    len: usize,
}

/// An [`Access`] that was proven to be free of conflicts.
#[derive(Clone, Copy, Debug)]
pub struct Verified {
    reads: [Span; 4],
    writes: [Span; 4],
}

/// The memory of a trial on the CPU: every buffer except the data, each starting at a cache line.
pub struct Arena {
    lines: Box<[Line]>,
    plan: MemoryPlan,
}

// SAFETY: shared access goes through `Verified` only (see `Prover` and `borrow`), or through `&mut self`.
unsafe impl Sync for Arena {}

impl Arena {
    /// Zeroed memory for all buffers of `plan`. `None` if it cannot be allocated.
    pub fn new(plan: MemoryPlan) -> Option<Self> {
        let count = plan.elements().div_ceil(ALIGN);
        let mut lines = Vec::new();
        lines.try_reserve_exact(count).ok()?;
        prefer_huge_pages(lines.spare_capacity_mut());
        lines.resize_with(count, || Line(UnsafeCell::new([0.0; ALIGN])));
        Some(Self { lines: lines.into_boxed_slice(), plan })
    }

    /// Fills with NaN what must be written before it is read, to imitate fresh memory of a separate device.
    /// Gradients, the optimizer's state and cells start as zeros and are left alone.
    pub fn poison(&mut self, layout: &Layout) {
        let len = self.lines.len() * ALIGN;
        self.span_mut(Span { start: 0, len }).fill(f32::NAN);
        let is_zero = |role| matches!(role, Role::Gradients | Role::State | Role::Cells);
        let zeros = (0..).zip(&layout.buffers).filter(|(_, buffer)| is_zero(buffer.role));
        let places: Vec<_> = zeros.flat_map(|(id, _)| self.plan.places(BufferId(id))).collect();
        places.into_iter().for_each(|(start, len)| self.span_mut(Span { start, len }).fill(0.0));
    }

    pub fn bytes(&self) -> u64 {
        size_of_val(&*self.lines) as u64
    }

    /// The offsets for training, or for validation.
    pub fn offsets(&self, is_validation: bool) -> &Offsets {
        if is_validation { &self.plan.validate } else { &self.plan.train }
    }

    /// A slice's elements, for exclusive use of the arena; `None` if the slice is not in the arena.
    pub fn get_mut(&mut self, slice: Slice) -> Option<&mut [f32]> {
        let start = self.plan.place(slice)? as usize;
        Some(self.span_mut(Span { start, len: slice.len }))
    }

    /// Copies between two slices, with exclusive use of the arena; `None` if one of them is not in the arena.
    pub fn copy(&mut self, from: Slice, to: Slice) -> Option<()> {
        let start = self.plan.place(from)? as usize;
        let to = self.plan.place(to)? as usize;
        let all = self.span_mut(Span { start: 0, len: self.lines.len() * ALIGN });
        all.copy_within(start..start + from.len, to);
        Some(())
    }

    fn span_mut(&mut self, span: Span) -> &mut [f32] {
        assert!(span.start + span.len <= self.lines.len() * ALIGN, "a span lies within its arena");
        let base = self.lines.as_mut_ptr().cast::<f32>();
        // SAFETY: the span is within the arena (checked above), and `&mut self` excludes every other borrow.
        unsafe { std::slice::from_raw_parts_mut(base.add(span.start), span.len) }
    }
}

/// Goes through a program's tasks and proves that those between two barriers do not conflict. A party is a
/// thread, or a task that all threads share.
pub struct Prover<'a> {
    arena: &'a Arena,
    offsets: &'a Offsets,
    since_barrier: Window,
}

impl<'a> Prover<'a> {
    /// Uses the arena's own offsets.
    pub fn new(arena: &'a Arena, is_validation: bool) -> Self {
        Self { arena, offsets: arena.offsets(is_validation), since_barrier: Window::default() }
    }

    /// Whether these parties may do this before the next barrier.
    pub fn admits(&self, parties: &[(usize, Access)]) -> bool {
        parties.iter().all(|(party, access)| self.since_barrier.admits(*party, access))
    }

    /// Everything verified after this comes after a barrier.
    pub fn barrier(&mut self) {
        self.since_barrier = Window::default();
    }

    /// # Errors
    /// Which slices conflict, or are not in the arena.
    pub fn verify(&mut self, party: usize, access: &Access) -> Result<Verified, String> {
        if !self.since_barrier.admits(party, access) {
            return Err(format!("task {party} touches what another writes: {access:?}"));
        }
        self.since_barrier.add(party, access);
        for (k, write) in access.writes.iter().enumerate() {
            if access.reads.iter().chain(&access.writes[k + 1..]).any(|other| other.overlaps(*write)) {
                return Err(format!("slices of task {party} overlap: {access:?}"));
            }
        }
        let end = self.arena.lines.len() * ALIGN;
        let span = |slice: Slice| match self.offsets.offset(slice) {
            _ if slice.len == 0 => Ok(Span::default()),
            Some(start) if start as usize + slice.len <= end => {
                Ok(Span { start: start as usize, len: slice.len })
            }
            _ => Err(format!("task {party} touches what has no place: {slice:?}")),
        };
        let spans = |slices: [Slice; 4]| {
            let mut spans = [Span::default(); 4];
            for (to, slice) in spans.iter_mut().zip(slices) {
                *to = span(slice)?;
            }
            Ok::<_, String>(spans)
        };
        Ok(Verified { reads: spans(access.reads)?, writes: spans(access.writes)? })
    }
}

impl Verified {
    /// Access to nothing, which never conflicts.
    pub fn nothing() -> Self {
        Self { reads: [Span::default(); 4], writes: [Span::default(); 4] }
    }

    /// The slices of a task, in the order in which they were declared.
    ///
    /// # Safety
    /// `arena` must be the one that verified the access. The caller must be the thread for which it was
    /// verified, must have passed the barrier before the task, must stop using the slices before it reaches
    /// the next barrier, and must hold no other slice of the arena.
    #[inline(always)]
    pub unsafe fn borrow<'a>(&self, arena: &'a Arena) -> Slices<'a> {
        let base = arena.lines.as_ptr().cast::<f32>().cast_mut();
        // SAFETY: the prover checked that every span is within the arena, that the task's writes overlap
        // neither each other nor its reads, and that no task of another thread between the same barriers
        // touches them. The caller guarantees that this code runs between those barriers.
        unsafe {
            (
                self.reads.map(|s| std::slice::from_raw_parts(base.add(s.start), s.len)),
                self.writes.map(|s| std::slice::from_raw_parts_mut(base.add(s.start), s.len)),
            )
        }
    }

    /// The reads of a task that several threads share.
    ///
    /// # Safety
    /// As for [`borrow`](Self::borrow), but the caller may be any of the threads that share the task.
    pub unsafe fn borrow_reads<'a>(&self, arena: &'a Arena) -> [&'a [f32]; 4] {
        let base = arena.lines.as_ptr().cast::<f32>();
        // SAFETY: as for `borrow`.
        unsafe { self.reads.map(|s| std::slice::from_raw_parts(base.add(s.start), s.len)) }
    }

    /// A part of a write of a task that several threads share.
    ///
    /// # Panics
    /// If the part is not within the write.
    ///
    /// # Safety
    /// As for [`borrow_reads`](Self::borrow_reads); in addition, no other thread may have a part with these
    /// elements.
    #[expect(clippy::mut_from_ref, reason = "of parts that do not overlap, as the caller promises")]
    pub unsafe fn borrow_part<'a>(
        &self,
        arena: &'a Arena,
        write: usize,
        part: Range<usize>,
    ) -> &'a mut [f32] {
        let span = self.writes[write];
        assert!(part.end <= span.len, "a part lies within its write");
        let base = arena.lines.as_ptr().cast::<f32>().cast_mut();
        // SAFETY: the prover checked that the span is within the arena, and that only threads that share the
        // task touch it between the same barriers. The caller guarantees that these threads' parts do not
        // overlap.
        unsafe { std::slice::from_raw_parts_mut(base.add(span.start + part.start), part.len()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arena() -> Arena {
        let mut plan = MemoryPlan::default();
        plan.add(BufferId(1), 100);
        plan.add(BufferId(2), 50);
        Arena::new(plan).expect("memory")
    }

    fn slice(buffer: usize, part: Range<usize>) -> Slice {
        Slice { buffer: BufferId(buffer), offset: part.start, len: part.len() }
    }

    #[test]
    fn disjoint_rows_and_shared_reads_are_allowed() {
        let a = arena();
        let mut prover = Prover::new(&a, false);
        let all = slice(1, 0..100);
        let tasks = [0..25, 25..50].map(|part| Access::new([all], [slice(2, part)]));
        let [first, second] =
            [0, 1].map(|thread| prover.verify(thread, &tasks[thread]).expect("no conflict"));
        // SAFETY: one thread, one borrow at a time.
        let (_, [w, ..]) = unsafe { first.borrow(&a) };
        w.fill(7.0);
        // SAFETY: the slices above are no longer used.
        let (reads, _) = unsafe { second.borrow(&a) };
        assert_eq!(reads[0].len(), 100);
    }

    #[test]
    fn overlaps_are_found() {
        let a = arena();
        let mut prover = Prover::new(&a, false);
        prover.verify(0, &Access::new([], [slice(1, 0..51)])).expect("alone");
        let racing = Access::new([slice(1, 50..51)], []);
        assert!(!prover.admits(&[(1, racing)]) && prover.verify(1, &racing).is_err());
        assert!(prover.verify(0, &Access::new([slice(2, 0..10)], [slice(2, 9..19)])).is_err(), "of one task");
        assert!(prover.verify(0, &Access::new([slice(3, 0..1)], [])).is_err(), "no such buffer");
        prover.barrier();
        assert!(prover.verify(1, &racing).is_ok(), "a barrier in between");
    }
}
