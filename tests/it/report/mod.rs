//! `runner report`: pages hold what `compare` says, nothing from a file becomes markup, and nothing asks for the network.

mod confusions;
mod curves;
mod drawings;
mod facts;
mod inputs;
mod looks;
mod products;
mod settings;

use std::{fmt::Write, fs, path::Path};

use serde_json::Value;

use super::process::{Folder, Sandbox};

/// A sweep of two learning rates with three seeds each.
const SWEEP: &str = r#"
name = "small"
[data.synthetic_regression]
weights = [2.0, -3.4]
train_rows = 64
validation_rows = 64
[model]
layers = [{ linear = { out_features = 1 } }]
loss = "mse"
[optimizer.sgd]
lr = 0.03
[trainer]
max_epochs = 3
[sweep]
grid = { "optimizer.sgd.lr" = [0.03, 0.1] }
repeats = 3
"#;

fn page(place: &Sandbox, arguments: &[&str]) -> String {
    let ended = place.runner(&[&["report"], arguments].concat());
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    fs::read_to_string(place.path().join(ended.stdout.trim())).unwrap()
}

/// The data from which the page's script draws charts.
fn charts(page: &str) -> Vec<Value> {
    let (_, json) = page.split_once("<script type=\"application/json\" id=\"charts\">").unwrap();
    serde_json::from_str(json.split_once("</script>").unwrap().0).unwrap()
}

/// The names of the lines of the first chart.
fn line_names(page: &str) -> Vec<String> {
    let lines = charts(page)[0]["lines"].clone();
    lines.as_array().unwrap().iter().map(|line| line["name"].as_str().unwrap().to_owned()).collect()
}

/// The cells of a table's body.
fn table(page: &str, caption: &str) -> Vec<Vec<String>> {
    let (_, table) = page.split_once(&format!("<caption>{caption}</caption>")).unwrap();
    let (_, body) = table.split_once("<tbody>").unwrap();
    let rows = body.split_once("</tbody>").unwrap().0.split("</tr>").filter(|row| !row.is_empty());
    let cell = |cell: &str| cell.rsplit_once('>').unwrap().1.to_owned();
    rows.map(|row| row.split("</td>").filter(|cell| !cell.is_empty()).map(cell).collect()).collect()
}

/// A folder with a `metrics.csv` of these rows.
fn run(place: &Path, name: &str, spec: &str, rows: &str) {
    let folder = place.join("runs").join(name);
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("metrics.csv"), format!("step,epoch,split,rows,loss,elapsed_s\n{rows}")).unwrap();
    let summary = format!("run,name,status,epoch_train_loss\n{name},x,finished,0.5\n");
    fs::write(folder.join("summary.csv"), summary).unwrap();
    fs::write(folder.join("spec.toml"), format!("# runner spec.toml\n{spec}")).unwrap();
}

#[test]
fn says_what_compare_says() {
    let place = Sandbox::new(SWEEP);
    assert_eq!(place.runner(&["spec.toml", "-q"]).code, Some(0));
    let page = page(&place, &["runs"]);
    let compared = place.runner(&["compare", "runs"]).stdout;
    let words: Vec<&str> = compared.lines().take(2).map(|line| line.trim().trim_end_matches(';')).collect();
    assert!(page.contains(&format!("<p class=\"verdict\">{}</p>", words[0])), "{compared}");
    assert!(page.contains(&format!("<p class=\"doubt\">{}</p>", words[1])), "{compared}");
    for row in table(&page, "Settings by validation loss, the best first") {
        let line =
            compared.lines().find(|line| line.trim_start().starts_with(&format!("{} ", row[0]))).unwrap();
        row.iter().for_each(|cell| assert!(line.contains(cell.as_str()), "{cell}: {line}"));
    }
    // Curves are means of the rows in the files, with a band from the lowest to the highest seed.
    let exported: Vec<Value> =
        serde_json::from_str(&place.runner(&["compare", "runs", "--export", "json"]).stdout).unwrap();
    let chart = &charts(&page)[0];
    assert_eq!((&chart["title"], chart["lines"].as_array().unwrap().len()), (&"validation loss".into(), 2));
    for (line, lr) in chart["lines"].as_array().unwrap().iter().zip([0.1, 0.03]) {
        assert!(line["name"].as_str().unwrap().ends_with(&format!(" lr {lr}")));
        let of_setting = exported.iter().filter(|run| run["optimizer.sgd.lr"] == lr);
        let last: Vec<f64> = of_setting.map(|run| run["final_validation_loss"].as_f64().unwrap()).collect();
        assert_eq!(last.len(), 3);
        let wanted = [
            last.iter().sum::<f64>() / 3.0,
            last.iter().copied().fold(f64::INFINITY, f64::min),
            last.iter().copied().fold(0.0, f64::max),
        ];
        for (found, wanted) in [&line["y"], &line["band"][0], &line["band"][1]].into_iter().zip(wanted) {
            let found = found.as_array().unwrap().last().unwrap().as_f64().unwrap();
            assert!((found - wanted).abs() <= 1e-5 * wanted, "{found} {wanted}");
        }
    }
}

