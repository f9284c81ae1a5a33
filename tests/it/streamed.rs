//! Rows that stay in their file: the memory and time that such a run takes, predicted and measured.

use std::fs;

use runner::units;

use super::{
    data::npy::npy,
    process::{Sandbox, Table, tensors},
};

/// A column of seconds, bytes or counts.
fn numbers(table: &Table, column: &str) -> Vec<f64> {
    table.column(column).into_iter().map(|cell| cell.parse().unwrap()).collect()
}

/// Labelled rows of small numbers, and a spec of one layer for them.
pub fn place(rows: usize, features: usize, more: &str) -> Sandbox {
    let place = Sandbox::new(&format!(
        "[data]\nbatch_size = 20\nplacement = \"streamed\"\n[data.npy]\nfeatures = \"x.npy\"\nlabels = \"y.npy\"\n\
         validation_fraction = 0.25\n[model]\nlayers = [{{ linear = {{ out_features = 1 }} }}]\nloss = \"mse\"\n\
         [optimizer.sgd]\nlr = 1e-4\n[trainer]\nmax_epochs = 2\n{more}"
    ));
    let numbers: Vec<u8> =
        (0..rows * features).flat_map(|i| ((i * 37 % 101) as f32 / 101.0).to_le_bytes()).collect();
    fs::write(place.path().join("x.npy"), npy("<f4", &format!("({rows}, {features})"), &numbers)).unwrap();
    fs::write(place.path().join("y.npy"), npy("<f4", &format!("({rows},)"), &numbers[..4 * rows])).unwrap();
    place
}

/// The lines of a page that begin with this name.
fn lines(page: &str, name: &str) -> Vec<String> {
    let mut lines = page.lines().skip_while(|line| line.split_whitespace().next() != Some(name));
    let first = lines.next().map(|line| line.trim().to_owned());
    let more = lines.take_while(|line| line.starts_with("   ")).map(|line| line.trim().to_owned());
    first.into_iter().chain(more).collect()
}

/// 400 rows of 2,500 numbers, 300 of them for training. On devices with separate memory, streaming replaces
/// all rows by one chunk of each kind, and the peak memory differs by exactly those bytes.
#[test]
fn chunks_are_part_of_the_memory_that_is_told() {
    let place = place(400, 2500, "");
    let run = |arguments: &[&str]| {
        let run = place.run(&[arguments, &["--virtual-gpus=2"]].concat()).ended_by(0);
        run.summary("peak_device_bytes").parse::<u64>().unwrap()
    };
    let row = 4 * 2501;
    for (devices, share) in [("devices.num_gpus=1", 1), ("devices.num_gpus=2", 2)] {
        let streamed = run(&[devices]);
        let resident = run(&[devices, "data.placement=resident"]);
        // All rows and one epoch's order, minus this device's share of them: 300 rows are less than eight
        // megabytes.
        assert_eq!(resident - streamed, 400 * row + 300 * 4 - 400 * row / share, "{devices}");
    }
    // The CPU works in the host's memory, and does not keep the rows that it reads from the file.
    assert_eq!(run(&["data.placement=resident"]) - run(&[]), 400 * 4 * 2500);

    let page = place.runner(&["check", "spec.toml", "devices.num_gpus=2", "--virtual-gpus=2"]).stdout;
    let memory = lines(&page, "memory");
    // One chunk with all rows of each kind, targets, order, and the indices of validation rows; plus notes on
    // each row of a device's share.
    let host = 400 * row + 400 * 4 + 300 * 4 + 400 * 4 + 200 * 12;
    assert!(memory[0].contains(" for 2 virtual devices, all in the host's memory: "), "{memory:?}");
    let (each, rows) = memory[1].split_once(" on each of them, ").expect("two parts");
    assert_eq!(rows, format!("{} for rows on their way", units::bytes(host)));
    let each: f64 = each.strip_suffix(" MiB").expect("megabytes").parse().unwrap();
    // The device's share, and what a step needs besides.
    let beside = each * f64::from(1 << 20) - (200 * row) as f64;
    assert!((0.0..700e3).contains(&beside), "{memory:?}");
}

/// The time to read rows is measured: by `check` on the file, and as part of the run's time.
#[test]
fn what_fetching_takes_is_measured_and_counted() {
    // Rows of 8 KB: each step reads its own.
    let place = place(600, 2000, "");
    let threads = "--threads=1";
    let page = place.runner(&["check", "spec.toml", threads]).stdout;
    let is_busy = page.contains(" measured, roughly: other processes used ");
    assert!(is_busy || page.contains(" measured\n"), "{page}");
    assert!(page.contains("; fetched from the file row by row, and checked then\n"), "{page}");
    let run = place.run(&[threads, "trainer.validate_every_epochs=0", "-v"]).ended_by(0);
    let log = run.text("run.log");
    let time = log.lines().find(|line| line.contains(" training time: ")).unwrap();
    assert!(time.contains("file reads "), "{log}");
    let table = run.table("transfers.csv");
    let read = table.only("kind", "read");
    assert_eq!(numbers(&read, "bytes"), [2.0 * 450.0 * 8000.0]);
    let total = run.table("timing.csv").only("phase", "total");
    assert!(numbers(&read, "total_s")[0] <= numbers(&total, "total_s")[0], "{read:?}");

    // Without streaming, the file is not mentioned.
    let page = place.runner(&["check", "spec.toml", "data.placement=resident", threads]).stdout;
    assert!(page.contains(" by typical rates, bound by "), "{page}");
    assert!(!page.contains("from the file"), "{page}");
}

