//! What a reader sees: order, axes, colours; and that no unneeded file is read.

use std::{fmt::Write, fs, io::Read, process::Command};

use serde_json::Value;

use super::{SWEEP, charts, line_names, page, run, table};
use crate::process::Sandbox;

/// A run of a setting, by its summary; `rows` are those of its `metrics.csv`.
fn setting(place: &Sandbox, number: usize, status: &str, loss: f64, rows: &str) {
    let name = format!("r{number:03}");
    run(place.path(), &name, &format!("lr = {number}.5\nbatch = {}\n", number * number % 17), rows);
    let summary = format!("run,name,status,epoch_train_loss\n{name},x,{status},{loss}\n");
    fs::write(place.path().join("runs").join(&name).join("summary.csv"), summary).unwrap();
}

fn svg(place: &Sandbox, name: &str) -> String {
    let found = fs::read_dir(place.path().join("figures")).unwrap().map(|entry| entry.unwrap().path());
    let path = found.into_iter().find(|path| path.to_string_lossy().ends_with(name));
    fs::read_to_string(path.unwrap_or_else(|| panic!("no drawing {name}"))).unwrap()
}

/// Cells show rounded values, but tables are sorted by the exact ones.
#[test]
fn cells_know_their_place_among_exact_values() {
    let place = Sandbox::new("");
    for (number, loss) in [(1, 0.500_004), (2, 0.500_002), (3, 0.500_003)] {
        setting(&place, number, "finished", loss, "1,1,train,8,3,0.1\n");
    }
    let page = page(&place, &["runs/*"]);
    for (row, place) in ["r001", "r002", "r003"].iter().zip([2, 0, 1]) {
        let line = page.split("<tr>").find(|line| line.contains(&format!("runs/{row}<"))).unwrap();
        assert!(line.contains(&format!("data-place=\"{place}\">0.5000</td>")), "{line}");
    }
    let (_, ranked) = page.split_once("Settings by train loss, the best first</caption>").unwrap();
    let places: Vec<&str> =
        ranked.split("data-place=\"").skip(1).take(6).map(|rest| rest.split('"').next().unwrap()).collect();
    assert_eq!(places, ["0", "0", "1", "1", "2", "2"], "values and differences");
}

