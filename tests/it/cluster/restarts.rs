//! Which tasks are requeued, and which are not: before their time limit, without progress, with a trial that
//! kills its process.

use std::{fs, path::Path, process::Stdio};

use runner::record::{Claim, Claims};

use super::{
    super::{
        ends::{quiet, send, wait_until},
        process::{Ended, Table},
    },
    Cluster, SPEC,
};

/// USR1 (Slurm's signal before the time limit) ends a task cleanly and requeues it, even if Slurm is busy at
/// first.
#[test]
fn a_task_at_its_time_limit_is_requeued() {
    let cluster = Cluster::new(&SPEC.replace("max_epochs = 2", "max_epochs = 1000000000"));
    let sweep = cluster.submitted();
    cluster.answers("scontrol", "[ -e asked ] || { : > asked; echo busy >&2; exit 1; }");
    let mut command = cluster.place.command(&["run", "--resume", &sweep, "--slurm-task", "-q"]);
    command.env("PATH", &cluster.commands);
    command.env("SLURM_ARRAY_JOB_ID", "12").env("SLURM_ARRAY_TASK_ID", "7");
    let mut child = quiet(command);
    let trial = cluster.place.path().join(&sweep);
    let begun = || {
        let folder = fs::read_dir(&trial)
            .unwrap()
            .flatten()
            .find(|entry| entry.file_name().to_string_lossy().starts_with("000"));
        folder.is_some_and(|folder| {
            fs::read_to_string(folder.path().join("metrics.csv")).is_ok_and(|text| text.lines().count() > 5)
        })
    };
    wait_until(&mut child, begun);
    send("-USR1", &child);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(cluster.text("scontrol.arguments"), "requeue 12_7\nrequeue 12_7\n");
    assert_eq!(Table::read(&cluster.text(&format!("{sweep}/sweep.csv"))).cell(0, "status"), "interrupted");
    let folder = Table::read(&cluster.text(&format!("{sweep}/sweep.csv"))).cell(0, "folder").to_owned();
    assert!(trial.join(&folder).join("checkpoints").is_dir());
    let log = cluster.text(&format!("{sweep}/{folder}/run.log"));
    assert!(log.contains("its time limit (SIGUSR1) after step "), "{log}");
}

/// Before training begins there is nothing to save; the task is requeued nevertheless, but not forever.
#[test]
fn a_task_that_comes_no_further_is_requeued_thrice() {
    let cluster = Cluster::new(SPEC);
    let sweep = cluster.submitted();
    cluster.answers("scontrol", "");
    // The sweep's claims are held before the first trial, as by another process that has just started.
    let _first = Claims::new(&cluster.place.path().join(&sweep), true, || false).unwrap();
    for round in 1..=4 {
        let (code, said) = ended_by_usr1(&cluster, &sweep, round, "waiting for another process");
        assert_eq!(cluster.text("scontrol.arguments").lines().count(), round.min(3), "{said}");
        assert_eq!(code, Some(if round < 4 { 0 } else { 1 }), "{said}");
        let ends = "error: task 12_7 was requeued 3 times, and brought no trial further\n";
        assert_eq!(said.contains(ends), round == 4, "{said}");
    }
}

/// A task that waits at a rung for other processes' trials can do nothing more. It is requeued any number of
/// times.
#[test]
fn a_task_that_waits_for_others_is_requeued() {
    let stop = "[sweep]\nstop = { asha = { min_epochs = 1, factor = 3 } }";
    let spec = SPEC.replace("[sweep]", stop).replace("max_epochs = 2", "max_epochs = 3");
    let cluster = Cluster::new(&spec.replace("train_rows = 64", "train_rows = 64\nvalidation_rows = 16"));
    let sweep = cluster.submitted();
    cluster.answers("scontrol", "");
    // Plays another process that trains the first trial.
    let other = Claims::new(&cluster.place.path().join(&sweep), true, || false).unwrap().unwrap();
    assert!(other.claim(0).unwrap() == Claim::New && other.go_on().unwrap());
    for round in 1..=5 {
        let (code, said) = ended_by_usr1(&cluster, &sweep, round, "other processes run 1 trial");
        assert_eq!(code, Some(0), "{said}");
        assert_eq!(cluster.text("scontrol.arguments").lines().count(), round, "{said}");
    }
}

