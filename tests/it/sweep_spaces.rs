//! The trials that a sweep's table and its overrides make: ranges, `zip`, `points`, `exclude`, samplers.

use runner::spec::{self, Experiment, TrialSpec};

use super::{process::Sandbox, run::LINREG};

pub fn load(sweep: &str, overrides: &[&str]) -> Experiment {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("spec.toml");
    std::fs::write(&path, format!("{LINREG}\n{sweep}")).unwrap();
    let overrides: Vec<String> = overrides.iter().map(|s| s.to_string()).collect();
    spec::load(&path, &overrides).unwrap_or_else(|failure| panic!("{failure}"))
}

/// The values of each trial, in the order of the axes.
pub fn values(sweep: &str, overrides: &[&str]) -> Vec<String> {
    shown(&load(sweep, overrides))
}

pub fn shown(experiment: &Experiment) -> Vec<String> {
    experiment.trials.iter().map(|trial| experiment.values(trial).join(" ")).collect()
}

/// All trials are planned before the first one runs: thousands of them must not each hold a whole spec.
#[test]
fn trials_keep_the_tables_in_which_they_do_not_differ_once() {
    let mut trials = load("", &["seed=0,1", "optimizer.sgd.lr=0.1,0.2"]).trials;
    assert!(size_of::<TrialSpec>() <= 144, "{}", size_of::<TrialSpec>());
    let mut last = trials.pop().unwrap().spec;
    let first = &trials[0].spec;
    assert!(std::ptr::eq(&*first.data, &*last.data));
    assert!(std::ptr::eq(&*first.model, &*last.model));
    assert!(std::ptr::eq(&*first.trainer, &*last.trainer));
    assert_eq!([first, &last].map(|spec| (spec.seed, spec.optimizer.lr())), [(0, 0.1), (1, 0.2)]);
    // A trial that changes a table changes it for none of the others.
    let before = first.data.batch_size;
    last.data.batch_size += 1;
    assert_eq!((first.data.batch_size, last.data.batch_size), (before, before + 1));
}

/// Each slip is one error, whose hint is what was meant.
#[test]
fn slips_of_functions_and_spaces() {
    let place = Sandbox::new(LINREG);
    let refused = |arguments: &[&str], message: &str, hint: &str| {
        let ended = place.runner(&[&["check", "spec.toml"], arguments].concat()).ended_by(2);
        assert!(ended.stderr.starts_with(&format!("error: {message}\n")), "{}", ended.stderr);
        assert!(ended.stderr.contains(&format!("= hint: {hint}\n")), "{}", ended.stderr);
        assert_eq!(ended.stderr.matches("error: ").count(), 1, "{}", ended.stderr);
    };
    for name in ["logunif", "log_uniform", "LogUniform"] {
        let argument = format!("optimizer.sgd.lr={name}(1e-4,1e-1)");
        let arguments = [&argument, "sweep.sampler=random", "sweep.trials=3"];
        refused(
            &arguments,
            &format!("no function `{name}`"),
            "did you mean `'optimizer.sgd.lr=loguniform(1e-4,1e-1)'`?",
        );
    }
    refused(
        &["optimizer.sgd.lr=0.1,", "0.01,", "1", "seed=2"],
        "`optimizer.sgd.lr=0.1,` ends at a space",
        "leave out the space after the comma: `optimizer.sgd.lr=0.1,0.01,1`",
    );
    refused(
        &["optimizer.sgd.lr=uniform(1e-1,1e-4)", "sweep.sampler=random", "sweep.trials=3"],
        "the axis `optimizer.sgd.lr`: `uniform(1e-1,1e-4)`: its ends are in the wrong order",
        "write `uniform(1e-4, 1e-1)`",
    );
    place.runner(&["check", "spec.toml", "description=other(a)"]).ended_by(0);
}

const ALL: &str = r#"
[sweep]
points = [
    { "logging.policy" = "off", "optimizer.sgd.momentum" = 0.5 },
    { "logging.policy" = "buffered", "optimizer.sgd.momentum" = 0 },
]
exclude = [{ "seed" = [0, 5], "data.batch_size" = 16 }, { "seed" = 1, "logging.policy" = "off" }]
[sweep.grid]
seed = "0..2"
[sweep.zip]
"optimizer.sgd.lr" = "logspace(1e-3, 1e-2, 2)"
"data.batch_size" = [8, 16]
"#;

