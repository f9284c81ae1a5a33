//! Leases of GPUs for trials that run side by side. A GPU belongs to one trial at a time, also across
//! processes that share the sweep, unless sharing is allowed. Trials that take one block of a GPU share it within a process.

use std::{
    collections::BTreeMap,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::{device_group::is_given_up, planned::Planned};
use crate::{
    plan::{DeviceId, Gpu, Machine, ResolvedDevices},
    record::Claims,
    spec::GpuSharing,
};

/// How long a trial waits before it checks again for a signal and for GPUs that other processes released.
const PAUSE: Duration = Duration::from_millis(20);

/// What a trial needs from its GPUs.
pub(super) struct Wanted<'d> {
    pub devices: &'d ResolvedDevices,
    /// Bytes of memory on each GPU.
    pub bytes: u64,
    /// Whether its steps take one block of a GPU.
    pub is_one_block: bool,
}

impl<'d> Wanted<'d> {
    pub fn new<P: Planned>(planned: &'d P) -> Self {
        let (bytes, is_one_block) = planned.gpu_need();
        Self { devices: planned.devices(), bytes, is_one_block }
    }
}

/// The GPUs of a sweep, and which trials hold them.
pub(super) struct Leases<'m> {
    machine: &'m Machine,
    share: GpuSharing,
    claims: Arc<Claims>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    held: BTreeMap<u32, Held>,
    /// Number of requests so far. Trials are served in order of arrival, so that one that needs many GPUs is
    /// not starved.
    came: u64,
    served: u64,
}

/// The trials on a GPU.
#[derive(Default)]
struct Held {
    trials: usize,
    bytes: u64,
    /// One that keeps the GPU to itself.
    is_alone: bool,
}

/// GPUs held by a trial; dropping this releases them.
pub(super) struct Lease<'l, 'm> {
    leases: &'l Leases<'m>,
    gpus: Vec<u32>,
    bytes: u64,
}

impl<'m> Leases<'m> {
    pub fn new(machine: &'m Machine, share: GpuSharing, claims: Arc<Claims>) -> Self {
        Self { machine, share, claims, state: Mutex::default(), changed: Condvar::new() }
    }

