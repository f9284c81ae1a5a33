//! The lab as a user sees it: products and their norms, copies, a tour of tensors. Files are read back,
//! numbers are compared with double precision, and copies are counted.

mod sweeps;
mod tour;

use std::{fs, path::Path};

use runner::{
    random::{Purpose, Rng, stream},
    spec::{self, Loaded},
};

use self::tour::TWO;
use crate::process::{Ended, Sandbox, Table};

/// Uniform in [0, 1), with the same numbers as the lab.
fn random(len: usize, seed: u64, index: u64) -> Vec<f64> {
    let mut stream = stream(seed, Purpose::Tensor, index);
    (0..len).map(|_| f64::from((stream.next_u32() >> 8) as f32 * (1.0 / 16_777_216.0))).collect()
}

/// The sum of squares of the product of random factors, for the shape at `index` of a spec.
fn sum_of_squares([m, k, n]: [usize; 3], seed: u64, index: u64) -> f64 {
    let (a, b) = (random(m * k, seed, 2 * index), random(k * n, seed, 2 * index + 1));
    let element = |i: usize, j: usize| -> f64 { (0..k).map(|t| a[i * k + t] * b[t * n + j]).sum() };
    (0..m).flat_map(|i| (0..n).map(move |j| (i, j))).map(|(i, j)| element(i, j).powi(2)).sum()
}

#[track_caller]
fn near(got: f64, want: f64) {
    assert!((got / want - 1.0).abs() < 1e-5, "{got} is not {want}");
}

