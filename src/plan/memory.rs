//! Whether a trial fits into the memory that is free, and which batch would.

use super::{Choice, Facts, Machine, Place, global_batch, gpu, programs};
use crate::{
    program::{Programs, Shard},
    spec::{Layer, Problem, Request, Source, Spec},
    units,
};

/// What is known of a trial when its memory is counted.
pub(super) struct Need<'a> {
    pub spec: &'a Spec,
    pub facts: Facts,
    pub streamed: bool,
    /// Whether updates may be folded into products, which saves the gradients.
    pub fold_update: bool,
    pub devices: &'a Choice,
    /// Of resident data.
    pub data_bytes: u64,
    /// Of chunks of rows on a GPU, where they are streamed.
    pub chunk_bytes: u64,
}

/// A memory that is too small.
struct Lack {
    /// The GPU; `None` for the host's memory, which virtual devices share.
    gpu: Option<Place>,
    needed: u64,
    free: u64,
    /// Of each virtual device.
    each: u64,
}

impl Need<'_> {
    /// Holds each device's part against its memory, and what the host holds against its own. `largest` is what the
    /// device with the largest share runs.
    pub fn check(&self, largest: &Programs, machine: &Machine) -> Result<(), Problem> {
        let Some(lack) = self.lack(largest, machine) else { return Ok(()) };
        let [needed, free] = units::two_sizes(lack.needed, lack.free);
        let message = match lack.gpu {
            Some(place) => format!(
                "the job needs {needed} of memory on `{place}` for parameters, activations and data, and {free} are free"
            ),
            None => format!(
                "the job needs {needed} of memory{} for parameters, activations and data, and {free} are available",
                self.by_virtual_devices(lack.each)
            ),
        };
        let parameters = largest.layout.parameter_count() * 4;
        if parameters.saturating_mul(3) > lack.free {
            return Err(Problem::at_key(widest_layer(self.spec), message).hint("make the model smaller"));
        }
        let (key, hint) = match self.largest_batch(machine) {
            Some(batch) => ("data.batch_size".to_owned(), format!("`data.batch_size = {batch}` would fit")),
            None if self.data_bytes > lack.free / 2 => {
                // The CPU has no memory but the one that holds the rows; it leaves those of arrays in their file.
                let is_held =
                    self.devices.used == [Place::Cpu] && !matches!(self.spec.data.source, Source::Npy(_));
                let hint = match is_held {
                    true => "use fewer rows, or `npy` arrays, which may stay in their file",
                    false => "`data.placement = \"streamed\"` leaves the data on the host",
                };
                (rows_key(self.spec).to_owned(), hint.to_owned())
            }
            None if self.devices.used.len() > 1 => {
                (devices_key(self.spec).to_owned(), "make the model smaller, or use fewer devices".to_owned())
            }
            None => (widest_layer(self.spec), "make the model smaller".to_owned()),
        };
        Err(Problem::at_key(key, message).hint(hint))
    }

    /// The first memory that is too small for devices that all run `programs`.
    fn lack(&self, programs: &Programs, machine: &Machine) -> Option<Lack> {
        let arena_bytes = programs.layout.arena_bytes();
        let each = arena_bytes.saturating_add(self.data_bytes);
        let mut in_host = self.data_bytes;
        for place in &self.devices.used {
            match place {
                Place::Cpu => in_host = in_host.saturating_add(arena_bytes),
                // A virtual device holds a copy of the data, in the host's memory like all else.
                Place::Virtual(_) => in_host = in_host.saturating_add(each),
                Place::Gpu(i) => {
                    let free = machine.gpus.get(*i as usize).map_or(0, |gpu| gpu.memory_free);
                    let needed = gpu::bytes(programs, self.data_bytes, self.chunk_bytes);
                    if needed > free {
                        return Some(Lack { gpu: Some(*place), needed, free, each });
                    }
                }
            }
        }
        let free = machine.memory_available;
        (in_host > free).then_some(Lack { gpu: None, needed: in_host, free, each })
    }

    /// ` (1.2 GiB on each of 2 virtual devices, the data once more on the host)`.
    fn by_virtual_devices(&self, each: u64) -> String {
        let each = units::bytes(each);
        match self.devices.used.iter().filter(|p| matches!(p, Place::Virtual(_))).count() {
            0 => String::new(),
            1 => format!(" ({each} on the virtual device, the data once more on the host)"),
            n => format!(" ({each} on each of {n} virtual devices, the data once more on the host)"),
        }
    }

    /// The largest `batch_size` that fits.
    fn largest_batch(&self, machine: &Machine) -> Option<usize> {
        let world_size = self.devices.used.len();
        // The last device has the largest share.
        let last = Shard { rank: world_size.saturating_sub(1), world_size };
        let fits = |batch_size: usize| {
            let mut spec = self.spec.clone();
            spec.data.batch_size = batch_size;
            let batch = global_batch(&spec, world_size).min(self.facts.train_rows);
            let programs = programs(&spec, self.facts, batch, self.streamed, last, self.fold_update);
            self.lack(&programs, machine).is_none()
        };
        // What fits is below `high`, and `low` does.
        let (mut low, mut high) = (0, self.spec.data.batch_size.min(self.facts.train_rows));
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if fits(middle) { low = middle } else { high = middle }
        }
        (low > 0).then_some(low)
    }
}

