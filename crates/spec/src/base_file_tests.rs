//! Specs that extend others: what they mean, and what is said of mistakes.

use std::{
    fs,
    path::{Path, PathBuf},
};

use tempfile::TempDir;

use super::{Loaded, read};

pub(super) const BASE: &str = r#"seed = 3
[data.csv]
path = "a.csv"
target = "y"
[model]
layers = [{ linear = { out_features = 8 } }, "relu", { linear = { out_features = 1 } }]
init = { normal = { std = 0.1 } }
[optimizer.sgd]
lr = 0.1
momentum = 0.9
[checkpoint]
every_minutes = 1.0
keep_last = 2
"#;

pub(super) struct Folder(pub TempDir);

impl Folder {
    pub fn new(files: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        Self(folder)
    }

    pub fn read(&self, name: &str, words: &[&str]) -> Result<Loaded, String> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        read(&self.0.path().join(name), &words).map_err(|failure| self.shorten(&failure.render(false)))
    }

    pub fn loaded(&self, name: &str, words: &[&str]) -> Loaded {
        self.read(name, words).unwrap_or_else(|failure| panic!("{name}: {failure}"))
    }

    /// The resolved spec with origins.
    pub fn text(&self, name: &str, words: &[&str]) -> String {
        self.shorten(&self.loaded(name, words).to_toml_with_origins())
    }

    fn shorten(&self, text: &str) -> String {
        text.replace(&format!("{}/", self.0.path().display()), "")
            .replace(&self.0.path().display().to_string(), ".")
    }

    /// Whether two files give the same trials.
    pub fn assert_same(&self, name: &str, other: &str, words: &[&str]) {
        let [own, other] = [self.loaded(name, words), self.loaded(other, &[])];
        assert_eq!(
            own.hash8(),
            other.hash8(),
            "{words:?}\n{}\n{}",
            self.text(name, words),
            other.to_toml_with_origins()
        );
        assert_eq!(own.count(), other.count());
    }
}

/// A file means what the base means with its keys as overrides, and what a file means that has all of it.
#[test]
fn keys_replace_those_of_the_base() {
    let own = r#"name = "x"
[model]
layers = [{ linear = { out_features = 1 } }]
[model.init]
file = "w.safetensors"
[optimizer.adam]
lr = 0.5
[checkpoint]
every_epochs = 2
[data.npy]
features = "x.npy"
labels = "y.npy"
[schedule.cosine]
"#;
    let all = "name = 'x'
seed = 3
[data.npy]
features = 'x.npy'
labels = 'y.npy'
[model]
layers = [{ linear = { out_features = 1 } }]
init = { file = 'w.safetensors' }
[optimizer.adam]
lr = 0.5
[schedule.cosine]
[checkpoint]
every_epochs = 2
keep_last = 2
";
    let base = format!("{BASE}[schedule.step]\nstep_size = 9\n");
    let own = format!("extends = 'base.toml'\n{own}");
    let folder = Folder::new(&[("base.toml", &base), ("own.toml", &own), ("all.toml", all)]);
    folder.assert_same("own.toml", "all.toml", &[]);
    let words = [
        "name=x",
        "model.layers=[{linear={out_features=1}}]",
        "model.init.file=w.safetensors",
        "optimizer.adam={lr=0.5}",
        "checkpoint.every_epochs=2",
        "data.npy={features=x.npy,labels=y.npy}",
        "schedule.cosine={}",
    ];
    folder.assert_same("base.toml", "all.toml", &words);
    let three = "extends = 'own.toml'\nseed = 4\n[optimizer.adam]\nbeta1 = 0.5\n";
    let folder =
        Folder::new(&[("base.toml", &base), ("own.toml", &own), ("three.toml", three), ("all.toml", all)]);
    let all = folder.loaded("all.toml", &["seed=4", "optimizer.adam.beta1=0.5", "trainer.max_epochs=7"]);
    assert_eq!(folder.loaded("three.toml", &["trainer.max_epochs=7"]).hash8(), all.hash8());
}

