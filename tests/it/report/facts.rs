//! What the page of one run says first.

use std::fs;

use serde_json::{Value, json};

use super::page;
use crate::{process::Sandbox, run::LINREG};

/// The page of a run begins with what it learned from which rows; metrics of the test rows are those of `evaluate`.
#[test]
fn a_run_begins_with_its_target_rows_and_test() {
    let place = Sandbox::new("");
    let spec = concat!(env!("CARGO_MANIFEST_DIR"), "/experiments/penguins.toml");
    let words = [spec, "data.split.test=0.25", "logging.metrics=[accuracy,f1]", "trainer.max_epochs=3", "-q"];
    let folder = place.runner(&words).stdout.trim().to_owned();
    let facts = |page: &str| -> Vec<[String; 2]> {
        let (_, facts) = page.split_once("<dl class=\"facts\">").unwrap();
        let facts = facts.split_once("</header>").unwrap().0.split("<dt>").skip(1);
        facts
            .map(|fact| fact.split_once("</dt><dd>").unwrap())
            .map(|(title, rest)| [title, rest.split_once("</dd>").unwrap().0].map(str::to_owned))
            .collect()
    };
    let html = page(&place, &[&folder]);
    let found = facts(&html);
    let evaluated = place.runner(&["evaluate", &folder]).stdout;
    let metric = |name: &str| {
        let line = evaluated.lines().find(|line| line.split_whitespace().next() == Some(name)).unwrap();
        let mut cells = line[name.len()..].trim_start().split("  ").filter(|cell| !cell.is_empty());
        let [value, baseline] = [cells.next().unwrap(), cells.next().unwrap().trim()];
        format!("{value}; baseline {baseline}")
    };
    let titles: Vec<&str> = found.iter().map(|[title, _]| title.as_str()).collect();
    let wanted = [
        "target",
        "training rows",
        "validation rows",
        "test rows",
        "test loss [95 %, bootstrap]",
        "test accuracy [95 %, bootstrap]",
        "test f1 [95 %, bootstrap]",
        "test precision [95 %, bootstrap]",
        "test recall [95 %, bootstrap]",
        "test auc",
        "test average_precision",
        "training rows of each class",
        "validation rows of each class",
        "test rows of each class",
        "status",
        "train loss",
    ];
    assert_eq!(titles[..16], wanted);
    let words: Vec<&str> = found.iter().map(|[_, words]| words.as_str()).collect();
    assert_eq!(words[..5], ["species", "189", "69", "86", &metric("loss")]);
    let numbers = |words: &str, of: f64| {
        let words = words.replace(['[', ']', ',', '%', ';'], " ").replace("baseline", "");
        words.split_whitespace().map(|word| of * word.parse::<f64>().unwrap()).collect::<Vec<_>>()
    };
    let (shown, accuracy) = (numbers(words[5], 1.0), numbers(&metric("accuracy"), 100.0));
    assert!(shown.len() == 4 && shown.iter().zip(&accuracy).all(|(a, b)| (a - b).abs() < 0.1), "{shown:?}");
    let others = ["f1", "precision", "recall", "auc", "average_precision"].map(metric);
    assert_eq!(words[6..11], others.each_ref());
    // The matrix is that of the test rows, too.
    let json = place.runner(&["evaluate", &folder, "--json"]).stdout;
    let counts = serde_json::from_str::<Value>(&json).unwrap()["confusion"].take();
    let (_, matrix) = html.split_once("<table class=\"heat\">").unwrap();
    let cells: Vec<u64> = matrix
        .split_once("</table>")
        .unwrap()
        .0
        .split("<td class=\"h")
        .skip(1)
        .map(|cell| cell[3..].split([' ', '<']).next().unwrap().parse().unwrap())
        .collect();
    assert_eq!(json!(cells.chunks(3).collect::<Vec<_>>()), counts);
    assert!(html.contains("<p class=\"note\">86 test rows, by best.safetensors, of epoch "), "{html}");
    // Species by `rows.csv`: the rows that neither validate nor are for the test train.
    let table =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/experiments/data/penguins.csv")).unwrap();
    let listed = fs::read_to_string(place.path().join(&folder).join("rows.csv")).unwrap();
    let part_of = |row: usize| {
        let part = listed.lines().find_map(|line| line.strip_suffix(&format!(",{row}")));
        part.unwrap_or("training").to_owned()
    };
    for (part, words) in ["training", "validation", "test"].into_iter().zip(&words[11..14]) {
        let of = |species: &str| {
            let rows = table.lines().skip(1).enumerate().filter(|(_, line)| line.contains(species));
            rows.filter(|(row, _)| part_of(*row) == part).count()
        };
        let counts: Vec<String> =
            words.split(", ").map(|word| word.split(" (").next().unwrap().to_owned()).collect();
        let expected = ["Adelie", "Chinstrap", "Gentoo"].map(|species| format!("{species} {}", of(species)));
        assert_eq!(counts, expected, "{part}");
    }
    let place_of = |title: &str| titles.iter().position(|own| *own == title).unwrap();
    assert!(
        place_of("best validation loss") < place_of("devices") && place_of("steps") < place_of("train time")
    );
    assert!(!titles.contains(&"h2d"), "nothing is copied within the CPU's memory");
}

/// What is zero because the CPU's memory is the host's is left out; of virtual GPUs it stays.
#[test]
fn copies_within_the_memory_of_the_cpu_are_left_out() {
    let place = Sandbox::new(LINREG);
    for (gpus, has_copies) in [("devices.num_gpus=0", false), ("devices.num_gpus=1", true)] {
        let words = ["spec.toml", "-q", "trainer.max_epochs=2", "--virtual-gpus", "1", gpus];
        let folder = place.runner(&words).stdout.trim().to_owned();
        let shown = place.runner(&["show", &folder]).stdout;
        let has_line = |name: &str| shown.lines().any(|line| line.split_whitespace().next() == Some(name));
        assert_eq!(
            [has_line("h2d"), has_line("d2h"), has_line("steps")],
            [has_copies, has_copies, true],
            "{shown}"
        );
        let page = page(&place, &[&folder]);
        assert_eq!(page.contains("<td class=\"words\">h2d</td>"), has_copies);
        assert!(page.contains("<td class=\"words\">d2d</td>"), "the best weights are kept");
    }
}

/// Times and copies are of the last part of a run, unlike its steps and losses.
#[test]
fn what_is_since_the_resume_says_so() {
    let place = Sandbox::new(LINREG);
    let words = ["spec.toml", "-q", "checkpoint.every_epochs=1", "trainer.max_epochs=4"];
    let folder = place.runner(&words).stdout.trim().to_owned();
    assert!(page(&place, &[&folder]).contains("<h2>Where the time went</h2>"));
    let step = fs::read_to_string(place.path().join(&folder).join("summary.csv")).unwrap();
    let step = step.lines().nth(1).unwrap().split(',').nth(10).unwrap().to_owned();
    let ended = place.runner(&["run", "--resume", &folder, "trainer.max_epochs=8"]);
    let line = ended.stdout.lines().find(|line| line.starts_with("  validation loss ")).unwrap();
    assert!(line.ends_with(" since the resume"), "{line}");
    let page = page(&place, &[&folder]);
    for heading in ["Where the time went", "Transfers"] {
        let heading = format!("<h2>{heading} since the resume after step {step}</h2>");
        assert!(page.contains(&heading), "{heading}");
    }
}
