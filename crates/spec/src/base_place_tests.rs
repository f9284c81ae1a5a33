//! Keys that a file deletes of its base, and those that take the place of others.

use super::{
    Loaded,
    base_file_tests::{BASE, Folder},
};

/// `delete` is what `~KEY` is on the command line. It comes before the file's own keys, and ends axes with the keys that they sweep.
#[test]
fn a_file_deletes_keys_of_its_base() {
    let base = format!(
        "{BASE}[schedule.step]\nstep_size = 9\n[trainer]\nearly_stopping = {{ patience = 3 }}\n\
         [sweep.grid]\n\"optimizer.sgd.lr\" = [1, 2]\nseed = [1, 2]\n"
    );
    let keys = ["trainer.early_stopping", "model.layers.1", "optimizer.sgd", "schedule", "seed"];
    let list = keys.map(|key| format!("'{key}'")).join(", ");
    let own = format!("extends = 'base.toml'\nname = 'base'\ndelete = [{list}]\n[optimizer.sgd]\nlr = 0.5\n");
    let next = "extends = 'own.toml'\nname = 'base'\ndelete = ['checkpoint', 'model.init']\n";
    let folder = Folder::new(&[("base.toml", &base), ("own.toml", &own), ("next.toml", next)]);
    let deleted = keys.map(|key| format!("~{key}"));
    let words: Vec<&str> = deleted.iter().map(String::as_str).chain(["optimizer.sgd.lr=0.5"]).collect();
    folder.assert_same("base.toml", "own.toml", &words);
    let words: Vec<&str> = words.into_iter().chain(["~checkpoint", "~model.init"]).collect();
    folder.assert_same("base.toml", "next.toml", &words);
    let text = folder.text("next.toml", &[]);
    for gone in
        ["delete", "extends", "relu", "momentum = 0.9", "checkpoint", "sweep", "step_size", "patience"]
    {
        assert!(!text.contains(gone), "{gone}: {text}");
    }
}

