//! A trial's memory use: on each device, and in host memory for all devices.
//!
//! Constant overheads of a few megabytes are not counted: stacks, code, staging buffers.

use super::{
    chunks::{Chunks, ON_A_GPU},
    dataset_info::DatasetInfo,
    devices::DeviceId,
};
use crate::program::{Bf16Copies, MemoryPlan, Programs, Role, Shard, Slice};

const NUMBER: u64 = 4;

/// Bytes of a count of rows.
const COUNT: u64 = 8;

/// The most outputs of validation rows that are ranked: 1 GiB of f32.
pub const MOST_RANKED: usize = 1 << 28;

/// Bytes kept per row of a chunk so that its rows can be read in file order: the row's index and its position
/// in the chunk.
const SORTED: u64 = 8;

/// Where a trial's rows are kept, and what else grows with their number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rows {
    pub facts: DatasetInfo,
    /// Epochs whose orders of rows are held at once.
    pub orders: u64,
    /// Whether training and validation rows share a file, so that their indices are kept.
    pub are_split: bool,
    pub chunks: Option<Chunks>,
    pub validates: bool,
    pub saves_checkpoints: bool,
    /// Whether the outputs of all validation rows come to the host, to be ranked.
    pub ranks_outputs: bool,
    /// Whether the operands of products are rounded to bfloat16: the CPU packs them, GPUs make copies for a
    /// library.
    pub rounds_to_bf16: bool,
    pub by_library: bool,
    /// Bytes that any job takes on a GPU besides its buffers.
    pub gpu_fixed_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Footprint {
    /// Per device, in the order of [`super::ResolvedDevices::used`]. The CPU and virtual devices use host
    /// memory.
    pub devices: Vec<u64>,
    /// Other host memory: rows, their order, and chunks in flight.
    pub host: u64,
    /// Host memory for copies of the weights while they are saved, and of the optimizer's state for a
    /// checkpoint.
    pub saved: u64,
    /// The part of `host` that chunks take, and the maximum number of chunks.
    pub chunks: (u64, u64),
}

impl Footprint {
    /// The footprint of devices that run these programs.
    pub(super) fn new<'a>(rows: &Rows, ranks: impl Iterator<Item = (&'a DeviceId, &'a Programs)>) -> Self {
        let ranks: Vec<_> = ranks.collect();
        let world_size = ranks.len();
        let device = |(rank, (place, programs)): (usize, &(&DeviceId, &Programs))| {
            let best = if rank == 0 { rows.best(programs) } else { 0 };
            rows.on_device(**place, programs, Shard { rank, world_size }).saturating_add(best)
        };
        let places: Vec<DeviceId> = ranks.iter().map(|(place, _)| **place).collect();
        let chunks = rows.held(&places);
        let saved = ranks.first().map_or(0, |(_, programs)| rows.saved(programs));
        Self {
            devices: ranks.iter().enumerate().map(device).collect(),
            host: rows.on_host(&places).saturating_add(ranks.first().map_or(0, |(_, p)| rows.scored(p))),
            saved,
            chunks,
        }
    }

    /// Whether this footprint is at least as large in every memory, and larger in one.
    pub(super) fn exceeds(&self, other: &Self, used: &[DeviceId]) -> bool {
        let memories = |footprint: &Self| -> Vec<u64> {
            let own = footprint
                .devices
                .iter()
                .zip(used)
                .filter(|(_, place)| !matches!(place, DeviceId::Cpu | DeviceId::Rank(_)));
            own.map(|(bytes, _)| *bytes).chain([footprint.in_host_memory(used)]).collect()
        };
        let (own, other) = (memories(self), memories(other));
        own != other && own.iter().zip(&other).all(|(own, other)| own >= other)
    }

    /// Peak host memory, including that of the CPU and of virtual devices.
    pub fn in_host_memory(&self, used: &[DeviceId]) -> u64 {
        let is_here = |place: &DeviceId| !place.is_real_gpu() && !matches!(place, DeviceId::Rank(1..));
        let own = self.devices.iter().zip(used).filter(|(_, place)| is_here(place));
        own.fold(self.host.saturating_add(self.saved), |sum, (bytes, _)| sum.saturating_add(*bytes))
    }
}

impl Rows {
    /// Bytes of resident data on a device with its own memory.
    fn resident(&self) -> u64 {
        if self.chunks.is_some() { 0 } else { self.facts.resident_bytes().saturating_add(self.order()) }
    }

    fn order(&self) -> u64 {
        self.orders.saturating_mul(self.facts.train_rows as u64).saturating_mul(NUMBER)
    }

    /// Bytes of the best weights, which the first device keeps.
    pub fn best(&self, programs: &Programs) -> u64 {
        if self.validates { bytes_of(Some(programs.layout.whole(programs.layout.values))) } else { 0 }
    }