#[test]
fn trials_are_the_product_of_grid_zip_and_points_less_exclusions() {
    let experiment = load(ALL, &[]);
    assert_eq!(
        experiment.axes,
        ["seed", "optimizer.sgd.lr", "data.batch_size", "logging.policy", "optimizer.sgd.momentum"]
    );
    assert_eq!(experiment.excluded, 4);
    assert_eq!(
        values(ALL, &[]),
        ["0 0.001 8 off 0.5", "0 0.001 8 buffered 0", "1 0.001 8 buffered 0", "1 0.01 16 buffered 0"]
    );
    let last = &experiment.trials[3].spec;
    assert_eq!((last.seed, last.optimizer.lr(), last.data.batch_size), (1, 0.01, 16));
}

#[test]
fn ranges_stand_on_the_command_line() {
    assert_eq!(values("", &["seed=0..3"]), ["0", "1", "2"]);
    assert_eq!(
        values("", &["optimizer.sgd.lr=logspace(1e-4, 1e-1, 4)", "seed=range(0,4,2)"]),
        ["0.0001 0", "0.0001 2", "0.001 0", "0.001 2", "0.01 0", "0.01 2", "0.1 0", "0.1 2"]
    );
    assert_eq!(values("", &["logging.policy=choice(off, buffered)"]), ["off", "buffered"]);
    // In quotes it is a word.
    assert_eq!(load("", &["description=\"0..3\""]).trials[0].spec.description.as_str(), "0..3");
    // A zipped axis that is set again stays in `zip`; setting one value removes it.
    let zip = "[sweep.zip]\nseed = [1, 2]\n\"data.batch_size\" = [8, 16]";
    assert_eq!(values(zip, &["seed=7..9"]), ["7 8", "8 16"]);
    assert_eq!(values(zip, &["seed=5"]), ["8", "16"]);
    assert_eq!(values(zip, &["~seed"]), ["8", "16"]);
}

