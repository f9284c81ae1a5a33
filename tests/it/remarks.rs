//! Keys without effect, or with less effect than it seems, are warned of once by `check` and at the start of
//! a run.

use std::fs;

use super::process::Sandbox;

const SPEC: &str = r#"
[data.csv]
path = "a.csv"
target = "y"

[model]
layers = [{ linear = { out_features = 1 } }]
loss = "mse"

[optimizer.sgd]
lr = 0.01

[trainer]
max_epochs = 3
"#;

/// A spec beside its rows.
pub fn place(rows: usize) -> Sandbox {
    let place = Sandbox::new(SPEC);
    let text: String = (0..rows).map(|i| format!("{i},{},{}\n", i * 7 % 100, i % 3)).collect();
    fs::write(place.path().join("a.csv"), format!("x,y,class\n{text}")).unwrap();
    place
}

/// Asserts the warnings of both commands, each on one line.
#[track_caller]
pub fn warned(place: &Sandbox, arguments: &[&str], want: &[&str]) {
    let lines: Vec<String> = want.iter().map(|text| format!("warning: {text}\n")).collect();
    for command in ["check", "run"] {
        let ended = place.runner(&[&[command, "spec.toml", "-q"], arguments].concat());
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), lines.concat().as_str()), "{command}");
        let out = if command == "check" { 0 } else { 1 };
        assert_eq!(ended.stdout.lines().count(), out, "{}", ended.stdout);
    }
}

#[test]
fn more_steps_than_the_epochs_have() {
    let place = place(100);
    // 80 rows to train on, in three steps.
    warned(&place, &["trainer.max_steps=9"], &[]);
    warned(
        &place,
        &["trainer.max_steps=2000"],
        &[
            "`trainer.max_steps` is 2,000, and `trainer.max_epochs` ends the run before, after 3 epochs, 9 steps",
        ],
    );
    // Trials of a sweep share one warning; the page still shows it for all of them.
    let ended = place.runner(&["check", "spec.toml", "trainer.max_steps=2000", "seed=1,2"]);
    assert!(
        ended.stderr.starts_with("warning: all trials: `trainer.max_steps` is 2,000"),
        "{}",
        ended.stderr
    );
    assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
    assert!(ended.stdout.starts_with("spec: 2 trials, 2 runs\n"), "{}", ended.stdout);
}

/// A sweep over epochs that `max_steps` cuts to the same run. A single run may well be cut short.
#[test]
fn swept_epochs_that_are_never_reached() {
    let place = place(100);
    warned(&place, &["trainer.max_steps=2"], &[]);
    let ended =
        place.runner(&["check", "spec.toml", "-q", "trainer.max_steps=6", "trainer.max_epochs=2,3,5"]);
    let words = |epochs| {
        format!(
            "`trainer.max_epochs` is {epochs}, and `trainer.max_steps` ends the run before, after 6 steps\n"
        )
    };
    assert_eq!(ended.stderr, format!("warning: trial 1: {}warning: trial 2: {}", words(3), words(5)));
}

#[test]
fn seeds_of_an_order_that_nothing_draws() {
    let place = place(100);
    warned(&place, &["data.shuffle_seed=3"], &[]);
    let words =
        "`data.shuffle_seed` is 3, and has no effect: `data.shuffle = false` leaves the rows in their order";
    warned(&place, &["data.shuffle=false", "data.shuffle_seed=3"], &[words]);
}

/// Warned of before the first trial, by `check` and by a run. An error names its trial too.
#[test]
fn a_sweep_names_the_trials_that_it_warns_of() {
    let place = place(100);
    let arguments = ["optimizer.sgd.lr=0.01,1e20", "trainer.max_steps=5,2000,3000", "-q"];
    let words = |trials: &str, steps: &str| {
        format!(
            "warning: trials {trials}: `trainer.max_steps` is {steps}, and `trainer.max_epochs` ends the run before, after \
             3 epochs, 9 steps\n"
        )
    };
    let warnings = [words("1, 4", "2,000"), words("2, 5", "3,000")].concat();
    let checked = place.runner(&[&["check", "spec.toml"], &arguments[..]].concat());
    assert_eq!((checked.code, checked.stderr), (Some(0), warnings.clone()));
    let ran = place.runner(&[&["spec.toml"], &arguments[..]].concat());
    let ends = [3, 4, 5].map(|trial| {
        format!(
            "error: trial {trial}: the loss is not a finite number at step 2; lower the learning rate (it is \
             1e20), or clip the gradients by `trainer.gradient_clip_val`; the targets are large (mean 46.95, standard \
             deviation 28.55): set `data.csv.standardize_target=true`\n"
        )
    });
    assert_eq!((ran.code, ran.stderr), (Some(1), warnings + &ends.concat()));
    let lab = Sandbox::new("kind = \"transfer\"\n[transfer]\nsizes = [\"4KiB\"]\ncount = 1\n");
    let sweep = ["spec.toml", "-q", "transfer.directions=[\"h2d\"],[\"d2d\"]", "--virtual-gpus", "0"];
    let [checked, ran] =
        ["check", "run"].map(|command| lab.runner(&[&[command], &sweep[..]].concat()).stderr);
    assert_eq!(checked, ran);
    assert!(ran.starts_with("warning: trial 0: `h2d` needs a GPU"), "{ran}");
}

