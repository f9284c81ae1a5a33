//! What identifies a setting: the spec and the data. The run's location and machine do not matter.

use std::fs;

use super::{FACTS, Facts, Runs};
use crate::process::Sandbox;

const SPEC: &str = "
name = \"lines\"
data.synthetic_regression = { weights = [1.0], train_rows = 64, validation_rows = 16 }
model.layers = [{ linear = { out_features = 1 } }]
optimizer.sgd.lr = 0.1
trainer.max_epochs = 2
devices.engine = \"team\"
";

/// A single run counts as another seed of a sweep's setting, even with more threads. Measured times are kept
/// apart.
#[test]
fn a_run_beside_a_sweep_is_of_its_setting() {
    let place = Sandbox::new(SPEC);
    let run =
        |more: &[&str]| assert_eq!(place.runner(&[&["run", "spec.toml", "-q"], more].concat()).code, Some(0));
    run(&["optimizer.sgd.lr=0.1,0.01,0.03", "sweep.repeats=2", "--jobs=2", "--threads=2"]);
    run(&["seed=7", "--threads=2"]);
    run(&["seed=8", "--threads=2"]);
    let compare = |more: &[&str]| {
        let ended = place.runner(&[&["compare", "runs"], more].concat());
        assert_eq!(ended.code, Some(0), "{ended:?}");
        ended.stdout
    };
    let text = compare(&[]);
    assert!(text.lines().next().is_some_and(|best| best.contains(", n 4;")), "{text}");
    let shares = "\nwhich axis matters over the 2 seeds that all settings share: shares of the variance, means by value\n  lr ";
    assert!(text.contains(shares), "{text}");
    let measured = compare(&["--metric", "steps_per_s"]);
    assert!(measured.lines().next().is_some_and(|best| best.ends_with(", n 2;")), "{measured}");
    assert!(
        measured.contains(
            "\nwhich axis matters is not known: settings with the same values differ in host.threads\n"
        ),
        "{measured}"
    );
}

/// Processes that share a sweep may record a path as absolute or as written.
#[test]
fn a_path_in_full_is_no_other_setting() {
    let spec = SPEC.replace(
        "data.synthetic_regression = { weights = [1.0], train_rows = 64, validation_rows = 16 }",
        "",
    );
    let place = Sandbox::new(
        &(spec + "[data]\nsplit = { validation = 0.25 }\n[data.csv]\npath = \"a.csv\"\ntarget = \"y\"\n"),
    );
    // Different data would be a different task.
    for name in ["a.csv", "b.csv"] {
        let rows: String = (0..80).map(|x| format!("{x},{}\n", 2 * x % 7)).collect();
        fs::write(place.path().join(name), format!("x,y\n{rows}")).unwrap();
    }
    let sweep = place.run(&["data.csv.path=./a.csv,b.csv", "optimizer.sgd.lr=0.1,0.01"]).ended_by(0).0;
    let compare = || place.runner(&["compare", sweep.to_str().unwrap()]).stdout;
    let whole = compare();
    assert!(whole.contains("  path  "), "{whole}");
    let table = fs::read_to_string(sweep.join("sweep.csv")).unwrap();
    let full = |name: &str| format!(",{},", place.path().join(name).display());
    let mixed = table.replacen(",./a.csv,", &full("a.csv"), 1).replacen(",b.csv,", &full("b.csv"), 1);
    assert_ne!(mixed, table);
    fs::write(sweep.join("sweep.csv"), &mixed).unwrap();
    assert_eq!(compare(), whole);
    // Two different files with the same name are two values.
    fs::write(sweep.join("sweep.csv"), mixed.replacen(",./a.csv,", ",/old/a.csv,", 1)).unwrap();
    assert!(compare().contains("/old/a.csv"), "{}", compare());
}

