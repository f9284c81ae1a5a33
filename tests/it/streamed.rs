//! Rows that stay in their file: what a run on them takes of memory and time, as it is foretold and as it is.

use std::fs;

use runner::units;

use super::{
    data::npy::npy,
    process::{Place, Table, tensors},
};

/// A column of seconds, bytes or counts.
fn numbers(table: &Table, column: &str) -> Vec<f64> {
    table.column(column).into_iter().map(|cell| cell.parse().unwrap()).collect()
}

/// So many rows of so many small numbers, with a label each, and a spec of one layer for them.
fn place(rows: usize, features: usize, more: &str) -> Place {
    let place = Place::new(&format!(
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

/// The lines of a page that begin with that name.
fn lines(page: &str, name: &str) -> Vec<String> {
    let mut lines = page.lines().skip_while(|line| line.split_whitespace().next() != Some(name));
    let first = lines.next().map(|line| line.trim().to_owned());
    let more = lines.take_while(|line| line.starts_with("   ")).map(|line| line.trim().to_owned());
    first.into_iter().chain(more).collect()
}

/// 400 rows of 2,500 numbers, 300 of them to train on: on a device with a memory of its own a chunk of each kind is more
/// than a run with all rows on it takes, or less, to the byte.
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
        // All rows and the order of an epoch against this device's share: 300 rows are less than eight megabytes.
        assert_eq!(resident - streamed, 400 * row + 300 * 4 - 400 * row / share, "{devices}");
    }
    // The CPU works in the host's memory. What it fetches from the file it does not keep.
    assert_eq!(run(&["data.placement=resident"]) - run(&[]), 400 * 4 * 2500);

    let page = place.runner(&["check", "spec.toml", "devices.num_gpus=2", "--virtual-gpus=2"]).stdout;
    let memory = lines(&page, "memory");
    // Three chunks of all rows, targets, order, and which of the file's rows validate; and what is noted of the rows of a
    // device's share.
    let host = 3 * 400 * row + 400 * 4 + 300 * 4 + 400 * 4 + 200 * 12;
    assert!(memory[0].contains(" for 2 virtual devices, all in the host's memory: "), "{memory:?}");
    let (each, rows) = memory[1].split_once(" on each of them, ").expect("two parts");
    assert_eq!(rows, format!("{} for rows on their way", units::bytes(host)));
    let each: f64 = each.strip_suffix(" MiB").expect("megabytes").parse().unwrap();
    // Its share, and what a step has of it beside that.
    let beside = each * f64::from(1 << 20) - (200 * row) as f64;
    assert!((0.0..700e3).contains(&beside), "{memory:?}");
}

/// The time to fetch rows is measured on the file, and is part of the floor that a run is held against.
#[test]
fn what_fetching_takes_is_measured_and_counted() {
    // Rows of 8 KB: each step fetches its own.
    let place = place(600, 2000, "");
    let threads = "--threads=1";
    let page = place.runner(&["check", "spec.toml", threads]).stdout;
    let step = lines(&page, "a");
    assert!(
        step[1].contains(" by the cost model, from typical rates of the machine and measured ones of the file, bound by file reads; "),
        "{step:?}"
    );
    assert!(step[2].starts_with("20 rows from the file in ") && step[2].contains(" of it"), "{step:?}");
    assert!(step[3].starts_with("one by itself in "), "{step:?}");
    assert!(step[3].contains("B/s, measured on "), "{step:?}");
    let seen = [" rows, all of which the system had in memory", " came from the disk, in "];
    assert!(seen.iter().any(|seen| step[3].contains(seen)), "{step:?}");
    assert!(page.contains("; fetched from the file row by row, and checked then\n"), "{page}");
    // What was read is part of the run's time.
    let run = place.run(&[threads, "trainer.validate_every_epochs=0", "-v"]).ended_by(0);
    let log = run.text("run.log");
    assert!(
        log.contains(" its floor by typical rates of the machine and measured ones of the file; "),
        "{log}"
    );
    assert!(log.contains("INFO  rows from the file: one by itself in "), "{log}");
    let table = run.table("transfers.csv");
    let read = table.only("kind", "read");
    assert_eq!(numbers(&read, "bytes"), [2.0 * 450.0 * 8000.0]);
    let total = run.table("timing.csv").only("phase", "total");
    assert!(numbers(&read, "total_s")[0] <= numbers(&total, "total_s")[0], "{read:?}");

    // Nothing of a file is said where there is none.
    let page = place.runner(&["check", "spec.toml", "data.placement=resident", threads]).stdout;
    assert!(page.contains(" by the cost model, from typical rates, bound by "), "{page}");
    assert!(!page.contains("from the file"), "{page}");
}

/// Narrow rows in any order are read together by the CPU; the numbers are those of rows that are in memory.
#[test]
fn narrow_rows_are_read_many_at_a_time() {
    let place = place(3000, 5, "");
    let page = place.runner(&["check", "spec.toml"]).stdout;
    assert!(
        page.contains("; streamed, an epoch in one chunk of rows from the file, and checked then\n"),
        "{page}"
    );
    assert!(lines(&page, "a")[2].contains(", beside it"), "{page}");
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
        // An epoch's rows, and all rows to validate on, are one read each.
        assert_eq!(numbers(&read, "count"), [2.0, 2.0], "{more:?}");
    }
}

/// Rows that are wide and come in any order are fetched by the steps: by one thread or by several, the same.
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