const MATMUL: &str = "\
kind = \"matmul\"
name = \"products\"
seed = 5
[devices]
use = [\"cpu\", \"gpu:1\"]
[matmul]
shapes = [[3, 5, 7], [33, 31, 17]]
count = 10
";

/// Count, count of no-ops and bytes of one kind and purpose in `transfers.csv`.
fn traffic(table: &Table, kind: &str, purpose: &str, [from, to]: [&str; 2]) -> Option<[String; 3]> {
    let row = (0..table.rows.len()).find(|&row| {
        ["kind", "purpose", "from", "to"].map(|column| table.cell(row, column)) == [kind, purpose, from, to]
    })?;
    Some(["count", "noop_count", "bytes"].map(|column| table.cell(row, column).to_owned()))
}

#[test]
fn norms_are_those_of_double_precision_under_every_policy() {
    let place = Sandbox::new(MATMUL);
    let shapes = [[3, 5, 7], [33, 31, 17]];
    // Copies of the log for each shape, and norms per block.
    for (policy, copies, rows) in
        [("immediate", 10, 10), ("buffered", 3, 10), ("per_epoch", 1, 1), ("off", 0, 0)]
    {
        let policy_key = format!("logging.policy={policy}");
        for (norm, root) in [("frobenius", 0.5), ("trace", 1.0)] {
            let norm_key = format!("matmul.norm={norm}");
            let arguments = [policy_key.as_str(), &norm_key, "logging.flush_every=4", "--virtual-gpus", "2"];
            let folder = place.run(&arguments).ended_by(0);
            let text = folder.text("matmul.csv");
            let header = "device,order,m,k,n,count,total_s,mean_s,gflop_per_s,log_s,norm_sum,p50_s,min_s,max_s,threads";
            assert_eq!(text.lines().next(), Some(header));
            let table = folder.table("matmul.csv");
            assert_eq!(table.column("device"), ["cpu", "virtual:1", "cpu", "virtual:1"]);
            assert_eq!(table.column("order"), ["sequential"; 4]);
            assert_eq!(table.column("m"), ["3", "3", "33", "33"]);
            assert_eq!(table.column("threads"), ["1"; 4]);
            for row in 0..4 {
                let shape = shapes[row / 2];
                let number = |column: &str| table.cell(row, column).parse::<f64>().unwrap();
                let (total, flop) = (number("total_s"), 2.0 * shape.iter().product::<usize>() as f64);
                near(number("mean_s") * 10.0, total);
                near(number("gflop_per_s"), flop * 10.0 / total / 1e9);
                assert!(number("log_s") <= total);
                let [least, median, most] = ["min_s", "p50_s", "max_s"].map(number);
                assert!(0.0 < least && least <= median && median <= most && most <= total, "{text}");
                assert!(least <= number("mean_s"), "{text}");
                if policy == "off" {
                    assert_eq!((table.cell(row, "norm_sum"), number("log_s")), ("", 0.0));
                } else {
                    let exact = sum_of_squares(shape, 5, row as u64 / 2).powf(root);
                    near(number("norm_sum"), 10.0 * exact);
                }
            }
            let moved = folder.table("transfers.csv");
            let log = traffic(&moved, "d2h", "log", ["virtual:1", "cpu"]);
            let bytes = 2 * rows * 4;
            let expected = [2 * copies, 0, bytes].map(|n: u64| n.to_string());
            assert_eq!(log, (copies > 0).then_some(expected), "{policy}");
            // Each read waits once.
            let waits = traffic(&moved, "sync", "log", ["virtual:1", "cpu"]).map(|[count, ..]| count);
            assert_eq!(waits, (copies > 0).then(|| (2 * copies).to_string()), "{policy}");
            let factors = [3 * 5 + 5 * 7, 33 * 31 + 31 * 17].iter().sum::<u64>() * 4;
            let uploads = traffic(&moved, "h2d", "tensor", ["cpu", "virtual:1"]);
            assert_eq!(uploads, Some(["4".into(), "0".into(), factors.to_string()]));
            assert_eq!(
                traffic(&moved, "h2d", "tensor", ["cpu", "cpu"]),
                Some(["0".into(), "4".into(), "0".into()])
            );
            assert_eq!(folder.summary("virtual"), "true");
            assert_eq!(folder.summary("steps"), "40");
            if policy == "off" {
                assert!(!folder.files().contains(&"norms.csv".to_owned()));
                continue;
            }
            let norms = folder.table("norms.csv");
            assert_eq!(norms.columns, ["device", "m", "k", "n", "index", "norm"]);
            let own = norms.only("device", "virtual:1").only("m", "33");
            assert_eq!(own.rows.len() as u64, rows);
            assert_eq!(own.column("index").last(), Some(&"10"));
            own.f64s("norm").iter().for_each(|got| near(*got, sum_of_squares(shapes[1], 5, 1).powf(root)));
        }
    }
}

/// Where time ends a shape, the number of products is the most.
#[test]
fn products_that_time_may_end_are_at_most_so_many() {
    let place =
        Sandbox::new("kind = \"matmul\"\nname = \"products\"\n[matmul]\nsizes = [16, 32]\ncount = 20\n");
    let first = |more: &[&str]| {
        let ran = place.run(&[&["--virtual-gpus", "0"], more].concat());
        ran.ended.stderr.lines().next().unwrap_or_default().to_owned()
    };
    assert_eq!(first(&[]), "products: 20 products of each of 2 shapes, on cpu");
    let limited = ["matmul.max_time=1s", "matmul.sizes=[16]"];
    assert_eq!(first(&limited), "products: at most 20 products of [16, 16] x [16, 16], on cpu");
    assert_eq!(first(&limited[..1]), "products: at most 20 products of each of 2 shapes, on cpu");
}

/// A median of one product says little, so time ends a shape after three at the earliest.
#[test]
fn three_products_of_a_shape_are_done_whatever_the_time() {
    let place = Sandbox::new("kind = \"matmul\"\n[matmul]\nsizes = [512]\nmax_time = \"1ms\"\n");
    let count = |products: &str| {
        let folder = place.run(&["--virtual-gpus", "0", "--threads", "1", products]).ended_by(0);
        folder.table("matmul.csv").cell(0, "count").to_owned()
    };
    assert_eq!(["matmul.count=20", "matmul.count=2"].map(count), ["3", "2"]);
    let page = place.runner(&["check", "spec.toml"]).ended_by(0).stdout;
    assert!(page.contains("none but the first 3 begins after 1.00 ms\n"), "{page}");
}

/// All threads share products that are long enough for that, and the row tells how many did.
#[test]
fn a_row_tells_how_many_threads_shared_its_products() {
    let place = Sandbox::new("kind = \"matmul\"\n[matmul]\nshapes = [[1, 8, 8], [2048, 2048, 2048]]\n");
    let ran = place.run(&["--virtual-gpus", "0", "--threads", "2", "matmul.count=1", "matmul.norm=none"]);
    assert_eq!(ran.ended_by(0).table("matmul.csv").column("threads"), ["1", "2"]);
    let head = "  device             product  threads  count  ";
    assert!(ran.ended.stdout.contains(head), "{}", ran.ended.stdout);
}

#[test]
fn a_run_is_repeated_by_its_resolved_spec_and_order_changes_no_number() {
    let place = Sandbox::new(MATMUL);
    let first = place.run(&["--virtual-gpus", "2"]).ended_by(0);
    let spec = first.0.join("spec.toml");
    let head = fs::read_to_string(&spec).unwrap();
    let command = format!("# runner {} --virtual-gpus 2\n", fs::canonicalize(&spec).unwrap().display());
    assert!(head.starts_with(&command), "{head}");
    let repeat = Sandbox::with_spec(&spec);
    let again = repeat.run(&["--virtual-gpus", "2", "matmul.order=concurrent"]).ended_by(0);
    let sorted = |text: String| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(again.text("norms.csv")), sorted(first.text("norms.csv")));
    assert_eq!(again.table("matmul.csv").column("order"), ["concurrent"; 4]);
}