/// Keys of logging do not identify a setting, unless a sweep varies them to measure their cost.
#[test]
fn a_sweep_over_what_is_recorded_has_settings() {
    let place = Sandbox::new(SPEC);
    let run =
        |more: &[&str]| assert_eq!(place.runner(&[&["run", "spec.toml", "-q"], more].concat()).code, Some(0));
    let settings = || {
        let ended = place.runner(&["compare", "runs", "--metric=steps_per_s"]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let rows = ended.stdout.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let rows = rows.filter(|row| row[..].first().is_some_and(|number| number.parse::<u32>().is_ok()));
        // Behind the number and the letters of the inputs.
        let mut values: Vec<String> = rows.map(|row| row[2].to_owned()).collect();
        values.sort_unstable();
        (values, ended.stdout)
    };
    run(&["logging.flush_every=1"]);
    run(&["logging.flush_every=50"]);
    let (_, alone) = settings();
    assert!(alone.contains(", n 2"), "{alone}");
    run(&["logging.flush_every=1,50"]);
    let (values, swept) = settings();
    assert_eq!(values, ["1", "50"], "{swept}");
}

/// Under weak scaling the number of devices multiplies the batch; under strong scaling it only changes times.
#[test]
fn devices_make_a_setting_under_weak_scaling() {
    for (scaling, is_one) in [("strong", true), ("weak", false)] {
        let runs = Runs::new();
        for (run, devices, loss) in [("0", "gpu:0", 1.0), ("1", "gpu:0;gpu:1", 0.5)] {
            let facts = Facts { devices, num_gpus: 4, losses: [4.0, 2.0, loss], ..FACTS };
            let path = format!("linreg/{run}");
            runs.run(&path, &facts);
            let spec = facts.spec().replace("[devices]", &format!("[devices]\nscaling = \"{scaling}\""));
            runs.write(&format!("{path}/spec.toml"), &spec.replace("seed = 0", &format!("seed = {run}")));
        }
        let text = runs.answer(&["linreg"], 120);
        assert_eq!(text.contains(", n 2;"), is_one, "{scaling}: {text}");
    }
}

/// The precision changes what is learned and is also swept for its speed; the times are those of one machine.
#[test]
fn a_sweep_over_the_precision_is_ranked_and_its_times_are_compared() {
    let runs = Runs::new();
    let write = |trial: &str, precision: &str, steps_per_s: &'static str, more: &str, loss: f32| {
        let facts = Facts { steps_per_s, losses: [4.0, 2.0, loss], ..FACTS };
        let path = format!("a/S/{trial}");
        runs.run(&path, &facts);
        let spec = facts.spec().replace("[devices]", &format!("[devices]\nprecision = \"{precision}\""));
        runs.write(&format!("{path}/spec.toml"), &spec);
        let environment =
            facts.environment().replace("[devices]", &format!("[devices]\nprecision = \"{precision}\""));
        runs.write(
            &format!("{path}/environment.toml"),
            &environment.replace("[cpu]", &format!("[cpu]{more}")),
        );
    };
    write("000", "f32", "1000.0", "", 1.0);
    write("001", "bf16", "2000.0", "\nbf16_unit = \"amx_bf16\"", 0.5);
    runs.write(
        "a/S/sweep.csv",
        "trial,devices.precision,status,folder,reason\n0,f32,finished,000,\n1,bf16,finished,001,\n",
    );
    assert!(!runs.read(&["a"]).is_about_times());
    let text = runs.answer(&["a"], 120);
    assert!(text.starts_with("best: #0 precision f32, validation loss 0.5000;"), "{text}");
    assert!(text.contains("steps/s\n"), "{text}");
    let times = runs.table(&["a"], 120);
    assert!(times.starts_with("2 runs, comparable: same processor"), "{times}");
    assert!(times.contains(" rows/s vs #0") && times.contains("2.00x"), "{times}");
    // Another hardware unit counts as another machine.
    write("002", "bf16", "3000.0", "\nbf16_unit = \"avx512_bf16\"", 0.5);
    let rows = std::fs::read_to_string(runs.path("a/S/sweep.csv")).unwrap();
    runs.write("a/S/sweep.csv", &(rows + "2,bf16,finished,002,\n"));
    let times = runs.table(&["a"], 120);
    assert!(
        times.starts_with("3 runs, whose times say nothing of each other: cpu.bf16_unit differs"),
        "{times}"
    );
}

