//! Sweeps of lab experiments: which trials are compared, and which would only repeat another.

use super::process::{Ended, Sandbox};

/// The lines of the trials at the end, times left out.
fn trials(ended: &Ended) -> Vec<String> {
    let lines = ended.stdout.lines().filter(|line| line.starts_with("  trial ") && line.contains(": "));
    lines
        .map(|line| {
            let words: Vec<&str> = line.trim().split(' ').collect();
            let is_time = |word: &str| word.parse::<f64>().is_ok() && !word.ends_with(':');
            let mut kept: Vec<&str> = Vec::new();
            let mut words = words.into_iter();
            while let Some(word) = words.next() {
                if kept.last() == Some(&"in") && is_time(word) {
                    // The unit.
                    let unit = words.next().unwrap_or_default();
                    kept.push(if unit.ends_with(',') { "TIME," } else { "TIME" });
                } else {
                    kept.push(if word.ends_with('x') && word.contains('.') { "RATIO" } else { word });
                }
            }
            kept.join(" ")
        })
        .collect()
}

const SPEC: &str = "\
kind = \"matmul\"
name = \"products\"
[matmul]
sizes = [16]
count = 20
";

#[test]
fn a_ratio_is_given_only_between_trials_that_do_the_same() {
    let place = Sandbox::new(SPEC);
    let ended = place.runner(&["spec.toml", "logging.policy=immediate,buffered", "matmul.sizes=[16],[32]"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(
        trials(&ended),
        [
            "trial 0: finished in TIME",
            "trial 1: finished in TIME",
            "trial 2: finished in TIME, RATIO as fast as trial 0",
            "trial 3: finished in TIME, RATIO as fast as trial 1",
        ]
    );
    let ended = place.runner(&["spec.toml", "matmul.count=20,40", "matmul.norm=none,trace"]);
    assert_eq!(trials(&ended), [0, 1, 2, 3].map(|trial| format!("trial {trial}: finished in TIME")));
    // A repeat has its own factors and is compared with its own kind.
    let ended = place.runner(&["spec.toml", "logging.policy=off,buffered", "sweep.repeats=2"]);
    assert_eq!(
        trials(&ended),
        [
            "trial 0: finished in TIME",
            "trial 1: finished in TIME, RATIO as fast as trial 0",
            "trial 2: finished in TIME",
            "trial 3: finished in TIME, RATIO as fast as trial 2",
        ]
    );
    // Virtual devices have none.
    let ended = place.runner(&["spec.toml", "devices.num_gpus=0,1", "--virtual-gpus", "1"]);
    assert_eq!(trials(&ended), [0, 1].map(|trial| format!("trial {trial}: finished in TIME")));
}

#[test]
fn one_device_has_no_order() {
    let place = Sandbox::new(SPEC);
    let order = "matmul.order=sequential,concurrent";
    for devices in ["devices.use=[\"cpu\"]", "devices.use=[\"gpu:0\", \"gpu:1\"]"] {
        let ran = place.run(&[devices, "devices.on_missing=clamp", order, "--virtual-gpus", "0"]);
        let table = ran.ended_by(0).table("sweep.csv");
        assert_eq!(table.column("status"), ["finished", "same_as"], "{table:?}");
        assert_eq!(table.column("folder"), ["000-matmul.order=sequential"; 2]);
        assert_eq!(
            trials(&ran.ended),
            ["trial 0: finished in TIME", "trial 1: same_as trial 0, not run twice"]
        );
    }
    let check = place.runner(&["check", "spec.toml", order]);
    assert!(check.stdout.starts_with("products: 2 trials, 1 run\n"), "{}", check.stdout);
    // Two devices have an order.
    let two = ["devices.use=[\"cpu\", \"gpu:0\"]", order, "--virtual-gpus", "1"];
    let table = place.run(&two).ended_by(0).table("sweep.csv");
    assert_eq!(table.column("status"), ["finished", "finished"]);
}