/// Colours go to the best runs, including unfinished ones, whose values are in their names.
#[test]
fn runs_without_a_place_are_ordered_by_what_they_reached() {
    let place = Sandbox::new("");
    let states = [(1, "finished", 0.3), (2, "stopped", 0.9), (3, "stopped", 0.4), (4, "finished", 0.5)];
    for (number, status, loss) in states {
        setting(&place, number, status, loss, &format!("1,1,train,8,{loss},0.1\n"));
    }
    let page = page(&place, &["runs/*"]);
    let lines = charts(&page)[0]["lines"].clone();
    let names: Vec<&str> =
        lines.as_array().unwrap().iter().map(|line| line["name"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        [
            "#1 batch 1 lr 1.5",
            "#4 batch 16 lr 4.5",
            "#3 batch 9 lr 3.5, stopped",
            "#2 batch 4 lr 2.5, stopped"
        ]
    );
}

/// A chart has room for 500: the best of the stopped trials fill it, and the page says of how many they are.
#[test]
fn stopped_trials_without_room_are_counted() {
    let place = Sandbox::new("");
    let add = |number: usize, status: &str| setting(&place, number, status, number as f64, "");
    (0..498).for_each(|number| add(number, "finished"));
    (600..605).for_each(|number| add(number, "stopped"));
    let notes = |page: &str| page.matches("that their sweep stopped early").count();
    let first = page(&place, &["runs/*"]);
    let words = "Hollow: the best 2 of 5 trials that their sweep stopped early, at the best value";
    assert!(first.contains(words) && notes(&first) == 1, "{first}");
    assert!(first.matches("<circle class=\"hollow\"").count() >= 2, "{first}");
    (498..500).for_each(|number| add(number, "finished"));
    let second = page(&place, &["runs/*"]);
    assert!(second.contains(">Not drawn: 5 trials that their sweep stopped early.<"), "{second}");
    assert!(notes(&second) == 1 && !second.contains("Hollow"), "{second}");
}

/// If there are many runs, only the files of drawn curves are read; the others may even be damaged.
#[test]
fn curves_that_are_not_drawn_are_not_read() {
    let place = Sandbox::new("");
    for number in 0..120 {
        let is_read = number < 100;
        let rows = if is_read { "1,1,train,8,3,0.1\n" } else { "damaged\n1\n" };
        setting(&place, number, "finished", 1.0 + number as f64, rows);
        let timing = "device,clock,phase,count,total_s,mean_s,p50_s,p95_s\ncpu,host,step,1,0.5,0.5,0.5,0.5\n";
        let folder = place.path().join(format!("runs/r{number:03}"));
        fs::write(folder.join("timing.csv"), if number < 16 { timing } else { "damaged\n1\n" }).unwrap();
        fs::write(folder.join("transfers.csv"), if number < 16 { TRANSFERS } else { "damaged\n1\n" })
            .unwrap();
    }
    let ended = place.runner(&["report", "runs/*"]);
    assert!(ended.stderr.starts_with("a page of "), "{}", ended.stderr);
    let page = fs::read_to_string(place.path().join("report.html")).unwrap();
    assert!(page.contains("The best 100 of 120 curves are drawn."));
    assert_eq!(
        page.matches("16 of 120 settings: the ranked ones, the best first, then others.").count(),
        2,
        "times and transfers"
    );
}

const TRANSFERS: &str = "kind,purpose,from,to,count,noop_count,bytes,total_s,gb_per_s\n\
    h2d,batch,cpu,gpu:0,10,0,3072,0.1,1\nd2h,log,gpu:0,cpu,1,0,1024,0.1,1\nread,dataset,cpu,cpu,1,0,9999,,\n";

/// The chart shows at a glance how many bytes were copied for which purpose.
#[test]
fn transfers_are_bars() {
    let place = Sandbox::new("");
    setting(&place, 1, "finished", 0.5, "1,1,train,8,3,0.1\n");
    fs::write(place.path().join("runs/r001/transfers.csv"), TRANSFERS).unwrap();
    let page = page(&place, &["runs/r001"]);
    let (_, transfers) = page.split_once("<h2>Transfers</h2>").unwrap();
    let (bars, _) = transfers.split_once("<table").unwrap();
    for words in [
        "aria-label=\"h2d batch: 3 KiB in 10; d2h log: 1 KiB in 1\"",
        "<rect class=\"f0\" x=\"0.000%\" width=\"75.000%\" height=\"20\"><title>h2d batch: 3 KiB in 10</title>",
        ">4 KiB</span>",
    ] {
        assert!(bars.contains(words), "{words}: {bars}");
    }
    assert!(!bars.contains("dataset"), "what is read from a file is not copied");
}

/// Constant memory is drawn as a flat line, and axes of shares end at 100 %.
#[test]
fn figures_of_the_system_begin_at_zero() {
    let place = Sandbox::new("");
    setting(&place, 1, "finished", 0.5, "1,1,train,8,3,0.1\n");
    let mut rows = "elapsed_s,device,utilization,rss_bytes,temperature_c\n".to_owned();
    for step in 0..9 {
        writeln!(rows, "{step}.5,cpu,0.98,{},40", 14_000_000 + step * 1000).unwrap();
    }
    fs::write(place.path().join("runs/r001/system.csv"), rows).unwrap();
    let page = page(&place, &["runs/r001", "--svg", "figures"]);
    let within: Vec<(String, Value)> = charts(&page)[1..]
        .iter()
        .map(|chart| (chart["title"].as_str().unwrap().to_owned(), chart["within"].clone()))
        .collect();
    let wanted = [
        ("Utilization, %", serde_json::json!([0.0, 100.0])),
        ("Memory of the process, MiB", serde_json::json!([0.0, 0.0])),
        ("Temperature, \u{b0}C", Value::Null),
    ];
    assert_eq!(within, wanted.map(|(title, within)| (title.to_owned(), within)));
    assert!(svg(&place, "-utilization.svg").contains(">100</text>"));
    assert!(svg(&place, "-memory-of-the-process--mib.svg").contains(">0</text>"));
}

/// A single validation is drawn as a point, on screen and in print; its axis has only that step.
#[test]
fn a_single_point_is_drawn() {
    let place = Sandbox::new("");
    run(place.path(), "a", "", "7,1,validation,8,0.5,0.1\n");
    page(&place, &["runs/a", "--svg", "figures"]);
    let drawing = svg(&place, "-loss.svg");
    assert_eq!(
        (drawing.matches("<circle").count(), drawing.matches(">7</text>").count()),
        (1, 1),
        "{drawing}"
    );
}

/// Sampled values are placed by magnitude, even if there are few, and do not form a heat map.
#[test]
fn settings_that_are_no_grid_are_points() {
    let place = Sandbox::new("");
    for (number, loss) in [(1, 0.4), (2, 0.2), (9, 0.3)] {
        setting(&place, number, "finished", loss, "1,1,train,8,3,0.1\n");
    }
    let page = page(&place, &["runs/*", "--svg", "figures"]);
    assert!(!page.contains("<table class=\"heat\">"));
    assert!(page.contains("train loss by batch and lr: the stronger the colour, the better</figcaption>"));
    let drawing = svg(&place, "-train-loss-by-batch-and-lr.svg");
    for shade in [0, 4, 9] {
        assert_eq!(drawing.matches(&format!("<circle class=\"h{shade}\"")).count(), 1, "{drawing}");
        // The tooltip.
        assert!(drawing.contains("<title>#2 batch 4 lr 2.5: 0.2000</title>"), "{drawing}");
    }
    // 1.5, 2.5 and 9.5 on an axis from 0 to 10.
    let effect = svg(&place, "-effect-lr.svg");
    assert!(effect.contains(">10</text>") && !effect.contains(">9.5</text>"), "{effect}");
}

/// Heat maps and confusion matrices are also exported as files.
#[test]
fn tables_of_colours_are_drawn_in_files() {
    let place = Sandbox::new(SWEEP);
    let words = ["spec.toml", "optimizer.sgd.lr=0.01,0.1", "data.batch_size=8,16", "sweep.repeats=1", "-q"];
    assert_eq!(place.runner(&words).code, Some(0));
    let page = page(&place, &["runs", "--svg", "figures"]);
    let (_, map) = page.split_once("<table class=\"heat\">").unwrap();
    let strongest = map.split("<td class=\"h9\">").nth(1).unwrap().split('<').next().unwrap();
    let best = &table(&page, "Settings by validation loss, the best first")[0];
    assert_eq!(strongest, best[3]);
    let names = map.split_once("</caption>").unwrap().1.split("<th scope=\"col\">").nth(1).unwrap();
    let axes = names.split("</th>").next().unwrap().replace(" \\ ", "-and-").replace('_', "-");
    let drawing = svg(&place, &format!("-validation-loss-by-{axes}.svg"));
    assert_eq!(drawing.matches("<rect class=\"h").count(), 4, "{drawing}");
    assert!(drawing.contains(&format!(">{strongest}</text>")), "{drawing}");
    fs::remove_dir_all(place.path().join("figures")).unwrap();
    run(place.path(), "a", "", "1,1,train,8,3,0.1\n");
    fs::write(place.path().join("runs/a/confusion.csv"), "actual,<a>,b\n<a>,9,1\nb,0,2\n").unwrap();
    super::page(&place, &["runs/a", "--svg", "figures"]);
    let drawing = svg(&place, "-confusion.svg");
    for words in [
        "<rect class=\"h9\"",
        ">actual</text>",
        ">predicted</text>",
        ">&lt;a&gt;</text>",
        ">9</text>",
        ">90.0 %</text>",
    ] {
        assert!(drawing.contains(words), "{words}: {drawing}");
    }
}

/// Names the predicted column, and shows numbers such as `200 k`.
#[test]
fn a_prediction_is_of_its_column() {
    let place = Sandbox::new("");
    let rows: String = (0..40).map(|row| format!("{row},{}\n", row * 10_000)).collect();
    fs::write(place.path().join("houses.csv"), format!("rooms,price<b>\n{rows}")).unwrap();
    let spec = "name = \"houses\"\ndata.csv = { path = \"houses.csv\", target = \"price<b>\", standardize_target = true }\n\
        model.layers = [{ linear = { out_features = 1 } }]\noptimizer.sgd.lr = 0.1\ntrainer.max_epochs = 3\n";
    fs::write(place.path().join("spec.toml"), spec).unwrap();
    assert_eq!(place.runner(&["spec.toml", "-q"]).code, Some(0));
    let page = page(&place, &["runs", "--svg", "figures"]);
    assert!(page.contains("<figcaption>price&lt;b&gt;: R\u{b2} "), "{page}");
    assert!(svg(&place, "-predicted-price-b.svg").contains(" k</text>"));
    // No rows were set aside for a test.
    assert!(page.contains(" DATA --importance</code> prints how much worse the model is "), "{page}");
}

/// Axes beyond what fits side by side are not drawn, and the page says so.
#[test]
fn axes_that_are_drawn_have_room() {
    let place = Sandbox::new("");
    for setting in 0..6 {
        let values: String = (0..30).map(|axis| format!("a_long_name_{axis:02} = {setting}\n")).collect();
        let name = format!("r{setting}");
        run(place.path(), &name, &values, "1,1,train,8,3,0.1\n");
    }
    let page = page(&place, &["runs/*"]);
    assert!(page.contains("Of 30 axes the 8 that come first are drawn."));
}

/// A label has whatever distinguishes settings (a lab run next to them does not count), and never fills the
/// page.
#[test]
fn names_are_short() {
    let place = Sandbox::new("");
    for (number, loss) in [(1, 0.4), (2, 0.2)] {
        let values: String = (0..9).map(|axis| format!("x{axis} = {number}\ny{axis} = 7\n")).collect();
        run(place.path(), &format!("r{number}"), &values, &format!("1,1,train,8,{loss},0.1\n"));
    }
    run(place.path(), "lab", "kind = \"matmul\"\n", "");
    let summary = "run,name,status\nlab,x,finished\n";
    fs::write(place.path().join("runs/lab/summary.csv"), summary).unwrap();
    let page = page(&place, &["runs/*"]);
    let names = line_names(&page);
    let name = |number: usize, value: usize| {
        format!("#{number} x0 {value} x1 {value} x2 {value} x3 {value} x4 {value} x5 {value} \u{2026}")
    };
    assert_eq!(names[..2], [name(2, 1), name(3, 2)], "{names:?}");
}

/// By the program that draws it, where that is installed: three times as large as the SVG, on white, with the curve's blue.
#[test]
fn a_png_is_the_drawing() {
    if Command::new("rsvg-convert").arg("--version").output().is_err() {
        eprintln!("SKIPPED, without `rsvg-convert`: no PNG is drawn");
        return;
    }
    let place = Sandbox::new("");
    run(place.path(), "a", "", "1,1,train,8,3,0.1\n2,1,train,8,2,0.1\n");
    page(&place, &["runs/a", "--svg", "figures"]);
    let drawing = svg(&place, "-loss.svg");
    page(&place, &["runs/a", "--png", "pictures"]);
    let png = fs::read(place.path().join("pictures/00-loss.png")).unwrap();
    let (mut at, mut size, mut channels, mut packed) = (8, [0; 2], 0, Vec::new());
    while at < png.len() {
        let word = |at: usize| u32::from_be_bytes(png[at..at + 4].try_into().unwrap()) as usize;
        let (length, body) = (word(at), at + 8);
        match &png[at + 4..body] {
            b"IHDR" => {
                size = [word(body), word(body + 4)];
                // 8 bits each of red, green and blue, and of alpha in the kind 6.
                assert!(png[body + 8] == 8 && [2, 6].contains(&png[body + 9]), "{:?}", &png[body..body + 13]);
                channels = if png[body + 9] == 2 { 3 } else { 4 };
            }
            b"IDAT" => packed.extend(&png[body..body + length]),
            _ => {}
        }
        at = body + length + 4;
    }
    let [width, height] = size;
    let view = format!("viewBox=\"0 0 {} {}\"", width / 3, height / 3);
    assert!(drawing.contains(&view), "{width} x {height}: {drawing}");
    let mut rows = Vec::new();
    flate2::read::ZlibDecoder::new(&packed[..]).read_to_end(&mut rows).unwrap();
    assert_eq!(rows.len(), height * (1 + channels * width));
    let pixels = unfiltered(&rows, channels * width, channels);
    let count = |color: [u8; 3]| pixels.chunks(channels).filter(|pixel| pixel[..3] == color).count();
    let (white, blue) = (count([255; 3]), count([0x00, 0x72, 0xb2]));
    assert!(white > width * height / 2 && blue > width, "{white} white, {blue} blue of {width} x {height}");
}

/// The pixels of rows that are filtered as PNG's specification says, each behind the kind of its filter.
fn unfiltered(rows: &[u8], width: usize, channels: usize) -> Vec<u8> {
    let mut pixels: Vec<u8> = Vec::new();
    let mut above = vec![0; width];
    for row in rows.chunks(width + 1) {
        let mut own: Vec<u8> = Vec::with_capacity(width);
        for (at, byte) in row[1..].iter().enumerate() {
            let before = |line: &[u8]| if at < channels { 0 } else { i16::from(line[at - channels]) };
            let (left, up, corner) = (before(&own), i16::from(above[at]), before(&above));
            let paeth = [left, up, corner].into_iter().min_by_key(|near| (left + up - corner - near).abs());
            let guess = match row[0] {
                0 => 0,
                1 => left,
                2 => up,
                3 => (left + up) / 2,
                _ => paeth.unwrap_or(0),
            };
            own.push(byte.wrapping_add(guess as u8));
        }
        pixels.extend(&own);
        above = own;
    }
    pixels
}
