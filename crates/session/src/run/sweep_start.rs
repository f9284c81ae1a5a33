//! The start of a sweep: reasons to refuse it, its folder, and what earlier parts of it left.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::OpenOptions,
    sync::{Arc, Mutex, OnceLock, RwLock},
};

use serde_json::json;

use super::{
    best_setting::{SEEDS, Settings},
    draws,
    exit::{Exit, print_json, print_stderr},
    leases::Leases,
    planned::{Planned, Resume, Role},
    points::{BadLine, Points},
    prepare::{Prepared, first_run, warnings},
    rungs::{self, Rungs, longest},
    session::{Session, unrecorded},
    sweep::{Drawn, Ended, Sweep},
    sweep_folder,
    sweep_progress::{Progress, is_waiting},
};
use crate::{
    plan::Machine,
    record::{Claims, LineMode, RunDir, SWEEP_FILE, SweepLine, SweepTable, TrialEnd, Verbosity},
    spec::{Experiment, Monitor, short_keys},
    units,
};

/// Runs the trials of a sweep that are not done.
pub fn run_sweep<P: Planned>(session: &Session<'_, P>, prepared: &[Prepared<P>], machine: &Machine) -> Ended {
    if let Some(ended) = as_it_is(session, prepared, machine) {
        return ended;
    }
    let run = |sweep: Sweep<'_, '_, P>| {
        if session.process.json {
            print_json(&format!("{}\n", started(&sweep)));
        }
        sweep.run_all().map_err(unrecorded)
    };
    let ended = begin(session, prepared, machine, |_, _| Ok(())).and_then(run);
    ended.unwrap_or_else(Ended::from)
}

/// A resumed sweep of which nothing is left, in a folder that cannot be written: there is nothing to write.
fn as_it_is<P: Planned>(
    session: &Session<'_, P>,
    prepared: &[Prepared<P>],
    machine: &Machine,
) -> Option<Ended> {
    let Resume::Sweep(folder) = &session.process.resume else { return None };
    let is_writable = || OpenOptions::new().write(true).open(folder.file(SWEEP_FILE)).is_ok();
    if session.process.extension.is_some() || is_writable() {
        return None;
    }
    trials_left(session, prepared, machine, Some(folder)).ok().filter(|left| *left == 0)?;
    report_left(session.process.verbosity, 0, prepared.len());
    let (mut statuses, rows) = (BTreeMap::new(), sweep_folder::rows(folder));
    let ends = sweep_folder::ends(&rows, true, &folder.trials(), prepared.len());
    ends.iter().for_each(|end| {
        *statuses.entry(end.as_ref().map_or(TrialEnd::SAME_AS, TrialEnd::status)).or_default() += 1;
    });
    Some(Ended { folder: Some(folder.path().to_owned()), statuses, ..Ended::from(Exit::Done) })
}

/// The event of a sweep's start.
fn started<P: Planned>(sweep: &Sweep<'_, '_, P>) -> serde_json::Value {
    let (experiment, folder) = (sweep.session.experiment, sweep.folder.path().display().to_string());
    let statuses = sweep.with(|progress| progress.statuses());
    json!({
        "event": "sweep_started",
        "folder": folder,
        "axes": experiment.axes,
        "trials": experiment.trials.len(),
        "statuses": statuses,
    })
}

/// Makes the folder of a sweep, or finds the one that is resumed, and leaves what is not done to other processes: `submit` gets
/// the folder and the number of these trials. Only what it accepts is planned anew in the table; a sweep that was given more trials keeps them
/// also where it refuses.
pub fn plan_sweep<P: Planned>(
    session: &Session<'_, P>,
    prepared: &[Prepared<P>],
    machine: &Machine,
    submit: impl FnOnce(&RunDir, usize) -> Result<(), Exit>,
) -> Exit {
    let submit = |folder: &RunDir, drawn: &Drawn<P>| submit(folder, left(session, prepared, drawn, folder));
    begin(session, prepared, machine, submit).err().unwrap_or(Exit::Done)
}

/// Number of trials in a sweep's folder that are not done; all, if there is no folder. Trials whose devices
/// this machine lacks count too: another machine will run them.
///
/// # Errors
/// The points in the folder are another sweep's; that was printed.
pub fn trials_left<P: Planned>(
    session: &Session<'_, P>,
    prepared: &[Prepared<P>],
    machine: &Machine,
    folder: Option<&RunDir>,
) -> Result<usize, Exit> {
    let Some(folder) = folder else {
        return Ok(prepared.iter().filter(|own| !matches!(own, Prepared::SameAs(..))).count());
    };
    let points = read_points(session.experiment, folder)?;
    Ok(left(session, prepared, &draws::found(session, machine, &points), folder))
}