#[test]
fn samplers_draw_the_trials_that_they_always_drew() {
    let sweep = r#"
[sweep]
trials = 3
[sweep.grid]
"optimizer.sgd.lr" = "loguniform(1e-4, 1e-1)"
"optimizer.sgd.momentum" = "uniform(0, 1)"
"data.batch_size" = "int(8, 64)"
"logging.policy" = ["off", "buffered"]
"#;
    let random = values(sweep, &["sweep.sampler=random"]);
    insta::assert_snapshot!(random.join("\n"), @r"
    0.0209976 0.67321 10 buffered
    0.00180608 0.41836 26 buffered
    0.00355856 0.4931 35 buffered
    ");
    let sobol = values(sweep, &["sweep.sampler=sobol"]);
    insta::assert_snapshot!(sobol.join("\n"), @r"
    0.000611591 0.53689 48 buffered
    0.082024 0.4606 12 off
    0.011162 0.77823 54 buffered
    ");
    assert_ne!(values(sweep, &["sweep.sampler=random", "sweep.sampler_seed=1"]), random);
    let repeated = values(sweep, &["sweep.sampler=random", "sweep.repeats=2"]);
    let numbered = |repeat| random.iter().map(move |values| format!("{values} {repeat}"));
    assert_eq!(repeated, numbered(0).chain(numbered(1)).collect::<Vec<_>>());
}

/// A seed is nothing to choose: it tells how sure a point's value is.
#[test]
fn each_point_of_a_sampler_runs_with_every_seed() {
    let sweep = "[sweep]\ntrials = 2\nsampler = 'sobol'\n[sweep.grid]\nseed = '0..3'\n\
                 'optimizer.sgd.lr' = 'loguniform(1e-4, 1e-1)'\n'data.batch_size' = 'int(8, 64)'\n";
    let alone = values(sweep, &["seed=7"]);
    let with_seeds: Vec<String> =
        alone.iter().flat_map(|point| (0..3).map(move |seed| format!("{point} {seed}"))).collect();
    assert_eq!((alone.len(), values(sweep, &[])), (2, with_seeds));
    assert_eq!(load(sweep, &[]).axes, ["optimizer.sgd.lr", "data.batch_size", "seed"]);
    let refused = |overrides: &[&str]| {
        let place = Sandbox::new(&format!("{LINREG}\n{sweep}"));
        let ended = place.runner(&[&["check", "spec.toml"], overrides].concat()).ended_by(2);
        let words = |line: &&str| line.starts_with("error") || line.contains("hint");
        ended.stderr.lines().filter(words).map(str::trim).collect::<Vec<_>>().join("\n")
    };
    insta::assert_snapshot!(refused(&["sweep.sampler=tpe"]), @r"
    error: `tpe` cannot learn from the axis `seed`: seeds of one point would compete
    = hint: give it one value, and repeat the best trial afterwards: `runner TRIAL/spec.toml seed=1..6 name=repeats`
    ");
    insta::assert_snapshot!(refused(&["seed=int(0, 9)"]), @r"
    error: the axis `seed`: seeds are listed, not drawn
    = hint: write `0..5`: every point runs with each of them
    ");
    insta::assert_snapshot!(refused(&["optimizer.sgd.lr=0.1", "data.batch_size=8"]), @r"
    error: a sampler draws the values of other keys than `seed`, and no other key varies
    = hint: leave `sampler` and `trials` out, which runs all seeds, or give other keys values
    ");
    // Where an axis was not read, none is missed.
    insta::assert_snapshot!(refused(&["sweep.grid={ seed = \"0..3\", \"data.batch_size\" = \"log(8, 64)\" }"]), @r"
    error: the axis `data.batch_size`: `log(8, 64)` is no range
    = hint: write an array, `0..5`, `range(a, b, step)`, `linspace(a, b, n)`, `logspace(a, b, n)`, `choice(x, y, ...)`, `uniform(a, b)`, `loguniform(a, b)` or `int(a, b)`
    ");
    insta::assert_snapshot!(refused(&["sweep.when={ \"data.batch_size\" = { seed = 1 } }"]), @r"
    error: `sweep.when`: every point of a sampler runs with every `seed`
    = hint: leave `seed` out of the conditions
    ");
    // Nor is a fold: without all of them, the best point would be the one with the easiest rows.
    let table =
        ["~data.synthetic_regression", "data.csv={ path = \"a.csv\", target = \"y\" }", "data.folds=5"];
    let of_table = |more: &[&'static str]| [&table, more].concat();
    let with_folds: Vec<String> =
        alone.iter().flat_map(|point| (0..5).map(move |fold| format!("{point} {fold}"))).collect();
    assert_eq!(values(sweep, &of_table(&["seed=7", "data.fold=0..5"])), with_folds);
    assert_eq!(values(sweep, &of_table(&["seed=0..2", "data.fold=0..5"])).len(), 20);
    assert_eq!(values(sweep, &["seed=7", "model.init_seed=0..5"]), with_folds);
    let folds = |more: &'static str| refused(&of_table(&["seed=7", "data.fold=0..5", more]));
    insta::assert_snapshot!(folds("sweep.sampler=tpe"), @r"
    error: `tpe` cannot learn from the axis `data.fold`: folds of one point would compete
    = hint: give it one value and cross-validate the best trials afterwards (`runner TRIAL/spec.toml data.fold=0..5 name=folds`), or set another sampler
    ");
    insta::assert_snapshot!(folds("sweep.stop={ asha = {} }"), @r"
    error: successive halving cannot judge the axis `data.fold`: folds of one point would compete
    = hint: give it one value and cross-validate the best trials afterwards (`runner TRIAL/spec.toml data.fold=0..5 name=folds`), or leave `sweep.stop` out
    ");
    insta::assert_snapshot!(refused(&of_table(&["seed=7", "data.fold=int(0, 4)"])), @r"
    error: the axis `data.fold`: folds are listed, not drawn
    = hint: write `0..5`: every point runs with each of them
    ");
    // An unknown sampler is the only mistake: it may take distributions.
    insta::assert_snapshot!(refused(&["sweep.sampler=bayes"]), @r"
    error: `sweep.sampler`: unknown value `bayes`
    = hint: did you mean `tpe`? it is one of `grid`, `random`, `sobol` or `tpe`
    ");
}

#[test]
fn a_list_of_layers_is_called_by_its_layers() {
    let place = Sandbox::new(LINREG);
    let linear = |width: u32| format!("{{ linear = {{ out_features = {width} }} }}");
    let layers = format!("model.layers=[{}, relu, {}],[{}]", linear(8), linear(1), linear(1));
    let sweep = place.run(&[layers.replace("relu", "\"relu\"").as_str(), "-q"]).ended_by(0);
    assert_eq!(sweep.files()[..2], ["000-layers=linear8+relu+linear1", "001-layers=linear1"]);
}

/// A table alone is called by its key, and beside another of that key by more.
#[test]
fn tables_are_matched_whatever_they_are_called() {
    let sweep = |optimizers: &str| {
        let grid = format!("[sweep.grid]\nseed = [1, 2]\noptimizer = [{optimizers}]");
        let place = Sandbox::new(&format!("{LINREG}\n{grid}"));
        let folder = place.run(&["-q"]).ended_by(0).0.to_str().unwrap().to_owned();
        (place, folder)
    };
    let (place, alone) = sweep("{ sgd = { lr = 0.1 } }, { adam = { lr = 0.1 } }");
    let (_place, beside) = sweep("{ sgd = { lr = 0.1 } }, { sgd = { lr = 0.01 } }");
    let condition = "mean(train.loss) > 2 * baseline";
    let gate = place.runner(&["compare", &alone, "--baseline", &beside, "--fail-if", condition]);
    assert!(gate.code == Some(0) && gate.stdout.contains("\n  optimizer sgd: "), "{gate:?}");
}

/// `sweep.toml` gives the trials again, from its own folder.
#[test]
fn a_sweep_of_every_kind_runs_and_is_listed() {
    let place = Sandbox::new(&format!("{LINREG}\n{ALL}"));
    let checked = place.runner(&["check", "spec.toml", "--threads=1"]).stdout;
    let table = |page: &str| page.split("\n\n").take(2).collect::<Vec<_>>().join("\n\n");
    insta::assert_snapshot!(table(&checked), @r"
    spec: 4 trials (4 excluded), 4 runs

      trial  seed  optimizer.sgd.lr  data.batch_size  logging.policy  optimizer.sgd.momentum  steps  devices  engine  becomes
          0     0             0.001                8             off                     0.5     52  cpu      serial  run
          1     0             0.001                8        buffered                       0     52  cpu      serial  run
          2     1             0.001                8        buffered                       0     52  cpu      serial  run
          3     1              0.01               16        buffered                       0     28  cpu      serial  run
    ");
    let sweep = place.run(&["-q"]).ended_by(0);
    assert_eq!(
        sweep.files(),
        [
            "000-seed=0-lr=.001-batch_size=8-policy=off-momentum=.5",
            "001-seed=0-lr=.001-batch_size=8-policy=buffered-momentum=0",
            "002-seed=1-lr=.001-batch_size=8-policy=buffered-momentum=0",
            "003-seed=1-lr=.01-batch_size=16-policy=buffered-momentum=0",
            "sweep.csv",
            "sweep.toml",
        ]
    );
    let again = sweep.0.join("sweep.toml");
    let text = std::fs::read_to_string(&again).unwrap();
    let (trials, hash) = text.trim_end().rsplit_once("\n# Its trials: sweep-").unwrap();
    assert_eq!(hash.len(), 8);
    insta::assert_snapshot!(trials.split_once("[sweep]").unwrap().1.trim(), @r#"
    points = [
        { "logging.policy" = "off", "optimizer.sgd.momentum" = 0.5 },
        { "logging.policy" = "buffered", "optimizer.sgd.momentum" = 0 },
    ]
    exclude = [
        { "seed" = [0, 5], "data.batch_size" = 16 },
        { "seed" = 1, "logging.policy" = "off" },
    ]

    [sweep.grid]
    "seed" = "0..2"

    [sweep.zip]
    "optimizer.sgd.lr" = "logspace(1e-3, 1e-2, 2)"
    "data.batch_size" = [8, 16]
    "#);
    let listed = place.runner(&["check", again.to_str().unwrap(), "--threads=1"]).stdout;
    assert_eq!(table(&listed), table(&checked));
    place.runner(&["run", "--resume", sweep.0.to_str().unwrap()]).ended_by(0);
}