#[test]
fn lines_of_the_times_are_ordered_and_counted() {
    let runs = Runs::new();
    for (place, steps_per_s) in ["1000.0", "3000.0", "2000.0"].into_iter().enumerate() {
        runs.run(
            &format!("linreg/{place}"),
            &Facts { steps_per_s, policy: ["off", "buffered", "immediate"][place], ..FACTS },
        );
    }
    let compare = |more: &[&str]| {
        let ended = Sandbox::new("").runner(&[&["compare", &runs.named("linreg")], more].concat());
        assert_eq!((ended.code, &*ended.stderr), (Some(0), ""), "{ended:?}");
        ended.stdout
    };
    let order = |text: &str| -> Vec<usize> {
        let table = text.split("\n\n").nth(1).unwrap();
        let column = |line: &str| line.split_whitespace().next()?.parse().ok();
        let down: Vec<usize> =
            table.lines().filter(|line| !line.contains(" more ")).filter_map(column).collect();
        let across =
            table.lines().next().unwrap().split_whitespace().skip(1).map(|cell| cell.parse().unwrap());
        if down.is_empty() { across.collect() } else { down }
    };
    assert_eq!(order(&compare(&[])), [1, 2, 3]);
    assert_eq!(order(&compare(&["--sort=-steps_per_s"])), [2, 3, 1]);
    let text = compare(&["--times", "--sort", "steps_per_s", "--top=2"]);
    assert_eq!(order(&text), [1, 3]);
    assert!(text.contains("\n  1 more run: `--top 3` shows all\n"), "{text}");
    let ended = Sandbox::new("").runner(&["compare", &runs.named("linreg"), "--sort=fast"]);
    assert!(ended.stderr.starts_with("error: no run has a column `fast`"), "{ended:?}");
}

