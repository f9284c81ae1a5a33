//! The ledger against the plan: a run moves exactly the bytes that were predicted.

use std::{collections::BTreeMap, path::Path};

use runner::{
    data::{self, Task},
    plan::{Gpu, GpuLimits, Machine, plan, transfers},
    spec,
};

use super::process::{Ended, Folder, Ran, Sandbox};

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

/// Bytes by kind and purpose, as the plan predicts for a machine with these GPUs.
fn predicted(place: &Sandbox, overrides: &[&str], gpus: Vec<Gpu>) -> BTreeMap<(String, String), u64> {
    let overrides: Vec<String> = overrides.iter().map(|&text| text.to_owned()).collect();
    let path = place.path().join("spec.toml");
    let experiment = spec::load(Path::new(&path), &overrides).unwrap();
    let spec = &experiment.trials[0].spec;
    let dataset = data::open(&spec.data, Task::Regression, spec.seed, u64::MAX).unwrap();
    let machine = Machine::typical(gpus, 1 << 40);
    let trial = plan(spec, dataset.facts(), &machine, 2).unwrap();
    let movements = transfers(&trial).into_iter();
    movements.map(|m| ((m.kind.to_owned(), m.purpose.to_owned()), m.bytes)).collect()
}

/// Virtual GPUs with ample memory.
fn virtual_gpus(count: usize) -> Vec<Gpu> {
    vec![Gpu::virtual_of(1 << 40); count]
}

/// Bytes by kind and purpose, as the run's ledger counts them.
fn counted(run: &Folder) -> BTreeMap<(String, String), u64> {
    let table = run.table("transfers.csv");
    let mut sums = BTreeMap::new();
    let (kinds, purposes, bytes) = (table.column("kind"), table.column("purpose"), table.column("bytes"));
    let sources = table.column("from");
    for (((kind, purpose), bytes), from) in kinds.into_iter().zip(purposes).zip(bytes).zip(sources) {
        // Rows are read ahead depending on the system's page cache; a copy within the host's memory is no move.
        if kind == "read_ahead" || (kind == "d2d" && from == "cpu") {
            continue;
        }
        // A wait has no bytes.
        let bytes: u64 = if bytes.is_empty() { 0 } else { bytes.parse().unwrap() };
        if bytes > 0 {
            *sums.entry((kind.to_owned(), purpose.to_owned())).or_insert(0) += bytes;
        }
    }
    sums
}

/// Bytes of copies in the output of `runner check`. For launches these assume the smallest number of blocks.
fn told(page: &str) -> BTreeMap<(String, String), u64> {
    let mut sums = BTreeMap::new();
    for line in page.lines() {
        let Some((kind @ ("h2d" | "d2h" | "d2d" | "all_reduce"), purposes)) = line.trim().split_once(": ")
        else {
            continue;
        };
        for purpose in purposes.split(", ") {
            let mut words = purpose.split(' ');
            let (name, bytes) = (words.next().unwrap(), words.next().unwrap().replace(',', ""));
            sums.insert((kind.to_owned(), name.to_owned()), bytes.parse().unwrap());
        }
    }
    sums
}

type Bytes = BTreeMap<(String, String), u64>;

/// Removes bytes whose number depends on the run. Returns whether they equal the predicted minimum plus a whole number of
/// `each`; copies of the best weights, which depend on the losses, plus whole copies.
fn at_least(got: &mut Bytes, least: &mut Bytes, (kind, purpose): (&str, &str), each: Option<u64>) -> bool {
    let key = (kind.to_owned(), purpose.to_owned());
    match [got, least].map(|map| map.remove(&key)) {
        [Some(got), Some(least)] => got >= least && (got - least).is_multiple_of(each.unwrap_or(least)),
        [None, None] => true,
        _ => false,
    }
}

const BEST: (&str, &str) = ("d2d", "best");
const LAUNCH: (&str, &str) = ("h2d", "launch");

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
            let (mut told, mut got) = (told(&check.stdout), counted(&run));
            if told.contains_key(&("h2d".to_owned(), "launch".to_owned())) {
                let fits = at_least(&mut got, &mut told, LAUNCH, Some(COUNTERS));
                assert!(fits, "{name} {more:?}: {got:?} {told:?}");
            }
            assert!(at_least(&mut got, &mut told, BEST, None), "{name} {more:?}: {got:?} {told:?}");
            assert_eq!(got, told, "{name} {more:?}");
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
fn runs_move_what_was_predicted_to_the_byte() {
    let place = Sandbox::new(SPEC);
    let policies = ["immediate", "buffered", "per_epoch", "off"].map(|p| format!("logging.policy={p}"));
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
        for policy in &policies {
            for more in more {
                let overrides: Vec<&str> =
                    [devices.as_str(), policy].into_iter().chain(more.iter().copied()).collect();
                let options = [&overrides[..], &["--virtual-gpus", "3"]].concat();
                let run = place.run(&options).ended_by(0);
                let (mut got, mut least) = (counted(&run), predicted(&place, &overrides, virtual_gpus(3)));
                assert!(at_least(&mut got, &mut least, BEST, None), "{overrides:?}");
                assert_eq!(got, least, "{overrides:?}");
            }
        }
    }
}

