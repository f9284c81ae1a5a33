//! Sweeps of lab experiments: the closing table, and which trials would only repeat another.

use crate::process::Sandbox;

const SPEC: &str = "\
kind = \"matmul\"
name = \"products\"
[matmul]
sizes = [16]
count = 20
";

#[test]
fn the_end_of_a_sweep_is_that_of_any_other_with_its_figures() {
    let place = Sandbox::new(SPEC);
    let ended = place
        .runner(&["spec.toml", "matmul.sizes=[16],[32]", "logging.policy=immediate,buffered"])
        .ended_by(0);
    let out = &ended.stdout;
    for part in [
        "products: 4 trials, 4 finished\n",
        "products/s vs ",
        "products, GFLOP/s\n",
        "[16, 16] x [16, 16]",
        "[32, 32] x [32, 32]",
        "#3",
        "\n  folder ",
    ] {
        assert!(out.contains(part), "{part}\nis not in\n{out}");
    }
}

/// The two ways of watching take turns, and what is shown is the median of six with its interval.
#[test]
fn the_cost_of_watching_is_that_of_repeats_in_turns() {
    let place = Sandbox::with_spec(&std::path::absolute("experiments/matmul_log.toml").unwrap());
    let ran = place.run(&["--virtual-gpus", "1", "matmul.count=20"]);
    let table = ran.ended_by(0).table("sweep.csv");
    assert_eq!(table.column("logging.policy"), ["immediate", "buffered"].repeat(6));
    let out = &ran.ended.stdout;
    let lines: Vec<&str> = out.lines().map(str::trim).filter(|line| !line.starts_with("noise: ")).collect();
    let words = |line: &str| line.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
    assert_eq!(lines[0], "matmul_log: 12 trials, 12 finished");
    assert_eq!(lines[2].split("  ").next(), Some("logging.policy"), "{out}");
    assert_eq!([words(lines[3]), words(lines[4])], ["immediate 6", "buffered 6"], "{out}");
    assert!(lines[2].contains("96.9 % interval"), "{out}");
    let why = "no table of what a logging policy costs: virtual devices share the host's processor and memory: their times say nothing \
               of GPUs";
    assert!(lines.contains(&why) && out.matches("say nothing of GPUs").count() == 1, "{out}");
    let compared = place.runner(&["compare", &ran.ended_by(0).0.display().to_string()]).stdout;
    let first =
        "12 runs; virtual devices share the host's processor and memory: their times say nothing of GPUs";
    assert!(
        compared.starts_with(first) && compared.matches("say nothing of GPUs").count() == 1,
        "{compared}"
    );
    assert!(!out.contains("products, GFLOP/s"), "single repeats are left to `compare`: {out}");
}

#[test]
fn one_device_has_no_order() {
    let place = Sandbox::new(SPEC);
    let order = "matmul.order=sequential,concurrent";
    for devices in ["devices.use=[\"cpu\"]", "devices.use=[\"gpu:0\", \"gpu:1\"]"] {
        let ran = place.run(&[devices, "devices.on_missing=clamp", order, "--virtual-gpus", "0"]);
        let table = ran.ended_by(0).table("sweep.csv");
        assert_eq!(table.column("status"), ["finished", "same_as"], "{table:?}");
        assert_eq!(table.column("folder"), ["000-order=sequential"; 2]);
    }
    let check = place.runner(&["check", "spec.toml", order]);
    assert!(check.stdout.starts_with("products: 2 trials, 1 run\n"), "{}", check.stdout);
    // With two devices the order matters.
    let two = ["devices.use=[\"cpu\", \"gpu:0\"]", order, "--virtual-gpus", "1"];
    let table = place.run(&two).ended_by(0).table("sweep.csv");
    assert_eq!(table.column("status"), ["finished", "finished"]);
}
