//! Specs as a user writes them: defaults, overrides, sweeps, resolved files, the schema.

use std::path::{Path, PathBuf};

use runner::spec::{self, *};

const SMALL: &str = "
[data.synthetic_regression]
weights = [2.0, -3.4]
[model]
layers = [{ linear = { out_features = 1 } }]
[optimizer.sgd]
lr = 1
";

fn load(text: &str, overrides: &[&str]) -> Result<Experiment, Failure> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("small.toml");
    std::fs::write(&path, text).unwrap();
    let overrides: Vec<String> = overrides.iter().map(|s| s.to_string()).collect();
    spec::load(&path, &overrides)
}

fn one(text: &str, overrides: &[&str]) -> Spec {
    let experiment = load(text, overrides).unwrap_or_else(|f| panic!("{f}"));
    assert!(!experiment.is_sweep());
    experiment.trials.into_iter().next().unwrap().spec
}

fn trials(text: &str, overrides: &[&str]) -> Vec<String> {
    let experiment = load(text, overrides).unwrap_or_else(|f| panic!("{f}"));
    let shown = |t: &TrialSpec| {
        let values = experiment.axes.iter().zip(experiment.values(t));
        values.map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join(" ")
    };
    experiment.trials.iter().map(shown).collect()
}

#[test]
fn the_smallest_spec_is_filled_with_defaults() {
    assert_eq!(
        one(SMALL, &[]).to_toml(),
        r#"name = "small"
description = ""
seed = 0
kind = "train"

[devices]
num_gpus = 0
on_missing = "error"
scaling = "strong"
lr_scaling = "none"
precision = "f32"
engine = "auto"

[data]
batch_size = 32
shuffle = true
placement = "auto"

[data.synthetic_regression]
weights = [2.0, -3.4]
bias = 0.0
noise = 0.01
train_rows = 1000
validation_rows = 1000

[model]
layers = [
    { linear = { out_features = 1, bias = true } },
]
loss = "mse"
init = "pytorch"

[optimizer.sgd]
lr = 1.0
momentum = 0.0
nesterov = false
weight_decay = 0.0

[trainer]
max_epochs = 10
gradient_clip_val = 0.0
validate_every_epochs = 1
monitor = "validation.loss"

[logging]
policy = "buffered"
flush_every_s = 10.0
metrics = ["loss"]
trace = false
tensorboard = false
"#
    );
}

#[test]
fn the_rest_of_the_tables_are_written_for_a_reader() {
    let overrides = [
        "~optimizer",
        "optimizer.adamw.lr=1e-3",
        "schedule.chain=[{ steps = 50, linear = { start_factor = 0.1 } }, { cosine = { t_max = 500 } }]",
        "trainer.max_time=1h30m",
        "trainer.early_stopping={ patience = 2 }",
        "model.init={ file = 'a.safetensors' }",
        "logging.metrics=[\"lr\", \"loss\"]",
        "devices.use=[\"gpu\", \"cuda:1\"]",
    ];
    let mut spec = one(SMALL, &overrides);
    spec.model.init = Init::File(PathBuf::from("/a.safetensors"));
    let text = spec.to_toml();
    for part in [
        "[optimizer.adamw]\nlr = 0.001\nbeta1 = 0.9\nbeta2 = 0.999\neps = 0.00000001\nweight_decay = 0.01\n",
        "[schedule]\ninterval = \"step\"\nchain = [\n    { steps = 50, linear = { start_factor = 0.1, end_factor = 1.0, total_iters = 5 } },\n    { cosine = { t_max = 500, eta_min = 0.0 } },\n]\n",
        "max_time = \"5400s\"\n",
        "early_stopping = { metric = \"validation.loss\", patience = 2, min_delta = 0.0 }\n",
        "init = { file = \"/a.safetensors\" }\n",
        "metrics = [\"loss\", \"lr\"]\n",
        "use = [\"gpu:0\", \"gpu:1\"]\n",
    ] {
        assert!(text.contains(part), "{part}\nin\n{text}");
    }
}

