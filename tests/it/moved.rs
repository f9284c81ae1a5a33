//! The ledger against the plan: a run copies and waits exactly as was predicted.

use std::{collections::BTreeMap, path::Path};

use runner::{
    data::{self, Task},
    plan::{Gpu, GpuLimits, Machine, Movement, plan, transfers},
    spec,
};

use super::process::{Ended, Folder, Ran, Sandbox};

mod paper;

const POLICIES: [&str; 4] =
    ["logging.policy=immediate", "logging.policy=buffered", "logging.policy=per_epoch", "logging.policy=off"];

/// 103 rows in batches of 20, 50 validation rows, two layers.
pub const SPEC: &str = r#"
[devices]
num_gpus = 1
[data]
batch_size = 20
[data.synthetic_regression]
weights = [2.0, -3.4, 0.5]
bias = 4.2
train_rows = 103
validation_rows = 50
[model]
layers = [{ linear = { out_features = 7 } }, "relu", { linear = { out_features = 1 } }]
[optimizer.adam]
lr = 0.01
[trainer]
max_epochs = 5
validate_every_epochs = 2
[logging]
metrics = ["loss", "grad_norm", "lr"]
"#;

type Key = (String, String);

/// What a plan or a page says of a row of `transfers.csv`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Predicted {
    count: Option<u64>,
    bytes: u64,
    /// Where `check` gives the fewest copies: the bytes of each further one.
    more: Option<u64>,
}

fn key(kind: &str, purpose: &str) -> Key {
    (kind.to_owned(), purpose.to_owned())
}

/// What moves by kind and purpose, as the plan predicts for a machine with these GPUs.
fn predicted(place: &Sandbox, overrides: &[&str], gpus: Vec<Gpu>) -> BTreeMap<Key, Predicted> {
    let overrides: Vec<String> = overrides.iter().map(|&text| text.to_owned()).collect();
    let path = place.path().join("spec.toml");
    let experiment = spec::load(Path::new(&path), &overrides).unwrap();
    let spec = &experiment.trials[0].spec;
    let dataset = data::open(&spec.data, Task::Regression, spec.seed, u64::MAX).unwrap();
    let machine = Machine::typical(gpus, 1 << 40);
    let trial = plan(spec, dataset.facts(), &machine, 2).unwrap();
    let predicted = |m: Movement| {
        let more = m.for_each_more.map(|(_, bytes)| bytes);
        (key(m.kind, m.purpose), Predicted { count: m.count, bytes: m.bytes, more })
    };
    transfers(&trial).into_iter().map(predicted).collect()
}

/// Virtual GPUs with ample memory.
fn virtual_gpus(count: usize) -> Vec<Gpu> {
    vec![Gpu::virtual_of(1 << 40); count]
}

/// Copies or waits, and bytes, by kind and purpose, as the run's ledger counts them.
fn counted(run: &Folder) -> BTreeMap<Key, [u64; 2]> {
    let table = run.table("transfers.csv");
    let mut sums = BTreeMap::new();
    let columns = ["kind", "purpose", "from", "count", "bytes"].map(|name| table.column(name));
    for row in 0..table.rows.len() {
        let [kind, purpose, from, count, bytes] = columns.each_ref().map(|column| column[row]);
        // Rows are read ahead depending on the system's page cache; a copy within the host's memory is no move.
        if kind == "read_ahead" || (kind == "d2d" && from == "cpu") {
            continue;
        }
        let count: u64 = count.parse().unwrap();
        if count > 0 {
            let sum: &mut [u64; 2] = sums.entry(key(kind, purpose)).or_default();
            // A wait has no bytes.
            *sum = [sum[0] + count, sum[1] + bytes.parse().unwrap_or(0)];
        }
    }
    let syncs: u64 = sums.iter().filter(|((kind, _), _)| kind == "sync").map(|(_, [count, _])| count).sum();
    assert_eq!(run.table("summary.csv").column("syncs"), [syncs.to_string()]);
    sums
}