/// Rows for a layer with one output are used in place, in memory and in chunks, but copied if steps read them
/// from the file. The results have the same bits, on any device and with any number of threads.
#[test]
fn rows_that_are_read_in_place_are_those_that_are_copied() {
    let place = place(2000, 40, "");
    let devices: [&[&str]; 4] = [
        &["--threads=1"],
        &["--threads=2", "devices.engine=team"],
        &["devices.num_gpus=1", "--virtual-gpus=1"],
        &["devices.num_gpus=2", "--virtual-gpus=2"],
    ];
    for shuffle in ["data.shuffle=true", "data.shuffle=false"] {
        let mut alone = None;
        for on in devices {
            let run = |placement| {
                place.run(
                    &[&["data.batch_size=300", "optimizer.sgd.lr=0.01", shuffle, placement], on].concat(),
                )
            };
            let [resident, streamed] =
                ["data.placement=resident", "data.placement=streamed"].map(|p| run(p).ended_by(0));
            assert_eq!(streamed.numbers(), resident.numbers(), "{shuffle} {on:?}");
            assert!(tensors(&streamed.model()) == tensors(&resident.model()), "{shuffle} {on:?}: weights");
            // Two devices add their gradients in a different order.
            if on[0] != "devices.num_gpus=2" {
                let model = tensors(&resident.model());
                assert!(*alone.get_or_insert(model.clone()) == model, "{shuffle} {on:?}: other weights");
            }
        }
    }
}

/// The CPU reads narrow rows together, in any order; the results equal those of rows in memory.
#[test]
fn narrow_rows_are_read_many_at_a_time() {
    let place = place(3000, 5, "");
    let page = place.runner(&["check", "spec.toml"]).stdout;
    assert!(
        page.contains("; streamed, an epoch in one chunk of rows from the file, and checked then\n"),
        "{page}"
    );
    let page = place.runner(&["check", "spec.toml", "data.shuffle=false"]).stdout;
    assert!(page.contains("; fetched from the file row by row, and checked then\n"), "{page}");
    for more in [&[][..], &["trainer.max_steps=120"], &["--threads=2", "devices.engine=team"]] {
        let run = |placement| place.run(&[&[placement], more].concat()).ended_by(0);
        let (streamed, resident) = (run("data.placement=streamed"), run("data.placement=resident"));
        assert_eq!(streamed.numbers(), resident.numbers(), "{more:?}");
        assert!(tensors(&streamed.model()) == tensors(&resident.model()), "{more:?}: other weights");
        let read = streamed.table("transfers.csv").only("kind", "read");
        let rows =
            if more == ["trainer.max_steps=120"] { [2250 + 7 * 20, 2 * 750] } else { [2 * 2250, 2 * 750] };
        assert_eq!(numbers(&read, "bytes"), rows.map(|rows| f64::from(rows * 20)), "{more:?}");
        // The rows of an epoch, and all validation rows, are one read each.
        assert_eq!(numbers(&read, "count"), [2.0, 2.0], "{more:?}");
    }
}

/// Peak memory of an epoch that is a single chunk, to the byte; holding all rows would take less.
#[test]
fn an_epoch_in_one_chunk_is_no_more_than_its_rows() {
    let place = place(3000, 5, "");
    // Two chunks of 2,250 rows of five numbers and a target: one in use, one for the next epoch. Likewise
    // with 750 validation rows.
    let chunks = 2 * 3000 * 24;
    let check = |more: &[&str]| place.runner(&[&["check", "spec.toml", "--threads=1"], more].concat());
    let said = check(&[]);
    let of_it = format!(", {} of it for 4 chunks of rows at most, ", units::bytes(chunks));
    let memory = lines(&said.stdout, "memory");
    assert!(memory[0].contains(&of_it), "{memory:?}");
    let beside = "; streamed, an epoch in one chunk of rows from the file, and checked then\n";
    assert!(said.stdout.contains(beside), "{}", said.stdout);
    let bytes = |page: &str| -> f64 {
        let memory = lines(page, "memory").remove(0);
        let size = memory.strip_prefix("memory").and_then(|rest| rest.split(" KiB").next());
        let number = size.map(str::trim).unwrap_or_else(|| panic!("kilobytes: {memory}"));
        number.parse::<f64>().expect("a number") * 1024.0
    };
    let resident = bytes(&check(&["data.placement=resident"]).stdout);
    let streamed = bytes(&said.stdout);
    // Instead of the features: chunks, notes on their rows, and which rows validate.
    let more = (chunks + 3000 * 12 + 3000 * 4) as f64 - 3000.0 * 20.0;
    assert!((streamed - resident - more).abs() < 4096.0, "{streamed} {resident} {more}");
    let [streamed, resident] = [streamed, resident].map(|bytes| units::bytes(bytes as u64));
    let warning = format!(
        "`data.placement = \"streamed\"` saves no memory here: chunks of rows make it {streamed}, and with all rows in \
         memory it would be {resident}"
    );
    assert!(said.stderr.contains(&warning), "{} {warning}", said.stderr);

    // With 60 steps in one epoch there is only one chunk, and no second one to read ahead.
    let few = check(&["trainer.max_steps=60"]);
    let of_it = format!(", {} of it for 2 chunks of rows at most, ", units::bytes((1200 + 750) * 24));
    assert!(lines(&few.stdout, "memory")[0].contains(&of_it), "{}", few.stdout);
    // Without streaming there is no such warning.
    assert!(check(&["data.placement=resident"]).stderr.is_empty());
}