    /// Waits for GPUs equivalent to the planned ones; `None` if `is_cut` becomes true first.
    pub fn take(&self, wanted: &Wanted<'_>, is_cut: impl Fn() -> bool) -> Option<Lease<'_, 'm>> {
        let lease = |gpus| Lease { leases: self, gpus, bytes: wanted.bytes };
        let planned = ordinals(&wanted.devices.used);
        if planned.is_empty() {
            return Some(lease(planned));
        }
        let mut state = self.state();
        let turn = state.came;
        state.came += 1;
        let taken = loop {
            if is_cut() {
                break None;
            }
            if state.served >= turn
                && let Some(gpus) = self.choose(&state, &planned, wanted)
            {
                break Some(gpus);
            }
            state = self.changed.wait_timeout(state, PAUSE).unwrap_or_else(PoisonError::into_inner).0;
        };
        // After an interruption all waiters leave, in any order.
        state.served = state.served.max(turn + 1);
        for gpu in taken.iter().flatten() {
            let held = state.held.entry(*gpu).or_default();
            let is_alone = !self.share.allows(wanted.is_one_block);
            *held = Held { trials: held.trials + 1, bytes: held.bytes + wanted.bytes, is_alone };
        }
        drop(state);
        self.changed.notify_all();
        taken.map(lease)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Chooses GPUs that are free or, where sharing is allowed, those with the fewest trials.
    fn choose(&self, state: &State, planned: &[u32], wanted: &Wanted<'_>) -> Option<Vec<u32>> {
        let trials = |gpu: &u32| state.held.get(gpu).map_or(0, |held| held.trials);
        let is_free = |gpu: &u32| {
            let held = state.held.get(gpu).filter(|held| held.trials > 0);
            let has_room = |held: &Held| {
                let bytes = held.bytes.saturating_add(wanted.bytes);
                !held.is_alone && self.gpu(*gpu).is_some_and(|own| bytes <= own.memory_free)
            };
            held.is_none_or(|held| self.share.allows(wanted.is_one_block) && has_room(held))
        };
        let all: Vec<u32> = (0..self.machine.gpus.len() as u32).collect();
        let works = |gpu: &u32| self.gpu(*gpu).is_none_or(|gpu| !is_given_up(gpu));
        let mut free: Vec<u32> = all.iter().copied().filter(works).collect();
        if self.set_of(&free, planned, wanted).is_none() {
            free = all; // let the trial run and report what is wrong with them
        }
        free.retain(is_free);
        free.sort_by_key(trials);
        loop {
            let chosen = self.set_of(&free, planned, wanted)?;
            let is_new = |gpu: &&u32| trials(gpu) == 0;
            let Some(others) = chosen.iter().filter(is_new).find(|gpu| !self.lock(**gpu)).copied() else {
                return Some(chosen);
            };
            let locked = chosen.iter().take_while(|gpu| **gpu != others).filter(is_new);
            locked.for_each(|gpu| self.unlock(*gpu));
            free.retain(|gpu| *gpu != others);
        }
    }

    /// A set from `free` that the trial may run on: the planned GPUs, or GPUs like them that are connected
    /// alike.
    fn set_of(&self, free: &[u32], planned: &[u32], wanted: &Wanted<'_>) -> Option<Vec<u32>> {
        let mut chosen = Vec::new();
        let is_found = free.len() >= planned.len() && self.search(free, planned, wanted, &mut chosen);
        is_found.then_some(chosen)
    }

    /// Extends `chosen` to a complete set by depth-first search; false if that is impossible.
    fn search(&self, free: &[u32], planned: &[u32], wanted: &Wanted<'_>, chosen: &mut Vec<u32>) -> bool {
        let Some(&as_planned) = planned.get(chosen.len()) else { return true };
        let mut failed: Vec<u32> = Vec::new();
        for &gpu in free {
            let fits = match wanted.devices.are_named {
                true => gpu == as_planned,
                false => self.stands_in(planned, chosen, gpu, wanted.bytes),
            };
            // If a GPU failed here, every GPU equivalent to it fails too. Without this check the search takes
            // exponential time.
            let fails_alike = |other: &u32| *other != as_planned && self.are_twins(*other, gpu);
            let is_hopeless = || gpu != as_planned && failed.iter().any(fails_alike);
            if chosen.contains(&gpu) || !fits || is_hopeless() {
                continue;
            }
            chosen.push(gpu);
            if self.search(free, planned, wanted, chosen) {
                return true;
            }
            chosen.pop();
            failed.push(gpu);
        }
        false
    }

    /// Whether two GPUs are interchangeable in any set.
    fn are_twins(&self, a: u32, b: u32) -> bool {
        let kind =
            |gpu: u32| self.gpu(gpu).map(|gpu| (gpu.is_virtual, &gpu.model, gpu.limits, gpu.memory_free));
        let reaches = |from: u32, to: u32| self.gpu(from).is_some_and(|gpu| gpu.reaches.contains(&to));
        let others = (0..self.machine.gpus.len() as u32).filter(|other| ![a, b].contains(other));
        let likewise =
            |other: u32| reaches(a, other) == reaches(b, other) && reaches(other, a) == reaches(other, b);
        kind(a) == kind(b) && reaches(a, b) == reaches(b, a) && others.into_iter().all(likewise)
    }

    /// Whether `gpu` can be the next one after those `chosen`.
    fn stands_in(&self, planned: &[u32], chosen: &[u32], gpu: u32, bytes: u64) -> bool {
        let as_planned = planned[chosen.len()];
        let [Some(own), Some(like)] = [gpu, as_planned].map(|gpu| self.gpu(gpu)) else { return false };
        let reaches = |from: u32, to: u32| self.gpu(from).is_some_and(|gpu| gpu.reaches.contains(&to));
        let is_connected = |(before, other): (&u32, &u32)| {
            reaches(*other, gpu) == reaches(*before, as_planned)
                && reaches(gpu, *other) == reaches(as_planned, *before)
        };
        let is_like = (own.is_virtual, &own.model, own.limits) == (like.is_virtual, &like.model, like.limits);
        (gpu == as_planned || is_like && bytes <= own.memory_free)
            && planned.iter().zip(chosen).all(is_connected)
    }

    /// Locks a GPU against other processes; false if one of them has it. A virtual GPU has no UUID and needs
    /// no lock.
    fn lock(&self, gpu: u32) -> bool {
        let uuid = self.gpu(gpu).and_then(|gpu| gpu.uuid.as_deref());
        uuid.is_none_or(|uuid| self.claims.lease(uuid, self.share == GpuSharing::Always))
    }

    fn unlock(&self, gpu: u32) {
        if let Some(uuid) = self.gpu(gpu).and_then(|gpu| gpu.uuid.as_deref()) {
            self.claims.end_lease(uuid);
        }
    }

    fn gpu(&self, ordinal: u32) -> Option<&Gpu> {
        self.machine.gpus.get(ordinal as usize)
    }
}

impl Lease<'_, '_> {
    /// The devices of a trial with these GPUs instead of the planned ones; `None` if they are the planned
    /// ones.
    pub fn devices(&self, planned: &ResolvedDevices) -> Option<ResolvedDevices> {
        (ordinals(&planned.used) != self.gpus).then(|| planned.on(&self.gpus, self.leases.machine))
    }
}

impl Drop for Lease<'_, '_> {
    fn drop(&mut self) {
        if self.gpus.is_empty() {
            return;
        }
        let mut state = self.leases.state();
        for gpu in &self.gpus {
            if let Some(held) = state.held.get_mut(gpu) {
                (held.trials, held.bytes) = (held.trials - 1, held.bytes - self.bytes);
                if held.trials == 0 {
                    self.leases.unlock(*gpu);
                }
            }
        }
        drop(state);
        self.leases.changed.notify_all();
    }
}

fn ordinals(used: &[DeviceId]) -> Vec<u32> {
    used.iter().filter_map(|device| device.gpu()).collect()
}

#[cfg(test)]
#[path = "leases_tests.rs"]
mod tests;
