//! The page of products of matrices: their times, and what logging costs.

use std::fs;

use super::{page, run, table};
use crate::process::Sandbox;

const COLUMNS: &str =
    "device,order,m,k,n,count,total_s,mean_s,gflop_per_s,log_s,norm_sum,p50_s,min_s,max_s\n";

/// A run of the lab with these rows of `matmul.csv`.
fn lab(place: &Sandbox, name: &str, policy: &str, rows: &str) {
    let spec = format!("name = \"{name}\"\nkind = \"matmul\"\n[logging]\npolicy = \"{policy}\"\n");
    run(place.path(), name, &spec, "");
    let folder = place.path().join("runs").join(name);
    let summary = format!("run,name,status,steps,train_s,steps_per_s\n{name},{name},finished,60,3,20\n");
    fs::write(folder.join("summary.csv"), summary).unwrap();
    fs::write(folder.join("matmul.csv"), format!("{COLUMNS}{rows}")).unwrap();
}

/// 2 * 100^3 operations in 1 ms are 2 GFLOP/s; the GPU is half as fast, and four times as fast at twice the size.
#[test]
fn a_run_shows_the_times_of_its_products() {
    let place = Sandbox::new("");
    let rows = "cpu,sequential,100,100,100,20,0.02,0.001,2,0,,0.001,0.0009,0.004\n\
                cpu,sequential,200,200,200,20,0.16,0.008,2,0,,0.008,0.007,0.009\n\
                gpu:0,sequential,100,100,100,20,0.04,0.002,1,0.01,1.5,0.002,0.0019,0.003\n\
                gpu:0,sequential,200,200,200,20,0.04,0.002,8,0,,0.002,0.0018,0.0021\n";
    lab(&place, "m", "buffered", rows);
    let page = page(&place, &["runs/m", "--svg", "figures"]);
    let cells = table(&page, "Products and the times that one takes");
    let expected = [
        "cpu|100 x 100 x 100|20|1.00 ms|900 µs to 4.00 ms|2.000 G||||",
        "cpu|200 x 200 x 200|20|8.00 ms|7.00 ms to 9.00 ms|2.000 G||||",
        "gpu:0|100 x 100 x 100|20|2.00 ms|1.90 ms to 3.00 ms|1.000 G|10.0 ms|25.0 %|1.500|0.5000x",
        "gpu:0|200 x 200 x 200|20|2.00 ms|1.80 ms to 2.10 ms|8.000 G||||4.000x",
    ];
    assert_eq!(cells.iter().map(|row| row.join("|")).collect::<Vec<_>>(), expected);
    let drawing = fs::read_to_string(place.path().join("figures/00-products.svg")).unwrap();
    assert_eq!(drawing.matches("<polyline").count(), 2, "a line for each device: {drawing}");
    for words in [">cpu</text>", ">gpu:0</text>", ">n of n x n matrices</text>", ">100</text>", ">200</text>"]
    {
        assert!(drawing.contains(words), "{words}: {drawing}");
    }
    assert!(!page.contains("products/s"), "the rate of products of two sizes together says nothing");
}

/// Where the file tells how many threads a product had, so does the page; a GPU has none of the host's.
#[test]
fn a_run_shows_how_many_threads_a_product_had() {
    let place = Sandbox::new("");
    let rows = "cpu,sequential,100,100,100,20,0.02,0.001,2,0,,0.001,0.0009,0.004,2\n\
                gpu:0,sequential,100,100,100,20,0.04,0.002,1,0,,0.002,0.0019,0.003,\n";
    lab(&place, "m", "buffered", rows);
    let file = place.path().join("runs/m/matmul.csv");
    let text = fs::read_to_string(&file).unwrap().replacen("max_s\n", "max_s,threads\n", 1);
    fs::write(file, text).unwrap();
    let page = page(&place, &["runs/m"]);
    let cells = table(&page, "Products and the times that one takes");
    let expected = ["cpu|100 x 100 x 100|2|20", "gpu:0|100 x 100 x 100||20"];
    assert_eq!(cells.iter().map(|row| row[..4].join("|")).collect::<Vec<_>>(), expected);
}

