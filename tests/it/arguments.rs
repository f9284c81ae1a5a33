//! Arguments that name keys: what they mean, and which are rejected.

use super::{process::Sandbox, run::LINREG};

/// Programs that call this one pass `-q`, and so may those who call them.
#[test]
fn quiet_may_be_said_twice() {
    let place = Sandbox::new(LINREG);
    let [once, twice] = [&["check", "spec.toml", "-q"][..], &["check", "-q", "spec.toml", "--quiet"]]
        .map(|words| place.runner(words));
    assert_eq!((twice.code, twice.stdout), (Some(0), once.stdout), "{}", twice.stderr);
}

#[test]
fn a_key_that_is_given_twice() {
    let place = Sandbox::new(LINREG);
    let reported = |arguments: &[&str]| {
        let [checked, ran] =
            ["check", "run"].map(|command| place.runner(&[&[command, "spec.toml"], arguments].concat()));
        assert_eq!((checked.code, ran.code), (Some(2), Some(2)), "{checked:?}");
        assert_eq!((checked.stdout.as_str(), &checked.stderr), ("", &ran.stderr));
        checked.stderr
    };
    insta::assert_snapshot!(reported(&["seed=1", "trainer.max_epochs=2", "seed=2"]), @r"
    error: `seed` is given twice
     --> argument 3:1:1
      |
    1 | seed=2
      | ^^^^
      |
     ::: argument 1:1:1
      |
    1 | seed=1
      | ---- first given here
      |
      = hint: leave one of the two arguments out
    ");
    insta::assert_snapshot!(reported(&["optimizer.sgd.lr=0.1", "optimizer.sgd.lr=0.1,0.2"]), @r"
    error: `optimizer.sgd.lr` is given twice
     --> argument 2:1:1
      |
    1 | optimizer.sgd.lr=0.1,0.2
      | ^^^^^^^^^^^^^^^^
      |
     ::: argument 1:1:1
      |
    1 | optimizer.sgd.lr=0.1
      | ---------------- first given here
      |
      = hint: leave one of the two arguments out
    ");
    insta::assert_snapshot!(reported(&["seed=1,2,3", "sweep.grid.seed=[1,2]"]), @r"
    error: `seed` is given twice
     --> argument 2:1:1
      |
    1 | sweep.grid.seed=[1,2]
      | ^^^^^^^^^^^^^^^
      |
     ::: argument 1:1:1
      |
    1 | seed=1,2,3
      | ---- first given here
      |
      = hint: leave one of the two arguments out
    ");
    insta::assert_snapshot!(reported(&["sweep.grid.seed=[1,2]", "seed=1,2,3"]), @r"
    error: `seed` is given twice
     --> argument 2:1:1
      |
    1 | seed=1,2,3
      | ^^^^
      |
     ::: argument 1:1:1
      |
    1 | sweep.grid.seed=[1,2]
      | --------------- first given here
      |
      = hint: leave one of the two arguments out
    ");
    insta::assert_snapshot!(reported(&["sweep.grid={ seed = [1, 2] }", "seed=3"]), @r"
    error: `seed` is given twice
     --> argument 2:1:1
      |
    1 | seed=3
      | ^^^^
      |
     ::: argument 1:1:14
      |
    1 | sweep.grid={ seed = [1, 2] }
      |              ---- first given here
      |
      = hint: leave one of the two arguments out
    ");
    insta::assert_snapshot!(reported(&["trainer.max_epochs=5", "trainer={ max_steps = 7 }"]), @r"
    error: `trainer` replaces what `trainer.max_epochs` sets
     --> argument 2:1:1
      |
    1 | trainer={ max_steps = 7 }
      | ^^^^^^^
      |
     ::: argument 1:1:1
      |
    1 | trainer.max_epochs=5
      | ------------------ first given here
      |
      = hint: write `trainer` first
    ");
    insta::assert_snapshot!(reported(&["trainer.max_epochs=5", "~trainer"]), @r"
    error: `~trainer` deletes what `trainer.max_epochs` sets
     --> argument 2:1:2
      |
    1 | ~trainer
      |  ^^^^^^^
      |
     ::: argument 1:1:1
      |
    1 | trainer.max_epochs=5
      | ------------------ set here
      |
      = hint: leave one of the two arguments out, or delete first
    ");
}

#[test]
fn numbers_out_of_range() {
    let place = Sandbox::new(LINREG);
    let ended = place.runner(&["check", "spec.toml", "--virtual-gpus", "-1"]);
    let message = "error: invalid value '-1' for '--virtual-gpus <N>': -1 is not in 0..=64\n\n\
                   For more information, try '--help'.\n";
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(2), message));
    // A learning rate that is 0 in f32 would train nothing.
    let ended = place.runner(&["check", "spec.toml", "optimizer.sgd.lr=1e-300"]);
    insta::assert_snapshot!(ended.stderr, @r"
    error: `optimizer.sgd.lr`: expected a number above 0 that fits f32, found `1e-300`
     --> argument:1:18
      |
    1 | optimizer.sgd.lr=1e-300
      |                  ^^^^^^ learning rate
    ");
    let ended = place.runner(&["check", "spec.toml", "seed=18446744073709551616"]);
    insta::assert_snapshot!(ended.stderr, @r"
    error: the integer `18446744073709551616` is out of range: TOML has those from -9223372036854775808 to 9223372036854775807
     --> argument:1:6
      |
    1 | seed=18446744073709551616
      |      ^
    ");
}

/// Indexes in all arguments refer to the layers as the file has them, even after deletions.
#[test]
fn indexes_of_layers_mean_the_spec_as_it_is_written() {
    let layers = r#"layers = ["tanh", { linear = { out_features = 4 } }, "relu", "sigmoid", { linear = { out_features = 1 } }]"#;
    let place = Sandbox::new(&LINREG.replace("layers = [{ linear = { out_features = 1 } }]", layers));
    let names = |arguments: &[&str]| -> Vec<String> {
        let ended = place.runner(&[&["check", "spec.toml"], arguments].concat());
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
        let rows = ended.stdout.lines().skip_while(|line| !line.contains(" layer "));
        let rows = rows.skip(1).take_while(|line| line.contains('['));
        rows.map(|line| line.split_whitespace().nth(1).unwrap().to_owned()).collect()
    };
    assert_eq!(names(&[]), ["Tanh", "Linear", "ReLU", "Sigmoid", "Linear"]);
    assert_eq!(names(&["~model.layers.1", "~model.layers.2"]), ["Tanh", "Sigmoid", "Linear"]);
    assert_eq!(names(&["~model.layers.0", "model.layers.2=gelu"]), ["Linear", "GELU", "Sigmoid", "Linear"]);
    let swept = ["~model.layers.0", "~model.layers.2", "model.layers.1.linear.out_features=4,8"];
    assert_eq!(names(&swept), ["Linear", "Sigmoid", "Linear"]);
}

#[test]
fn a_short_name_is_met_with_the_key() {
    let place = Sandbox::new(LINREG);
    for (typed, hint) in [
        ("lr=0.1", "did you mean `optimizer.sgd.lr`?"),
        ("max_epochs=3", "did you mean `trainer.max_epochs`?"),
        ("patience=3", "did you mean `schedule.plateau.patience` or `trainer.early_stopping.patience`?"),
        ("schedule.reduce_lr_on_plateau.factor=0.5", "did you mean `plateau`?"),
        ("optimizer.batch_size=3", "did you mean `data.batch_size`?"),
        ("learning_rate=0.1", "did you mean `optimizer.sgd.lr`?"),
        ("batch=16", "did you mean `data.batch_size`?"),
        ("max_epoch=3", "did you mean `trainer.max_epochs`?"),
        ("patiense=3", "did you mean `schedule.plateau.patience` or `trainer.early_stopping.patience`?"),
        (
            "optimizer.sgd.lr=[1e-3,1e-2]",
            "to try each value, write the override `optimizer.sgd.lr=0.001,0.01`, or `[sweep] grid`",
        ),
        ("sweep.grid.lr=1,2", "did you mean `optimizer.sgd.lr`?"),
        ("epochs=3", "did you mean `trainer.max_epochs`?"),
        ("trainer.epochs=3", "did you mean `max_epochs`?"),
        ("train.max_epochs=3", "did you mean `trainer`?"),
        ("optimizer.lr=3", "did you mean `optimizer.sgd.lr`?"),
        ("data.header=false", "did you mean `data.csv.header`?"),
        ("optimizer=adam", "write `optimizer = { adam = { ... } }`"),
        ("schedule=cosine", "write `schedule = { cosine = { ... } }`"),
        ("model.layers=[{ linear = 16 }]", "write `linear = { out_features = 16 }`"),
        ("model.layers=[{ dropout = 0.5 }]", "write `dropout = { p = 0.5 }`"),
        ("logging.policy=[off,buffered]", "to try each value, write the override `logging.policy=off,b"),
        ("threads=2", "it is an option of the command: `--threads`"),
        ("devices.virtual_gpus=2", "it is an option of the command: `--virtual-gpus`"),
        ("optimizer.sgd.lr=0,5", "a comma separates the values of a sweep: `0.5` is a number"),
        ("data.csv.zebra=[1.0]", "known here: "),
        // Another program's words; a key of the same name elsewhere is another setting.
        ("trainer.seed=3", "`seed` stands outside of tables; known here: "),
        ("random_state=3", "did you mean `seed`?"),
        ("data.random_seed=3", "did you mean `seed`?"),
        ("data.split.random_state=3", "did you mean `seed`?"),
        ("trainer.gpus=1", "did you mean `devices.num_gpus`?"),
        ("gpus=1", "did you mean `devices.num_gpus`?"),
        ("time=10m", "did you mean `trainer.max_time`?"),
        ("trainer.early_stopping.monitor=validation.loss", "did you mean `metric`?"),
        ("monitor=validation.loss", "did you mean `trainer.monitor`?"),
        ("trainer.loss=l1", "did you mean `model.loss`?"),
        ("num_workers=2", "it is an option of the command: `--jobs`"),
        ("output_dir=x", "it is an option of the command: `--runs-dir`"),
        (
            "trainer.monitor=val_loss",
            "did you mean `validation.loss`? it is one of `validation.loss`, `validation.accuracy`",
        ),
        ("trainer.monitor=val_acc", "did you mean `validation.accuracy`? it is one of"),
        ("model.loss=MSELoss", "did you mean `mse`? it is one of `mse`, `l1`, `huber` or `cross_entropy`"),
        ("model.loss=mean_squared_error", "did you mean `mse`? it is one of"),
        ("devices.precision=fp16", "did you mean `bf16`? it is one of `f32`, `tf32` or `bf16`"),
        ("model.layers=[{ dense = { units = 4 } }]", "did you mean `linear`?"),
        // Several tables have this key, and the spec has none of them.
        ("gamma=0.5", "known here: "),
    ] {
        let ended = place.runner(&["check", "spec.toml", typed]);
        assert_eq!(ended.code, Some(2), "{typed}");
        assert!(ended.stderr.contains(&format!("= hint: {hint}")), "{}", ended.stderr);
    }
}

#[test]
fn a_word_that_is_nearly_a_command() {
    let place = Sandbox::new(LINREG);
    for (typed, line) in [
        ("chekc", "error: no command `chekc`\n  = hint: did you mean `runner check`?\n"),
        ("chekc spec.toml", "error: no command `chekc`\n  = hint: did you mean `runner check`?\n"),
        ("train spec.toml seed=1", "error: no command `train`\n  = hint: did you mean `runner run`?\n"),
        ("compar", "error: no command `compar`\n  = hint: did you mean `runner compare`?\n"),
        (
            "extend runs",
            "error: no command `extend`\n  = hint: `runner run --resume RUN trainer.max_epochs=N` gives a run more epochs\n",
        ),
        (
            "resume latest",
            "error: no command `resume`\n  = hint: `runner run --resume RUN` resumes a run or a sweep\n",
        ),
        ("cancle x", "error: no command `cancle`\n  = hint: did you mean `runner cancel`?\n"),
        ("trian spec.toml", "error: no command `trian`\n  = hint: did you mean `runner run`?\n"),
        ("spec", "error: no command `spec`\n  = hint: did you mean `runner spec.toml`?\n"),
        (
            "spec.toml --max-epochs 3",
            "error: no option `--max-epochs`\n  = hint: keys have no dashes: `trainer.max_epochs=3`\n",
        ),
        (
            "spec.toml --gpus 1",
            "error: no option `--gpus`\n  = hint: `devices.num_gpus=N` trains on GPUs; with `--launcher slurm`, \
             `sbatch` takes its options as in `--sbatch=--partition=NAME`\n",
        ),
        (
            "spec.toml --dry-run",
            "error: `--dry-run` prints the script of `--launcher`\n  = hint: `runner check spec.toml` prints what would \
             happen, and starts nothing\n",
        ),
        (
            "parity spec.toml --jobs 4",
            "error: `--jobs` is an option of `runner run`\n  = hint: leave it out: `parity` starts no run\n",
        ),
        (
            "check spec.toml --fail-fast",
            "error: `--fail-fast` is an option of `runner run`\n  = hint: leave it out: `check` starts no run\n",
        ),
        ("spec.toml --advise", "error: no option `--advise`\n  = hint: `runner check` has it\n"),
        ("spec.toml --quite", "error: no option `--quite`\n  = hint: did you mean `--quiet`?\n"),
        (
            "sweep spec.toml",
            "error: no command `sweep`\n  = hint: `runner SPEC.toml` runs every trial of the sweep in the spec; \
             `KEY=1,2,4` after it sweeps a key\n",
        ),
        (
            "list --runs-dir mine",
            "error: no option `--runs-dir`\n  = hint: `list` takes the folder itself: `runner list mine`\n",
        ),
        ("compare --runs-dir=mine", "  = hint: `compare` takes the folder itself: `runner compare mine`\n"),
        ("check", "error: the spec is missing\n"),
        ("parity -q", "error: the spec is missing\n"),
        ("spec.toml --seed 2", "error: no option `--seed`\n  = hint: keys have no dashes: `seed=2`\n"),
        (
            "spec.toml --epochs 5",
            "error: no option `--epochs`\n  = hint: keys have no dashes: `trainer.max_epochs=5`\n",
        ),
        (
            "check spec.toml --weight-decay=0.1",
            "error: no option `--weight-decay`\n  = hint: keys have no dashes: `optimizer.sgd.weight_decay=0.1`\n",
        ),
        ("check spec.toml --trainer.max_epochs=3", "  = hint: keys have no dashes: `trainer.max_epochs=3`\n"),
    ] {
        let ended = place.runner(&typed.split(' ').collect::<Vec<_>>());
        assert_eq!(ended.code, Some(2), "{typed}");
        assert!(ended.stderr.contains(line), "{}", ended.stderr);
    }
}

/// The option changes nothing for a spec that asks for no GPU; the variable stands for all runs of a shell.
#[test]
fn virtual_gpus_that_no_trial_asks_for() {
    let place = Sandbox::new(LINREG);
    let warning = "warning: `--virtual-gpus 2` changes nothing: the spec asks for no GPU, as `devices.num_gpus=2` does\n";
    for command in ["check", "run"] {
        let words = |more: &[&str]| {
            let ended =
                place.runner(&[&[command, "spec.toml", "-q", "--virtual-gpus"], more].concat()).ended_by(0);
            ended.stderr
        };
        assert_eq!(words(&["2"]), warning);
        assert_eq!(words(&["0"]), "");
        assert_eq!(words(&["2", "devices.num_gpus=0,1"]), "");
    }
}

/// Runs what the script of `runner completions bash` calls.
#[test]
fn a_shell_completes_keys_specs_templates_and_runs() {
    let place = Sandbox::new(LINREG);
    let run = place.run(&["-q"]).ended_by(0).0;
    let script = place.runner(&["completions", "bash"]);
    assert!(
        script.stdout.contains("RUNNER_COMPLETE=\"bash\"") && script.stdout.contains("-- \"${words[@]}\"")
    );
    let completed = |words: &[&str]| -> Vec<String> {
        let mut command = place.command(&[&["--", "runner"], words].concat());
        command.env("RUNNER_COMPLETE", "bash").env("_CLAP_COMPLETE_INDEX", words.len().to_string());
        command.env("_CLAP_IFS", "\n").env("RUNNER_RUNS_DIR", run.parent().unwrap().parent().unwrap());
        let output = command.output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
    };
    assert_eq!(completed(&["spec.toml", "optimizer.sgd.l"]), ["optimizer.sgd.lr="]);
    std::fs::write(place.path().join("above.toml"), "extends = 'spec.toml'\n").unwrap();
    assert_eq!(completed(&["above.toml", "optimizer.sgd.l"]), ["optimizer.sgd.lr="]);
    assert!(
        completed(&["above.toml", "extends"]).is_empty() && completed(&["above.toml", "delete"]).is_empty()
    );
    assert_eq!(completed(&["check", "-q", "spec.toml", "model.loss=h"]), ["model.loss=huber"]);
    assert_eq!(completed(&["\"spec.toml\"", "optimizer.sgd.l"]), ["optimizer.sgd.lr="]);
    // Bash splits words at `=`.
    assert_eq!(completed(&["spec.toml", "trainer.restore_best", "=", "t"]), ["true"]);
    assert_eq!(completed(&["spec.toml", "trainer.restore_best", "="]), ["true", "false"]);
    assert_eq!(completed(&["run", "sp"]), ["spec.toml"]);
    assert_eq!(completed(&["new", "m"]), ["mlp"]);
    let [name, run] = [run.parent().unwrap(), &run].map(|path| path.to_str().unwrap());
    assert_eq!(completed(&["show", name]), [run]);
    assert_eq!(completed(&["comp"]), ["compare", "completions"]);
    // The cursor is before the spec.
    let mut command = place.command(&["--", "runner", "check", "sp", "spec.toml"]);
    command.env("RUNNER_COMPLETE", "bash").env("_CLAP_COMPLETE_INDEX", "2").env("_CLAP_IFS", "\n");
    assert_eq!(String::from_utf8(command.output().unwrap().stdout).unwrap(), "spec.toml");
    // A word that is not UTF-8 is not a spec.
    let mut command = place.command(&["--", "runner"]);
    command.arg(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(b"\xff")).arg("sp");
    command.env("RUNNER_COMPLETE", "bash").env("_CLAP_COMPLETE_INDEX", "2");
    let output = command.output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

#[test]
fn options_of_sweeps_say_when_they_change_nothing() {
    let place = Sandbox::new(LINREG);
    for (words, idle) in [(&["--jobs", "4"][..], "--jobs"), (&["--fail-fast"], "--fail-fast")] {
        let ended = place.run(&[&["-q", "trainer.max_epochs=1"], words].concat()).ended;
        let warning = format!("warning: `{idle}` changes nothing: this is one run, and not a sweep\n");
        assert_eq!((ended.code, ended.stderr), (Some(0), warning));
    }
    let sweep = place.run(&["-q", "trainer.max_epochs=1", "seed=0,1", "--jobs", "2", "--fail-fast"]).ended;
    assert_eq!((sweep.code, sweep.stderr.as_str()), (Some(0), ""));
}

#[test]
fn a_path_that_is_nearly_that_of_a_spec() {
    let place = Sandbox::new(LINREG);
    std::fs::create_dir(place.path().join("specs")).unwrap();
    std::fs::copy(place.path().join("spec.toml"), place.path().join("specs/linreg.toml")).unwrap();
    for typed in ["spces/linreg.toml", "specs/linrge.toml", "spces/linrge.toml"] {
        let ended = place.runner(&["check", typed]);
        let message = format!(
            "error: cannot read `{typed}`: no such file or directory\n = hint: did you mean `specs/linreg.toml`?\n"
        );
        assert_eq!((ended.code, ended.stderr), (Some(2), message));
    }
    assert!(!place.runner(&["check", "elsewhere/linreg.toml"]).stderr.contains("hint"));
    // The ending alone makes no name alike.
    std::fs::copy(place.path().join("spec.toml"), place.path().join("load.toml")).unwrap();
    assert!(!place.runner(&["check", "odd.toml"]).stderr.contains("hint"));
}