/// Every repeat has its own validation rows, and all are planned the same way.
#[test]
fn repeats_are_planned_alike() {
    let place = place(600, 2000, "[sweep]\nrepeats = 4\n");
    let threads = "--threads=2";
    let run = place.runner(&["spec.toml", threads]);
    assert!(run.stdout.contains("4 trials, 4 finished"), "{}{}", run.stdout, run.stderr);
    let mut reported = Vec::new();
    let sweeps = fs::read_dir(place.path().join("runs/spec")).expect("a sweep");
    for sweep in sweeps {
        for trial in fs::read_dir(sweep.expect("a folder").path()).expect("trials") {
            let Ok(log) = fs::read_to_string(trial.expect("a trial").path().join("run.log")) else {
                continue;
            };
            let engine = log.lines().find_map(|line| Some(line.split_once("engine ")?.1.to_owned()));
            reported.push(engine.unwrap_or_else(|| panic!("{log}")));
        }
    }
    assert_eq!(reported.len(), 4);
    assert!(reported.iter().all(|other| *other == reported[0]), "{reported:?}");
    // Another process gets the same plan.
    let engine = |_| lines(&place.runner(&["check", "spec.toml", threads]).stdout, "engine");
    let engines = [0; 4].map(engine);
    assert!(engines.iter().all(|other| *other == engines[0]), "{engines:?}");
    assert!(engines[0][0].ends_with(", with rows at typical rates of a file"), "{engines:?}");
}

/// Steps read wide rows in random order, with equal results for one thread and several.
#[test]
fn wide_rows_are_fetched_by_the_steps() {
    let place = place(300, 1500, "");
    for more in [&["--threads=1"][..], &["--threads=3", "devices.engine=team"]] {
        let run = |placement| place.run(&[&[placement], more].concat()).ended_by(0);
        let (streamed, resident) = (run("data.placement=streamed"), run("data.placement=resident"));
        assert_eq!(streamed.numbers(), resident.numbers(), "{more:?}");
        assert!(tensors(&streamed.model()) == tensors(&resident.model()), "{more:?}: other weights");
    }
}

/// Metrics of predictions over chunks equal those over all rows, to the bit.
#[test]
fn metrics_of_streamed_rows_are_those_of_rows_in_memory() {
    let place = place(400, 12, "");
    fs::write(
        place.path().join("c.npy"),
        npy("|u1", "(400,)", &(0..400_u32).map(|i| (i * i % 3) as u8).collect::<Vec<_>>()),
    )
    .unwrap();
    let numbers = ["logging.metrics=[mae,rmse,r2]", "trainer.monitor=validation.mae"];
    let classes = [
        "data.npy.labels=c.npy",
        "model.loss=cross_entropy",
        "model.layers.0.linear.out_features=3",
        "logging.metrics=[accuracy,f1,f1_weighted,precision,recall,auc,average_precision]",
        "trainer.monitor=validation.auc",
    ];
    for (wanted, columns) in [
        (&numbers[..], vec!["mae", "rmse", "r2"]),
        (&classes[..], vec!["f1", "f1_weighted", "precision", "recall", "auc", "average_precision"]),
    ] {
        for on in [&["--threads=2"][..], &["devices.num_gpus=2", "--virtual-gpus=2"]] {
            let scores = |placement| {
                let run = place.run(&[wanted, on, &[placement]].concat()).ended_by(0);
                let rows = run.metrics().only("split", "validation");
                let best = run.summary("best_value");
                let cells = columns.iter().flat_map(|column| rows.column(column)).map(str::to_owned);
                cells.chain([best]).collect::<Vec<_>>()
            };
            let [streamed, resident] = ["data.placement=streamed", "data.placement=resident"].map(scores);
            assert_eq!(streamed, resident, "{wanted:?} {on:?}");
            assert!(
                streamed.iter().all(|cell| cell.parse::<f64>().is_ok_and(f64::is_finite)),
                "{streamed:?}"
            );
        }
    }
}