#[test]
fn nothing_from_a_file_becomes_markup() {
    let place = Sandbox::new("");
    let evil = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\\\" '";
    for (name, lr) in [("a<b>", 1), ("c", 2)] {
        let spec = format!("name = \"{evil}\"\n[optimizer]\nlr = {lr}\nkind = \"{evil}{lr}\"\n");
        run(place.path(), name, &spec, "1,1,train,8,3,0.1\n2,1,validation,8,2,0.1\n");
    }
    let page = page(&place, &["runs/*", "--svg", "figures"]);
    for file in fs::read_dir(place.path().join("figures")).unwrap() {
        let text = fs::read_to_string(file.unwrap().path()).unwrap();
        assert!(text.contains("&lt;script&gt;alert(1)&lt;/script&gt;"), "{text}");
        assert!(!text.contains("<script") && !text.contains("<img"), "{text}");
    }
    assert_eq!(page.matches("<script").count(), 3, "its data and its two scripts");
    assert!(!page.contains("<img") && !page.contains("a<b>"));
    assert!(page.contains("&lt;img src=x onerror=alert(2)&gt;"));
    let names = line_names(&page);
    assert!(names[0].contains("</script><script>alert(1)</script>"), "{names:?}");
}

/// Nothing is loaded, and the page's content security policy forbids it.
#[test]
fn asks_for_no_network() {
    let place = Sandbox::new(SWEEP);
    assert_eq!(place.runner(&["spec.toml", "-q"]).code, Some(0));
    let page = page(&place, &["runs"]);
    for word in ["<link", "src=", "url(", "@import", "fetch(", "XMLHttpRequest", "import("] {
        assert!(!page.contains(word), "{word}");
    }
    let targets: Vec<&str> = page.split("href=\"").skip(1).collect();
    assert!(targets.iter().all(|target| target.starts_with('#')));
    for address in page.split("http").skip(1).filter(|rest| rest.starts_with(':') || rest.starts_with("s:")) {
        let known = ["://www.w3.org/2000/svg", "s://github.com/leeoniya/uPlot (v"];
        assert!(known.iter().any(|known| address.starts_with(known)), "{}", &address[..40]);
    }
    let (_, policy) = page.split_once("Content-Security-Policy\" content=\"").unwrap();
    let policy = policy.split_once('"').unwrap().0.replace("&#39;", "'");
    assert!(policy.starts_with("default-src 'none'; script-src 'nonce-"), "{policy}");
    assert!(!policy.contains("unsafe") && page.len() < 1_000_000, "{policy}");
}

/// A single spike among 100,000 rows is drawn, and the page says that rows were left out.
#[test]
fn extremes_survive() {
    let place = Sandbox::new("");
    let mut rows = String::new();
    for step in 1..=100_000 {
        let loss = match step {
            54_321 => 99.0,
            12_345 => 0.25,
            _ => 1.0 + f64::from(step % 7) / 10.0,
        };
        writeln!(rows, "{step},1,train,8,{loss},0.1").unwrap();
    }
    run(place.path(), "long", "", &rows);
    let page = page(&place, &["runs/long", "-o", "page.html"]);
    let chart = &charts(&page)[0];
    let steps: Vec<f64> = chart["x"].as_array().unwrap().iter().filter_map(Value::as_f64).collect();
    assert!(steps.len() <= 2000, "{}", steps.len());
    let [low, high] = [0, 1].map(|end| chart["lines"][0]["band"][end].as_array().unwrap());
    for (values, extreme, step) in [(low, 0.25, 12_345.0), (high, 99.0, 54_321.0)] {
        let at = values.iter().position(|value| *value == extreme).unwrap();
        assert!((steps[at] - step).abs() <= 200.0, "{extreme} at {}", steps[at]);
    }
    // The mean of the others is 1.3.
    let mean = chart["lines"][0]["y"][0].as_f64().unwrap();
    assert!((mean - 1.3).abs() < 0.02, "{mean}");
    assert!(page.contains("Thinned: a point stands for about 100 steps."));
    assert!(page.len() < 200_000, "{}", page.len());
}

