//! Odd inputs and paths: each gets a message, and none hangs, fills the memory or passes as a success.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::PathBuf,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use super::LIMIT;
use crate::{
    process::{Ended, RUNNER, Sandbox, Table},
    run::LINREG,
};

const SPEC: &str = r#"
data.csv = { path = "rows.csv", target = "y", validation_path = "rows.csv" }
model.layers = [{ linear = { out_features = 1 } }]
optimizer.sgd.lr = 1e-3
trainer.max_epochs = 1
"#;

#[test]
fn a_constant_column_and_rows_that_validate_themselves_are_named() {
    let sandbox = Sandbox::new(SPEC);
    let rows: String = (0..40).map(|i| format!("{i},7,{}\n", 2 * i)).collect();
    fs::write(sandbox.path().join("rows.csv"), format!("x,c,y\n{rows}")).unwrap();
    let ran = sandbox.run(&[]);
    for warning in [
        "warning: `c` is alike in all training rows",
        "warning: the rows to validate on are those to train on",
    ] {
        assert!(ran.ended.stderr.contains(warning), "{}", ran.ended.stderr);
    }
}

/// Run folders may come from anybody.
#[test]
fn compare_reads_regular_files_of_bearable_length() {
    let sandbox = Sandbox::new(
        "data.synthetic_regression.weights = [1.0]\nmodel.layers = [{ linear = { out_features = 1 } }]\noptimizer.sgd.lr = 0.1",
    );
    let folder = sandbox.run(&[]).ended_by(0).0;
    for (file, is_named) in
        [("spec.toml", true), ("environment.toml", true), ("metrics.csv", false), ("summary.csv", false)]
    {
        let path = folder.join(file);
        let kept = sandbox.path().join("kept");
        fs::rename(&path, &kept).unwrap();
        let compare = |what: &str| {
            let compared = sandbox.runner(&["compare", folder.to_str().unwrap()]);
            let words = format!("it is {what}: expected a regular file");
            assert!(!is_named || compared.stderr.contains(&words), "{file}: {compared:?}");
            fs::remove_file(&path).unwrap();
        };
        symlink("/dev/zero", &path).unwrap();
        compare("a device");
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        compare("a named pipe");
        fs::rename(&kept, &path).unwrap();
    }
}

/// Control characters in names, descriptions and paths must not colour or hide output, nor look like lines of
/// their own.
#[test]
fn names_do_not_reach_the_terminal_raw() {
    const EVIL: &str = r"\u001b]0;x\u0007\u009b2J\u001b[2K\r\u001b[8m\u202e\nFAKE";
    let sandbox = Sandbox::new(&format!(
        "name = \"evil\"\ndata.synthetic_regression.weights = [1.0]\noptimizer.sgd.lr = 0.1\n\
         model.layers = [{{ linear = {{ out_features = 1 }} }}]\nsweep.grid.description = [\"c{EVIL}\", \"d\"]\n",
    ));
    let runs = "runs\u{1b}]0;x\u{7}\u{9b}2J\u{1b}[8m\u{202e}\nFAKE";
    let missing = "no\u{9b}2J\u{1b}[8m\u{202e}\nFAKE";
    fs::write(sandbox.path().join(missing), "FAKE,\u{1b}[8m\n1").unwrap();
    let data = format!("data.csv.path={}", toml::Value::from(missing));
    let commands: [&[&str]; 15] = [
        &["check", "spec.toml"],
        &["spec.toml", "-v"],
        &["spec.toml", "trainer.max_epochs=1"],
        &["spec.toml", "~sweep", "-v"],
        &["spec.toml", "~sweep", "-q"],
        &["list", runs],
        &["latest", runs],
        &["compare", runs],
        &["compare", runs, "--detail"],
        &["watch", runs],
        &["plot", runs],
        &["show", missing],
        &["predict", missing, "x.csv"],
        &["check", missing],
        &["check", "spec.toml", "~data.synthetic_regression", &data, "data.csv.target=y"],
    ];
    for command in commands {
        let mut runner = sandbox.command(command);
        let output = runner.env("RUNNER_RUNS_DIR", runs).args(["--color", "always"]).output().unwrap();
        if ["list", "compare"].contains(&command[0]) {
            assert_eq!(output.status.code(), Some(0), "{command:?}");
            assert!(
                String::from_utf8_lossy(&output.stdout).contains(r"\u{1b}[8m\u{202e}\nFAKE"),
                "{command:?}"
            );
        }
        for bytes in [output.stdout, output.stderr] {
            let text = String::from_utf8(bytes).unwrap();
            let is_own_colour = |rest: &str| {
                rest.trim_start_matches(|c| "[;0123456789".contains(c)).starts_with('m')
                    && !rest.starts_with("[8m")
            };
            assert!(text.split('\u{1b}').skip(1).all(is_own_colour), "{command:?}: {text:?}");
            let is_odd = |c: char| (c.is_control() && !"\n\t\u{1b}".contains(c)) || c == '\u{202e}';
            assert!(!text.contains(is_odd), "{command:?}: {text:?}");
            assert!(!text.lines().any(|line| line.trim_start().starts_with("FAKE")), "{command:?}: {text:?}");
        }
    }
}

