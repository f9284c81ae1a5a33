//! What other programs have taught a user to type: each dead end names the command, the option or the metric that is meant.

use std::fs;

use super::{
    process::{Folder, Sandbox},
    run::LINREG,
};

/// The whole message of `runner TYPED`, which is refused.
pub fn refused(place: &Sandbox, typed: &str) -> String {
    let ended = place.runner(&typed.split(' ').collect::<Vec<_>>());
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{typed}: {ended:?}");
    ended.stderr
}

#[test]
fn commands_of_other_programs() {
    let place = Sandbox::new(LINREG);
    let removes = "`runner clean` removes runs and sweeps";
    let ends =
        "Ctrl-C ends a run, and `--resume` goes on with it; `runner cancel` ends a sweep's jobs on a cluster";
    let sweeps =
        "`runner SPEC.toml` runs every trial of the sweep in the spec; `KEY=1,2,4` after it sweeps a key";
    for (typed, hint) in [
        ("rm runs/p", removes),
        ("delete runs/p", removes),
        ("delte runs/p", removes),
        ("stop", ends),
        ("best", "`runner compare PATH` ranks runs, the best first"),
        ("test runs/p", "did you mean `runner evaluate`?"),
        ("fit spec.toml", "did you mean `runner run`?"),
        ("init", "did you mean `runner new`?"),
        ("ls", "did you mean `runner list`?"),
        ("logs", "`run.log` in a run's folder is its log; `runner watch` shows a run while it trains"),
        ("tensorboard", "`logging.tensorboard=true` has a run write what `tensorboard --logdir runs` shows"),
        ("sweep spec.toml", sweeps),
        ("tune spec.toml", sweeps),
    ] {
        let word = typed.split(' ').next().unwrap();
        let message = format!("error: no command `{word}`\n  = hint: {hint}\n");
        assert_eq!(refused(&place, typed), message);
    }
    // A spec may be called so.
    let message = "error: cannot read `test`: no such file or directory\n";
    assert_eq!(place.runner(&["run", "test"]).stderr, message);
}

#[test]
fn options_of_other_programs() {
    let place = Sandbox::new(LINREG);
    for (typed, option, hint) in [
        ("new csv q.toml --data penguins.csv", "--data", "did you mean `--from`?"),
        ("spec.toml --lr 0.1", "--lr", "keys have no dashes: `optimizer.sgd.lr=0.1`"),
        ("spec.toml --learning-rate=0.1", "--learning-rate", "keys have no dashes: `optimizer.sgd.lr=0.1`"),
        ("spec.toml --batch-size 32 seed=1", "--batch-size", "keys have no dashes: `data.batch_size=32`"),
        ("spec.toml --random-state 7", "--random-state", "keys have no dashes: `seed=7`"),
        ("spec.toml --shuffle", "--shuffle", "keys have no dashes: `data.shuffle=VALUE`"),
        (
            "spec.toml --set lr=3",
            "--set",
            "`KEY=VALUE` after the spec sets a key, such as `trainer.max_epochs=5`",
        ),
        ("spec.toml --output-dir x", "--output-dir", "did you mean `--runs-dir`?"),
        ("spec.toml --n-jobs 2", "--n-jobs", "did you mean `--jobs`?"),
        ("spec.toml -j 2", "-j", "did you mean `--jobs`?"),
        ("spec.toml -o x", "-o", "did you mean `--runs-dir`?"),
        ("-c spec.toml", "-c", "the spec needs no option: `runner SPEC.toml`"),
        ("-m spec.toml", "-m", "several values make a sweep: `seed=0..3`, `optimizer.sgd.lr=0.1,0.01`"),
        (
            "spec.toml --cpu",
            "--cpu",
            "a run uses the CPU unless its spec asks for GPUs: `devices.num_gpus=0`",
        ),
        (
            "check spec.toml -n 2",
            "-n",
            "`KEY=VALUE` sets a key of the spec, such as `trainer.max_epochs=5`; `--help` lists the options",
        ),
        ("list --tag good", "--tag", "did you mean `--where 'tag = WORD'`?"),
        ("list --status failed", "--status", "did you mean `--where 'status = failed'`?"),
        ("list --limit 1", "--limit", "the newest come last: `runner list | tail -n 5`"),
        ("list --wher x", "--wher", "did you mean `--where`?"),
        ("list --zebra", "--zebra", "`runner list --help` lists the options"),
        ("clean --keep 1", "--keep", "did you mean `--keep-best`?"),
        (
            "clean --all",
            "--all",
            "`--keep-best 0` chooses all runs that have no tag, and `--yes` removes them",
        ),
        (
            "export runs --format onnx",
            "--format",
            "the format's option takes the file: `--onnx FILE`, `--parquet FILE` or `--mlflow DIR`",
        ),
        (
            "plot runs -o a.png",
            "-o",
            "`runner report RUN --png DIR` writes each chart as a PNG file, `--svg DIR` as an SVG file",
        ),
        ("compare runs --best", "--best", "the best stands above the table; `--top 1` shows it alone"),
    ] {
        let message = format!("error: no option `{option}`\n  = hint: {hint}\n");
        assert_eq!(refused(&place, typed), message);
    }
}