/// What the output of `runner check` says of copies and waits.
fn said(page: &str) -> BTreeMap<Key, Predicted> {
    let mut all = BTreeMap::new();
    for line in page.lines() {
        let mut words = line.split_whitespace().peekable();
        let Some(kind @ ("h2d" | "d2h" | "d2d" | "all_reduce")) = words.next() else { continue };
        let (purpose, number) = (words.next().unwrap(), |word: &str| word.replace(',', "").parse().unwrap());
        let mut count = || {
            let is_fewest = words.next_if_eq(&"at").is_some() && words.next().is_some();
            (words.next().map(number), is_fewest.then_some(0))
        };
        let (copies, fewest) = count();
        let bytes = count().0.unwrap();
        let each = line.split_once(" and ").map(|(_, more)| number(more.split(' ').next().unwrap()));
        all.insert(key(kind, purpose), Predicted { count: copies, bytes, more: each.or(fewest) });
        if kind == "d2h" {
            let (waits, more) = count();
            all.insert(key("sync", purpose), Predicted { count: waits, bytes: 0, more });
        }
    }
    all
}

/// Compares what was counted with what was predicted: exactly, or where that is the fewest, with more copies by whole ones.
fn assert_moved(run: &Folder, predicted: &BTreeMap<Key, Predicted>, what: &str) {
    let mut got = counted(run);
    // A GPU may be waited for by uploads.
    if got.contains_key(&key("h2d", "launch")) {
        got.remove(&key("sync", "dataset"));
    }
    for (key, own) in predicted {
        let [count, bytes] = got.remove(key).unwrap_or_default();
        let (fewest, more_bytes) = (own.count.unwrap_or(count), bytes.checked_sub(own.bytes));
        let is_as_predicted = match (own.more, more_bytes) {
            (None, more_bytes) => count == fewest && more_bytes == Some(0),
            (Some(0), more_bytes) => count >= fewest && more_bytes == Some(0),
            (Some(each), Some(more_bytes)) => {
                count >= fewest && more_bytes.is_multiple_of(each) && (count > fewest) == (more_bytes > 0)
            }
            (Some(_), None) => false,
        };
        assert!(is_as_predicted, "{what}: {key:?}: {count} of {bytes} bytes, predicted {own:?}");
    }
    assert!(got.is_empty(), "{what}: {got:?} not predicted");
}

/// For every training spec in `experiments/`: compares `runner check` with the ledger of a short run.
pub fn examples_move_what_check_says(
    steps: &str,
    arguments: &[&[&str]],
    runner: impl Fn(&Sandbox, &[&str]) -> Ended,
) {
    let mut count = 0;
    for entry in std::fs::read_dir("experiments").unwrap() {
        let path = entry.unwrap().path().canonicalize().unwrap();
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        if !text.contains("[model]") {
            continue;
        }
        let place = Sandbox::with_spec(&path);
        // One run, to its planned end.
        let whole =
            [("[sweep]", "~sweep"), ("early_stopping", "~trainer.early_stopping")].map(|(key, without)| {
                let is_there = text.lines().any(|line| line.trim_start().starts_with(key));
                is_there.then_some(without)
            });
        let short: Vec<&str> = whole.into_iter().flatten().chain([steps]).collect();
        let name = path.to_str().unwrap();
        for (number, more) in arguments.iter().enumerate() {
            let all = [&[name][..], &short, more].concat();
            let check = runner(&place, &[&["check"], &all[..]].concat());
            if check.stderr.contains("= hint: leave `devices.engine` out") {
                continue;
            }
            assert_eq!(check.code, Some(0), "{all:?}: {check:?}");
            let runs = number.to_string();
            let ended = runner(&place, &[&all[..], &["--runs-dir", &runs]].concat());
            let run =
                Folder::within(&place.path().join(&runs)).unwrap_or_else(|| panic!("{all:?}: {ended:?}"));
            assert_moved(&run, &said(&check.stdout), &format!("{name} {more:?}"));
            count += 1;
        }
    }
    assert!(count >= 9, "{count}");
}

#[test]
fn every_example_moves_what_check_says() {
    let cases: [&[&str]; 6] = [
        &["devices.num_gpus=0"],
        &["devices.num_gpus=1", "--virtual-gpus=2"],
        &["devices.num_gpus=1", "--virtual-gpus=2", "logging.policy=immediate"],
        &["devices.num_gpus=1", "--virtual-gpus=2", "logging.policy=per_epoch"],
        &["devices.num_gpus=1", "--virtual-gpus=2", "logging.policy=off"],
        &["devices.num_gpus=2", "--virtual-gpus=2"],
    ];
    examples_move_what_check_says("trainer.max_steps=100", &cases, |place, arguments| {
        place.runner(arguments)
    });
}

