//! Jobs that fit into memory, and jobs that do not.

use super::*;
use crate::{
    plan::{DatasetInfo, Gpu, MachineRates, PlanError, Trial, plan},
    spec::load,
};

fn machine(gpus: &[Gpu], memory_available: u64) -> Machine {
    Machine {
        gpus: gpus.to_vec(),
        no_gpu: String::new(),
        memory_available,
        cache_bytes: 1 << 20,
        instruction_set: "avx2".into(),
        rates: MachineRates::typical("avx2"),
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
    let facts = DatasetInfo {
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
    let arena = whole.expect("it fits").peers[0].arena_bytes();
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
    assert_eq!(problem.hint.as_deref(), Some("`data.placement = \"streamed\"` leaves the data on the host"));
}

/// Rows of 100 features in a file, 20 batches of 1,000 at a time: of each chunk every device has its share, and the
/// host holds three, and what is in no file.
#[test]
fn chunks_are_counted_where_they_are() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/parity/sgd/spec.toml");
    let facts = DatasetInfo {
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
        plan(&experiment.trials[0].spec, facts, &machine(&gpus, free), 2)
    };
    let much = 1 << 40;
    let (train, validation) = (20_000 * 404, 3_000 * 404);
    // The number and the place of each row of a device's share, and its number once more, by which they are sorted.
    let noted = 12 * (10_000 + 1_500);
    // All rows to validate on are one chunk.
    let chunks_held = 3 * train + validation;
    let held = 53_000 * 4 + 50_000 * 4 + chunks_held + noted;
    let gpus = |is_virtual| vec![gpu(is_virtual, 1 << 40); 2];
    let two = planned(gpus(true), "data.shuffle=true", much).expect("it fits");
    let chunks = two.chunks.expect("chunks");
    assert_eq!((chunks.train, chunks.validation), (20_000, 3_000));
    let arenas = [&two.programs, &two.peers[0]].map(|programs| programs.arena_bytes());
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
    let host = 53_000 * 4 + chunks_held + 2 * (train + validation) + noted;
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