/// A sweep over sizes has a line for each device, and no dot on the frame; runs that have the same products have lines of their own.
#[test]
fn a_sweep_over_sizes_has_a_line_for_each_device() {
    let place = Sandbox::new("");
    let row = |device: &str, size: u32, median: f64| {
        format!("{device},sequential,{size},{size},{size},20,0.02,0.001,2,0,,{median},{median},{median}\n")
    };
    for (name, size, [cpu, gpu]) in
        [("a", 64, [0.004, 0.002]), ("b", 16, [0.0001, 0.001]), ("c", 32, [0.0005, 0.0015])]
    {
        let rows = row("cpu", size, cpu) + &row("virtual:0", size, gpu);
        lab(&place, name, "buffered", &rows);
    }
    let drawing = |paths: &[&str]| {
        let _ = fs::remove_dir_all(place.path().join("figures")); // that of an earlier call
        page(&place, &[paths, &["--svg", "figures"]].concat());
        fs::read_to_string(place.path().join("figures/00-products.svg")).unwrap()
    };
    let text = drawing(&["runs/*"]);
    let lines: Vec<&str> = text.split("<polyline ").skip(1).collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert!(text.contains(">cpu</text>") && text.contains(">virtual:0</text>"), "{text}");
    for line in lines {
        let points = line.split_once("points=\"").unwrap().1.split_once('"').unwrap().0;
        let points: Vec<f64> = points.split([' ', ',']).map(|number| number.parse().unwrap()).collect();
        let (x, y): (Vec<f64>, Vec<f64>) = points.chunks(2).map(|pair| (pair[0], pair[1])).unzip();
        assert!(x.is_sorted() && x[0] > 74.0 + 4.0 && x[2] < 640.0 - 24.0 - 4.0, "{text}");
        assert!(y.iter().all(|y| *y > 10.0 + 4.0 && *y < 320.0 - 44.0 - 4.0), "{text}");
    }
    // The product of 16 on the CPU twice.
    lab(&place, "d", "off", &row("cpu", 16, 0.0002));
    let text = drawing(&["runs/b", "runs/a", "runs/d"]);
    let names: Vec<&str> =
        text.split("</text>").filter_map(|part| part.rsplit_once('>').map(|own| own.1)).collect();
    for name in ["policy off name d cpu", "policy buffered name a cpu", "policy buffered name b virtual:0"] {
        assert!(names.contains(&name), "{name}: {names:?}");
    }
}

/// Both policies move the same bytes, one of them in a thousand copies that the host waits for.
#[test]
fn runs_show_what_logging_costs() {
    let place = Sandbox::new("");
    for (name, policy, calls) in [("a", "immediate", 1000), ("b", "buffered", 1)] {
        let row = "gpu:0,sequential,100,100,100,1000,1,0.001,2,0.5,3,0.001,0.0009,0.004\n";
        lab(&place, name, policy, row);
        let transfers = format!(
            "kind,purpose,from,to,count,noop_count,bytes,total_s,gb_per_s\n\
             d2h,log,gpu:0,cpu,{calls},0,4000,0.1,1\nsync,log,gpu:0,cpu,{calls},0,,0.1,\n"
        );
        fs::write(place.path().join("runs").join(name).join("transfers.csv"), transfers).unwrap();
    }
    let page = page(&place, &["runs/*"]);
    assert_eq!(table(&page, "Products and the times that one takes")[1][0], "#2");
    let (_, transfers) = page.split_once("<h2>Transfers</h2>").unwrap();
    let (bars, _) = transfers.split_once("<table").unwrap();
    let (bytes, calls) = bars.split_once("<h3>Copies and waits for the device</h3>").unwrap();
    assert_eq!(bytes.matches("width=\"100.000%\"").count(), 2, "{bytes}");
    for words in [
        "aria-label=\"d2h log: 3.9 KiB in 1,000; sync log: 1,000 waits\"",
        ">1,000 copies, 1,000 waits</span>",
        ">1 copy, 1 wait</span>",
        "width=\"0.050%\"",
    ] {
        assert!(calls.contains(words), "{words}: {calls}");
    }
}
