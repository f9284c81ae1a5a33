//! Whether a trial fits into the memory that is free, and which batch would.

use super::{
    Choice, Chunks, Facts, Machine, Place, fetch, footprint::Rows, global_batch, programs, validation_chunk,
};
use crate::{
    program::{Programs, Shard},
    spec::{Layer, Placement, Problem, Request, Source, Spec},
    units,
};

/// What decides how a trial's rows are cut.
#[derive(Clone, Copy)]
pub(super) struct Cut<'a> {
    pub spec: &'a Spec,
    pub facts: Facts,
    /// Whether the CPU alone computes.
    pub on_cpu: bool,
    pub machine: &'a Machine,
}

impl Cut<'_> {
    /// The chunks of steps on so many rows; `None` where rows stay where they are computed with, or steps fetch them. The
    /// CPU fetches them from where they are, one by one or many together, as it is quicker; every other device has a
    /// memory of its own, to which they are brought.
    pub fn chunks(&self, batch: usize) -> Option<Chunks> {
        let Self { spec, facts, .. } = *self;
        let batches = [batch, validation_chunk(facts, batch)];
        if self.on_cpu {
            let chunks = Chunks::together(facts, batches, self.machine.memory_available);
            return fetch::together(facts, (batch, spec.data.shuffle), chunks);
        }
        let away = facts.in_file() || spec.data.placement == Placement::Streamed;
        away.then(|| Chunks::new(facts, batches))
    }

    /// Where the rows of those programs are.
    pub fn rows(&self, programs: &Programs, chunks: Option<Chunks>) -> Rows {
        let Self { spec, facts, .. } = *self;
        let of_one_file = matches!(&spec.data.source, Source::Npy(npy) if npy.validation_features.is_none());
        let are_split = of_one_file && facts.validation_rows > 0;
        let validates = programs.validate.is_some();
        Rows { facts, shuffle: spec.data.shuffle, are_split, chunks, validates }
    }
}

/// What is known of a trial when its memory is counted.
pub(super) struct Need<'a> {
    pub cut: Cut<'a>,
    /// Whether updates may be folded into products, which saves the gradients.
    pub fold_update: bool,
    pub devices: &'a Choice,
    /// Of resident data.
    pub data_bytes: u64,
}

/// A memory that is too small.
struct Lack {
    /// The GPU; `None` for the host's memory, which virtual devices share.
    gpu: Option<Place>,
    needed: u64,
    free: u64,
    /// Of each virtual device.
    each: u64,
    /// What the host holds of rows for all devices.
    host: u64,
}