/// A job whose sizes are beyond any memory. `fixed`: bytes of the parameters, whatever the batch.
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

/// What makes a model large: the width of its widest layer.
fn widest_layer(spec: &Spec) -> String {
    let widths = spec.model.layers.iter().enumerate().filter_map(|(i, layer)| match layer {
        Layer::Linear(linear) => Some((linear.out_features, i)),
        _ => None,
    });
    // Of equal ones the first.
    let widest = widths.max_by_key(|(width, i)| (*width, std::cmp::Reverse(*i)));
    widest.map_or("model.layers".to_owned(), |(_, i)| format!("model.layers.{i}.linear.out_features"))
}

/// What makes data large.
fn rows_key(spec: &Spec) -> &'static str {
    match spec.data.source {
        Source::SyntheticRegression(_) => "data.synthetic_regression.train_rows",
        Source::Csv(_) => "data.csv",
        Source::Idx(_) => "data.idx",
        Source::Npy(_) => "data.npy",
    }
}

/// What asks for several devices.
fn devices_key(spec: &Spec) -> &'static str {
    match spec.devices.request {
        Request::NumGpus(_) => "devices.num_gpus",
        Request::Use(_) => "devices.use",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        plan::{Gpu, PlanError, Rates, Trial, plan},
        spec::load,
    };

    fn machine(gpus: &[Gpu], memory_available: u64) -> Machine {
        Machine {
            gpus: gpus.to_vec(),
            no_gpu: String::new(),
            memory_available,
            cache_bytes: 1 << 20,
            instruction_set: "avx2".into(),
            rates: Rates::typical("avx2"),
            sum_rates: None,
        }
    }

    fn gpu(is_virtual: bool, memory_free: u64) -> Gpu {
        Gpu { is_virtual, ..Gpu::virtual_of(memory_free) }
    }

    fn planned(more: &[&str], machine: &Machine) -> Result<Trial, Problem> {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/parity/sgd/spec.toml");
        let overrides: Vec<String> = more.iter().map(|&word| word.to_owned()).collect();
        let experiment = load(path.as_ref(), &overrides).expect("a spec");
        let facts = Facts {
            train_rows: 50_000,
            validation_rows: 0,
            features: 100,
            targets: 1,
            classes: None,
            file_row_bytes: None,
        };
        plan(&experiment.trials[0].spec, facts, machine, 2).map_err(|e| match e {
            PlanError::Problems(mut problems) => problems.remove(0),
            PlanError::Missing(problem) => problem,
        })
    }

    /// A job that does not fit names both numbers, and the batch that it names is the largest that does.
    #[test]
    fn the_batch_that_would_fit_is_named() {
        let (batch, free) = ("data.batch_size=40000", 40_000_000);
        // Rows of 100 features and a target, the same on the host where a device has its own.
        let data = 50_000 * 101 * 4;
        let virtual_gpus = |n: usize| machine(&vec![gpu(true, 1); n], free + n as u64 * data);
        let real = |memory_free| machine(&[gpu(false, 1 << 40), gpu(false, memory_free)], 1 << 40);
        for (devices, machine, scaling) in [
            ("devices.num_gpus=0", machine(&[], free), "strong"),
            ("devices.num_gpus=1", virtual_gpus(1), "strong"),
            ("devices.num_gpus=3", virtual_gpus(3), "strong"),
            ("devices.num_gpus=2", real(70_000_000), "strong"),
            ("devices.num_gpus=3", virtual_gpus(3), "weak"),
        ] {
            let scaling = format!("devices.scaling={scaling}");
            let problem = planned(&[batch, devices, &scaling], &machine).expect_err("it is too large");
            let hint = problem.hint.unwrap_or_default();
            let fits: usize = hint
                .strip_prefix("`data.batch_size = ")
                .and_then(|rest| rest.strip_suffix("` would fit"))
                .and_then(|number| number.parse().ok())
                .unwrap_or_else(|| panic!("{devices}: {hint}"));
            let with = |batch: usize| {
                planned(&[&format!("data.batch_size={batch}"), devices, &scaling], &machine).is_ok()
            };
            // A few rows more or less are a matter of where updates are folded into products.
            assert!(with(fits) && !with(fits + 20), "{devices}: {fits}");
        }
    }

    #[test]
    fn what_each_virtual_device_needs_is_told() {
        let whole = planned(&["devices.num_gpus=2"], &machine(&[gpu(true, 1), gpu(true, 1)], 1 << 40));
        let arena = whole.expect("it fits").peers[0].layout.arena_bytes();
        let (data, free) = (50_000 * 101 * 4, 40_000_000);
        let small = machine(&[gpu(true, 1), gpu(true, 1)], free);
        let problem = planned(&["devices.num_gpus=2"], &small).expect_err("it is too large");
        let message = format!(
            "the job needs {} of memory ({} on each of 2 virtual devices, the data once more on the host) for \
             parameters, activations and data, and 38.1 MiB are available",
            units::bytes(2 * (arena + data) + data),
            units::bytes(arena + data)
        );
        assert_eq!(problem.message, message);
        assert_eq!(
            problem.hint.as_deref(),
            Some("`data.placement = \"streamed\"` leaves the data on the host")
        );
    }
}
