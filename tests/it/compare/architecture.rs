//! Models of different depth in one table, and runs of different losses ranked by a metric that they share.

use super::{add, place_of};
use crate::process::Sandbox;

const SPEC: &str = r#"
name = "lines"
data.synthetic_regression = { weights = [1.0], train_rows = 64, validation_rows = 16 }
model.layers = [{ linear = { out_features = 4 } }, "relu", { linear = { out_features = 1 } }]
optimizer.sgd.lr = 0.1
trainer.max_epochs = 2
logging.metrics = ["loss", "mae"]
"#;

const DEEP: &str = r#"[{ linear = { out_features = 8 } }, "gelu", { dropout = { p = 0.1 } }, { linear = { out_features = 8 } }, "gelu", { linear = { out_features = 1 } }]"#;

fn place(runs: &[&[&str]]) -> Sandbox {
    place_of(SPEC, runs)
}

/// The titles of the first table of a comparison, and its text.
fn titles(place: &Sandbox, words: &[&str]) -> (Vec<String>, String) {
    let text = place.runner(&[&["compare", "runs"], words].concat()).stdout;
    let head = text.lines().find(|line| line.trim_start().starts_with("#  ")).unwrap_or_default();
    let titles = head.split("  ").map(|title| title.trim().to_owned()).filter(|title| !title.is_empty());
    (titles.collect(), text)
}