#[test]
fn validations_that_are_further_apart_than_the_run_is_long() {
    let place = place(100);
    warned(&place, &["trainer.validate_every_epochs=3"], &[]);
    warned(
        &place,
        &["trainer.validate_every_epochs=1000"],
        &[
            "`trainer.validate_every_epochs` is 1,000, and the run takes 3 epochs: it validates once, at its end",
        ],
    );
    warned(&place, &["trainer.validate_every_steps=2", "trainer.max_steps=2"], &[]);
    warned(
        &place,
        &["trainer.validate_every_steps=1000", "trainer.max_steps=2"],
        &[
            "`trainer.validate_every_steps` is 1,000, and the run takes 2 steps: it validates once, at its end",
        ],
    );
    let none = "data.csv.validation_fraction=0";
    warned(
        &place,
        &["trainer.validate_every_steps=1", none],
        &["`trainer.validate_every_steps` is 1, and there is no row to validate on: nothing is validated"],
    );
    warned(&place, &["trainer.validate_every_epochs=1", none], &[]);
    warned(&place, &["trainer.validate_every_epochs=0", none], &[]);
    warned(
        &place,
        &["trainer.validate_every_epochs=10", none],
        &["`trainer.validate_every_epochs` is 10, and there is no row to validate on: nothing is validated"],
    );
}

/// The first validation counts as an improvement. So with three validations, patience can be at most 2, and
/// the run is over by then anyway.
#[test]
fn more_patience_than_there_are_validations() {
    let place = place(100);
    let patience = |count: u64| format!("trainer.early_stopping={{ patience = {count} }}");
    let words = |count: &str, times: &str| {
        format!(
            "`trainer.early_stopping.patience` is {count}, and the run validates {times}: it is never stopped early"
        )
    };
    warned(&place, &[&patience(1)], &[]);
    warned(&place, &[&patience(2)], &[&words("2", "3 times")]);
    warned(&place, &[&patience(5000)], &[&words("5,000", "3 times")]);
    let every = ["trainer.validate_every_epochs=2", "trainer.max_epochs=5"];
    warned(&place, &[&every[..], &[&patience(1)]].concat(), &[]);
    warned(&place, &[&every[..], &[&patience(2)]].concat(), &[&words("2", "3 times")]);
    warned(&place, &["trainer.max_steps=4", &patience(1)], &[&words("1", "twice")]);
    let steps = ["trainer.validate_every_steps=2", "trainer.max_steps=7"];
    warned(&place, &[&steps[..], &[&patience(2)]].concat(), &[]);
    warned(&place, &[&steps[..], &[&patience(3)]].concat(), &[&words("3", "4 times")]);
    let threshold = "trainer.early_stopping={ patience = 5, stopping_threshold = 0.1 }";
    warned(
        &place,
        &[threshold],
        &[&words("5", "3 times").replace("it is never stopped early", "only the threshold stops it early")],
    );
}

/// Losses and errors are 0 or more, and the other metrics 1 at most.
#[test]
fn a_threshold_that_no_value_reaches() {
    let place = place(100);
    let stopping = |keys: &str| format!("trainer.early_stopping={{ {keys} }}");
    let words = |limit: &str, name: &str, bound: &str| {
        format!(
            "`trainer.early_stopping.stopping_threshold` is {limit}, and no validation {name} is {bound}: it never stops the run"
        )
    };
    warned(&place, &[&stopping("stopping_threshold = 0")], &[]);
    warned(&place, &[&stopping("stopping_threshold = -5")], &[&words("-5", "loss", "below 0")]);
    let r2 = |limit: f64| stopping(&format!("metric = \"validation.r2\", stopping_threshold = {limit}"));
    warned(&place, &[&r2(1.0)], &[]);
    warned(&place, &[&r2(1.5)], &[&words("1.5", "r2", "above 1")]);
    let both =
        "`trainer.early_stopping.patience` is 5, and the run validates 3 times: it is never stopped early";
    let keys = "metric = \"validation.mae\", patience = 5, stopping_threshold = -0.1";
    warned(&place, &[&stopping(keys)], &[both, &words("-0.1", "mae", "below 0")]);
}

