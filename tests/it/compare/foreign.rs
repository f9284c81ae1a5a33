//! Runs that someone copied into a sweep's folder.

use std::{fs, path::PathBuf};

use serde_json::Value;

use super::add;
use crate::{process::Sandbox, resume::copy};

/// The folder of each sweep and run, the oldest first.
fn folders(place: &Sandbox) -> Vec<PathBuf> {
    let entries = fs::read_dir(place.path().join("runs/spec")).unwrap();
    let mut folders: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    folders.sort_by_key(|folder| fs::metadata(folder.join("spec.toml")).is_ok());
    folders
}

#[test]
fn runs_of_other_sweeps_are_no_trials() {
    let place = Sandbox::new(crate::run::LINREG);
    add(&place, &["optimizer.sgd.lr=1e-4,2e-4"]);
    let sweep = folders(&place).remove(0);
    // Of other sweeps and of none; all are better than its own trials.
    let other = ["optimizer.sgd.lr=0.03,0.05", "--runs-dir", "other"];
    add(&place, &other);
    add(&place, &["optimizer.sgd.lr=0.03"]);
    let named = |folder: &PathBuf, start: &str| {
        let mut inner = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        inner.find(|path| path.file_name().unwrap().to_str().unwrap().starts_with(start)).unwrap()
    };
    let other = named(&place.path().join("other/spec"), "2");
    copy(&named(&other, "001"), &sweep.join("mine"));
    copy(&folders(&place)[1], &sweep.join("002-single"));
    let [path, best] = [&sweep, &named(&sweep, "001")].map(|path| path.display().to_string());
    let compared = place.runner(&["compare", &path]);
    for (name, of) in [
        ("mine", format!("of the sweep `{}`", other.file_name().unwrap().to_str().unwrap())),
        ("002-single", "of no sweep".to_owned()),
    ] {
        let words = format!("`{path}/{name}` is no trial of this sweep, but {of}: move it elsewhere");
        assert!(
            compared.stdout.contains(&words) || compared.stderr.contains(&words),
            "{words}: {compared:?}"
        );
    }
    let listed = place.runner(&["list", &path]);
    assert!(listed.stdout.contains("2 finished, 2 damaged"), "{listed:?}");
    let shown: Value = serde_json::from_str(&place.runner(&["show", &path, "--json"]).stdout).unwrap();
    assert_eq!(shown["best"]["folder"], best);
    let refitted = place.runner(&["refit", &path]);
    assert!(refitted.stderr.contains("damaged or deleted: 2 trials (`"), "{refitted:?}");
    assert!(
        refitted.stderr.contains("/002-single` is no trial of this sweep, but of no sweep"),
        "{refitted:?}"
    );
    let cleaned = place.runner(&["clean", "--keep-best", "0", "--yes"]);
    assert!(cleaned.stdout.contains("1 damaged") && sweep.join("mine").is_dir(), "{cleaned:?}");
    // Under another name it keeps its trials.
    ["mine", "002-single"].iter().for_each(|name| fs::remove_dir_all(sweep.join(name)).unwrap());
    let renamed = sweep.with_file_name("rates");
    fs::rename(&sweep, &renamed).unwrap();
    let begun = fs::read_to_string(renamed.join("sweep.csv")).unwrap();
    for table in [&begun, begun.lines().next().unwrap(), ""] {
        fs::write(renamed.join("sweep.csv"), table).unwrap();
        let listed = place.runner(&["list", renamed.to_str().unwrap()]);
        assert!(listed.stdout.contains("2 finished") && !listed.stdout.contains("damaged"), "{listed:?}");
    }
}
