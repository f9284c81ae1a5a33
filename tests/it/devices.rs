//! Several devices in one run, played by `--virtual-gpus`: the result is the same for any number, the labels
//! are right, and missing devices are handled.

use std::{collections::HashMap, fs};

use safetensors::{Dtype, serialize, tensor::TensorView};

use super::{
    process::{Ended, Folder, Sandbox, tensors},
    run::LINREG,
};

/// Device counts that split a batch evenly, unevenly, and with empty shares.
const COUNTS: [u32; 5] = [1, 2, 3, 4, 7];

/// 43 rows in batches of 5: nine steps per epoch, the last with three rows, so that some of seven devices
/// have none.
const RAGGED: &str = r#"
[data]
batch_size = 5
[data.synthetic_regression]
weights = [2.0, -3.4, 0.5]
bias = 1.2
noise = 0.5
train_rows = 43
validation_rows = 3
[model]
layers = [{ linear = { out_features = 7 } }, "tanh", { dropout = { p = 0.25 } }, { linear = { out_features = 1 } }]
[optimizer.sgd]
lr = 0.02
momentum = 0.9
[trainer]
max_epochs = 23
gradient_clip_val = 2.0
[logging]
metrics = ["loss", "grad_norm", "param_norm", "lr"]
"#;

/// A classifier with dropout under Adam: 200 steps, and a smaller last batch in every epoch.
const CLASSES: &str = r#"
[data]
batch_size = 9
[data.npy]
features = "FOLDER/features.npy"
labels = "FOLDER/classes.npy"
[model]
layers = [{ linear = { out_features = 12 } }, "relu", { dropout = { p = 0.5 } }, { linear = { out_features = 4 } }]
loss = "cross_entropy"
[optimizer.adam]
lr = 0.003
[trainer]
max_steps = 200
max_epochs = 1000
[logging]
metrics = ["loss", "accuracy", "grad_norm", "param_norm"]
"#;

