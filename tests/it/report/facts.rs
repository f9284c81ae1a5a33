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
    let tables = tables(&html);
    let titles: Vec<&str> = found.iter().map(|[title, _]| title.as_str()).collect();
    assert_eq!(
        titles[..6],
        ["target", "training rows", "validation rows", "test rows", "status", "train loss"]
    );
    let words: Vec<&str> = found.iter().map(|[_, words]| words.as_str()).collect();
    assert_eq!(words[..4], ["species", "189", "69", "86"]);
    let test = &tables[0];
    let names: Vec<&str> = test.iter().map(|row| row[0].as_str()).collect();
    assert_eq!(names, ["loss", "accuracy", "f1", "precision", "recall", "auc", "average_precision"]);
    for [name, value, interval, baseline] in test.iter().map(|row| row.first_chunk().unwrap()) {
        let line = evaluated.lines().find(|line| line.split_whitespace().next() == Some(name)).unwrap();
        let numbers = |words: &str, of: f64| -> Vec<f64> {
            let words = words.replace(['[', ']', ',', '%'], " ");
            words.split_whitespace().map_while(|word| Some(of * word.parse::<f64>().ok()?)).collect()
        };
        let shown = numbers(&format!("{value} {} {}", interval, baseline).replace(" %", ""), 1.0);
        let printed = numbers(&line[name.len()..], if name == "accuracy" { 100.0 } else { 1.0 });
        let is_near = |(a, b): (&f64, &f64)| if name == "accuracy" { (a - b).abs() < 0.1 } else { a == b };
        assert!(
            shown.len() == printed.len() && shown.iter().zip(&printed).all(is_near),
            "{name}: {shown:?} {printed:?}"
        );
    }
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
    for (part, column) in [("training", 1), ("validation", 3), ("test", 5)] {
        let of = |species: &str| {
            let rows = table.lines().skip(1).enumerate().filter(|(_, line)| line.contains(species));
            rows.filter(|(row, _)| part_of(*row) == part).count()
        };
        let counts: Vec<[&str; 2]> = tables[1].iter().map(|row| [&*row[0], &*row[column]]).collect();
        let expected = ["Adelie", "Chinstrap", "Gentoo"].map(|species| (species, of(species).to_string()));
        assert_eq!(counts, expected.each_ref().map(|(species, count)| [*species, &**count]), "{part}");
    }
    let place_of = |title: &str| titles.iter().position(|own| *own == title).unwrap();
    assert!(
        place_of("best validation loss") < place_of("devices") && place_of("steps") < place_of("train time")
    );
    assert!(!titles.contains(&"h2d"), "nothing is copied within the CPU's memory");
}

/// The cells of the rows of each table below the first figures.
fn tables(html: &str) -> Vec<Vec<Vec<String>>> {
    let (_, head) = html.split_once("<dl class=\"facts\">").unwrap();
    let cell = |cell: &str| cell.split_once('>').unwrap().1.split_once("</td>").unwrap().0.to_owned();
    let row = |row: &str| row.split("<td").skip(1).map(cell).collect();
    let table = |table: &str| {
        let (body, _) = table.split_once("</tbody>").unwrap();
        body.split("<tr>").skip(1).map(row).collect()
    };
    head.split_once("</header>").unwrap().0.split("<tbody>").skip(1).map(table).collect()
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