/// Tables keep every cell as it is, as SECURITY.md says: `-0.1` is a value, and so is text that a spreadsheet
/// would take for a formula.
#[test]
fn cells_keep_what_a_spreadsheet_would_calculate() {
    let sandbox = Sandbox::new(
        "data.synthetic_regression.weights = [1.0]\nmodel.layers = [{ linear = { out_features = 1 } }]\noptimizer.sgd.lr = 0.1",
    );
    let sweep = sandbox.run(&["description=\"=1+1\",\"-0.1\",\"@x\"", "trainer.max_epochs=1"]).ended_by(0);
    let table = Table::read(&sweep.text("sweep.csv"));
    assert_eq!(table.column("description"), ["=1+1", "-0.1", "@x"]);
    let all = sandbox.runner(&["compare", sweep.0.to_str().unwrap(), "--export", "csv"]).stdout;
    assert_eq!(Table::read(&all).column("description"), table.column("description"));
    let security = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/SECURITY.md")).unwrap();
    assert!(security.contains("Tables keep every cell as it is"));
}

/// A `git` in a repository around the spec, whose `git status` takes ten minutes.
pub struct SlowGit(PathBuf);

impl SlowGit {
    pub fn new(sandbox: &Sandbox, command: &mut Command) -> Self {
        let path = |name: &str| sandbox.path().join(name);
        for folder in [".git/objects", ".git/refs", "bin"] {
            fs::create_dir_all(path(folder)).unwrap();
        }
        fs::write(path(".git/HEAD"), "0123456789012345678901234567890123456789\n").unwrap();
        fs::write(path(".git/config"), "[core]\n").unwrap();
        let script = format!(
            "#!/bin/sh\ncase \"$*\" in *status*) echo $$ >'{}'; exec sleep 600;; esac\n",
            path("pid").display()
        );
        fs::write(path("bin/git"), script).unwrap();
        fs::set_permissions(path("bin/git"), fs::Permissions::from_mode(0o755)).unwrap();
        let search = format!("{}:{}", path("bin").display(), std::env::var("PATH").unwrap());
        command.env("PATH", search);
        Self(path("pid"))
    }

    /// The process of git, once there is one.
    pub fn pid(&self) -> Option<u32> {
        fs::read_to_string(&self.0).ok()?.trim().parse().ok()
    }

    /// Waits for its end.
    #[track_caller]
    pub fn ends(&self) {
        let stat = format!("/proc/{}/stat", self.pid().expect("git was asked"));
        let begun = Instant::now();
        // The parent may be gone, so the process may remain as a zombie.
        let is_git = |stat: String| {
            ["(git)", "(sleep)"].iter().any(|name| stat.contains(name)) && !stat.contains(") Z")
        };
        while fs::read_to_string(&stat).is_ok_and(is_git) {
            assert!(begun.elapsed() < LIMIT, "it is still there");
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A git that takes too long is ended, and not asked again.
#[test]
fn a_slow_git_does_not_outlive_the_run() {
    let sandbox = Sandbox::new(
        "data.synthetic_regression.weights = [1.0]\nmodel.layers = [{ linear = { out_features = 1 } }]\noptimizer.sgd.lr = 0.1",
    );
    let (mut command, _) = sandbox.prepared(&["-q"]);
    let git = SlowGit::new(&sandbox, &mut command);
    assert!(command.output().unwrap().status.success());
    git.ends();
}

#[test]
fn text_that_cannot_be_written_is_a_failure() {
    let full = || Stdio::from(fs::File::options().write(true).open("/dev/full").unwrap());
    let no_space = "error: cannot write to standard output: no space left on device\n";
    let place = Sandbox::new("");
    for (arguments, code) in [
        ("--help", 1),
        ("--version", 1),
        ("run --help", 1),
        ("help", 1),
        ("new linreg", 1),
        ("schema", 1),
        ("", 2),
    ] {
        let mut command = place.command(&arguments.split_whitespace().collect::<Vec<_>>());
        let ended = Ended::from_output(command.stdout(full()).stderr(Stdio::piped()).output().unwrap());
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(code), no_space), "{arguments}");
    }
    // A pipe that is closed after the first line is no failure.
    let script = format!("{RUNNER} --help | head -1; {RUNNER} run --help | true");
    let shell = Command::new("bash").args(["-o", "pipefail", "-c", &script]).output().unwrap();
    let ended = Ended::from_output(shell);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
}

/// The shell's `>&-`: nothing that is printed arrives, so nothing is begun.
#[test]
fn a_closed_standard_output_is_a_failure() {
    let place = Sandbox::new(LINREG);
    for arguments in ["--help", "new linreg", "check spec.toml", "list", "spec.toml -q", "export x --onnx y"]
    {
        let script = format!("exec {RUNNER} {arguments} >&-");
        let mut shell = Command::new("sh");
        let ended =
            Ended::from_output(shell.args(["-c", &script]).current_dir(place.path()).output().unwrap());
        let message = "error: cannot write to standard output: it is closed\n  = hint: `> /dev/null` throws away what is printed\n";
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(1), message), "{arguments}");
    }
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1, "no run began");
}
