//! A sweep's trials: the rows of `sweep.csv`, each with its run folder, and folders that have no row yet.

mod others;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    path::{Component, Path, PathBuf},
    sync::{Arc, LazyLock},
};

use self::others::Others;
use super::{
    ReportError,
    configurations::{FINISHED, STOPPED},
    find::{self, Found},
    grouping::distinct,
    parallel,
    run::{DAMAGED, DELETED, PLANNED, RUNNING, Run, SAME_AS, UNFINISHED},
    tags,
};
use crate::{
    files::{Texts, csv_file, csv_lines},
    record::{RunDir, lost_summary},
    spec::short_values,
};

/// Reads the runs of each run or sweep found. Unreadable ones become damaged rows, and `fault` keeps the
/// first error.
pub(super) fn read_all(found: &[Found], fault: &mut Option<ReportError>) -> Vec<Vec<Run>> {
    let folder = |found: &Found| if let Found::Run(folder) = found { Some(folder.clone()) } else { None };
    let folders: Vec<_> = found.iter().filter_map(folder).collect();
    let mut alone = Run::read_all(&folders, fault);
    alone.iter_mut().zip(&folders).for_each(|(run, folder)| run.trial = trial_number(folder));
    let mut alone = alone.into_iter();
    let runs = |found: &Found| match found {
        Found::Run(_) => alone.next().into_iter().collect(),
        Found::Sweep(folder) => tagged(folder, fault)
            .unwrap_or_else(|e| vec![Run::damaged(folder.display().to_string(), e, fault)]),
    };
    let mut all: Vec<Vec<Run>> = found.iter().map(runs).collect();
    name_tables(&mut all);
    call_short(&mut all.iter_mut().flatten().collect::<Vec<_>>());
    all
}

/// The number of a trial's folder; `None` of another run, also of a trial that was moved out of its sweep.
fn trial_number(folder: &Path) -> Option<usize> {
    number_of(folder).filter(|_| folder.parent().is_some_and(find::is_sweep))
}

fn number_of(folder: &Path) -> Option<usize> {
    RunDir::existing(folder.to_owned()).trial_number()
}

/// The input of each run, if there are several and trials among them. Otherwise a number is enough: it is that of a run, or of a
/// trial.
pub(super) fn inputs(runs: &[Run]) -> Vec<usize> {
    let names: Vec<&str> = distinct(runs.iter().map(input));
    if names.len() < 2 || runs.iter().all(|run| run.trial.is_none()) {
        return Vec::new();
    }
    let places: HashMap<&str, usize> = names.into_iter().zip(0..).collect();
    runs.iter().map(|run| places[input(run)]).collect()
}

/// The folder of a run's sweep, also of a trial that is named alone, or else its own.
pub(super) fn input(run: &Run) -> &str {
    let parent = run.trial.and_then(|_| Path::new(&run.path).parent()?.to_str());
    run.sweep.as_deref().or(parent).unwrap_or(&run.path)
}

/// Where a sweep varies whole tables, the tables of runs beside it are named as those of its trials: otherwise columns of all their
/// keys would say the same again.
fn name_tables(all: &mut [Vec<Run>]) {
    let is_alone = |run: &Run| run.sweep.is_none() && run.axes.is_empty();
    if !all.iter().flatten().any(is_alone) {
        return;
    }
    let mut known: BTreeMap<&String, HashMap<BelowTable<'_>, &String>> = BTreeMap::new();
    for run in all.iter().flatten() {
        for (axis, table) in run.axes.iter().filter(|(_, value)| value.contains('{')) {
            let tables = known.entry(axis).or_default();
            leaves_below(run, axis).into_iter().for_each(|leaves| _ = tables.entry(leaves).or_insert(table));
        }
    }
    let moved = all.iter().flatten().filter(|run| run.status == DELETED);
    let moved: HashMap<_, &Run> =
        moved.filter_map(|run| Some(((sweep_name(run)?, run.trial), run))).collect();
    let named = |run: &Run| -> Vec<(String, String)> {
        let number = run.fact("trial").and_then(|number| number.parse().ok());
        let was = run.fact("sweep").and_then(|sweep| moved.get(&(sweep, number)));
        let table = |(axis, tables): (&&String, &HashMap<_, &String>)| {
            let own = was.and_then(|was| was.axis(axis));
            let table = own.or_else(|| Some(tables.get(&leaves_below(run, axis)?)?.as_str()));
            Some(((*axis).clone(), table?.to_owned()))
        };
        known.iter().filter_map(table).collect()
    };
    let axes: Vec<Option<Vec<_>>> =
        all.iter().flatten().map(|run| is_alone(run).then(|| named(run))).collect();
    for (run, axes) in all.iter_mut().flatten().zip(axes) {
        run.axes.extend(axes.into_iter().flatten());
    }
}

fn sweep_name(run: &Run) -> Option<&str> {
    Path::new(run.sweep.as_deref()?).file_name()?.to_str()
}

type BelowTable<'a> = Vec<(&'a str, &'a str)>;