fn left<P: Planned>(
    session: &Session<'_, P>,
    prepared: &[Prepared<P>],
    drawn: &Drawn<P>,
    folder: &RunDir,
) -> usize {
    let (mut begun, rows) = (folder.trials(), sweep_folder::rows(folder));
    let own = |index| known(session, prepared, drawn, index);
    sweep_folder::take_damaged(&mut begun, &rows, own, &session.experiment.axes);
    let ends = sweep_folder::ends(&rows, false, &begun, prepared.len());
    let is_left = |(own, end): &(&Prepared<P>, Option<TrialEnd>)| {
        !matches!(own, Prepared::SameAs(..)) && end.as_ref().is_none_or(is_waiting)
    };
    prepared.iter().zip(ends).filter(is_left).count()
}

/// Begins or resumes a sweep. `ready` is asked before anything of an earlier part is rewritten; it gets the trials that were drawn
/// there. More trials are noted in `sweep.toml` before that, since processes that `ready` starts read it; the same command again goes
/// on with them.
fn begin<'s, 'a, P: Planned>(
    session: &'s Session<'a, P>,
    prepared: &'s [Prepared<P>],
    machine: &'s Machine,
    ready: impl FnOnce(&RunDir, &Drawn<P>) -> Result<(), Exit>,
) -> Result<Sweep<'s, 'a, P>, Exit> {
    let experiment = session.experiment;
    if session.jobs() > 1 && !P::SIDE_BY_SIDE {
        let message = "`--jobs` runs trainings side by side; this kind measures the machine";
        return Err(Exit::refused(message, Some("leave `--jobs` out")));
    }
    let (folder, claims) = sweep_folder::open(session, prepared)?;
    let points = read_points(experiment, &folder)?;
    let warnings = warnings(experiment, prepared, "");
    warnings.print();
    warnings.texts().for_each(|text| session.warned.note(text));
    let claims = Arc::new(claims);
    let rungs = rungs_of(session, prepared, &folder, &claims);
    let drawn = draws::found(session, machine, &points);
    let Earlier { joins, mut begun, gone, damaged, ends } =
        find_earlier(session, prepared, &drawn, &folder, &claims)?;
    if let Some(extension) = &session.process.extension {
        extension.write(&folder, &format!("sweep-{}", experiment.hash8())).map_err(unrecorded)?;
    }
    ready(&folder, &drawn)?;
    gone.into_iter().for_each(|trial| print_stderr(&sweep_folder::gone(trial)));
    begun.extend(sweep_folder::begin_again(damaged).map_err(unrecorded)?);
    let leases = Leases::new(machine, session.experiment.share, Arc::clone(&claims));
    let values = |trial: usize| match points.get(trial) {
        Some(point) => experiment.pairs(point).into_iter().map(|(_, value)| value).collect(),
        None => experiment.values(&experiment.trials[trial]),
    };
    let table = SweepTable::create(folder.path(), &experiment.axes, &ends, values, Arc::clone(&claims))
        .map_err(unrecorded)?;
    let line = Arc::new(line(session, prepared, &ends, joins));
    let progress = Mutex::new(Progress::new(table, &ends, begun, settings_of::<P>(experiment)));
    let (keys, values) = (short_keys(&experiment.axes), experiment.short_values());
    let points = Mutex::new(points);
    let sweep = Sweep {
        session,
        prepared,
        folder,
        claims,
        leases,
        alone: RwLock::default(),
        machine,
        points,
        drawn,
        keys,
        values,
        line,
        progress,
        rungs,
    };
    sweep.take_ended(&ends);
    Ok(sweep)
}

/// The rungs of successive halving, as far as trials were judged there.
fn rungs_of<P: Planned>(
    session: &Session<'_, P>,
    prepared: &[Prepared<P>],
    folder: &RunDir,
    claims: &Arc<Claims>,
) -> Option<Arc<Rungs>> {
    let experiment = session.experiment;
    let is_drawn = experiment.known < experiment.trials.len();
    let lengths = prepared.iter().map(rungs::epochs).collect();
    let others = (Arc::clone(claims), session.process.stop.clone());
    // All trials monitor the same metric.
    let monitor = first_run(prepared).and_then(|(_, planned)| planned.monitor()).unwrap_or(Monitor::LOSS);
    Some(Arc::new(Rungs::new((experiment.stop?, monitor), (lengths, is_drawn), folder, others)))
}

/// No trial has finished yet. Where seeds are an axis, those of all trials are known.
fn settings_of<P: Planned>(experiment: &Experiment<P::Spec>) -> Settings {
    let mut settings = Settings::default();
    if experiment.axes.iter().any(|axis| SEEDS.contains(&axis.as_str())) {
        let known = experiment.trials.iter().take(experiment.known);
        known.for_each(|trial| settings.know(P::seeds_and_fold(&trial.spec)));
    }
    settings
}