#[test]
fn blocks_of_a_policy_that_has_none() {
    let place = place(100);
    let words = "`logging.flush_every` changes nothing here: only `logging.policy = \"buffered\"` moves blocks of steps";
    warned(&place, &["logging.flush_every=2"], &[]);
    for policy in ["immediate", "per_epoch", "off"] {
        let policy = format!("logging.policy={policy}");
        warned(&place, &[&policy], &[]);
        warned(&place, &[&policy, "logging.flush_every=2"], &[words]);
    }
}

#[test]
fn rows_that_are_where_they_are_to_be_brought() {
    let words = "`data.placement = \"streamed\"` changes nothing here: the CPU computes in the memory that holds the rows";
    warned(&place(40), &["data.placement=streamed"], &[words]);
    warned(&place(40), &["data.placement=streamed", "devices.num_gpus=1", "--virtual-gpus=1"], &[]);
}

#[test]
fn a_fraction_that_is_no_row() {
    warned(
        &place(40),
        &["data.csv.validation_fraction=0.01"],
        &["`data.csv.validation_fraction` is 0.01, which of 40 rows is none: nothing is validated"],
    );
    // As intended: no rows are set aside, or one row is.
    warned(&place(40), &["data.csv.validation_fraction=0"], &[]);
    warned(&place(40), &["data.csv.validation_fraction=0.02"], &[]);
}

#[test]
fn outputs_that_stand_for_no_class_and_batches_beyond_the_rows() {
    let place = place(40);
    let classes = ["data.csv.target=class", "model.loss=cross_entropy"];
    let outputs = |count: &'static str| [&classes[..], &[count]].concat();
    warned(&place, &outputs("model.layers.0.linear.out_features=3"), &[]);
    warned(
        &place,
        &outputs("model.layers.0.linear.out_features=5"),
        &["the model puts out 5 numbers per row, and the data have 3 classes: the other 2 stand for none; \
           `out_features = 3` in the last linear layer fits"],
    );
    warned(
        &place,
        &["data.batch_size=2000", "data.csv.validation_fraction=0"],
        &["`data.batch_size` is 2,000, and there are 40 training rows: a step takes them all"],
    );
    let one = Sandbox::new(&SPEC.replace("[data.csv]", "[data.csv]\nvalidation_fraction = 0"));
    fs::write(one.path().join("a.csv"), "x,y\n1,2\n").unwrap();
    warned(
        &one,
        &["data.csv.standardize=false"],
        &["`data.batch_size` is 32, and there is 1 training row: a step takes it"],
    );
}

/// A run of a few steps is dominated by its start-up.
#[test]
fn a_short_run_is_bound_by_its_start() {
    let ended = place(40).run(&[]).ended.ended_by(0);
    let line = ended.stdout.lines().find(|line| line.starts_with("  bound by ")).unwrap();
    assert!(line.starts_with("  bound by         start-up and files, "), "{line}");
}

/// `--quiet` commands keep their warnings, errors, results and exit codes.
#[test]
fn quiet_commands_print_what_came_of_them() {
    let place = place(100);
    let ended = place.runner(&[
        "-q",
        "check",
        "spec.toml",
        "devices={ num_gpus = 3, on_missing = \"clamp\" }",
        "--virtual-gpus",
        "2",
    ]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), ""));
    assert_eq!(
        ended.stderr,
        "warning: `devices.num_gpus` asks for 3 GPUs, but this machine has 2 virtual GPUs: the run uses gpu:0, gpu:1\n"
            .replace("gpu:0, gpu:1", "virtual:0, virtual:1")
    );
    let ended = place.runner(&["parity", "spec.toml", "-q", "--virtual-gpus", "2"]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    assert_eq!(ended.stdout, "spec: every count of devices gives the results of cpu\n");
    let lab = Sandbox::new("kind = \"matmul\"\n[matmul]\nsizes = [16]\n");
    let ended = lab.runner(&["check", "spec.toml", "-q"]);
    assert_eq!((ended.code, ended.stdout.as_str(), ended.stderr.as_str()), (Some(0), "", ""));
    let ended = lab.runner(&["check", "spec.toml", "-q", "matmul.sizes=[0]"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""));
    assert!(ended.stderr.starts_with("error: "), "{}", ended.stderr);
}

