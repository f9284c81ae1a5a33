//! Whether a trial fits into the available memory, and if not, which batch size would.

use super::{
    chunk_policy::ChunkPolicy,
    devices::{DeviceId, ResolvedDevices},
    lower::programs,
    machine::Machine,
    run_length::global_batch,
};
use crate::{
    program::{Programs, Shard},
    spec::{Layer, Problem, Request, Source, Spec},
    units,
};

/// What a trial's memory use depends on.
pub(super) struct Need<'a> {
    pub policy: ChunkPolicy<'a>,
    /// Whether updates may be fused into products, which needs no gradient buffers.
    pub fold_update: bool,
    pub devices: &'a ResolvedDevices,
    pub data_bytes: u64,
}

struct Lack {
    /// The GPU that lacks memory; `None` for the host, whose memory virtual devices share.
    gpu: Option<DeviceId>,
    needed: u64,
    free: u64,
    /// Bytes of each virtual device.
    each: u64,
    /// Bytes of rows that the host holds for all devices.
    host: u64,
}

impl Need<'_> {
    /// Compares each device's need with its memory, and the host's need with host memory. `largest` are the
    /// programs of the device with the largest share of `batch` rows.
    pub fn check(&self, largest: &Programs, batch: usize) -> Result<(), Problem> {
        let Some(lack) = self.lack(largest, batch) else { return Ok(()) };
        let [needed, free] = units::two_sizes(lack.needed, lack.free);
        let message = match lack.gpu {
            Some(place) => format!(
                "the job needs {needed} of memory on `{place}` for parameters, activations and data, and {free} are free"
            ),
            None => format!(
                "the job needs {needed} of memory{}, and {free} are available",
                self.of_the_host(&lack, batch)
            ),
        };
        let spec = self.policy.spec;
        let parameters = largest.layout.parameter_count() * 4;
        if parameters.saturating_mul(3) > lack.free {
            return Err(Problem::at_key(widest_layer(spec), message).hint("make the model smaller"));
        }
        let rows = if lack.gpu.is_some() { self.data_bytes } else { self.policy.facts.resident_bytes() };
        let all = self.policy.rows(largest, self.policy.chunks(batch));
        let ((chunks, _), scored) = (all.held(&self.devices.used), all.scored(largest));
        if lack.gpu.is_none() && scored > lack.free / 2 {
            let hint = format!(
                "watch `loss` and `accuracy` alone: other metrics need {} for the predictions of a validation",
                units::bytes(scored)
            );
            return Err(Problem::at_key("logging.metrics", message).hint(hint));
        }
        let (key, hint) = match self.largest_batch() {
            Some(batch) => ("data.batch_size".to_owned(), format!("`data.batch_size = {batch}` would fit")),
            None if lack.gpu.is_none() && chunks > lack.free / 2 => {
                let chunks = units::bytes(chunks);
                let hint = format!(
                    "free some, or train on the CPU: rows on their way to devices take {chunks} in chunks, whatever the model"
                );
                (rows_key(spec).to_owned(), hint)
            }
            None if rows > lack.free / 2 => (rows_key(spec).to_owned(), self.fewer_rows().to_owned()),
            None if self.devices.used.len() > 1 => {
                let key = if matches!(spec.devices.request, Request::Use(_)) { "use" } else { "num_gpus" };
                (format!("devices.{key}"), "make the model smaller, or use fewer devices".to_owned())
            }
            None => (widest_layer(spec), "make the model smaller".to_owned()),
        };
        Err(Problem::at_key(key, message).hint(hint))
    }

    /// The hint for the case that rows take most of the memory.
    fn fewer_rows(&self) -> &'static str {
        let ChunkPolicy { spec, facts, on_cpu, streams, .. } = self.policy;
        let is_npy = matches!(spec.data.source, Source::Npy(_));
        match () {
            () if facts.in_file() => "use fewer rows: their targets and their order are held in memory",
            // The CPU uses the rows in place. Rows of arrays can stay in their file.
            () if !is_npy && (on_cpu || streams) => {
                "use fewer rows, or `npy` arrays, which may stay in their file"
            }
            () => "`data.placement = \"streamed\"` leaves the data on the host",
        }
    }

    /// The first memory that is too small, if all devices run `programs`.
    fn lack(&self, programs: &Programs, batch: usize) -> Option<Lack> {
        let rows = self.policy.rows(programs, self.policy.chunks(batch));
        let used = &self.devices.used;
        // The last device has the largest share.
        let last = Shard { rank: used.len().saturating_sub(1), world_size: used.len() };
        // The first device's share may be just as large, and it keeps the best weights as well.
        let best = rows.best(programs);
        let of = |place: DeviceId| rows.on_device(place, programs, last);
        let each = of(DeviceId::Virtual(0));
        let host = rows.on_host(used);
        for place in used {
            if let Some(i) = place.own_gpu() {
                let free = self.policy.machine.gpus.get(i as usize).map_or(0, |gpu| gpu.memory_free);
                let needed = of(*place).saturating_add(best);
                if needed > free {
                    return Some(Lack { gpu: Some(*place), needed, free, each, host });
                }
            }
        }
        // Each process has a host of its own, and plans for itself.
        let in_host =
            used.iter().filter(|place| !place.is_real_gpu() && !matches!(place, DeviceId::Rank(1..)));
        let kept = if used.first().is_some_and(|place| place.is_real_gpu()) { 0 } else { best };
        let scored = rows.scored(programs);
        let fixed = [kept, rows.saved(programs), scored].into_iter().fold(host, u64::saturating_add);
        let needed = in_host.fold(fixed, |sum, place| sum.saturating_add(of(*place)));
        let free = self.policy.machine.memory_available;
        (needed > free).then_some(Lack { gpu: None, needed, free, each, host })
    }

    /// ` for parameters, activations and data`, preceded by where they are.
    fn of_the_host(&self, lack: &Lack, batch: usize) -> String {
        let [each, host] = [lack.each, lack.host].map(units::bytes);
        let rows = match self.policy.chunks(batch) {
            None => "the data once more on the host".to_owned(),
            Some(_) => format!("{host} on the host for rows on their way there"),
        };
        let used = &self.devices.used;
        let place = match used.iter().filter(|p| matches!(p, DeviceId::Virtual(_))).count() {
            0 if used.iter().all(|place| place.is_real_gpu()) => {
                return " on the host for rows and chunks of them".to_owned();
            }
            0 => String::new(),
            1 => format!(" ({each} on the virtual device, {rows})"),
            n => format!(" ({each} on each of {n} virtual devices, {rows})"),
        };
        format!("{place} for parameters, activations and data")
    }

    fn largest_batch(&self) -> Option<usize> {
        let ChunkPolicy { spec, facts, .. } = self.policy;
        let world_size = self.devices.used.len();
        // The last device has the largest share.
        let last = Shard { rank: world_size.saturating_sub(1), world_size };
        let fits = |batch_size: usize| {
            let mut spec = spec.clone();
            spec.data.batch_size = batch_size;
            let batch = global_batch(&spec, world_size).min(facts.train_rows);
            let streamed = self.policy.chunks(batch).is_some();
            let programs = programs(&spec, facts, batch, streamed, last, self.fold_update);
            self.lack(&programs, batch).is_none()
        };
        // Invariant: `low` fits and `high` does not.
        let (mut low, mut high) = (0, spec.data.batch_size.min(facts.train_rows));
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if fits(middle) { low = middle } else { high = middle }
        }
        (low > 0).then_some(low)
    }
}

