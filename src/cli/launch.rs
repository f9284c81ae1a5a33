//! `--launcher slurm`: a sweep's folder with all trials planned, and a job array whose tasks claim them as other processes do.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::args::StartOptions;
use crate::{
    host::{escape_line, reason},
    plan::Machine,
    record::{RunDir, SWEEP_FILE, command_line, now, rfc3339},
    run::{
        Exit, Planned, PlannedSweep, Prepared, Resume, Session, plan_sweep, print, print_error, print_json,
        print_stderr, trials_left,
    },
    slurm::{self, Script, SlurmError, Submission},
    spec::ArraySize,
    units,
};

/// Submits the trials that are not done, or prints the script.
pub fn launch<P: Planned>(
    session: &Session<'_, P>,
    prepared: &[Prepared<P>],
    machine: &Machine,
    start: &StartOptions,
) -> Exit {
    let options = &session.experiment.launcher.slurm;
    if !P::SIDE_BY_SIDE && options.array.is_some_and(|array| array.tasks > 1) {
        print_error(
            "this kind measures the machine: one task takes its trials, one after the other",
            Some("leave `launcher.slurm.array` out"),
        );
        return Exit::Refused;
    }
    let planned = if start.launch.dry_run {
        let found = resumed(session.resume());
        let path = found.map_or_else(|| session.new_sweep_path(), |folder| folder.path().to_owned());
        Ok(PlannedSweep { folder: RunDir::existing(path), left: trials_left(session, prepared, found) })
    } else {
        plan_sweep(session, prepared, machine)
    };
    let PlannedSweep { folder, left } = match planned {
        Ok(sweep) => sweep,
        Err(exit) => return exit,
    };
    if left == 0 {
        return print(&format!("`{}`: no trial is left to run\n", folder.path().display()));
    }
    if start.launch.dry_run {
        let script = text(session, folder.path(), left, start);
        return script.map_or_else(|exit| exit, |(script, _)| print(&script));
    }
    let submitted = text(session, folder.path(), left, start).map_err(|exit| (exit, false)).and_then(
        |(script, tasks)| submit(folder.path(), &script, tasks).map_err(|e| (report(&e), e.is_uncertain())),
    );
    match submitted {
        Ok(job) => print_submitted(&job, folder.path(), left, start),
        Err((exit, may_be_taken)) => {
            if matches!(session.resume(), Resume::No) && !may_be_taken {
                remove_new(folder.path());
            }
            exit
        }
    }
}

fn resumed(resume: &Resume) -> Option<&RunDir> {
    if let Resume::Sweep(folder) = resume { Some(folder) } else { None }
}

/// The script, and its number of tasks.
fn text<P: Planned>(
    session: &Session<'_, P>,
    sweep: &Path,
    left: usize,
    start: &StartOptions,
) -> Result<(String, u32), Exit> {
    let options = &session.experiment.launcher.slurm;
    let sweep = std::path::absolute(sweep).unwrap_or_else(|_| sweep.to_owned());
    if sweep.to_str().is_none_or(|path| path.contains(|c: char| c.is_control() || c == '\\')) {
        let message = format!(
            "`{}`: Slurm takes no control characters, backslashes, or bytes that are not UTF-8 in a path",
            escape_line(&sweep.to_string_lossy())
        );
        print_error(message, Some("choose another `--runs-dir`"));
        return Err(Exit::Refused);
    }
    let most =
        if P::SIDE_BY_SIDE { slurm::most_tasks(left) } else { ArraySize { tasks: 1, at_a_time: None } };
    let array = options.array.unwrap_or(most);
    let name = session.experiment.trials.first().map_or("", |first| P::name(&first.spec));
    let script = Script {
        name,
        folder: &sweep.join(slurm::FOLDER),
        array,
        options,
        goes_on: P::SIDE_BY_SIDE,
        command: &command(&sweep, start)?,
    };
    Ok((script.text(), array.tasks))
}

/// What a task runs.
fn command(sweep: &Path, start: &StartOptions) -> Result<String, Exit> {
    let program = std::env::current_exe().map_err(|e| {
        print_error(format!("the path of this program is not known: {}", reason(&e)), None);
        Exit::Failed
    })?;
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

fn submit(sweep: &Path, script: &str, tasks: u32) -> Result<Submission, SlurmError> {
    let folder = sweep.join(slurm::FOLDER);
    fs::create_dir_all(&folder).map_err(|source| SlurmError::Write { path: folder.clone(), source })?;
    let (job, cluster, remarks) = slurm::submit(script)?;
    print_stderr(&remarks);
    let submission = Submission { job, cluster, tasks, submitted: rfc3339(now()) };
    submission.append(sweep).inspect_err(|_| {
        let job = &submission.job;
        print_stderr(&format!(
            "warning: Slurm has taken job {job}, which is not recorded: `scancel {job}` ends it\n"
        ));
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

/// Nothing was started: the folder that was made for it goes.
fn remove_new(sweep: &Path) {
    for file in [SWEEP_FILE, "sweep.csv"] {
        let _ = fs::remove_file(sweep.join(file));
    }
    let above = sweep.parent().map(PathBuf::from);
    for folder in [Some(sweep.join(slurm::FOLDER)), Some(sweep.to_owned()), above].into_iter().flatten() {
        let _ = fs::remove_dir(folder); // one that holds more stays
    }
}

/// Reports what Slurm did not do.
pub fn report(error: &SlurmError) -> Exit {
    let hint = match error {
        SlurmError::Missing(_) => Some(
            "call it where Slurm's commands are, such as a login node; without Slurm, `runner run --resume SWEEP` runs trials anywhere",
        ),
        _ => None,
    };
    print_error(error, hint);
    Exit::Refused
}

/// Has the job of this process queued again: what is not done goes on then. Returns only where that fails.
pub fn queue_again() -> Exit {
    report(&slurm::queue_again());
    Exit::Signal(crate::host::SIGUSR1 as u8)
}
