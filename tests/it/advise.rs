//! `runner check --advise`: which settings are tried, which are left out, and both figures (predicted and
//! measured) of each.

use super::process::Sandbox;

pub const SPEC: &str = "\
[data]
batch_size = 100
[data.synthetic_regression]
weights = [2.0, -3.4]
train_rows = 250
[model]
layers = [{ linear = { out_features = 1 } }]
[optimizer.sgd]
lr = 0.03
";

/// The first column of the table, and the lines after the table.
fn advice(place: &Sandbox, arguments: &[&str]) -> (Vec<String>, Vec<String>) {
    let ended = place.runner(&[&["check", "spec.toml", "--advise", "-q"], arguments].concat());
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{ended:?}");
    let text = ended.stdout.strip_prefix("\nadvice\n").unwrap_or_else(|| panic!("{}", ended.stdout));
    let (notes, rows): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| {
        ["  not ", "  no verdict: ", "  nothing ", "  faster: ", "  other processes ", "  p: "]
            .iter()
            .any(|head| line.starts_with(head))
    });
    let settings = rows.iter().skip(2).map(|row| row.trim_start().split("  ").next().unwrap().to_owned());
    (settings.collect(), notes.into_iter().map(str::to_owned).collect())
}

#[test]
fn each_setting_that_fits_is_tried() {
    let place = Sandbox::new(SPEC);
    let (settings, notes) = advice(&place, &["--threads", "2", "logging.policy=immediate"]);
    assert_eq!(
        settings,
        [
            "as it is",
            "data.batch_size=200",
            "devices.engine=team --threads 2",
            "logging.policy=buffered",
            "logging.policy=per_epoch",
            "logging.policy=off"
        ]
    );
    for note in [
        "  not tried: `data.batch_size=400`: there are 250 training rows",
        "  not tried: `data.placement`: the CPU computes in the memory that holds the rows",
    ] {
        assert!(notes.iter().any(|line| line == note), "{notes:?}");
    }
    // A busy machine gives no verdict; a quiet one corrects for all settings at once.
    let starts = |head: &str| notes.iter().filter(|line| line.starts_with(head)).count();
    let of_all = "  p: sign test against changes below 2 %, by Holm for 5 settings at once";
    assert_eq!(starts("  no verdict: other processes used ") + starts(of_all), 1, "{notes:?}");
    // A setting that is called faster must be among those that were tried.
    for line in notes.iter().filter_map(|line| line.strip_prefix("  faster: ")) {
        assert!(settings.iter().any(|setting| line.starts_with(setting)), "{line}");
    }
}

#[test]
fn nothing_is_tried_where_times_say_nothing() {
    let place = Sandbox::new(SPEC);
    let (_, notes) = advice(&place, &["--virtual-gpus", "1", "devices.num_gpus=1"]);
    let why = "virtual devices share the host's processor, so their times say nothing of GPUs";
    assert_eq!(notes, [format!("  nothing was tried: {why}")]);
    let lab = Sandbox::new("kind = \"matmul\"\n");
    assert_eq!(lab.runner(&["check", "spec.toml", "--advise"]).code, Some(2));
}

/// What a run is judged by, and what its metrics need, does not matter for its speed.
#[test]
fn any_monitor_will_do() {
    let place = Sandbox::new("");
    let penguins = concat!(env!("CARGO_MANIFEST_DIR"), "/experiments/penguins.toml");
    let words = ["trainer.monitor=validation.f1", "trainer.restore_best=true", "logging.metrics=[loss,f1]"];
    let ended = place.runner(&[&["check", penguins, "--advise", "-q"], &words[..]].concat()).ended_by(0);
    assert!(ended.stdout.starts_with("\nadvice\n  each setting trained "), "{ended:?}");
}
