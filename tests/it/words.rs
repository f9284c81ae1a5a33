//! Full messages as a user reads them: sizes and their units, the location of an error, the machine.

use std::process::Command;

use super::{
    process::{DEBUG_BUILD, Ended, Folder, RUNNER, Sandbox, tensors},
    run::LINREG,
};

/// Messages about memory, with this machine's available memory as `FREE`.
fn refused(place: &Sandbox, arguments: &[&str]) -> String {
    let ended = place.runner(&[&["check", "spec.toml"], arguments].concat()).ended_by(2);
    let free = ended.stderr.split(", and ").nth(1).and_then(|rest| rest.split(" are available").next());
    ended.stderr.replace(free.unwrap_or("nothing"), "FREE")
}

#[test]
fn what_is_too_large_is_underlined_where_it_was_written() {
    let place = Sandbox::new("kind = \"matmul\"\n[matmul]\nsizes = [16, 4000000]\n");
    insta::assert_snapshot!(refused(&place, &[]), @r"
    error: this needs 175 TiB of memory on the host, and FREE are available
     --> spec.toml:3:14
      |
    3 | sizes = [16, 4000000]
      |              ^^^^^^^
      |
      = hint: make it smaller
    ");
    insta::assert_snapshot!(refused(&place, &["matmul.sizes=[16]", "matmul.sizes.0=3000000"]), @r"
    error: this needs 98.2 TiB of memory on the host, and FREE are available
     --> argument 2:1:16
      |
    1 | matmul.sizes.0=3000000
      |                ^^^^^^^
      |
      = hint: make it smaller
    ");
    let place = Sandbox::new(LINREG);
    let wide = "model.layers=[{ linear = { out_features = 2000000000 } }, { linear = { out_features = 1 } }]";
    let weights = format!("data.synthetic_regression.weights=[{}0]", "0, ".repeat(1999));
    insta::assert_snapshot!(refused(&place, &[wide]), @r"
    error: the job needs 499 GiB of memory for parameters, activations and data, and FREE are available
     --> argument:1:43
      |
    1 | model.layers=[{ linear = { out_features = 2000000000 } }, { linear = { out_features = 1 } }]
      |                                           ^^^^^^^^^^
      |
      = hint: make the model smaller
    ");
    insta::assert_snapshot!(refused(&place, &["data.synthetic_regression.train_rows=4000000000", &weights]), @r"
    error: 4,000,000,050 synthetic rows of 2,000 features need 29.1 TiB of memory, and FREE are available here
     --> argument 1:1:38
      |
    1 | data.synthetic_regression.train_rows=4000000000
      |                                      ^^^^^^^^^^
      |
      = hint: lower it
    ");
}

/// A limit on the address space includes what the program itself uses already.
#[test]
fn what_a_limit_leaves_is_what_is_available() {
    let place = Sandbox::new(LINREG);
    let line = format!(
        "ulimit -v 200000; exec {RUNNER} check spec.toml data.synthetic_regression.train_rows=20000000"
    );
    let ended = Ended::from_output(
        Command::new("sh").args(["-c", &line]).current_dir(place.path()).output().unwrap(),
    )
    .ended_by(2);
    let (needs, rest) = ended.stderr.split_once(" of memory, and ").unwrap();
    assert_eq!(needs, "error: 20,000,050 synthetic rows of 2 features need 229 MiB");
    let (free, rest) = rest.split_once(" MiB are available here\n").unwrap();
    // The limit is 195.3 MiB, of which the program itself takes about ten.
    assert!((50.0..194.0).contains(&free.parse::<f64>().unwrap()), "{free}");
    assert!(rest.ends_with("  = hint: lower it\n"), "{rest}");
}

#[test]
fn the_machine_with_virtual_gpus() {
    let place = Sandbox::new("");
    let gpus = |ended: Ended| {
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
        let at = ended.stdout.find("\ngpu").unwrap();
        let text = ended.stdout[at + 1..].to_owned();
        match text.split("host's ").nth(1).and_then(|rest| rest.split(" usable").next()) {
            Some(free) if !free.contains('\n') => text.replace(free, "FREE"),
            _ => text,
        }
    };
    insta::assert_snapshot!(gpus(place.runner(&["devices", "--virtual-gpus", "2"])), @r"
    gpu: 2 virtual GPUs
      device     in a spec  memory
      virtual:0  gpu:0      separate, from the host's FREE usable memory
      virtual:1  gpu:1      separate, from the host's FREE usable memory

      virtual: the CPU simulates exactly these GPUs; real ones are hidden
      they share the CPU: their times do not predict real GPUs
    ");
    assert_eq!(
        gpus(place.runner(&["devices", "--virtual-gpus", "0"])),
        "gpu\n  none: `--virtual-gpus 0` hides every one\n"
    );
    let by_variable = place.command(&["devices"]).env("RUNNER_VIRTUAL_GPUS", "1").output().unwrap();
    assert!(gpus(Ended::from_output(by_variable)).contains("\n  virtual:0  gpu:0 "));
}

#[test]
fn options_before_the_command() {
    let place = Sandbox::new(LINREG);
    let ended = place.runner(&["-q", "--threads", "1", "run", "spec.toml"]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    assert!(ended.stdout.starts_with("runs/spec/") && ended.stdout.lines().count() == 1, "{ended:?}");
}

/// A spec from standard input, with the runs folder from the environment; the run is repeated from its own
/// spec.
#[test]
fn a_spec_from_standard_input() {
    let place = Sandbox::new(LINREG);
    let piped = |arguments: &[&str], text: &str| {
        std::fs::write(place.path().join("piped"), text).unwrap();
        let mut command = place.command(arguments);
        command.env("RUNNER_RUNS_DIR", "elsewhere");
        let input = std::fs::File::open(place.path().join("piped")).unwrap();
        Ended::from_output(command.stdin(input).output().unwrap())
    };
    let ended = piped(&["-", "name=piped", "-q"], LINREG);
    let folder = ended.stdout.trim_end();
    assert!(folder.starts_with("elsewhere/piped/"), "{ended:?}");
    assert_eq!(piped(&["latest"], "").stdout.trim_end(), folder);
    let hint = "error: `latest` does not exist\n  = hint: the newest run or sweep is `$(runner latest)`\n";
    assert_eq!(piped(&["compare", "latest"], "").stderr, hint);
    piped(&[&format!("{folder}/spec.toml"), "-q"], "").ended_by(0);
    assert_eq!(
        piped(&["check", "-"], "lr = [").stderr,
        "error: not TOML: unclosed array, expected `]`\n --> <stdin>:1:7\n  |\n1 | lr = [\n  |       ^\n"
    );
    let table = format!(
        "[data.csv]\npath = \"none.csv\"\ntarget = \"y\"\n{}",
        &LINREG[LINREG.find("[model]").unwrap()..]
    );
    let hint = "\n  = hint: a relative path is taken from the current folder, since the spec is standard input; `data.csv.path=PATH` \
                names another file\n";
    let reported = piped(&["check", "-"], &table).stderr;
    assert!(reported.ends_with(hint), "{reported}");
}

/// A path of Windows has one error for all its backslashes; quotes of a text processor are named.
#[test]
fn toml_from_other_programs() {
    let place = Sandbox::new("name = \u{201c}a\u{201d}\n[data.csv]\npath = \"C:\\Users\\me\\churn.csv\"\n");
    insta::assert_snapshot!(place.runner(&["check", "spec.toml"]).stderr, @r#"
    error: not TOML: `“a”` has curly quotes
     --> spec.toml:1:8
      |
    1 | name = “a”
      |        ^^^
      |
      = hint: write straight ones: `"a"`

    error: not TOML: within `"..."` a backslash begins an escape sequence
     --> spec.toml:3:13
      |
    3 | path = "C:\Users\me\churn.csv"
      |             ^
      |
      = hint: write `'...'`, where it is a letter as any other, or `/` in a path

    error: 2 problems in spec.toml
    "#);
}

/// Opening a pipe would block, and reading a device would never end, so neither is opened.
#[test]
fn data_that_are_no_file() {
    let place = Sandbox::new("");
    let pipe = place.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let spec = |source: &str, init: &str| {
        let rest = "[optimizer.sgd]\nlr = 0.1\n[model]\nlayers = [{ linear = { out_features = 1 } }]\nloss = \"mse\"\n";
        format!("{source}\n{rest}{init}\n")
    };
    let synthetic = "[data.synthetic_regression]\nweights = [1.0]";
    let reported = |text: String| {
        std::fs::write(place.path().join("spec.toml"), text).unwrap();
        let [checked, ran] = ["check", "run"].map(|command| place.runner(&[command, "spec.toml"]));
        assert_eq!((checked.code, ran.code, &checked.stderr), (Some(2), Some(2), &ran.stderr));
        assert!(!place.path().join("runs").exists());
        checked.stderr.replace(&place.path().display().to_string(), "HERE")
    };
    insta::assert_snapshot!(reported(spec("[data.csv]\npath = \"pipe\"\ntarget = \"y\"", "")), @r#"
    error: cannot read `HERE/pipe`: it is a named pipe: expected a regular file
     --> spec.toml:2:8
      |
    2 | path = "pipe"
      |        ^^^^^^
      |
      = hint: write what it gives to a file and name that: data files are looked at again
    "#);
    insta::assert_snapshot!(reported(spec("[data.idx]\nimages = \"/dev/zero\"\nlabels = \"pipe\"", "")), @r#"
    error: cannot read `/dev/zero`: it is a device: expected a regular file
     --> spec.toml:2:10
      |
    2 | images = "/dev/zero"
      |          ^^^^^^^^^^^
      |
      = hint: write what it gives to a file and name that: data files are looked at again
    "#);
    insta::assert_snapshot!(reported(spec("[data.npy]\nfeatures = \".\"\nlabels = \"pipe\"", "")), @r#"
    error: cannot read `HERE`: it is a folder: expected a regular file
     --> spec.toml:2:12
      |
    2 | features = "."
      |            ^^^
      |
      = hint: name a file in it
    "#);
    insta::assert_snapshot!(reported(spec(synthetic, "init = { file = \"pipe\" }")), @r#"
    error: cannot read `HERE/pipe`: it is a named pipe: expected a regular file
     --> spec.toml:8:17
      |
    8 | init = { file = "pipe" }
      |                 ^^^^^^
      |
      = hint: write what it gives to a file and name that: data files are looked at again
    "#);
    let tensors =
        "kind = \"tensors\"\n[[tensors.step]]\nname = \"w\"\nload = { file = \"pipe\" }\ndevice = \"cpu\"\n";
    insta::assert_snapshot!(reported(tensors.to_owned()), @r#"
    error: cannot read `HERE/pipe`: it is a named pipe: expected a regular file
     --> spec.toml:4:17
      |
    4 | load = { file = "pipe" }
      |                 ^^^^^^
    "#);
}

/// A debug build prints one line on what its times are worth wherever it shows times; a release build does
/// not.
#[test]
fn what_a_debug_build_says_of_its_times() {
    let place = Sandbox::new(LINREG);
    let raw = |arguments: &[&str]| {
        let output = place.command(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
    };
    let lab = place.path().join("lab.toml");
    std::fs::write(&lab, "kind = \"matmul\"\n[matmul]\nsizes = [16]\ncount = 2\n").unwrap();
    let run = raw(&["spec.toml"]);
    let folder = Folder::within(&place.path().join("runs")).unwrap();
    let is_debug = folder.text("environment.toml").contains("\nbuild = \"debug\"\n");
    assert!(is_debug || folder.text("environment.toml").contains("\nbuild = \"release\"\n"));
    let lines = |text: &str| {
        text.lines().filter(|line| line.contains("debug")).map(str::to_owned).collect::<Vec<_>>()
    };
    let reported = |text: &str, before: &str| {
        let want = if is_debug { vec![format!("{before}{DEBUG_BUILD}")] } else { Vec::new() };
        assert_eq!(lines(text), want, "{text}");
    };
    reported(&run, "  build            ");
    reported(&raw(&["check", "spec.toml"]), "  build      ");
    reported(&raw(&["check", "lab.toml"]), "  build      ");
    reported(&raw(&["lab.toml", "--runs-dir", "lab"]), "  build ");
    reported(&raw(&["spec.toml", "seed=1,2", "--runs-dir", "sweep"]), "  build ");
    raw(&["spec.toml", "seed=1"]);
    reported(&raw(&["compare", "runs"]), "the build of all runs is ");
    reported(&raw(&["compare", "runs", "--export", "csv"]), "warning: the build of all runs is ");
    let log = folder.text("run.log");
    assert_eq!(log.matches(&format!(" WARN  build {DEBUG_BUILD}\n")).count(), usize::from(is_debug), "{log}");
}

/// A diverged run has no weights; the command that it suggests gives the last good ones.
#[test]
fn a_run_without_a_model_says_why_and_how_to_get_one() {
    let place = Sandbox::new(LINREG);
    let schedule = "schedule.cosine={}";
    let ran = place.run(&["optimizer.sgd.lr=1e3", schedule]);
    let folder = ran.ended_by(1);
    let diverged: usize = folder.summary("steps").parse().unwrap();
    let good = diverged - 2;
    let spec = folder.0.join("spec.toml");
    let words =
        format!(". For the weights after step {good}: runner {} trainer.max_steps={good}", spec.display());
    let row = format!("\n  model            none was written{words}\n");
    assert_eq!(ran.ended.stdout.matches(&row).count(), 1, "{}", ran.ended.stdout);
    let log = folder.text("run.log");
    assert!(log.ends_with(&format!(" WARN  no model was written{words}\n")), "{log}");
    let rates = "lower the learning rate (it is 1000, 896.7 at this step)";
    assert!(ran.ended.stderr.contains(rates), "{}", ran.ended.stderr);
    assert!(!folder.files().contains(&"model.safetensors".to_owned()));
    let again = Sandbox::with_spec(&spec);
    let kept = again.run(&[&format!("trainer.max_steps={good}")]).ended_by(0);
    assert!(
        tensors(&kept.model()).values().flat_map(|(_, numbers)| numbers).all(|number| number.is_finite())
    );
    // Fewer steps, but the same ones: the schedule is that of the full run.
    let losses = |folder: &Folder| folder.metrics().only("split", "train").column("loss").join(" ");
    let (kept, whole) = (losses(&kept), losses(&folder));
    assert_eq!(kept.split(' ').count(), good);
    assert!(good > 1 && whole.starts_with(&kept), "{whole}\n{kept}");
    // One line per trial.
    let sweep = place.run(&["-v", "optimizer.sgd.lr=0.01,1e10"]);
    assert_eq!(sweep.ended.code, Some(1));
    let lines: Vec<&str> =
        sweep.ended.stderr.lines().filter(|line| line.ends_with("no model was written")).collect();
    assert!(
        lines.len() == 1 && lines[0].starts_with("001-") && lines[0].contains(": diverged after 3 steps "),
        "{lines:?}"
    );
}