/// Computed by hand: one device, resident rows, every step's losses.
#[test]
fn the_prediction_is_that_of_a_sheet_of_paper() {
    let place = Sandbox::new(SPEC);
    let bytes = predicted(&place, &[], virtual_gpus(3));
    let of = |kind: &str, purpose: &str| bytes.get(&(kind.to_owned(), purpose.to_owned())).copied();
    // The orders of five epochs over 103 rows; 153 rows of three features and a target.
    assert_eq!(of("h2d", "batch"), Some(5 * 103 * 4));
    assert_eq!(of("h2d", "dataset"), Some(153 * 4 * 4));
    // 30 steps with two metrics; learning rates stay on the host. Validations after epochs 2, 4 and 5.
    assert_eq!(of("d2h", "log"), Some(30 * 2 * 4));
    assert_eq!(of("d2h", "validation"), Some(3 * 2 * 8));
    assert_eq!((of("h2d", "validation"), of("all_reduce", "gradients")), (None, None));
    // 3 x 7 weights and 7 biases, then 7 weights and a bias; five constants per step.
    assert_eq!((of("h2d", "parameters"), of("d2h", "parameters")), (Some(36 * 4), Some(36 * 4)));
    assert_eq!(of("h2d", "constants"), Some(30 * 5 * 4));
    // The first validation is the best so far; its weights are read at the end.
    assert_eq!((of("d2d", "best"), of("d2h", "best")), (Some(36 * 4), Some(36 * 4)));
    // Two devices sum the gradients and the loss, and compare a digest per epoch.
    let bytes = predicted(&place, &["devices.num_gpus=2"], virtual_gpus(3));
    let of = |kind: &str, purpose: &str| bytes.get(&(kind.to_owned(), purpose.to_owned())).copied();
    assert_eq!(of("all_reduce", "gradients"), Some(2 * 30 * (36 + 1) * 4));
    assert_eq!(of("d2h", "digest"), Some(2 * 5 * 8));
}

/// The CPU's memory is the host's, so nothing is copied.
#[test]
fn on_the_cpu_nothing_moves() {
    let place = Sandbox::new(SPEC);
    for more in [None, Some("data.placement=streamed")] {
        let overrides: Vec<&str> = ["devices.num_gpus=0"].into_iter().chain(more).collect();
        assert_eq!(predicted(&place, &overrides, virtual_gpus(3)), BTreeMap::new());
        assert_eq!(counted(&place.run(&overrides).ended_by(0)), BTreeMap::new());
    }
    let check = place.runner(&["check", "spec.toml", "devices.num_gpus=0"]);
    assert!(check.stdout.contains("\n  moves      nothing: the CPU's memory is the host's\n"), "{check:?}");
    let check = place.runner(&["check", "spec.toml", "--virtual-gpus", "1"]);
    assert_eq!(told(&check.stdout), predicted(&place, &[], virtual_gpus(1)));
    let line = "\n             d2d: best 144 and 144 for each further validation that is the best so far\n";
    assert!(check.stdout.contains(line), "{check:?}");
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
            let (mut got, mut predicted) = (counted(&run), predicted(&place, &overrides, virtual_gpus(2)));
            assert!(at_least(&mut got, &mut predicted, BEST, None), "{wanted:?}");
            assert_eq!(got, predicted, "{wanted:?}");
            let read = |purpose: &str| predicted.get(&("read".to_owned(), purpose.to_owned())).copied();
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

/// Bytes of the counters (`RunRecord`) that go to the device with every block.
const COUNTERS: u64 = 128;

/// Compares a GPU's ledger with the plan, to the byte, for resident and streamed rows, these policies and
/// every engine. The number of blocks depends on the time that steps take; the plan knows only the minimum.
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
                let (mut got, mut predicted) = (counted(&run), predicted(&place, &overrides, vec![gpu()]));
                assert!(at_least(&mut got, &mut predicted, BEST, None), "{overrides:?}");
                if *policy == "immediate" {
                    assert_eq!(got, predicted, "{overrides:?}: a block is a step");
                }
                assert!(at_least(&mut got, &mut predicted, LAUNCH, Some(COUNTERS)), "{overrides:?}");
                assert_eq!(got, predicted, "{overrides:?}");
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