/// Starts a task, sends USR1 once it prints `says`, and returns its exit code and output.
fn ended_by_usr1(cluster: &Cluster, sweep: &str, round: usize, says: &str) -> (Option<i32>, String) {
    let mut command = cluster.place.command(&["run", "--resume", sweep, "--slurm-task"]);
    command.env("PATH", &cluster.commands);
    command.env("SLURM_ARRAY_JOB_ID", "12").env("SLURM_ARRAY_TASK_ID", "7");
    let errors = cluster.place.path().join(format!("errors-{round}"));
    command.stdout(Stdio::null()).stderr(fs::File::create(&errors).unwrap());
    let mut child = command.spawn().unwrap();
    let said = || fs::read_to_string(&errors).unwrap_or_default();
    wait_until(&mut child, || said().contains(says));
    send("-USR1", &child);
    (child.wait().unwrap().code(), said())
}

/// Trials that ran beside a trial that kills its processes are not counted as failed.
#[test]
fn trials_that_may_have_killed_a_process_run_alone() {
    let epochs = "[sweep.grid]\n\"trainer.max_epochs\" = [1000000000, 10000]\n";
    let spec = SPEC.split("[sweep]").next().unwrap().replace("max_epochs = 2", "max_epochs = 1");
    let cluster = Cluster::new(&(spec + epochs));
    let sweep = cluster.submitted();
    let task = || cluster.place.command(&["run", "--resume", &sweep, "--slurm-task", "--jobs", "2"]);
    let path = cluster.place.path().join(&sweep);
    let [deadly, other] = ["000-max_epochs=1000000000", "001-max_epochs=10000"]
        .map(|trial| path.join(trial).join("metrics.csv"));
    let is_begun = |metrics: &Path| fs::read_to_string(metrics).is_ok_and(|text| text.lines().count() > 5);
    for round in 0..3 {
        let mut child = quiet(task());
        // The third process may run the other trial first; on a slow machine that may end before.
        let has_ended = other.with_file_name("model.safetensors").exists();
        wait_until(&mut child, || is_begun(&deadly) && (round == 2 || has_ended || is_begun(&other)));
        child.kill().unwrap();
        child.wait().unwrap();
        // As the next process does, start with fresh files.
        [&deadly, &other].into_iter().for_each(|metrics| drop(fs::remove_file(metrics)));
    }
    let mut child = quiet(task());
    wait_until(&mut child, || path.join("001-max_epochs=10000/model.safetensors").exists());
    assert_eq!(child.wait().unwrap().code(), Some(1));
    let table = Table::read(&fs::read_to_string(path.join("sweep.csv")).unwrap());
    assert_eq!(table.column("status"), ["failed", "finished"]);
}

/// The trial kills its process, like one that needs more memory than there is.
#[test]
fn a_trial_that_kills_its_processes_is_given_up() {
    let cluster = Cluster::new(
        &SPEC.replace("max_epochs = 2", "max_epochs = 1000000000").replace("0.1, 0.01, 0.001", "0.1"),
    );
    let sweep = cluster.submitted();
    let task = || cluster.place.command(&["run", "--resume", &sweep, "--slurm-task"]);
    let path = cluster.place.path().join(&sweep);
    let metrics = path.join("000-lr=.1/metrics.csv");
    for _ in 0..3 {
        let mut child = quiet(task());
        wait_until(&mut child, || fs::read_to_string(&metrics).is_ok_and(|text| text.lines().count() > 5));
        child.kill().unwrap();
        child.wait().unwrap();
        // As the next process does, start with a fresh file.
        fs::remove_file(&metrics).unwrap();
    }
    let said = Ended::from_output(task().output().unwrap()).ended_by(1).stderr;
    let hint = "`[checkpoint] every_minutes` keeps what each process did; if the system's log (`dmesg`, `sacct`) says out of memory";
    assert!(said.contains(hint), "{said}");
    let table = || Table::read(&fs::read_to_string(path.join("sweep.csv")).unwrap());
    assert_eq!(table().column("status"), ["failed"]);
    let why = "3 processes in a row died before its next checkpoint: killed, or their machine failed; none could record why";
    assert_eq!(table().cell(0, "reason"), why);
    // Tasks skip the trial from now on; the next submission tries it again.
    assert_eq!(task().output().unwrap().status.code(), Some(1));
    assert_eq!(cluster.runner(&["run", "--resume", &sweep, "--launcher=slurm"]).code, Some(0));
    assert_eq!(table().column("status"), ["planned"]);
}
