//! Whether a trial fits into the memory that is free, and which batch would.

use super::{Choice, Facts, Machine, Place, global_batch, programs};
use crate::{
    program::{Programs, Shard},
    spec::{Problem, Spec},
};

/// What is known of a trial when its memory is counted.
pub(super) struct Need<'a> {
    pub spec: &'a Spec,
    pub facts: Facts,
    pub streamed: bool,
    pub devices: &'a Choice,
    /// Of resident data.
    pub data_bytes: u64,
}

/// What a device lacks, or several in the same memory.
struct Lack {
    /// Whose memory it is.
    whose: String,
    needed: u64,
    free: u64,
}

impl Need<'_> {
    /// Holds each device's part against its memory, and what the host holds against its own.
    pub fn check(&self, first: &Programs, machine: &Machine) -> Result<(), Problem> {
        let Some(lack) = self.lack(first.layout.arena_bytes(), machine) else { return Ok(()) };
        let fixed = first.layout.parameter_count() * 4;
        let batch = self.largest_batch(machine);
        let hint = match batch {
            _ if fixed.saturating_mul(3) > lack.free => "make the model smaller".to_owned(),
            Some(batch) => format!("`data.batch_size = {batch}` would fit; or make the model smaller"),
            None if self.data_bytes > lack.free => {
                "stream the data (`data.placement = \"streamed\"`), or use fewer rows".to_owned()
            }
            None => "make the model smaller, or use fewer devices".to_owned(),
        };
        let message = format!(
            "the job needs {} of memory{} for parameters, activations and data, and {} are available",
            gb(lack.needed),
            lack.whose,
            gb(lack.free)
        );
        Err(Problem::at_key("model.layers", message).hint(hint))
    }

    /// The first memory that is too small, where a device's own buffers take `arena_bytes`.
    fn lack(&self, arena_bytes: u64, machine: &Machine) -> Option<Lack> {
        let each = arena_bytes.saturating_add(self.data_bytes);
        let mut in_host = 0u64;
        for place in &self.devices.used {
            match place {
                Place::Cpu => in_host = in_host.saturating_add(arena_bytes),
                // A virtual device holds a copy of the data, in the host's memory like all else.
                Place::Virtual(_) => in_host = in_host.saturating_add(each),
                // Real ones have memory of their own: `plan::gpu` counts it.
                Place::Gpu(_) => {}
            }
        }
        let needed = in_host.saturating_add(self.data_bytes);
        let virtual_devices = self.devices.used.iter().filter(|p| matches!(p, Place::Virtual(_))).count();
        let whose = match virtual_devices {
            0 => String::new(),
            1 => format!(" ({} on the virtual device, the data once more on the host)", gb(each)),
            n => format!(" ({} on each of {n} virtual devices, the data once more on the host)", gb(each)),
        };
        let free = machine.memory_available;
        (needed > free).then_some(Lack { whose, needed, free })
    }

    /// The largest `batch_size` that fits.
    fn largest_batch(&self, machine: &Machine) -> Option<usize> {
        let world_size = self.devices.used.len();
        let fits = |batch_size: usize| {
            let mut spec = self.spec.clone();
            spec.data.batch_size = batch_size;
            let batch = global_batch(&spec, world_size).min(self.facts.train_rows);
            let last = Shard { rank: world_size.saturating_sub(1), world_size };
            let programs = programs(&spec, self.facts, batch, self.streamed, last, true);
            self.lack(programs.layout.arena_bytes(), machine).is_none()
        };
        // What fits is below `low`, what does not from `high` on.
        let (mut low, mut high) = (0, self.spec.data.batch_size.min(self.facts.train_rows));
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if fits(middle) { low = middle } else { high = middle }
        }
        (low > 0).then_some(low)
    }
}

/// A job whose sizes are beyond any memory. `fixed`: bytes of the parameters, whatever the batch.
pub(super) fn too_large(needed: u64, fixed: u64, machine: &Machine) -> Problem {
    let hint = if fixed.saturating_mul(3) > machine.memory_available {
        "make the model smaller"
    } else {
        "lower `data.batch_size`, or make the model smaller"
    };
    let message = format!(
        "the job needs at least {} of memory for parameters, activations and data, and {} are available",
        gb(needed),
        gb(machine.memory_available)
    );
    Problem::at_key("model.layers", message).hint(hint)
}

fn gb(bytes: u64) -> String {
    format!("{:.3} GB", bytes as f64 / 1e9)
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
        }
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
            in_file: false,
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
        let virtual_gpus = |n: usize| machine(&vec![Gpu::virtual_of(1); n], free + n as u64 * data);
        for (devices, machine, scaling) in [
            ("devices.num_gpus=0", machine(&[], free), "strong"),
            ("devices.num_gpus=1", virtual_gpus(1), "strong"),
            ("devices.num_gpus=3", virtual_gpus(3), "strong"),
            ("devices.num_gpus=3", virtual_gpus(3), "weak"),
        ] {
            let scaling = format!("devices.scaling={scaling}");
            let problem = planned(&[batch, devices, &scaling], &machine).expect_err("it is too large");
            let hint = problem.hint.unwrap_or_default();
            let fits: usize = hint
                .strip_prefix("`data.batch_size = ")
                .and_then(|rest| rest.strip_suffix("` would fit; or make the model smaller"))
                .and_then(|number| number.parse().ok())
                .unwrap_or_else(|| panic!("{devices}: {hint}"));
            let with = |batch: usize| {
                planned(&[&format!("data.batch_size={batch}"), devices, &scaling], &machine).is_ok()
            };
            assert!(with(fits) && !with(fits + 1), "{devices}: {fits}");
        }
    }

    #[test]
    fn what_each_virtual_device_needs_is_told() {
        let whole =
            planned(&["devices.num_gpus=2"], &machine(&[Gpu::virtual_of(1), Gpu::virtual_of(1)], 1 << 40));
        let arena = whole.expect("it fits").peers[0].layout.arena_bytes();
        let (data, free) = (50_000 * 101 * 4, 40_000_000);
        let small = machine(&[Gpu::virtual_of(1), Gpu::virtual_of(1)], free);
        let problem = planned(&["devices.num_gpus=2"], &small).expect_err("it is too large");
        let gb = |bytes: u64| format!("{:.3} GB", bytes as f64 / 1e9);
        let message = format!(
            "the job needs {} of memory ({} on each of 2 virtual devices, the data once more on the host) for \
             parameters, activations and data, and 0.040 GB are available",
            gb(2 * (arena + data) + data),
            gb(arena + data)
        );
        assert_eq!(problem.message, message);
        assert_eq!(problem.hint.as_deref(), Some("make the model smaller, or use fewer devices"));
    }
}
