//! Trials that fit into memory, and trials that do not.

use super::*;
use crate::{
    plan::testing::{facts, gpus, planned},
    spec::Placement,
};

const MUCH: u64 = 1 << 40;

/// The error for a trial that does not fit names the need and the limit, and suggests the largest batch that
/// fits.
#[test]
fn the_batch_that_would_fit_is_named() {
    let (facts, free) = (facts(50_000, 100, false), 40_000_000);
    // Rows of 100 features and a target; the host has a second copy if a device has its own memory.
    let data = 50_000 * 101 * 4;
    let virtual_gpus = |n: usize| Machine::typical(gpus(true, n, 1), free + n as u64 * data);
    let real = [gpus(false, 1, MUCH), gpus(false, 1, 28_000_000)].concat();
    for (devices, machine, scaling) in [
        (0, Machine::typical(Vec::new(), free), "strong"),
        (1, virtual_gpus(1), "strong"),
        (3, virtual_gpus(3), "strong"),
        (2, Machine::typical(real, MUCH), "strong"),
        (3, virtual_gpus(3), "weak"),
    ] {
        let (scaling, count) = (format!("devices.scaling={scaling}"), format!("devices.num_gpus={devices}"));
        let with = |batch: usize| {
            let batch = format!("data.batch_size={batch}");
            planned(&[&batch, &count, &scaling, "data.placement=resident"], facts, &machine)
        };
        let hint = with(40_000).expect_err("it is too large").hint.unwrap_or_default();
        let number = hint.strip_prefix("`data.batch_size = ").and_then(|s| s.strip_suffix("` would fit"));
        let fits: usize = number.and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("{devices}: {hint}"));
        // The exact limit may be a few rows off, depending on where updates are fused into products.
        assert!(with(fits).is_ok() && with(fits + 20).is_err(), "{devices}: {fits}");
    }
}

/// `auto` keeps rows on a GPU that holds them, and brings them in chunks to one that does not; `resident` refuses.
#[test]
fn rows_that_do_not_fit_come_in_chunks() {
    let machine = |free| Machine::typical(gpus(false, 1, free), MUCH);
    let of = |placement: &str, free| {
        let placement = format!("data.placement={placement}");
        planned(
            &["devices.num_gpus=1", "data.batch_size=32", &placement],
            facts(400_000, 100, false),
            &machine(free),
        )
    };
    let whole = of("auto", MUCH).expect("it fits");
    assert_eq!((whole.chunks, whole.spec.data.placement), (None, Placement::Auto));
    let few = of("auto", 120_000_000).expect("chunks fit");
    assert_eq!(few.chunks, of("streamed", 120_000_000).expect("chunks fit").chunks);
    assert!(few.chunks.is_some() && few.spec.data.placement == Placement::Auto);
    let problem = of("resident", 120_000_000).expect_err("it is too large");
    assert!(problem.message.starts_with("the job needs 154 MiB"), "{}", problem.message);
    assert_eq!(problem.hint.as_deref(), Some("`data.placement = \"streamed\"` leaves the data on the host"));
}

#[test]
fn the_need_of_each_virtual_device_is_named() {
    let of = |free| {
        planned(&["devices.num_gpus=2"], facts(50_000, 100, false), &Machine::typical(gpus(true, 2, 1), free))
    };
    let fits = of(MUCH).expect("it fits");
    let (arena, data) = (fits.peers[0].arena_bytes(), 50_000 * 101 * 4);
    let saved = fits.footprint.saved;
    let problem = of(40_000_000).expect_err("it is too large");
    let message = format!(
        "the job needs {} of memory ({} on each of 2 virtual devices, the data once more on the host) for \
         parameters, activations and data, and 38.1 MiB are available",
        units::bytes(2 * (arena + data) + data + saved),
        units::bytes(arena + data)
    );
    assert_eq!(problem.message, message);
    assert_eq!(problem.hint.as_deref(), Some("`data.placement = \"streamed\"` leaves the data on the host"));
}