#[test]
fn every_spec_of_the_lab_reads_back_the_same() {
    let mut count = 0;
    for entry in fs::read_dir("experiments").unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "toml") {
            continue;
        }
        let Ok(Loaded::Lab(experiment)) = spec::read(&path, &[]) else { continue };
        let text = experiment.trials[0].spec.to_toml();
        let place = Sandbox::new(&text);
        let Ok(Loaded::Lab(again)) = spec::read(&place.path().join("spec.toml"), &[]) else {
            panic!("{text}")
        };
        assert_eq!(again.trials[0].spec, experiment.trials[0].spec, "{text}");
        assert_eq!(again.trials[0].spec.hash8(), experiment.trials[0].spec.hash8());
        count += 1;
    }
    assert!(count >= 6, "{count} specs of the lab");
}

const TRANSFER: &str = "\
kind = \"transfer\"
name = \"copies\"
[devices]
num_gpus = \"all\"
[transfer]
sizes = [\"4KiB\", 400]
count = 5
";

#[test]
fn copies_are_measured_by_direction_and_size() {
    let place = Sandbox::new(TRANSFER);
    let ran = place.run(&["--virtual-gpus", "2"]);
    let folder = ran.ended_by(0);
    let warning = "warning: `pinned` needs a GPU's driver, and virtual GPUs have none: it is left out";
    assert_eq!(ran.ended.stderr.lines().nth(1), Some(warning));
    let table = folder.table("transfer.csv");
    assert_eq!(
        table.columns,
        ["from", "to", "memory", "bytes", "count", "mean_s", "p50_s", "gb_per_s", "min_s", "max_s"]
    );
    let routes: Vec<String> = (0..table.rows.len())
        .map(|row| ["from", "to", "memory", "bytes"].map(|column| table.cell(row, column)).join(" "))
        .collect();
    let mut expected = Vec::new();
    for (from, to, memory) in [
        ("cpu", "virtual:0", "pageable"),
        ("cpu", "virtual:1", "pageable"),
        ("virtual:0", "cpu", "pageable"),
        ("virtual:1", "cpu", "pageable"),
        ("virtual:0", "virtual:1", ""),
        ("virtual:1", "virtual:0", ""),
    ] {
        expected.extend([4096, 400].map(|bytes| format!("{from} {to} {memory} {bytes}")));
    }
    assert_eq!(routes, expected);
    for row in 0..table.rows.len() {
        let number = |column: &str| table.cell(row, column).parse::<f64>().unwrap();
        near(number("gb_per_s"), number("bytes") / number("p50_s") / 1e9);
        assert!(0.0 < number("min_s") && number("min_s") <= number("p50_s"));
        assert!(number("p50_s") <= number("max_s") && number("mean_s") <= number("max_s"));
        assert_eq!(number("count"), 5.0);
    }
    // One copy more than is counted: the first only touches fresh memory.
    let moved = folder.table("transfers.csv");
    let bytes = (6 * (4096 + 400)).to_string();
    for (kind, route) in
        [("h2d", ["cpu", "virtual:1"]), ("d2h", ["virtual:0", "cpu"]), ("d2d", ["virtual:0", "virtual:1"])]
    {
        assert_eq!(traffic(&moved, kind, "tensor", route), Some(["12".into(), "0".into(), bytes.clone()]));
    }
}

#[test]
fn without_a_gpu_only_copies_within_memory_are_measured_and_it_is_said() {
    let place = Sandbox::new(TRANSFER);
    let ran = place.run(&["--virtual-gpus", "0"]);
    let table = ran.ended_by(0).table("transfer.csv");
    assert_eq!((table.column("from"), table.column("to")), (vec!["cpu"; 2], vec!["cpu"; 2]));
    assert_eq!(table.column("memory"), ["", ""]);
    let warning = "warning: `h2d` and `d2h` need a GPU: the CPU's memory is the host's, so nothing is moved; no GPU can be \
                   used (`--virtual-gpus 0` hides every one); `--virtual-gpus 1` poses as one";
    assert_eq!(ran.ended.stderr.lines().nth(1), Some(warning));
}

#[test]
fn missing_devices_are_an_error_unless_the_spec_says_otherwise() {
    let place = Sandbox::new(&format!("kind = \"tensors\"\n{TWO}"));
    let ended = place.runner(&["spec.toml", "--virtual-gpus", "1"]);
    assert_eq!(
        (ended.code, ended.stderr.as_str()),
        (
            Some(3),
            "error: `gpu:1` is not there
 --> spec.toml:9:10
  |
9 | device = \"gpu:1\"
  |          ^^^^^^^ this machine has 1 virtual GPU
  |
  = hint: `devices.on_missing = \"clamp\"` puts their tensors on the CPU
"
        )
    );
    let check = place.runner(&["check", "spec.toml", "--virtual-gpus", "1"]);
    assert_eq!(check.code, Some(3));
    let refused = place.command(&["spec.toml"]).env("RUNNER_VIRTUAL_GPUS", "many").output().unwrap();
    let refused = Ended::from_output(refused);
    assert_eq!(
        (refused.code, refused.stderr.as_str()),
        (
            Some(2),
            "error: `RUNNER_VIRTUAL_GPUS` is `many`: expected a number from 0 to 64\n  = hint: it sets \
             `--virtual-gpus N`; unset it to use the real GPUs\n"
        )
    );
    let two = place.command(&["check", "spec.toml"]).env("RUNNER_VIRTUAL_GPUS", "2").output().unwrap();
    assert_eq!(Ended::from_output(two).code, Some(0));
    assert!(!place.path().join("runs").exists());
}

#[test]
fn a_sweep_over_orders_and_missing_devices_has_a_row_per_trial() {
    let place = Sandbox::new(&format!(
        "{MATMUL}norm = \"none\"\n[sweep]\ngrid = {{ \"matmul.order\" = [\"sequential\", \"concurrent\"] }}\n"
    ));
    let ran = place.run(&[
        "--virtual-gpus",
        "2",
        "devices.on_missing=clamp",
        "~devices.use",
        "devices.num_gpus=2,3",
    ]);
    let folder = ran.ended_by(0);
    let table = folder.table("sweep.csv");
    assert_eq!(table.column("status"), ["finished", "same_as", "finished", "same_as"], "{:?}", ran.ended);
    assert_eq!(table.column("devices_used"), ["virtual:0;virtual:1", "", "virtual:0;virtual:1", ""]);
    let trial = Path::new(table.cell(2, "folder"));
    assert!(folder.0.join(trial).join("matmul.csv").is_file());
    // No ratios of virtual devices' times.
    assert!(!ran.ended.stdout.contains("x\n"), "{}", ran.ended.stdout);
    assert!(ran.ended.stdout.contains("their times say nothing of GPUs"), "{}", ran.ended.stdout);
}

#[test]
fn too_much_memory_is_refused() {
    let place = Sandbox::new("kind = \"matmul\"\n[matmul]\nsizes = [4000000]\n");
    let ended = place.runner(&["check", "spec.toml"]);
    assert_eq!(ended.code, Some(2));
    let message = "error: this needs 175 TiB of memory on the host, and ";
    assert!(ended.stderr.starts_with(message), "{}", ended.stderr);
    assert!(ended.stderr.contains("\n  = hint: make it smaller\n"), "{}", ended.stderr);
}