#[test]
fn a_base_may_have_a_sweep() {
    let base = format!(
        "{BASE}[sweep]\ngrid = {{ \"optimizer.sgd.lr\" = [0.1, 0.2], seed = [1, 2] }}\nzip = {{ \"data.batch_size\" = [8, 9] }}\n"
    );
    let cases = [
        ("[trainer]\nmax_epochs = 3\n", 8),
        ("[optimizer.sgd]\nlr = 0.3\n", 4),
        ("[optimizer.adam]\nlr = 0.3\n", 4),
        ("[data]\nbatch_size = 4\n[sweep]\nrepeats = 1\n", 4),
        ("[sweep.grid]\n\"optimizer.sgd.lr\" = [1, 2, 3]\n\"data.batch_size\" = [1, 2, 3]\n", 18),
        ("[sweep.grid]\n\"optimizer.sgd.lr\" = [1, 2, 3]\n[optimizer.sgd]\nlr = 7.0\n", 12),
    ];
    for (own, count) in cases {
        let own = format!("extends = 'base.toml'\n{own}");
        let folder = Folder::new(&[("base.toml", &base), ("own.toml", &own)]);
        let loaded = folder.loaded("own.toml", &[]);
        assert_eq!(loaded.count(), count, "{own}");
        // What a sweep's folder keeps needs no other file.
        let Loaded::Train(experiment) = &loaded else { panic!("a training") };
        let alone = Folder::new(&[("sweep.toml", &experiment.to_sweep_toml("own"))]);
        assert_eq!(alone.loaded("sweep.toml", &[]).hash8(), loaded.hash8(), "{own}");
        let alone = Folder::new(&[("spec.toml", &loaded.to_toml_with_origins())]);
        assert_eq!(alone.loaded("spec.toml", &[]).hash8(), loaded.hash8(), "{own}");
    }
}