fn leaves_below<'a>(run: &'a Run, table: &str) -> Option<BelowTable<'a>> {
    let is_below = |key: &str| key.strip_prefix(table).is_some_and(|rest| rest.starts_with('.'));
    Some(run.spec.as_ref()?.iter().filter(|(key, _)| is_below(key)).collect())
}

/// Gives values that are tables short names, by their keys, such that the runs stay distinguishable.
fn call_short(runs: &mut [&mut Run]) {
    let axes: BTreeSet<&String> = runs
        .iter()
        .flat_map(|run| &run.axes)
        .filter(|(_, value)| value.contains('{'))
        .map(|(axis, _)| axis)
        .collect();
    for axis in axes.into_iter().cloned().collect::<Vec<_>>() {
        let values = runs.iter().flat_map(|run| &run.axes).filter(|(own, _)| *own == axis);
        let short = short_values(values.map(|(_, value)| value.as_str()));
        for run in &mut *runs {
            let value = run.axes.iter_mut().find(|(own, _)| *own == axis).map(|(_, value)| value);
            if let Some((value, name)) = value.and_then(|value| short.get(value).map(|name| (value, name))) {
                run.tables.push((axis.clone(), std::mem::replace(value, name.clone())));
            }
        }
    }
}

/// Reads a sweep's trials in order. Unreadable ones become damaged rows, and `fault` keeps the first error.
pub(super) fn read(folder: &Path, fault: &mut Option<ReportError>) -> Result<Vec<Run>, ReportError> {
    let mut runs = tagged(folder, fault)?;
    call_short(&mut runs.iter_mut().collect::<Vec<_>>());
    Ok(runs)
}

fn tagged(folder: &Path, fault: &mut Option<ReportError>) -> Result<Vec<Run>, ReportError> {
    let (tags, tags_fault) = tags::words_or_fault(folder);
    let mut runs = trials(folder, fault)?;
    call_paths_as_written(&mut runs);
    for run in &mut runs {
        run.tags.extend(tags.iter().cloned());
        run.tags_fault = tags_fault.clone().or(run.tags_fault.take());
    }
    Ok(runs)
}

fn trials(folder: &Path, fault: &mut Option<ReportError>) -> Result<Vec<Run>, ReportError> {
    let path = folder.join("sweep.csv");
    let mut file = csv_file::read(&path)?;
    if file.columns.is_empty() {
        return unlisted(folder, &[], &HashSet::new(), &[], fault);
    }
    let [trial, status, own, reason] =
        csv_lines::find_columns(&file.columns, ["trial", "status", "folder", "reason"])
            .map_err(|message| ReportError::malformed(&path, 1, message))?;
    // The axes are the columns between the trial's number and its status.
    let axes: Vec<String> = file.columns.iter().take(status).skip(trial + 1).map(str::to_owned).collect();
    drop_figures(&mut file.rows, [status, own, reason]);
    let mut runs = Vec::with_capacity(file.rows.len());
    let mut listed = HashSet::new();
    let ran = |row: &Texts| !matches!(&row[status], "skipped" | SAME_AS | PLANNED);
    let run_folder = folder_finder(folder, [trial, status, own]);
    let read = parallel::map(&file.rows, |row| {
        let folder = (ran(row) && !row[own].is_empty()).then(|| run_folder(row))??;
        Some((Run::read(&folder), folder))
    });
    let sweep: Arc<str> = folder.display().to_string().into();
    for (row, read) in file.rows.iter().zip(read) {
        let cell = |column: usize| row.get(column).unwrap_or_default();
        let (ran, is_there) = (ran(row), read.is_some());
        let mut run = match read {
            Some((read, run_folder)) => {
                let run = read.unwrap_or_else(|e| Run::damaged(run_folder.display().to_string(), e, fault));
                listed.insert(run_folder);
                run
            }
            None => Run { path: format!("{sweep} trial {}", cell(trial)), ..Run::default() },
        };
        run.sweep = Some(Arc::clone(&sweep));
        run.trial = cell(trial).parse().ok();
        run.axes = axes.iter().cloned().zip(row.iter().skip(trial + 1).map(str::to_owned)).collect();
        let has_finished = is_there && cell(status) == FINISHED;
        if let Some(what) = has_finished.then(|| contradiction(&run)).flatten() {
            run.report_damage(ReportError::Damaged(what), fault);
        }
        if ran && !is_there && !cell(own).is_empty() {
            run.report_deleted(cell(status));
        }
        if [DAMAGED, DELETED].contains(&&*run.status) {
            runs.push(run);
            continue;
        }
        if cell(status) == SAME_AS {
            run.twin = run_folder(row);
        }
        if !went_on(&run, cell(status)) {
            if ran && run.figure("status").is_none() {
                run.take_figures(file.columns.iter().zip(row.iter()).skip(reason + 1));
            }
            run.status = cell(status).to_owned();
            run.reason = cell(reason).to_owned();
        }
        runs.push(run);
    }
    let begun = unlisted(folder, &runs, &listed, &axes, fault)?;
    add_begun(&mut runs, begun);
    Ok(runs)
}

