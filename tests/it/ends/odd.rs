//! Odd inputs and places: each is named, and none hangs, fills the memory or passes for a success.

use std::{
    fs,
    os::unix::fs::symlink,
    process::{Command, Stdio},
};

use crate::process::Sandbox;

const SPEC: &str = r#"
data.csv = { path = "rows.csv", target = "y", validation_path = "rows.csv" }
model.layers = [{ linear = { out_features = 1 } }]
optimizer.sgd.lr = 1e-3
trainer.max_epochs = 1
"#;

#[test]
fn a_constant_column_and_rows_that_validate_themselves_are_named() {
    let sandbox = Sandbox::new(SPEC);
    let rows: String = (0..40).map(|i| format!("{i},7,{}\n", 2 * i)).collect();
    fs::write(sandbox.path().join("rows.csv"), format!("x,c,y\n{rows}")).unwrap();
    let ran = sandbox.run(&[]);
    for warning in [
        "warning: `c` is alike in all training rows",
        "warning: the rows to validate on are those to train on",
    ] {
        assert!(ran.ended.stderr.contains(warning), "{}", ran.ended.stderr);
    }
}

/// Run folders come from anywhere.
#[test]
fn compare_reads_regular_files_of_bearable_length() {
    let sandbox = Sandbox::new(
        "data.synthetic_regression.weights = [1.0]\nmodel.layers = [{ linear = { out_features = 1 } }]\noptimizer.sgd.lr = 0.1",
    );
    let folder = sandbox.run(&[]).ended_by(0).0;
    for (file, is_named) in
        [("spec.toml", true), ("environment.toml", true), ("metrics.csv", false), ("summary.csv", false)]
    {
        let path = folder.join(file);
        let kept = sandbox.path().join("kept");
        fs::rename(&path, &kept).unwrap();
        let compare = |what: &str| {
            let compared = sandbox.runner(&["compare", folder.to_str().unwrap()]);
            let words = format!("it is {what}: expected a regular file");
            assert!(!is_named || compared.stderr.contains(&words), "{file}: {compared:?}");
            fs::remove_file(&path).unwrap();
        };
        symlink("/dev/zero", &path).unwrap();
        compare("a device");
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        compare("a named pipe");
        fs::rename(&kept, &path).unwrap();
    }
}

#[test]
fn help_that_cannot_be_written_is_a_failure() {
    let full = || Stdio::from(fs::File::options().write(true).open("/dev/full").unwrap());
    for arguments in [&["--help"][..], &["--version"], &["run", "--help"]] {
        let status = Sandbox::new("").command(arguments).stdout(full()).status().unwrap();
        assert_eq!(status.code(), Some(1), "{arguments:?}");
    }
}