#[test]
fn the_loss_follows_the_source() {
    let source = |table: &str| SMALL.replace("synthetic_regression]\nweights = [2.0, -3.4]", table);
    let idx = one(&source("idx]\nimages = 'a'\nlabels = 'b'"), &[]);
    assert_eq!(idx.model.loss, Loss::CrossEntropy);
    let npy = one(&source("npy]\nfeatures = 'a'\nlabels = 'b'"), &[]);
    assert_eq!(npy.model.loss, Loss::Mse);
    let Source::Npy(npy) = &npy.data.source else { panic!() };
    assert_eq!(npy.validation_fraction, Some(0.2));
    let csv = one(&source("csv]\npath = 'a'\ntarget = 'y'\nvalidation_path = 'b'"), &[]);
    let Source::Csv(csv) = &csv.data.source else { panic!() };
    assert_eq!(csv.validation_fraction, None);
}

#[test]
fn paths_are_taken_from_the_specs_folder() {
    let text = SMALL
        .replace("synthetic_regression]\nweights = [2.0, -3.4]", "csv]\npath = './x/a.csv'\ntarget = 'y'");
    let experiment = load(&text, &["data.csv.validation_path=/abs/b.csv"]).unwrap_or_else(|f| panic!("{f}"));
    let Source::Csv(csv) = &experiment.trials[0].spec.data.source else { panic!() };
    assert_eq!(csv.path, experiment.path.parent().unwrap().join("x/a.csv"));
    assert_eq!(csv.validation_path.as_deref(), Some(Path::new("/abs/b.csv")));
}

#[test]
fn overrides_set_delete_and_index() {
    let spec = one(
        SMALL,
        &[
            "~optimizer.sgd",
            "optimizer.adam.lr=0.1",
            "model.layers.0.linear.out_features=64",
            "logging.policy=off",
        ],
    );
    assert_eq!(spec.optimizer.lr(), 0.1);
    assert!(matches!(*spec.optimizer, Optimizer::Adam(_)));
    assert!(matches!(&spec.model.layers[0], Layer::Linear(l) if l.out_features == 64));
    assert_eq!(spec.logging.policy, Policy::Off);
    assert_eq!(one(SMALL, &["description=\"a, b\""]).description.as_str(), "a, b");
    assert_eq!(
        one(SMALL, &["~data.synthetic_regression.weights", "data.synthetic_regression.weights=[1, 2]"])
            .data
            .source,
        one(SMALL, &["data.synthetic_regression.weights=[1.0, 2.0]"]).data.source
    );
}

#[test]
fn the_name_of_a_layer_stands_for_its_defaults() {
    let layers = |layer: &str| one(SMALL, &[&format!("model.layers=[{layer}]")]).model.layers.clone();
    assert_eq!(layers("'layer_norm'"), layers("{ layer_norm = {} }"));
    assert_eq!(layers("'layer_norm'"), [Layer::LayerNorm { eps: 1e-5 }]);
    let refused = load(SMALL, &["model.layers=['layer_norm', 'dropout']"]).unwrap_err();
    assert_eq!(refused.problems.len(), 1);
    assert_eq!(refused.problems[0].message, "`model.layers.1`: `dropout` needs its settings");
}