impl Need<'_> {
    /// Holds each device's part against its memory, and what the host holds against its own. `largest` is what the
    /// device with the largest share of `batch` rows runs.
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
        let spec = self.cut.spec;
        let parameters = largest.layout.parameter_count() * 4;
        if parameters.saturating_mul(3) > lack.free {
            return Err(Problem::at_key(widest_layer(spec), message).hint("make the model smaller"));
        }
        let rows = if lack.gpu.is_some() { self.data_bytes } else { self.cut.facts.resident_bytes() };
        let (key, hint) = match self.largest_batch() {
            Some(batch) => ("data.batch_size".to_owned(), format!("`data.batch_size = {batch}` would fit")),
            None if rows > lack.free / 2 => (rows_key(spec).to_owned(), self.fewer_rows().to_owned()),
            None if self.devices.used.len() > 1 => {
                (devices_key(spec).to_owned(), "make the model smaller, or use fewer devices".to_owned())
            }
            None => (widest_layer(spec), "make the model smaller".to_owned()),
        };
        Err(Problem::at_key(key, message).hint(hint))
    }

    /// The way out where rows take most of the memory.
    fn fewer_rows(&self) -> &'static str {
        let Cut { spec, facts, on_cpu, .. } = self.cut;
        let is_npy = matches!(spec.data.source, Source::Npy(_));
        let streamed = spec.data.placement == Placement::Streamed;
        match () {
            () if facts.in_file() => "use fewer rows: their targets and their order are held in memory",
            // The CPU has no memory but the one that holds the rows; it leaves those of arrays in their file.
            () if !is_npy && (on_cpu || streamed) => {
                "use fewer rows, or `npy` arrays, which may stay in their file"
            }
            () => "`data.placement = \"streamed\"` leaves the data on the host",
        }
    }

    /// The first memory that is too small for devices that all run `programs`.
    fn lack(&self, programs: &Programs, batch: usize) -> Option<Lack> {
        let rows = self.cut.rows(programs, self.cut.chunks(batch));
        let used = &self.devices.used;
        // The last device has the largest share.
        let last = Shard { rank: used.len().saturating_sub(1), world_size: used.len() };
        let of = |place: Place| rows.on_device(place, programs, last);
        let each = of(Place::Virtual(0));
        let host = rows.on_host(used);
        for place in used {
            if let Place::Gpu(i) = place {
                let free = self.cut.machine.gpus.get(*i as usize).map_or(0, |gpu| gpu.memory_free);
                let needed = of(*place);
                if needed > free {
                    return Some(Lack { gpu: Some(*place), needed, free, each, host });
                }
            }
        }
        let in_host = used.iter().filter(|place| !matches!(place, Place::Gpu(_)));
        let needed = in_host.fold(host, |sum, place| sum.saturating_add(of(*place)));
        let free = self.cut.machine.memory_available;
        (needed > free).then_some(Lack { gpu: None, needed, free, each, host })
    }

    /// ` for parameters, activations and data`, and where these are.
    fn of_the_host(&self, lack: &Lack, batch: usize) -> String {
        let [each, host] = [lack.each, lack.host].map(units::bytes);
        let rows = match self.cut.chunks(batch) {
            None => "the data once more on the host".to_owned(),
            Some(_) => format!("{host} on the host for rows on their way there"),
        };
        let used = &self.devices.used;
        let place = match used.iter().filter(|p| matches!(p, Place::Virtual(_))).count() {
            0 if used.iter().all(|place| matches!(place, Place::Gpu(_))) => {
                return " on the host for rows and chunks of them".to_owned();
            }
            0 => String::new(),
            1 => format!(" ({each} on the virtual device, {rows})"),
            n => format!(" ({each} on each of {n} virtual devices, {rows})"),
        };
        format!("{place} for parameters, activations and data")
    }

    /// The largest `batch_size` that fits.
    fn largest_batch(&self) -> Option<usize> {
        let Cut { spec, facts, .. } = self.cut;
        let world_size = self.devices.used.len();
        // The last device has the largest share.
        let last = Shard { rank: world_size.saturating_sub(1), world_size };
        let fits = |batch_size: usize| {
            let mut spec = spec.clone();
            spec.data.batch_size = batch_size;
            let batch = global_batch(&spec, world_size).min(facts.train_rows);
            let streamed = self.cut.chunks(batch).is_some();
            let programs = programs(&spec, facts, batch, streamed, last, self.fold_update);
            self.lack(&programs, batch).is_none()
        };
        // What fits is below `high`, and `low` does.
        let (mut low, mut high) = (0, spec.data.batch_size.min(facts.train_rows));
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
        plan(&experiment.trials[0].spec, facts, None, machine, 2).map_err(|e| match e {
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

    /// Rows of 100 features in a file, 20 batches of 1,000 at a time: of each chunk every device has its share, and the
    /// host holds three, and what is in no file.
    #[test]
    fn chunks_are_counted_where_they_are() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/parity/sgd/spec.toml");
        let facts = Facts {
            train_rows: 50_000,
            validation_rows: 3_000,
            features: 100,
            targets: 1,
            classes: None,
            file_row_bytes: Some(400),
        };
        let planned = |gpus: Vec<Gpu>, more: &str, free: u64| {
            let devices = format!("devices.num_gpus={}", gpus.len());
            let overrides = [devices, "data.batch_size=1000".to_owned(), more.to_owned()];
            let experiment = load(path.as_ref(), &overrides).expect("a spec");
            plan(&experiment.trials[0].spec, facts, None, &machine(&gpus, free), 2)
        };
        let much = 1 << 40;
        let (train, validation) = (20_000 * 404, 3_000 * 404);
        let held = 53_000 * 4 + 50_000 * 4 + 3 * (train + validation);
        let gpus = |is_virtual| vec![gpu(is_virtual, 1 << 40); 2];
        let two = planned(gpus(true), "data.shuffle=true", much).expect("it fits");
        let chunks = two.chunks.expect("chunks");
        assert_eq!((chunks.train, chunks.validation), (20_000, 3_000));
        let arenas = [&two.programs, &two.peers[0]].map(|programs| programs.layout.arena_bytes());
        let devices = arenas.map(|arena| arena + train / 2 + validation / 2);
        assert_eq!((&two.footprint.devices[..], two.footprint.host), (&devices[..], held));
        let needed = held + devices[0] + devices[1];
        assert_eq!(two.footprint.in_host_memory(&two.devices.used), needed);
        // In any memory that is smaller it is refused.
        assert!(planned(gpus(true), "data.shuffle=true", needed).is_ok());
        let Err(PlanError::Problems(problems)) = planned(gpus(true), "data.shuffle=true", needed - 1) else {
            panic!("it is too large");
        };
        let message = format!(
            "the job needs {} of memory ({} on each of 2 virtual devices, {} on the host for rows on their way there) \
             for parameters, activations and data, and {} are available",
            units::two_sizes(needed, needed - 1)[0],
            units::bytes(devices[1]),
            units::bytes(held),
            units::two_sizes(needed, needed - 1)[1],
        );
        assert_eq!(problems[0].message, message);

        // A GPU has two chunks, and the host their likes in pinned memory.
        let real = planned(gpus(false), "data.shuffle=false", much).expect("it fits");
        let programs = [&real.programs, &real.peers[0]];
        let devices = programs.map(|programs| super::super::gpu::bytes(programs, 0, train + validation));
        let host = 53_000 * 4 + 5 * (train + validation);
        assert_eq!((&real.footprint.devices[..], real.footprint.host), (&devices[..], host));
        assert_eq!(real.footprint.in_host_memory(&real.devices.used), host);
        let Err(PlanError::Problems(problems)) = planned(gpus(false), "data.shuffle=false", host - 1) else {
            panic!("it is too large");
        };
        let [needed, free] = units::two_sizes(host, host - 1);
        let message = format!(
            "the job needs {needed} of memory on the host for rows and chunks of them, and {free} are available"
        );
        assert_eq!(problems[0].message, message);
    }
}
