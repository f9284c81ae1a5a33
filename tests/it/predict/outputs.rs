//! Where predictions are written, and what they never replace.

use std::{
    fs,
    io::Write,
    os::unix::process::ExitStatusExt,
    path::PathBuf,
    process::{Command, Stdio},
};

use super::{
    super::{
        ends::{send, wait_until},
        process::RUNNER,
    },
    Model, repeated,
};

/// Earlier predictions.
const OLD: &str = "prediction\n1\n";

/// A file appears whole; earlier predictions of that name are replaced, but never the rows themselves.
#[test]
fn a_file_is_replaced_at_the_end() {
    let model = Model::price();
    let path = model.write("out.csv", OLD);
    let to = |data: &str, out: &str| model.place.runner(&["predict", &model.run, data, "-o", out]);
    model.write("wrong.csv", "width\n1\n");
    assert_eq!(to("wrong.csv", "out.csv").code, Some(2));
    assert_eq!(fs::read_to_string(&path).unwrap(), OLD);
    let ended = to("new.csv", "out.csv");
    assert_eq!((ended.code, &ended.stdout[..]), (Some(0), ""));
    assert_eq!(fs::read_to_string(&path).unwrap(), model.predicted("new.csv"));
    let files = fs::read_dir(model.place.path()).unwrap();
    assert!(files.into_iter().all(|file| !file.unwrap().file_name().to_string_lossy().ends_with(".tmp")));
    let ended = to("new.csv", "./new.csv");
    assert_eq!(ended.code, Some(2));
    assert!(ended.stderr.contains("`./new.csv` is a file that is read"), "{ended:?}");
    assert_eq!(to("new.csv", "none/out.csv").code, Some(1));
    assert_eq!(to("new.csv", "/dev/null").code, Some(0));
    assert!(!fs::metadata("/dev/null").unwrap().is_file());
}

/// Any other file is replaced only by `--force`, and never one that is read or belongs to the run.
#[test]
fn another_file_is_not_replaced() {
    let model = Model::price();
    let to = |more: &[&str]| model.place.runner(&[&["predict", &model.run, "new.csv", "-o"], more].concat());
    for (name, text) in [("w2.toml", "[data.csv]\n"), ("more.csv", "prediction_0,prediction_1\n1,2\n")] {
        let path = model.write(name, text);
        let ended = to(&[name]);
        let refused = format!(
            "error: `{name}` holds something else than predictions of this model\n  \
             = hint: write to another file; `--force` replaces it\n"
        );
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""));
        assert!(ended.stderr.ends_with(&refused), "{ended:?}");
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        assert_eq!(to(&[name, "--force"]).code, Some(0));
        assert_eq!(fs::read_to_string(&path).unwrap(), model.predicted("new.csv"));
    }
    assert!(to(&["new.csv", "--force"]).stderr.contains("`new.csv` is a file that is read"));
    let spec = PathBuf::from(&model.run).join("spec.toml");
    assert!(to(&[spec.to_str().unwrap(), "--force"]).stderr.contains("` lies in the run's folder"));
}

/// Columns of the rows stand before the predictions, whether the model uses them or not.
#[test]
fn columns_that_are_kept() {
    let model = Model::kind();
    let rows = model.new_rows();
    let numbered = rows.lines().enumerate().map(|(n, line)| match n {
        0 => format!("row id,{line}\n"),
        _ => format!("\" {n}\"\"x, \",{line}\n"),
    });
    model.write("numbered.csv", numbered.collect::<String>());
    let kept = |keep: &[&str]| model.place.runner(&[&["predict", &model.run, "numbered.csv"], keep].concat());
    let expected = model.predicted("new.csv");
    let width = |line: &str| line.rsplit(',').next().unwrap().to_owned();
    let lines = rows.lines().zip(expected.lines()).enumerate().map(|(n, (row, line))| match n {
        0 => format!("row id,width,{line}\n"),
        _ => format!("\"{n}\"\"x,\",{},{line}\n", width(row)),
    });
    let lines: String = lines.collect();
    for keep in [&["--keep", "row id,width"][..], &["--keep", "row id", "--keep", "width"]] {
        let ended = kept(keep);
        assert_eq!((ended.code, &ended.stdout), (Some(0), &lines));
        assert!(!ended.stderr.contains("row id"), "{ended:?}");
    }
    let wrong = kept(&["--keep", "color"]);
    assert_eq!((wrong.code, wrong.stdout.as_str()), (Some(2), ""));
    assert!(wrong.stderr.contains("error: no column `color` to keep\n"), "{wrong:?}");
    assert!(wrong.stderr.ends_with(" = hint: did you mean `colour`?\n"), "{wrong:?}");
    // A CSV file with two columns of one name is read wrong by most programs.
    let own = expected.lines().next().unwrap().split(',').next().unwrap();
    let twice = kept(&["--keep", own]);
    assert_eq!((twice.code, twice.stdout.as_str()), (Some(2), ""));
    let words = format!(
        "error: the predictions have a column `{own}` of their own: a kept one cannot have the same name\n"
    );
    assert!(twice.stderr.contains(&words), "{twice:?}");
}