#[test]
fn a_grid_is_the_product_and_the_first_key_is_slowest() {
    let grid =
        format!("{SMALL}\n[sweep.grid]\n'devices.num_gpus' = [0, 'all']\n'optimizer.sgd.lr' = [0.1, 1e-6]\n");
    assert_eq!(
        trials(&grid, &[]),
        [
            "devices.num_gpus=0 optimizer.sgd.lr=0.1",
            "devices.num_gpus=0 optimizer.sgd.lr=1e-6",
            "devices.num_gpus=all optimizer.sgd.lr=0.1",
            "devices.num_gpus=all optimizer.sgd.lr=1e-6",
        ]
    );
    assert_eq!(trials(&grid, &["devices.num_gpus=2"]), ["optimizer.sgd.lr=0.1", "optimizer.sgd.lr=1e-6"]);
    assert_eq!(
        trials(&grid, &["optimizer.sgd.lr=3,4", "devices.num_gpus=0"]),
        ["optimizer.sgd.lr=3", "optimizer.sgd.lr=4"]
    );
    let experiment = load(&grid, &[]).unwrap();
    assert_eq!(experiment.axes, ["devices.num_gpus", "optimizer.sgd.lr"]);
}

#[test]
fn whole_repeats_follow_each_other() {
    let repeated = ["seed=5", "sweep.repeats=2", "data.batch_size=1,2"];
    assert_eq!(
        trials(SMALL, &repeated),
        [
            "data.batch_size=1 repeat=0",
            "data.batch_size=2 repeat=0",
            "data.batch_size=1 repeat=1",
            "data.batch_size=2 repeat=1",
        ]
    );
    let seeds = |more: &[&str]| {
        let overrides = [&repeated[..], more].concat();
        load(SMALL, &overrides).unwrap().trials.iter().map(|t| t.spec.seed).collect::<Vec<_>>()
    };
    assert_eq!(seeds(&[]), [5, 5, 6, 6]);
    assert_eq!(seeds(&["sweep.repeat_seeds=false"]), [5, 5, 5, 5]);
}

#[test]
fn an_axis_may_hold_tables_and_reach_into_arrays() {
    let grid = format!(
        "{SMALL}\n[sweep.grid]\n'optimizer' = [{{ sgd = {{ lr = 0.1 }} }}, {{ adam = {{ lr = 0.01 }} }}]\n'model.layers.0.linear.out_features' = [1]\n"
    );
    let experiment = load(&grid, &[]).unwrap_or_else(|f| panic!("{f}"));
    assert_eq!(experiment.values(&experiment.trials[1])[0], "{ adam = { lr = 0.01 } }");
    assert!(matches!(*experiment.trials[1].spec.optimizer, Optimizer::Adam(_)));
    assert_ne!(experiment.trials[0].spec.hash8(), experiment.trials[1].spec.hash8());
    assert_eq!(experiment.hash8().len(), 8);
}

#[test]
fn problems_of_later_layers_are_shown_where_their_keys_are() {
    let experiment = spec::load(
        Path::new("tests/fixtures/wide.toml"),
        &["model.layers.0.linear.in_features=3,4".to_owned()],
    );
    let experiment = experiment.unwrap_or_else(|f| panic!("{f}"));
    let file = Location::File {
        path: "data.csv".into(),
        line: Some(7),
        column: Some(3),
        text: Some("1,x,3".into()),
    };
    let problems = [
        (
            0,
            Problem::at_key("model.layers.0.linear.in_features", "3 is not 2")
                .label("the data has 2 features"),
        ),
        (1, Problem::at_key("model.layers.1.linear.in_features", "1 is not 2").hint("leave it out")),
        (0, Problem::at_key("logging.metrics", "nothing is written of it")),
        (1, Problem::at_key("logging.metrics", "nothing is written of it")),
        (0, Problem::new(file, "`x` is no number").label("column `b`")),
    ];
    assert_eq!(
        experiment.failure(problems).render(false),
        "error: nothing is written of it
--> tests/fixtures/wide.toml

error: `x` is no number
 --> data.csv:7:3
  |
7 | 1,x,3
  |   ^ column `b`

error: 1 is not 2
 --> tests/fixtures/wide.toml:5:91
  |
5 | layers = [{ linear = { out_features = 2 } }, { linear = { out_features = 1, in_features = 1 } }]
  |                                                                                           ^
  |
  = note: in the trial where `model.layers.0.linear.in_features` = `4`
  = hint: leave it out

error: 3 is not 2
 --> argument:1:35
  |
1 | model.layers.0.linear.in_features=3,4
  |                                   ^ the data has 2 features

error: 4 problems in tests/fixtures/wide.toml
"
    );
}

