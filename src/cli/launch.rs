//! `--launcher slurm`: creates a sweep's folder with all trials planned, and submits a job array whose tasks
//! claim the trials like any other process.

use std::{fs, path::Path};

use super::args::StartOptions;
use crate::{
    host::{escape_line, reason, slurm_job},
    plan::Machine,
    record::{CLAIMS_FILE, RunDir, SWEEP_FILE, command_line, now, rfc3339},
    run::{
        Exit, Planned, Prepared, Resume, Session, plan_sweep, print, print_json, print_stderr, trials_left,
        warn,
    },
    slurm::{self, Script, SlurmError, Submission},
    spec::ArraySize,
    units,
};

/// Submits the remaining trials, or prints the script.
pub fn launch<P: Planned>(
    session: &Session<'_, P>,
    prepared: &[Prepared<P>],
    machine: &Machine,
    start: &StartOptions,
) -> Exit {
    let options = &session.experiment.launcher.slurm;
    if !P::SIDE_BY_SIDE && options.array.is_some_and(|array| array.tasks > 1) {
        return Exit::refused(
            "this kind measures the machine: one task takes its trials, one after the other",
            Some("leave `launcher.slurm.array` out"),
        );
    }
    if start.launch.dry_run {
        let found = resumed(session.resume());
        let path = found.map_or_else(|| session.new_sweep_path(), |folder| folder.path().to_owned());
        return match trials_left(session, prepared, machine, found) {
            Err(exit) => exit,
            Ok(0) => print_done(&path),
            Ok(left) => {
                let script = script(session, &path, left, start);
                script.map_or_else(|exit| exit, |(script, ..)| print(&script))
            }
        };
    }
    let mut printed = Exit::Done;
    let exit = plan_sweep(session, prepared, machine, |folder, left| {
        if left == 0 {
            return Err(print_done(folder.path()));
        }
        let submitted = script(session, folder.path(), left, start).map_err(|exit| (exit, false)).and_then(
            |(script, name, tasks)| {
                submit(folder.path(), &script, name, tasks).map_err(|e| {
                    let may_be_taken = e.is_uncertain();
                    (report(e), may_be_taken)
                })
            },
        );
        match submitted {
            Ok(job) => {
                printed = print_submitted(&job, folder.path(), left, start);
                Ok(())
            }
            Err((exit, may_be_taken)) => {
                if matches!(session.resume(), Resume::No) && !may_be_taken {
                    remove_new(folder.path());
                }
                Err(exit)
            }
        }
    });
    exit.more_severe(printed)
}

fn print_done(sweep: &Path) -> Exit {
    print(&format!("`{}`: no trial is left to run\n", sweep.display()))
}

fn resumed(resume: &Resume) -> Option<&RunDir> {
    if let Resume::Sweep(folder) = resume { Some(folder) } else { None }
}

/// The script, the job's name, and the number of tasks.
fn script<P: Planned>(
    session: &Session<'_, P>,
    sweep: &Path,
    left: usize,
    start: &StartOptions,
) -> Result<(String, String, u32), Exit> {
    let options = &session.experiment.launcher.slurm;
    let sweep = std::path::absolute(sweep).unwrap_or_else(|_| sweep.to_owned());
    if sweep.to_str().is_none_or(|path| path.contains(|c: char| c.is_control() || c == '\\')) {
        let message = format!(
            "`{}`: Slurm takes no control characters, backslashes, or bytes that are not UTF-8 in a path",
            escape_line(&sweep.to_string_lossy())
        );
        return Err(Exit::refused(message, Some("choose another `--runs-dir`")));
    }
    let one_after_the_other = ArraySize { tasks: 1, throttle: None };
    let array =
        slurm::array_of(left, if P::SIDE_BY_SIDE { options.array } else { Some(one_after_the_other) });
    let spec = session.experiment.trials.first().map_or("", |first| P::name(&first.spec));
    let name = slurm::job_name(spec, &sweep);
    let script = Script {
        name: &name,
        folder: &sweep.join(slurm::FOLDER),
        array,
        options,
        requeue: P::SIDE_BY_SIDE,
        command: &command(&sweep, start)?,
    };
    Ok((script.text(), name, array.tasks))
}

