//! `runner SPEC.toml`: one run, or every trial of its sweep.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};

use serde_json::json;

use super::{
    args::{Jobs, StartOptions, on_terminal},
    hosts, launch,
    machine::{machine, machine_for},
    resume,
    terminal::{fit, terminal_width},
};
use crate::{
    collective::ProcessGroup,
    cuda::allow_many_streams,
    host::{SIGUSR1, escape_line, load::Watch, reason, slurm_cpus, stop_on_signals},
    plan::{Machine, Trial, lab::LabTrial},
    record::{GitQuery, Verbosity, command_line, end_at_second_signal, now},
    report,
    run::{
        Datasets, Ended, Exit, Kind, Placement, Prepared, Process, Resume, Role, Session, Start, print,
        print_json, print_stderr, warn,
    },
    spec::Loaded,
    train::StopFlag,
    units,
};

/// Runs the command.
pub fn run(start: &StartOptions, arguments: &[OsString], begun: Instant) -> Result<Exit, Exit> {
    run_read(start, arguments, begun, None)
}

/// The same for a spec that was read already.
pub fn run_read(
    start: &StartOptions,
    arguments: &[OsString],
    begun: Instant,
    read: Option<Loaded>,
) -> Result<Exit, Exit> {
    let begun = Start { begun, at: now() };
    if start.jobs.is_some() {
        allow_many_streams();
    }
    let resume = resume::requested(start)?;
    let stop = StopFlag::default();
    let world = hosts::join(start, &resume, &stop)?;
    let exit = run_joined(start, arguments, begun, (resume, read), stop, world.as_ref());
    match world {
        None => exit,
        Some(world) => Ok(hosts::leave(&world, exit.unwrap_or_else(|exit| exit))),
    }
}

/// Runs the command, alone or with the other processes in `world`.
fn run_joined(
    start: &StartOptions,
    arguments: &[OsString],
    begun: Start,
    (resume, read): (Resume, Option<Loaded>),
    stop: StopFlag,
    world: Option<&Arc<ProcessGroup>>,
) -> Result<Exit, Exit> {
    let options = &start.run;
    let cores = crate::host::logical_cores().unwrap_or(1);
    options.too_many_threads(cores, "this process's").iter().for_each(warn);
    let path = match &resume {
        Resume::Run(folder) => folder.file("spec.toml"),
        Resume::Sweep(folder) => folder.file("sweep.toml"),
        Resume::Auto | Resume::No => options.spec(),
    };
    let git = GitQuery::start(&folder_of(&path));
    let (mut loaded, extension) = match read {
        Some(loaded) => (loaded, None),
        None => resume::load(start, &resume, &path)?,
    };
    hosts::settle(world, &mut loaded)?;
    resume::check(start, &resume, &loaded)?;
    start.idle_sweep_options(loaded.is_sweep()).iter().for_each(warn);
    let virtual_gpus = options.virtual_gpus.or_else(|| resume::virtual_gpus(&resume));
    // A training interrupted by a signal resumes where it was; an experiment that measures the machine would
    // start over.
    let requeues = start.launch.slurm_task && matches!(loaded, Loaded::Train(_));
    match stop_on_signals(&stop.number, &stop.saves, &stop.is_begun, requeues) {
        Ok(second) => end_at_second_signal(second),
        Err(e) => warn(format!("signals end this process at once: {}", reason(&e))),
    }
    let process = Process {
        start: begun,
        command: command_line(arguments.iter().map(|a| a.to_string_lossy())),
        runs_dir: options.runs_dir.clone(),
        resume,
        extension,
        verbosity: verbosity(start),
        json: start.json,
        terminal: on_terminal(),
        threads: options.threads,
        available_threads: available_threads(start),
        virtual_gpus,
        git,
        stop,
        jobs: start.jobs.map_or(1, |jobs| jobs.count(cores)),
        fail_fast: start.fail_fast,
        role: role(start),
        load: Watch::default(),
    };
    let ended = run_loaded(&loaded, process, start, world)?;
    let has_progress = ended.has_progress;
    Ok(match (close(ended, start), path.parent()) {
        (Exit::Signal(signal), Some(sweep)) if requeues && i32::from(signal) == SIGUSR1 => {
            launch::requeue(sweep, has_progress)
        }
        (exit, _) => exit,
    })
}