/// Inferred keys are not axes: a layer's width determines the next layer's input.
#[test]
fn single_runs_of_a_grid_are_one() {
    let place = Sandbox::new(&SPEC.replace("[{", "[{ linear = { out_features = 4 } }, \"relu\", {"));
    for (width, lr) in [(4, 0.1), (8, 0.1), (4, 0.01), (8, 0.01)] {
        let width = format!("model.layers.0.linear.out_features={width}");
        let ended = place.runner(&["spec.toml", "-q", &width, &format!("optimizer.sgd.lr={lr}")]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
    }
    let text = place.runner(&["compare", "runs"]).stdout;
    assert!(text.contains("\nwhich axis matters: shares") && !text.contains("in_features 8 in"), "{text}");
    assert!(!text.contains(" in_features"), "{text}");
}

/// A trial that trained longer than the others of its sweep is a separate setting, and its length is shown.
#[test]
fn a_trial_that_went_on_is_a_setting_of_its_own() {
    let place = Sandbox::new(SPEC);
    let sweep = place.run(&["optimizer.sgd.lr=0.1,0.01", "checkpoint.every_epochs=1"]).ended_by(0);
    let folder = std::fs::read_dir(&sweep.0).unwrap().flatten().map(|entry| entry.path());
    let first = folder.filter(|path| path.is_dir()).min().unwrap();
    let ended = place.runner(&["run", "--resume", first.to_str().unwrap(), "trainer.max_epochs=5", "-q"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let text = place.runner(&["compare", sweep.0.to_str().unwrap()]).stdout;
    assert!(text.lines().next().is_some_and(|best| best.contains(" max_epochs 5")), "{text}");
}

/// If only some runs have a table, it is named once, without its keys.
#[test]
fn another_optimizer_is_named() {
    let place = Sandbox::new(&SPEC.replace("optimizer.sgd.lr = 0.1", ""));
    for optimizer in ["optimizer.sgd.lr=0.1", "optimizer.adam.lr=0.1"] {
        let ended = place.runner(&["spec.toml", "-q", optimizer]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
    }
    let text = place.runner(&["compare", "runs"]).stdout;
    let head = text.split("\n\n").nth(1).and_then(|table| table.lines().next()).unwrap_or_default();
    let titles: Vec<&str> = head.split("  ").map(str::trim).filter(|title| !title.is_empty()).collect();
    assert_eq!(titles[..3], ["#", "optimizer", "validation loss"], "{text}");
}

/// Seeds are taken together, also in the columns that tell settings apart.
#[test]
fn pooled_seeds_have_no_column() {
    let place = Sandbox::new(SPEC);
    for (lr, seed) in [("0.1", "1"), ("0.01", "2"), ("0.01", "3"), ("0.01", "1")] {
        let overrides = [format!("optimizer.sgd.lr={lr}"), format!("seed={seed}")];
        let ended = place.runner(&["spec.toml", "-q", &overrides[0], &overrides[1]]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
    }
    let times = place.runner(&["compare", "runs", "--times"]).stdout;
    let table =
        times.split("\n\n").find(|part| part.contains(" of run ")).unwrap_or_else(|| panic!("{times}"));
    let header: Vec<&str> = table.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(header[..4], ["of", "run", "optimizer.sgd.lr", "runs"], "{times}");
}

/// More repeats of one seed learn the same: what helps are other seeds.
#[test]
fn repeats_of_one_seed_are_told_to_take_others() {
    let place = Sandbox::new(SPEC);
    let lr = "optimizer.sgd.lr=0.1,0.01";
    for (more, way_out) in [
        (&["sweep.repeats=2", "sweep.repeat_seeds=false"][..], "sweep.repeat_seeds=true"),
        (&[], "sweep.repeats=5"),
    ] {
        let ended = place.runner(&[&["spec.toml", lr], more].concat());
        let words = format!("one seed each cannot tell whether that is more than luck (`{way_out}` can)\n");
        let compared = place.runner(&["compare", ended.stdout.rsplit("folder ").next().unwrap().trim()]);
        assert!(compared.stdout.contains(&words), "{ended:?} {compared:?}");
    }
}

/// A sweep that judges single trials takes no repeats. The command that is printed instead runs, beside the sweep.
#[test]
fn a_sweep_that_takes_no_repeats_names_a_command() {
    let place = Sandbox::new(SPEC);
    for more in [&["sweep.sampler=tpe", "sweep.trials=3"][..], &["sweep.stop={ asha = {} }"]] {
        let lr = if more.len() > 1 { "loguniform(1e-3, 1e-1)" } else { "0.1,0.01" };
        let ended = place.runner(&[&["spec.toml", &format!("optimizer.sgd.lr={lr}")], more].concat());
        let doubt = "one seed each cannot tell whether that is more than luck\n";
        // One of the two trials of the other sweep was stopped.
        assert_eq!(ended.stdout.contains(doubt), more.len() > 1, "{ended:?}");
        let line = ended.stdout.lines().find_map(|line| line.strip_prefix("  repeat it with: runner "));
        let words: Vec<&str> = line.unwrap_or_else(|| panic!("{ended:?}")).split(' ').collect();
        assert_eq!(words[1..], ["seed=1..6", "name=lines-repeats"]);
        let repeated = place.runner(&[&words[..], &["-q"]].concat());
        assert_eq!(repeated.code, Some(0), "{repeated:?}");
        assert!(repeated.stdout.starts_with("runs/lines-repeats/"), "{repeated:?}");
        let compared = place.runner(&["compare", repeated.stdout.trim()]).stdout;
        assert!(compared.contains(", n 5") && !compared.contains("repeat it with"), "{compared}");
    }
}

/// Two sweeps over seeds that differ in a key: it is a column, as of two runs, of the table, of exports and of the page.
#[test]
fn a_key_in_which_sweeps_differ_is_a_column() {
    let place = Sandbox::new(SPEC);
    for more in [["optimizer.sgd.lr=0.1", "name=x"], ["optimizer.sgd.lr=0.01", "name=y"]] {
        let ended =
            place.runner(&[&["run", "spec.toml", "seed=0..2", "--runs-dir=r", "-q"], &more[..]].concat());
        assert_eq!(ended.code, Some(0), "{ended:?}");
    }
    let ran = |arguments: &[&str]| {
        let ended = place.runner(arguments);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        ended.stdout
    };
    let text = ran(&["compare", "r"]);
    assert!(text.starts_with("best: #") && text.lines().next().unwrap().contains(" lr 0."), "{text}");
    let title = text.lines().find(|line| line.starts_with(" #  input")).unwrap();
    assert_eq!(title.split_whitespace().take(4).collect::<Vec<_>>(), ["#", "input", "lr", "n"], "{text}");
    let exported = ran(&["compare", "r", "--export", "csv"]);
    assert!(exported.lines().next().unwrap().contains(",optimizer.sgd.lr,"), "{exported}");
    let page = ran(&["report", "r", "-o", "page.html"]);
    let page = fs::read_to_string(place.path().join("page.html")).unwrap_or(page);
    assert!([" A lr 0.1", " B lr 0.01"].iter().all(|name| page.contains(name)), "{page}");
}