/// The command that a task runs.
fn command(sweep: &Path, start: &StartOptions) -> Result<String, Exit> {
    let program = std::env::current_exe()
        .map_err(|e| Exit::failed(format!("the path of this program is not known: {}", reason(&e)), None))?;
    let mut words = vec![program.to_string_lossy().into_owned()];
    words.extend(["run", "--resume", &sweep.to_string_lossy(), "--slurm-task"].map(str::to_owned));
    let run = &start.run;
    let numbers = [
        ("--threads", run.threads.map(|threads| threads.to_string())),
        ("--virtual-gpus", run.virtual_gpus.map(|count| count.to_string())),
        ("--jobs", start.jobs.map(|jobs| jobs.to_string())),
    ];
    let numbers = numbers.into_iter().filter_map(|(option, value)| Some([option.to_owned(), value?]));
    words.extend(numbers.flatten());
    let flags = [("--fail-fast", start.fail_fast), ("--quiet", run.quiet), ("--verbose", run.verbose)];
    words.extend(flags.into_iter().filter(|(_, is_given)| *is_given).map(|(flag, _)| flag.to_owned()));
    Ok(command_line(words))
}

fn submit(sweep: &Path, script: &str, name: String, tasks: u32) -> Result<Submission, SlurmError> {
    let folder = sweep.join(slurm::FOLDER);
    fs::create_dir_all(&folder).map_err(|source| SlurmError::Write { path: folder.clone(), source })?;
    let (job, cluster, remarks) = slurm::submit(script)?;
    print_stderr(&remarks);
    let submission = Submission { job, name, cluster, tasks, submitted: rfc3339(now()) };
    submission.append(sweep).inspect_err(|_| {
        let job = &submission.job;
        warn(format!("Slurm has taken job {job}, which is not recorded: `scancel {job}` ends it"));
    })?;
    let path = folder.join(format!("{}.sh", submission.job));
    fs::write(&path, script).map_err(|source| SlurmError::Write { path, source })?;
    Ok(submission)
}

fn print_submitted(job: &Submission, sweep: &Path, left: usize, start: &StartOptions) -> Exit {
    let Submission { job, tasks, .. } = job;
    if start.json {
        let folder = sweep.display().to_string();
        let line = serde_json::json!({ "event": "submitted", "folder": folder, "job": job, "tasks": tasks });
        return print_json(&format!("{line}\n"));
    }
    let folder = sweep.to_string_lossy();
    let folder = escape_line(&folder);
    if start.run.quiet {
        return print(&format!("{folder}\n"));
    }
    let [trials, tasks] =
        [(left as u64, "trial"), (u64::from(*tasks), "task")].map(|(n, what)| units::counted(n, what));
    let path = command_line([sweep.to_string_lossy()]);
    print(&format!(
        "{trials} submitted to Slurm as job {job} of {tasks}\n\n  folder  {folder}\n  look    runner status {path}\n  end     runner cancel {path}\n"
    ))
}

/// Removes the folder that was made, since nothing was started.
fn remove_new(sweep: &Path) {
    for file in [SWEEP_FILE, CLAIMS_FILE, "sweep.csv"] {
        let _ = fs::remove_file(sweep.join(file));
    }
    let above = sweep.ancestors().take(3).map(Path::to_owned);
    for folder in std::iter::once(sweep.join(slurm::FOLDER)).chain(above) {
        let _ = fs::remove_dir(folder); // fails if the folder holds more
    }
}

/// Prints Slurm's error.
pub fn report(error: SlurmError) -> Exit {
    let hint = match &error {
        SlurmError::Missing(_) => Some(
            "call it where Slurm's commands are, such as a login node; without Slurm, `runner run --resume SWEEP` runs trials anywhere",
        ),
        _ => None,
    };
    Exit::refused(error, hint)
}

/// Requeues this process's task after SIGUSR1; after `MOST_RESTARTS` requeues without progress, fails
/// instead.
pub fn requeue(sweep: &Path, has_progress: bool) -> Exit {
    let Some(task) = slurm_job() else {
        return Exit::failed(
            "Slurm says of no job that this process belongs to it: it is not requeued",
            None,
        );
    };
    match slurm::restarts_without_progress(sweep, &task, has_progress) {
        Ok(count) if count > slurm::MOST_RESTARTS => {
            return Exit::failed(
                format!(
                    "task {task} was requeued {} times, and brought no trial further",
                    slurm::MOST_RESTARTS
                ),
                Some("raise `launcher.slurm.time`: the task ends before a trial has taken a step"),
            );
        }
        Ok(_) => {}
        Err(e) => return report(e),
    }
    // Slurm ends this process meanwhile.
    slurm::requeue(&task).map_or_else(report, |()| Exit::Done)
}