/// An example follows what a command lacks.
#[test]
fn commands_without_their_arguments() {
    let place = Sandbox::new(LINREG);
    for (typed, needs, example) in [
        ("clean", "`--keep-best N` or `--older-than TIME`", "--keep-best 5"),
        ("tag", "`RUN` and `WORD...`", "runs/NAME/TIME-HASH good"),
        ("tag runs/x", "`WORD...`", "runs/NAME/TIME-HASH good"),
        ("diff runs/x", "`B`", "runs/NAME/TIME-HASH runs/NAME/OTHER"),
        ("completions", "`SHELL`", "bash"),
        ("predict", "`RUN` and `DATA`", "runs/NAME new.csv"),
        ("evaluate", "`RUN`", "runs/NAME new.csv"),
        // The cells of rows that are not given cannot be separated by anything.
        ("evaluate runs/x --delimiter ;", "`DATA`", "runs/NAME new.csv"),
        (
            "export",
            "`RUN`, and `--onnx FILE` or `--mlflow DIR` or `--parquet FILE`",
            "runs/NAME --onnx model.onnx",
        ),
        ("status", "`SWEEP`", "runs/NAME/SWEEP"),
    ] {
        let command = typed.split(' ').next().unwrap();
        let message =
            format!("error: `{command}` needs {needs}\n  = hint: as in `runner {command} {example}`\n");
        assert_eq!(refused(&place, typed), message);
    }
    let several = |hint: &str| format!("error: `--where` is given twice\n  = hint: {hint}\n");
    let joined = several("join the conditions: `--where 'a=1 and b=2'`");
    assert_eq!(refused(&place, "list --where a=1 --where=b=2"), joined);
    let ended = place.runner(&["compare", "runs", "--where", "a = 1 or b = 2", "--where", "c = 3"]);
    let joined = "one takes all conditions, joined by `and` and `or`: `and` binds closer";
    assert_eq!((ended.code, ended.stderr), (Some(2), several(joined)));
}

#[test]
fn a_spec_that_is_not_named() {
    let place = Sandbox::new(LINREG);
    let missing = |hint: &str| format!("error: the spec is missing\n  = hint: {hint}\n");
    assert_eq!(refused(&place, "--resume auto"), missing("name it: `runner SPEC.toml --resume auto`"));
    assert_eq!(refused(&place, "-q"), missing("name it: `runner SPEC.toml`"));
    assert_eq!(refused(&place, "check -q"), missing("it follows the command: `SPEC.toml`"));
}

/// A run that was not named with its folder, and one of several.
#[test]
fn the_run_that_is_meant() {
    let place = Sandbox::new(LINREG);
    let run = |epochs: &str| {
        place.runner(&["spec.toml", "-q", "name=price", "data.batch_size=10", epochs]).ended_by(0);
    };
    run("trainer.max_epochs=4");
    for typed in [
        "show price",
        "compare price",
        "predict price x.csv",
        "run --resume price",
        "tag price good",
        "plot price",
    ] {
        let message = "error: `price` does not exist\n  = hint: did you mean `runs/price`?\n";
        assert_eq!(refused(&place, typed), message);
    }
    let message = "error: `prise` does not exist\n  = hint: did you mean `runs/price`?\n";
    assert_eq!(refused(&place, "show prise"), message);
    assert_eq!(place.runner(&["show", "runs/price"]).code, Some(0));
    let cleaned = refused(&place, "clean price --keep-best 1");
    assert_eq!(cleaned, "error: `price` does not exist\n  = hint: did you mean `runs/price`?\n");
    fs::rename(place.path().join("runs"), place.path().join("all")).unwrap();
    let cleaned = refused(&place, "clean price --runs-dir all --keep-best 1");
    assert_eq!(cleaned, "error: `price` does not exist\n  = hint: did you mean `all/price`?\n");
    fs::rename(place.path().join("all"), place.path().join("runs")).unwrap();
    let folder = Folder::within(&place.path().join("runs")).unwrap();
    let best = format!("runs/price/{}", folder.0.file_name().unwrap().to_str().unwrap());
    run("trainer.max_epochs=1");
    let newest = place.runner(&["latest", "runs/price"]).stdout.trim_end().to_owned();
    assert_ne!(best, newest);
    let message = refused(&place, "predict runs/price new.csv --keep id");
    let (before, after) = message.split_once(" (").unwrap();
    let hint = format!("the newest: `runner predict {newest} new.csv --keep id`; the best");
    assert_eq!(before, format!("error: `runs/price` holds 2 runs\n  = hint: {hint}"));
    assert!(after.contains("validation loss "), "{message}");
    assert!(after.ends_with(&format!("): `runner predict {best} new.csv --keep id`\n")), "{message}");
    for typed in [
        "evaluate runs/price",
        "tag runs/price good",
        "export runs/price --onnx a.onnx",
        "run --resume runs/price",
    ] {
        let command = typed.replace("runs/price", &best);
        assert!(refused(&place, typed).ends_with(&format!("): `runner {command}`\n")), "{typed}");
    }
    // A word of other bytes than UTF-8.
    let mut command = place.command(&["predict", "runs/price", "new.csv", "-o"]);
    let ended = command.arg(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(b"\xff")).output();
    let message = String::from_utf8(ended.unwrap().stderr).unwrap();
    assert!(message.ends_with(&format!("`runner predict {best} new.csv -o '\u{fffd}'`\n")), "{message}");
}