/// Runs what was read. Another rank than the first serves it, and has nothing to close.
fn run_loaded(
    loaded: &Loaded,
    process: Process,
    start: &StartOptions,
    world: Option<&Arc<ProcessGroup>>,
) -> Result<Ended, Exit> {
    let virtual_gpus = process.virtual_gpus;
    match loaded {
        Loaded::Train(experiment) => {
            start.run.idle_virtual_gpus(experiment).iter().for_each(warn);
            let ranks = Some(world.map_or_else(Vec::new, |world| world.names().to_vec()));
            let rank = world.map_or(0, |world| world.rank() as u32);
            let machine = Machine { ranks, rank, ..machine_for(virtual_gpus, experiment) };
            let mut datasets = Datasets::new(&machine);
            if world.is_none() && start.launch.launcher.is_none() {
                datasets.begin_gpu(experiment);
            }
            datasets.world = world.cloned();
            let session = Session::<Trial>::new(process, experiment, datasets);
            match world.filter(|world| world.rank() > 0) {
                Some(world) => Err(hosts::ended(world, session.serve(&machine, world))),
                None => Ok(execute(session, &machine, start)),
            }
        }
        Loaded::Lab(experiment) => {
            let machine = machine(virtual_gpus, true);
            Ok(execute(Session::<LabTrial>::new(process, experiment, ()), &machine, start))
        }
    }
}

/// Sets how many trials run side by side, as GPUs allow it.
fn place<P: Kind>(
    session: &mut Session<'_, P>,
    prepared: &[Prepared<P>],
    machine: &Machine,
    start: &StartOptions,
) {
    let placement = Placement::new(prepared, machine, session.experiment.share);
    let Some((jobs, placement)) = start.jobs.zip(placement) else { return };
    let count = jobs_at_once(jobs, Some(&placement), machine);
    let is_told = verbosity(start) != Verbosity::Quiet && jobs.count(machine.cores) > count;
    if let (Jobs::Count(wanted), true) = (jobs, is_told) {
        let [gpus, trials] = [(machine.gpus.len(), "GPU"), (count, "trial")];
        let [gpus, trials] = [gpus, trials].map(|(count, what)| units::counted(count as u64, what));
        print_stderr(&format!(
            "`--jobs {wanted}`: {trials} at a time on {gpus}; `sweep.share=true` lets trials share a GPU\n"
        ));
    }
    session.set_jobs(count);
}

/// How many trials run side by side, as GPUs allow it.
pub(super) fn jobs_at_once(jobs: Jobs, placement: Option<&Placement>, machine: &Machine) -> usize {
    match (jobs, placement) {
        (_, None) => jobs.count(machine.cores),
        (Jobs::Auto, Some(placement)) => placement.auto,
        (Jobs::Count(wanted), Some(placement)) => placement.most.min(wanted.into()),
    }
}

fn verbosity(start: &StartOptions) -> Verbosity {
    match (start.run.quiet || start.json, start.run.verbose) {
        (true, _) => Verbosity::Quiet,
        (_, true) => Verbosity::Verbose,
        _ => Verbosity::Normal,
    }
}

/// The machine's threads, or those that Slurm gave to the task.
fn available_threads(start: &StartOptions) -> usize {
    let all = start.run.thread_count();
    let given = (start.launch.slurm_task && start.run.threads.is_none()).then(slurm_cpus).flatten();
    given.map_or(all, |given| given.min(all))
}

fn role(start: &StartOptions) -> Role {
    match (start.launch.launcher, start.launch.slurm_task) {
        (Some(_), _) => Role::Plans,
        (None, true) => Role::RunsOneOfMany,
        (None, false) => Role::Runs,
    }
}

/// Plans all trials, then runs them or lets a cluster run them.
fn execute<P: Kind>(mut session: Session<'_, P>, machine: &Machine, start: &StartOptions) -> Ended {
    match P::prepare_all(&session, machine) {
        Ok(prepared) if start.launch.launcher.is_some() => {
            launch::launch(&session, &prepared, machine, start).into()
        }
        Ok(prepared) => {
            place(&mut session, &prepared, machine, start);
            P::run_all(&session, &prepared, machine)
        }
        Err(exit) => exit.into(),
    }
}

/// Prints what became of a sweep.
fn close(Ended { exit, folder, statuses, time, .. }: Ended, start: &StartOptions) -> Exit {
    let Some(folder) = folder else { return exit };
    if start.json {
        let best = report::BestSetting::of_sweep(&folder).ok().flatten();
        let best = best.as_ref().map(report::BestSetting::json);
        let line = json!({
            "event": "sweep",
            "folder": folder.display().to_string(),
            "trials": statuses.values().sum::<usize>(),
            "statuses": statuses,
            "best": best,
            "exit": exit.code(),
        });
        return exit.more_severe(print_json(&format!("{line}\n")));
    }
    if start.run.quiet {
        return exit.more_severe(print(&format!("{}\n", escape_line(&folder.to_string_lossy()))));
    }
    exit.more_severe(match report::sweep_end(&folder, time.as_deref(), terminal_width()) {
        Ok(text) => print(&fit(&text)),
        Err(e) => Exit::failed(&e, e.hint()),
    })
}

/// The folder that contains a spec.
fn folder_of(path: &Path) -> PathBuf {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned())
}