/// Rows of 100 features in a file, 20 batches of 1,000 at a time, 83 on GPUs: each device has its share of a chunk; the
/// host holds three chunks, and the targets and the order, which are in no file.
#[test]
fn chunks_are_counted_where_they_are() {
    let facts = crate::plan::DatasetInfo { validation_rows: 3_000, ..facts(200_000, 100, true) };
    let two = |is_virtual, shuffle: &str, free| {
        let overrides = ["devices.num_gpus=2", "data.batch_size=1000", shuffle];
        planned(&overrides, facts, &Machine::typical(gpus(is_virtual, 2, MUCH), free))
    };
    let validation = 3_000 * 404;
    // Index and position of each row of a device's share, plus a second copy of the index, for sorting. All validation rows fit
    // into one chunk.
    let holds = |rows: u64| 203_000 * 4 + 3 * rows * 404 + validation + 12 * (rows / 2 + 1_500);
    let (train, held) = (20_000 * 404, holds(20_000));
    let shuffled = two(true, "data.shuffle=true", MUCH).expect("it fits");
    let chunks = shuffled.chunks.expect("chunks");
    assert_eq!((chunks.train, chunks.validation), (20_000, 3_000));
    let mut devices = [&shuffled.programs, &shuffled.peers[0]]
        .map(|programs| programs.arena_bytes() + programs.packed_bytes(false) + train / 2 + validation / 2);
    // The first device keeps the best weights.
    let layout = &shuffled.programs.layout;
    let best = 4 * layout.whole(layout.best.expect("it validates")).len as u64;
    devices[0] += best;
    let host = held + 200_000 * 4;
    assert_eq!((&shuffled.footprint.devices[..], shuffled.footprint.host), (&devices[..], host));
    // Copies of the final and best weights, on their way to their files.
    assert_eq!(shuffled.footprint.saved, 2 * best);
    let needed = host + devices[0] + devices[1] + 2 * best;
    assert_eq!(shuffled.footprint.in_host_memory(&shuffled.devices.used), needed);
    // One byte less is refused.
    assert!(two(true, "data.shuffle=true", needed).is_ok());
    let refused = two(true, "data.shuffle=true", needed - 1).expect_err("it is too large");
    let [needs, free] = units::two_sizes(needed, needed - 1);
    let message = format!(
        "the job needs {needs} of memory ({} on each of 2 virtual devices, {} on the host for rows on their way there) \
         for parameters, activations and data, and {free} are available",
        units::bytes(devices[1]),
        units::bytes(host),
    );
    assert_eq!(refused.message, message);

    // A GPU has two chunks. On the host as many may be on their way there, one is ready, one is being read; all validation
    // rows are one chunk.
    let real = two(false, "data.shuffle=false", MUCH).expect("it fits");
    let host = |rows: u64| holds(rows) + rows * 404 + 2 * validation;
    assert_eq!(real.footprint.host, host(83_000));
    let saved = real.footprint.saved;
    assert_eq!(real.footprint.in_host_memory(&real.devices.used), host(83_000) + saved);
    // In less memory chunks are smaller, down to those for virtual GPUs.
    let least = host(20_000) + saved;
    assert!(two(false, "data.shuffle=false", least).is_ok());
    let refused = two(false, "data.shuffle=false", least - 1).expect_err("it is too large");
    let [needed, free] = units::two_sizes(least, least - 1);
    let message = format!(
        "the job needs {needed} of memory on the host for rows and chunks of them, and {free} are available"
    );
    assert_eq!(refused.message, message);
    // Neither the batch nor the model makes the chunks: four of training rows and three of validation rows.
    let chunks = 4 * 20_000 * 404 + 3 * validation;
    let refused = two(false, "data.shuffle=false", chunks).expect_err("it is too large");
    let hint = format!(
        "free some, or train on the CPU: rows on their way to devices take {} in chunks, whatever the model",
        units::bytes(chunks)
    );
    assert_eq!(
        (refused.place, refused.hint),
        (crate::spec::Location::Key("data.csv".to_owned()), Some(hint))
    );
}

/// On a GPU whose library does the large products, their operands have bfloat16 copies.
#[test]
fn copies_of_operands_are_counted() {
    let need = |more: &[&str]| {
        let layers = "model.layers=[{ linear = { out_features = 900 } }, { linear = { out_features = 704 } }, { linear = { out_features = 1 } }]";
        let all = [&["devices.num_gpus=1", "data.batch_size=64", layers], more].concat();
        let mut gpus = gpus(false, 1, MUCH);
        gpus[0].limits.cooperative = true;
        let planned = planned(&all, facts(5_000, 100, false), &Machine::typical(gpus, MUCH));
        planned.expect("it fits").footprint.devices[0]
    };
    let of = |engine| need(&["devices.precision=bf16", engine]) - need(&["devices.precision=tf32", engine]);
    assert_eq!(of("devices.engine=graph"), 2 * (64 * 900 + 900 * 704 + 64 * 704));
    assert_eq!(of("devices.engine=cooperative"), 0);
}

/// Metrics of classes need a count for each pair of them: 8 bytes for each of 3,000 times 3,000.
#[test]
fn pairs_of_classes_take_memory() {
    let facts =
        crate::plan::DatasetInfo { validation_rows: 50, classes: Some(3_000), ..facts(100, 2, false) };
    let machine = |free| Machine::typical(Vec::new(), free);
    let host = |metric: &str, free| {
        let metrics = format!("logging.metrics=[\"loss\",\"{metric}\"]");
        let layers = "model.layers=[{ linear = { out_features = 3000 } }]";
        let rows = "data.csv.validation_fraction=0.2";
        planned(&["model.loss=cross_entropy", rows, layers, &metrics], facts, &machine(free))
            .map(|trial| trial.footprint.host)
    };
    let [without, with] = ["accuracy", "f1"].map(|metric| host(metric, MUCH).expect("it fits"));
    assert_eq!(with - without, 8 * 3_000 * 3_000);
    assert!(host("accuracy", 60_000_000).is_ok());
    let hint = host("f1", 60_000_000).expect_err("it is too large").hint.unwrap_or_default();
    let way =
        "watch `loss` and `accuracy` alone: other metrics need 68.7 MiB for the predictions of a validation";
    assert_eq!(hint, way);
}
