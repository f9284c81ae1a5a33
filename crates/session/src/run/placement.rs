//! How the trials of a sweep are placed on GPUs: how many run side by side, and beside which others.

use super::{planned::Planned, prepare::Prepared};
use crate::{plan::Machine, spec::GpuSharing, units};

pub struct Placement {
    /// The most trials at a time.
    pub most: usize,
    /// Trials at a time by `--jobs auto`.
    pub auto: usize,
    /// The most on one GPU.
    each: usize,
    /// Engines of trials that keep a GPU to themselves.
    alone: Vec<&'static str>,
    /// Whether only trials that take one block share a GPU.
    is_one_block: bool,
}

impl Placement {
    /// Places planned trials; `None` if GPUs do not limit how many run at a time.
    pub fn new<P: Planned>(prepared: &[Prepared<P>], machine: &Machine, share: GpuSharing) -> Option<Self> {
        let runs = || {
            prepared
                .iter()
                .filter_map(|own| if let Prepared::Run(planned) = own { Some(planned) } else { None })
        };
        let gpus_of = |planned: &P| planned.devices().used.iter().filter_map(|device| device.gpu()).count();
        let least = runs().map(|planned| gpus_of(planned)).min().filter(|least| *least > 0)?;
        let (mut alone, mut bytes) = (Vec::new(), None);
        for planned in runs() {
            let (needed, is_one_block) = planned.gpu_need();
            let engine = planned.steps_and_engine().map_or("", |(_, engine)| engine);
            match share.allows(is_one_block) {
                true => bytes = bytes.max(Some(needed)),
                false if alone.contains(&engine) => {}
                false => alone.push(engine),
            }
        }
        let gpus = (machine.gpus.len() / least).max(1);
        let room = |bytes: u64| {
            let each = machine.gpus.iter().map(|gpu| {
                let blocks = u64::from(gpu.limits.multiprocessors);
                let most = if share == GpuSharing::Always { u64::MAX } else { blocks };
                most.min(gpu.memory_free / bytes.max(1)).max(1)
            });
            each.min().unwrap_or(1) as usize
        };
        let each = bytes.map_or(1, room);
        let most = gpus.saturating_mul(each);
        Some(Self {
            most,
            auto: most.min(machine.cores).max(gpus),
            each,
            alone,
            is_one_block: share == GpuSharing::Auto,
        })
    }

    /// A sentence for `runner check`.
    pub fn words(&self) -> String {
        let [trials, each] = [self.auto, self.each].map(|count| units::counted(count as u64, "trial"));
        let mut place = match self.each {
            1 => "each has a GPU to itself".to_owned(),
            _ => format!("up to {each} share a GPU"),
        };
        if self.each > 1 && self.is_one_block {
            place.push_str(", one block each");
        }
        if self.each > 1 && !self.alone.is_empty() {
            let alone =
                self.alone.iter().map(|engine| format!("`{engine}`")).collect::<Vec<_>>().join(" or ");
            place.push_str(&format!("; those with {alone} have one to themselves"));
        }
        format!("`--jobs auto` runs {trials} at a time: {place}")
    }
}