/// The error for sizes beyond any memory. `fixed`: bytes that do not depend on the batch, such as parameters.
pub(super) fn too_large(spec: &Spec, needed: u64, fixed: u64, machine: &Machine) -> Problem {
    let hint = if fixed.saturating_mul(3) > machine.memory_available {
        "make the model smaller"
    } else {
        "lower `data.batch_size`, or make the model smaller"
    };
    let [needed, free] = units::two_sizes(needed, machine.memory_available);
    let message = format!(
        "the job needs at least {needed} of memory for parameters, activations and data, and {free} are available"
    );
    Problem::at_key(widest_layer(spec), message).hint(hint)
}

/// The spec key of the widest layer, which makes the model large.
fn widest_layer(spec: &Spec) -> String {
    let widths = spec.model.layers.iter().enumerate().filter_map(|(i, layer)| match layer {
        Layer::Linear(linear) => Some((linear.out_features, i)),
        _ => None,
    });
    // The first of equally wide layers.
    let widest = widths.max_by_key(|(width, i)| (*width, std::cmp::Reverse(*i)));
    widest.map_or("model.layers".to_owned(), |(_, i)| format!("model.layers.{i}.linear.out_features"))
}

/// The spec key that makes the data large.
fn rows_key(spec: &Spec) -> &'static str {
    match spec.data.source {
        Source::SyntheticRegression(_) => "data.synthetic_regression.train_rows",
        Source::SyntheticClassification(_) => "data.synthetic_classification.train_rows",
        Source::Csv(_) => "data.csv",
        Source::Idx(_) => "data.idx",
        Source::Npy(_) => "data.npy",
        Source::Parquet(_) => "data.parquet",
    }
}

#[cfg(test)]
#[path = "memory_tests.rs"]
mod tests;