/// Adds the trials that have a folder, and no row of their own: the table may be older.
fn add_begun(runs: &mut Vec<Run>, begun: Vec<Run>) {
    for begun in begun {
        let row = runs.iter_mut().find(|run| run.status == PLANNED && run.trial == begun.trial);
        match row {
            Some(row) => *row = Run { axes: std::mem::take(&mut row.axes), ..begun },
            None => runs.push(begun),
        }
    }
}

/// Finds the folder of a row's trial, which may have another name by now than in the table.
fn folder_finder<'a>(
    sweep: &'a Path,
    [trial, status, own]: [usize; 3],
) -> impl Fn(&Texts) -> Option<PathBuf> + Sync + 'a {
    let trials = LazyLock::new(move || RunDir::existing(sweep.to_owned()).trials());
    move |row| {
        let named = sweep.join(&row[own]);
        let [in_table, found] = [row[trial].parse().ok(), number_of(&named)];
        let number = if row[status] == *SAME_AS { found } else { in_table };
        if (found.is_none() || found == number) && named.is_dir() {
            return Some(named);
        }
        Some(trials.get(&number?)?.path().to_owned())
    }
}

/// Drops the figures of trials that finished, which their folders have: of many trials they take much memory.
fn drop_figures(rows: &mut [Texts], [status, own, reason]: [usize; 3]) {
    for row in rows.iter_mut().filter(|row| row[status] == *FINISHED && !row[own].is_empty()) {
        *row = row.iter().take(reason + 1).collect();
    }
}

/// Whether a trial has gone on since it had this status in the table, by itself or past its rung. A fault of its recording is
/// known to the table alone.
fn went_on(run: &Run, status: &str) -> bool {
    match run.figure("status") {
        Some(own) => own != status && status != "failed",
        None => is_open(run) && ["waiting", STOPPED].contains(&status),
    }
}

/// Whether a run has no summary.
fn is_open(run: &Run) -> bool {
    [UNFINISHED, RUNNING].contains(&&*run.status)
}

/// Where the folder of a trial that finished contradicts its row in the table.
fn contradiction(run: &Run) -> Option<String> {
    let folder = run.folder.as_deref()?;
    if run.status == UNFINISHED {
        return Some(lost_summary(folder));
    }
    let spec = run.spec.as_ref()?;
    let number = |text: &str| text.parse::<f64>().ok();
    run.axes.iter().find_map(|(axis, value)| {
        let own = spec.get(axis)?;
        let differs = number(own).zip(number(value)).is_some_and(|(own, value)| own != value);
        let path = folder.join("spec.toml");
        differs.then(|| format!("`{}` is not the trial's: `{axis}` is {own}, not {value}", path.display()))
    })
}

/// Processes that share a sweep may list a path as it was written, or in full.
fn call_paths_as_written(runs: &mut [Run]) {
    let axes = runs.first().map_or_else(Vec::new, |run| run.axes.clone());
    let is_full = |value: &str| value.starts_with('/');
    let plain = |value: &str| -> PathBuf {
        Path::new(value).components().filter(|part| matches!(part, Component::Normal(_))).collect()
    };
    for (axis, _) in axes.iter().filter(|(axis, _)| axis.starts_with("data.")) {
        if !runs.iter().any(|run| run.axis(axis).is_some_and(is_full)) {
            continue;
        }
        let values: BTreeSet<String> =
            runs.iter().filter_map(|run| run.axis(axis).map(str::to_owned)).collect();
        let (full, written): (Vec<_>, Vec<_>) = values.iter().partition(|value| is_full(value));
        // If several paths have the same ending, it is unknown which one was meant.
        let meant = |own: &&String| {
            let end = plain(own);
            let mut alike = full.iter().filter(|full| Path::new(full).ends_with(&end));
            let one = alike.next().filter(|_| alike.next().is_none() && !end.as_os_str().is_empty())?;
            Some(((*one).clone(), (*own).clone()))
        };
        let names: HashMap<String, String> = written.iter().filter_map(meant).collect();
        let own = runs.iter_mut().flat_map(|run| &mut run.axes).filter(|(own, _)| own == axis);
        for (_, value) in own {
            if let Some(name) = names.get(value) {
                value.clone_from(name);
            }
        }
    }
}

/// Trials that were started but have no row: the sweep is still running, or was killed.
fn unlisted(
    folder: &Path,
    known: &[Run],
    listed: &HashSet<PathBuf>,
    axes: &[String],
    fault: &mut Option<ReportError>,
) -> Result<Vec<Run>, ReportError> {
    let mut runs = Vec::new();
    for path in find::folders_in(folder)? {
        if listed.contains(&path) || !find::is_run(&path) {
            continue;
        }
        let mut run = Run::read_or_report(&path, fault);
        run.sweep = Some(folder.display().to_string().into());
        run.trial = number_of(&path);
        run.axes = axes.iter().filter_map(|axis| Some((axis.clone(), run.axis(axis)?.to_owned()))).collect();
        runs.push(run);
    }
    Others::new(folder, known).report(&mut runs, fault);
    Ok(runs)
}
