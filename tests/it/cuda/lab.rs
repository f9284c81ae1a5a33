//! Lab experiments on GPUs: tensors, products and copies behave as on virtual GPUs.

use std::path::Path;

use super::Sim;
use crate::process::{Sandbox, Table};

const TWO: [(&str, &str); 1] = [("RUNNER_SIM_DEVICES", "2")];

fn spec(name: &str) -> Sandbox {
    Sandbox::with_spec(&std::path::absolute(Path::new("experiments").join(name)).unwrap())
}

/// The printed words without times and folders; virtual GPUs are named like real ones.
fn words(text: &str) -> Vec<String> {
    let kept = text.lines().filter(|line| !line.contains(" finished in ") && !line.contains("folder"));
    kept.flat_map(str::split_whitespace).map(|word| word.replace("virtual:", "gpu:")).collect()
}

#[test]
fn tensors_and_parameters_are_those_of_virtual_gpus() {
    let Some(sim) = Sim::get() else { return };
    for name in ["tensors.toml", "parameters.toml"] {
        let place = spec(name);
        let (expected, got) = (place.run(&["--virtual-gpus", "2"]), sim.run(&place, &[], &TWO));
        assert_eq!((expected.ended.code, got.ended.code), (Some(0), Some(0)), "{}", got.ended.stderr);
        assert!(expected.ended.stdout.contains("device='virtual:1'"), "{}", expected.ended.stdout);
        assert_eq!(words(&got.ended.stdout), words(&expected.ended.stdout), "{name}");
        let (expected, got) = (expected.folder(), got.folder());
        for file in ["tensors.csv", "transfers.csv"] {
            let columns = |folder: &crate::process::Folder| {
                let table = Table::read(&folder.text(file).replace("virtual:", "gpu:"));
                table.rows.iter().map(|row| row[..7].join(",")).collect::<Vec<_>>()
            };
            assert_eq!(columns(&got), columns(&expected), "{name}: {file}");
        }
    }
}

#[test]
fn products_and_their_norms_agree_with_the_cpu() {
    let Some(sim) = Sim::get() else { return };
    for norm in ["frobenius", "trace"] {
        for policy in ["immediate", "buffered"] {
            let arguments = [
                "devices.use=[\"cpu\", \"gpu:0\", \"gpu:1\"]",
                "~matmul.sizes",
                "matmul.shapes=[[3, 5, 7], [33, 20, 17]]",
                "matmul.count=9",
                &format!("matmul.norm={norm}"),
                &format!("logging.policy={policy}"),
            ];
            let place = spec("matmul.toml");
            let run = sim.run(&place, &arguments, &TWO).ended_by(0);
            let table = run.table("matmul.csv");
            let reads = if policy == "immediate" { 2 * 9 } else { 2 };
            let waits = run.table("transfers.csv").only("kind", "sync").only("purpose", "log");
            assert_eq!(waits.f64s("count"), [f64::from(reads); 2], "{policy}: one wait per read");
            let [least, median, most, all] =
                ["min_s", "p50_s", "max_s", "total_s"].map(|column| table.f64s(column));
            for row in 0..6 {
                let times = [0.0, least[row], median[row], most[row], all[row]];
                assert!(times.is_sorted() && median[row] > 0.0, "{times:?}");
            }
            let sums = table.f64s("norm_sum");
            assert_eq!(table.column("device"), ["cpu", "gpu:0", "gpu:1"].repeat(2));
            for sums in sums.chunks(3) {
                let near = |sum: &f64| (sum - sums[0]).abs() < 1e-5 * sums[0].abs();
                assert!(sums.iter().all(near), "{norm}, {policy}: {sums:?}");
            }
        }
    }
}

#[test]
fn copies_go_through_pageable_and_pinned_memory_and_between_gpus() {
    let Some(sim) = Sim::get() else { return };
    let place = spec("transfer.toml");
    let run = sim.run(&place, &["transfer.count=2"], &TWO).ended_by(0);
    let table = run.table("transfer.csv");
    let (from, to, memory) = (table.column("from"), table.column("to"), table.column("memory"));
    for wanted in [
        ("cpu", "gpu:0", "pinned"),
        ("gpu:1", "cpu", "pageable"),
        ("gpu:0", "cpu", "pinned"),
        ("gpu:0", "gpu:1", ""),
    ] {
        let there = (0..from.len()).any(|i| (from[i], to[i], memory[i]) == wanted);
        assert!(there, "{wanted:?} is not in\n{}", run.text("transfer.csv"));
    }
}

#[test]
fn gpus_are_compared_with_the_cpu_and_two_at_once_with_turns() {
    let Some(sim) = Sim::get() else { return };
    let place = spec("matmul.toml");
    let said = sim.run(&place, &["matmul.sizes=[16, 48]", "matmul.count=2"], &[]).ended.stdout;
    let line = said.lines().find(|line| line.contains("gpu:0 against cpu: ")).unwrap();
    assert!(line.contains("x at 16 x 16 x 16, ") && line.contains("x at 48 x 48 x 48: "), "{line}");
    let place = spec("matmul_order.toml");
    let sizes = "matmul.sizes=[16]";
    let orders = "matmul.order=sequential,concurrent";
    // The first trial must take at least 3 ms: below that the cold start dominates, and no comparison is
    // printed.
    let ran = sim.run(&place, &["~sweep", sizes, orders, "matmul.count=500"], &TWO);
    let out = &ran.ended.stdout;
    assert!(out.contains("products/s vs #0"), "{out}");
}