/// Where the page is written, and what it never replaces.
#[test]
fn files() {
    let place = Sandbox::new("");
    for name in ["a", "b"] {
        run(place.path(), name, "", "1,1,train,8,3,0.1\n");
    }
    let ended = place.runner(&["report", "runs/a"]);
    assert_eq!(ended.stdout, "runs/a/report.html\n");
    assert!(ended.stderr.starts_with("a page of "), "{}", ended.stderr);
    assert_eq!(place.runner(&["report", "runs/a", "-q"]).stderr, "");
    // A second time over the first one; two runs go to the current folder.
    assert_eq!(place.runner(&["report", "runs/a"]).code, Some(0));
    assert_eq!(place.runner(&["report", "runs/a", "runs/b"]).stdout, "report.html\n");
    assert_eq!(place.runner(&["report", "runs"]).stdout, "report.html\n");
    for other in ["runs/a/summary.csv", "runs/a/metrics.csv"] {
        let before = fs::read(place.path().join(other)).unwrap();
        let ended = place.runner(&["report", "runs/a", "-o", other]);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""));
        assert_eq!(
            ended.stderr,
            format!(
                "error: `{other}` was not made by `runner report`, and is not replaced\n  = hint: `-o FILE`, `--svg DIR` and `--png DIR` name other places\n"
            )
        );
        assert_eq!(fs::read(place.path().join(other)).unwrap(), before);
    }
    assert_eq!(place.runner(&["report", "runs/a", "-o", "none/page.html"]).code, Some(1));
    let pipe = place.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let ended = place.runner(&["report", "runs/a", "-o", "pipe"]);
    let words = "error: cannot write `pipe`: it is a named pipe: expected a regular file\n";
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(1), words));
    assert_eq!(place.runner(&["report", "nothing"]).code, Some(2));
    assert_eq!(place.runner(&["report", "runs/a", "--metric", "nothing"]).code, Some(2));
    let mut left: Vec<_> = fs::read_dir(place.path().join("runs/a")).unwrap().collect();
    left.sort_by_key(|entry| entry.as_ref().unwrap().file_name());
    let names: Vec<String> =
        left.into_iter().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(names, ["metrics.csv", "report.html", "spec.toml", "summary.csv"]);
}

/// The best weights on the validation rows: a scatter plot for numbers, a matrix for classes, and a reason if
/// the data are gone.
#[test]
fn predicted_against_true() {
    let place = Sandbox::new(SWEEP);
    assert_eq!(
        place.runner(&["spec.toml", "~sweep", "data.synthetic_regression.validation_rows=3000", "-q"]).code,
        Some(0)
    );
    let page = page(&place, &["runs"]);
    assert!(page.contains("Predicted against true") && page.contains("<figcaption>target: R\u{b2} "));
    assert!(
        page.contains("3,000 validation rows, by best.safetensors, of epoch 3, step 6; one of 2 is drawn.")
    );
    assert_eq!(page.matches("class=\"f0 point\"").count(), 1500);
    let data = place.path().join("penguins.csv");
    fs::copy(concat!(env!("CARGO_MANIFEST_DIR"), "/experiments/data/penguins.csv"), &data).unwrap();
    let spec = concat!(env!("CARGO_MANIFEST_DIR"), "/experiments/penguins.toml");
    let csv = format!("data.csv.path={}", data.display());
    assert_eq!(place.runner(&[spec, &csv, "trainer.max_epochs=3", "-q"]).code, Some(0));
    let report = || place.runner(&["report", "runs/penguins", "-o", "page.html"]);
    assert_eq!(report().stderr.lines().count(), 1);
    let page = fs::read_to_string(place.path().join("page.html")).unwrap();
    assert!(
        page.contains("<h2>Confusion matrix</h2>")
            && page.contains("69 validation rows, by best.safetensors, of epoch 3, step ")
    );
    fs::remove_file(&data).unwrap();
    let ended = report();
    assert_eq!(ended.code, Some(0));
    assert!(ended.stderr.starts_with("warning: what the model predicts is not shown: "), "{}", ended.stderr);
}

/// Of virtual devices the chart has their rates alone: no line of ideal scaling and no speed-up, and a sentence says why.
#[test]
fn more_devices() {
    let place = Sandbox::new(SWEEP);
    let words = ["spec.toml", "~sweep", "devices.num_gpus=1,2", "--virtual-gpus", "2", "-q"];
    assert_eq!(place.runner(&words).code, Some(0));
    let page = page(&place, &["runs"]);
    assert!(page.contains("Rows per second by number of devices, on virtual devices"));
    assert!(
        page.contains("no speed-up is shown: virtual devices share one processor")
            && !page.contains("speed-up</th>")
    );
    assert!(
        page.contains("<polyline class=\"c0 main\"")
            && !page.contains("class=\"ideal\"")
            && !page.contains(">ideal</text>")
    );
    let moved = table(&page, "What moved: bytes, and in how many copies");
    assert_eq!((moved.len(), moved[0].len()), (2, moved[1].len()), "a row per run: {moved:?}");
    assert!(page.contains(">h2d batch</th>"), "{moved:?}");
}