/// Of runs of several losses none is the best: the hint says why, and what shows them.
#[test]
fn runs_of_several_losses_have_no_best() {
    let place = Sandbox::new(LINREG);
    for loss in ["mse", "huber"] {
        let words =
            ["spec.toml", "-q", "name=two", "logging.metrics=[loss,mae]", &format!("model.loss={loss}")];
        assert_eq!(place.runner(&words).code, Some(0));
    }
    let newest = place.runner(&["latest", "runs/two"]).stdout.trim_end().to_owned();
    let hint = "2 tasks, whose losses are not comparable: model.loss differs (#1; #2); `runner compare runs/two --metric mae` \
                shows them";
    let message = format!(
        "error: `runs/two` holds 2 runs\n  = hint: the newest: `runner predict {newest} new.csv`; none is the best: {hint}\n"
    );
    assert_eq!(refused(&place, "predict runs/two new.csv"), message);
}

#[test]
fn metrics_of_other_programs() {
    let place = Sandbox::new(LINREG);
    assert_eq!(place.runner(&["spec.toml", "-q"]).code, Some(0));
    for (typed, message, hint) in [
        ("compare runs --metric val_loss", "no run has the metric `val_loss`", "validation.loss"),
        ("compare runs --sort val_loss", "no run has a column `val_loss`", "validation.loss"),
        ("list --where learning_rate<1", "no run has a column `learning_rate`", "lr"),
        ("list --sort learning_rate", "no run has a column `learning_rate`", "lr"),
    ] {
        let begin = format!("error: {message}\n  = hint: did you mean `{hint}`? runs here have ");
        let ended = refused(&place, typed);
        assert!(ended.starts_with(&begin), "{ended}");
    }
    for (condition, mended) in [
        ("validation_loss > 0.1", "`mean(validation.loss) > 0.1` or `median(validation.loss) > 0.1`"),
        (" steps<0.9*baseline", "`mean(steps)<0.9*baseline` or `median(steps)<0.9*baseline`"),
    ] {
        let ended = place.runner(&["compare", "runs", "--fail-if", condition]);
        let words = format!("error: `{condition}` lacks `mean` or `median`\n  = hint: write {mended}\n");
        assert_eq!((ended.code, ended.stderr), (Some(2), words));
    }
    for (condition, message) in
        [("> 1", "`> 1` is no condition"), ("zebra > 1", "no run has the metric `zebra`")]
    {
        let ended = place.runner(&["compare", "runs", "--fail-if", condition]);
        assert!(ended.stderr.starts_with(&format!("error: {message}\n")), "{ended:?}");
    }
}

/// Seeds pair runs in other programs.
#[test]
fn an_export_of_repeats_has_their_seeds() {
    let place = Sandbox::new(LINREG);
    let run = place.run(&["-q", "optimizer.sgd.lr=0.03,0.01", "sweep.repeats=2"]);
    assert_eq!(run.ended.code, Some(0), "{:?}", run.ended);
    let ended = place.runner(&["compare", run.runs.to_str().unwrap(), "--export", "csv"]);
    let table = super::process::Table::read(&ended.stdout);
    assert_eq!(table.column("seed"), ["0", "0", "1", "1"]);
}