#[test]
fn a_key_that_is_not_there_to_be_deleted_is_told() {
    let folder = Folder::new(&[
        ("base.toml", BASE),
        ("own.toml", "extends = 'base.toml'\ndelete = ['optimizer.sgd.momentun', 'schedule', 1, 'a b']\n"),
        ("word.toml", "extends = 'base.toml'\ndelete = 'optimizer'\n"),
        ("alone.toml", &format!("delete = ['seed']\n{BASE}")),
    ]);
    insta::assert_snapshot!(folder.read("own.toml", &[]).unwrap_err(), @r#"
    error: `optimizer.sgd.momentun` is not there to be deleted
     --> own.toml:2:11
      |
    2 | delete = ['optimizer.sgd.momentun', 'schedule', 1, 'a b']
      |           ^^^^^^^^^^^^^^^^^^^^^^^^
      |
      = hint: did you mean `optimizer.sgd.momentum`?

    error: `schedule` is not there to be deleted
     --> own.toml:2:37
      |
    2 | delete = ['optimizer.sgd.momentun', 'schedule', 1, 'a b']
      |                                     ^^^^^^^^^^
      |
      = hint: the spec that it extends does not set it: leave it out

    error: `delete`: expected a list of keys, found `1`
     --> own.toml:2:49
      |
    2 | delete = ['optimizer.sgd.momentun', 'schedule', 1, 'a b']
      |                                                 ^
      |
      = hint: such as `delete = ["schedule"]`

    error: `a b` is not a key
     --> own.toml:2:52
      |
    2 | delete = ['optimizer.sgd.momentun', 'schedule', 1, 'a b']
      |                                                    ^^^^^
      |
      = hint: a key is names joined by dots, such as `trainer.max_epochs`

    error: 4 problems in own.toml
    "#);
    insta::assert_snapshot!(folder.read("word.toml", &[]).unwrap_err(), @r#"
    error: `delete`: expected a list of keys, found the string `optimizer`
     --> word.toml:2:10
      |
    2 | delete = 'optimizer'
      |          ^^^^^^^^^^^
      |
      = hint: such as `delete = ["schedule"]`
    "#);
    insta::assert_snapshot!(folder.read("alone.toml", &[]).unwrap_err(), @r#"
    error: `delete` needs `extends` beside it
     --> alone.toml:1:1
      |
    1 | delete = ['seed']
      | ^^^^^^
      |
      = hint: it deletes keys of the spec that this file extends; on the command line `~KEY` deletes a key
    "#);
}

#[test]
fn lists_that_delete_nothing_and_keys_out_of_place_are_told() {
    let folder = Folder::new(&[
        ("base.toml", BASE),
        ("twice.toml", "extends = 'base.toml'\ndelete = ['optimizer.sgd', 'optimizer.sgd.lr']\n"),
        ("empty.toml", "extends = 'base.toml'\ndelete = []\n"),
        ("within.toml", "[trainer]\nextends = 'base.toml'\n"),
        ("below.toml", "extends = 'base.toml'\n[trainer]\ndelete = ['seed']\n"),
        ("lost.toml", "extends = 'none.toml'\nseed = 3\n"),
    ]);
    insta::assert_snapshot!(folder.read("twice.toml", &["optimizer.adam={lr=1}"]).unwrap_err(), @r#"
    error: `optimizer.sgd.lr` is not there to be deleted
     --> twice.toml:2:28
      |
    2 | delete = ['optimizer.sgd', 'optimizer.sgd.lr']
      |                            ^^^^^^^^^^^^^^^^^^
      |
      = hint: `optimizer.sgd` before it deletes it: leave it out
    "#);
    insta::assert_snapshot!(folder.read("empty.toml", &[]).unwrap_err(), @r#"
    error: `delete`: expected a list of keys, found an empty array
     --> empty.toml:2:10
      |
    2 | delete = []
      |          ^^
      |
      = hint: such as `delete = ["schedule"]`
    "#);
    insta::assert_snapshot!(folder.read("within.toml", &[]).unwrap_err(), @r#"
    error: `extends` is a key of the spec, not of `trainer`
     --> within.toml:2:1
      |
    2 | extends = 'base.toml'
      | ^^^^^^^
      |
      = hint: write it before the first table
    "#);
    let said = folder.read("below.toml", &[]).unwrap_err();
    assert!(
        said.starts_with("error: `delete` is a key of the spec, not of `trainer`\n --> below.toml:3:1\n"),
        "{said}"
    );
    let keys = super::written(&folder.0.path().join("lost.toml")).unwrap();
    assert_eq!(keys.keys().collect::<Vec<_>>(), ["seed"]);
}

/// No way to say which rows validate takes the place of another: rows set aside for a test would be lost without a word.
#[test]
fn two_ways_to_validate_are_refused() {
    let source = |more: &str| BASE.replace("target = \"y\"\n", &format!("target = \"y\"\n{more}"));
    let fraction = "csv.validation_fraction";
    let split = format!("{BASE}[sweep.grid]\n\"data.split.test\" = [0.1, 0.2]\n");
    for (base, own, keys, deleted) in [
        (
            source("validation_fraction = 0.3\n"),
            "data.folds = 5\ndata.fold = 0",
            ["folds", fraction],
            &[fraction][..],
        ),
        (source("validation_fraction = 0.3\n"), "data.split.test = 0.1", ["split", fraction], &[fraction]),
        (
            source("[data]\nfolds = 3\nfold = 1\n"),
            "data.csv.validation_fraction = 0.1",
            [fraction, "folds"],
            &["folds", "fold"],
        ),
        (
            source("[data]\nfolds = 3\nfold = 1\n"),
            "data.split.validation = 0.1",
            ["split.validation", "folds"],
            &["folds", "fold"],
        ),
        (split, "data.csv.validation_fraction = 0.1", [fraction, "split"], &["split"]),
        (
            source("validation_path = 'b.csv'\n"),
            "data.split.validation = 0.1",
            ["split", "csv.validation_path"],
            &["csv.validation_path"],
        ),
    ] {
        let named = deleted.iter().map(|key| format!("\"data.{key}\"")).collect::<Vec<_>>().join(", ");
        let ways = [
            format!("delete = [{named}]"),
            deleted.iter().map(|key| format!("~data.{key}")).collect::<Vec<_>>().join(" "),
        ];
        let extended = |more: &str| format!("extends = 'base.toml'\nname = 'base'\n{more}\n{own}\n");
        let folder = Folder::new(&[
            ("base.toml", &base),
            ("own.toml", &extended("")),
            ("mended.toml", &extended(&ways[0])),
        ]);
        let message =
            format!("error: `data.{}` and `data.{}` both say which rows validate\n", keys[0], keys[1]);
        let said = folder.read("own.toml", &[]).unwrap_err();
        let hint = format!("= hint: keep one of them: `{}` deletes the other\n", ways[0]);
        assert!(said.starts_with(&message) && said.contains(&hint), "{said}");
        let words: Vec<String> = own.lines().map(|line| line.replace(' ', "")).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let said = folder.read("base.toml", &words).unwrap_err();
        let hint = format!("= hint: remove one of them; on the command line: `{}`\n", ways[1]);
        assert!(said.starts_with(&message) && said.contains(&hint), "{said}");
        let words: Vec<&str> = ways[1].split(' ').chain(words).collect();
        folder.assert_same("base.toml", "mended.toml", &words);
    }
}

/// What is wrong is where the file has it, also if the base has such a table, too.
#[test]
fn of_two_that_exclude_each_other_the_files_is_shown() {
    let base = format!("{BASE}[schedule.cosine]\n");
    let own = "extends = 'base.toml'\n[schedule.plateau]\n[schedule.cosine]\n";
    let folder = Folder::new(&[("base.toml", &base), ("own.toml", own)]);
    insta::assert_snapshot!(folder.read("own.toml", &[]).unwrap_err(), @r#"
    error: `schedule.cosine` and `schedule.plateau` exclude each other
     --> own.toml:3:11
      |
    2 | [schedule.plateau]
      |           ------- the other is here
    3 | [schedule.cosine]
      |           ^^^^^^
      |
      = hint: remove one of them; on the command line: `~schedule.plateau`
    "#);
}

/// An axis of a key in a table or list that is set whole would change it.
#[test]
fn an_axis_within_what_is_set_whole_is_refused() {
    let base = format!("{BASE}[sweep.grid]\n\"model.layers.0.linear.out_features\" = [8, 16]\n");
    let own = "extends = 'base.toml'\n[model]\nlayers = [{ linear = { out_features = 1 } }]\n";
    let ended = own.replace("[model]", "delete = ['model.layers.0.linear.out_features']\n[model]");
    let folder = Folder::new(&[("base.toml", &base), ("own.toml", own), ("ended.toml", &ended)]);
    insta::assert_snapshot!(folder.read("own.toml", &[]).unwrap_err(), @r#"
    error: `model.layers` is set as a whole, and the axis `model.layers.0.linear.out_features` would change it
      --> own.toml:2:2
       |
     2 | [model]
       |  ^^^^^^
       |
      ::: base.toml:15:1
       |
    15 | "model.layers.0.linear.out_features" = [8, 16]
       | ------------------------------------ swept here
       |
       = hint: leave it out, or end the axis by `delete = ["model.layers.0.linear.out_features"]`
    "#);
    let layers = "model.layers=[{linear={out_features=1}}]";
    insta::assert_snapshot!(folder.read("base.toml", &[layers]).unwrap_err(), @r#"
    error: `model.layers` is set as a whole, and the axis `model.layers.0.linear.out_features` would change it
      --> argument:1:1
       |
     1 | model.layers=[{linear={out_features=1}}]
       | ^^^^^^^^^^^^
       |
      ::: base.toml:15:1
       |
    15 | "model.layers.0.linear.out_features" = [8, 16]
       | ------------------------------------ swept here
       |
       = hint: leave it out, or end the axis by `~model.layers.0.linear.out_features` before it
    "#);
    folder.assert_same(
        "base.toml",
        "ended.toml",
        &["name=ended", "~model.layers.0.linear.out_features", layers],
    );
}

/// What is deleted of a base leaves no gap: the indexes of the file, of one that extends it and of arguments are those of what it resolves to.
#[test]
fn indexes_are_those_of_the_spec_that_is_changed() {
    let base = format!(
        "{}[sweep.grid]\n\"model.layers.3.linear.bias\" = [true, false]\n",
        BASE.replace("\"relu\", ", "\"relu\", \"tanh\", ")
    );
    let folder = Folder::new(&[
        ("base.toml", &base),
        ("own.toml", "extends = 'base.toml'\nname = 'base'\ndelete = ['model.layers.1']\n"),
        ("next.toml", "extends = 'own.toml'\nname = 'base'\ndelete = ['model.layers.1']\n"),
    ]);
    let axes = |name: &str, words: &[&str]| {
        let Loaded::Train(experiment) = folder.loaded(name, words) else { panic!("no training") };
        // What a sweep's folder keeps is the same sweep.
        let kept = Folder::new(&[("sweep.toml", &experiment.to_sweep_toml("base"))]);
        let Loaded::Train(again) = kept.loaded("sweep.toml", &[]) else { panic!("no training") };
        assert_eq!((again.hash8(), &again.axes), (experiment.hash8(), &experiment.axes), "{name} {words:?}");
        experiment.axes
    };
    assert_eq!(axes("base.toml", &[]), ["model.layers.3.linear.bias"]);
    assert_eq!(axes("own.toml", &[]), ["model.layers.2.linear.bias"]);
    assert_eq!(axes("base.toml", &["~model.layers.1"]), ["model.layers.2.linear.bias"]);
    assert_eq!(axes("next.toml", &[]), ["model.layers.1.linear.bias"]);
    folder.assert_same("base.toml", "next.toml", &["~model.layers.1", "~model.layers.2"]);
    folder.assert_same("own.toml", "next.toml", &["~model.layers.1"]);
    let text = folder.text("own.toml", &["model.layers.1=sigmoid"]);
    assert!(text.contains("\"sigmoid\"") && !text.contains("relu") && !text.contains("tanh"), "{text}");
    let axes =
        axes("own.toml", &["model.layers.2.linear.bias=true", "model.layers.0.linear.bias=true,false"]);
    assert_eq!(axes, ["model.layers.0.linear.bias"]);
}

/// An exclusion or a condition may name an axis that was deleted: the error says how to delete it, too.
#[test]
fn what_names_a_deleted_axis_can_be_deleted() {
    let base = format!(
        "{BASE}[sweep]\ngrid = {{ seed = [1, 2], \"optimizer.sgd.lr\" = [1, 2], \"data.batch_size\" = [4, 8] }}\n\
         exclude = [{{ \"optimizer.sgd.lr\" = 1 }}]\nwhen = {{ \"data.batch_size\" = {{ seed = 1 }} }}\n"
    );
    let own = |more: &str| format!("extends = 'base.toml'\nname = 'base'\ndelete = [{more}]\n");
    let folder = Folder::new(&[
        ("base.toml", &base),
        ("lr.toml", &own("'optimizer.sgd.lr', 'model.init'")),
        ("seed.toml", &own("'seed'")),
        ("both.toml", &own("'sweep.grid.seed', 'sweep.when'")),
    ]);
    let ways = [
        (folder.read("lr.toml", &[]), "`delete = ['sweep.exclude']`", "exclude"),
        (folder.read("seed.toml", &[]), "`delete = ['sweep.when']`", "when"),
        (folder.read("base.toml", &["~sweep.grid.seed"]), "`~sweep.when`", "when"),
    ];
    for (said, way, key) in ways {
        let said = said.unwrap_err();
        assert!(said.contains(&format!("{way} deletes all of these tables\n")), "{key}: {said}");
    }
    folder.assert_same("base.toml", "both.toml", &["~sweep.grid.seed", "~sweep.when"]);
    // The condition of an axis ends with it.
    for word in ["~data.batch_size", "~sweep.grid.'data.batch_size'", "~sweep.grid.data.batch_size"] {
        assert_eq!(folder.loaded("base.toml", &[word, "~sweep.exclude"]).count(), 4, "{word}");
    }
}
