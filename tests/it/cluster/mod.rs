//! Sweeps on a cluster, with stand-ins of Slurm's commands: the script, what Slurm refuses, states, the end. `tests/cluster`
//! has the real ones.

mod left;
mod restarts;

use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf};

use super::process::{Ended, Sandbox, Table};

const SPEC: &str = "
name = \"points\"
[data.synthetic_regression]
weights = [2.0, -3.4]
train_rows = 64
[model]
layers = [{ linear = { out_features = 1 } }]
[optimizer.sgd]
lr = 0.03
[trainer]
max_epochs = 2
[sweep]
grid = { \"optimizer.sgd.lr\" = [0.1, 0.01, 0.001] }
";

/// A folder whose name a shell would split, with commands of Slurm that keep what they were given.
struct Cluster {
    place: Sandbox,
    commands: PathBuf,
}

impl Cluster {
    fn new(spec: &str) -> Self {
        let place = Sandbox::new(spec);
        let commands = place.path().join("commands");
        fs::create_dir(&commands).unwrap();
        Self { place, commands }
    }

    /// A command that keeps its arguments and its input, then does as `script` says.
    fn answers(&self, name: &str, script: &str) {
        let path = self.commands.join(name);
        let keep =
            format!("echo \"$@\" >> {name}.arguments\n[ {name} != sbatch ] || /bin/cat > sbatch.script\n");
        fs::write(&path, format!("#!/bin/sh\n{keep}{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn runner(&self, arguments: &[&str]) -> Ended {
        // The host may have a Slurm of its own.
        let mut command = self.place.command(arguments);
        command.env("PATH", &self.commands).env_remove("SLURM_CPUS_ON_NODE");
        Ended::from_output(command.output().unwrap())
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.place.path().join(name)).unwrap_or_default()
    }

    /// Lines of `squeue` about tasks of a sweep's jobs: `squeue` and `sacct` end each with the job's name.
    fn named(sweep: &str, lines: &[&str]) -> String {
        let name = sweep.rsplit('/').next().unwrap();
        lines.iter().map(|line| format!("{line}|points-{name}\n")).collect()
    }

    /// A sweep whose trials wait for job 12 of three tasks.
    fn submitted(&self) -> String {
        self.answers("sbatch", "echo 12");
        let ended = self.runner(&["spec.toml", "--launcher", "slurm", "-q"]);
        assert_eq!((ended.code, &*ended.stderr), (Some(0), ""), "{ended:?}");
        ended.stdout.trim().to_owned()
    }
}

#[test]
fn a_dry_run_prints_the_script_and_writes_nothing() {
    let cluster = Cluster::new(SPEC);
    let mut arguments = vec!["spec.toml", "--launcher=slurm", "--dry-run", "--runs-dir", "a 'b\" 50%"];
    arguments.extend([
        "launcher.slurm.array=3%2",
        "launcher.slurm.time='1:30:00'",
        "launcher.slurm.setup=\"module load cuda, x\\nset -u\"",
        "--jobs=2",
    ]);
    arguments.extend(["launcher.slurm.extra=[--partition=long,--account=lab]", "--threads=2"]);
    arguments.extend(["--sbatch=--partition=gpu", "--sbatch=--mem=16G"]);
    let ended = cluster.runner(&arguments);
    assert_eq!((ended.code, &*ended.stderr), (Some(0), ""));
    let lines: Vec<&str> = ended.stdout.lines().collect();
    assert!(
        lines[1].starts_with("#SBATCH --job-name=points-20") && lines[1].contains("Z-sweep-"),
        "{}",
        lines[1]
    );
    assert_eq!([lines[0], lines[2]], ["#!/bin/bash", "#SBATCH --array=0-2%2"]);
    assert!(lines[3].starts_with("#SBATCH --output=\"/"), "{}", lines[3]);
    assert!(
        lines[3].contains("/a 'b\\\" 50%%/points/") && lines[3].ends_with("/slurm/%A_%a.out\""),
        "{}",
        lines[3]
    );
    let options = [
        "#SBATCH --open-mode=append",
        "#SBATCH --signal=B:USR1@120",
        "#SBATCH --requeue",
        "#SBATCH --nodes=1",
        "#SBATCH --time=1:30:00",
        // Of two that are the same, `sbatch` takes the last: that of the command line.
        "#SBATCH --partition=long",
        "#SBATCH --account=lab",
        "#SBATCH --partition=gpu",
        "#SBATCH --mem=16G",
        "module load cuda, x",
        "set -u",
    ];
    assert_eq!(lines[4..15], options);
    let task = lines[15];
    assert!(task.starts_with("exec /") && task.contains("runner run --resume '/"), "{task}");
    assert!(task.ends_with("' --slurm-task --threads 2 --jobs 2"), "{task}");
    assert_eq!(fs::read_dir(cluster.place.path()).unwrap().count(), 2, "a dry run makes a folder");
}

#[test]
fn what_is_submitted_runs_as_written() {
    let spec = format!("{SPEC}\n[launcher.slurm]\nsetup = \"echo from setup\"\nextra = [\"--mem=1G\"]\n");
    let cluster = Cluster::new(&spec);
    let sweep = cluster.submitted();
    let rows = |sweep: &str| Table::read(&cluster.text(&format!("{sweep}/sweep.csv")));
    assert_eq!(rows(&sweep).column("status"), ["planned"; 3]);
    assert_eq!(cluster.text("sbatch.arguments"), "--parsable\n");
    let script = cluster.text("sbatch.script");
    assert!(script.contains("--array=0-2\n") && script.contains("--mem=1G\n"), "{script}");
    let name = sweep.rsplit('/').next().unwrap();
    assert!(script.contains(&format!("#SBATCH --job-name=points-{name}\n")), "{script}");
    assert_eq!(cluster.text(&format!("{sweep}/slurm/12.sh")), script);
    assert!(
        cluster.text(&format!("{sweep}/slurm.toml")).starts_with("[[job]]\njob = \"12\"\nname = \"points-20")
    );
    // Options of the cluster are not part of a trial's spec.
    let plain = Cluster::new(SPEC);
    assert_eq!(plain.submitted().rsplit('-').next(), sweep.rsplit('-').next());
    // Runs what a task of the job array runs.
    let mut task = std::process::Command::new("bash");
    task.arg(cluster.place.path().join("sbatch.script"))
        .env("SLURM_ARRAY_JOB_ID", "12")
        .env("SLURM_ARRAY_TASK_ID", "0");
    let ended = Ended::from_output(task.output().unwrap()).ended_by(0);
    assert!(ended.stdout.starts_with("from setup\n"), "{ended:?}");
    assert_eq!(rows(&sweep).column("status"), ["finished"; 3]);
    let folder = rows(&sweep).cell(2, "folder").to_owned();
    assert!(cluster.text(&format!("{sweep}/{folder}/environment.toml")).contains("slurm_job = \"12_0\"\n"));
    let ended = cluster.runner(&["run", "--resume", &sweep, "--launcher", "slurm"]);
    assert_eq!((ended.code, ended.stdout), (Some(0), format!("`{sweep}`: no trial is left to run\n")));
    // The help of options that every command has is not among those of the cluster.
    let help = cluster.runner(&["--help"]).stdout;
    assert!(help.find("--color").unwrap() < help.find("On a cluster:").unwrap(), "{help}");
}

/// The login node has no GPU, the tasks will have.
#[test]
fn trials_whose_devices_are_elsewhere_are_submitted() {
    let cluster = Cluster::new(SPEC);
    cluster.answers("sbatch", "echo 12");
    for (devices, trials) in [("devices.num_gpus=1", 3), ("devices.num_gpus=0,1", 6)] {
        let arguments = ["spec.toml", devices, "--launcher=slurm", "--virtual-gpus=0"];
        let ended = cluster.runner(&arguments).ended_by(0);
        let says = format!("{trials} trials submitted to Slurm as job 12 of {trials} tasks\n");
        assert!(ended.stdout.starts_with(&says), "{ended:?}");
        assert!(cluster.text("sbatch.script").contains(&format!("--array=0-{}\n", trials - 1)));
        let folder = ended.stdout.lines().find_map(|line| line.trim().strip_prefix("folder  ")).unwrap();
        let rows = Table::read(&cluster.text(&format!("{folder}/sweep.csv")));
        assert_eq!(rows.column("status"), vec!["planned"; trials]);
    }
    let dry = cluster.runner(&["spec.toml", "devices.num_gpus=1", "--launcher=slurm", "--dry-run"]);
    assert!(dry.stdout.contains("--array=0-2\n"), "{dry:?}");
}

/// Tasks do not repeat failed trials: each late one would repeat them again and again. A new submission does.
#[test]
fn tasks_leave_failed_trials_to_the_next_submission() {
    let cluster = Cluster::new(SPEC);
    let sweep = cluster.submitted();
    let path = cluster.place.path().join(&sweep).join("sweep.csv");
    let table = fs::read_to_string(&path).unwrap();
    fs::write(&path, table.replacen("0.1,planned,,", "0.1,failed,,a fault of the disk", 1)).unwrap();
    let status = || Table::read(&fs::read_to_string(&path).unwrap()).column("status").join(" ");
    let ended = cluster.runner(&["run", "--resume", &sweep, "--slurm-task"]);
    assert_eq!((ended.code, &*status()), (Some(1), "failed finished finished"), "{ended:?}");
    // A rejected submission changes nothing, and no job array has more tasks than trials.
    let before = fs::read_to_string(&path).unwrap();
    cluster.answers("sbatch", "echo 'sbatch: error: the queue is closed' >&2; exit 1");
    let ended = cluster.runner(&["run", "--resume", &sweep, "--launcher", "slurm"]);
    assert_eq!((ended.code, fs::read_to_string(&path).unwrap()), (Some(2), before), "{ended:?}");
    cluster.answers("sbatch", "echo 12");
    let ended =
        cluster.runner(&["run", "--resume", &sweep, "--launcher=slurm", "--json", "launcher.slurm.array=8"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(cluster.text("sbatch.script").contains("--array=0-0\n"));
    assert_eq!(cluster.text(&format!("{sweep}/slurm.toml")).matches("[[job]]").count(), 2);
    assert!(ended.stdout.contains("\"job\":\"12\",\"tasks\":1}"), "{}", ended.stdout);
    assert_eq!(status(), "planned finished finished");
    let ended = cluster.runner(&["run", "--resume", &sweep, "--slurm-task"]);
    assert_eq!((ended.code, &*status()), (Some(0), "finished finished finished"), "{ended:?}");
}

#[test]
fn what_sbatch_refuses_is_said_in_its_words() {
    let cluster = Cluster::new(SPEC);
    let refused = |arguments: &[&str], words: &str| {
        let ended = cluster.runner(&[&["spec.toml"], arguments].concat());
        assert_eq!((ended.code, &*ended.stdout), (Some(2), ""), "{ended:?}");
        assert!(ended.stderr.contains(words), "{words}: {}", ended.stderr);
        assert!(!cluster.place.path().join("runs/points").exists(), "a refused sweep leaves a folder");
    };
    let slurm = ["--launcher", "slurm"];
    refused(&slurm, "error: `sbatch` is not found: this machine has no Slurm\n  = hint: call it where");
    let words =
        "sbatch: error: invalid partition specified: none\nsbatch: error: Batch job submission failed";
    cluster.answers("sbatch", &format!("echo '{words}' >&2; exit 1"));
    refused(
        &slurm,
        "error: `sbatch` refuses: invalid partition specified: none; Batch job submission failed\n",
    );
    refused(&["--launcher=slurm", "~sweep"], "error: `--launcher` takes a sweep, and this is one run");
    refused(&["--launcher=slurm", "--sbatch=--array=0-99"], "that the launcher does not set itself");
    refused(&["--launcher=slurm", "--sbatch=-t60"], "that the launcher does not set itself");
    refused(&["--launcher=slurm", "--sbatch=--job-name=x"], "that the launcher does not set itself");
    refused(
        &["--launcher=slurm", "launcher.slurm.time='60'"],
        "hint: a number alone is minutes to `sbatch`: write `90m`",
    );
    refused(&["--launcher=slurm", "launcher.slurm.array=0"], "a number of tasks, such as 256, or `256%32`");
    refused(&["--launcher=slurm", "launcher.slurm.array=1,2"], "`launcher.slurm.array` cannot be an axis");
    for key in ["partition", "account", "gpus"] {
        refused(&["--launcher=slurm", &format!("launcher.slurm.{key}=a")], "did you mean `extra`?");
        refused(&["--launcher=slurm", &format!("--{key}=a")], "as in `--sbatch=--partition=NAME`");
    }
    refused(&["--launcher=slurm", "--time=1h"], "`launcher.slurm.time=1h` limits the tasks");
    refused(&["--launcher=slurm", "--array", "8"], "keys have no dashes: `launcher.slurm.array=8`");
    // Slurm may have accepted the job although `sbatch` failed, so the files that its tasks need are kept.
    for script in
        ["echo welcome", "echo 'sbatch: error: Socket timed out on send/recv operation' >&2; exit 1"]
    {
        cluster.answers("sbatch", script);
        let ended = cluster.runner(&["spec.toml", "--launcher", "slurm"]);
        assert_eq!((ended.code, &*ended.stdout), (Some(2), ""), "{ended:?}");
        assert!(cluster.place.path().join("runs/points").exists(), "{ended:?}");
    }
}

/// Trials that a rung stopped count as finished, although they have epochs left.
#[test]
fn a_finished_sweep_of_successive_halving_leaves_nothing_to_submit() {
    let spec = format!("{SPEC}\n[sweep.stop.asha]\nmin_epochs = 1\nfactor = 3\n");
    let cluster = Cluster::new(&spec);
    let ran = cluster.runner(&["spec.toml", "trainer.max_epochs=3", "-q"]).ended_by(0);
    let sweep = ran.stdout.trim();
    assert!(cluster.text(&format!("{sweep}/sweep.csv")).contains(",stopped,"));
    let ended = cluster.runner(&["run", "--resume", sweep, "--launcher=slurm", "--dry-run"]).ended_by(0);
    assert!(ended.stdout.ends_with("no trial is left to run\n"), "{ended:?}");
}

/// `sbatch` lets environment variables override the script. Those that would change what the user asked for
/// are not passed on.
#[test]
fn what_the_user_asks_for_outranks_variables_of_the_shell() {
    let cluster = Cluster::new(SPEC);
    cluster.answers(
        "sbatch",
        "echo \"$SBATCH_PARTITION|$SBATCH_ACCOUNT|$SBATCH_ARRAY_INX\" > seen; echo a banner; echo Submitted batch job 12",
    );
    let mut command =
        cluster.place.command(&["spec.toml", "--launcher=slurm", "--sbatch=--partition=gpu", "-q"]);
    command.env("PATH", &cluster.commands);
    for (variable, value) in
        [("SBATCH_PARTITION", "cpu"), ("SBATCH_ACCOUNT", "lab"), ("SBATCH_ARRAY_INX", "0-9")]
    {
        command.env(variable, value);
    }
    let ended = Ended::from_output(command.output().unwrap());
    assert_eq!((ended.code, &*ended.stderr), (Some(0), ""), "{ended:?}");
    assert_eq!(cluster.text("seen"), "|lab|\n");
    let jobs = cluster.text(&format!("{}/slurm.toml", ended.stdout.trim()));
    assert!(jobs.contains("job = \"12\""), "{jobs}");
}

#[test]
fn states_of_tasks_stand_beside_those_of_trials() {
    let cluster = Cluster::new(SPEC);
    let sweep = cluster.submitted();
    let tasks =
        ["12_0|RUNNING|None|n1|1:02", "12_1|PENDING|Resources||0:00", "12_9|FAILED|NonZeroExitCode|n2|0:01"];
    cluster.answers("squeue", &format!("echo '{}'", Cluster::named(&sweep, &tasks)));
    let used = ["12_0|RUNNING|62|124|", "12_2|COMPLETED|60|120|"];
    let steps = "12_0.batch|RUNNING|62|124|1024K|batch\n12_2.batch|COMPLETED|60|120|2048K|batch";
    cluster.answers("sacct", &format!("echo '{}{steps}'", Cluster::named(&sweep, &used)));
    let ended = cluster.runner(&["status", &sweep]);
    assert_eq!((ended.code, &*ended.stderr), (Some(0), ""), "{ended:?}");
    let lines: Vec<&str> = ended.stdout.lines().skip(1).collect();
    assert_eq!(lines[0], "3 trials: 3 planned");
    assert!(lines[1].starts_with("job 12 of 3 tasks, submitted 20"), "{}", lines[1]);
    assert!(lines[1].ends_with("Z: 1 running, 1 pending (Resources), 1 failed, 1 completed"), "{}", lines[1]);
    let rest = [
        "  ran 2 min 02 s together, with 4 min 04 s of processors; one had 2 MiB at most",
        "",
        "  task  state    node  time  memory  reason",
        "  12_0  running  n1    1:02   1 MiB",
        "  12_9  failed   n2    0:01          NonZeroExitCode",
    ];
    assert_eq!(lines[2..], rest);
    let ended = cluster.runner(&["status", "--json", &sweep]);
    let json: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!((ended.code, &json["trials"]), (Some(0), &serde_json::json!({ "planned": 3 })));
    let job = &json["jobs"][0];
    assert_eq!([&job["tasks"], &job["elapsed_s"], &job["peak_rss_bytes"]], [3, 122, 2 << 20]);
    let task = &json["tasks"][0];
    assert_eq!((task["task"].as_str(), task["state"].as_str()), (Some("12_0"), Some("RUNNING")));
    assert_eq!(task["peak_rss_bytes"], 1 << 20);
    assert!(cluster.text("squeue.arguments").ends_with("-j 12\n"));
    // Slurm has forgotten the job, and its accounting knows nothing of it.
    cluster.answers("squeue", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1");
    cluster.answers("sacct", "echo 'Slurm accounting storage is disabled' >&2");
    let ended = cluster.runner(&["status", &sweep]);
    assert!(ended.stdout.ends_with("Z: 3 no longer known to Slurm\n"), "{ended:?}");
    fs::remove_file(cluster.commands.join("squeue")).unwrap();
    let ended = cluster.runner(&["status", &sweep]);
    assert!(
        ended.stdout.ends_with("3 trials: 3 planned\n") && ended.stderr.contains("`squeue` is not found"),
        "{ended:?}"
    );
}

#[test]
fn cancelling_ends_the_jobs_that_are_left() {
    let cluster = Cluster::new(SPEC);
    let sweep = cluster.submitted();
    cluster.answers("sbatch", "echo '13;east'");
    assert_eq!(
        cluster.runner(&["run", "--resume", &sweep, "--launcher=slurm", "launcher.slurm.array=2"]).code,
        Some(0)
    );
    cluster.answers("scancel", "");
    let east = Cluster::named(&sweep, &["13_0|RUNNING|None|n1|1:02", "13_1|PENDING|Priority||0:00"]);
    let here = Cluster::named(&sweep, &["12_0|COMPLETED|None|n1|0:02"]);
    cluster.answers("squeue", &format!("case \"$*\" in *east*) echo '{east}';; *) echo '{here}';; esac"));
    let ended = cluster.runner(&["cancel", &sweep]);
    let said = format!(
        "Slurm ends job 13 (1 running, 1 pending); trials under way save a checkpoint\ngo on with: runner run --resume {sweep} --launcher slurm\n"
    );
    assert_eq!((ended.code, ended.stdout), (Some(0), said));
    assert_eq!(cluster.text("scancel.arguments"), "-M east 13\n");
    // A job with the same number but another name, as on another cluster, is left alone.
    fs::remove_file(cluster.place.path().join("scancel.arguments")).unwrap();
    cluster.answers("squeue", "echo '12_0|RUNNING|None|n1|0:02|another'");
    let ended = cluster.runner(&["cancel", &sweep]);
    assert_eq!((ended.code, &*ended.stdout), (Some(0), "no task waits or runs\n"));
    assert!(ended.stderr.starts_with("warning: Slurm's job 12 has another name"), "{ended:?}");
    assert_eq!(cluster.text("scancel.arguments"), "");
    cluster.answers("squeue", "");
    assert_eq!(cluster.runner(&["cancel", &sweep]).stdout, "no task waits or runs\n");
    let ran = cluster.place.run(&["-q"]).ended_by(0).0;
    let ended = cluster.runner(&["cancel", ran.to_str().unwrap()]);
    assert_eq!(ended.code, Some(2));
    assert!(ended.stderr.starts_with("error: no job was submitted for `"), "{}", ended.stderr);
}
