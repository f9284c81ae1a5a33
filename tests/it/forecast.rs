//! What `runner check` says of time and disk before a run, and what the run then takes.

use std::{fs, path::Path};

use super::process::Sandbox;

const SPEC: &str = "\
[data]
batch_size = 100
[data.synthetic_regression]
weights = [2.0, -3.4]
train_rows = 250
[model]
layers = [{ linear = { out_features = 4 } }, { linear = { out_features = 1 } }]
[optimizer.sgd]
lr = 1e-4
";

/// Bytes of a folder's files and folders, in blocks of a disk.
fn blocks(path: &Path) -> u64 {
    let own = fs::symlink_metadata(path).unwrap();
    let inner =
        if own.is_dir() { fs::read_dir(path).unwrap().map(|e| blocks(&e.unwrap().path())).sum() } else { 0 };
    inner + if own.is_dir() { 4096 } else { own.len().next_multiple_of(4096) }
}

/// The value of a line such as `disk       about 52 KiB in ...`.
fn line<'a>(page: &'a str, name: &str) -> Option<&'a str> {
    page.lines().find_map(|line| line.strip_prefix(&format!("  {name:<10} ")))
}

fn told_bytes(page: &str) -> f64 {
    let disk = line(page, "disk").unwrap_or_else(|| panic!("{page}"));
    let words: Vec<&str> =
        disk.trim_start_matches("at most ").trim_start_matches("about ").split(' ').collect();
    let unit = ["KiB", "MiB", "GiB"].iter().position(|unit| *unit == words[1]).unwrap();
    words[0].parse::<f64>().unwrap() * 1024_f64.powi(unit as i32 + 1)
}

#[test]
fn a_run_takes_the_bytes_that_check_tells() {
    let f1 = "logging.metrics=[\"loss\", \"accuracy\", \"f1\"]";
    let cases: [(bool, &[&str]); 7] = [
        (false, &[]),
        (false, &["trainer.max_epochs=400"]),
        (false, &["trainer.max_epochs=400", "logging.policy=per_epoch"]),
        (
            false,
            &["trainer.max_epochs=100", "logging.tensorboard=true", "logging.metrics=[\"loss\", \"lr\"]"],
        ),
        (
            false,
            &[
                "checkpoint.every_epochs=1",
                "checkpoint.keep_last=3",
                "model.layers.0.linear.out_features=2000",
            ],
        ),
        (false, &["trainer.max_epochs=30", "model.layers.0.linear.out_features=8,600", "seed=0,1"]),
        (true, &["trainer.max_epochs=30", f1]),
    ];
    let digits = std::path::absolute("experiments/digits.toml").unwrap();
    for (is_digits, overrides) in cases {
        let place = Sandbox::new(SPEC);
        let spec = if is_digits { digits.to_str().unwrap() } else { "spec.toml" };
        let check = place.runner(&[&["check", spec], overrides].concat()).ended_by(0);
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1, "it writes nothing");
        let run = place.runner(&[&[spec, "-q"], overrides].concat()).ended_by(0);
        let ratio = told_bytes(&check.stdout) / blocks(&place.path().join(run.stdout.trim())) as f64;
        assert!((0.9..1.1).contains(&ratio), "{overrides:?}: {ratio} {}", check.stdout);
    }
}

/// A step is measured on the run's own rows, and the time is of such steps. If others hold the processor, it is rough, and one line
/// says why.
#[test]
fn a_time_is_told() {
    let place = Sandbox::new(SPEC);
    let check = |more: &[&str]| {
        let own = ["check", "spec.toml", "trainer.max_epochs=3000000", "logging.policy=off"];
        let ended = place.runner(&[&own, more].concat());
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{ended:?}");
        let time = line(&ended.stdout, "time").unwrap_or_else(|| panic!("{}", ended.stdout)).to_owned();
        let is_busy = ended.stdout.contains(" measured, roughly: other processes used ");
        assert_eq!(time.contains("roughly "), is_busy, "{}", ended.stdout);
        let (about, parts) = time.split_once(": ").unwrap();
        assert!(
            about.ends_with(if is_busy { ", as others use the cores" } else { " on this machine" }),
            "{time}"
        );
        let step = ended.stdout.split_once(" measured").and_then(|(before, _)| before.rsplit_once("; "));
        (about.to_owned(), parts.to_owned(), step.map_or("", |(_, step)| step).to_owned())
    };
    let (about, parts, step) = check(&[]);
    assert!(
        !about.starts_with("at most ") && parts.starts_with(&format!("9,000,000 steps of {step}")),
        "{about}: {parts}"
    );
    let (about, parts, _) = check(&["seed=0..6", "--jobs", "2", "trainer.max_time=1s"]);
    assert!(about.starts_with("at most ") && parts.starts_with("6 trials of "), "{about}: {parts}");
    // The first diverges.
    let (_, parts, _) = check(&["optimizer.sgd.lr=1e30,1e-4"]);
    assert!(parts.starts_with("2 trials of "), "{parts}");
    let page = place.runner(&["check", "spec.toml", "devices.num_gpus=1", "--virtual-gpus=1"]).stdout;
    assert!(!page.contains("measured") && line(&page, "time").is_none(), "{page}");
    assert!(line(&page, "disk").is_some(), "{page}");
}