pub fn classes() -> Sandbox {
    Sandbox::new(&CLASSES.replace("FOLDER", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/parity")))
}

/// Runs on the CPU (`count` 0), or on virtual GPUs.
fn on(place: &Sandbox, count: u32, arguments: &[&str]) -> Folder {
    let (count, gpus) = (format!("devices.num_gpus={count}"), count.max(1).to_string());
    let own = [count.as_str(), "--virtual-gpus", gpus.as_str(), "-q"];
    place.run(&[&own, arguments].concat()).ended_by(0)
}

/// Asserts that both tables have the same rows; that training losses agree within `relative`, plus
/// `absolute`; and that all other numbers (norms, and the validation's three rows) agree within ten times
/// that.
#[track_caller]
fn near(run: &Folder, reference: &Folder, relative: f64, absolute: f64, what: &str) {
    let (got, want) = (run.metrics(), reference.metrics());
    assert_eq!((&got.columns, got.rows.len()), (&want.columns, want.rows.len()), "{what}");
    for (got, want) in got.rows.iter().zip(&want.rows) {
        assert_eq!(got[..4], want[..4], "{what}");
        for (place, (a, b)) in got[4..got.len() - 1].iter().zip(&want[4..]).enumerate() {
            let times = if got[2] == "train" && place == 0 { 1.0 } else { 10.0 };
            match (a.parse::<f64>(), b.parse::<f64>()) {
                (Ok(a), Ok(b)) => {
                    assert!(
                        (a - b).abs() <= times * (relative * b.abs() + absolute),
                        "{what}: {got:?} {want:?}"
                    );
                }
                _ => assert_eq!(a, b, "{what}"),
            }
        }
    }
}

/// Approximate mean square of `RAGGED`'s targets: 2² + 3.4² + 0.5² + 1.2² + 0.5² for normal features.
const TARGET_SQUARE: f64 = 17.5;

#[test]
fn losses_over_two_hundred_steps_are_the_cpus() {
    let regression = Sandbox::new(RAGGED);
    let classification = classes();
    for (place, absolute) in [(&regression, 1e-9 * TARGET_SQUARE), (&classification, 0.0)] {
        let cpu = on(place, 0, &[]);
        assert!(cpu.metrics().only("split", "train").rows.len() >= 200);
        for count in COUNTS {
            let run = on(place, count, &[]);
            near(&run, &cpu, 1e-5, absolute, &format!("{count} devices"));
            let again = on(place, count, &[]);
            assert_eq!(run.numbers(), again.numbers(), "{count} devices, repeated");
            assert!(tensors(&run.model()) == tensors(&again.model()), "{count} devices: other weights");
        }
    }
}

/// For every policy, streamed or not: the log is bit-identical for a given number of devices.
#[test]
fn policies_and_streams_change_nothing_on_several_devices() {
    for (place, means) in [(Sandbox::new(RAGGED), "loss"), (classes(), "accuracy")] {
        for count in [2, 3, 7] {
            let resident = on(&place, count, &["trainer.max_steps=31"]);
            for more in ["data.placement=streamed", "logging.policy=immediate", "logging.flush_every=7"] {
                let run = on(&place, count, &["trainer.max_steps=31", more]);
                assert_eq!(run.numbers(), resident.numbers(), "{count} devices, {more}");
                assert!(tensors(&run.model()) == tensors(&resident.model()), "{count} devices, {more}");
            }
            let unshuffled = |placement| on(&place, count, &["data.shuffle=false", placement]);
            assert_eq!(
                unshuffled("data.placement=streamed").numbers(),
                unshuffled("data.placement=resident").numbers()
            );
            let cpu = on(&place, 0, &["logging.policy=per_epoch"]);
            near(&on(&place, count, &["logging.policy=per_epoch"]), &cpu, 1e-5, 2e-8, means);
            let off = on(&place, count, &["logging.policy=off"]).metrics();
            let validation = on(&place, count, &[]).metrics().only("split", "validation");
            assert_eq!(off.column("loss"), validation.column("loss"));
            assert_eq!(off.only("split", "train").rows.len(), 0);
        }
    }
}

/// Rows that divide evenly, unevenly, or into single rows; fewer rows than devices; a last batch of one row.
#[test]
fn shares_of_any_size_are_exact() {
    let place = Sandbox::new(RAGGED);
    for sizes in [
        ["data.batch_size=1", "data.synthetic_regression.train_rows=5"],
        ["data.batch_size=6", "data.synthetic_regression.train_rows=13"],
        ["data.batch_size=64", "data.synthetic_regression.train_rows=2"],
        ["data.batch_size=7", "data.synthetic_regression.train_rows=14"],
    ] {
        for placement in ["data.placement=resident", "data.placement=streamed"] {
            let more = [sizes[0], sizes[1], "trainer.max_epochs=4", placement];
            let cpu = on(&place, 0, &more);
            for count in COUNTS {
                let what = format!("{count} devices, {more:?}");
                near(&on(&place, count, &more), &cpu, 1e-5, 1e-9 * TARGET_SQUARE, &what);
            }
        }
    }
}

/// With integer data, a power of two of rows, and gradients that are signs, no sum is ever rounded. So the
/// order of summation cannot matter.
#[test]
fn sums_that_are_exact_are_equal_on_any_count() {
    let place = Sandbox::new(
        "[data]\nbatch_size = 8\n[data.csv]\npath = \"rows.csv\"\ntarget = \"y\"\nstandardize = false\n\
         validation_fraction = 0.0\n[model]\nlayers = [{ linear = { out_features = 1 } }]\nloss = \"l1\"\n\
         init = { file = \"zeros.safetensors\" }\n[optimizer.sgd]\nlr = 0.125\n[trainer]\nmax_epochs = 50\n",
    );
    // 28 rows: three batches of eight and one of four.
    let row = |i: i32| {
        let (a, b, c) = (i * 7 % 5 - 2, i * 3 % 7 - 3, i % 4 - 1);
        format!("{a},{b},{c},{}\n", 3 * a - 2 * b + 5 * c + i % 3)
    };
    let rows: String = (0..28).map(row).collect();
    fs::write(place.path().join("rows.csv"), format!("a,b,c,y\n{rows}")).unwrap();
    let zeros = [0_u8; 12];
    let view = |len: usize, shape| TensorView::new(Dtype::F32, shape, &zeros[..4 * len]).unwrap();
    let parameters = HashMap::from([("0.weight", view(3, vec![1, 3])), ("0.bias", view(1, vec![1]))]);
    fs::write(place.path().join("zeros.safetensors"), serialize(parameters, None).unwrap()).unwrap();
    let cpu = on(&place, 0, &[]);
    assert_eq!(cpu.metrics().rows.len(), 200);
    // The model learns, so equality is not trivial.
    let losses = cpu.metrics().f64s("loss");
    assert!(losses[199] < 0.5 * losses[0], "{losses:?}");
    for count in COUNTS {
        let run = on(&place, count, &[]);
        assert_eq!(run.numbers(), cpu.numbers(), "{count} devices");
        assert!(tensors(&run.model()) == tensors(&cpu.model()), "{count} devices");
    }
}

#[test]
fn everything_that_virtual_devices_touch_is_labelled() {
    let place = Sandbox::new(LINREG);
    let run = on(&place, 2, &[]);
    let spec = run.text("spec.toml");
    let comments: Vec<&str> = spec.lines().take_while(|line| line.starts_with('#')).collect();
    assert_eq!(comments[1], "# ran on virtual devices, which the host posed as: virtual:0, virtual:1");
    assert!(comments[0].ends_with(" --virtual-gpus 2"), "{comments:?}");
    let environment = run.text("environment.toml");
    for line in ["used = [\"virtual:0\", \"virtual:1\"]", "virtual = true", "virtual_gpus = 2"] {
        assert!(environment.lines().any(|l| l == line), "{line}: {environment}");
    }
    let summary = ["devices_requested", "devices_used", "virtual", "scaling"].map(|c| run.summary(c));
    assert_eq!(summary, ["2", "virtual:0;virtual:1", "true", "strong"]);
    let timing = run.table("timing.csv");
    assert!(timing.column("device").iter().all(|device| device.starts_with("virtual:")), "{timing:?}");
    // Phases that are measured by the host's clock appear once.
    for phase in ["data", "log", "validation", "digest", "other", "total", "warmup"] {
        assert_eq!(run.table("timing.csv").only("phase", phase).column("device"), ["virtual:0"], "{phase}");
    }
    let transfers = run.table("transfers.csv");
    for row in 0..transfers.rows.len() {
        let [kind, from, to, bytes] = ["kind", "from", "to", "bytes"].map(|c| transfers.cell(row, c));
        assert!(from.starts_with("virtual:") || to.starts_with("virtual:"), "{transfers:?}");
        assert!(kind == "sync" || bytes != "0", "{transfers:?}");
        assert_eq!(matches!(kind, "all_reduce" | "d2d"), from == to, "{transfers:?}");
    }
    // Two weights, a bias and a step's loss, each on a cache line of 16 numbers; 24 steps on both devices.
    let sums = transfers.only("kind", "all_reduce");
    assert_eq!((sums.column("count"), sums.column("bytes")), (vec!["24"; 2], vec!["384"; 2]));
    assert_eq!(sums.column("moved_bytes"), ["4608"; 2]);
    assert!(run.text("run.log").contains("replicas compared 4 times in "), "{}", run.text("run.log"));
    assert!(on(&place, 1, &[]).text("run.log").lines().all(|l| !l.contains("replicas")));
}

/// Times of the host's work for several devices; with one device there is none.
#[test]
fn handing_steps_over_and_comparing_devices_are_phases() {
    let place = Sandbox::with_spec(&std::path::absolute("experiments/digits.toml").unwrap());
    for (gpus, comparisons) in [(2, vec!["3"]), (1, vec![])] {
        let count = format!("devices.num_gpus={gpus}");
        let run = place.run(&["--virtual-gpus=2", &count, "trainer.max_epochs=3"]).ended_by(0);
        let timing = || run.table("timing.csv").only("device", "virtual:0");
        assert_eq!(timing().only("phase", "digest").column("count"), comparisons);
        // At least one block per epoch.
        let blocks = timing().only("phase", "hand_over").f64s("count");
        assert!(blocks.len() == comparisons.len() && blocks.iter().all(|count| *count >= 3.0), "{blocks:?}");
        let seconds = |phase: &str| timing().only("phase", phase).f64s("total_s").iter().sum::<f64>();
        let all: f64 = timing().f64s("total_s").iter().sum();
        let of_loop = all - seconds("total") - seconds("warmup");
        assert!((of_loop / seconds("total") - 1.0).abs() < 0.02, "{:?}", timing());
    }
}

#[test]
fn verbose_tells_what_comparing_replicas_cost() {
    let place = Sandbox::new(LINREG);
    let run = place.run(&["--virtual-gpus", "2", "devices.num_gpus=2", "-v"]);
    run.ended_by(0);
    let said = run.ended.stderr.lines().find(|line| line.starts_with("replicas compared 4 times in "));
    assert!(said.is_some_and(|line| line.ends_with("s, equal")), "{}", run.ended.stderr);
    assert!(run.ended.stdout.contains(" rows/s, of virtual devices\n"), "{}", run.ended.stdout);
}

/// The sweep's axis, and what happens to each trial.
fn swept(arguments: &[&str], code: i32) -> (Vec<[String; 3]>, Ended) {
    let place = Sandbox::new(LINREG);
    let run = place.run(&[&["devices.num_gpus=0,1,2,4", "--virtual-gpus", "2"], arguments].concat());
    assert_eq!(run.ended.code, Some(code), "{:?}", run.ended);
    let sweep = Folder::within(&run.runs).unwrap().table("sweep.csv");
    let cell = |row, column| sweep.cell(row, column).to_owned();
    let row = |row| ["status", "devices_used", "reason"].map(|column| cell(row, column));
    ((0..sweep.rows.len()).map(row).collect(), run.ended)
}

#[test]
fn a_sweep_over_devices_runs_what_is_there_and_nothing_twice() {
    let ran = |used: &str| ["finished".to_owned(), used.to_owned(), String::new()];
    let there = [ran("cpu"), ran("virtual:0"), ran("virtual:0;virtual:1")];
    let (rows, ended) = swept(&["devices.on_missing=clamp"], 0);
    assert_eq!(rows[..3], there);
    assert_eq!(rows[3][0], "same_as", "{rows:?}");
    let end = ended.stdout.split("more devices\n").nth(1).unwrap_or_else(|| panic!("{}", ended.stdout));
    for words in [
        "  2 virtual GPUs: all-reduce is ",
        "  no speed-up is shown: virtual devices share one processor, so their times say nothing about real ones\n",
    ] {
        assert!(end.contains(words), "{end}");
    }
    assert!(!ended.stdout.contains("efficiency") && !ended.stdout.contains("ratio"), "{}", ended.stdout);
    let (rows, ended) = swept(&["devices.on_missing=error"], 3);
    assert_eq!(rows[..3], there);
    let reason = "gpu:2, gpu:3 are not there: this machine has 2 virtual GPUs";
    assert_eq!(rows[3], ["skipped", "", reason], "{}", ended.stderr);
    let (rows, _) = swept(&["devices.on_missing=cpu"], 0);
    assert_eq!(rows[..3], there);
    assert_eq!(rows[3], ran("cpu"));
}

#[test]
fn devices_may_be_named() {
    let place = Sandbox::new(LINREG);
    let gpus = ["--virtual-gpus", "3", "-q"];
    let one = place.run(&[&gpus[..], &["devices.use=[\"gpu:1\"]"]].concat()).ended_by(0);
    let two = place.run(&[&gpus[..], &["devices.use=[\"gpu:2\", \"cuda:0\"]"]].concat()).ended_by(0);
    let of = |run: &Folder| ["devices_requested", "devices_used"].map(|column| run.summary(column));
    assert_eq!(of(&one), ["gpu:1", "virtual:1"]);
    assert_eq!(of(&two), ["gpu:2;gpu:0", "virtual:2;virtual:0"]);
    assert_eq!(two.numbers(), on(&place, 2, &[]).numbers());
    let mixed = place.run(&[&gpus[..], &["devices.use=[\"cpu\", \"gpu:0\"]"]].concat()).ended;
    assert_eq!(mixed.code, Some(2));
    assert!(mixed.stderr.contains("`gpu:0` cannot train together with `cpu`"), "{}", mixed.stderr);
    // The environment variable replaces the option.
    let mut command = place.command(&["check", "spec.toml", "devices.num_gpus=all"]);
    let checked = Ended::from_output(command.env("RUNNER_VIRTUAL_GPUS", "2").output().unwrap());
    assert!(checked.stdout.contains("devices    virtual:0, virtual:1\n"), "{checked:?}");
}

#[test]
fn weak_scaling_is_the_larger_batch_with_the_declared_rate() {
    let place = Sandbox::new(RAGGED);
    let weak = ["devices.scaling=weak", "data.batch_size=4"];
    for (rule, written, used, words) in [
        ("none", "0.02", "0.02", "the learning rate is as written"),
        ("linear", "0.02", "0.06", "`lr` is 0.06: 0.02 times 3"),
        ("sqrt", "0.01", "0.017320508075688773", "`lr` is 0.0173205: 0.01 times the root of 3"),
    ] {
        let rule = format!("devices.lr_scaling={rule}");
        let [written, used] = [written, used].map(|lr| format!("optimizer.sgd.lr={lr}"));
        let run = on(&place, 3, &[&weak[..], &[rule.as_str(), &written]].concat());
        let strong = on(&place, 3, &["data.batch_size=12", &used]);
        assert_eq!(run.numbers(), strong.numbers(), "{rule}");
        assert_eq!(run.summary("scaling"), "weak");
        let reported = format!("weak scaling: a step takes 12 rows, 4 for each of 3 devices; {words}");
        assert!(run.text("run.log").contains(&reported), "{}", run.text("run.log"));
        assert_eq!(run.text("spec.toml").lines().nth(1), Some(format!("# {reported}").as_str()));
        // On one device there is nothing to scale.
        let one = on(&place, 1, &[&weak[..], &[rule.as_str(), &written]].concat());
        assert_eq!(one.numbers(), on(&place, 1, &["data.batch_size=4", &written]).numbers());
    }
    // A one_cycle names its rate itself, and a batch cannot be larger than all rows.
    let cycle = |max_lr: &str| format!("schedule={{ one_cycle = {{ max_lr = {max_lr} }} }}");
    let weak = ["devices.scaling=weak", "devices.lr_scaling=linear", "data.batch_size=30"];
    let run = on(&place, 2, &[&weak[..], &[&cycle("0.01")]].concat());
    let largest = format!("{:?}", 0.01 * (43.0 / 30.0));
    assert_eq!(run.numbers(), on(&place, 2, &["data.batch_size=43", &cycle(&largest)]).numbers());
    let reported = "a step takes 43 rows, all there are, 21 or 22 for each of 2 devices instead of 30; `max_lr` is 0.0143333: 0.01 times 43/30\n";
    assert!(run.text("run.log").contains(reported), "{}", run.text("run.log"));
    // One device would take all rows already, so the batch does not grow, and neither does the rate.
    let run = on(&place, 2, &[&weak[..2], &["data.batch_size=50"]].concat());
    assert_eq!(run.numbers(), on(&place, 2, &["data.batch_size=43"]).numbers());
    let reported = "a step takes 43 rows, all there are, 21 or 22 for each of 2 devices instead of 50; the learning rate is as written: \
                a step of one device would take as many\n";
    assert!(run.text("run.log").contains(reported), "{}", run.text("run.log"));
}

#[test]
fn parity_holds_every_count_against_the_cpu() {
    // Nothing is validated, so it does not matter what a spec watches.
    let watched = ["--steps=200", "trainer.monitor=validation.f1"];
    for (place, count, steps) in
        [(Sandbox::new(RAGGED), "150", &["--steps=150"][..]), (classes(), "200", &watched)]
    {
        let ended = place.runner(&[&["parity", "spec.toml", "--virtual-gpus", "7"], steps].concat());
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{}", ended.stdout);
        assert!(ended.stdout.starts_with(&format!("spec: {count} steps of ")), "{}", ended.stdout);
        assert_eq!(ended.stdout.matches("  the same").count(), 7, "{}", ended.stdout);
        assert!(ended.stdout.ends_with("\n  every count of devices gives the results of cpu\n"));
        let names: Vec<_> = fs::read_dir(place.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names, ["spec.toml"], "parity writes nothing");
    }
}

#[test]
fn parity_needs_something_to_compare_with() {
    let ended = Sandbox::new(LINREG).runner(&["parity", "spec.toml", "--virtual-gpus", "0"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(3), ""));
    assert_eq!(
        ended.stderr,
        "error: there is nothing to hold the CPU against: no GPU can be used (`--virtual-gpus 0` hides every one)\n  \
         = hint: `--virtual-gpus 4` has the host pose as a machine with four\n"
    );
    let ended =
        Sandbox::new(LINREG).runner(&["parity", "spec.toml", "--virtual-gpus", "1", "optimizer.sgd.lr=1e10"]);
    assert_eq!(ended.code, Some(1));
    assert!(
        ended.stderr.starts_with("error: on cpu: the loss is not a finite number at step 3"),
        "{ended:?}"
    );
}

#[test]
fn check_says_what_each_device_gets() {
    let ended =
        Sandbox::new(LINREG).runner(&["check", "spec.toml", "--virtual-gpus", "3", "devices.num_gpus=3"]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    let lines: Vec<&str> = ended.stdout.lines().map(str::trim).collect();
    assert_eq!(
        lines[2..6],
        [
            "devices    virtual:0, virtual:1, virtual:2",
            "6 rows of a step on virtual:0",
            "7 rows of a step on virtual:1, virtual:2",
            "all-reduce of 16 B per step: the gradients, and the step's loss and metrics",
        ]
    );
    assert!(ended.stdout.contains(" for 3 virtual devices, all in the host's memory: "), "{ended:?}");
    assert!(ended.stdout.contains("24, in 4 epochs; 6 per epoch on 20 rows each, the last of them on 3\n"));
}
