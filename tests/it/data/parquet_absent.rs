//! `parquet` in a build without the feature.

use crate::process::Sandbox;

#[test]
fn a_build_without_parquet_says_so() {
    let place = Sandbox::new(
        "[data.parquet]\npath = 'x.parquet'\ntarget = 'y'\n[model]\nlayers = [{ linear = { out_features = 1 } }]\n\
         [optimizer.sgd]\nlr = 0.1\n",
    );
    std::fs::write(place.path().join("x.parquet"), "PAR1").unwrap();
    let (has_none, schema) =
        ("build it with `cargo build --release --features parquet`", place.runner(&["schema"]).stdout);
    assert!(
        schema.contains(&format!("ables of columns (Parquet). This build has no Parquet: {has_none}\"")),
        "{schema}"
    );
    assert!(!schema.contains("in a build with"));
    for command in ["export", "compare", "predict"] {
        let help = place.runner(&[command, "--help"]).stdout;
        let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(help.contains(&format!("This build has no Parquet: {has_none}")), "{help}");
    }
    for words in [&["check", "spec.toml"][..], &["spec.toml"], &["new", "csv", "--from", "x.parquet"]] {
        let ended = place.runner(words);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{ended:?}");
        let reported = ended.stderr.replace(&place.path().display().to_string(), ".");
        insta::allow_duplicates! {
            insta::assert_snapshot!(reported.replace("./", ""), @r"
            error: this build reads no Parquet files
            --> x.parquet
             = hint: build it with `cargo build --release --features parquet`
            ");
        }
    }
}