/// A mistyped column is the error, whatever the file holds; predictions beside other columns are not replaced, and called so.
#[test]
fn predictions_with_other_columns_are_not_replaced() {
    let model = Model::kind();
    let to = |more: &[&str]| {
        model.place.runner(&[&["predict", &model.run, "new.csv", "-o", "out.csv"], more].concat())
    };
    assert_eq!(to(&["--keep", "width"]).code, Some(0));
    let wrong = to(&["--keep", "color"]);
    assert_eq!(wrong.code, Some(2));
    assert!(wrong.stderr.contains("error: no column `color` to keep\n"), "{wrong:?}");
    let other = to(&["--keep", "colour"]);
    let header = model.predicted("new.csv").lines().next().unwrap().to_owned();
    let words = format!(
        "error: `out.csv` has predictions with the columns `width,{header}`: these would be `colour,{header}`\n  \
         = hint: write to another file; `--force` replaces it\n"
    );
    assert!(other.code == Some(2) && other.stderr.ends_with(&words), "{other:?}");
    assert_eq!(to(&["--keep", "width"]).code, Some(0));
}

/// What a signal ends leaves nothing beside the file that was to be written.
#[test]
fn a_signal_removes_what_was_begun() {
    let model = Model::price();
    let path = model.write("out.csv", OLD);
    let names = || {
        let entries = fs::read_dir(model.place.path()).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let before = names();
    let mut command = model.place.command(&["predict", &model.run, "-", "-o", "out.csv"]);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    // It waits for more rows.
    let mut rows = child.stdin.take().unwrap();
    rows.write_all(repeated(&model.new_rows(), 2000).as_bytes()).unwrap();
    wait_until(&mut child, || names().len() > before.len());
    send("-TERM", &child);
    assert_eq!(child.wait().unwrap().signal(), Some(15));
    assert_eq!(names(), before);
    assert_eq!(fs::read_to_string(&path).unwrap(), OLD);
}

/// A link stays, and its target has the predictions.
#[test]
fn a_link_is_followed() {
    let model = Model::price();
    let to = |out: &str| model.place.runner(&["predict", &model.run, "new.csv", "-o", out]);
    let expected = model.predicted("new.csv");
    let target = model.write("target.csv", OLD);
    let link = |to: &str, name: &str| {
        let path = model.place.path().join(name);
        std::os::unix::fs::symlink(to, &path).unwrap();
        path
    };
    let new = model.place.path().join("later.csv");
    for (path, target) in [(link("target.csv", "link.csv"), target), (link("later.csv", "early.csv"), new)] {
        assert_eq!(to(path.to_str().unwrap()).code, Some(0));
        assert!(path.is_symlink());
        assert_eq!(fs::read_to_string(target).unwrap(), expected);
    }
    let out = link("/dev/stdout", "out");
    let ended = to("out");
    assert_eq!((ended.code, ended.stdout), (Some(0), expected));
    assert!(out.is_symlink());
    let rows = model.new_rows();
    link("new.csv", "rows");
    assert_eq!(to("rows").code, Some(2));
    assert_eq!(model.new_rows(), rows);
}

/// Files written by a run are not overwritten, nor is the file that standard output is redirected to.
#[test]
fn outputs_spare_the_run_and_what_was_printed_before() {
    let model = Model::price();
    let run = PathBuf::from(&model.run);
    let before = fs::read(run.join("best.safetensors")).unwrap();
    for name in ["best.safetensors", "spec.toml", "new"] {
        let out = run.join(name);
        let ended = model.place.runner(&["predict", &model.run, "new.csv", "-o", out.to_str().unwrap()]);
        assert_eq!(ended.code, Some(2));
        assert!(
            ended.stderr.contains("` lies in the run's folder\n  = hint: write to another file"),
            "{ended:?}"
        );
    }
    assert_eq!(fs::read(run.join("best.safetensors")).unwrap(), before);
    let expected = model.predicted("new.csv");
    for out in ["/dev/stdout", "-"] {
        let command = format!("(echo a; '{RUNNER}' predict '{}' new.csv -o {out}; echo b) >> log", model.run);
        let shell =
            Command::new("sh").args(["-c", &command]).current_dir(model.place.path()).output().unwrap();
        assert!(shell.status.success(), "{shell:?}");
        let log = model.place.path().join("log");
        assert_eq!(fs::read_to_string(&log).unwrap(), format!("a\n{expected}b\n"));
        fs::remove_file(log).unwrap();
    }
    let command = format!("'{RUNNER}' predict '{}' - -o new.csv < new.csv", model.run);
    let rows = model.new_rows();
    let shell = Command::new("sh").args(["-c", &command]).current_dir(model.place.path()).output().unwrap();
    assert_eq!((shell.status.code(), model.new_rows()), (Some(2), rows));
}