#[test]
fn runs_move_what_was_predicted() {
    let place = Sandbox::new(SPEC);
    let more: [&[&str]; 8] = [
        &[],
        &["checkpoint.every_steps=4"],
        &["checkpoint.every_epochs=2", "trainer.max_steps=20"],
        &["checkpoint.every_steps=3", "trainer.validate_every_steps=5"],
        &["data.placement=streamed"],
        &["data.shuffle=false", "logging.flush_every=4"],
        &["data.placement=streamed", "trainer.max_steps=8"],
        &["logging.metrics=[loss,mae]", "trainer.validate_every_epochs=1"],
    ];
    for gpus in [1, 2, 3] {
        let devices = format!("devices.num_gpus={gpus}");
        for policy in POLICIES {
            for more in more {
                let overrides: Vec<&str> =
                    [devices.as_str(), policy].into_iter().chain(more.iter().copied()).collect();
                let options = [&overrides[..], &["--virtual-gpus", "3"]].concat();
                let run = place.run(&options).ended_by(0);
                let predicted = predicted(&place, &overrides, virtual_gpus(3));
                assert_moved(&run, &predicted, &overrides.join(" "));
            }
        }
    }
}

/// The CPU's memory is the host's, so nothing is copied.
#[test]
fn on_the_cpu_nothing_moves() {
    let place = Sandbox::new(SPEC);
    for more in [None, Some("data.placement=streamed")] {
        let overrides: Vec<&str> = ["devices.num_gpus=0"].into_iter().chain(more).collect();
        assert_eq!(predicted(&place, &overrides, virtual_gpus(3)), BTreeMap::new());
        for (policy, engine) in POLICIES.iter().flat_map(|policy| [(policy, "serial"), (policy, "team")]) {
            let engine = format!("devices.engine={engine}");
            let overrides = [&overrides[..], &[policy, &engine, "--threads=2"]].concat();
            assert_eq!(counted(&place.run(&overrides).ended_by(0)), BTreeMap::new(), "{policy} {engine}");
        }
    }
    let check = place.runner(&["check", "spec.toml", "devices.num_gpus=0"]);
    assert!(check.stdout.contains("\n  moves      nothing: the CPU's memory is the host's\n"), "{check:?}");
    let check = place.runner(&["check", "spec.toml", "--virtual-gpus", "1"]);
    assert_eq!(said(&check.stdout), predicted(&place, &[], virtual_gpus(1)));
    let page = check.stdout.split_once("  moves  ").unwrap().1.split_once("  memory").unwrap().0;
    insta::assert_snapshot!(page, @r"
    over the whole run; the host waits at least 9 times for a device
             kind  purpose         copies  bytes       waits
             h2d   batch       at least 4  2,060
             h2d   dataset              4  2,448
             h2d   parameters           1    144
             h2d   constants   at least 5    600
             d2h   parameters           1    144           1
             d2h   log         at least 4    240  at least 4
             d2h   validation           3     48           3
             d2h   best                 1    144           1
             d2d   best        at least 1    144              and 144 for each further validation that is the best so far
    ");
}

/// Streamed rows are read from the file once per step or validation that uses them, whether by the CPU's
/// steps or as chunks for other devices.
#[test]
fn rows_are_read_from_their_file_as_was_predicted() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/parity");
    let place = Sandbox::new(&format!(
        "[data]\nbatch_size = 9\nplacement = \"streamed\"\n[data.npy]\nfeatures = \"{folder}/features.npy\"\n\
         labels = \"{folder}/classes.npy\"\n[model]\nlayers = [{{ linear = {{ out_features = 1 }} }}]\nloss = \"mse\"\n\
         [optimizer.sgd]\nlr = 0.01\n[trainer]\nmax_epochs = 3\n"
    ));
    for gpus in ["0", "1", "2"] {
        let devices = format!("devices.num_gpus={gpus}");
        for more in [
            &[][..],
            &["trainer.max_steps=20"],
            &["data.shuffle=false"],
            &["--threads=2", "devices.engine=team"],
        ] {
            let wanted = [&[devices.as_str()], more].concat();
            let overrides: Vec<&str> =
                wanted.iter().copied().filter(|word| !word.starts_with("--")).collect();
            if gpus != "0" && overrides.contains(&"devices.engine=team") {
                continue;
            }
            let run = place.run(&[&wanted[..], &["--virtual-gpus", "2"]].concat()).ended_by(0);
            let predicted = predicted(&place, &overrides, virtual_gpus(2));
            assert_moved(&run, &predicted, &wanted.join(" "));
            let read = |purpose: &str| predicted.get(&key("read", purpose)).map(|own| own.bytes);
            // 120 training rows of ten numbers, and 30 validation rows, three times. Twenty steps are one
            // epoch of fourteen and six more, with a validation after each part.
            let epochs =
                if more == ["trainer.max_steps=20"] { [120 + 54, 2 * 30] } else { [3 * 120, 3 * 30] };
            assert_eq!(
                [read("batch"), read("validation")],
                epochs.map(|rows| Some(rows * 10 * 4)),
                "{wanted:?}"
            );
            let table = run.table("transfers.csv");
            for row in table.rows.iter().filter(|row| row[0] == "read") {
                assert_eq!(row[2..4], ["file", "cpu"], "{row:?}");
                let [count, seconds, rate] = [4, 7, 8].map(|column| row[column].parse::<f64>().unwrap());
                assert!(count >= 1.0 && seconds > 0.0 && rate > 0.0, "{row:?}");
            }
        }
    }
    let page = place.runner(&["check", "spec.toml"]).stdout;
    let lines = "\n  moves      nothing: the CPU's memory is the host's\n             read from the file: batch 14,400, \
                 validation 3,600 bytes over the whole run\n";
    assert!(page.contains(lines), "{page}");
}

