//! `runner check` and `runner devices` on a terminal of 80 columns: lines break between words, and tables fit.

use super::process::{Ended, Sandbox};

const SPEC: &str = r#"
name = "wide"
[data.synthetic_regression]
weights = [2.0, -3.4]
[model]
layers = [{ linear = { out_features = 4 } }, "relu", { linear = { out_features = 1 } }]
[optimizer.adam]
lr = 0.01
"#;

/// The output in a terminal of this width, or in a file.
fn printed(place: &Sandbox, arguments: &[&str], columns: Option<u16>) -> String {
    let mut command = place.command(arguments);
    // Taken from the parent alone, which is this process.
    command.envs(columns.map(|columns| ("RUNNER_COLUMNS", format!("{columns} {}", std::process::id()))));
    let ended = Ended::from_output(command.output().unwrap()).ended_by(0);
    ended.stdout
}

#[test]
fn lines_break_between_words() {
    let place = Sandbox::new(SPEC);
    for arguments in [&["check", "spec.toml", "devices.num_gpus=2", "--virtual-gpus=2"][..], &["devices"]] {
        let [wide, narrow] = [None, Some(80)].map(|columns| printed(&place, arguments, columns));
        assert!(wide.lines().any(|line| line.chars().count() > 80), "{wide}");
        let unbroken: Vec<&str> = narrow.lines().filter(|line| line.chars().count() > 80).collect();
        assert_eq!(unbroken, [""; 0], "{narrow}");
        let names = |text: &str| text.split_whitespace().filter(|w| w.len() > 12).count();
        assert_eq!(names(&narrow), names(&wide), "no word is broken");
    }
}

/// Columns that do not fit stand below, each part with the number of hosts.
#[test]
fn the_table_of_hosts_fits() {
    let place = Sandbox::new(SPEC);
    let arguments = ["check", "spec.toml", "--hosts=1,2", "--link=1GB/s,10s"];
    let text = printed(&place, &arguments, Some(60));
    let headings: Vec<&str> = text.lines().filter(|line| line.starts_with("  hosts  ")).collect();
    assert!(headings.len() > 1, "{text}");
    let titles: Vec<&str> = headings.iter().flat_map(|line| line.split("  ")).map(str::trim).collect();
    for title in ["rows each", "computes", "sums", "step", "speed-up", "efficiency"] {
        assert!(titles.contains(&title), "{title}: {text}");
    }
    let widest = text.lines().map(|line| line.chars().count()).max();
    assert!(widest <= Some(60), "{text}");
}

/// What all trials have in common stands below a table that would be too wide.
#[test]
fn the_table_of_trials_fits() {
    let place = Sandbox::new(SPEC);
    let arguments = [
        "check",
        "spec.toml",
        "model.layers.0.linear.out_features=8,64",
        "optimizer.adam.lr=0.1,0.01",
        "trainer.max_epochs=5,10",
    ];
    let table = |columns| {
        let text = printed(&place, &[&arguments[..], &["--threads=1"]].concat(), columns);
        text.split("\n\n").nth(1).unwrap().to_owned()
    };
    insta::assert_snapshot!(table(Some(80)), @r"
      trial  out_features    lr  max_epochs  steps
          0             8   0.1           5    160
          1             8   0.1          10    320
          2             8  0.01           5    160
          3             8  0.01          10    320
          4            64   0.1           5    160
          5            64   0.1          10    320
          6            64  0.01           5    160
          7            64  0.01          10    320
      every trial: devices cpu, engine serial
    ");
    insta::assert_snapshot!(table(None).lines().next().unwrap(), @"  trial  model.layers.0.linear.out_features  optimizer.adam.lr  trainer.max_epochs  steps  devices  engine  becomes");
}