fn page(place: &Sandbox) -> String {
    let ended = place.runner(&["report", "runs", "-o", "page.html"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    std::fs::read_to_string(place.path().join("page.html")).unwrap()
}

/// A run by itself is named as a trial of a sweep over layers, and no key of a single layer is an axis; nor is a default.
#[test]
fn models_of_different_depth_have_one_column() {
    let deep = format!("model.layers={DEEP}");
    let schedule =
        |t_max: &str| [format!("schedule.cosine.t_max={t_max}"), "schedule.interval=step".to_owned()];
    let [[t_max, step], [longer, _]] = [schedule("10"), schedule("20")];
    let place =
        place(&[&[], &["model.layers.0.linear.out_features=16"], &[&deep, &t_max, &step], &[&longer, &step]]);
    let (own, text) = titles(&place, &[]);
    assert_eq!(own[..4], ["#", "schedule", "layers", "validation loss"], "{text}");
    let deep_name = "linear8+gelu+dropout0.1+linear8+gelu+linear1";
    for name in ["linear4+relu+linear1", "linear16+relu+linear1", deep_name] {
        assert!(text.contains(&format!(" {name} ")), "{text}");
    }
    let (by, text) = titles(&place, &["--by", "layers"]);
    assert_eq!(by[..2], ["#", "layers"], "{text}");
    let csv = place.runner(&["compare", "runs", "--export", "csv"]).stdout;
    let head = csv.lines().next().unwrap();
    assert!(head.starts_with("path,schedule,model.layers,") && !head.contains("out_features"), "{head}");
    assert!(csv.contains(",linear16+relu+linear1,"), "{csv}");
    let page = page(&place);
    assert!(page.contains("by layers; means") && !page.contains("by 0.linear"), "axes of the page");
    assert!(page.contains(&format!(" schedule cosine(t_max 10) layers {deep_name}")), "names of the page");

    // A trial of a sweep over layers is called alike, and is of the setting of such a run.
    let written = SPEC.lines().find_map(|line| line.strip_prefix("model.layers = ")).unwrap();
    add(&place, &[&format!("model.layers={written},{DEEP}"), "seed=1"]);
    let (own, text) = titles(&place, &[]);
    assert_eq!(own[..5], ["#", "input", "schedule", "layers", "n"], "{text}");
    assert!(text.contains(" linear4+relu+linear1  ") && !text.contains("out_features"), "{text}");
}

/// Where only a number varies within equal architectures, its key is the axis; so is a swept key that tells kinds apart.
#[test]
fn equal_architectures_keep_their_keys() {
    let alike = place(&[&[], &["model.layers.0.linear.out_features=16"]]);
    let (own, text) = titles(&alike, &[]);
    assert_eq!(own[..2], ["#", "out_features"], "{text}");
    let swept = place(&[&["model.layers.1=relu,tanh", "model.layers.0.linear.out_features=4,8"]]);
    let (own, text) = titles(&swept, &[]);
    assert_eq!(own[..3], ["#", "layers.1", "out_features"], "{text}");
}

/// Runs are chosen and sorted by their layers in words, whether their architectures differ in kinds or in numbers alone.
#[test]
fn layers_choose_and_sort_runs() {
    let deep = format!("model.layers={DEEP}");
    let place = place(&[&[], &[&deep], &["model.layers.0.linear.out_features=16"]]);
    let listed = |words: &[&str]| place.runner(&[&["list", "runs", "--json"], words].concat());
    let count = |filter: &str| {
        let ended = listed(&["--where", filter]);
        let json: serde_json::Value =
            serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{ended:?}"));
        json.as_array().unwrap().len()
    };
    assert_eq!(count("layers = linear4+relu+linear1"), 1);
    assert_eq!(count("model.layers != linear4+relu+linear1"), 2);
    let (_, text) =
        titles(&place, &["--where", "layers = linear16+relu+linear1 or layers = linear4+relu+linear1"]);
    assert!(text.contains("out_features") && !text.contains("gelu"), "{text}");
    let sorted = place.runner(&["compare", "runs", "--sort", "layers"]).stdout;
    let at = |layers: &str| sorted.find(&format!(" {layers} ")).unwrap_or_else(|| panic!("{sorted}"));
    let deep = at("linear8+gelu+dropout0.1+linear8+gelu+linear1");
    assert!(at("linear16+relu+linear1") < at("linear4+relu+linear1") && at("linear4+relu+linear1") < deep);
    let sorted = listed(&["--sort", "-layers"]);
    assert_eq!((sorted.code, sorted.stderr.as_str()), (Some(0), ""));
}

/// A sweep over a width beside a run of another depth, whichever width that begins with.
#[test]
fn a_sweep_within_layers_has_one_column_beside_another_depth() {
    for width in ["8", "9"] {
        let linear = format!("{{ linear = {{ out_features = {width} }} }}");
        let deep = format!(
            "model.layers=[{linear}, \"relu\", {linear}, \"relu\", {{ linear = {{ out_features = 1 }} }}]"
        );
        let place = place(&[&["model.layers.0.linear.out_features=4,8"], &[&deep, "optimizer.sgd.lr=0.2"]]);
        let (own, text) = titles(&place, &[]);
        assert_eq!(own[..5], ["#", "input", "layers", "lr", "validation loss"], "{text}");
        let deep_name = format!(" linear{width}+relu+linear{width}+relu+linear1 ");
        for name in [" linear4+relu+linear1 ", " linear8+relu+linear1 ", &deep_name] {
            assert!(text.contains(name), "{text}");
        }
    }
}

/// Losses of different kinds are ranked apart, and listed by kind; the metric in the target's units ranks all runs.
#[test]
fn losses_apart_are_ranked_by_a_metric_that_they_share() {
    let place = place(&[&["name=a"], &["name=b", "model.loss=huber"], &["name=c", "optimizer.sgd.lr=0.01"]]);
    let (_, text) = titles(&place, &[]);
    let first = "2 tasks, whose losses are not comparable: model.loss differs (#1, 3; #2); \
                 `--metric mae` ranks all in one table\n";
    assert!(text.starts_with(first), "{text}");
    let (own, text) = titles(&place, &["--metric", "mae"]);
    assert_eq!(own[..5], ["#", "loss", "lr", "validation mae", "vs best"], "{text}");
    assert!(!own[5..].contains(&"loss".to_owned()), "{text}");
    assert!(text.starts_with("best: #") && !text.contains("tasks"), "{text}");
    let said = place.runner(&["compare", "runs", "--metric", "mae", "-q"]).stdout;
    assert!(said.starts_with("3 runs, comparable: "), "{said}");
    for sort in ["best", "best_validation_loss", "final_validation_loss", "epoch_train_loss"] {
        let listed = place.runner(&["list", "runs", "--sort", sort, "-v"]).stdout;
        let kinds = listed.lines().skip(1).filter_map(|line| line.split("validation.loss ").nth(1));
        let kinds: Vec<&str> = kinds.map(str::trim).collect();
        assert!(
            kinds == ["(huber)", "(mse)", "(mse)"] || kinds == ["(mse)", "(mse)", "(huber)"],
            "{kinds:?} {listed}"
        );
        // What the list is sorted by has a column, unless it is the best value.
        let has_column = listed.lines().next().is_some_and(|titles| titles.contains(sort));
        assert_eq!(has_column, ["best", "epoch_train_loss"].contains(&sort), "{listed}");
    }
    // Other rows are another task, whatever the metric.
    add(&place, &["name=d", "data.synthetic_regression.validation_rows=32"]);
    let (_, text) = titles(&place, &["--metric", "mae"]);
    let first = "2 tasks, whose metrics are not comparable: data.synthetic_regression.validation_rows differs \
                 (#1 to 3; #4)\n";
    assert!(text.starts_with(first), "{text}");
}

/// What `compare` calls another task, `list` does not rank with others: within a sweep no value is the best.
#[test]
fn a_list_tells_losses_apart_as_a_comparison_does() {
    let place = Sandbox::new(&SPEC.replace("name = ", "trainer.monitor = 'validation.loss'\nname = "));
    let listed = |words: &[&str]| {
        let text = place.runner(&[&["list", "runs", "-v"], words].concat()).stdout;
        let lines =
            text.lines().skip(1).map(|line| line.split_whitespace().skip(2).collect::<Vec<_>>().join(" "));
        (lines.collect::<Vec<_>>(), text)
    };
    add(&place, &["name=s", "model.loss=mse,l1"]);
    let (lines, text) = listed(&[]);
    assert!(lines[0].ends_with("2 finished"), "{text}");
    let json = place.runner(&["list", "runs", "--json"]).stdout;
    assert!(json.contains("\"value\": null"), "{json}");
}

/// A list sorted by a loss is so, whatever its runs monitor.
#[test]
fn a_list_is_sorted_by_the_loss_that_is_named() {
    let place = place(&[
        &["name=a", "optimizer.sgd.lr=0.001"],
        &["name=b", "optimizer.sgd.lr=0.01", "trainer.monitor=validation.mae"],
        &["name=c", "optimizer.sgd.lr=0.1"],
        &["name=d", "optimizer.sgd.lr=0.2", "trainer.monitor=validation.mae"],
    ]);
    let names = |sort: &str| {
        let text = place.runner(&["list", "runs", "--sort", sort, "--json"]).stdout;
        let text: serde_json::Value = serde_json::from_str(&text).unwrap();
        let runs = text.as_array().unwrap();
        runs.iter()
            .map(|run| run["path"].as_str().unwrap().split('/').nth(1).unwrap().to_owned())
            .collect::<String>()
    };
    assert_eq!(names("validation.loss"), "dcba");
    // Runs that monitor different metrics have an order for each metric.
    assert!(["dbca", "cadb"].contains(&&*names("best")), "{}", names("best"));
    assert_eq!(names("best_value"), names("best"));
}

/// What each run monitors ranks all of them, if that does not depend on the loss; `evaluate` finds the best.
#[test]
fn runs_of_two_losses_that_monitor_a_metric_have_one_best() {
    let place = place(&[&["model.loss=mse,huber", "trainer.monitor=validation.mae"]]);
    let (own, text) = titles(&place, &[]);
    assert_eq!(own[..3], ["#", "loss", "validation mae"], "{text}");
    assert!(page(&place).contains("Settings by validation mae, the best first"), "a ranking of both");
    let best = place.runner(&["evaluate", "runs/lines"]).stderr;
    assert!(best.contains("the best trial: #") && best.contains("validation mae"), "{best}");
}