#[test]
fn virtual_gpus_compute_on_the_cpu() {
    let place = place(100);
    for (argument, what, column, length, hint) in [
        (
            "devices.precision=tf32",
            "`precision = \"tf32\"` needs a real GPU, and virtual GPUs compute on the CPU",
            19,
            4,
            "leave it out: the CPU computes in f32",
        ),
        (
            "devices.engine=graph",
            "the engine `graph` runs on a real GPU, and virtual GPUs compute on the CPU",
            16,
            5,
            "leave it out, or `auto`: the plan picks one of the CPU's",
        ),
        (
            "devices.engine=team",
            "the engine `team` gives the CPU's threads to one device, and a virtual GPU has one thread",
            16,
            4,
            "leave it out, or set `devices.num_gpus = 0`: the CPU runs it",
        ),
    ] {
        let (bars, marks) = (" ".repeat(column), "^".repeat(length));
        let message = format!(
            "error: {what}\n --> argument 1:1:{column}\n  |\n1 | {argument}\n  |{bars}{marks}\n  |\n  = hint: {hint}\n"
        );
        let ended =
            place.runner(&["check", "spec.toml", argument, "devices.num_gpus=1", "--virtual-gpus", "1"]);
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(2), message.as_str()));
    }
}

#[test]
fn only_the_missing_ones_of_named_devices_are_named() {
    let named = ["check", "spec.toml", "devices.use=[\"gpu:0\",\"gpu:7\"]", "devices.on_missing=clamp"];
    let check = place(100).runner(&[&named[..], &["--virtual-gpus", "2"]].concat()).stdout;
    let note = "`devices.use` names `gpu:7`, but this machine has 2 virtual GPUs: the run uses virtual:0\n";
    assert!(
        check.contains(&format!("  devices    virtual:0 (asked for gpu:0, gpu:7)\n             {note}")),
        "{check}"
    );
}

#[test]
fn check_shows_where_a_schedule_begins_and_ends() {
    let asked = ["check", "spec.toml", "schedule.one_cycle.max_lr=0.5", "trainer.max_epochs=3"];
    let check = place(100).runner(&asked).stdout;
    let line = check.lines().find(|line| line.starts_with("  optimizer ")).unwrap();
    // No step falls on the peak itself.
    assert_eq!(line, "  optimizer  sgd, lr 0.02 at first, at most 0.4972, 2e-6 at the end: one_cycle");
}

/// Targets that nobody scaled are warned of where a loss is in their units.
#[test]
fn targets_that_nobody_scaled() {
    let place = place(100);
    let rows: String = (0..100).map(|i| format!("{i},{}\n", 200_000 + 10 * (i % 2))).collect();
    fs::write(place.path().join("a.csv"), format!("x,y\n{rows}")).unwrap();
    let known = place.runner(&["check", "spec.toml", "-q", "data.csv.validation_fraction=0"]);
    let warning = "warning: the targets are large (mean 200005, standard deviation 5.000): set \
                   `data.csv.standardize_target=true`\n";
    assert_eq!((known.code, known.stderr.as_str()), (Some(0), warning));
    let ran = place.runner(&["spec.toml", "-q", "data.csv.validation_fraction=0", "optimizer.sgd.lr=1e-9"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), warning));
    warned(&place, &["data.csv.standardize_target=true"], &[]);
}

/// If a run diverged on large targets, the hint names the key that scales them.
#[test]
fn large_targets_of_a_run_that_diverged() {
    let spec = "[data.csv]\npath = \"x.csv\"\ntarget = \"y\"\nvalidation_fraction = 0.0\n[model]\nloss = \"mse\"\n\
                layers = [{ linear = { out_features = 1 } }]\n[optimizer.sgd]\nlr = 100.0\n[trainer]\nmax_epochs = 50\n";
    let place = Sandbox::new(spec);
    let rows: String = (0..40).map(|i| format!("{i},{}\n", 1000 + 10 * i)).collect();
    std::fs::write(place.path().join("x.csv"), format!("x,y\n{rows}")).unwrap();
    let ran = place.run(&[]);
    assert_eq!(ran.ended.code, Some(1), "{:?}", ran.ended);
    let error = ran.ended.stderr.lines().find(|line| line.starts_with("error: ")).unwrap();
    let (_, hint) = error.split_once("trainer.gradient_clip_val`; ").unwrap();
    assert_eq!(
        hint,
        "the targets are large (mean 1195, standard deviation 115.4): set `data.csv.standardize_target=true`"
    );
    let ran = place.run(&["data.csv.standardize_target=true"]);
    let error = ran.ended.stderr.lines().find(|line| line.starts_with("error: ")).unwrap();
    assert!(error.ends_with("`trainer.gradient_clip_val`"), "{error}");
}