    /// Bytes of host memory for metrics of a validation's predictions: a count for each pair of classes, and to rank the outputs of
    /// all rows, outputs, classes, and two pairs of f64 per row.
    pub fn scored(&self, programs: &Programs) -> u64 {
        let Some(outputs) = programs.layout.prediction.filter(|_| self.validates) else { return 0 };
        let outputs = outputs.len as u64;
        let pairs = if self.facts.classes.is_some() { outputs.saturating_mul(outputs) } else { 0 };
        let each = if self.ranks_outputs { NUMBER * (outputs + 1) + 32 } else { 0 };
        each.saturating_mul(self.facts.validation_rows as u64).saturating_add(pairs.saturating_mul(COUNT))
    }

    /// Bytes of host memory for what is saved: the final and best weights, and in a checkpoint the
    /// optimizer's state.
    pub fn saved(&self, programs: &Programs) -> u64 {
        let layout = &programs.layout;
        let state = layout.of_role(Role::State).filter(|_| self.saves_checkpoints);
        let [values, state] = [Some(layout.whole(layout.values)), state].map(bytes_of);
        values.saturating_add(self.best(programs)).saturating_add(state)
    }

    /// Bytes on one device, not counting the best weights.
    pub fn on_device(&self, place: DeviceId, programs: &Programs, shard: Shard) -> u64 {
        let chunk = || self.chunks.map_or(0, |chunks| chunks.bytes_of(shard, self.validates, [1, 1]));
        match place {
            // These compute directly on the host's rows.
            DeviceId::Cpu | DeviceId::Rank(_) => {
                [programs.packed_bytes(self.rounds_to_bf16), programs.early_sum_bytes()]
                    .into_iter()
                    .fold(programs.arena_bytes(), u64::saturating_add)
            }
            DeviceId::Virtual(_) => [programs.packed_bytes(self.rounds_to_bf16), self.resident(), chunk()]
                .into_iter()
                .fold(programs.arena_bytes(), u64::saturating_add),
            DeviceId::Gpu(_) | DeviceId::RankGpu { .. } => {
                let layout = &programs.layout;
                let log = layout.buffers.iter().filter(|b| b.role == Role::Log);
                let log =
                    log.fold(0, |sum: u64, b| sum.saturating_add((b.len as u64).saturating_mul(NUMBER)));
                let copies = self.rounds_to_bf16 && self.by_library;
                let copies = if copies { Bf16Copies::elements(programs) } else { 0 };
                let arena = NUMBER * (MemoryPlan::new(programs).elements() + copies) as u64;
                let chunks = ON_A_GPU.saturating_mul(chunk());
                // The next orders go up while steps read the present ones.
                let order = if self.chunks.is_some() { 0 } else { self.order() };
                [log, self.gpu_fixed_bytes, self.resident(), order, chunks]
                    .into_iter()
                    .fold(arena, u64::saturating_add)
            }
        }
    }

    /// Bytes of host memory used on behalf of these devices.
    pub fn on_host(&self, places: &[DeviceId]) -> u64 {
        let facts = self.facts;
        let mut bytes = facts.resident_bytes().saturating_add(self.order());
        if facts.in_file() && self.are_split {
            bytes = bytes.saturating_add(facts.rows().saturating_mul(NUMBER));
        }
        if facts.weighted && self.orders > 0 {
            // The weight of each batch follows from the epoch's order.
            bytes = bytes.saturating_add((facts.train_rows as u64).saturating_mul(NUMBER));
        }
        if self.chunks.is_none() {
            // Two of each GPU, pinned, and the next orders, which are made while steps use the present ones.
            let gpus = places.iter().filter(|place| place.own_gpu().is_some()).count() as u64;
            let orders = if gpus == 0 { 0 } else { gpus.saturating_mul(2) + 1 };
            bytes = bytes.saturating_add(orders.saturating_mul(self.order()));
        }
        bytes.saturating_add(self.held(places).0).saturating_add(self.noted(places.len()))
    }

    /// Bytes and number of the chunks that the host holds for these devices.
    pub fn held(&self, places: &[DeviceId]) -> (u64, u64) {
        let Some(chunks) = self.chunks else { return (0, 0) };
        let mut counts = chunks.on_the_host(places);
        if !self.validates {
            counts[1] = 0;
        }
        let of = |rank| chunks.bytes_of(Shard { rank, world_size: places.len() }, self.validates, counts);
        ((0..places.len()).map(of).fold(0, u64::saturating_add), counts[0] + counts[1])
    }

    /// Bytes kept per row while a chunk is read. The devices' shares are read one after the other, so the
    /// largest counts, which is that of the last device.
    fn noted(&self, world_size: usize) -> u64 {
        let last = Shard { rank: world_size.saturating_sub(1), world_size };
        let rows = self.chunks.map_or(0, |chunks| chunks.rows(last, self.validates));
        rows.saturating_mul(NUMBER + if self.facts.in_file() { SORTED } else { 0 })
    }
}

fn bytes_of(slice: Option<Slice>) -> u64 {
    slice.map_or(0, |slice| (slice.len as u64).saturating_mul(NUMBER))
}