#[test]
fn the_largest_trial_is_the_one_whose_memory_is_told() {
    let place = Sandbox::new(SPEC);
    let page = place.runner(&["check", "spec.toml", "model.layers.0.linear.out_features=800,8"]);
    assert!(line(&page.stdout, "memory").unwrap().contains(", by trial 0; "), "{page:?}");
    let widths = "data.synthetic_regression.train_rows=250,90000,400";
    let page = place.runner(&["check", "spec.toml", widths, "--jobs", "2"]).stdout;
    let memory = line(&page, "memory").unwrap();
    assert!(memory.contains(", by trial 1, 2 at a time ") && memory.ends_with(" free"), "{memory}");
}

#[test]
fn what_does_not_fit_on_the_disk_is_warned_of() {
    let place = Sandbox::new(SPEC);
    let check = place.runner(&["check", "spec.toml", "trainer.max_epochs=1000000000000000"]);
    let warned = check.stderr.strip_prefix("warning: `runs` has ").unwrap_or_else(|| panic!("{check:?}"));
    assert!(warned.contains(" free, and this takes about ") && warned.lines().count() == 1, "{warned}");
    let quiet = place.runner(&["check", "-q", "spec.toml", "trainer.max_epochs=1000000000000000"]);
    assert!(quiet.stdout.is_empty() && quiet.stderr.starts_with("warning: `runs` has "), "{quiet:?}");
    // One that ends long before is not warned of.
    let ends = ["trainer.max_time=2s", "trainer.early_stopping.patience=2"];
    for end in ends {
        let check = place.runner(&["check", "spec.toml", "trainer.max_epochs=1000000000000000", end]);
        assert_eq!((check.code, check.stderr.as_str()), (Some(0), ""), "{check:?}");
        let disk = line(&check.stdout, "disk").unwrap();
        assert!(
            end == ends[0] && told_bytes(&check.stdout) < 1e10 || disk.ends_with(": it may not fit"),
            "{disk}"
        );
    }
}

/// Counts beyond 64 bits stay at the greatest number, and are called the least.
#[test]
fn runs_of_any_length_are_foretold() {
    let spec = SPEC.replace("train_rows = 250", "train_rows = 250\nvalidation_rows = 50")
        + "[checkpoint]\nkeep_last = 1000000000000000000\n";
    let place = Sandbox::new(&spec);
    for settings in [
        &["logging.policy=immediate"][..],
        &["logging.policy=buffered", "checkpoint.every_steps=1"],
        &["logging.policy=per_epoch", "checkpoint.every_epochs=2"],
        &["logging.policy=off", "trainer.validate_every_epochs=0", "~checkpoint"],
        &["data.placement=streamed", "trainer.validate_every_steps=1", "logging.tensorboard=true"],
    ] {
        let long = ["check", "spec.toml", "trainer.max_epochs=9000000000000000000"];
        let most = "18,446,744,073,709,551,615";
        let steps = |page: &str| {
            assert!(line(page, "steps").unwrap().starts_with(&format!("at least {most}")), "{page}")
        };
        steps(&place.runner(&[&long, settings].concat()).ended_by(0).stdout);
        let gpus = ["devices.num_gpus=4", "--virtual-gpus=4"];
        let page = place.runner(&[&long, settings, &gpus[..]].concat()).ended_by(0).stdout;
        steps(&page);
        let summed = page.lines().find(|line| line.contains("all_reduce")).unwrap();
        assert!(summed.trim_end().ends_with(&format!(" at least {most}  at least {most}")), "{page}");
        assert_eq!(page.matches(most).count(), page.matches(&format!("at least {most}")).count(), "{page}");
        let disk = line(&page, "disk").unwrap();
        assert!(disk.starts_with("at least 16 EiB in ") || settings[0] == "logging.policy=off", "{page}");
    }
}
