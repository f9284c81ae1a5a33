//! Keys of a sweep that vary only where others have given values.

use super::{
    process::{Sandbox, Table},
    run::LINREG,
    sweep_spaces::{load, shown, values},
};

const WHEN: &str = r#"
[sweep.grid]
optimizer = [{ sgd = { lr = 0.1 } }, { adam = { lr = 0.1 } }]
"optimizer.sgd.momentum" = [0.5, 0.9]
"optimizer.sgd.nesterov" = [true, false]
"data.batch_size" = [8, 16]
[sweep.when]
"optimizer.sgd.momentum" = { optimizer = "sgd" }
"optimizer.sgd.nesterov" = { "optimizer.sgd.momentum" = [0.9, 0.99] }
"#;

#[test]
fn keys_vary_where_others_have_given_values() {
    let sgd = "{ sgd = { lr = 0.1 } }";
    let wanted = [
        format!("{sgd} 0.5  8"),
        format!("{sgd} 0.5  16"),
        format!("{sgd} 0.9 true 8"),
        format!("{sgd} 0.9 true 16"),
        format!("{sgd} 0.9 false 8"),
        format!("{sgd} 0.9 false 16"),
        "{ adam = { lr = 0.1 } }   8".to_owned(),
        "{ adam = { lr = 0.1 } }   16".to_owned(),
    ];
    assert_eq!(values(WHEN, &[]), wanted);
    assert_eq!(load(WHEN, &[]).excluded, 0);
    // An exclusion names what varies.
    let excluded = ["sweep.exclude=[{ \"optimizer.sgd.nesterov\" = true }]"];
    assert_eq!(values(WHEN, &excluded), [&wanted[..2], &wanted[4..]].concat());
    assert_eq!(load(WHEN, &excluded).excluded, 2);
    // A sampler draws each point once.
    for sampler in ["sobol", "random", "tpe"] {
        let mut drawn = shown(&load(WHEN, &[&format!("sweep.sampler={sampler}"), "sweep.trials=8"]));
        let mut all = wanted.clone();
        drawn.sort();
        all.sort();
        assert_eq!(drawn, all, "{sampler}");
    }
    let place = Sandbox::new(&format!("{LINREG}\n{WHEN}"));
    let sweep = place.run(&["-q"]).ended_by(0);
    assert!(sweep.files().contains(&"006-optimizer=adam-batch_size=8".to_owned()));
    // A value that is a table is named by its key, whatever else its runs differ in.
    let folder = sweep.0.to_str().unwrap();
    let compared = |options: &[&str]| {
        let ended = place.runner(&[&["compare", folder], options].concat()).ended_by(0);
        ended.stdout
    };
    // An export has the values as in `sweep.csv`, and both forms find their runs.
    let adam = "{ adam = { lr = 0.1 } }";
    for value in ["adam", adam] {
        let adams = compared(&["--where", &format!("optimizer = {value}"), "--export", "csv"]);
        let optimizers = Table::read(&adams);
        assert_eq!(optimizers.column("optimizer"), [adam; 2], "{adams}");
    }
    for options in [["--by", "optimizer"], ["--pivot", "optimizer,batch_size"]] {
        let table = compared(&options);
        assert!(table.contains("sgd") && table.contains("adam") && !table.contains('{'), "{table}");
    }
    let again = sweep.0.join("sweep.toml");
    place.runner(&["check", again.to_str().unwrap(), "-q"]).ended_by(0);
    place.runner(&["run", "-q", "--resume", sweep.0.to_str().unwrap()]).ended_by(0);
}

/// The product of all values would be 320,000.
#[test]
fn a_conditional_grid_counts_the_trials_that_differ() {
    let sweep = r#"
[sweep.grid]
"optimizer.sgd.momentum" = "linspace(0, 0.9, 400)"
"optimizer.sgd.lr" = "linspace(0.1, 0.9, 400)"
"data.batch_size" = [8, 16]
[sweep.when]
"optimizer.sgd.momentum" = { "data.batch_size" = 8 }
"optimizer.sgd.lr" = { "data.batch_size" = 16 }
"#;
    let points = values(sweep, &[]);
    assert_eq!(points.len(), 800);
    // In the order of the product: the first key is the slowest.
    assert_eq!(points[..3], ["0.0  8", " 0.1 16", " 0.10200501 16"]);
    assert!(points[401..].iter().all(|point| point.ends_with("  8")), "{:?}", &points[401..]);
}

/// An axis that ends takes its condition with it.
#[test]
fn one_value_ends_an_axis_and_its_condition() {
    let sweep = r#"
[sweep.grid]
"data.batch_size" = [8, 16]
"optimizer.sgd.momentum" = [0.5, 0.9]
[sweep.when]
"optimizer.sgd.momentum" = { "data.batch_size" = 8 }
"#;
    assert_eq!(values(sweep, &[]), ["8 0.5", "8 0.9", "16 "]);
    for ended in ["optimizer.sgd.momentum=0.3", "~optimizer.sgd.momentum"] {
        assert_eq!(values(sweep, &[ended]), ["8", "16"], "{ended}");
    }
}

/// Paths of a condition are those of its axis.
#[test]
fn a_condition_on_a_path_holds_from_any_folder() {
    let spec = r#"
[data.csv]
path = "d1.csv"
target = "y"
[model]
layers = [{ linear = { out_features = 1 } }]
[optimizer.sgd]
lr = 0.1
[trainer]
max_epochs = 1
[sweep.grid]
"data.csv.path" = ["d1.csv", "d2.csv"]
"optimizer.sgd.lr" = [0.1, 0.01]
[sweep.when]
"optimizer.sgd.lr" = { "data.csv.path" = ["d1.csv"] }
"#;
    let place = Sandbox::new(spec);
    for name in ["d1.csv", "d2.csv"] {
        std::fs::write(place.path().join(name), "x,y\n1,2\n2,4\n3,6\n4,8\n").unwrap();
    }
    let sweep = place.run(&["-q"]).ended_by(0).0;
    place.runner(&["run", "-q", "--resume", sweep.to_str().unwrap()]).ended_by(0);
    let listed = place.runner(&["check", sweep.join("sweep.toml").to_str().unwrap()]).stdout;
    assert!(listed.contains(": 3 trials, 3 runs"), "{listed}");
}