#[test]
fn every_template_loads() {
    for template in templates::TEMPLATES {
        let experiment = load(template.text, &[]).unwrap_or_else(|f| panic!("{}\n{f}", template.name));
        assert_eq!(experiment.is_sweep(), template.name == "sweep");
    }
}

#[test]
fn a_spec_of_a_million_layers_is_refused_in_one_sentence() {
    let layers = vec!["\"relu\""; 1_000_000].join(",");
    let text = SMALL.replace("{ linear = { out_features = 1 } }", &layers);
    let failure = load(&text, &[]).unwrap_err();
    let messages: Vec<&str> = failure.problems.iter().map(|p| p.message.as_str()).collect();
    assert_eq!(messages, ["`model.layers` has 1000000 entries, more than the 10000 it can have"]);
}

#[test]
fn the_file_itself_can_be_wrong() {
    let message = |path: &str| spec::load(Path::new(path), &[]).unwrap_err().render(false);
    assert_eq!(message("no/such.toml"), "error: cannot read `no/such.toml`: no such file or directory\n");
    assert_eq!(message("tests"), "error: cannot read `tests`: it is a folder: expected a regular file\n");
    assert_eq!(message("/dev/zero"), "error: `/dev/zero` is larger than 16 MiB: it is no spec\n");
}

#[test]
fn the_schema_says_what_is_accepted() {
    let schema = spec::schema();
    let root = |name: &str| schema["properties"][name].clone();
    assert_eq!(schema["additionalProperties"], false);
    let required = |rule: usize| schema["allOf"][rule]["then"]["required"].clone();
    assert_eq!(required(0), serde_json::json!(["data", "model", "optimizer"]));
    assert_eq!(schema["allOf"][1]["if"]["properties"]["kind"]["const"], "matmul");
    assert_eq!(required(1), serde_json::json!(["kind"]));
    assert_eq!(schema["allOf"][1]["then"]["properties"]["data"], false);
    assert_eq!(required(3), serde_json::json!(["kind", "tensors"]));
    assert_eq!(root("matmul")["properties"]["norm"]["default"], "frobenius");
    assert_eq!(root("data")["properties"]["batch_size"]["default"], 32);
    assert_eq!(root("logging")["properties"]["policy"]["enum"][3], "off");
    assert_eq!(root("optimizer")["allOf"][0]["oneOf"][2]["required"][0], "adamw");
    let linear = &root("model")["properties"]["layers"]["items"]["oneOf"][6]["properties"]["linear"];
    assert_eq!(linear["required"], serde_json::json!(["out_features"]));
    assert_eq!(root("sweep")["properties"]["share"]["default"], "auto");
    every_property_is_described(&schema, "");
}

fn every_property_is_described(schema: &serde_json::Value, path: &str) {
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        let described = property["description"].as_str().is_some_and(|d| !d.is_empty());
        assert!(described, "{path} has no description");
        every_property_is_described(property, &path);
    }
}

#[test]
fn byte_order_marks_and_windows_lines_do_no_harm() {
    assert_eq!(one(&format!("\u{feff}{}", SMALL.replace('\n', "\r\n")), &[]), one(SMALL, &[]));
    let failure = load("seed = -1\r\n", &[]).unwrap_err().render(false);
    assert!(failure.contains("\n1 | seed = -1\n  |        ^^ the source"), "{failure}");
    for returns in ["wa\r\r", "\r\r", "\r\r\r=1"] {
        let failure = load(SMALL, &[returns]).unwrap_err().render(false);
        assert!(failure.contains("--> argument:1:1"), "{failure}");
    }
    assert!(load("seed = 1 \r\r\nb\r = 2\r\r", &[]).unwrap_err().render(false).contains("-->"));
}
