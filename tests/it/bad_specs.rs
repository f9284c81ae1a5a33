//! A folder of bad specs, each with the exact messages that it must give. `UPDATE_FIXTURES=1` rewrites the
//! messages.
//!
//! A first line `# with: A | B` gives the overrides.

use std::{fs, path::Path};

#[test]
fn bad_specs_are_told_in_full() {
    let update = std::env::var_os("UPDATE_FIXTURES").is_some();
    let mut names: Vec<_> =
        fs::read_dir("tests/fixtures/bad_specs").unwrap().map(|e| e.unwrap().path()).collect();
    names.sort();
    let mut wrong = Vec::new();
    for path in names.iter().filter(|p| p.extension().is_some_and(|e| e == "toml")) {
        let reported = reported(path);
        let expected = path.with_extension("stderr");
        if update {
            fs::write(&expected, &reported).unwrap();
        } else if fs::read_to_string(&expected).unwrap_or_default() != reported {
            wrong.push(format!("{}:\n{reported}", path.display()));
        }
    }
    assert!(names.len() > 60, "the fixtures are there");
    assert!(wrong.is_empty(), "other messages than expected:\n\n{}", wrong.join("\n"));
}

fn reported(path: &Path) -> String {
    let bytes = fs::read(path).unwrap();
    let text = String::from_utf8_lossy(&bytes);
    let overrides: Vec<String> = match text.lines().next().and_then(|l| l.strip_prefix("# with: ")) {
        Some(line) => line.split(" | ").map(str::to_owned).collect(),
        None => Vec::new(),
    };
    match runner::spec::read(path, &overrides) {
        Ok(_) => "no problem\n".to_owned(),
        Err(failure) => failure.render(false),
    }
}
