//! Charts as files of their own: SVG and PNG.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use super::{SWEEP, page, run};
use crate::process::{Ended, Sandbox};

/// Each chart is also exported as a file without scripts; a file of another kind is not replaced.
#[test]
fn drawings() {
    let place = Sandbox::new(SWEEP);
    assert_eq!(place.runner(&["spec.toml", "optimizer.sgd.lr=0.01,0.03,0.1", "-q"]).code, Some(0));
    let page = page(&place, &["runs", "--svg", "figures"]);
    for title in ["Where the time went", "Transfers", "What the axes do", "lr, "] {
        assert!(page.contains(title), "{title}");
    }
    let mut names: Vec<String> = fs::read_dir(place.path().join("figures"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["00-validation-loss.svg", "01-train-loss.svg", "02-effect-lr.svg"]);
    for name in &names {
        let text = fs::read_to_string(place.path().join("figures").join(name)).unwrap();
        assert!(text.starts_with("<!-- made by `runner report` -->\n<svg xmlns="), "{text}");
        assert!(text.contains("<polyline"), "{name}");
        assert!(!text.contains("<script"), "{name}");
    }
    fs::write(place.path().join("figures/02-effect-lr.svg"), "mine").unwrap();
    let ended = place.runner(&["report", "runs", "--svg", "figures"]);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
}

/// PNG files are made by an external program; here a script writes their first bytes.
#[test]
fn drawings_as_png() {
    let place = Sandbox::new(SWEEP);
    assert_eq!(place.runner(&["spec.toml", "~sweep", "-q"]).code, Some(0));
    let run = |path: &Path| {
        let mut command = place.command(&["report", "runs", "--png", "figures"]);
        Ended::from_output(command.env("PATH", path).output().unwrap())
    };
    let without = run(Path::new("nowhere"));
    assert_eq!(without.code, Some(2));
    assert!(
        without.stderr.contains("none of `rsvg-convert`, `resvg`, `inkscape` is there"),
        "{}",
        without.stderr
    );
    assert!(!place.path().join("figures").exists());
    let program = place.path().join("rsvg-convert");
    fs::write(&program, "#!/bin/sh\n[ \"$1\" = --version ] && exit\nprintf '\\211PNG\\r\\n\\032\\n'\n")
        .unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    for _ in 0..2 {
        let done = run(place.path());
        assert_eq!(done.code, Some(0), "{}", done.stderr);
        assert_eq!(fs::read_dir(place.path().join("figures")).unwrap().count(), 2);
    }
    fs::write(place.path().join("figures/00-loss.png"), "mine, and no picture").unwrap();
    assert_eq!(run(place.path()).code, Some(2));
    fs::write(&program, "#!/bin/sh\n[ \"$1\" = --version ] && exit\necho no fonts >&2\n").unwrap();
    let failed = run(place.path());
    assert_eq!(failed.code, Some(1));
    assert!(failed.stderr.contains("00-loss.png`: `rsvg-convert` fails: no fonts"), "{}", failed.stderr);
}

/// Charts of two tasks may have the same titles, but each gets its own file.
#[test]
fn drawings_of_several_tasks() {
    let place = Sandbox::new("");
    for (data, setting) in [("a", 1), ("a", 2), ("a", 3), ("b", 1), ("b", 2), ("b", 3)] {
        let name = format!("{data}{setting}");
        let spec = format!("lr = 0.{setting}\nbatch = {setting}\n[data.csv]\npath = \"{data}\"\n");
        run(place.path(), &name, &spec, "1,1,train,8,3,0.1\n");
        let summary =
            format!("run,name,status,epoch_train_loss,data_digest\n{name},x,finished,0.{setting},{data}\n");
        fs::write(place.path().join("runs").join(&name).join("summary.csv"), summary).unwrap();
    }
    let ended = place.runner(&["report", "runs/*", "--svg", "figures"]);
    assert!(ended.stderr.ends_with(", 8 drawings\n"), "{}", ended.stderr);
    assert_eq!(fs::read_dir(place.path().join("figures")).unwrap().count(), 8);
    // A link to an earlier page stays a link.
    std::os::unix::fs::symlink("report.html", place.path().join("link.html")).unwrap();
    assert_eq!(place.runner(&["report", "runs/*", "-o", "link.html"]).code, Some(0));
    assert!(place.path().join("link.html").is_symlink());
}