/// A run records how much work its steps do; the page relates it to measured rates if there are any.
#[test]
fn a_roofline_of_measured_rates() {
    let place = Sandbox::new(SWEEP);
    assert_eq!(place.runner(&["spec.toml", "~sweep", "-q"]).code, Some(0));
    assert!(!page(&place, &["runs"]).contains("Roofline"), "typical rates are none of this machine");
    let folder = Folder::within(&place.path().join("runs")).unwrap();
    let environment = folder.text("environment.toml");
    let (before, step) = environment.split_once("[step]\n").unwrap();
    // 32 rows of 2 features and a bias, forward and backward.
    assert!(
        step.starts_with("flops = ") && step.contains("\nbytes = ") && !step.contains("_per_s"),
        "{step}"
    );
    let rates = "flops_per_s = 1e11\ncache_bytes_per_s = 1e11\nmemory_bytes_per_s = 2e10\n";
    fs::write(folder.0.join("environment.toml"), format!("{before}[step]\n{rates}{step}")).unwrap();
    let page = page(&place, &["runs", "--svg", "figures"]);
    assert!(page.contains("<h2>Roofline</h2>") && page.contains("FLOP per byte</p>"));
    assert!(page.contains("<code>runner devices --measure</code>"));
    let names = fs::read_dir(place.path().join("figures")).unwrap().map(|entry| entry.unwrap().path());
    let drawing = names.into_iter().find(|name| name.to_string_lossy().ends_with("-roofline.svg")).unwrap();
    let drawing = fs::read_to_string(drawing).unwrap();
    assert_eq!((drawing.matches("<circle").count(), drawing.contains("NaN")), (1, false), "{drawing}");
    // A speed of 0 cannot be drawn on a logarithmic axis.
    let summary = folder.text("summary.csv");
    let column = summary.lines().next().unwrap().split(',').position(|name| name == "steps_per_s").unwrap();
    let mut cells: Vec<&str> = summary.lines().nth(1).unwrap().split(',').collect();
    cells[column] = "0";
    let stopped = format!("{}\n{}\n", summary.lines().next().unwrap(), cells.join(","));
    fs::write(folder.0.join("summary.csv"), stopped).unwrap();
    let page = self::page(&place, &["runs"]);
    assert!(!page.contains("<h2>Roofline</h2>"));
}

/// A damaged run is named and skipped.
#[test]
fn damage_is_named() {
    let place = Sandbox::new("");
    for name in ["a", "b"] {
        run(place.path(), name, "", "1,1,train,8,3,0.1\n");
    }
    fs::write(place.path().join("runs/b/spec.toml"), "x = ").unwrap();
    fs::create_dir(place.path().join("other")).unwrap();
    let ended = place.runner(&["report", "runs/*", "other"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let warnings: Vec<&str> =
        ended.stderr.lines().filter(|line| line.starts_with("warning: left out: ")).collect();
    assert_eq!(warnings.len(), 2, "{}", ended.stderr);
}

/// Sampled settings of many axes span more grid cells than an integer can count.
#[test]
fn many_axes() {
    let place = Sandbox::new("");
    for setting in 0..64 {
        let values: String = (0..11).map(|axis| format!("x{axis} = {setting}.{axis}\n")).collect();
        run(place.path(), &format!("run-{setting}"), &values, "1,1,train,8,3,0.1\n");
    }
    let page = page(&place, &["runs/*"]);
    assert!(page.contains("Shares of the variance are not known: all values are equal."));
    assert!(page.contains(", and 44 more</td>"));
}

/// The page begins with what is missing from it.
#[test]
fn curves_that_cannot_be_read() {
    let place = Sandbox::new("");
    for name in ["a", "b"] {
        run(place.path(), name, "", "1,1,train,8,3,0.1\n");
    }
    fs::write(place.path().join("runs/b/metrics.csv"), "nothing\n1\n").unwrap();
    let ended = place.runner(&["report", "runs/*"]);
    assert!(ended.stderr.starts_with("warning: curves of #2 are not shown: "), "{}", ended.stderr);
    let page = fs::read_to_string(place.path().join("report.html")).unwrap();
    assert!(page.contains("<p class=\"warning\">curves of #2 are not shown: "), "{}", ended.stderr);
}