/// Each path starts at the folder of the file that has it, and those of arguments at that of the spec.
#[test]
fn paths_start_at_the_folder_of_their_file() {
    let base = "[data.csv]\ntarget = 'y'\npath = 'a.csv'\n[model]\nlayers = [{ linear = { out_features = 1 } }]\n[optimizer.sgd]\nlr = 1\n";
    let own = "extends = '../shared/base.toml'\nmodel.init.file = 'w.safetensors'\n";
    let swept = "extends = 'base.toml'\nsweep.grid = { \"data.csv.path\" = ['a.csv', 'b.csv'] }\n";
    let last = "extends = '../shared/swept.toml'\n";
    let folder = Folder::new(&[
        ("shared/base.toml", base),
        ("shared/swept.toml", swept),
        ("own/own.toml", own),
        ("own/last.toml", last),
    ]);
    let root = folder.0.path();
    let paths = |name: &str, words: &[&str]| -> Vec<_> {
        let Loaded::Train(experiment) = folder.loaded(name, words) else { panic!("a training") };
        let path = |trial: &super::TrialSpec| real(trial.spec.data.source.files()[0]);
        experiment.trials.iter().map(path).collect()
    };
    let shared = |name: &str| root.canonicalize().unwrap().join("shared").join(name);
    assert_eq!(paths("own/own.toml", &[]), [shared("a.csv")]);
    assert!(folder.text("own/own.toml", &[]).contains("init = { file = \"own/w.safetensors\" }\n"));
    let own = root.canonicalize().unwrap().join("own/c.csv");
    assert_eq!(paths("own/own.toml", &["data.csv.path=c.csv"]), [own]);
    assert_eq!(paths("own/last.toml", &[]), [shared("a.csv"), shared("b.csv")]);
    let Loaded::Train(experiment) = folder.loaded("own/last.toml", &[]) else { panic!("a training") };
    let kept = folder.shorten(&experiment.to_sweep_toml("last"));
    assert!(kept.contains(r#""data.csv.path" = ["shared/a.csv", "shared/b.csv"]"#), "{kept}");
}

#[test]
fn values_of_the_base_name_their_line() {
    let own = "extends = 'base.toml'\n[optimizer.sgd]\nlr = 0.5\n";
    let folder = Folder::new(&[("base.toml", BASE), ("own.toml", own)]);
    let text = folder.text("own.toml", &["seed=1"]);
    for line in [
        "seed = 1  # command line\n",
        "path = \"a.csv\"  # from base.toml:3\n",
        "    { linear = { out_features = 8, bias = true } },  # from base.toml:6: out_features; default: bias\n",
        "    \"relu\",  # from base.toml:6\n",
        "init = { normal = { std = 0.1 } }  # from base.toml:7\n",
        "lr = 0.5\n",
        "momentum = 0.9  # from base.toml:10\n",
    ] {
        assert!(text.contains(line), "{line}{text}");
    }
}

#[test]
fn mistakes_name_the_file_that_has_them() {
    let folder = Folder::new(&[
        ("base.toml", &BASE.replace("momentum", "momentun")),
        ("own.toml", "extends = 'base.toml'\ntrainer.max_epoch = 1\n"),
    ]);
    insta::assert_snapshot!(folder.read("own.toml", &[]).unwrap_err(), @r#"
    error: unknown key `trainer.max_epoch`
     --> own.toml:2:9
      |
    2 | trainer.max_epoch = 1
      |         ^^^^^^^^^
      |
      = hint: did you mean `max_epochs`?

    error: unknown key `optimizer.sgd.momentun`
      --> base.toml:10:1
       |
    10 | momentun = 0.9
       | ^^^^^^^^
       |
       = hint: did you mean `momentum`?

    error: 2 problems in own.toml
    "#);
}

/// A key below what a base sweeps as a whole, or one of its points, would be lost in silence.
#[test]
fn what_a_sweep_of_the_base_would_replace_is_refused() {
    let tables = "extends = 'base.toml'\n[sweep.grid]\noptimizer = [{ sgd = { lr = 0.1 } }, { adam = { lr = 0.1 } }]\n";
    let points = "extends = 'base.toml'\n[sweep]\npoints = [{ seed = 1 }, { seed = 2 }]\n";
    let folder = Folder::new(&[
        ("base.toml", BASE),
        ("tables.toml", tables),
        ("points.toml", points),
        ("momentum.toml", "extends = 'tables.toml'\n[optimizer.sgd]\nmomentum = 0.5\n"),
        ("seed.toml", "extends = 'points.toml'\nseed = 7\n"),
        (
            "anew.toml",
            "extends = 'points.toml'\n[sweep]\npoints = [{ seed = 7 }, { seed = 8 }, { seed = 9 }]\n",
        ),
    ]);
    insta::assert_snapshot!(folder.read("momentum.toml", &[]).unwrap_err(), @r"
    error: `optimizer.sgd.momentum` would be replaced by every value of the axis `optimizer`
     --> momentum.toml:2:2
      |
    2 | [optimizer.sgd]
      |  ^^^^^^^^^^^^^^
      |
      = hint: leave it out, or give the axis anew in this file's `[sweep]`
    ");
    let said = folder.read("seed.toml", &[]).unwrap_err();
    assert!(
        said.starts_with(
            "error: `seed` would be replaced by every value of the axis `seed`\n --> seed.toml:2:1"
        ),
        "{said}"
    );
    let Loaded::Train(anew) = folder.loaded("anew.toml", &[]) else { panic!("no training") };
    assert_eq!(anew.trials.len(), 3);
}

#[test]
fn a_base_that_cannot_be_taken_is_said_where_it_is_named() {
    let folder = Folder::new(&[
        ("base.toml", BASE),
        ("circle.toml", "extends = 'round.toml'\n"),
        ("round.toml", "\nextends = 'circle.toml'\n"),
        ("typo.toml", "extends = 'bas.toml'\n"),
        ("number.toml", "extends = 1\n"),
        ("damaged.toml", "extends = 'text.toml'\n"),
        ("text.toml", "a = \n"),
    ]);
    let said = |name: &str, words: &[&str]| folder.read(name, words).err().unwrap_or_default();
    insta::assert_snapshot!(said("circle.toml", &[]), @r#"
    error: files extend each other in a circle: `circle.toml`, then `round.toml`, then `circle.toml`
     --> round.toml:2:11
      |
    2 | extends = 'circle.toml'
      |           ^^^^^^^^^^^^^
      |
      = hint: leave `extends` out of one of them
    "#);
    insta::assert_snapshot!(said("typo.toml", &[]), @r#"
    error: cannot read `bas.toml`: no such file or directory
     --> typo.toml:1:11
      |
    1 | extends = 'bas.toml'
      |           ^^^^^^^^^^
      |
      = hint: did you mean `base.toml`?
    "#);
    insta::assert_snapshot!(said("number.toml", &[]), @r#"
    error: `extends`: expected the path of a spec, found `1`
     --> number.toml:1:11
      |
    1 | extends = 1
      |           ^
    "#);
    let damaged = said("damaged.toml", &[]);
    assert!(damaged.starts_with("error: not TOML: a value is missing\n --> text.toml:1:5\n"), "{damaged}");
    insta::assert_snapshot!(said("base.toml", &["extends=own.toml"]), @r#"
    error: `extends`: expected it in a spec file alone, neither as an override nor as an axis, found the string `own.toml`
     --> argument:1:9
      |
    1 | extends=own.toml
      |         ^^^^^^^^ another spec, of which this file replaces keys: tables key by key, lists as a whole; its path starts at this file's folder
    "#);
}

/// The path of a file that need not be there, in its folder's own spelling.
fn real(path: &Path) -> PathBuf {
    path.parent().unwrap().canonicalize().unwrap().join(path.file_name().unwrap())
}

#[test]
fn a_long_chain_of_files_ends() {
    let file = |i: usize| (format!("{i}.toml"), format!("extends = '{}.toml'\n", i + 1));
    let long: Vec<_> = (0..120).map(file).collect();
    let mut files: Vec<(&str, &str)> =
        long.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    files.push(("120.toml", BASE));
    let folder = Folder::new(&files);
    folder.loaded("21.toml", &[]);
    insta::assert_snapshot!(folder.read("20.toml", &[]).err().unwrap_or_default(), @"
    error: more than 100 files extend each other, the last `120.toml`
     --> 119.toml:1:11
      |
    1 | extends = '120.toml'
      |           ^^^^^^^^^^
      |
      = hint: put the keys of some of them into one
    ");
}
