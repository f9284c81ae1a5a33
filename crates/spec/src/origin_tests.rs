//! Specs that are written with the origins of their values, and read back.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{Loaded, load::load_text, read, templates::TEMPLATES};

const SMALL: &str = r#"
[data.csv]
path = "a.csv"
target = "y"
[model]
layers = [{ linear = { out_features = 8 } }, "layer_norm", { linear = { out_features = 1 } }]
[optimizer.sgd]
lr = 0.1
"#;

fn read_text(text: &str, words: &[&str]) -> Loaded {
    let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    load_text(Path::new("small.toml"), Path::new("/folder"), text.to_owned(), (&words, 0))
        .unwrap_or_else(|failure| panic!("{failure}\n{text}"))
}

/// Reads back what is written of a spec, from another folder: the trials are the same, and it is complete.
fn assert_same_trials(loaded: &Loaded, path: &Path) {
    let text = loaded.to_toml_with_origins();
    let again = load_text(Path::new("other.toml"), Path::new("/elsewhere"), text.clone(), (&[], 0))
        .unwrap_or_else(|failure| panic!("{}: {failure}\n{text}", path.display()));
    match (loaded, &again) {
        (Loaded::Train(own), Loaded::Train(again)) => {
            assert_eq!(own.trials, again.trials, "{}\n{text}", path.display());
        }
        (Loaded::Lab(own), Loaded::Lab(again)) => assert_eq!(own.trials, again.trials, "{}", path.display()),
        _ => panic!("{}: another kind", path.display()),
    }
    assert_eq!(loaded.hash8(), again.hash8());
    let values = |text: &str| -> Vec<String> {
        text.lines().map(|line| line.split("  # ").next().unwrap_or_default().to_owned()).collect()
    };
    assert_eq!(values(&text), values(&again.to_toml_with_origins()));
    if let Loaded::Train(own) = loaded
        && !own.is_sweep()
    {
        assert_eq!(values(&text).join("\n") + "\n", own.trials[0].spec.to_toml());
    }
}

#[test]
fn every_experiment_reads_back_the_same() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let entries = |folder: &str| -> Vec<PathBuf> {
        fs::read_dir(root.join(folder)).unwrap().map(|entry| entry.unwrap().path()).collect()
    };
    let mut specs = entries("experiments");
    specs.extend(entries("tests/parity").into_iter().map(|folder| folder.join("spec.toml")));
    specs.retain(|path| path.extension().is_some_and(|end| end == "toml") && path.is_file());
    assert!(specs.len() > 50, "{}", specs.len());
    for path in specs {
        assert_same_trials(&read(&path, &[]).unwrap_or_else(|failure| panic!("{failure}")), &path);
    }
    for template in TEMPLATES {
        assert_same_trials(&read_text(template.text, &[]), Path::new(template.name));
    }
}

#[test]
fn every_sweep_reads_back_the_same() {
    let sweeps: [&[&str]; 14] = [
        &["optimizer.sgd.lr=0.1,0.2", "sweep.repeats=3"],
        &["model.layers.0.linear.out_features=4,8", "data.csv.path=a.csv,/b/c.csv"],
        &["model.layers.1=relu,{dropout={p=0.1}},layer_norm"],
        &["model.layers=[{linear={out_features=1}}],[relu,{linear={out_features=1}}]"],
        &["optimizer={sgd={lr=1,momentum=0.5}},{adam={lr=1}}"],
        &["optimizer={sgd={lr=1}},{sgd={lr=2}}", "trainer.max_epochs=5"],
        &["trainer.early_stopping.patience=3,4", "trainer.early_stopping.metric=validation.mae"],
        &["trainer.early_stopping={metric=validation.mae,patience=1},{metric=validation.loss,patience=2}"],
        &["model.init={normal={std=1}},xavier_uniform,{normal={std=2}}"],
        &["devices.num_gpus=0,all", "devices.on_missing=clamp", "launcher.slurm.time=1h"],
        &["data.fold=0..3", "data.folds=3"],
        &["sweep.sampler=tpe", "sweep.trials=14", "optimizer.sgd.lr=loguniform(1e-3, 1)", "sweep.stop=asha"],
        &["sweep.repeats=2", "sweep.repeat_seeds=false", "seed=7"],
        &[
            "data.csv.standardize=true,false",
            "model.loss=mse,l1",
            "sweep.when={'model.loss'={'data.csv.standardize'=[true]}}",
        ],
    ];
    for words in sweeps {
        assert_same_trials(&read_text(SMALL, words), Path::new(&words.join(" ")));
    }
}

#[test]
fn values_that_the_file_does_not_give_name_their_origin() {
    let words = [
        "model.layers.0.linear.bias=false",
        "optimizer.sgd.lr=0.5",
        "data.csv.ignore=[]",
        "trainer.max_epochs=3",
    ];
    let text = read_text(SMALL, &words).to_toml_with_origins();
    let lines = |of: &[&str]| -> String {
        let tables = text.split("\n\n").filter(|table| of.iter().any(|name| table.starts_with(name)));
        tables.collect::<Vec<_>>().join("\n\n")
    };
    assert_eq!(
        lines(&["[data.csv", "[model", "[optimizer"]),
        r#"[data.csv]
path = "/folder/a.csv"
target = "y"
categorical = []  # default
ignore = []  # command line
missing = "error"  # default
missing_indicators = false  # default
standardize = true  # default
standardize_target = false  # default
delimiter = ","  # default
decimal = "."  # default
header = true  # default
validation_fraction = 0.2  # default

[model]
layers = [
    { linear = { out_features = 8, bias = false } },  # command line: bias
    { layer_norm = { eps = 0.00001 } },  # default: eps
    { linear = { out_features = 1, bias = true } },  # default: bias
]
loss = "mse"  # default
init = "pytorch"  # default

[optimizer.sgd]
lr = 0.5  # command line
momentum = 0.0  # default
nesterov = false  # default
weight_decay = 0.0  # default"#
    );
}

/// What trials do not share stands as the file has it, and what is swept has no value of one trial.
#[test]
fn a_sweep_has_what_its_trials_share() {
    let words =
        ["optimizer.sgd.lr=0.1,0.2", "data.batch_size=8,16", "model.layers.0.linear.out_features=4,8"];
    let text = read_text(SMALL, &words).to_toml_with_origins();
    assert!(!text.contains("batch_size = 8"), "{text}");
    assert!(text.contains("lr = 0.1\n"), "{text}");
    assert!(
        text.contains("    { linear = { out_features = 8, bias = true } },  # default: bias\n"),
        "{text}"
    );
    assert!(text.ends_with(
        r#"
[sweep]
sampler = "grid"  # default
sampler_seed = 0  # default
repeats = 1  # default
repeat_seeds = true  # default
share = "auto"  # default

[sweep.grid]
"optimizer.sgd.lr" = [0.1, 0.2]  # command line
"data.batch_size" = [8, 16]  # command line
"model.layers.0.linear.out_features" = [4, 8]  # command line
"#
    ));
}
