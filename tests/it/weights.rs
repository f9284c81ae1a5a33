//! Initial weights from a file: weights that do not fit, and files that are not weights.

use std::{fs, path::PathBuf};

use super::process::Sandbox;

fn parity(path: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "parity", path].iter().collect()
}

/// The message of a refused `init = { file = ... }`, for the model of the case `sgd`.
fn refused_init(bytes: &[u8], overrides: &[&str]) -> String {
    let place = Sandbox::with_spec(&parity("sgd/spec.toml"));
    let file = place.path().join("init.safetensors");
    fs::write(&file, bytes).unwrap();
    let init = format!("model.init={{file = \"{}\"}}", file.display());
    let ran = place.run(&[overrides, &[&init]].concat());
    assert_eq!(ran.ended.code, Some(2));
    assert!(!ran.runs.exists());
    let folder = format!("{}/", place.path().display());
    ran.ended.stderr.replace(&folder, "").replace(parity("sgd").to_str().unwrap(), "SGD")
}

#[test]
fn initial_weights_that_do_not_fit() {
    let init = fs::read(parity("sgd/init.safetensors")).unwrap();
    for (bytes, words) in [
        (&init[..0], "header too small"),
        (&init[..4], "header too small"),
        (&init[..300], "invalid header length"),
        (&init[..init.len() - 1], "incomplete metadata, file not fully covered"),
        (&b"{\"0.weight\": 1}                "[..], "header too large"),
        (&b"PK\x03\x04\x00\x00\x08\x08archive/data.pkl"[..], "it is of `torch.save`"),
    ] {
        assert_eq!(
            refused_init(bytes, &[]),
            format!(
                "error: not a safetensors file: {words}\n--> init.safetensors\n \
                 = hint: after `pip install safetensors`: `safetensors.torch.save_file(model.state_dict(), FILE)`\n"
            )
        );
    }
    insta::assert_snapshot!(refused_init(&init, &["model.layers.2.linear.out_features=9"]), @r"
    error: `2.weight` has the shape [8, 16], the model's has [9, 16]
    --> init.safetensors
     = hint: the file must come from a model of the same layers

    error: `2.bias` has the shape [8], the model's has [9]
    --> init.safetensors
     = hint: the file must come from a model of the same layers

    error: `4.weight` has the shape [1, 8], the model's has [1, 9]
    --> init.safetensors
     = hint: the file must come from a model of the same layers

    error: 3 problems in SGD/spec.toml
    ");
    let other = fs::read(parity("l1/init.safetensors")).unwrap();
    insta::assert_snapshot!(refused_init(&other, &[]), @r"
    error: `0.weight` has the shape [12, 6], the model's has [16, 6]
    --> init.safetensors
     = hint: the file must come from a model of the same layers

    error: the model's tensor `0.bias` is not there
    --> init.safetensors
     = hint: the file holds `0.weight`, `2.bias`, `2.weight`

    error: `2.weight` has the shape [1, 12], the model's has [8, 16]
    --> init.safetensors
     = hint: the file must come from a model of the same layers

    error: `2.bias` has the shape [1], the model's has [8]
    --> init.safetensors
     = hint: the file must come from a model of the same layers

    error: the model's tensor `4.weight` is not there
    --> init.safetensors
     = hint: the file holds `0.weight`, `2.bias`, `2.weight`

    error: the model's tensor `4.bias` is not there
    --> init.safetensors
     = hint: the file holds `0.weight`, `2.bias`, `2.weight`

    error: 6 problems in SGD/spec.toml
    ");
    let mut nan = init.clone();
    let end = nan.len();
    nan[end - 4..].copy_from_slice(&f32::NAN.to_le_bytes());
    insta::assert_snapshot!(refused_init(&nan, &[]), @r"
    error: `4.weight` holds NaN at element 7: expected finite numbers
    --> init.safetensors
    ");
}
