//! Names of folders, made from the user's text, and the folder that all are in.

use std::path::PathBuf;

/// Maximum length in bytes of a folder name made from the user's text.
const LONGEST_NAME: usize = 100;

/// The same for a trial's folder, which its number alone identifies.
const LONGEST_TRIAL: usize = 60;

/// Where runs are made and looked for: `RUNNER_RUNS_DIR`, or `runs` in the current folder.
pub fn runs_dir() -> PathBuf {
    let set = std::env::var_os("RUNNER_RUNS_DIR").filter(|dir| !dir.is_empty());
    set.map_or_else(|| PathBuf::from("runs"), PathBuf::from)
}

/// `007-lr=.01-width=32`
pub(super) fn trial_name<'a>(number: usize, axes: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    // `sgd(lr 0.1)` as `sgd_lr_.1`.
    let words = |value: &str| {
        let words: Vec<String> = value.trim_end_matches(')').split([' ', '(']).map(short_number).collect();
        words.join("_")
    };
    let mut name = format!("{number:03}");
    for (place, (key, value)) in axes.enumerate() {
        let longer = folder_name(&format!("{name}-{key}={}", words(value)));
        // Axes that do not fit are left out: half a word says nothing.
        if longer.len() > LONGEST_TRIAL && place > 0 {
            break;
        }
        name = longer;
    }
    cut(&mut name, LONGEST_TRIAL);
    name
}

/// `.01` for `0.01`.
fn short_number(value: &str) -> String {
    match value.parse::<f64>() {
        Ok(0.0) => "0".to_owned(),
        Ok(_) if value.starts_with("0.") || value.starts_with("-0.") => value.replacen("0.", ".", 1),
        _ => value.to_owned(),
    }
}

/// Shortens text to at most `most` bytes of whole characters.
fn cut(text: &mut String, most: usize) {
    while text.len() > most {
        text.pop();
    }
}

/// Turns text into a safe folder name: characters other than letters and digits of any script, and `. _ = + -`, become `_`. The name
/// has at most 100 bytes, is not hidden and cannot lead to a parent folder.
pub(super) fn folder_name(text: &str) -> String {
    let mut name: String = text
        .chars()
        .take(LONGEST_NAME)
        .map(|c| if c.is_alphanumeric() || "._=+-".contains(c) { c } else { '_' })
        .collect();
    cut(&mut name, LONGEST_NAME);
    if name.is_empty() {
        name.push('_');
    }
    if name.starts_with('.') {
        name.replace_range(..1, "_");
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trials_are_named_by_their_axes() {
        let name = |number, axes: &[(&str, &str)]| trial_name(number, axes.iter().copied());
        assert_eq!(name(0, &[("num_gpus", "0")]), "000-num_gpus=0");
        assert_eq!(name(12, &[("lr", "0.001"), ("use", "[\"gpu:1\"]")]), "012-lr=.001-use=__gpu_1__");
        assert_eq!(name(3, &[("a", "-0.5"), ("b", "0.0"), ("c", "10.5")]), "003-a=-.5-b=0-c=10.5");
        assert_eq!(
            name(4, &[("optimizer", "sgd(lr 0.1 momentum 0.9)")]),
            "004-optimizer=sgd_lr_.1_momentum_.9"
        );
        assert_eq!(name(7, &[]), "007");
        // What does not fit is left out.
        let long =
            [("lr", "0.001"), ("out_features", "128"), ("weight_decay", "0.0001"), ("batch_size", "64")];
        assert_eq!(name(8, &long), "008-lr=.001-out_features=128-weight_decay=.0001");
        // Of letters of two bytes only whole ones are kept.
        assert_eq!(name(1, &[("path", &"é".repeat(200))]), format!("001-path={}", "é".repeat(25)));
        // A name cannot leave its folder.
        assert_eq!(folder_name("../../etc"), "_._.._etc");
        assert_eq!(folder_name(""), "_");
        assert_eq!(folder_name("a b\n/ü"), "a_b__ü");
        // Names in other scripts stay apart, within the same number of bytes.
        assert_eq!(["データ", "日本語"].map(folder_name), ["データ", "日本語"]);
        assert_eq!(folder_name(&"データ".repeat(20)).len(), 99);
    }
}