/// What earlier parts of a sweep left.
struct Earlier {
    /// Whether other processes are at work, or may be.
    joins: bool,
    /// Folders of trials that were begun and are not damaged.
    begun: BTreeMap<usize, RunDir>,
    /// Trials that had ended and whose folders somebody removed.
    gone: Vec<usize>,
    damaged: BTreeMap<usize, (RunDir, String)>,
    /// How the trials ended that do not run again.
    ends: Vec<Option<TrialEnd>>,
}

/// Finds what earlier parts of a sweep left. An error is printed if that was begun on other data.
fn find_earlier<P: Planned>(
    session: &Session<'_, P>,
    prepared: &[Prepared<P>],
    drawn: &Drawn<P>,
    folder: &RunDir,
    claims: &Claims,
) -> Result<Earlier, Exit> {
    let (experiment, mut begun) = (session.experiment, folder.trials());
    if let Some(trial) = sweep_folder::on_other_data(&begun, &prepared[..experiment.known]) {
        return Err(sweep_folder::print_other_data(trial));
    }
    // What this machine cannot run again stays for one that can.
    let own = |index| known(session, prepared, drawn, index).filter(|own| matches!(own, Prepared::Run(_)));
    let rows = sweep_folder::rows(folder);
    // The first process looks, while none can join.
    let damaged = match claims.is_first() {
        true => sweep_folder::take_damaged(&mut begun, &rows, own, &experiment.axes),
        false => BTreeMap::new(),
    };
    let is_gone = |trial: &usize| !begun.contains_key(trial) && !damaged.contains_key(trial);
    let ended = rows.iter().filter(|(_, row)| claims.is_first() && row.has_ended()).map(|(trial, _)| *trial);
    let mut gone: Vec<usize> = ended.filter(is_gone).collect();
    gone.sort_unstable();
    let joins = !claims.is_first() || session.process.role == Role::RunsOneOfMany;
    let ends = sweep_folder::ends(&rows, joins, &begun, experiment.trials.len());
    Ok(Earlier { joins, begun, gone, damaged, ends })
}

/// The decision about a trial; `None` if its values are not drawn yet.
fn known<'p, P: Planned>(
    session: &Session<'_, P>,
    prepared: &'p [Prepared<P>],
    drawn: &'p Drawn<P>,
    index: usize,
) -> Option<&'p Prepared<P>> {
    match drawn.get(index).and_then(OnceLock::get) {
        Some((_, own)) => Some(own),
        None => prepared.get(index).filter(|_| index < session.experiment.known),
    }
}

/// Says how many trials of a resumed sweep are left.
fn report_left(verbosity: Verbosity, left: usize, all: usize) {
    let trials = units::counted(all as u64, "trial");
    let words = match left {
        0 => format!("nothing is left to run: all of {trials} have ended"),
        left => format!("{} of {trials} left to run", units::count(left as u64)),
    };
    if verbosity != Verbosity::Quiet {
        print_stderr(&format!("{words}\n"));
    }
}

/// Reads the points drawn earlier; an error is printed if they belong to another sweep.
fn read_points<'e, S>(experiment: &'e Experiment<S>, folder: &RunDir) -> Result<Points<'e, S>, Exit> {
    Points::read(experiment, folder).map_err(|BadLine(line)| {
        let message =
            format!("`{}`: line {line} is no point of this sweep", Points::<S>::path(folder).display());
        Exit::refused(message, Some("mend the line, or remove it: its trial is drawn anew"))
    })
}

/// The progress line of the sweep, given the `ends` known so far. A resumed sweep that does not join others says what is left.
fn line<P: Planned>(
    session: &Session<'_, P>,
    prepared: &[Prepared<P>],
    ends: &[Option<TrialEnd>],
    joins: bool,
) -> SweepLine {
    let is_settled = |(own, end): (&Prepared<P>, &Option<TrialEnd>)| {
        matches!(own, Prepared::SameAs(..)) || end.as_ref().is_some_and(|end| !is_waiting(end))
    };
    let settled: BTreeSet<usize> =
        (0..ends.len()).filter(|&trial| is_settled((&prepared[trial], &ends[trial]))).collect();
    if !joins && matches!(session.process.resume, Resume::Sweep(_)) {
        report_left(session.process.verbosity, ends.len() - settled.len(), ends.len());
    }
    let work = rungs::work(session.experiment.stop, ends.len() - settled.len(), longest(prepared));
    let mode = match (session.process.verbosity, session.process.terminal) {
        (Verbosity::Normal, true) => LineMode::Redrawn,
        (Verbosity::Normal, false) => LineMode::Lines,
        _ => LineMode::Hidden,
    };
    SweepLine::new(ends.len(), settled, work, mode)
}