/// Compares a GPU's ledger with the plan for resident and streamed rows, these policies and
/// every engine. The number of blocks depends on the time that steps take; the plan knows only the fewest.
pub fn a_gpu_moves_what_was_predicted(policies: &[&str], run: impl Fn(&Sandbox, &[&str]) -> Ran) {
    let place = Sandbox::new(SPEC);
    for engine in ["persistent", "compiled", "cooperative", "graph", "launch"] {
        // Sums per epoch are computed by the interpreter.
        for policy in policies.iter().filter(|policy| engine != "compiled" || **policy != "per_epoch") {
            for placement in ["resident", "streamed"] {
                let keys =
                    [("devices.engine", engine), ("logging.policy", *policy), ("data.placement", placement)];
                let overrides = keys.map(|(key, value)| format!("{key}={value}"));
                let overrides = overrides.each_ref().map(String::as_str);
                let run = run(&place, &overrides).ended_by(0);
                let predicted = predicted(&place, &overrides, vec![gpu()]);
                assert_moved(&run, &predicted, &overrides.join(" "));
                let is_exact = predicted[&key("h2d", "launch")].more.is_none();
                assert_eq!(is_exact, (*policy, placement) == ("immediate", "resident"), "{overrides:?}");
            }
        }
    }
}

/// A GPU that supports every engine.
fn gpu() -> Gpu {
    let limits = GpuLimits {
        multiprocessors: 2,
        shared_bytes: 1 << 18,
        most_elements: usize::MAX,
        cooperative: true,
        ..GpuLimits::default()
    };
    Gpu { is_virtual: false, limits, ..Gpu::virtual_of(1 << 40) }
}

/// Constants go with the work of a block: their bytes are counted, and nothing measures their time.
#[test]
fn what_is_not_timed_has_no_time() {
    let place = Sandbox::new(SPEC);
    let run = place.run(&["devices.num_gpus=1", "--virtual-gpus", "1"]).ended_by(0);
    let constants = run.table("transfers.csv").only("purpose", "constants");
    assert_eq!(constants.column("bytes"), [(30 * 5 * 4).to_string()]);
    assert_eq!((constants.column("total_s"), constants.column("gb_per_s")), (vec![""], vec![""]));
}
